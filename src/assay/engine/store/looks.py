"""The ledger of a store: which seeds of a claim were planned and looked at, when, by which code and on which machine.

A look is written twice: when it is planned, before its first cell runs, and when its verdict is known. Both are objects
of the store, so that drivers that share it share the ledger, and both are signed like cells: a confirmed look that
nobody made would replicate a claim, and a PASS that nobody saw would free the next look from what was spent.
"""

from __future__ import annotations

import hashlib
import json
import platform
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from assay.engine.plan import canonical, content_key
from assay.engine.store.backend import Backend
from assay.engine.store.keys import Keyring

PLANNED, SEEN = "planned", "seen"


@dataclass(frozen=True)
class RecordedLook:
    """A look as the ledger holds it; ``verdict`` is empty until one was given."""

    seeds: tuple[int, ...]
    at: str
    code: str
    machine: str
    verdict: str = ""
    evidence: str = ""
    asked: str = ""
    """What decided and what it was allowed to be, in words; empty until a verdict was given."""


class Ledger:
    """The looks of a store, by claim; those that nobody trusted has signed say nothing."""

    def __init__(self, backend: Backend, keys: Keyring) -> None:
        self._backend = backend
        self._keys = keys

    def of(self, claim: str) -> list[RecordedLook]:
        """Every look at a claim, oldest plan first; the same seeds by the same code on one machine are one look."""
        found: dict[str, dict[str, Any]] = {}
        for name in self._backend.names(_folder(claim)):
            try:
                entry = self._read(name)
                key, data = str(entry["look"]), entry["data"]
                known = found.setdefault(key, data)
                if entry["kind"] == PLANNED:
                    data = {**data, **{k: known.get(k, "") for k in ("verdict", "evidence", "asked")}}
                found[key] = {**data, "at": min(str(known["at"]), str(data["at"]))}
            except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
                continue  # a line nobody can read says nothing, and is not worth a run
        looks = [RecordedLook(tuple(map(int, d["seeds"])), d["at"], d["code"], d["machine"], d["verdict"],
                              d["evidence"], d["asked"]) for d in found.values()]
        return sorted(looks, key=lambda look: (look.at, len(look.seeds)))

    def plan(self, claim: str, seeds: Sequence[int], *, code: str) -> RecordedLook:
        """Write down that these seeds will be run; nothing if they were written down before."""
        entry = RecordedLook(tuple(seeds), _now(), code, machine())
        self._backend.create(f"{_folder(claim)}/{_look(entry)}-{PLANNED}.json", self._text(PLANNED, entry, claim))
        return entry

    def saw(self, claim: str, entry: RecordedLook, *, verdict: str, evidence: str, asked: str = "") -> None:
        """Write down the verdict of a look; of several verdicts on the same seeds the first stays."""
        done = RecordedLook(entry.seeds, _now(), entry.code, entry.machine, verdict, evidence, asked)
        self._backend.create(f"{_folder(claim)}/{_look(entry)}-{SEEN}.json", self._text(SEEN, done, claim))

    def _text(self, kind: str, entry: RecordedLook, claim: str) -> bytes:
        data = {
            "seeds": list(entry.seeds), "at": entry.at, "code": entry.code, "machine": entry.machine,
            "verdict": entry.verdict, "evidence": entry.evidence, "asked": entry.asked,
        }
        body = {"kind": kind, "look": _look(entry), "claim": claim, "data": data, "signer": self._keys.own.signer}
        return (json.dumps({**body, "hmac": self._keys.own.sign(canonical(body))}) + "\n").encode()

    def _read(self, name: str) -> dict[str, Any]:
        """A line of the ledger; ValueError if nobody who is trusted has signed it."""
        body: dict[str, Any] = json.loads(self._backend.read(name) or b"{}")
        digest, known = str(body.pop("hmac")), self._keys.find(str(body["signer"]))
        folder = _folder(str(body["claim"]))
        if known is None or not known[1].signed(canonical(body), digest) or not name.startswith(f"{folder}/"):
            raise ValueError(f"{name} is signed by nobody who is trusted, or stands where it was not written")
        return body


def machine() -> str:
    """A short name of this machine that tells it from others and gives nothing else away."""
    return hashlib.sha256(f"{platform.node()}/{platform.machine()}".encode()).hexdigest()[:8]


def _folder(claim: str) -> str:
    return f"looks/{content_key({'claim': claim})[:16]}"


def _look(entry: RecordedLook) -> str:
    return content_key({"seeds": sorted(entry.seeds), "code": entry.code, "machine": entry.machine})[:16]


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="microseconds")
