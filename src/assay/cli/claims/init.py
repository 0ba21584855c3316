"""``assay init``: a first claim in a repository of your own, with its settings and its CI file, and its first run."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

NUMBER = 100
MODULE = "assay_claims"
CLAIM = f'''"""Claims of this repository, numbered; `assay verify {NUMBER}` runs this one, `assay tracks` lists all."""

import torch
from torch import nn

import assay


class MyRule:
    """Put your learning rule here: backward(model, x, y) adds to .grad and returns the loss."""

    def backward(self, model, x, y):
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss.detach()


def net(seed):
    """Put your model here; the seed draws its weights."""
    torch.random.manual_seed(seed)
    return nn.Sequential(nn.Linear(64, 32), nn.Tanh(), nn.Linear(32, 10))


def sample(seed):
    draw = torch.Generator().manual_seed(seed)
    return torch.randn(32, 64, generator=draw), torch.randint(0, 10, (32,), generator=draw)


# Seconds: does the rule give the gradient of the loss, at every seed? The rule turned uphill is its control.
assay.claims.holds({NUMBER}, "true-gradient", audit=assay.audit_gradient, model=net, sample=sample, rule=MyRule)

# Minutes: is it within 1 percentage point of backprop on digits, over ten seeds?
# assay.claims.parity({NUMBER + 1}, "parity", rule=MyRule, task="digits", model=net, margin=1)
# Then: assay verify {NUMBER + 1} --seeds 10
'''
SETTINGS = f'plugins = ["{MODULE}"]\nbudget = "quick"\n'
WORKFLOW = """# Verifies the claims of this repository on every push and publishes the report.
name: assay

on:
  push:
  pull_request:

permissions:
  contents: read

jobs:
  verify:
    runs-on: ubuntu-latest
    timeout-minutes: 60
    steps:
      - uses: actions/checkout@v4
      - uses: actions/setup-python@v5
        with:
          python-version: "3.11"
          cache: pip
      - uses: assay-ml/assay@main
        with:
          tracks: "%d"
"""


@dataclass(frozen=True)
class Written:
    """One file of the start: where, and whether it was written, added to, or there already."""

    path: Path
    what: str


def start(folder: Path, *, pyproject: bool = False) -> tuple[Written, ...]:
    """Settings, a claim and a CI file in ``folder``; a file that is there is never changed.

    With ``pyproject`` the settings become a section ``[tool.assay]`` at the end of pyproject.toml, if it has none.
    """
    return (
        _settings(folder, pyproject=pyproject),
        _file(folder / f"{MODULE}.py", CLAIM),
        _file(folder / ".github" / "workflows" / "assay.yml", WORKFLOW % NUMBER),
    )


def init_command(
    folder: Annotated[Path, typer.Argument(help="The repository.")] = Path(),
    pyproject: Annotated[
        bool, typer.Option("--pyproject", help="Settings into [tool.assay] of pyproject.toml, not assay.toml.")
    ] = False,
    run: Annotated[bool, typer.Option("--run/--no-run", help="Verify the claim at once.")] = True,
) -> None:
    """Write a claim, its settings and a CI file into your repository, and verify the claim. Nothing is overwritten."""
    import os

    from assay.cli.terminal.common import console
    from assay.errors import expected

    if not folder.is_dir():
        raise expected("a folder that exists", given=str(folder), do="make it first, or run assay init inside it")
    files = start(folder, pyproject=pyproject)
    for file in files:
        console().print(f"{file.what:8s} {file.path.relative_to(folder)}", markup=False)
    loose = _unnamed(folder)
    if loose:
        console().print(f"add to your settings: plugins = ['{MODULE}']", markup=False)
        return
    if not run:
        console().print(f"next     assay verify {NUMBER}", markup=False)
        return
    from assay.cli.claims.verify import verify_command

    os.chdir(folder)
    verify_command(tracks=[str(NUMBER)])


def _settings(folder: Path, *, pyproject: bool) -> Written:
    own, shared = folder / "assay.toml", folder / "pyproject.toml"
    if own.exists() or _section(shared) is not None:
        return Written(own if own.exists() else shared, "kept")
    if not pyproject:
        return _file(own, SETTINGS)
    with shared.open("a", encoding="utf-8") as file:
        file.write(("\n" if shared.stat().st_size else "") + f"[tool.assay]\n{SETTINGS}")
    return Written(shared, "added to")


def _section(file: Path) -> dict[str, object] | None:
    """``[tool.assay]`` of a pyproject.toml; None if there is none."""
    if not file.is_file():
        return None
    try:
        found = tomllib.loads(file.read_text(encoding="utf-8")).get("tool", {}).get("assay")
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        from assay.errors import ConfigError

        raise ConfigError(f"{file} is not valid TOML: {error}") from None
    return found if isinstance(found, dict) else None


def _unnamed(folder: Path) -> bool:
    """Whether settings that were there already do not name the module of the claim."""
    from assay.config import load

    return MODULE not in load(folder, environment={}).plugins


def _file(path: Path, content: str) -> Written:
    if path.exists():
        return Written(path, "kept")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("x", encoding="utf-8") as file:
        file.write(content)
    return Written(path, "wrote")
