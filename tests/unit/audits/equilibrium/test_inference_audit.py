"""The inference audit: predictive coding, or backprop scaled layer by layer?"""

from __future__ import annotations

import pytest
import torch
from torch import nn

from assay import audit_inference
from assay.audits.equilibrium import inference
from assay.errors import InputError
from assay.results import Verdict
from assay.rules import PredictiveCoding
from assay.seeding import torch_generator


@pytest.fixture(scope="module")
def subject():
    generator = torch_generator(0, "inference")
    model = nn.Sequential(nn.Linear(6, 10), nn.Tanh(), nn.Linear(10, 10), nn.Tanh(), nn.Linear(10, 3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / parameter.shape[-1] ** 0.5)
    return model, torch.randn(16, 6, generator=generator), torch.randint(3, (16,), generator=generator)


def test_five_steps_at_a_thousandth_are_scaled_backprop(subject):
    finding = audit_inference(*subject, rule=PredictiveCoding(steps=5, rate=0.001))
    assert finding.verdict is Verdict.FAIL
    by_name = {m.name: m.value for m in finding.measurements}
    assert by_name["farthest from backprop"] > 0.9999
    assert by_name["way the states have still to go"] > 0.98
    assert by_name["at rest, farthest from backprop"] < 0.99


@pytest.mark.parametrize("rule", [PredictiveCoding(steps=800, rate=0.2), PredictiveCoding("errors", steps=80)])
def test_inference_at_rest_is_predictive_coding(subject, rule):
    assert audit_inference(*subject, rule=rule).verdict is Verdict.PASS


def test_in_between_is_called_that_and_the_table_shows_what_remains(subject):
    finding = audit_inference(*subject, rule="pc")
    assert finding.verdict is Verdict.PARTIAL
    remains = next(table for table in finding.tables if "remains" in table.title)
    to_go = [row[3] for row in remains.rows]
    assert to_go == sorted(to_go, reverse=True) and to_go[-1] < 0.05


def test_fixed_predictions_are_backprop_itself(subject):
    assert audit_inference(*subject, rule="pc-fixed").verdict is Verdict.FAIL


def test_a_vanishing_nudge_leaves_nothing_to_tell(subject):
    finding = audit_inference(*subject, rule=PredictiveCoding("errors", beta=1e-6, steps=80))
    assert finding.verdict is Verdict.INCONCLUSIVE


def test_both_controls_are_told_apart(subject):
    finding = audit_inference(*subject, rule="pc")
    assert [(control.kind, control.observed) for control in finding.controls] == [
        ("known-good", "PASS"), ("known-bad", "FAIL")]


def test_another_rule_is_refused(subject):
    with pytest.raises(InputError, match="predictive coding"):
        audit_inference(*subject, rule="backprop")


def test_the_model_is_left_as_it_was(subject):
    model = subject[0]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    audit_inference(*subject, rule=PredictiveCoding(steps=2))
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(p.grad is None for p in model.parameters())


def test_the_rest_is_looked_for_at_smaller_rates_of_the_audits_own():
    """With weights four times as large inference over errors goes round in circles at its usual rate."""
    generator = torch_generator(1, "inference")
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(8 * (torch.rand(parameter.shape, generator=generator) - 0.5) / parameter.shape[-1] ** 0.5)
    x, y = torch.linspace(-1, 1, 24).reshape(6, 4), torch.arange(6) % 3
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inference, "MOST_STEPS", 3000)
        assert audit_inference(model, x, y, rule=PredictiveCoding(steps=5, rate=0.001)).verdict is Verdict.FAIL
        patch.setattr(inference, "OWN_RATES", inference.OWN_RATES[:1])
        assert "no rest" in audit_inference(model, x, y, rule=PredictiveCoding(steps=5, rate=0.001)).reason


@pytest.mark.parametrize(("form", "advice"), [("states", "not yours; a smaller beta"), ("fixed", "use a smaller rate")])
def test_without_rest_the_advice_is_one_that_can_be_followed(subject, form, advice):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inference, "MOST_STEPS", 1)
        finding = audit_inference(*subject, rule=PredictiveCoding(form, rate=0.1))
    assert finding.verdict is Verdict.INCONCLUSIVE and advice in finding.reason
