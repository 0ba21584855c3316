"""Untidy models: each clean one is not blamed, each broken one is, and nothing crashes whatever a stage meets."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest
import torch
from planted_symmetry.untidy import WRAPPERS, Components, Norm
from torch import Tensor, nn

from assay import symmetry as sym
from assay.audits.symmetry import stages
from assay.errors import InputError
from assay.results import Verdict

pytestmark = pytest.mark.filterwarnings("ignore")
SMALL = {"inputs": 6, "transforms": 4}
ROTATIONS = sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=sym.invariant())
PERMUTED = sym.Symmetry(sym.S(), inputs=sym.permuted(0), outputs=sym.invariant(), batch=None)


def spec_of(name: str) -> sym.Symmetry:
    if name == "text beside tensors":
        return sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs={"y": sym.invariant()})
    return ROTATIONS


@pytest.mark.parametrize("broken", [False, True], ids=["clean", "broken"])
@pytest.mark.parametrize("name", WRAPPERS)
def test_an_untidy_model_gets_the_verdict_of_the_tidy_one(name: str, broken: bool) -> None:
    torch.manual_seed(0)
    model = WRAPPERS[name](Components() if broken else Norm())
    x = torch.randn(6, 3, dtype=torch.float64 if name == "float64 only" else torch.float32)
    finding = sym.audit_symmetry(model, x, spec_of(name), **SMALL)
    assert finding.verdict in ((Verdict.FAIL,) if broken else (Verdict.PASS, Verdict.PARTIAL)), finding.reason
    assert not [line for line in finding.limitations if "could not be made" in line]
    if not broken:
        gaps = {check.name for check in finding.checks if check.verdict is not Verdict.PASS}
        assert gaps <= {"gradients", "differences", "after 5 training steps"}, gaps


class Counts(nn.Module):
    """Class numbers or answers yes and no: whether a row is longer than most rows should be."""

    def __init__(self, *, whole_numbers: bool) -> None:
        super().__init__()
        self.whole_numbers, self.norm = whole_numbers, nn.BatchNorm1d(1)

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x.square().sum(-1, keepdim=True) - 2.0)
        return torch.cat([y, -y], dim=-1).argmax(-1) if self.whole_numbers else y > 0


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("whole_numbers", [False, True], ids=["booleans", "class numbers"])
def test_outputs_without_fractions_are_judged_in_training_mode_too(whole_numbers: bool, seed: int) -> None:
    torch.manual_seed(seed)
    finding = sym.audit_symmetry(Counts(whole_numbers=whole_numbers), torch.randn(16, 3), ROTATIONS, **SMALL)
    apart = {check.name: check for check in finding.checks}["train mode, rows moved apart"]
    assert apart.verdict is Verdict.PASS, apart.reason


class Cumulative(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.cumsum(0).tanh().sum(0)


def test_graphs_of_different_sizes_are_audited_when_broken() -> None:
    graphs = [torch.randn(n, 3) for n in (3, 5, 4, 6)]
    finding = sym.audit_symmetry(Cumulative(), graphs, PERMUTED, **SMALL)
    assert finding.verdict is Verdict.FAIL and finding.issues
    assert not [line for line in finding.limitations if "could not be made" in line]


class Front(nn.Module):
    """Keeps the points in front: how many depends on the rotation."""

    def forward(self, x: Tensor) -> Tensor:
        return x[x[:, 0] > 0]


def test_an_output_whose_length_depends_on_the_element_is_broken_and_named_so() -> None:
    spec = sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=sym.vector(), batch=None)
    finding = sym.audit_symmetry(Front(), [torch.randn(6, 3) for _ in range(3)], spec, **SMALL)
    assert finding.verdict is Verdict.FAIL
    assert finding.issues[0].title == "The shape of an output depends on the element"


class Masked(nn.Module):
    def __init__(self, *, broken: bool) -> None:
        super().__init__()
        self.broken = broken

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        kept = x * mask.unsqueeze(-1)
        return (kept[:, :-1] if self.broken else kept).sum((1, 2))


@pytest.mark.parametrize("broken", [False, True])
def test_boolean_masks_are_transformed_and_a_broken_model_is_found(broken: bool) -> None:
    spec = sym.Symmetry(sym.S(), inputs=(sym.permuted(1), sym.permuted(1)), outputs=sym.invariant())
    sample = (torch.randn(6, 5, 3), torch.rand(6, 5) > 0.3)
    finding = sym.audit_symmetry(Masked(broken=broken), sample, spec, **SMALL)
    assert finding.verdict is (Verdict.FAIL if broken else Verdict.PASS), finding.reason


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("around", [torch.no_grad, torch.inference_mode])
def test_what_the_caller_switched_off_does_not_reach_the_audit(around: Callable[[], Any], broken: bool) -> None:
    torch.manual_seed(0)
    model = Components() if broken else Norm()
    with around():
        finding = sym.audit_symmetry(model, torch.randn(6, 3), ROTATIONS, **SMALL)
    assert finding.verdict is (Verdict.FAIL if broken else Verdict.PASS), finding.reason
    assert not [check.name for check in finding.checks if check.label == "UNTESTED"]


class Answer(NamedTuple):
    y: Tensor
    note: str = ""


@dataclasses.dataclass
class Record:
    y: Tensor
    note: str = ""


class Answers(nn.Module):
    def __init__(self, inner: nn.Module, kind: type) -> None:
        super().__init__()
        self.inner, self.kind = inner, kind

    def forward(self, x: Tensor) -> Any:
        return self.kind(self.inner(x))


@pytest.mark.parametrize("broken", [False, True])
@pytest.mark.parametrize("kind", [Answer, Record])
@pytest.mark.parametrize("declared", [sym.invariant(), {"y": sym.invariant()}])
def test_records_are_declared_by_name_or_as_the_one_tensor_they_hold(kind: type, declared: Any, broken: bool) -> None:
    torch.manual_seed(0)
    model = Answers(Components() if broken else Norm(), kind)
    spec = sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=declared)
    finding = sym.audit_symmetry(model, torch.randn(6, 3), spec, **SMALL)
    assert finding.verdict is (Verdict.FAIL if broken else Verdict.PASS), finding.reason


def test_the_cause_of_a_scripted_model_is_looked_for() -> None:
    torch.manual_seed(0)
    finding = sym.audit_symmetry(torch.jit.script(Components()), torch.randn(6, 3), ROTATIONS, **SMALL)
    assert finding.verdict is Verdict.FAIL and "cause" not in {check.name for check in finding.checks}


@pytest.mark.parametrize(("model", "sample", "message"), [
    (nn.Identity(), torch.eye(3).to_sparse(), "give it dense"),
    (nn.Identity(), torch.nested.nested_tensor([torch.ones(2, 3)], layout=torch.jagged), "nested"),
    (nn.LazyLinear(4), torch.randn(6, 3), "call the model once"),
])
def test_what_cannot_be_audited_is_refused_with_what_to_do(model: nn.Module, sample: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        sym.audit_symmetry(model, sample, ROTATIONS, **SMALL)


STAGES = ("locate", "isolate", "alternatives", "gradient_test", "wrong_backwards", "output_spreads", "measure")


@pytest.mark.parametrize("stage", STAGES)
def test_a_stage_that_raises_is_untested_and_the_others_go_on(stage: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def raising(*_: object, **__: object) -> None:
        raise AssertionError

    monkeypatch.setattr(stages, stage, raising)
    for model in (Norm(), Components()):
        finding = sym.audit_symmetry(model, torch.randn(6, 3), ROTATIONS, **SMALL)
        assert finding.verdict is not Verdict.PASS or stage in ("isolate", "alternatives", "wrong_backwards")
        assert finding.checks and finding.reason


DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.complex64)
CONTAINERS = ("tensor", "tuple", "dict")
SIZES = (1, 3)
FUZZ = list(itertools.product(DTYPES, CONTAINERS, SIZES, (False, True), (False, True)))


def fuzzed(index: int) -> None:
    """One audit of a crossed model: whatever it is, it gets a verdict, and a clean one is not blamed."""
    dtype, container, size, broken, training = FUZZ[index % len(FUZZ)]
    torch.manual_seed(index)

    class Crossed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(3, dtype=dtype))
            self.drop = nn.Dropout(0.1)

        def forward(self, x: Tensor) -> object:
            x = self.drop(x) if not x.is_complex() else x
            y = x * self.weight
            y = y * torch.arange(1, y.shape[1] + 1).to(y).view(1, -1, 1) if broken else y
            return y if container == "tensor" else (y,) if container == "tuple" else {"y": y}

    rep = sym.permuted(1)
    shaped = {"tensor": (rep, rep), "tuple": ((rep,), (rep,)), "dict": ({"x": rep}, {"y": rep})}
    given, declared = shaped[container]
    x = torch.randn(size, 4, 3, dtype=dtype)
    sample = {"tensor": x, "tuple": (x,), "dict": {"x": x}}[container]
    spec = sym.Symmetry(sym.S(), inputs=given, outputs=declared)
    finding = sym.audit_symmetry(Crossed().train(training), sample, spec, inputs=4, transforms=3)
    assert (finding.verdict is Verdict.FAIL) == broken, (FUZZ[index % len(FUZZ)], finding.verdict, finding.reason)
    assert not [line for line in finding.limitations if "could not be made" in line], finding.limitations


@pytest.mark.parametrize("index", range(0, len(FUZZ), 5))
def test_crossings_of_dtype_container_size_and_mode_get_the_right_verdict(index: int) -> None:
    fuzzed(index)


@pytest.mark.slow
@pytest.mark.parametrize("index", range(2 * len(FUZZ)))
def test_every_crossing_gets_the_right_verdict(index: int) -> None:
    fuzzed(index)
