"""What a cell needs to run, as a track states it; and what this machine has."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.errors import InputError, expected, unknown

KNOWN = ("cpus", "gpus", "memory", "timeout", "fresh")


def checked_needs(needs: Any) -> dict[str, Any]:
    """The needs of a cell if they can be met by some machine; InputError that names the wrong one otherwise.

    >>> checked_needs({"cpus": 2, "memory": 1 << 30})
    {'cpus': 2, 'memory': 1073741824}
    """
    if not isinstance(needs, Mapping):
        raise expected(f"resources(trial) to return a dict of {', '.join(KNOWN)}", given=type(needs).__name__)
    for name, value in needs.items():
        if name not in KNOWN:
            raise InputError(unknown("resource", str(name), KNOWN))
        if name == "fresh":
            if not isinstance(value, bool):
                raise expected("fresh=True or False", given=f"fresh={value!r}")
            continue
        if name == "memory" and value is None:
            continue
        number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        least = 0 if name == "gpus" else None
        if not number or (value < 0 if least == 0 else value <= 0) or (name == "memory" and value != int(value)):
            kind = {"memory": "bytes > 0", "gpus": "a number >= 0"}.get(name, "a number > 0")
            raise expected(f"{name} as {kind}", given=f"{name}={value!r}")
    return dict(needs)


def gpus_here() -> int:
    """How many NVIDIA GPUs this process may use; asks the system, not torch, which would take a second to load."""
    present = sum(1 for _ in Path("/dev").glob("nvidia[0-9]*"))
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return present
    named = [part for part in visible.split(",") if part.strip() not in ("", "-1")]
    return min(present, len(named))
