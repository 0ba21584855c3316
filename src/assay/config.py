"""Settings from ``assay.toml`` or ``[tool.assay]`` in pyproject.toml, the environment and the command line.

The command line wins over the environment, the environment over the file. An unknown key is an error with a suggestion:
a misspelt setting that is silently ignored is a wrong experiment.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from assay.errors import ConfigError, unknown
from assay.protocols import BUDGETS, Budget

MOST_WORKERS = 10_000


@dataclass(frozen=True)
class Settings:
    """What a command needs to know besides its arguments; None means the command's own default."""

    budget: Budget = "quick"
    """smoke, quick, standard or full: how many seeds, and how long each trains."""
    seeds: int | None = None
    """Number of seeds; the budget's own number if it is not given."""
    seed: int = 42
    """The first seed; the others are drawn from it."""
    workers: int | None = None
    """Cells that run at once; as many as there are cores if it is not given."""
    out: str | None = None
    """Folder of the report; ``assay-runs/ID`` if it is not given."""
    data: str | None = None
    """Folder of the datasets; ``~/.cache/assay/data`` if it is not given."""
    engine: str = "local"
    """local or ray: what runs the cells."""
    address: str | None = None
    """Address of the Ray cluster; one is started here if it is not given."""
    store: str | None = None
    """Folder or address of finished cells; ``cells`` in the folder of the report if it is not given."""
    plugins: tuple[str, ...] = ()
    """Modules with claims of your own, imported before a command looks a claim up."""
    trust: tuple[str, ...] = ()
    """Names of others whose stored cells are used: their keys lie in ``~/.config/assay/keys``."""


def load(folder: Path | None = None, *, environment: Mapping[str, str] | None = None, **flags: Any) -> Settings:
    """Settings for a command run in ``folder``; ``flags`` are command-line values, None where not given."""
    settings = _apply(Settings(), *_from_file(folder or Path.cwd()))
    variables = os.environ if environment is None else environment
    settings = _apply(settings, _from_environment(variables), "the environment")
    return _apply(settings, {name: value for name, value in flags.items() if value is not None}, "the command line")


def _from_file(folder: Path) -> tuple[dict[str, Any], str]:
    for name in ("assay.toml", "pyproject.toml"):
        file = folder / name
        if not file.is_file():
            continue
        try:
            content = tomllib.loads(file.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise ConfigError(f"{file} is not valid TOML: {error}") from None
        section = content if name == "assay.toml" else content.get("tool", {}).get("assay")
        if section is not None:
            return dict(section), str(file)
    return {}, ""


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for variable, text in environment.items():
        if not variable.startswith("ASSAY_"):
            continue
        name = variable.removeprefix("ASSAY_").lower()
        if name == "key":  # a secret, read by the store alone
            continue
        if name in ("seeds", "seed", "workers"):
            try:
                values[name] = int(text)
            except ValueError:
                raise ConfigError(f"expected a whole number in {variable}; given '{text}'") from None
        else:
            values[name] = tuple(text.split()) if name in ("plugins", "trust") else text
    return values


def _apply(settings: Settings, values: Mapping[str, Any], where: str) -> Settings:
    known = [field.name for field in fields(Settings)]
    for name, value in values.items():
        if name not in known:
            raise ConfigError(f"{unknown('setting', name, known)} (in {where})")
        _check(name, value, where)
    lists = {name: tuple(values[name]) for name in ("plugins", "trust") if name in values}
    return replace(settings, **{**values, **lists})


def _check(name: str, value: Any, where: str) -> None:
    if name == "budget" and value not in BUDGETS:
        raise ConfigError(f"{unknown('budget', value, BUDGETS)} (in {where})")
    if name in ("seeds", "workers") and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        raise ConfigError(f"expected {name} >= 1; given {value!r} (in {where})")
    if name == "workers" and value is not None and value > MOST_WORKERS:
        raise ConfigError(f"expected workers <= {MOST_WORKERS}; given {value!r} (in {where})")
    if name == "seed" and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
        raise ConfigError(f"expected seed >= 0; given {value!r} (in {where})")
    if name in ("out", "data", "store", "engine", "address") and not isinstance(value, str | Path):
        raise ConfigError(f"expected text for {name}; given {value!r} (in {where})")
    listed = isinstance(value, list | tuple) and all(isinstance(each, str) for each in value)
    if name in ("plugins", "trust") and not listed:
        what = "module names" if name == "plugins" else "names of keys"
        raise ConfigError(f"expected a list of {what} for {name}; given {value!r} (in {where})")
