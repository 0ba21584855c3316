"""A row of the benchmark says whether its relaxations were at rest, and what it does not show if they were not."""

from __future__ import annotations

import pytest

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
