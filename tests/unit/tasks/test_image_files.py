"""Canonical files: accepted by their raw hash, named when damaged, explained when missing."""

from __future__ import annotations

import gzip
import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from assay import tasks
from assay.errors import InputError, MissingData
from assay.tasks import fetch, files
from assay.tasks.files import DataFile, Dataset


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A dataset in MNIST's format with 12 training and 4 test pictures, and a root that has it."""
    random, parts = np.random.default_rng(0), []
    (tmp_path / "mnist").mkdir()
    for name, header, count, width in (
        ("train-images-idx3-ubyte", 16, 12, 784), ("train-labels-idx1-ubyte", 8, 12, 1),
        ("t10k-images-idx3-ubyte", 16, 4, 784), ("t10k-labels-idx1-ubyte", 8, 4, 1),
    ):
        raw = bytes(header) + random.integers(0, 10, count * width, dtype=np.uint8).tobytes()
        parts.append(DataFile(name, hashlib.sha256(raw).hexdigest(), len(raw)))
        (tmp_path / "mnist" / f"{name}.gz").write_bytes(gzip.compress(raw))
    monkeypatch.setattr(files, "DATASETS", {"mnist": Dataset("mnist", tuple(parts), "http://127.0.0.1:9/")})
    monkeypatch.setattr("assay.tasks.images.DATASETS", files.DATASETS)
    monkeypatch.setattr(fetch, "DATASETS", files.DATASETS)
    return tmp_path


def test_a_missing_dataset_is_one_line_that_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(MissingData, match="assay data fetch mnist") as caught:
        tasks.mnist(root=tmp_path)
    assert "\n" not in str(caught.value)


def test_the_seed_draws_validation_and_never_touches_the_official_test_set(tiny: Path) -> None:
    first, other = tasks.mnist(0, root=tiny, validation=4), tasks.mnist(1, root=tiny, validation=4)
    assert (len(first.train), len(first.validation), len(first.test)) == (8, 4, 4)
    assert torch.equal(first.test.x, other.test.x)
    assert not torch.equal(first.validation.x, other.validation.x)
    assert first.data_hash != other.data_hash
    assert float(first.train.x.max()) <= 1.0
    everything = torch.cat([first.train.x, first.validation.x]).sum()
    assert torch.allclose(everything, torch.cat([other.train.x, other.validation.x]).sum())


@pytest.mark.parametrize("damage", ["truncate", "flip", "other content", "empty", "not gzip"])
def test_a_damaged_file_is_detected_and_named(tiny: Path, damage: str) -> None:
    path = tiny / "mnist" / "train-images-idx3-ubyte.gz"
    whole = path.read_bytes()
    damaged = {
        "truncate": whole[: len(whole) // 2],
        "flip": whole[:200] + bytes([whole[200] ^ 1]) + whole[201:],
        "other content": gzip.compress(b"x" * (16 + 12 * 784)),
        "empty": b"",
        "not gzip": b"<html>404</html>",
    }[damage]
    path.write_bytes(damaged)
    with pytest.raises(InputError, match="train-images-idx3-ubyte") as caught:
        tasks.mnist(root=tiny, validation=4)
    assert "assay data fetch" in str(caught.value)
    states = {row.file: row.state for row in fetch.status(root=tiny)}
    assert states.pop("train-images-idx3-ubyte") == "damaged"
    assert set(states.values()) == {"ok"}


def test_a_file_damaged_after_a_first_good_read_is_noticed(tiny: Path) -> None:
    tasks.mnist(root=tiny, validation=4)
    path = tiny / "mnist" / "t10k-labels-idx1-ubyte.gz"
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match="t10k-labels"):
        tasks.mnist(root=tiny, validation=4)


def test_uncompressed_files_and_the_environment_variable_work(tiny: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = tasks.mnist(root=tiny, validation=4).data_hash
    for path in (tiny / "mnist").glob("*.gz"):
        path.with_suffix("").write_bytes(gzip.decompress(path.read_bytes()))
        path.unlink()
    monkeypatch.setenv("ASSAY_DATA", str(tiny))
    assert tasks.mnist(validation=4).data_hash == before


def test_validation_must_leave_something_to_train_on(tiny: Path) -> None:
    with pytest.raises(InputError, match="validation to be an integer from 1 to 11"):
        tasks.mnist(root=tiny, validation=12)


@pytest.mark.data
def test_real_mnist_and_fashion_are_whole(real_data: Path) -> None:
    for make in (tasks.mnist, tasks.fashion_mnist):
        task = make(0, root=real_data)
        assert (len(task.train), len(task.validation), len(task.test)) == (55_000, 5_000, 10_000)
        assert task.input_shape == (784,)
    assert torch.bincount(task.test.y).tolist() == [1000] * 10


@pytest.mark.data
def test_real_cifar_has_the_published_means_and_class_counts(real_data: Path) -> None:
    images = files.read_images("cifar10", root=real_data)
    assert images.train_pixels.mean((0, 2, 3)) / 255 == pytest.approx([0.4914, 0.4822, 0.4465], abs=5e-5)
    assert np.bincount(images.train_labels).tolist() == [5000] * 10
    assert np.bincount(images.test_labels).tolist() == [1000] * 10
    task = tasks.cifar10(0, root=real_data)
    assert task.input_shape == (3, 32, 32)
    assert task.test.x.std() == pytest.approx(1.0, abs=0.02)


@pytest.mark.data
def test_one_flipped_bit_in_a_real_file_is_found(real_data: Path, tmp_path: Path) -> None:
    (tmp_path / "cifar-10-batches-bin").mkdir()
    for path in (real_data / "cifar-10-batches-bin").iterdir():
        shutil.copy(path, tmp_path / "cifar-10-batches-bin" / path.name)
    victim = tmp_path / "cifar-10-batches-bin" / "data_batch_3.bin"
    raw = bytearray(victim.read_bytes())
    raw[12_345_678] ^= 4
    victim.write_bytes(raw)
    with pytest.raises(InputError, match=r"data_batch_3\.bin is not the canonical file"):
        tasks.cifar10(root=tmp_path)
