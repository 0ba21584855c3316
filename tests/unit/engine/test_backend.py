"""The same store in a folder and in an object store; places that cannot create atomically are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.engine import CostModel, Store, StoredCell, content_key
from assay.engine.store.backend import Folder, open_backend
from assay.errors import AssayError, InputError

KEYS = [content_key({"n": n}) for n in range(3)]
CELLS = [StoredCell(key, f"cell {n}", "g", 0.5, {"n": n}) for n, key in enumerate(KEYS)]


@pytest.fixture(params=["folder", "file", "memory"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "memory":
        pytest.importorskip("fsspec", reason="needs the [ray] extra")
        return f"memory://{tmp_path.name}/cells"
    return str(tmp_path / "cells") if request.param == "folder" else f"file://{tmp_path}/cells"


def test_a_store_is_the_same_wherever_it_lies(url: str) -> None:
    store = Store(url)
    assert store.get_all(KEYS) == [None] * 3
    store.put_all(CELLS)
    assert Store(url).get_all(KEYS) == CELLS
    assert sorted(Store(url), key=lambda cell: cell.label) == CELLS


def test_a_damaged_object_is_set_aside_wherever_it_lies(url: str) -> None:
    store = Store(url)
    store.put(CELLS[0])
    name = f"{KEYS[0][:2]}/{KEYS[0]}.json"
    backend = open_backend(url)
    backend.note(name, b"{}")
    assert store.get(KEYS[0]) is None and len(store.damaged) == 1
    names = list(backend.names(""))
    assert name not in names and any(".damaged-" in each for each in names)
    assert list(store) == []


def test_creation_is_exclusive(url: str) -> None:
    backend = open_backend(url)
    assert backend.create("claims/a.0", b"one") and not backend.create("claims/a.0", b"two")
    assert backend.read("claims/a.0") == b"one"
    backend.delete("claims/a.0")
    backend.delete("claims/a.0")
    assert backend.read("claims/a.0") is None


def test_recorded_times_survive_the_driver(url: str) -> None:
    costs = CostModel()
    costs.learn("slow", 9.0)
    Store(url).keep_costs(costs)
    assert Store(url).costs().seconds("slow") == 9.0
    open_backend(url).note("costs.json", b"not json")
    assert Store(url).costs().seconds("slow") == 0.0


def test_places_without_atomic_creation_are_refused() -> None:
    pytest.importorskip("fsspec", reason="needs the [ray] extra")
    with pytest.raises(InputError, match="atomically"):
        Store("ftp://somewhere/cells")
    with pytest.raises(AssayError, match=r"pip install|cannot write"):
        Store("gs://no-such-bucket-for-assay/cells")


def test_a_file_url_is_a_folder(tmp_path: Path) -> None:
    assert isinstance(open_backend(f"file://{tmp_path}"), Folder)
