"""Float64 is asked at a sample and wherever the low precision leaves room for an error above ten rounding bounds."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from assay import symmetry as sym
from assay.audits.symmetry.measure.arbitrate import PROMISED, SAMPLED
from assay.audits.symmetry.measure.endtoend import measure
from assay.audits.symmetry.subject import Subject, prepare
from assay.seeding import torch_generator

SPEC = sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=sym.vector())


class Net(nn.Module):
    """Vectors times a function of their norms, plus ``leak(x)``."""

    def __init__(self, leak=lambda x: 0 * x) -> None:
        super().__init__()
        self.leak = leak

    def forward(self, x: Tensor) -> Tensor:
        return x * torch.sigmoid(x.norm(dim=-1, keepdim=True)) / 3 + self.leak(x)


def subject_of(model: nn.Module, n: int = 20) -> Subject:
    subject = prepare(model, torch.randn(n, 4, 3, generator=torch_generator(0, "x")), SPEC, seed=0, inputs=n)
    subject.rows = subject.mergeable = True
    return subject


def elements(group: sym.Group, n: int = 60) -> sym.Elements:
    return group.sample(n, torch_generator(0, "g"))


def test_a_sound_model_is_settled_at_the_sample_alone() -> None:
    (errors,) = measure(subject_of(Net()), elements, spreads={})
    assert errors.elements == 60 and len(errors.screened) == 60 * 20
    assert len(set(errors.element.tolist())) == SAMPLED and errors.sampled.all()


def test_one_bad_pair_in_thousands_is_sent_to_float64() -> None:
    """A break at one input and a few elements, a hundred times the floor: the low precision shows where to look."""
    def leak(x: Tensor) -> Tensor:
        return 1e-5 * (x[..., :1] > 3.2).to(x) * torch.ones_like(x)

    subject = subject_of(Net(leak))
    (full,) = measure(subject, elements, spreads={}, everywhere=True)
    bad = full.best > PROMISED * full.floor
    assert 0 < int(bad.sum()) < 0.05 * len(bad), "the defect must be rare"
    (errors,) = measure(subject, elements, spreads={})
    assert float((errors.best / errors.floor).max()) > PROMISED
    assert not torch.isin(errors.element[~errors.sampled], errors.element[errors.sampled]).any()


def test_no_pair_above_ten_bounds_is_left_unless_the_output_is_known_to_be_broken() -> None:
    for size in (1e-8, 1e-7, 3e-7, 1e-6, 1e-4):
        def leak(x: Tensor, size: float = size) -> Tensor:
            return size * (x[..., :1] > 1.5).to(x) * torch.ones_like(x)

        subject = subject_of(Net(leak))
        (full,) = measure(subject, elements, spreads={}, everywhere=True)
        (quick,) = measure(subject, elements, spreads={})
        found = bool((quick.best > quick.floor).any())
        assert found or not bool((full.best > PROMISED * full.floor).any()), size
        assert found or quick.left == 0.0, size


def test_the_worst_error_of_a_broken_model_counts_pairs_float64_did_not_see() -> None:
    (full,) = measure(subject_of(Net(lambda x: x.abs())), elements, spreads={}, everywhere=True)
    (quick,) = measure(subject_of(Net(lambda x: x.abs())), elements, spreads={})
    assert len(quick.low) < len(full.low)
    assert abs(quick.worst - full.worst) <= 1e-5 * full.worst


def test_a_large_rounding_far_from_the_input_is_not_called_a_break() -> None:
    """r(gx) > 8 r(x) makes suspects of sound pairs; float64 clears every one of them."""
    spec = sym.Symmetry(sym.SE(3), inputs=sym.point(), outputs=sym.invariant())

    class Distances(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x.unsqueeze(1) - x.unsqueeze(2)).square().sum(-1)

    x = 0.001 * torch.randn(10, 4, 3, generator=torch_generator(0, "x"))
    finding = sym.audit_symmetry(Distances(), x, spec, transforms=40, skip=("gradients", "differences"))
    assert not [check for check in finding.checks if check.label == "BROKEN"], finding.reason


def test_the_report_says_what_it_would_have_found() -> None:
    x = torch.randn(8, 4, 3, generator=torch_generator(0, "x"))
    finding = sym.audit_symmetry(Net(), x, SPEC, skip=("gradients", "differences"))
    table = next(one for one in finding.tables if one.title == "What was looked for")
    rows = [tuple(row) for row in table.rows]
    assert ("rotation", "above 10 rounding bounds", "8 x 59", "31.2%", "5.0%") in rows
    assert any(row[1] == "1 to 10 rounding bounds" and row[2] == f"8 x {SAMPLED}" for row in rows)
    assert finding.measurement("transformations tested").value == 59


def test_an_element_is_not_asked_twice_in_the_same_precision() -> None:
    subject = subject_of(Net())
    subject.rows, subject.mergeable, before = False, False, subject.cost.calls
    measure(subject, lambda group: elements(group, 4), spreads={})
    assert subject.cost.calls - before == 2 * (1 + 4)  # at x and at four gx, in two precisions
