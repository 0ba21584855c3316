"""The sameness audit as a user meets it: what it finds, what it costs, what it leaves behind, what it refuses."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import assay
import assay.reports.save
from assay.errors import InputError
from assay.results import Verdict
from assay.seeding import torch_generator


class Steep(torch.autograd.Function):
    """tanh with a derivative that forgets the square."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.tanh()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return g * (1 - x.tanh())


class Squash(nn.Module):
    def __init__(self, own: bool) -> None:
        super().__init__()
        self.own = own

    def forward(self, x: Tensor) -> Tensor:
        return Steep.apply(x) if self.own else x.tanh()


def net(*, own: bool = False) -> nn.Sequential:
    model = nn.Sequential(nn.Linear(6, 8), Squash(own), nn.Linear(8, 3))
    generator = torch_generator(0, "weights")
    for parameter in model.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator) / 3
    return model


X = torch.randn(9, 6, generator=torch_generator(0, "x"))


def test_a_wrong_custom_backward_is_found_named_and_explained_on_the_page() -> None:
    finding = assay.audit_same(net(), net(own=True), X)
    assert finding.verdict is Verdict.FAIL
    (issue,) = finding.issues
    assert issue.location == "1" and "backward pass of 1" in issue.cause and "outputs agree" in issue.cause
    page = assay.reports.save.RENDERERS[".md"](assay.reports.save.as_run(finding))
    assert "backward pass of 1" in page and "caught at 3 times the allowance" in page


def test_equal_energies_with_wrong_forces_are_found() -> None:
    class Energy(nn.Module):
        """The second derivative of the fast one is that of another function."""

        def __init__(self, own: bool) -> None:
            super().__init__()
            self.net = net(own=own)

        def forward(self, x: Tensor) -> Tensor:
            return self.net(x).sum(-1)

    finding = assay.audit_same(Energy(False), Energy(True), X)
    assert finding.verdict is Verdict.FAIL and "gradient" in finding.reason
    assert next(c for c in finding.checks if c.name == "as given: outputs").verdict is Verdict.PASS


def test_a_clean_audit_takes_at_most_ten_passes_of_each_and_leaves_both_bit_identical() -> None:
    reference, candidate = net().train(), net().train()
    next(candidate.parameters()).grad = torch.ones(8, 6)
    calls: list[str] = []

    def call(model: nn.Module, x: Tensor) -> Tensor:
        calls.append(model.said)  # type: ignore[arg-type]
        return model(x)

    reference.said, candidate.said = "reference", "candidate"
    before, random = copy.deepcopy(candidate.state_dict()), torch.get_rng_state()
    assert assay.audit_same(reference, candidate, X, call=call).passed
    assert calls.count("candidate") <= 10 and calls.count("reference") <= 10
    assert all(torch.equal(value, before[name]) for name, value in candidate.state_dict().items())
    assert bool((next(candidate.parameters()).grad == 1).all()) and candidate.training
    assert torch.equal(random, torch.get_rng_state())
    assert not any(m._forward_hooks or m._forward_pre_hooks for m in [*candidate.modules(), *reference.modules()])


def test_a_more_accurate_candidate_passes_and_a_half_precision_one_does_not() -> None:
    model = net()
    wide = copy.deepcopy(model).double()
    fine = assay.audit_same(model, lambda x: wide(x.double()).float(), X, gradients=False)
    rough = assay.audit_same(model, lambda x: model.half()(x.half()).float(), X, gradients=False)
    assert fine.passed and rough.verdict is Verdict.FAIL


class Picky(torch.autograd.Function):
    """The identity; what ``backward`` raises at is decided by the rows of the gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: int) -> Tensor:
        ctx.rows = rows
        return x.clone()

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        if len(gradient) <= ctx.rows:
            raise AssertionError("expected size 3==3, stride 1==9")
        return gradient, None


class Choosy(nn.Module):
    """A net whose backward pass raises with at most so many rows, as that of compiled code can with none."""

    def __init__(self, rows: int) -> None:
        super().__init__()
        self.net, self.rows = net(), rows

    def forward(self, x: Tensor) -> Tensor:
        return Picky.apply(self.net(x), self.rows)


@pytest.mark.parametrize(("rows", "verdict"), [(-1, "PASS"), (0, "PARTIAL"), (1, "FAIL"), (9, "FAIL")])
def test_a_backward_pass_that_raises_on_an_empty_batch_is_told_and_one_that_raises_on_rows_fails(
    rows: int, verdict: str
) -> None:
    finding = assay.audit_same(Choosy(-1), Choosy(rows), X)
    assert finding.verdict == verdict, finding.reason
    if verdict == "PARTIAL":
        assert "no row" in finding.reason and "AssertionError" in finding.reason
        assert next(c for c in finding.checks if c.name == "no row").verdict is Verdict.PARTIAL
        with pytest.raises(AssertionError, match="no row"):
            assay.assert_same(Choosy(-1), Choosy(rows), X)
    if verdict == "FAIL":
        assert [check.label for check in finding.checks if check.verdict is Verdict.FAIL] == ["WRONG"]


def test_what_a_candidate_does_not_claim_is_not_asked_and_stands_in_the_claim() -> None:
    calls: list[int] = []

    def fixed(x: Tensor) -> Tensor:
        calls.append(len(x))
        return net()(x)

    finding = assay.audit_same(net(), fixed, X, gradients=False, without=["no row", "one row"])
    assert finding.passed and set(calls) == {9} and "no row, one row" in finding.claim
    assert assay.audit_same(Choosy(-1), Choosy(0), X, without="no row").passed
    with pytest.raises(InputError, match="did you mean 'no row'"):
        assay.audit_same(net(), net(), X, without=["no rows"])


class Refuses(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        raise RuntimeError("does not support double backward")


class Once(Steep):
    """tanh with its derivative, and none behind that."""

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return Refuses.apply(g * (1 - x.tanh().square()))


def test_an_energy_that_can_be_derived_only_once_is_partial_and_a_wrong_second_derivative_fails() -> None:
    class Energy(nn.Module):
        def __init__(self, kind: str) -> None:
            super().__init__()
            self.first, self.kind = net(), kind

        def forward(self, x: Tensor) -> Tensor:
            y = self.first(x)
            if self.kind == "second":  # the same value and slope, another curvature
                y = y.tanh() + (y - y.detach()).square()
            return (Once.apply(y) if self.kind == "once" else y if self.kind == "second" else y.tanh()).sum(-1)

    once = assay.audit_same(Energy(""), Energy("once"), X)
    assert once.verdict is Verdict.PARTIAL and "second derivatives" in once.reason, once.reason
    assert "as given: gradients" in {c.name for c in once.checks}, "first derivatives were compared"
    assert any("--without 'second derivatives'" in hint for hint in once.improvements)
    assert assay.audit_same(Energy(""), Energy("once"), X, without=["second derivatives"]).passed
    wrong = assay.audit_same(Energy(""), Energy("second"), X)
    assert wrong.verdict is Verdict.FAIL and "second derivative" in wrong.reason


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_a_compiled_candidate_is_run_compiled_at_every_shape() -> None:
    """A Sequential shares its code with all others of the process, so the limit of eight is soon met."""
    ran: list[int] = []

    def backend(graph: Any, _: Any) -> Any:
        def run(*args: Any) -> Any:
            ran.append(1)
            return graph(*args)

        return run

    torch._dynamo.reset()
    for width in range(2, 8):
        torch.compile(nn.Sequential(nn.Linear(6, width)), backend=backend)(X)
    ran.clear()
    assert assay.audit_same(net(), torch.compile(net(), backend=backend), X).passed
    assert len(ran) >= 7, "as given, again, strided, extreme, one row, no row, after a step"


def test_a_budget_accepts_an_approximation_and_tells_how_often_decisions_agree() -> None:
    model = net()
    coarse = copy.deepcopy(model)
    for parameter in coarse.parameters():
        parameter.data = (parameter.data * 64).round() / 64
    assert assay.audit_same(model, coarse, X).verdict is Verdict.FAIL
    finding = assay.audit_same(model, coarse, X, budget=0.3, gradients=False)
    assert finding.passed and finding.measurement("agreement of the decision").n == 9
    assert assay.audit_same(model, coarse, X, budget=1e-4, gradients=False).verdict is Verdict.FAIL


def test_what_is_not_a_number_is_compared_too() -> None:
    model = net()
    wrong_shape = assay.audit_same(model, lambda x: model(x)[:, :2], X, gradients=False)
    wrong_dtype = assay.audit_same(model, lambda x: model(x).double(), X, gradients=False)
    not_finite = assay.audit_same(model, lambda x: model(x).masked_fill(x[:, :3] > 1.5, torch.nan), X, gradients=False)
    raises = assay.audit_same(model, lambda x: model(x) if len(x) else 1 / 0, X, gradients=False)
    noisy = assay.audit_same(model, lambda x: model(x) + 1e-3 * torch.rand_like(model(x)), X, gradients=False)
    for finding, word in ((wrong_shape, "shape"), (wrong_dtype, "dtype"), (not_finite, "NaN"), (raises, "no row")):
        assert finding.verdict is Verdict.FAIL and word in finding.reason, finding.reason
    assert noisy.verdict is Verdict.FAIL


def test_a_stochastic_reference_decides_nothing() -> None:
    loud = nn.Sequential(nn.Linear(6, 3), nn.Dropout(0.5)).train()
    noisy = lambda x: 0.1 * x[:, :3] + torch.randn(len(x), 3, dtype=x.dtype)  # noqa: E731
    finding = assay.audit_same(noisy, loud, X, gradients=False)
    assert finding.verdict is not Verdict.PASS


def test_gradients_that_cannot_be_asked_for_leave_it_partial() -> None:
    model = net()
    finding = assay.audit_same(model, lambda x: model(x).detach(), X)
    assert finding.verdict is Verdict.PARTIAL and "gradients" in finding.reason


def test_weights_of_other_names_are_matched_by_order_or_by_a_map() -> None:
    class Renamed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            first, _, second = net()
            self.a, self.b = first, second

        def forward(self, x: Tensor) -> Tensor:
            return self.b(self.a(x).tanh())

    finding = assay.audit_same(net(), Renamed(), X)
    assert finding.passed, finding.reason
    assert "after a step of training: gradients" in {check.name for check in finding.checks}


def test_misuse_is_told_in_one_line() -> None:
    with pytest.raises(InputError, match="callable"):
        assay.audit_same(net(), 3, X)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="budget"):
        assay.audit_same(net(), net(), X, budget=2.0)
    with pytest.raises(InputError, match="reference that runs"):
        assay.audit_same(net(), net(), torch.randn(2, 5))
    with pytest.raises(AssertionError, match="gradient"):
        assay.assert_same(net(), net(own=True), X)
    assert assay.assert_same(net(), net(), X).passed


def test_dropout_left_on_is_named_as_what_it_is_and_other_faults_are_not_taken_for_it() -> None:
    reference = nn.Sequential(nn.Linear(6, 6), nn.Dropout(0.3), nn.Tanh(), nn.Linear(6, 3))
    rewritten = nn.Sequential(reference[0], nn.Tanh(), reference[3])
    on = assay.audit_same(reference, rewritten, X)
    assert on.verdict is Verdict.FAIL and "evaluation mode" in on.issues[0].cause and ".eval()" in on.issues[0].fix
    assert assay.audit_same(reference.eval(), rewritten.eval(), X, gradients=False).passed
    reference.train()
    wrong = nn.Sequential(reference[0], nn.Sigmoid(), reference[3])
    other = assay.audit_same(reference, wrong, X)
    assert other.verdict is Verdict.FAIL and "evaluation mode" not in other.issues[0].cause
