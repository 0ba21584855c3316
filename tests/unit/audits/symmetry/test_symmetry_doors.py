"""Front doors: atoms and graphs as other programs hold them, findings that can be read where they are printed."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import assay
from assay import symmetry as sym
from assay.errors import InputError
from assay.results import Verdict
from assay.seeding import torch_generator

SETS = sym.Symmetry(sym.S(), inputs=sym.permuted(1), outputs=sym.permuted(1))
QUICK = {"inputs": 2, "transforms": 3, "skip": ("gradients", "differences", "jitter", "train-mode", "training")}


def randn(*shape: int, name: str = "x") -> Tensor:
    return torch.randn(*shape, generator=torch_generator(0, name))


class Cumulative(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(1)


def test_a_finding_is_one_line_and_a_notebook_shows_its_issues() -> None:
    finding = sym.audit_symmetry(Cumulative(), randn(8, 5), SETS, **QUICK)
    assert len(repr(finding)) < 300 and "\n" not in repr(finding) and "FAIL" in repr(finding)
    shown = finding._repr_html_()
    assert "FAIL" in shown and finding.issues[0].title in shown


def test_what_a_notebook_shows_is_escaped() -> None:
    finding = sym.audit_symmetry(Cumulative(), randn(8, 5), SETS, name="<script>", **QUICK)
    assert "<script>" not in finding._repr_html_()


def test_markdown_of_an_audit_begins_with_the_answer(tmp_path) -> None:
    finding = sym.audit_symmetry(Cumulative(), randn(8, 5), SETS, **QUICK)
    assay.save_report(finding, tmp_path / "audit.md")
    lines = [line for line in (tmp_path / "audit.md").read_text(encoding="utf-8").splitlines() if line]
    assert lines[0].startswith("# ") and "**FAIL**" in lines[1] and finding.issues[0].title in lines[2]


def test_an_assertion_that_holds_says_pass_for_what_it_tests() -> None:
    finding = sym.assert_equivariant(nn.Tanh(), randn(8, 5), SETS)
    assert finding.verdict is Verdict.PASS and all(check.verdict is Verdict.PASS for check in finding.checks)


class PairEnergy(nn.Module):
    """A sum over pairs of atoms, as a dict of energy and forces; ``height`` adds an external field."""

    def __init__(self, *, height: float = 0.0) -> None:
        super().__init__()
        self.charge, self.height = nn.Embedding(10, 1), height

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        with torch.enable_grad():
            pos = batch["pos"].detach().requires_grad_(True)
            source, target = batch["edge_index"]
            gap = (pos[source] - pos[target]).square().sum(-1)
            charge = self.charge(batch["z"])[:, 0]
            energy = (charge[source] * charge[target] * torch.exp(-gap / 4)).sum() + self.height * pos[:, 2].sum()
            (forces,) = torch.autograd.grad(-energy, pos)
        return {"energy": energy.detach(), "forces": forces, "other": pos.detach()}


def batch(number: int) -> dict[str, Tensor]:
    index = torch.combinations(torch.arange(5)).T
    return {
        "pos": randn(5, 3, name=f"pos{number}"),
        "z": torch.tensor([6, 1, 1, 8, 7]),
        "edge_index": torch.cat([index, index.flip(0)], dim=1),
        "charges": randn(5, name="unused"),
        "weight": torch.ones(1),
    }


def test_roles_in_a_dict_are_guessed_and_shown() -> None:
    finding = sym.molecule(PairEnergy(), [batch(0), batch(1)], **QUICK)
    assert finding.verdict is Verdict.PARTIAL, finding.reason
    said = finding.checks[0].reason
    assert "pos: point @ permuted(0)" in said and "edge_index: node_index" in said and "energy: invariant" in said
    assert "left alone: charges, weight" in said  # nothing reads the charges
    planted = sym.molecule(PairEnergy(height=0.1), [batch(0), batch(1)], **QUICK)
    guilty = {check.name for check in planted.checks if check.label == "BROKEN"}
    assert {"rotation: energy", "translation: energy"} <= guilty


def test_a_dict_without_positions_is_refused_with_the_names_that_would_do() -> None:
    with pytest.raises(InputError, match="positions"):
        sym.molecule(PairEnergy(), {"x": randn(5, 3)})


def test_atoms_need_a_calculator() -> None:
    build = pytest.importorskip("ase.build", reason="needs ase")
    with pytest.raises(InputError, match="calculator"):
        sym.molecule(PairEnergy(), build.molecule("H2O"))


def test_a_graph_of_pyg_is_not_taken_for_a_sampler() -> None:
    data = pytest.importorskip("torch_geometric.data", reason="needs torch_geometric").Data
    graph = data(pos=randn(5, 3), edge_index=batch(0)["edge_index"])
    spec = sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=sym.vector())
    with pytest.raises(InputError, match=r"sym\.molecule"):
        sym.audit_symmetry(nn.Identity(), graph, spec)


class BatchEnergy(nn.Module):
    """An energy for every molecule of a batch; ``mixed`` subtracts the mean over the batch."""

    def __init__(self, *, height: float = 0.0, mixed: bool = False) -> None:
        super().__init__()
        self.height, self.mixed = height, mixed
        self.charge = nn.Embedding(9, 1)
        nn.init.normal_(self.charge.weight, generator=torch_generator(0, "charge"))

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        with torch.enable_grad():
            pos = batch["positions"].detach().requires_grad_(True)
            source, target = batch["edge_index"]
            gap = (pos[source] - pos[target] + batch["shifts"]).square().sum(-1)
            charge = self.charge(batch["node_attrs"].argmax(-1))[:, 0]
            each = torch.zeros_like(pos[:, 0]).index_add(0, target, charge[source] * charge[target] * torch.exp(-gap))
            each = each + self.height * pos[:, 2]
            energy = pos.new_zeros(batch["ptr"].numel() - 1).index_add(0, batch["batch"], each)
            energy = energy + torch.linalg.det(batch["cell"].view(-1, 3, 3)).abs().log()
            energy = energy - energy.mean() if self.mixed else energy
            (forces,) = torch.autograd.grad(-energy.sum(), pos)
        return {"energy": energy.detach(), "forces": forces}


def several(sizes: tuple[int, ...] = (5, 4, 5)) -> dict[str, Tensor]:
    """A batch as MACE holds it: cells under each other, edges numbered through, targets and weights beside them."""
    starts = torch.tensor([0, *sizes]).cumsum(0)
    pairs = [torch.combinations(torch.arange(n)).T + start for n, start in zip(sizes, starts.tolist(), strict=False)]
    edges = torch.cat([torch.cat([one, one.flip(0)], dim=1) for one in pairs], dim=1)
    kinds = torch.arange(sum(sizes)) % 9
    return {
        "positions": randn(sum(sizes), 3, name="several"),
        "node_attrs": torch.nn.functional.one_hot(kinds, 9).float(),
        "edge_index": edges,
        "shifts": torch.zeros(edges.shape[1], 3),
        "cell": torch.cat([(4.0 + k) * torch.eye(3) for k in range(len(sizes))]),
        "batch": torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes)),
        "ptr": starts,
        "energy": torch.zeros(len(sizes)),
        "weight": torch.ones(len(sizes)),
    }


def test_a_dict_of_several_molecules_is_taken_apart_and_what_follows_is_about_each() -> None:
    finding = sym.molecule(BatchEnergy(), several(), **QUICK)
    assert finding.verdict is Verdict.PARTIAL and "untested" in finding.reason, finding.reason
    apart = {check.name: check for check in finding.checks}["molecules of a batch"]
    assert apart.verdict is Verdict.PASS and "3 molecules" in apart.reason
    planted = sym.molecule(BatchEnergy(height=0.1), several(), **QUICK)
    guilty = {check.name for check in planted.checks if check.label == "BROKEN"}
    assert {"rotation: energy", "translation: energy"} <= guilty and "permutation: energy" not in guilty


def test_molecules_that_influence_each_other_are_told() -> None:
    finding = sym.molecule(BatchEnergy(mixed=True), several(), **QUICK)
    apart = {check.name: check for check in finding.checks}["molecules of a batch"]
    assert apart.verdict is Verdict.INCONCLUSIVE and "influence each other" in apart.reason


def test_an_edge_between_two_molecules_is_refused() -> None:
    batch = several()
    batch["edge_index"][0, 0] = 7
    with pytest.raises(InputError, match="one molecule"):
        sym.molecule(BatchEnergy(), batch, **QUICK)
