"""Tasks: data with train, validation and test parts, floors to beat and a fingerprint.

``digits`` needs nothing; ``mnist``, ``fashion_mnist`` and ``cifar10`` read canonical files under ``ASSAY_DATA``;
``cartpole`` and ``acrobot`` clone experts of real gymnasium environments; ``reversal``, ``copy`` and ``mirror_sum`` are
sequences; ``stripes`` and ``blobs`` are generated. ``load("digits", seed=0)`` makes any of them by name. Your own come
from ``from_arrays``, ``from_csv``, ``from_parquet``, ``from_loaders``, ``from_dataset`` and ``from_huggingface``.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

_HOMES = {
    "digits": "assay.tasks.images",
    "mnist": "assay.tasks.images",
    "fashion_mnist": "assay.tasks.images",
    "cifar10": "assay.tasks.images",
    "stripes": "assay.tasks.synthetic",
    "blobs": "assay.tasks.synthetic",
    "reversal": "assay.tasks.sequences",
    "copy": "assay.tasks.sequences",
    "mirror_sum": "assay.tasks.sequences",
    "cartpole": "assay.tasks.control",
    "acrobot": "assay.tasks.control",
    "ControlTask": "assay.tasks.control",
    "ArrayTask": "assay.tasks.base",
    "TuningView": "assay.tasks.base",
    "Floors": "assay.tasks.floors",
    "RegressionFloors": "assay.tasks.floors",
    "BroughtTask": "assay.tasks.brought",
    "from_arrays": "assay.tasks.brought",
    "from_parts": "assay.tasks.brought",
    "from_columns": "assay.tasks.tables",
    "from_csv": "assay.tasks.tables",
    "from_dataset": "assay.tasks.tables",
    "from_huggingface": "assay.tasks.tables",
    "from_loaders": "assay.tasks.tables",
    "from_parquet": "assay.tasks.tables",
    "load": "assay.tasks.catalogue",
    "names": "assay.tasks.catalogue",
    "describe": "assay.tasks.catalogue",
}

__all__ = [*_HOMES]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        from assay.errors import unknown

        raise AttributeError(f"module 'assay.tasks' has no attribute '{name}': {unknown('task', name, __all__)}")
    value = getattr(importlib.import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)


if TYPE_CHECKING:
    from assay.tasks.base import ArrayTask as ArrayTask
    from assay.tasks.base import TuningView as TuningView
    from assay.tasks.brought import BroughtTask as BroughtTask
    from assay.tasks.brought import from_arrays as from_arrays
    from assay.tasks.brought import from_parts as from_parts
    from assay.tasks.catalogue import describe as describe
    from assay.tasks.catalogue import load as load
    from assay.tasks.catalogue import names as names
    from assay.tasks.control import ControlTask as ControlTask
    from assay.tasks.control import acrobot as acrobot
    from assay.tasks.control import cartpole as cartpole
    from assay.tasks.floors import Floors as Floors
    from assay.tasks.floors import RegressionFloors as RegressionFloors
    from assay.tasks.images import cifar10 as cifar10
    from assay.tasks.images import digits as digits
    from assay.tasks.images import fashion_mnist as fashion_mnist
    from assay.tasks.images import mnist as mnist
    from assay.tasks.sequences import copy as copy
    from assay.tasks.sequences import mirror_sum as mirror_sum
    from assay.tasks.sequences import reversal as reversal
    from assay.tasks.synthetic import blobs as blobs
    from assay.tasks.synthetic import stripes as stripes
    from assay.tasks.tables import from_columns as from_columns
    from assay.tasks.tables import from_csv as from_csv
    from assay.tasks.tables import from_dataset as from_dataset
    from assay.tasks.tables import from_huggingface as from_huggingface
    from assay.tasks.tables import from_loaders as from_loaders
    from assay.tasks.tables import from_parquet as from_parquet
