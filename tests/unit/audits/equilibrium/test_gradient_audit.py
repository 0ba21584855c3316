"""The gradient audit: its yardstick, its gates in float64, and what it leaves behind (nothing)."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor

import assay
from assay.audits.equilibrium.gradient import audit_gradient
from assay.audits.equilibrium.true_gradient import true_gradient
from assay.errors import InputError
from assay.models import EnergyAttention, EnergyConv, EnergyMLP
from assay.results import Run, Verdict
from assay.rules import Backprop, EqProp
from assay.seeding import torch_generator


def three_hidden(seed: int = 0) -> EnergyMLP:
    return EnergyMLP([8, 16, 16, 16, 5], gamma=0.25, activation="tanh", seed=seed, sweeps=100).double()


def batch(rows: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch_generator(1, "gradient audit")
    return torch.randn(rows, 8, generator=generator, dtype=torch.float64), torch.randint(
        5, (rows,), generator=generator
    )


def test_the_yardstick_is_backprop_through_a_converged_relaxation() -> None:
    model, (x, y) = three_hidden(), batch()
    truth = true_gradient(model, x, y)
    assert truth.trusted and truth.equilibrium
    Backprop().backward(model, x, y)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(truth.gradients[name], parameter.grad, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize(("nudge", "limit"), [("centered", 1e-3), ("holomorphic(8)", 1e-8), ("tangent", 1e-9)])
def test_the_float64_gates_hold_at_beta_one_tenth(nudge: str, limit: float, seed: int) -> None:
    rule = EqProp(beta=0.1, nudge=nudge, sweeps=(500, 500), tolerance=1e-14)
    model = EnergyMLP([64, 128, 128, 128, 10], gamma=0.25, activation="tanh", seed=seed).double()
    generator = torch_generator(seed, "gates")
    x, y = torch.randn(16, 64, generator=generator, dtype=torch.float64), torch.randint(10, (16,), generator=generator)
    finding = audit_gradient(model, x, y, rule=rule, limit=limit, seed=seed)
    assert finding.verdict is Verdict.PASS, finding.reason
    assert all(control.separated for control in finding.controls)


FIELDS: dict[str, Any] = {
    "average pooling": lambda: EnergyConv((1, 8, 8), [3, 4], classes=5, pooling="average", activation="tanh", seed=0),
    "max pooling": lambda: EnergyConv((1, 8, 8), [3, 4], classes=5, pooling="max", activation="smooth", seed=0),
    "attention": lambda: EnergyAttention(5, length=4, width=8, heads=2, gamma=0.1, seed=0),
}


@pytest.mark.parametrize("kind", FIELDS)
@pytest.mark.parametrize(("nudge", "limit"), [("centered", 1e-3), ("tangent", 1e-8)])
def test_convolution_and_attention_pass_the_gradient_audit_at_rest(kind: str, nudge: str, limit: float) -> None:
    generator = torch_generator(2, "fields")
    if kind == "attention":
        x, y = (torch.randint(5, (6, 4), generator=generator) for _ in range(2))
    else:
        x, y = torch.rand(6, 1, 8, 8, generator=generator).double(), torch.randint(5, (6,), generator=generator)
    rule = EqProp(beta=0.02, nudge=nudge, sweeps=(300, 300), tolerance=1e-14)
    finding = audit_gradient(FIELDS[kind]().double(), x, y, rule=rule, limit=limit)
    assert finding.verdict is Verdict.PASS, finding.reason
    assert all(control.separated for control in finding.controls)


def test_the_order_of_a_one_sided_nudge_is_one() -> None:
    finding = audit_gradient(three_hidden(), *batch(), rule=EqProp(beta=0.1, nudge="one-sided"))
    assert finding.measurement("slope of the error in beta").value == pytest.approx(1, abs=0.1)


def test_truncation_is_told_from_bias() -> None:
    rule = EqProp(beta=0.01, nudge="centered", sweeps=(1, 1))
    finding = audit_gradient(three_hidden(), *batch(), rule=rule, limit=0.5)
    table = {row[0]: row[1] for row in finding.tables[1].rows}
    assert table["as used (float64)"] > 100 * table["in float64 with every relaxation at rest"]


def test_the_lines_of_the_guide_run_as_written() -> None:
    model = assay.models.EnergyMLP([64, 32, 32, 10], gamma=0.25, activation="tanh", seed=0)
    generator = torch_generator(0, "guide")
    x, y = torch.randn(32, 64, generator=generator), torch.randint(0, 10, (32,), generator=generator)
    rule = assay.EqProp(beta=0.1, nudge="centered", sweeps=(30, 10))
    finding = assay.audit_gradient(model, x, y, rule=rule, seed=0)
    assert finding.verdict is Verdict.PASS, finding.reason
    assert {figure.key for figure in finding.figures} == {
        "error-by-parameter",
        "error-by-beta",
        "residual-by-sweep",
        "energy-by-sweep",
    }
    run = Run(id="a", created="now", findings=(finding,))
    assert Run.from_json(run.to_json()).findings == run.findings


def test_nothing_is_left_behind() -> None:
    model, (x, y) = three_hidden().train(), batch()
    rule = EqProp()
    before = copy.deepcopy(model.state_dict())
    chance = torch.get_rng_state()
    audit_gradient(model, x, y, rule=rule)
    assert model.training
    assert rule.last is None
    assert all(parameter.grad is None for parameter in model.parameters())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert torch.equal(chance, torch.get_rng_state())


def test_without_a_fixed_point_there_is_no_verdict() -> None:
    model = EnergyMLP([8, 16, 16, 5], gamma=1.0, activation="identity", seed=0).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(30)
    rule = EqProp(sweeps=(5, 5), on_divergence="record")
    finding = audit_gradient(model, *batch(), rule=rule)
    assert finding.verdict is Verdict.INCONCLUSIVE and "not at rest" in finding.reason


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"limit": 0.0}, "limit between 0 and 1"),
        ({"x": torch.full((8, 8), float("nan"))}, "finite inputs"),
        ({"y": torch.zeros(3, dtype=torch.long)}, "as many targets"),
        ({"model": "mlp"}, "torch.nn.Module"),
        ({"y": torch.zeros(8)}, "class indices"),
        ({"rule": "eqporp"}, "unknown rule 'eqporp'"),
        ({"rule": 3}, "a rule by name"),
        ({"x": torch.zeros(8, 5), "rule": Backprop(), "model": torch.nn.Linear(8, 3)}, r"given x of shape \(8, 5\)"),
        ({"y": torch.full((8,), 9), "rule": Backprop(), "model": torch.nn.Linear(8, 3)}, "the model said: Target 9"),
    ],
)
def test_bad_arguments_are_named(change: dict[str, object], complaint: str) -> None:
    x, y = batch()
    arguments = {"model": three_hidden(), "x": x, "y": y, "rule": EqProp(), **change}
    with pytest.raises(InputError, match=complaint):
        audit_gradient(arguments.pop("model"), arguments.pop("x"), arguments.pop("y"), **arguments)  # type: ignore[arg-type]


def test_a_frozen_parameter_is_left_out() -> None:
    model = three_hidden()
    model.layers[0].weight.requires_grad_(False)
    finding = audit_gradient(model, *batch(), rule=Backprop())
    assert all(row[0] != "layers.0.weight" for row in finding.tables[0].rows)
    assert finding.verdict is Verdict.PASS, finding.reason


def test_a_rule_made_for_its_model_meets_its_own_copy_and_feedback_alignment_is_not_the_gradient() -> None:
    net = three_hidden().feedforward().float()
    x, y = batch()
    rule = assay.FeedbackAlignment(net)
    finding = audit_gradient(net, x.float(), y, rule=rule)
    assert finding.verdict is Verdict.FAIL
    assert all(row[3] < 1e-4 for row in finding.tables[0].rows if row[0].startswith("6."))
    assert all(parameter.grad is None for parameter in net.parameters())


def test_relaxations_cut_short_are_blamed_and_not_the_estimator() -> None:
    finding = audit_gradient(three_hidden(), *batch(), rule=EqProp(beta=0.1, sweeps=(1, 1)), limit=0.05)
    assert finding.verdict is Verdict.FAIL
    assert "at rest the error falls as beta^2.00" in finding.reason
    assert any("relaxations too short" in issue.cause for issue in finding.issues)


@pytest.mark.parametrize("tied", [True, False])
def test_the_looped_network_gets_its_gradient_tied_and_untied(tied: bool) -> None:
    model = assay.models.LoopedMLP(8, 12, 5, tied=tied, seed=0).double()
    rule = EqProp(beta=0.05, nudge="centered" if tied else "asymmetric", sweeps=(300, 300), tolerance=1e-13)
    finding = audit_gradient(model, *batch(), rule=rule)
    assert finding.verdict is Verdict.PASS, finding.reason


class NoGradient:
    """A rule that forgets to give any gradient."""

    def backward(self, model: torch.nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return torch.nn.functional.cross_entropy(model(x), y).detach()


def test_a_sentence_names_a_few_parameters_and_counts_the_others() -> None:
    model = torch.nn.Sequential(*(torch.nn.Linear(8, 8) for _ in range(6))).double()
    finding = audit_gradient(model, *batch(8), rule=NoGradient())
    assert finding.verdict is Verdict.FAIL
    assert "no gradient to 0.weight, 0.bias, 1.weight and 9 more, whose" in finding.reason


def test_the_scaled_control_says_by_how_much_it_is_off() -> None:
    finding = audit_gradient(torch.nn.Linear(8, 5).double(), *batch(8), rule=Backprop(), limit=1e-4)
    assert "too large by 0.0002 of its size" in [control.name for control in finding.controls]
