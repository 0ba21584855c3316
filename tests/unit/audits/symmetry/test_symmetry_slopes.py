"""Forces by automatic differentiation: modules are mended in the energy, and no raw error of autograd is shown."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from assay import symmetry as sym
from assay.audits.symmetry.locate.derived import plain_outputs
from assay.audits.symmetry.subject import prepare
from assay.results import Finding, Verdict
from assay.seeding import torch_generator

ENERGY, FORCES = {"energy": sym.invariant()}, {"forces": sym.vector() @ sym.permuted(1)}
FEW = {"transforms": 4, "skip": ("gradients", "differences", "jitter", "train-mode", "training", "sizes")}


class Measure(nn.Module):
    """Adds the squared length; ``frame`` weighs the first component more."""

    def __init__(self, frame: float = 0.0) -> None:
        super().__init__()
        self.frame = frame

    def forward(self, state: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        gaps, found = state
        more = gaps.square().sum(-1, keepdim=True) + self.frame * gaps[..., :1].square()
        return gaps, torch.cat([found, torch.tanh(more)], dim=-1)


class Potential(nn.Module):
    def __init__(self, *frames: float) -> None:
        super().__init__()
        self.measures = nn.Sequential(*[Measure(frame) for frame in frames])
        self.head = nn.Sequential(nn.Linear(len(frames), 8), nn.Tanh(), nn.Linear(8, 1))

    def forward(self, pos: Tensor) -> dict[str, Tensor]:
        with torch.enable_grad():
            pos = pos if pos.requires_grad else pos.detach().requires_grad_(True)
            gaps = pos[:, :, None] - pos[:, None]
            features = self.measures((gaps, gaps[..., :0]))[1]
            energy = self.head(features).sum((1, 2, 3))
            (slope,) = torch.autograd.grad(energy.sum(), pos, create_graph=True)
        return {"energy": energy, "forces": -slope}


def spec(outputs: dict[str, sym.Representation]) -> sym.Symmetry:
    return sym.Symmetry(sym.SO(3) * sym.S(), inputs=sym.vector() @ sym.permuted(1), outputs=outputs)


def sample() -> Tensor:
    return torch.randn(8, 4, 3, generator=torch_generator(0, "molecules"))


def audit(*frames: float, outputs: dict[str, sym.Representation]) -> Finding:
    torch.manual_seed(0)
    return sym.audit_symmetry(Potential(*frames), sample(), spec(outputs), **FEW)


def places(finding: Finding) -> list[str]:
    return [issue.location for issue in finding.issues]


def test_both_of_two_guilty_modules_are_named_in_a_force_field() -> None:
    finding = audit(0.0, 0.3, 0.0, 0.2, outputs={**ENERGY, **FORCES})
    assert finding.verdict is Verdict.FAIL and places(finding) == ["measures.1", "measures.3"], places(finding)
    assert "peel" not in {check.name for check in finding.checks}


def test_one_guilty_module_owns_the_whole_error_of_the_energy() -> None:
    finding = audit(0.0, 0.3, 0.0, outputs={**ENERGY, **FORCES})
    rows = {row[0]: row for t in finding.tables if t.title == "Layers under rotation" for row in t.rows}
    assert places(finding) == ["measures.1"] and rows["measures.1"][8] == pytest.approx(1.0, abs=1e-6)


def test_a_sound_force_field_holds() -> None:
    finding = audit(0.0, 0.0, outputs={**ENERGY, **FORCES})
    assert finding.verdict is Verdict.PARTIAL and not finding.issues  # partial: parts were switched off


def test_where_every_output_is_a_slope_the_peeling_says_so() -> None:
    finding = audit(0.0, 0.3, outputs=FORCES)
    assert finding.verdict is Verdict.FAIL and places(finding)[0] == "measures.1"
    (said,) = [check.reason for check in finding.checks if check.name == "peel"]
    assert "every output is a slope" in said


def test_slopes_are_told_from_values() -> None:
    subject = prepare(Potential(0.0, 0.1), sample(), spec({**ENERGY, **FORCES}), seed=0, inputs=8)
    assert [subject.output_names[i] for i in plain_outputs(subject, subject.cases[0])] == ["energy"]
