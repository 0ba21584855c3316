"""A cell is believed because of who signed it, and a store writes nowhere but into itself."""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import stat
from pathlib import Path

import pytest

from assay.config import load
from assay.engine import Store, StoredCell, canonical, content_key
from assay.engine.store.keys import Key, folder, own_key
from assay.errors import AssayError, ConfigError

KEY = content_key({"cell": 1})
CELL = StoredCell(KEY, "cell 1", "g", 1.0, {"accuracy": 0.9})


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ASSAY_KEY", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_the_key_is_made_once_outside_the_store_for_its_owner_alone() -> None:
    first = own_key()
    assert own_key() == first and first.signer not in repr(first.secret)
    assert stat.S_IMODE((folder() / "key").stat().st_mode) == 0o600
    assert repr(first) == f"Key({first.signer})", "a secret is not printed"


def test_a_cell_forged_with_every_digest_recomputed_is_refused(tmp_path: Path) -> None:
    store = Store(tmp_path / "cells")
    store.put(CELL)
    data = json.loads(store.path(KEY).read_text())
    data["record"]["accuracy"] = 0.99
    data.pop("hmac")
    plain = hashlib.sha256(canonical(data).encode()).hexdigest()
    for digest in (plain, Key(b"a guess").sign(canonical(data))):
        store.path(KEY).write_text(json.dumps({**data, "hmac": digest}))
        assert store.get(KEY) is None and "digest" in store.damaged[-1]
        store.put(CELL)
    assert store.get(KEY) == CELL, "the healthy twin is served"


def test_cells_of_others_are_used_only_when_trusted_by_name_and_shown_as_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ASSAY_KEY", "the key of a colleague")
    signer = own_key().signer
    Store(tmp_path / "cells").put(CELL)
    monkeypatch.delenv("ASSAY_KEY")
    stranger = Store(tmp_path / "cells")
    assert stranger.get(KEY) is None and stranger.strangers == {signer: 1} and stranger.damaged == []
    assert stranger.path(KEY).exists(), "what somebody else owns is left where it is"
    with pytest.raises(AssayError, match=r"unknown trusted key 'ann'.*put the key of ann into"):
        Store(tmp_path / "cells", trust=["ann"])
    (folder() / "keys").mkdir()
    (folder() / "keys" / "ann").write_text("the key of a colleague\n")
    friend = Store(tmp_path / "cells", trust=["ann"])
    found = friend.get(KEY)
    assert found == CELL and found is not None and found.signer == "ann"
    assert friend.notes()["cells of others, trusted by name"] == {"ann": 1}
    content = friend.path(KEY).read_text().replace("0.9", "0.99")
    friend.path(KEY).write_text(content)
    assert friend.get(KEY) is None and len(friend.damaged) == 1, "a trusted name is not enough: its digest must fit"


def test_a_short_key_and_one_that_cannot_be_made_are_one_clear_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "file"))
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(AssayError, match="set ASSAY_KEY"):
        Store(tmp_path / "cells")
    monkeypatch.setenv("ASSAY_KEY", "short")
    with pytest.raises(AssayError, match="16 characters"):
        Store(tmp_path / "cells")


def test_the_key_is_no_setting_and_trust_is_a_list(tmp_path: Path) -> None:
    assert load(tmp_path, environment={"ASSAY_KEY": "x" * 20, "ASSAY_TRUST": "ann bob"}).trust == ("ann", "bob")
    with pytest.raises(ConfigError, match="list of names of keys"):
        load(tmp_path, trust="ann")


def _log(store: Path, names: list[str], data: bytes = b"planted") -> None:
    (store / "journal").mkdir(parents=True, exist_ok=True)
    lines = [{"file": name, "data": base64.b64encode(data).decode(), "sha256": hashlib.sha256(data).hexdigest()}
             for name in names]
    (store / "journal" / "evil.log").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_the_journal_of_a_strangers_store_writes_nowhere_else(tmp_path: Path) -> None:
    store, outside = tmp_path / "cells", tmp_path / "outside"
    outside.mkdir()
    store.mkdir()
    (store / "ln").symlink_to(outside)
    _log(store, [str(outside / "absolute"), "../outside/above", "ln/through-a-link", "a\0b", "", "."])
    Store(store)
    assert list(outside.iterdir()) == []


def test_a_moved_store_recovers_into_itself(tmp_path: Path) -> None:
    store = Store(tmp_path / "old")
    cells = [StoredCell(content_key({"n": n}), f"{n}", "g", 0.1, {"n": n}) for n in range(3)]
    store.put_all(cells)
    del store
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    for part in (tmp_path / "old", tmp_path / "new"):
        for file in part.glob("??/*.json"):
            file.unlink()
    moved = Store(tmp_path / "new")
    assert [moved.get(cell.key) for cell in cells] == cells
    assert list((tmp_path / "old").glob("??/*.json")) == []


def test_no_cell_is_written_through_a_link_that_leads_out(tmp_path: Path) -> None:
    (tmp_path / "outside").mkdir()
    store = Store(tmp_path / "cells")
    (tmp_path / "cells" / KEY[:2]).symlink_to(tmp_path / "outside")
    with pytest.raises(AssayError, match="leads out of the store"):
        store.put(CELL)
    assert list((tmp_path / "outside").iterdir()) == []


def test_a_folder_in_the_place_of_a_cell_is_set_aside(tmp_path: Path) -> None:
    store = Store(tmp_path)
    store.path(KEY).mkdir(parents=True)
    (store.path(KEY) / "inside").write_text("x")
    assert store.get(KEY) is None and len(store.damaged) == 1
    store.put(CELL)
    assert store.get(KEY) == CELL
