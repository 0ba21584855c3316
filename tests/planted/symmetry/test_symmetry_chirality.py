"""A chiral model that claims mirror symmetry is at fault, not its test."""

from __future__ import annotations

import torch
from planted_symmetry.families.egnn import EGNN
from planted_symmetry.judge import audit, score
from planted_symmetry.operators import operators
from planted_symmetry.plant import planted
from torch import Tensor, nn

from assay import symmetry as sym


class Chiral(nn.Module):
    """A triple product of positions: rotations hold, mirror images change its sign."""

    def forward(self, x: Tensor) -> Tensor:
        size = x.square().sum((1, 2))
        return size + torch.linalg.det(x[:, :3])


def test_positions_are_not_called_pseudovectors_to_excuse_a_chiral_energy() -> None:
    spec = sym.Symmetry(sym.O(3), inputs=sym.vector(), outputs=sym.invariant())
    skip = ("gradients", "differences", "jitter", "train-mode", "training")
    finding = sym.audit_symmetry(nn.Sequential(Chiral()), torch.randn(8, 4, 3), spec, transforms=6, skip=skip)
    assert [issue.title for issue in finding.issues] == ["Parity"]
    assert "'0'" in finding.reason


def test_an_input_declared_otherwise_must_suit_every_output() -> None:
    operator = next(one for one in operators() if one.name == "triple product")
    subject = planted(EGNN, operator, 2, 1.0)
    result = score(subject, audit(subject))
    assert result.near == "exact" and result.cause == "right", result
