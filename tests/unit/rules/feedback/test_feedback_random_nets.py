"""Nets put together at random, with and without a weight that feedback cannot reach, planted anywhere in them."""

from __future__ import annotations

import warnings
from collections.abc import Callable

import pytest
import torch
from disguised import GAINS
from disguised import NOT_REACHED as DISGUISED
from disguised import REACHED as REACHED_TOO
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from unusual import NOT_REACHED as UNUSUAL
from unusual import REACHED as REACHED_FIRST

from assay.errors import InputError
from assay.rules.feedback.rule import FeedbackAlignment
from subjects import gradients

PLANTED = UNUSUAL | DISGUISED
HEALTHY: dict[str, Callable[[], nn.Module]] = {
    name: made for name, made in (REACHED_FIRST | REACHED_TOO | GAINS).items()
    if not name.startswith("packed") and name != "a fixed matrix"  # the error passes it exactly, and is told to
}
ACTIVATIONS = (nn.Tanh, nn.GELU, nn.Sigmoid, nn.Identity)


class Residual(nn.Module):
    def __init__(self, inner: nn.Module, scaled: bool) -> None:
        super().__init__()
        self.inner = inner
        self.gain = nn.Parameter(torch.tensor(0.7)) if scaled else 1.0

    def forward(self, x: Tensor) -> Tensor:
        return x + self.gain * self.inner(x)


class Branches(nn.Module):
    """Two ways through the net, joined by a product or by laying them side by side."""

    def __init__(self, left: nn.Module, right: nn.Module, multiplied: bool) -> None:
        super().__init__()
        self.left, self.right, self.multiplied = left, right, multiplied
        self.join = nn.Linear(8 if multiplied else 16, 8)

    def forward(self, x: Tensor) -> Tensor:
        a, b = self.left(x), self.right(x)
        return self.join(a * b.tanh() if self.multiplied else torch.cat((a, b), -1))


class Again(nn.Module):
    """One layer used twice."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return self.inner(torch.tanh(self.inner(x)))


def put_together(draw: st.DrawFn, parts: list[nn.Module]) -> nn.Module:
    """All of ``parts``, each from width 8 to 8, in one net of a shape that is drawn."""
    if len(parts) == 1:
        inner = nn.Sequential(parts[0], draw(st.sampled_from(ACTIVATIONS))())
        match draw(st.sampled_from(("plain", "residual", "again"))):
            case "residual":
                return Residual(inner, scaled=draw(st.booleans()))
            case "again":
                return Again(inner)
        return inner
    cut = draw(st.integers(1, len(parts) - 1))
    first, second = put_together(draw, parts[:cut]), put_together(draw, parts[cut:])
    match draw(st.sampled_from(("one after the other", "residual", "branches"))):
        case "residual":
            return nn.Sequential(first, Residual(second, scaled=draw(st.booleans())))
        case "branches":
            return Branches(first, second, multiplied=draw(st.booleans()))
    return nn.Sequential(first, second)


@st.composite
def nets(draw: st.DrawFn, *, planted: bool) -> tuple[nn.Module, str]:
    """A net behind a stem and before a head, in double precision, and the name of what was planted."""
    torch.manual_seed(draw(st.integers(0, 99)))
    names = draw(st.lists(st.sampled_from(sorted(HEALTHY)), min_size=0 if planted else 1, max_size=3))
    parts = [HEALTHY[name]() for name in names]
    defect = draw(st.sampled_from(sorted(PLANTED))) if planted else ""
    if planted:
        parts.insert(draw(st.integers(0, len(parts))), PLANTED[defect]())
    return nn.Sequential(nn.Linear(5, 8), nn.Tanh(), put_together(draw, parts), nn.Linear(8, 3)).double(), defect


def batch() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(6, 5, generator=generator, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2])


@pytest.mark.parametrize("kind", ["fa", "dfa"])
@settings(max_examples=25, deadline=None)
@given(net=nets(planted=True))
def test_a_planted_weight_out_of_reach_is_found_wherever_it_stands(kind: str, net: tuple[nn.Module, str]) -> None:
    model, defect = net
    rule = FeedbackAlignment(model, kind=kind, seed=1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            coverage = rule.survey(model, batch()[0])
        except InputError as refused:  # nothing at all uses feedback: no certificate either
            assert "could use feedback" in str(refused)
            return
    assert not coverage.complete, f"{defect}\n{coverage}"
    assert coverage.missed


@settings(max_examples=25, deadline=None)
@given(net=nets(planted=False))
def test_a_net_of_reachable_weights_is_complete_and_silent_when_all_feedback_is_zero(
    net: tuple[nn.Module, str]
) -> None:
    model, (x, y) = net[0], batch()
    rule = FeedbackAlignment(model, seed=1)
    assert rule.survey(model, x).complete, str(rule.coverage)
    rule.backward(model, x, y)
    for key, matrix in rule.matrices.tensors.items():
        matrix.mul_(key != "3.weight" and 0.0)
    model.zero_grad()
    rule.backward(model, x, y)
    found = gradients(model)
    assert not found["0.weight"].any(), "with all feedback zero the stem still receives an error"
    assert found["3.weight"].any(), "the head learns without feedback"
