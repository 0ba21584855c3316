"""Learning rules with one planted mistake each: the gradient audit must reject every one, and accept the real thing."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.audits.equilibrium.gradient import audit_gradient
from assay.models import EnergyMLP
from assay.networks.equilibrium import EquilibriumModule
from assay.protocols import State
from assay.results import Verdict
from assay.rules import Backprop, EqProp
from assay.seeding import torch_generator

EXACT = EqProp(beta=0.1, nudge="centered", sweeps=(200, 200), tolerance=1e-13)


def network(seed: int = 0) -> EnergyMLP:
    return EnergyMLP([6, 12, 12, 12, 4], gamma=0.25, activation="tanh", seed=seed).double()


def batch() -> tuple[Tensor, Tensor]:
    generator = torch_generator(0, "planted")
    return torch.randn(8, 6, generator=generator, dtype=torch.float64), torch.randint(4, (8,), generator=generator)


class LogCosh(EnergyMLP):
    """The same sweep, but an energy whose stationary point is not its fixed point: |s|^2 / 2 - log cosh(drive)."""

    def energy(self, clamped: object, state: State) -> Tensor:
        drive = clamped.drive  # type: ignore[attr-defined]
        total = drive.new_zeros(())
        for layer, units in enumerate(state):
            if layer > 0:
                drive = functional.linear(state[layer - 1], self._weight(layer), self._bias(layer))
            total = total + self.gamma ** (layer + 1) * (0.5 * units * units - torch.log(torch.cosh(drive))).sum(1)
        return total

    add_energy_gradient = EquilibriumModule.add_energy_gradient  # type: ignore[assignment]


@dataclass(frozen=True)
class Altered:
    """A good rule whose gradients are altered afterwards."""

    alteration: str
    beta: float = 0.1

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        loss = EqProp(beta=self.beta, sweeps=(200, 200), tolerance=1e-13).backward(model, x, y)
        parameters = dict(model.named_parameters())
        with torch.no_grad():
            if self.alteration == "sign of one layer":
                parameters["layers.1.weight"].grad.neg_()
            elif self.alteration == "half of one bias":
                parameters["layers.0.bias"].grad.mul_(0.5)
            elif self.alteration == "no gamma":
                parameters["layers.0.weight"].grad.mul_(0.25)
            elif self.alteration == "no gradient for a bias":
                parameters["layers.2.bias"].grad = None
            elif self.alteration == "transposed":
                parameters["layers.1.weight"].grad.copy_(parameters["layers.1.weight"].grad.t().clone())
            elif self.alteration == "nan":
                parameters["layers.1.bias"].grad[0] = float("nan")
            elif self.alteration == "three per cent too large":
                for parameter in parameters.values():
                    parameter.grad.mul_(1.03)
        return loss


def test_the_real_thing_is_accepted() -> None:
    finding = audit_gradient(network(), *batch(), rule=EXACT)
    assert finding.verdict is Verdict.PASS, finding.reason
    assert finding.measurement("slope of the error in beta").value == pytest.approx(2, abs=0.1)


def test_an_energy_that_does_not_fit_its_dynamics_is_rejected_because_the_error_stays() -> None:
    model = LogCosh([6, 12, 12, 12, 4], gamma=0.25, activation="tanh", seed=0).double()
    # In states, where the contrast is taken from this energy; the kernel of deviations is written out for the true one.
    rule = EqProp(beta=0.1, nudge="centered", sweeps=(200, 200), tolerance=1e-13, coordinates="states")
    finding = audit_gradient(model, *batch(), rule=rule)
    assert finding.verdict is Verdict.FAIL
    assert "something else is estimated" in finding.reason


@pytest.mark.parametrize(
    ("alteration", "blamed"),
    [
        ("sign of one layer", "the sign is reversed"),
        ("half of one bias", "off by a factor 0.5"),
        ("no gamma", "off by a factor 0.25"),
        ("no gradient for a bias", "no gradient"),
        ("transposed", ""),
        ("nan", ""),
    ],
)
def test_an_altered_gradient_is_rejected_and_blamed(alteration: str, blamed: str) -> None:
    finding = audit_gradient(network(), *batch(), rule=Altered(alteration))
    assert finding.verdict is Verdict.FAIL
    assert any(blamed in issue.cause for issue in finding.issues), finding.issues


def test_a_small_wrong_factor_is_within_the_limit_but_caught_by_the_trend() -> None:
    finding = audit_gradient(network(), *batch(), rule=Altered("three per cent too large"), limit=0.05)
    verdicts = {check.name: check.verdict for check in finding.checks}
    assert verdicts["agreement as used"] is Verdict.PASS
    assert verdicts["the error vanishes with the nudge"] is Verdict.FAIL
    assert finding.verdict is Verdict.FAIL


def test_a_feedforward_module_is_judged_to_rounding() -> None:
    model = network().feedforward()

    @dataclass(frozen=True)
    class Off:
        def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
            loss = Backprop().backward(model, x, y)
            for parameter in model.parameters():
                parameter.grad.mul_(1 + 1e-6)
            return loss

    assert audit_gradient(model, *batch(), rule=Backprop()).verdict is Verdict.PASS
    assert audit_gradient(model, *batch(), rule=Off()).verdict is Verdict.FAIL
