"""Tasks are deterministic, disjoint, described truly, and refuse bad input with a sentence."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

from assay import tasks
from assay.errors import AssayError, InputError
from assay.protocols import Split
from assay.tasks.base import ArrayTask, TuningView, digest


def rows(split: Split) -> set[bytes]:
    return {row.numpy().tobytes() for row in split.x}


def test_importing_tasks_does_not_import_torch() -> None:
    code = "import sys, assay.tasks, assay.tasks.catalogue, assay.tasks.files; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


@pytest.mark.parametrize("name", ["digits", "stripes", "blobs", "reversal", "mirror-sum"])
def test_same_seed_same_data_other_seed_other_data(name: str) -> None:
    first, again, other = tasks.load(name, seed=0), tasks.load(name, seed=0), tasks.load(name, seed=1)
    assert first.data_hash == again.data_hash != other.data_hash
    assert torch.equal(first.test.x, again.test.x)
    assert not torch.equal(first.test.x, other.test.x)


def test_making_a_task_leaves_the_global_generators_alone() -> None:
    torch_before, numpy_before = torch.get_rng_state(), np.random.get_state()[1].copy()
    for name in ("digits", "reversal", "stripes", "cartpole-bc"):
        tasks.load(name, seed=5)
    assert torch.equal(torch_before, torch.get_rng_state())
    assert (numpy_before == np.random.get_state()[1]).all()


def test_digits_splits_partition_the_whole_set_and_keep_the_class_shares() -> None:
    task = tasks.digits(seed=3)
    assert (len(task.train), len(task.validation), len(task.test)) == (1257, 180, 360)
    counts = sum(torch.bincount(split.y, minlength=10) for split in (task.train, task.validation, task.test))
    from sklearn.datasets import load_digits

    assert counts.tolist() == np.bincount(load_digits().target).tolist()
    assert torch.bincount(task.test.y).min() >= 34
    total = sum(split.x.double().sum() for split in (task.train, task.validation, task.test))
    assert float(total) == pytest.approx(load_digits().data.sum() / 16, rel=1e-12)
    assert tasks.digits(seed=3, flat=False).input_shape == (1, 8, 8)


def test_sequences_never_repeat_across_the_splits() -> None:
    task = tasks.reversal(length=5, vocabulary=10, train=20_000, validation=1_000, test=10_000)
    assert len(rows(task.train) | rows(task.validation) | rows(task.test)) == 31_000


def test_sequence_answers_are_what_the_name_says() -> None:
    x = tasks.mirror_sum(train=50, validation=5, test=5).train.x
    mirrored = tasks.mirror_sum(train=50, validation=5, test=5).train.y
    for row, answer in zip(x.tolist(), mirrored.tolist(), strict=True):
        assert answer == [(row[i] + row[len(row) - 1 - i]) % 10 for i in range(len(row))]
    copied = tasks.copy(train=50, validation=5, test=5).test
    assert torch.equal(copied.x, copied.y)


def test_a_sequence_space_too_small_to_hold_out_anything_is_refused() -> None:
    with pytest.raises(InputError, match="different sequences"):
        tasks.reversal(length=2, vocabulary=10)


def test_the_linear_floor_solves_routing_and_fails_at_arithmetic() -> None:
    sizes = {"train": 2_000, "validation": 200, "test": 1_000, "length": 6}
    assert tasks.reversal(**sizes).floors().logistic == 1.0
    assert tasks.mirror_sum(**sizes).floors().logistic < 0.2


def test_the_linear_floor_finds_blobs_and_misses_stripes() -> None:
    blobs, stripes = tasks.blobs(separation=6.0).floors(), tasks.stripes().floors()
    assert blobs.logistic > 0.98
    assert stripes.logistic < 0.35
    assert stripes.chance == 0.25
    assert blobs.highest == blobs.logistic


def test_the_majority_floor_is_the_share_of_the_commonest_training_class_in_the_test_set() -> None:
    x = torch.randn(10, 3, generator=torch.Generator().manual_seed(0))
    train, test = Split(x, torch.tensor([0] * 6 + [1] * 4)), Split(x, torch.tensor([1] * 7 + [0] * 3))
    floors = ArrayTask("lopsided", 2, train, train, test, data_hash="-").floors()
    assert floors.majority == pytest.approx(0.3)
    assert floors.chance == 0.5


def test_a_subset_is_smaller_differently_named_and_leaves_the_test_set_whole() -> None:
    task = tasks.digits(seed=0)
    small = task.subset(train=100, validation=20)
    assert (len(small.train), len(small.validation), len(small.test)) == (100, 20, 360)
    assert small.data_hash != task.data_hash
    assert rows(small.train) <= rows(task.train)
    with pytest.raises(InputError, match="number of train items"):
        task.subset(train=5_000)


def test_a_tuning_view_holds_no_reference_to_the_test_set() -> None:
    task = tasks.digits(seed=0)
    view = task.for_tuning()
    assert isinstance(view, TuningView)
    with pytest.raises(AssayError, match="out of reach"):
        _ = view.test
    assert not any(value is task.test or value is task for value in vars(view).values())


def test_digest_tells_shapes_types_and_values_apart() -> None:
    x = torch.zeros(2, 3)
    tensors = [digest(x), digest(x.reshape(3, 2)), digest(x.long()), digest(x + 1)]
    different = [*tensors, digest("a", x), digest("a", "", x)]
    assert len(set(different)) == len(different)


def test_an_unknown_task_suggests_the_nearest_name() -> None:
    with pytest.raises(InputError, match="did you mean 'fashion-mnist'"):
        tasks.load("fashon-mnist")
    with pytest.raises(InputError, match="does not take these options"):
        tasks.load("digits", colour="red")
    with pytest.raises(AttributeError, match="did you mean 'digits'"):
        _ = tasks.digit


@pytest.mark.parametrize(("name", "options", "words"), [
    ("stripes", {"classes": 1}, "classes to be an integer"),
    ("stripes", {"noise": -1.0}, "noise to be a number"),
    ("blobs", {"train": 0}, "train to be an integer"),
    ("reversal", {"length": True}, "length to be an integer"),
    ("cartpole-bc", {"mistakes": 1.0}, "mistakes from 0 to 1"),
    ("cartpole-bc", {"episodes": 3}, "episodes to be an integer"),
])
def test_bad_options_are_named(name: str, options: dict[str, object], words: str) -> None:
    with pytest.raises(InputError, match=words):
        tasks.load(name, **options)


def test_a_split_with_missing_targets_is_refused() -> None:
    good, bad = Split(torch.zeros(2, 1), torch.zeros(2)), Split(torch.zeros(2, 1), torch.zeros(1))
    with pytest.raises(InputError, match="as many inputs as targets in validation"):
        ArrayTask("broken", 2, good, bad, good, data_hash="-")
