"""Settings of an arm on a task: data in ``chosen/TASK.json``, with the command that chose them.

A file holds, per arm, the settings, how they were chosen and on what; nothing in it was chosen on a test set.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache
from pathlib import Path
from typing import Any

from assay.errors import InputError, expected, unknown
from assay.studies.arms.table import Arm

FOLDER = Path(__file__).parent / "chosen"


@dataclass(frozen=True)
class ArmSettings:
    """Everything that decides how an arm is built and trained, apart from the seed; plain JSON values.

    ``hidden`` are widths, or channels of a conv net with square ``kernel``; ``sweeps``: free and nudged, at most so
    many where a ``tolerance`` ends a phase that rests; a ``beta`` of None is the nudge of ``EqProp()``; ``bound`` holds
    the spectral norm of the weights that feed back. What only a relaxation knows is nothing to an arm without one.
    """

    hidden: tuple[int, ...] = (128, 64)
    epochs: int = 30
    batch_size: int = 32
    learning_rate: float = 2e-3
    schedule: str = "cosine"
    input_noise: float = 0.15
    weight_decay: float = 0.0
    activation: str = "tanh"
    kernel: int = 5
    pooling: str = "average"
    gamma: float = 0.25
    beta: float | None = 0.5
    sweeps: tuple[int, int] = (4, 3)
    tolerance: float | None = None
    bound: float | None = None

    def as_record(self) -> dict[str, Any]:
        """The settings as a JSON object."""
        return {key: list(value) if isinstance(value, tuple) else value for key, value in asdict(self).items()}

    def changed(self, values: Mapping[str, Any], *, where: str = "settings") -> ArmSettings:
        """These settings with ``values`` in place of some; an unknown name is an error with a suggestion."""
        known = {field.name for field in fields(self)}
        for name in values:
            if name not in known:
                raise InputError(f"{unknown('setting', name, sorted(known))} (in {where})")
        plain: dict[str, Any] = {n: tuple(value) if isinstance(value, list) else value for n, value in values.items()}
        return replace(self, **plain)


@dataclass(frozen=True)
class Chosen:
    """Settings and where they come from: the command that found them, or the document that states them."""

    settings: ArmSettings
    source: str
    note: str = ""


def chosen(task: str, arm: Arm, folder: Path | None = None) -> Chosen:
    """The settings of an arm on a task; where none were tuned, the defaults, and ``source`` says so.

    ``folder`` holds a TASK.json per task, as ``assay tune --save`` writes it; by default those of the package.

    >>> from assay.studies.arms.table import Arm
    >>> chosen("digits", Arm("eqprop", "mlp")).settings.gamma
    0.25
    """
    entries = load_chosen(task) if folder is None else _load(folder / f"{task}.json")
    if arm.brought and "backprop/mlp" in entries:
        return Chosen(entries["backprop/mlp"].settings, "those of backprop/mlp", "not tuned for this arm")
    return entries.get(arm.name) or Chosen(ArmSettings(), "default", "not tuned for this task")


@cache
def load_chosen(task: str) -> dict[str, Chosen]:
    """All settings on file for a task, by arm name; none if the task was never tuned."""
    return _load(FOLDER / f"{task}.json")


def _load(path: Path) -> dict[str, Chosen]:
    return read_settings(path) if path.is_file() else {}


def read_settings(path: Path) -> dict[str, Chosen]:
    """The settings in a file; InputError that names it if it is not what ``assay tune`` writes."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        entries = content["arms"]
        return {
            name: Chosen(
                ArmSettings().changed({**content.get("shared", {}), **entry["settings"]}, where=str(path)),
                entry["source"],
                entry.get("note", ""),
            )
            for name, entry in entries.items()
        }
    except (ValueError, KeyError, TypeError, OSError) as error:
        if isinstance(error, InputError):
            raise
        raise expected("a settings file as `assay tune --save` writes it", given=f"{path}: {error!r}") from None
