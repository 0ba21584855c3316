"""Two models whose modules have other names: the one that differs is found by exchanging modules."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

import assay
from assay.results import Verdict
from assay.seeding import torch_generator

X = torch.randn(6, 8, generator=torch_generator(0, "x"))


class Bent(torch.autograd.Function):
    """tanh with the derivative of something else."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.tanh()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        return gradients[0] * (1 - x.tanh().square() * 0.9)


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(8), nn.Linear(8, 16), nn.Linear(16, 8)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.down(torch.tanh(self.up(self.norm(x))))


class Reference(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.head = nn.Sequential(*(Block() for _ in range(5))), nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x))


class Layer(nn.Module):
    """The same block as somebody else writes it, with one of several mistakes."""

    def __init__(self, mistake: str = "") -> None:
        super().__init__()
        eps = 1e-2 if mistake == "eps" else 1e-5
        self.ln, self.fc1, self.fc2 = nn.LayerNorm(8, eps=eps), nn.Linear(8, 16), nn.Linear(16, 8)
        self.mistake = mistake

    def forward(self, x: Tensor) -> Tensor:
        bends = {"backward": Bent.apply, "activation": nn.functional.softsign}.get(self.mistake, torch.tanh)
        return x + self.fc2(bends(self.fc1(self.ln(x))))


class Candidate(nn.Module):
    def __init__(self, mistakes: dict[int, str]) -> None:
        super().__init__()
        self.layers = nn.ModuleList(Layer(mistakes.get(number, "")) for number in range(5))
        self.out = nn.Linear(8, 3)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x)
        return self.out(x)


def twins(mistakes: dict[int, str]) -> tuple[nn.Module, nn.Module]:
    """Both with the same random weights, which stand in the same order."""
    both = Reference(), Candidate(mistakes)
    generator = torch_generator(0, "weights")
    with torch.no_grad():
        for ours, theirs in zip(*(model.parameters() for model in both), strict=True):
            theirs.copy_(ours.copy_(0.5 * torch.randn(ours.shape, generator=generator)))
    return both


def test_a_healthy_rewriting_is_the_same() -> None:
    assert assay.audit_same(*twins({}), X).verdict is Verdict.PASS


@pytest.mark.parametrize(
    ("mistakes", "guilty"),
    [
        ({3: "activation"}, "layers.3"),
        ({2: "eps"}, "layers.2.ln"),
        ({1: "backward"}, "layers.1"),
        ({1: "activation", 4: "eps"}, "layers.1"),
    ],
)
def test_the_first_module_that_differs_is_found_by_exchange(mistakes: dict[int, str], guilty: str) -> None:
    reference, candidate = twins(mistakes)
    before = {name: value.clone() for name, value in candidate.state_dict().items()}
    finding = assay.audit_same(reference, candidate, X)
    assert finding.verdict is Verdict.FAIL
    assert [issue.location for issue in finding.issues] == [guilty]
    assert all(torch.equal(value, before[name]) for name, value in candidate.state_dict().items())


def test_a_mistake_outside_all_modules_is_no_modules_fault() -> None:
    class Scaled(Candidate):
        def forward(self, x: Tensor) -> Tensor:
            return 1.01 * super().forward(x)

    reference, candidate = twins({})
    scaled = Scaled({})
    scaled.load_state_dict(candidate.state_dict())
    (issue,) = assay.audit_same(reference, scaled, X).issues
    assert "outputs only" in issue.location
