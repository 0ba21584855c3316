"""Content hashes of cells: the same work has the same key on every machine, and changed code or data has another."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from typing import Any

from assay.errors import InputError


def canonical(value: Any) -> str:
    """Canonical JSON of ``value``: sorted keys, no spaces; InputError if it is not plain JSON data.

    >>> canonical({"b": 1, "a": (2.5, None)})
    '{"a":[2.5,null],"b":1}'
    """
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
    except (TypeError, ValueError) as error:
        kind = type(value).__name__
        raise InputError(f"expected JSON data (numbers, text, lists, dicts); given {kind}: {error}") from None


def content_key(identity: Mapping[str, Any]) -> str:
    """The key of a cell: 32 hex digits of the SHA-256 of everything its result depends on."""
    return hashlib.sha256(canonical(dict(identity)).encode()).hexdigest()[:32]


def run_id(now: datetime, **identity: Any) -> str:
    """The name of a run begun ``now``: the time for people, a digest of what was asked so that two never share one."""
    return f"{now:%Y%m%d-%H%M%S}-{content_key({**identity, 'at': now.isoformat()})[:6]}"
