"""Graphs of a list go through the model block-diagonally where it takes them so, and one by one where it does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay import symmetry as sym
from assay.audits.symmetry import layout
from assay.audits.symmetry.subject import Subject, prepare
from assay.results import Finding, Verdict
from assay.seeding import torch_generator

FEW = {"transforms": 12, "skip": ("gradients", "differences", "jitter", "train-mode", "training", "sizes")}


class Graphs(nn.Module):
    """Lengths of differences along edges, summed per node or per graph; ``how`` plants what must be noticed."""

    def __init__(self, how: str = "") -> None:
        super().__init__()
        self.edge, self.node, self.how = nn.Linear(1, 6), nn.Linear(6, 2), how

    def forward(self, pos: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
        gaps = pos[edge_index[0]] - pos[edge_index[1]]
        if self.how == "frame":
            gaps = gaps * torch.tensor([1.0, 1.0, 1.1]).to(gaps)
        messages = torch.tanh(self.edge(gaps.norm(dim=-1, keepdim=True)))
        found = messages.new_zeros(len(pos), 6).index_add(0, edge_index[1], messages)
        if self.how == "pairs":  # of all nodes of a call: right for each graph, and dear for many
            found = found + 0 * torch.cdist(pos, pos).repeat(4, 1, 1).sum()
        if self.how == "mean":
            found = found - found.mean(0)
        if self.how == "room" and len(pos) > 20:
            found = found * 0.0
        each = self.node(found)
        if batch is None:
            return each
        return each.new_zeros(int(batch.max()) + 1, 2).index_add(0, batch, each)


def graphs(*, pooled: bool = False) -> list[dict[str, Tensor]]:
    found = []
    for number in range(6):
        random, n = torch_generator(number, "graphs"), 4 + number
        one = {"pos": torch.randn(n, 3, generator=random),
               "edge_index": torch.randint(n, (2, 3 * n), generator=random)}
        found.append({**one, "batch": torch.zeros(n, dtype=torch.long)} if pooled else one)
    return found


def spec(*, pooled: bool = False) -> sym.Symmetry:
    inputs = {"pos": sym.vector() @ sym.permuted(0), "edge_index": sym.node_index()}
    return sym.Symmetry(
        sym.SO(3) * sym.S(), inputs={**inputs, "batch": sym.permuted(0)} if pooled else inputs,
        outputs=sym.invariant() if pooled else sym.permuted(0), batch=None)


def model(how: str = "") -> Graphs:
    torch.manual_seed(0)
    return Graphs(how)


def calls(finding: Finding) -> float:
    return next(one.value for one in finding.measurements if one.name == "calls of the model")


@pytest.mark.parametrize("how", ["", "frame"])
@pytest.mark.parametrize("pooled", [False, True])
def test_graphs_in_one_call_give_the_verdict_and_the_errors_of_graphs_alone(
    how: str, pooled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: tuple[Any, ...] = (model(how), graphs(pooled=pooled), spec(pooled=pooled))
    joined = sym.audit_symmetry(*given, **FEW)
    monkeypatch.setattr(layout, "_joining", lambda subject: None)
    alone = sym.audit_symmetry(*given, **FEW)
    assert joined.verdict is alone.verdict is (Verdict.FAIL if how else Verdict.PARTIAL), joined.reason
    assert calls(joined) < 0.6 * calls(alone)
    if how:
        worst = [next(m.value for m in one.measurements if m.name == "max relative error") for one in (joined, alone)]
        assert worst[0] == pytest.approx(worst[1], rel=1e-4) and joined.issues[0].location == alone.issues[0].location


def arranged(how: str, cases: list[dict[str, Tensor]]) -> Subject:
    subject = prepare(model(how), cases, spec(), seed=0, inputs=16)
    return layout.arrange(subject, cases, 16, stochastic=False)[0]


@pytest.mark.parametrize(("how", "joins"), [("", True), ("mean", False), ("room", False), ("pairs", False)])
def test_a_model_that_mixes_graphs_or_has_room_for_few_nodes_is_asked_one_by_one(how: str, joins: bool) -> None:
    assert (arranged(how, graphs()).joining is not None) is joins
    finding = sym.audit_symmetry(model(how), graphs(), spec(), **FEW)
    assert finding.verdict is Verdict.PARTIAL, finding.reason  # partial: parts were switched off


def test_what_is_said_of_a_graph_among_others_is_checked_in_every_call() -> None:
    subject = arranged("", graphs())
    elements = subject.group().sample(5, torch_generator(0, "elements"))
    right = subject.over(subject.cases[0], elements, "high")

    class Later(Graphs):
        """From now on it mixes the graphs of a call, which the trial could not know."""

        def forward(self, pos: Tensor, edge_index: Tensor, batch: Tensor | None = None) -> Tensor:
            return super().forward(pos, edge_index) + (len(pos) > 9) * pos.sum()

    other = Later().double()
    other.load_state_dict(model().state_dict())
    subject.high = other
    assert torch.allclose(subject.over(subject.cases[0], elements, "high")[0], right[0], atol=1e-12)
