"""What the credit audit says at its edges: the picture agrees with the table, and broken inputs are named."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import assay
from assay.audits.credit import Baselines, CreditCallback, audit_credit
from assay.audits.credit.depth import judge_utility
from assay.errors import InputError
from assay.learning.training import Epoch
from assay.results import Evidence, Verdict
from assay.rules.feedback.rule import FeedbackAlignment
from subjects import SUBJECTS, batch


def answers(seeds: int, *, items: int = 400) -> Baselines:
    """Arms of which the rule and backprop beat frozen blocks by about 30 points."""
    generator = np.random.default_rng(0)
    rates = {"rule": 0.8, "backprop": 0.85, "frozen": 0.5}
    return Baselines({arm: {seed: list(generator.random(items) < rate) for seed in range(seeds)}
                      for arm, rate in rates.items()})


def test_a_signal_lies_above_the_band_of_the_picture_exactly_where_the_table_tells_it_from_chance() -> None:
    model, (x, y) = SUBJECTS["resmlp"](), batch("resmlp", 32)
    rule = FeedbackAlignment(model, kind="dfa", level="block", seed=1)
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(20):  # some alignment, so that both answers occur
        optimiser.zero_grad()
        rule.backward(model, x, y)
        optimiser.step()
    finding = audit_credit(model, x, y, rule=rule, responses=False)
    picture = next(figure for figure in finding.figures if figure.key == "alignment")
    signal, null = picture.series
    told = [row[-1] == "yes" for row in finding.tables[1].rows]
    assert [cosine > high for cosine, high in zip(signal.y, null.high, strict=True)] == told
    assert True in told


def test_a_training_run_that_diverges_can_still_be_drawn() -> None:
    model, (x, y) = SUBJECTS["resmlp"](), batch("resmlp", 8)
    watch = CreditCallback(x, y, rule=assay.Backprop())
    watch(Epoch(number=1, loss=1.0, validation_accuracy=0.5, seconds=0.1), model)
    with torch.no_grad():
        model.blocks[0].w1.weight.fill_(torch.nan)
    watch(Epoch(number=2, loss=1.0, validation_accuracy=0.5, seconds=0.1), model)
    assert watch.findings[1].verdict is Verdict.FAIL
    assert all(series.x == (1.0,) for series in watch.figure().series)


def test_nothing_is_confirmed_without_a_control() -> None:
    model, (x, y) = SUBJECTS["resmlp"](), batch("resmlp", 16)
    options = {"rule": assay.Backprop(), "baselines": answers(10)}
    assert audit_credit(model, x, y, **options).evidence is Evidence.CONFIRMED
    bare = audit_credit(model, x, y, **options, responses=False)
    assert not bare.controls and bare.evidence is Evidence.DIRECTIONAL


def test_arms_that_answered_other_items_are_refused() -> None:
    for items in (399, 1):  # one item would be repeated for all the others
        arms = dict(answers(3).arms)
        arms["frozen"] = {seed: row[:items] for seed, row in arms["frozen"].items()}
        with pytest.raises(InputError, match="the same test items in every arm and seed"):
            judge_utility(Baselines(arms))
    with pytest.raises(InputError, match="at least two"):
        judge_utility(answers(3, items=1))


def test_baselines_without_a_frozen_arm_are_refused() -> None:
    with pytest.raises(InputError, match="both 'rule' and 'frozen' finished"):
        judge_utility(Baselines({"rule": answers(3).arms["rule"]}))
