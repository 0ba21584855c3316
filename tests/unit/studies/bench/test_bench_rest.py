"""A row of the benchmark says whether its relaxations were at rest, and what it does not show if they were not."""

from __future__ import annotations

import math
from typing import Any

import pytest

from assay import tasks
from assay.studies.arms import ArmSettings, find_arm
from assay.studies.bench.cells import _largest, measure
from assay.studies.bench.rest import ArmRest, rest_of


@pytest.mark.parametrize(("residual", "cosine", "words"), [
    (9e-4, 0.999, "at rest"), (0.02, 0.999, "near rest"), (0.4, 0.999, "far from rest"), (9e-4, 0.9, "far from rest"),
    (None, None, "not known")])
def test_residual_and_cosine_decide_together(residual: float | None, cosine: float | None, words: str) -> None:
    assert ArmRest(0.25, (60, 60), residual, cosine).words == words


def test_only_a_row_at_rest_with_real_feedback_has_no_limitation() -> None:
    assert ArmRest(0.25, (60, 60), 9e-4, 0.999).limitation is None
    assert "approaches backprop" in str(ArmRest(0.01, (3, 3), 9e-4, 0.999).limitation)
    far = str(ArmRest(0.25, (4, 3), 0.4, 0.68).limitation)
    assert "little about equilibria" in far and "residual 0.4" in far and "0.6800" in far


def test_the_worst_seed_speaks_for_the_arm() -> None:
    settings = {"gamma": 0.1, "sweeps": [6, 6]}
    records = {s: {"residual": 10.0**-s, "gradient_agreement": 1 - 10.0**-s, **settings} for s in (1, 4)}
    assert rest_of(records) == ArmRest(0.1, (6, 6), 0.1, 0.9)
    assert rest_of({1: {"residual": None, "gradient_agreement": None}}) is None


def test_a_row_that_rests_only_at_the_end_is_not_at_rest() -> None:
    record = {"residual": 5e-4, "gradient_agreement": 0.9999, "least_agreement": 0.4, "gamma": 0.25, "sweeps": [60, 60]}
    rest = rest_of({1: record})
    assert rest is not None and rest.cosine == 0.4 and rest.words == "far from rest"


def measured(arm: str = "eqprop/mlp", **settings: Any) -> dict[str, Any]:
    """One training on blobs, by EP unless told otherwise, as a cell of the benchmark records it."""
    task = tasks.blobs(train=128, validation=32, test=32)
    chosen = ArmSettings(hidden=(16, 16), epochs=3, gamma=0.25, beta=None, learning_rate=1e-2, **settings)
    return measure([task], find_arm(arm), chosen, seeds=[0], initial_seeds=[0])[0]


def test_a_tolerance_keeps_a_whole_training_at_rest_and_two_sweeps_do_not() -> None:
    resting, hasty = measured(sweeps=(100, 100), tolerance=5e-4), measured(sweeps=(1, 1))
    assert resting["residual"] == max(resting["residual_along"]) <= 5e-4
    assert len(resting["agreement_along"]) == 3 and resting["least_agreement"] == min(resting["agreement_along"]) > 0.99
    found = [rest_of({0: record}) for record in (resting, hasty)]
    assert [rest.words for rest in found if rest] == ["at rest", "far from rest"]


def test_a_gradient_that_vanishes_agrees_with_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assay.studies.arms.build.gradient_agreement", lambda *_: None)
    assert measured(sweeps=(2, 2))["least_agreement"] == -1


def test_backprop_through_the_relaxation_is_compared_with_nothing() -> None:
    assert "least_agreement" not in measured("bptt/mlp", sweeps=(2, 2))


def test_the_largest_residual_of_a_training_is_never_hidden_by_a_number() -> None:
    assert math.isnan(_largest([0.1, math.nan, 0.2]) or 0.0)
    assert _largest([0.1, None, 0.2]) == 0.2 and _largest([None]) is None
