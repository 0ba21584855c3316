"""The page of the gamma ladder says of a training what its lines say, and no more."""

from __future__ import annotations

from typing import Any

import pytest
from benchmarks.ladder import at_rest, page


def training(*, test: float | None, gamma: float = 0.25, task: str = "mnist", **changed: Any) -> list[dict[str, Any]]:
    """Two epochs at rest; ``changed`` is planted in the first of them."""
    recipe = {"channels": [4], "kernel": 3, "activation": "clipped", "pooling": "max-first", "batch": 8, "rate": 0.1,
              "most": 60}
    row = {"task": task, "gamma": gamma, "seed": 42, "of": 2, "loss": 0.1, "validation": 99.3, "residual": 9e-4,
           "rest": {"cosine": 0.999}, "sweeps": {"mean": [5.0, 6.0], "most": [7.0, 8.0]}, "diverged": None,
           "cpu_seconds": 60.0, "recipe": recipe, "test": None}
    return [{**row, "epoch": 1, **changed}, {**row, "epoch": 2, "test": test}]


def test_a_training_at_rest_in_every_epoch_reaches_the_goal() -> None:
    assert at_rest(training(test=99.1)) is True
    assert "is reached" in page([training(test=99.1)])


@pytest.mark.parametrize("planted", [{"residual": 2e-3}, {"residual": None}, {"rest": {"cosine": 0.98}}])
def test_one_epoch_away_from_rest_is_enough_to_miss_the_goal(planted: dict[str, Any]) -> None:
    assert at_rest(training(test=99.1, **planted)) is False
    assert "is missed" in page([training(test=99.1, **planted)])


def test_backprop_is_neither_at_rest_nor_away_from_it() -> None:
    assert at_rest([{**row, "rest": None, "residual": None} for row in training(test=99.1, gamma=0)]) is None


def test_an_accuracy_below_the_goal_misses_it() -> None:
    assert "is missed" in page([training(test=98.99)])


def test_what_has_not_ended_is_named() -> None:
    text = page([training(test=None), training(test=81.0, gamma=0.01, task="cifar10")])
    assert "no training has ended" in text
    assert "Not finished on CIFAR-10: gamma 0, 0.1, 0.25, 1." in text
    assert "80 % on three seeds by EP and by backprop: not reached" in text


def test_a_schedule_that_was_cut_is_told() -> None:
    assert "cut to 2 before epoch 2" in page([training(test=99.1, of=5)])
