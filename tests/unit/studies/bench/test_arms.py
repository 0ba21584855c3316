"""Arms by name, their settings on file, and what building one gives."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from assay import tasks
from assay.errors import InputError
from assay.learning.names import RULES
from assay.studies.arms import MODELS, Arm, ArmSettings, arms, chosen, find_arm, load_chosen
from assay.studies.arms.build import build, fit, fit_many, gradient_agreement
from assay.studies.arms.settings import FOLDER, read_settings

FILES = sorted(FOLDER.glob("*.json"))


def test_every_rule_brings_its_baseline_and_each_arm_stands_once() -> None:
    assert [a.name for a in arms(["eqprop", "backprop", "original"], ["mlp", "conv"])] == [
        "backprop/mlp", "backprop/conv", "eqprop/mlp", "eqprop/conv", "original/looped"]


@pytest.mark.parametrize(("name", "words"), [
    ("eqprp", "did you mean 'eqprop'"), ("eqprop/cov", "did you mean 'conv'"),
    ("backprop/looped", "the arm 'original'"), ("original/mlp", "the arm 'original'"),
])
def test_an_unknown_arm_is_explained(name: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        find_arm(name)


def test_the_baseline_of_the_looped_model_is_the_plain_network() -> None:
    assert find_arm("original").baseline == Arm("backprop", "mlp")
    assert Arm("eqprop", "conv").baseline == Arm("backprop", "conv")


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_settings_on_file_name_known_arms_tasks_and_their_source(path: Path) -> None:
    assert path.stem in tasks.names()
    for name, entry in read_settings(path).items():
        find_arm(name)
        assert entry.source
        assert entry.settings.epochs >= 1


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_every_tuned_rule_of_a_model_had_the_same_number_of_trials(path: Path) -> None:
    trials: dict[str, set[str]] = {}
    for name, entry in read_settings(path).items():
        if found := re.search(r"assay tune .*--trials (\d+)", entry.source):
            trials.setdefault(find_arm(name).model, set()).add(found[1])
    assert all(len(counts) == 1 for counts in trials.values())


def test_a_misspelt_setting_is_an_error_that_names_the_file(tmp_path: Path) -> None:
    file = tmp_path / "digits.json"
    file.write_text(json.dumps({"arms": {"eqprop/mlp": {"settings": {"epoch": 3}, "source": "x"}}}))
    with pytest.raises(InputError, match=r"unknown setting 'epoch'.*digits\.json"):
        read_settings(file)
    file.write_text("{}")
    with pytest.raises(InputError, match="a settings file"):
        read_settings(file)


def test_a_task_never_tuned_uses_the_defaults_and_says_so() -> None:
    assert chosen("blobs", Arm("eqprop")).source == "default"
    assert load_chosen("blobs") == {}


def test_arms_of_one_model_start_from_the_same_weights_at_the_same_seed() -> None:
    task = tasks.blobs(train=50, validation=10, test=10)
    first, second = (build(Arm(rule), ArmSettings(), task, seed=3).model for rule in ("eqprop", "backprop"))
    other = build(Arm("eqprop"), ArmSettings(), task, seed=4).model
    ours, theirs, others = (list(m.parameters()) for m in (first, second, other))
    assert all(torch.equal(a, b) for a, b in zip(ours, theirs, strict=True))
    assert not torch.equal(ours[0], others[0])


SLOW = ("weight-perturbation", "forward-gradient")
"""One random direction among all weights: they learn, in many more steps."""
MARKING = "forward-forward"
"""Writes the label over four of the sixteen features; that it learns is tested on digits."""


@pytest.mark.parametrize("rule", [r for r in RULES if r not in ("original", MARKING)])
def test_every_rule_learns_blobs(rule: str) -> None:
    task = tasks.blobs(train=600, validation=50, test=300, separation=4.0)
    settings = ArmSettings(
        hidden=(8,) if rule in SLOW else (32, 16), epochs=40 if rule in SLOW else 3, learning_rate=1e-2
    )
    assert fit(build(Arm(rule), settings, task, seed=0), task, settings, seed=0).test_accuracy > 0.9


def test_the_seeds_arm_learns_blobs_and_its_gradient_agrees_with_backprop_through_time() -> None:
    task = tasks.blobs(train=600, validation=50, test=300, separation=4.0)
    settings = ArmSettings(hidden=(16,), epochs=2, learning_rate=1e-2, sweeps=(30, 30), beta=0.22)
    built = build(find_arm("original"), settings, task, seed=0)
    assert fit(built, task, settings, seed=0).test_accuracy > 0.9
    agreement = gradient_agreement(built, task.train.x[:64], task.train.y[:64])
    assert agreement is not None
    # Centered nudging at beta = .22 has a bias of the order of beta ** 2 = .05, a cosine of about 1 - .05 ** 2 / 2.
    assert agreement > 0.99


def test_gradient_agreement_would_show_a_flipped_sign(monkeypatch: pytest.MonkeyPatch) -> None:
    task = tasks.blobs(train=100, validation=10, test=10)
    built = build(Arm("eqprop"), ArmSettings(hidden=(16, 8)), task, seed=0)
    healthy = gradient_agreement(built, task.train.x, task.train.y)
    whole = type(built.rule).backward

    def flipped(self: object, model: torch.nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        loss = whole(self, model, x, y)
        for parameter in model.parameters():
            parameter.grad.neg_()
        return loss

    monkeypatch.setattr(type(built.rule), "backward", flipped)
    broken = gradient_agreement(built, task.train.x, task.train.y)
    assert healthy > 0.98 > -0.98 > broken
    assert all(parameter.grad is None for parameter in built.model.parameters())


def test_sequences_are_refused_by_the_plain_network_with_a_reason() -> None:
    with pytest.raises(InputError, match="flat floating-point inputs"):
        build(Arm("eqprop"), ArmSettings(), tasks.copy(train=20, validation=5, test=5), seed=0)


def test_the_models_of_the_table_can_be_built() -> None:
    assert set(MODELS) == {"mlp", "conv", "looped"}
    task = tasks.digits(seed=0, flat=False)
    for rule in ("eqprop", "backprop"):
        built = build(Arm(rule, "conv"), ArmSettings(hidden=(4, 8)), task, seed=0)
        assert built.model(task.test.x[:3]).shape == (3, 10)


def test_a_bound_holds_the_weights_that_feed_back_and_no_others() -> None:
    task = tasks.blobs(train=256, validation=32, test=32)
    settings = ArmSettings(hidden=(16, 16), epochs=3, learning_rate=3e-2, bound=0.5)
    seeds = (0, 1)
    built = [build(Arm("eqprop"), settings, task, seed=seed) for seed in seeds]
    fit_many(built, [task, task], settings, seeds=seeds)
    for one in built:
        norms = [float(torch.linalg.matrix_norm(layer.weight.detach(), 2)) for layer in one.model.layers]
        assert norms[1] <= 0.5001 < min(norms[0], norms[2])


def test_a_bound_is_nothing_to_backprop_and_refused_by_a_loop_that_normalises_itself() -> None:
    task = tasks.blobs(train=64, validation=32, test=32)
    settings = ArmSettings(hidden=(16,), epochs=1, bound=1e-3)
    free, held = (build(Arm("backprop"), settings, task, seed=0) for _ in range(2))
    fit(free, task, replace(settings, bound=None), seed=0)
    fit(held, task, settings, seed=0)
    assert all(torch.equal(a, b) for a, b in zip(free.model.parameters(), held.model.parameters(), strict=True))
    with pytest.raises(InputError, match="leave bound out"):
        fit(build(find_arm("original"), settings, task, seed=0), task, settings, seed=0)
