"""Training, audits and claims on another device: the very bits of the CPU, and nothing of the CPU in the way."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from elsewhere import THERE, Away, elsewhere, here
from torch import Tensor, nn

import assay
from assay import dependence as dep
from assay import symmetry as sym
from assay.audits.equilibrium.inference import audit_inference
from assay.learning import device as devices
from assay.learning.device import chosen_device, computing_on
from assay.learning.names import RULES
from assay.results import Finding, Verdict
from assay.rules import PredictiveCoding
from assay.seeding import torch_generator

ENERGY = ("eqprop", "bptt", "original")
FIRST = ("backprop", "eqprop", "sign-layer", "kp-layer", "dfa-block", "pc-errors", "forward-forward")
"""One of each way to compute; the others are looked at among the slow tests."""
UNPLAYED = ("forward-gradient",)
"""Forward-mode derivatives of torch want memory behind a tensor, which a played device does not have."""


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The name of a played device, known to the library for a while."""
    monkeypatch.setattr(devices, "DEVICES", (*devices.DEVICES, THERE.type))
    with elsewhere():
        yield THERE.type


def task() -> Any:
    generator = torch_generator(0, "rows")
    x = torch.randn(90, 6, generator=generator)
    return assay.tasks.from_arrays(x.numpy(), (x[:, 0] > 0).long().numpy() + (x[:, 1] > 0).long().numpy(), seed=0)


def net(seed: int = 0, *, scale: float = 0.5) -> nn.Module:
    made = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    generator = torch_generator(seed, "net")
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(scale * torch.randn(parameter.shape, generator=generator))
    return made


def energy() -> nn.Module:
    return assay.models.EnergyMLP([6, 8, 8, 3], gamma=0.1, seed=0)


class Turned(nn.Module):
    """Invariant under quarter turns."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 2, 3, padding=1)
        self.head = nn.Linear(2, 3)

    def forward(self, x: Tensor) -> Tensor:
        turns = [self.conv(torch.rot90(x, k, (-2, -1))).relu().mean((-2, -1)) for k in range(4)]
        return self.head(torch.stack(turns).sum(0))


class Reader(nn.Module):
    """A causal reader of tokens; ``shift=2`` is a mask off by one."""

    def __init__(self, shift: int = 1) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(7, 8), nn.Linear(8, 7)
        self.mix, self.shift = nn.MultiheadAttention(8, 2, batch_first=True), shift

    def forward(self, tokens: Tensor) -> Tensor:
        h = self.embed(tokens)
        size = tokens.shape[1]
        mask = torch.ones(size, size, dtype=torch.bool, device=tokens.device).triu(self.shift)
        return self.head(self.mix(h, h, h, attn_mask=mask, need_weights=False)[0])


def test_the_played_device_refuses_what_a_real_one_refuses() -> None:
    with elsewhere():
        far, near = torch.ones(2, 2, device=THERE), torch.ones(2, 2)
        assert isinstance(far, Away) and torch.equal(here(far + 1), near + 1) and float(far.sum()) == 4
        with pytest.raises(RuntimeError, match="same device"):
            far + near
        with pytest.raises((RuntimeError, TypeError)):
            far.numpy()
        assert torch.equal(far.cpu(), near) and type(far.cpu()) is Tensor


@pytest.mark.parametrize("rule", [
    pytest.param(name, marks=() if name in FIRST else pytest.mark.slow) for name in RULES if name not in UNPLAYED
])
def test_a_rule_trains_elsewhere_to_the_bits_of_the_cpu(rule: str, away: str) -> None:
    def trained(device: str | None) -> tuple[nn.Module, assay.TrainResult]:
        model = energy() if rule in ENERGY else net()
        return model, assay.train(model, task(), rule, epochs=1, seed=0, batch_size=32, device=device)

    (near, expected), (far, found) = trained(None), trained(away)
    assert all(isinstance(parameter.data, Away) for parameter in far.parameters())
    assert all(torch.equal(here(a.data), b.data) for a, b in zip(far.parameters(), near.parameters(), strict=True))
    assert found.test_accuracy == expected.test_accuracy


def test_a_rule_that_leaves_its_matrices_on_the_cpu_is_caught(away: str) -> None:
    class Careless:
        def __init__(self) -> None:
            self.matrix = torch.ones(8, 8)

        def backward(self, model: nn.Sequential, x: Tensor, y: Tensor) -> Tensor:
            loss = nn.functional.cross_entropy(model(x), y)
            loss.backward()
            model[2].weight.grad = model[2].weight.grad @ self.matrix
            return loss.detach()

    with pytest.raises(RuntimeError, match="same device"):
        assay.train(net(), task(), Careless(), epochs=1, seed=0, device=away)


X = torch.randn(8, 6, generator=torch_generator(0, "x"))
Y = torch.arange(8) % 3
TOKENS = torch.randint(0, 7, (2, 5), generator=torch_generator(0, "tokens"))
IMAGES = torch.randn(2, 1, 4, 4, generator=torch_generator(0, "images"))
QUARTERS = sym.Symmetry(sym.C(4), sym.image(-2, -1), sym.invariant())
AUDITS: dict[str, Callable[[str | None], Finding]] = {
    "gradient": lambda device: assay.audit_gradient(energy(), X, Y, rule="eqprop", device=device),
    "gradient of feedback": lambda device: assay.audit_gradient(net(), X, Y, rule="fa-layer", device=device),
    "credit": lambda device: assay.audit_credit(net(), X, Y, rule="dfa-layer", device=device),
    "stability": lambda device: assay.audit_stability(energy(), X, sweeps=20, device=device),
    # Weights small enough for inference to find its rest: at those of the others it says after minutes that it did not.
    "inference": lambda device: audit_inference(
        net(scale=0.25), X, Y, rule=PredictiveCoding(steps=2, rate=0.001), device=device),
    "same": lambda device: assay.audit_same(net(), net(), X, device=device),
    "other": lambda device: assay.audit_same(net(), net(1), X, device=device),
    "dependence": lambda device: assay.audit_dependence(_seeded(Reader), TOKENS, dep.causal(), device=device),
    "leak": lambda device: assay.audit_dependence(_seeded(Reader, 2), TOKENS, dep.causal(), device=device),
    "symmetry": lambda device: assay.audit_symmetry(
        _seeded(Turned), IMAGES, QUARTERS, inputs=2, transforms=2, device=device),
}


LONG = ("symmetry", "stability", "inference")


def _seeded(kind: Callable[..., nn.Module], *given: Any) -> nn.Module:
    made, generator = kind(*given), torch_generator(0, kind.__name__)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator))
    return made


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.slow if name in LONG else ()) for name in AUDITS
])
def test_an_audit_says_the_same_elsewhere(name: str, away: str) -> None:
    near, far = AUDITS[name](None), AUDITS[name](away)
    assert near.verdict is not Verdict.INCONCLUSIVE, near.reason
    assert (far.verdict, _words(far.reason)) == (near.verdict, _words(near.reason))


def _words(reason: str) -> str:
    """Without digits: an operation that torch fuses on one device and not on the other rounds otherwise."""
    return re.sub(r"\d[\d.e+-]*", "#", reason)


def test_a_device_asked_for_around_a_claim_reaches_what_it_trains(away: str) -> None:
    model = net()
    with computing_on(away):
        assert chosen_device(None) == THERE and chosen_device("cpu").type == "cpu"
        assay.train(model, task(), "backprop", epochs=1, seed=0)
    assert isinstance(next(model.parameters()).data, Away)
    assert chosen_device(None, net()).type == "cpu"


def test_a_cell_on_another_device_is_another_cell() -> None:
    from assay.registry import registry
    from assay.studies.verification import plan

    track = registry.find(2)
    plain, cpu, card = (plan(track, "smoke", (1,), device=device)[0] for device in (None, "cpu", "cuda"))
    assert plain.key == cpu.key != card.key
    assert (plain.gpus, card.gpus) == (0.0, 1.0) and card.payload["device"] == "cuda"
    assert dataclasses.replace(cpu) == plain
