"""The stability audit: bounds that enclose the truth, controls, and honest silence where there is no certificate."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from assay.audits.equilibrium.lipschitz import attack, trace
from assay.audits.equilibrium.stability import audit_stability
from assay.audits.equilibrium.step_maps import certify, step_map
from assay.errors import InputError
from assay.models import EnergyMLP, LoopedMLP
from assay.results import Verdict
from assay.seeding import torch_generator


def inputs(rows: int = 4, width: int = 6) -> Tensor:
    return torch.rand(rows, width, generator=torch_generator(0, "stability"))


def loop(scale: float, *, spectral_norm: bool, activation: str = "tanh") -> LoopedMLP:
    model = LoopedMLP(6, 10, 3, spectral_norm=spectral_norm, activation=activation, seed=0)
    with torch.no_grad():
        model.loop.weight.mul_(scale)
    return model


def test_a_normalised_loop_is_certified_and_an_unnormalised_one_is_caught() -> None:
    assert audit_stability(loop(20, spectral_norm=True), inputs()).verdict is Verdict.PASS
    wild = audit_stability(loop(20, spectral_norm=False), inputs())
    assert wild.verdict is Verdict.FAIL
    assert wild.measurement("inputs that settle").value < 100


@pytest.mark.parametrize("activation", ["tanh", "clipped", "smooth"])
@pytest.mark.parametrize("kind", ["loop", "layers"])
def test_the_true_constant_at_a_state_lies_between_attack_and_certificate(kind: str, activation: str) -> None:
    if kind == "loop":
        model: nn.Module = loop(3, spectral_norm=False, activation=activation).double()
    else:
        model = EnergyMLP([6, 8, 8, 3], gamma=0.5, activation=activation, seed=1).double()
    x = inputs().double()
    subject = step_map(model, x)
    path = trace(subject, 50)
    found, bound = attack(subject, path, seed=0), certify(model, x)
    assert bound is not None
    sizes = [layer.shape[1] for layer in subject.start]

    def flat(row: Tensor) -> Tensor:
        state = tuple(part.unsqueeze(0).expand(len(x), -1) for part in row.split(sizes))
        return torch.cat(subject.step(state), 1)

    for row in range(len(x)):
        units = torch.cat([layer[row] for layer in path.states[-1]])
        jacobian = torch.autograd.functional.jacobian(lambda s, row=row: flat(s)[row], units)
        at_rest = float(torch.linalg.matrix_norm(jacobian, ord=2))
        assert found.at_rest[row] == pytest.approx(at_rest, rel=0.02)
        assert found.at_rest[row] <= at_rest * (1 + 1e-9)
        assert found.worst[row] <= bound.rows[row] * (1 + 1e-9) <= bound.everywhere * (1 + 2e-9)


def test_a_certificate_on_the_data_can_be_tighter_than_the_weight_norm() -> None:
    model = loop(1, spectral_norm=False).double()
    with torch.no_grad():
        model.input.bias.fill_(6.0)
    bound = certify(model, inputs().double())
    assert bound is not None and max(bound.rows) < 0.5 * bound.everywhere


def test_without_a_certificate_nothing_passes() -> None:
    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(0.5 * torch.eye(3, dtype=torch.float64))

    model = Own()

    def step(x: Tensor, h: Tensor) -> Tensor:
        return torch.tanh(x + h @ model.weight)

    x, start = torch.zeros(2, 3, dtype=torch.float64), torch.zeros(2, 3, dtype=torch.float64)
    assert audit_stability(model, x, step=step, start=start).verdict is Verdict.INCONCLUSIVE
    assert audit_stability(model, x, step=step, start=start, certificate=0.5).verdict is Verdict.PASS
    too_low = audit_stability(model, x, step=step, start=start, certificate=0.1)
    assert too_low.verdict is Verdict.INCONCLUSIVE and "one of them is wrong" in too_low.reason


def test_a_map_that_overflows_is_reported_as_diverged() -> None:
    finding = audit_stability(
        nn.Identity(), torch.ones(2, 3), step=lambda x, h: 1e3 * h + x, start=torch.ones(2, 3), sweeps=200
    )
    assert finding.verdict is Verdict.FAIL and "left the finite numbers" in finding.reason


def test_the_contraction_rate_of_a_linear_map_is_its_factor() -> None:
    finding = audit_stability(
        nn.Identity(), torch.ones(2, 3), step=lambda x, h: 0.6 * h + x, start=torch.zeros(2, 3), certificate=0.6
    )
    assert finding.measurement("contraction rate").value == pytest.approx(0.6, abs=1e-6)
    assert all(control.separated for control in finding.controls)


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ({"limit": -1.0}, "finite limit > 0"),
        ({"sweeps": 3}, "sweeps >= 16"),
        ({"step": lambda x, h: h}, "a start with one row per input"),
    ],
)
def test_bad_arguments_of_stability_are_named(arguments: dict[str, object], complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        audit_stability(loop(1, spectral_norm=True), inputs(), **arguments)  # type: ignore[arg-type]
    with pytest.raises(InputError, match="an equilibrium model"):
        audit_stability(nn.Linear(6, 6), inputs())
