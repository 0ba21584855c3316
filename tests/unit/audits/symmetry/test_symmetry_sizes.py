"""Sets and graphs of other sizes, and edges in another order, are part of what is claimed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from assay import symmetry as sym
from assay.audits.symmetry.measure.sizes import resized
from assay.results import Finding, Verdict
from assay.seeding import torch_generator

FEW = {"transforms": 6, "skip": ("jitter", "train-mode", "training", "gradients", "differences")}


def randn(*shape: int, name: str = "x") -> Tensor:
    return torch.randn(*shape, generator=torch_generator(0, name))


def check(finding: Finding, name: str):
    return next((one for one in finding.checks if one.name == name), None)


class Sum(nn.Module):
    """A sum over the set; ``cap`` reads so many entries only, as a buffer of fixed length does."""

    def __init__(self, cap: int | None = None) -> None:
        super().__init__()
        self.each, self.head, self.cap = nn.Linear(3, 8), nn.Linear(8, 2), cap

    def forward(self, x: Tensor) -> Tensor:
        return self.head(torch.tanh(self.each(x))[:, : self.cap].sum(1))


SET = sym.Symmetry(sym.S(), inputs=sym.permuted(1), outputs=sym.invariant())


def test_a_cap_on_the_number_of_entries_shows_at_larger_sets_only() -> None:
    sample = randn(8, 6, 3)
    assert check(sym.audit_symmetry(Sum(), sample, SET, **FEW), "set sizes").verdict is Verdict.PASS
    capped = sym.audit_symmetry(Sum(cap=6), sample, SET, **FEW)
    assert check(capped, "permutation: output").verdict is Verdict.PASS
    assert check(capped, "set sizes").label == "BROKEN" and capped.verdict is Verdict.FAIL
    assert capped.issues[0].title == "Breaks at other numbers of entries"


def test_a_declared_number_of_entries_is_not_changed() -> None:
    spec = sym.Symmetry(sym.S(6), inputs=sym.permuted(1), outputs=sym.invariant())
    assert check(sym.audit_symmetry(Sum(cap=6), randn(8, 6, 3), spec, **FEW), "set sizes") is None


class Loud(Sum):
    """Outputs of a million, and an entry that counts a little more than the others."""

    def forward(self, x: Tensor) -> Tensor:
        return 1e6 * (super().forward(x) + 1e-5 * super().forward(x[:, :1]))


def test_a_budget_is_relative_at_other_sizes_too() -> None:
    sample = randn(8, 6, 3)
    allowed = sym.audit_symmetry(Loud(), sample, SET, budget=1e-2, **FEW)
    assert check(allowed, "set sizes").label == "APPROXIMATE" and allowed.verdict is not Verdict.FAIL, allowed.reason
    assert check(sym.audit_symmetry(Loud(), sample, SET, **FEW), "set sizes").label == "BROKEN"


class Spectrum(nn.Module):
    """Squared entries of the eigenvectors of a symmetric matrix; ``cap`` reads so many columns only."""

    def __init__(self, cap: int | None = None) -> None:
        super().__init__()
        self.head, self.cap = nn.Linear(2, 2), cap

    def forward(self, weights: Tensor) -> Tensor:
        degrees = weights[:, : self.cap].sum(1)
        return self.head(torch.linalg.eigh(torch.diag(degrees) - weights).eigenvectors[:, :2].square())


PAIRS = sym.Symmetry(sym.S(), inputs=sym.permuted(0, 1), outputs=sym.permuted(0), batch=None)


def test_a_matrix_of_pairs_stays_symmetric_at_other_sizes() -> None:
    weights = randn(8, 8).square().triu(1)
    weights = weights + weights.T
    assert check(sym.audit_symmetry(Spectrum(), weights, PAIRS, **FEW), "set sizes").verdict is Verdict.PASS
    assert check(sym.audit_symmetry(Spectrum(cap=8), weights, PAIRS, **FEW), "set sizes").label == "BROKEN"


@pytest.mark.parametrize("count", [3, 6, 7, 12])
def test_pairs_that_are_added_have_the_values_and_the_mirror_of_pairs_that_are_there(count: int) -> None:
    upper = (randn(6, 6) > 0).float().triu(1)
    for matrix, sign in ((upper + upper.T, 1), (upper - upper.T, -1)):
        spec = {"part": "S", "size": 6, "count": count, "generator": torch_generator(0, "pairs")}
        (found,) = resized([matrix], [sym.permuted(0, 1)], **spec)
        assert found.shape == (count, count) and torch.equal(found, sign * found.T)
        assert set(found.unique().tolist()) <= set(matrix.unique().tolist()) and not found.diagonal().any()
        assert torch.equal(found[:6, :6], matrix[:count, :count])


class Messages(nn.Module):
    """Messages along edges, weighted by edge features; ``first`` reads so many edges only; ``scores`` per edge too."""

    def __init__(self, *, first: int | None = None, scores: bool = False) -> None:
        super().__init__()
        self.node, self.edge, self.head = nn.Linear(4, 8), nn.Linear(2, 8), nn.Linear(8, 3)
        self.first, self.scores = first, scores

    def forward(self, x: Tensor, edge_index: Tensor, edge_attr: Tensor) -> Tensor | tuple[Tensor, Tensor]:
        hidden, (source, target) = torch.tanh(self.node(x)), edge_index
        message = hidden[source] * torch.sigmoid(self.edge(edge_attr))
        kept = slice(self.first)
        heard = torch.zeros_like(hidden).index_add(0, target[kept], message[kept])
        found = self.head(torch.tanh(hidden + heard))
        return (found, message) if self.scores else found


def graphs(count: int) -> list[dict[str, Tensor]]:
    pairs = torch.tensor([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (0, 3), (1, 4)])
    edges = torch.cat([pairs, pairs.flip(1)]).T.contiguous()
    return [
        {"x": randn(6, 4, name=f"x{i}"), "edge_index": edges, "edge_attr": randn(16, 2, name=f"e{i}")}
        for i in range(count)
    ]


def declared(outputs: object) -> sym.Symmetry:
    inputs = {"x": sym.permuted(0), "edge_index": sym.node_index(), "edge_attr": sym.invariant()}
    return sym.Symmetry(sym.S(), inputs=inputs, outputs=outputs, batch=None)


def test_edges_that_are_declared_are_tested_in_another_order() -> None:
    clean = sym.audit_symmetry(Messages(), graphs(4), declared(sym.permuted(0)), **FEW)
    assert clean.verdict is Verdict.PARTIAL, clean.reason
    assert check(clean, "permutation of edges: output").verdict is Verdict.PASS
    planted = sym.audit_symmetry(Messages(first=8), graphs(4), declared(sym.permuted(0)), **FEW)
    assert check(planted, "permutation: output").verdict is Verdict.PASS
    assert check(planted, "permutation of edges: output").label == "BROKEN"
    assert planted.issues[0].title == "The order of edges enters", planted.issues[0]


def test_what_a_model_says_of_each_edge_follows_the_edges() -> None:
    spec = declared((sym.permuted(0), sym.invariant()))
    finding = sym.audit_symmetry(Messages(scores=True), graphs(4), spec, **FEW)
    assert finding.verdict is Verdict.PARTIAL, finding.reason


@pytest.mark.parametrize("count", [5, 6])
def test_as_many_edges_as_nodes_are_left_in_their_order(count: int) -> None:
    ring = torch.stack([torch.arange(count), (torch.arange(count) + 1) % count])
    sample = [{"x": randn(count, 4, name=f"x{i}"), "edge_index": ring, "edge_attr": randn(count, 2)} for i in range(3)]
    finding = sym.audit_symmetry(Messages(), sample, declared(sym.permuted(0)), **{**FEW, "transforms": 1})
    assert check(finding, "permutation of edges: output") is None
