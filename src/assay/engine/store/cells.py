"""A crash-safe, content-addressed store of finished cells.

One object per cell, written whole or not at all: a kill at any moment leaves either the whole cell or none. Every
object carries a digest of its content under the key of who wrote it (``keys``); a truncated, corrupted, tampered or
forged cell is set aside, reported and done again. Cells of a key that is not trusted are left where they are and not
used.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import uuid
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from assay.engine.estimate import CostModel
from assay.engine.plan import canonical
from assay.engine.store.backend import Backend, Folder, open_backend
from assay.engine.store.claims import Claims
from assay.engine.store.files import write_atomically
from assay.engine.store.keys import UNKNOWN, Key, Keyring, keyring
from assay.engine.store.looks import Ledger
from assay.engine.store.plans import StoredPlan, read_plan, write_plan
from assay.errors import expected

FORMAT = 2
KEY = re.compile(r"^[0-9a-f]{32}$")
COSTS = "costs.json"


@dataclass(frozen=True)
class StoredCell:
    """A finished cell as the store holds it; ``together`` tells how many were computed in the same call."""

    key: str
    label: str
    group: str
    seconds: float
    record: Mapping[str, Any]
    together: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    at: str = ""
    """When it was stored (UTC)."""
    signer: str = field(default="", compare=False)
    """The trusted name whose key it bears; empty for one's own."""


@dataclass
class Store:
    """Finished cells under ``root``, a folder or an fsspec URL, by key; several drivers may share it.

    ``trust`` names the keys of others whose cells are used too. ``damaged`` lists the objects found broken since it was
    opened; ``others`` counts the cells used by trusted name, ``strangers`` those not used by signer. With ``doubting``
    (for an audit) the cells of unknown signers are read too, under a name that says so, and nothing is set aside.
    """

    root: str | Path
    damaged: list[str] = field(default_factory=list)
    trust: Sequence[str] = ()
    others: Counter[str] = field(default_factory=Counter)
    strangers: Counter[str] = field(default_factory=Counter)
    doubting: bool = False

    def __post_init__(self) -> None:
        self._keys = keyring(self.trust, doubting=self.doubting)
        self._backend: Backend = open_backend(self.root, read_only=self.doubting)
        if isinstance(self._backend, Folder):
            self.root = self._backend.root

    def path(self, key: str) -> Path:
        """Where the cell of this key lives, in a store that is a folder."""
        return Path(self.root) / _name(key)

    def get(self, key: str) -> StoredCell | None:
        """The cell of this key, or None if it was never finished or its file is damaged (then it is set aside)."""
        name = _name(key)
        if (raw := self._backend.read(name)) is None:
            return None
        try:
            found = _decode(raw, key, self._keys)
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
            if self.doubting:
                self.damaged.append(f"{key}.json: {error}")
            else:
                self.damaged.append(f"{key}.json: {error}; set aside, the cell is done again")
                self._set_aside(name, raw)
            return None
        if isinstance(found, str):
            self.strangers[found] += 1
            return None
        if found.signer:
            self.others[found.signer] += 1
        return found

    def get_all(self, keys: Iterable[str]) -> list[StoredCell | None]:
        """The cells of these keys, in their order."""
        return self._backend.map(self.get, keys)

    def put(self, cell: StoredCell) -> None:
        """Write a finished cell; when this returns, it survives a crash of the machine."""
        self.put_all([cell])

    def put_all(self, cells: Iterable[StoredCell]) -> None:
        """Write cells that finished together with one wait for the disk; when this returns, all survive a crash."""
        if items := {_name(cell.key): _encode(cell, self._keys.own) for cell in cells}:
            self._backend.write(items)

    def __iter__(self) -> Iterator[StoredCell]:
        for name in self._backend.names(""):
            folder, _, file = name.rpartition("/")
            key = file.removesuffix(".json")
            if len(folder) == 2 and KEY.match(key) and (cell := self.get(key)) is not None:
                yield cell

    def write_plan(self, cells: Mapping[str, Sequence[str]]) -> str:
        """Write down which cells each question will be answered from; the name of the plan, for the run to keep."""
        return write_plan(self._backend, self._keys, cells).id

    def read_plan(self, name: str) -> StoredPlan | None:
        """The plan of this name, if it is there, whole and signed by somebody trusted."""
        return read_plan(self._backend, self._keys, name)

    def plans(self) -> Iterator[StoredPlan]:
        """All plans that are whole and signed by somebody trusted."""
        for name in self._backend.names("plans/"):
            if (plan := self.read_plan(name.rpartition("/")[2].removesuffix(".json"))) is not None:
                yield plan

    def notes(self) -> dict[str, Any]:
        """What a reader of a run must know about the cells it was answered from."""
        notes: dict[str, Any] = {f"damaged cells{'' if self.doubting else ' redone'}": list(self.damaged)}
        if known := {name: count for name, count in self.others.items() if not name.startswith(UNKNOWN)}:
            notes["cells of others, trusted by name"] = known
        if len(known) < len(self.others):
            doubted = {name: count for name, count in self.others.items() if name not in known}
            notes["cells of unknown signers, read and doubted"] = doubted
        if self.strangers:
            notes["cells of unknown signers, not used"] = dict(self.strangers)
        return notes

    def claims(self) -> Claims:
        """A driver's right to run cells of this store while no other does."""
        return Claims(self._backend)

    def ledger(self) -> Ledger:
        """Which seeds of which claims were planned and looked at."""
        return Ledger(self._backend, self._keys)

    def costs(self) -> CostModel:
        """How long cells took, as earlier drivers of this store recorded it; empty if there is no readable record."""
        try:
            return CostModel.loads(self._backend.read(COSTS) or b"{}")
        except (ValueError, TypeError, AttributeError):
            return CostModel()

    def keep_costs(self, costs: CostModel) -> None:
        """Remember how long cells took. The last driver to finish wins; nothing but estimates depends on it."""
        self._backend.note(COSTS, costs.dumps())

    def close(self) -> None:
        """Settle what was written in batches. The store stays usable; leaving this out loses nothing."""
        self._backend.close()

    def _set_aside(self, name: str, raw: bytes) -> None:
        aside = f"{name.removesuffix('.json')}.damaged-{uuid.uuid4().hex[:8]}"
        if isinstance(self._backend, Folder):
            with contextlib.suppress(FileNotFoundError):  # another driver set it aside first
                os.replace(self._backend.root / name, self._backend.root / aside)
            return
        self._backend.note(aside, raw)
        self._backend.delete(name)


def _name(key: str) -> str:
    if not KEY.match(key):
        raise expected("a cell key of 32 hex digits", given=repr(key))
    return f"{key[:2]}/{key}.json"


def _body(cell: StoredCell) -> dict[str, Any]:
    body = {
        "format": FORMAT, "key": cell.key, "label": cell.label, "group": cell.group, "seconds": cell.seconds,
        "record": dict(cell.record),
    }
    if cell.together != 1:
        body["together"] = cell.together
    if cell.environment:
        body["environment"] = dict(cell.environment)
    if cell.at:
        body["at"] = cell.at
    return body


def _encode(cell: StoredCell, key: Key) -> bytes:
    body = {**_body(cell), "signer": key.signer}
    return (json.dumps({**body, "hmac": key.sign(canonical(body))}) + "\n").encode()


def _decode(raw: bytes, key: str, keys: Keyring) -> StoredCell | str:
    """The cell in ``raw``, or the name of its signer if that is nobody's who is trusted."""
    data = json.loads(raw)
    if data["format"] != FORMAT:
        raise ValueError(f"cell format {data['format']}, this Assay writes {FORMAT}")
    if data["key"] != key:
        raise ValueError(f"file holds the cell of key {data['key']}")
    digest = str(data.pop("hmac"))
    if (known := keys.find(str(data["signer"]))) is None:
        return str(data["signer"])
    name, secret = known
    if not secret.signed(canonical(data), digest):
        raise ValueError("content does not match its digest")
    return StoredCell(
        key=key, label=data["label"], group=data["group"], seconds=data["seconds"], record=data["record"],
        together=data.get("together", 1), environment=data.get("environment", {}),
        at=data.get("at", ""), signer=name,
    )


__all__ = ["Store", "StoredCell", "write_atomically"]
