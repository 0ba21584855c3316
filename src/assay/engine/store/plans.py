"""What was going to be run, written down before the first cell: signed, dated and never changed.

An audit finds the cells of a run by its plan, whatever has become of the code since, and can tell whether they were
planned before they were computed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from assay.engine.plan import canonical, content_key
from assay.engine.store.backend import Backend
from assay.engine.store.keys import Keyring

FORMAT = 1


@dataclass(frozen=True)
class StoredPlan:
    """The keys of the cells of each question, in the order of its trials, and when that was written down."""

    id: str
    at: str
    cells: Mapping[str, tuple[str, ...]]
    signer: str = ""
    """The trusted name whose key it bears; empty for one's own."""


def write_plan(backend: Backend, keys: Keyring, cells: Mapping[str, Sequence[str]]) -> StoredPlan:
    """Write a plan down; its name is a digest of what it says."""
    at = datetime.now(UTC).isoformat(timespec="milliseconds")
    body = {
        "format": FORMAT, "at": at, "cells": {name: list(found) for name, found in cells.items()},
        "signer": keys.own.signer,
    }
    name = content_key(body)
    backend.create(_name(name), json.dumps({**body, "hmac": keys.own.sign(canonical(body))}).encode())
    return StoredPlan(name, at, {question: tuple(found) for question, found in cells.items()})


def read_plan(backend: Backend, keys: Keyring, name: str) -> StoredPlan | None:
    """The plan of this name; None if there is none, it is not what was written, or its signer is not trusted."""
    if not name.isalnum():
        return None
    try:
        body = json.loads(backend.read(_name(name)) or b"")
        digest = str(body.pop("hmac"))
        known = keys.find(str(body["signer"]))
        if known is None or content_key(body) != name or not known[1].signed(canonical(body), digest):
            return None
        cells = {str(question): tuple(map(str, found)) for question, found in body["cells"].items()}
        return StoredPlan(name, str(body["at"]), cells, known[0])
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _name(name: str) -> str:
    return f"plans/{name}.json"
