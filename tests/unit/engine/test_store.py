"""The store keeps whole cells or none, and knows a damaged one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.engine import Store, StoredCell, canonical, content_key, write_atomically
from assay.errors import AssayError, InputError

KEY = content_key({"cell": 1})
CELL = StoredCell(key=KEY, label="track 0 a seed 1", group="g", seconds=0.5, record={"accuracy": 0.9, "text": "é"})


def test_what_is_put_is_got(tmp_path: Path) -> None:
    store = Store(tmp_path)
    assert store.get(KEY) is None
    store.put(CELL)
    assert store.get(KEY) == CELL
    assert list(Store(tmp_path)) == [CELL]


@pytest.mark.parametrize("damage", ["truncate", "flip", "swap", "empty", "wrong-key", "no-digest"])
def test_a_damaged_cell_is_set_aside_named_and_missing(tmp_path: Path, damage: str) -> None:
    store = Store(tmp_path)
    store.put(CELL)
    file = store.path(KEY)
    content = file.read_text()
    broken = {
        "truncate": content[: len(content) // 2],
        "flip": content.replace("0.9", "0.99"),
        "swap": json.dumps({"hello": 1}),
        "empty": "",
        "wrong-key": content.replace(KEY, content_key({"cell": 2})),
        "no-digest": content.replace("hmac", "sha"),
    }[damage]
    file.write_text(broken)
    assert store.get(KEY) is None
    assert len(store.damaged) == 1 and KEY in store.damaged[0]
    assert not file.exists()
    assert [p.read_text() for p in file.parent.glob("*.damaged-*")] == [broken], "evidence of damage is kept"
    store.put(CELL)
    assert store.get(KEY) == CELL


def test_a_leftover_temporary_file_is_not_a_cell(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.put(CELL)
    (store.path(KEY).parent / f".{KEY}.json.123.tmp").write_text("half")
    assert list(store) == [CELL] and store.damaged == []


def test_a_folder_that_cannot_be_written_is_one_clear_line(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("in the way")
    with pytest.raises(AssayError, match=r"cannot write to .*--out"):
        Store(file / "cells")


def test_keys_are_paths_only_when_they_are_keys(tmp_path: Path) -> None:
    for bad in ("../../etc/passwd", "A" * 32, "", "0" * 31):
        with pytest.raises(InputError, match="32 hex"):
            Store(tmp_path).path(bad)


def test_a_write_replaces_whole_files(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b.json"
    write_atomically(file, b"one")
    write_atomically(file, b"two")
    assert file.read_bytes() == b"two"
    assert [p.name for p in file.parent.iterdir()] == ["b.json"]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=5), json_values, max_size=5))
def test_a_key_depends_on_content_and_not_on_order(identity: dict[str, object]) -> None:
    shuffled = dict(reversed(list(identity.items())))
    assert content_key(identity) == content_key(shuffled)
    assert content_key({**identity, "one more": 1}) != content_key(identity)


def test_data_that_is_not_json_is_refused() -> None:
    with pytest.raises(InputError, match="JSON"):
        canonical({"a": object()})
