"""What a worker process calls to measure trials of a track; kept apart, because it is part of every cell's key."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

from assay.frozen import Frozen
from assay.protocols import Trial, TrialRecord
from assay.registry import registry

CELL = "assay.studies.measure:measure_cell"
TOGETHER = "assay.studies.measure:measure_together"


def measure_cell(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Run one trial; called by name inside a worker process."""
    # The track registers itself when its module is imported; a worker has imported nothing of the user's yet.
    importlib.import_module(payload["module"])
    track = registry.tracks[payload["track"]]
    with _on(payload):
        return stored(track.body.measure(trial_of(payload)))


def measure_together(payloads: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Run trials of one track that its body can measure together; called by name inside a worker process."""
    importlib.import_module(payloads[0]["module"])
    body: Any = registry.tracks[payloads[0]["track"]].body
    with _on(payloads[0]):
        return [stored(record) for record in body.measure_together([trial_of(payload) for payload in payloads])]


def stored(measured: TrialRecord) -> dict[str, Any]:
    """The JSON object that a cell keeps of a trial."""
    return measured.model_dump(mode="json") if isinstance(measured, Frozen) else dict(measured)


def _on(payload: Mapping[str, Any]) -> AbstractContextManager[None]:
    if payload.get("device") is None:  # no torch for a track that does without
        return nullcontext()
    from assay.learning.device import computing_on

    return computing_on(payload["device"])


def trial_of(payload: Mapping[str, Any]) -> Trial:
    """The trial that the payload of a cell describes."""
    return Trial(arm=payload["arm"], seed=payload["seed"], budget=payload["budget"], config=payload["config"])
