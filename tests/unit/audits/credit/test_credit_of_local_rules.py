"""The credit audit on rules that send nothing down the stream: one page, read off the weights."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from assay import audit_credit
from assay.audits.credit import Recipe
from assay.audits.credit.recipe import correct_items
from assay.learning.names import RULES, named_rule
from assay.results import Verdict
from assay.rules import ForwardForward
from assay.seeding import torch_generator
from assay.tasks import blobs

NAMES = [name for name, named in RULES.items() if named.made_by]


def net(seed=0):
    model = nn.Sequential(nn.Linear(16, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(), nn.Linear(12, 12), nn.Tanh(),
                          nn.Linear(12, 4))
    generator = torch_generator(seed, "credit net")
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) / parameter.shape[-1] ** 0.5)
    return model


def batch():
    generator = torch_generator(0, "credit batch")
    return torch.randn(16, 16, generator=generator), torch.randint(4, (16,), generator=generator)


@pytest.mark.parametrize("name", NAMES)
def test_every_weight_of_every_rule_is_on_the_page(name):
    finding = audit_credit(net(), *batch(), rule=name, responses=False)
    assert finding.verdict in (Verdict.PARTIAL, Verdict.FAIL)
    shown = {str(cell) for table in finding.tables for row in table.rows for cell in row}
    assert {"0", "2", "4", "6"} <= shown


def test_a_rule_with_an_inference_of_its_own_answers_for_itself():
    model, (x, y) = net(), batch()
    rule = ForwardForward(model)
    assert correct_items(model, x, y, rule=rule) == rule.predict(model, x).argmax(-1).eq(y).tolist()
    assert correct_items(model, x, y) == model(x).argmax(-1).eq(y).tolist()


def test_depth_utility_is_trained_for_a_local_rule():
    task = blobs(train=200, validation=20, test=60)
    recipe = Recipe(build=net, rule=lambda model, seed: named_rule("pc-fixed", model, seed=seed), task=task, epochs=1,
                    seeds=(0, 1, 2))
    finding = audit_credit(net(), task.test.x[:32], task.test.y[:32], rule="pc-fixed", train=recipe, responses=False)
    assert any("frozen" in measurement.name for measurement in finding.measurements)
