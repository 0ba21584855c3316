"""Tasks of the user's own: every door opens, splits are fair, and what does not fit is refused in one line."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from assay import tasks
from assay.errors import InputError

ROWS = 120


def numbers(rows: int = ROWS, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(seed)
    x = generator.normal(size=(rows, 4)) * [1, 10, 100, 1000] + 5
    return x, (x[:, 0] + 0.1 * x[:, 1] > 5.5).astype(int)


def written(path: Path, columns: dict[str, list[Any]], separator: str = ",") -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file, delimiter=separator)
        writer.writerow(columns)
        writer.writerows(zip(*columns.values(), strict=True))
    return path


def test_every_door_leads_to_the_same_rows(tmp_path: Path) -> None:
    x, y = numbers()
    columns = {**{f"f{i}": x[:, i].tolist() for i in range(4)}, "target": y.tolist()}
    made = [
        tasks.from_arrays(x, y), tasks.from_arrays(torch.tensor(x), torch.tensor(y)), tasks.from_arrays(x.tolist(), y),
        tasks.from_csv(written(tmp_path / "a.csv", columns), target="target"),
        tasks.from_csv(written(tmp_path / "b.csv", columns, ";"), target="target"),
        tasks.from_dataset(TensorDataset(torch.tensor(x), torch.tensor(y)), standardise=True),
        tasks.from_dataset(DataLoader(TensorDataset(torch.tensor(x), torch.tensor(y)), batch_size=7), standardise=True),
    ]
    for task in made[1:]:
        assert torch.equal(task.train.x, made[0].train.x) and torch.equal(task.test.y, made[0].test.y)
    assert (made[0].inputs, made[0].outputs, made[0].classes) == (4, 2, 2)


def test_pandas_parquet_and_hugging_face_are_doors_too(tmp_path: Path) -> None:
    pandas, parquet = pytest.importorskip("pandas"), pytest.importorskip("pyarrow.parquet")
    datasets = pytest.importorskip("datasets")
    x, y = numbers()
    frame = pandas.DataFrame(x, columns=list("abcd")).assign(label=y)
    parquet.write_table(__import__("pyarrow").Table.from_pandas(frame), tmp_path / "rows.parquet")
    plain = tasks.from_arrays(x, y)
    face = datasets.Dataset.from_dict({**{c: frame[c].tolist() for c in "abcd"}, "label": y.tolist()})
    for task in (
        tasks.from_arrays(frame[list("abcd")], frame["label"]), tasks.from_columns(frame, target="label"),
        tasks.from_parquet(tmp_path / "rows.parquet", target="label"), tasks.from_huggingface(face),
    ):
        assert torch.allclose(task.train.x, plain.train.x) and torch.equal(task.train.y, plain.train.y)
    vectors = datasets.Dataset.from_dict({"vector": x.tolist(), "label": y.tolist()})
    both = datasets.DatasetDict(vectors.train_test_split(test_size=0.25, seed=1))
    given = tasks.from_huggingface(both, inputs="vector")
    assert len(given.test) == 30 and len(given.train) + len(given.validation) == 90


def test_the_seed_draws_the_split_and_the_training_part_alone_sets_the_scale() -> None:
    x, y = numbers()
    task = tasks.from_arrays(x, y, seed=1)
    assert torch.allclose(task.train.x.mean(0), torch.zeros(4), atol=1e-5)
    assert torch.allclose(task.train.x.std(0, correction=0), torch.ones(4), atol=1e-4)
    assert not torch.allclose(task.test.x.mean(0), torch.zeros(4), atol=1e-3)
    again, other = task.redrawn(1), task.redrawn(2)
    assert torch.equal(again.train.x, task.train.x) and again.data_hash == task.data_hash
    assert other.data_hash != task.data_hash and not torch.equal(other.train.y, task.train.y)
    shares = [float(part.y.float().mean()) for part in (task.train, task.test)]
    assert abs(shares[0] - shares[1]) < 0.05, "stratified by class"


def test_rows_of_one_group_stay_together_at_every_seed() -> None:
    x, y = numbers()
    people = [f"person {i // 6}" for i in range(ROWS)]
    marked = np.column_stack([np.repeat(np.arange(ROWS // 6), 6), x[:, :2]])
    for seed in range(8):
        task = tasks.from_arrays(marked, y, groups=people, seed=seed, standardise=False)
        owners = [set(part.x[:, 0].tolist()) for part in (task.train, task.validation, task.test)]
        assert not owners[0] & owners[1] and not owners[0] & owners[2] and not owners[1] & owners[2]
        assert all(owners)
    with pytest.raises(InputError, match="three groups"):
        tasks.from_arrays(x, y, groups=[i % 2 for i in range(ROWS)])


def test_given_parts_are_never_split_again() -> None:
    x, y = (torch.tensor(part) for part in numbers())
    loaders = [DataLoader(TensorDataset(x[a:b], y[a:b]), batch_size=8) for a, b in ((0, 80), (80, 100), (100, 120))]
    task = tasks.from_loaders(*loaders)
    assert torch.equal(task.test.x, x[100:].float())
    assert torch.equal(task.redrawn(5).test.x, task.test.x)


def test_a_regression_target_is_scaled_and_its_floors_are_in_its_units() -> None:
    x, _ = numbers()
    price = 250_000 + 40_000 * (x[:, 0] - 5) + 1_000 * np.random.default_rng(1).normal(size=ROWS)
    task = tasks.from_arrays(x, price)
    assert task.classes == 0 and task.outputs == 1 and task.metric.key == "error"
    assert float(task.train.y.std(correction=0)) == pytest.approx(1.0, abs=1e-4)
    floors = task.floors()
    assert isinstance(floors, tasks.RegressionFloors)
    assert 25_000 < floors.mean < 60_000
    assert floors.ridge < 3_000 < floors.neighbour < floors.mean
    assert floors.highest == floors.ridge


def test_text_and_few_whole_numbers_are_classes_and_anything_else_must_say() -> None:
    x, y = numbers()
    named = tasks.from_arrays(x, np.where(y == 1, "yes", "no"))
    assert named.labels == ("no", "yes") and named.classes == 2
    assert tasks.from_arrays(x, y.astype(float)).classes == 2
    with pytest.raises(InputError, match="say which they are"):
        tasks.from_arrays(x, np.arange(ROWS))
    assert tasks.from_arrays(x, np.arange(ROWS), kind="regression").classes == 0


@pytest.mark.parametrize(("change", "words"), [
    (lambda c: c["age"].__setitem__(3, ""), "column 'age'.*1 of 120 are missing"),
    (lambda c: c["age"].__setitem__(3, "old"), "numbers in column 'age'; given the text 'old'"),
    (lambda c: c["y"].__setitem__(3, "NA"), "a target in every row"),
    (lambda c: c.__setitem__("y", [1] * ROWS), "at least two classes"),
    (lambda c: c.__setitem__("y", [f"c{i}" for i in range(ROWS)]), "three rows per class"),
    (lambda c: c.__setitem__("age", [2.0] * ROWS), "at least one feature that varies"),
])
def test_untidy_columns_are_refused_by_name_in_one_line(tmp_path: Path, change: Any, words: str) -> None:
    columns: dict[str, list[Any]] = {"age": [float(i % 7) for i in range(ROWS)], "y": [i % 2 for i in range(ROWS)]}
    change(columns)
    with pytest.raises(InputError, match=words) as caught:
        tasks.from_csv(written(tmp_path / "untidy.csv", columns), target="y")
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 200


def test_a_constant_column_is_left_out_and_said() -> None:
    x, y = numbers()
    task = tasks.from_arrays(np.column_stack([x, np.ones(ROWS)]), y)
    assert task.inputs == 4 and "constant columns left out: 4" in task.note


def test_a_wrong_name_is_answered_with_the_nearest(tmp_path: Path) -> None:
    path = written(tmp_path / "wine.csv", {"acid": [1.0, 2.0], "quality": [1, 2]})
    with pytest.raises(InputError, match="did you mean 'quality'"):
        tasks.from_csv(path, target="qality")
    with pytest.raises(InputError, match=r"cannot read .*no\.csv"):
        tasks.from_csv(tmp_path / "no.csv", target="y")
    (tmp_path / "ragged.csv").write_text("a,b\n1,2\n3\n")
    with pytest.raises(InputError, match="1 in line 3"):
        tasks.from_csv(tmp_path / "ragged.csv", target="a")
