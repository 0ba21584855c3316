"""The page about the architecture tells the truth: its rooms exist, its layers are those that are checked."""

from __future__ import annotations

import ast
import re
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOUSE = ROOT / "src" / "assay"
PAGE = (ROOT / "docs" / "explanations" / "architecture.md").read_text(encoding="utf-8")
NAMED = sorted(set(re.findall(r"`((?:[a-z_]+/)+[a-z_]*)(?:\.py)?`", PAGE)))
LAYERS = re.search(r"```\ncli(.+?)```", PAGE, flags=re.S)


def checked_layers() -> list[str]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]
    layers: list[str] = next(one["layers"] for one in settings["contracts"] if one["type"] == "layers")
    return layers


@pytest.mark.parametrize("place", NAMED)
def test_a_room_or_module_that_the_page_names_exists(place: str) -> None:
    homes = (ROOT, HOUSE, HOUSE / "audits" / "symmetry")  # the walk through an audit names the rooms of that audit
    assert any((home / place).is_dir() or (home / f"{place}.py").is_file() for home in homes)


def test_the_rooms_that_the_layers_list_exist() -> None:
    assert LAYERS is not None
    for line in f"cli{LAYERS[1]}".splitlines():
        rooms = [HOUSE / name for name in re.findall(r"[a-z_]+", re.split(r"\s{2,}", line)[0])]
        assert all(room.is_dir() or room.with_suffix(".py").is_file() for room in rooms), line
        inner = re.findall(r"\b([a-z_]+)/", line)
        assert all(any((room / name).is_dir() for room in rooms) for name in inner), line


def test_the_layers_of_the_page_are_those_that_the_linter_checks() -> None:
    assert LAYERS is not None
    lines = [re.split(r"\s{2,}", line)[0] for line in f"cli{LAYERS[1]}".splitlines()]
    shown = [set(re.findall(r"[a-z_]+", part)) for line in lines if line for part in line.split(">")]
    assert shown == [set(re.findall(r"assay\.([a-z_]+)", layer)) for layer in checked_layers()]


def test_every_room_of_the_package_has_its_layer() -> None:
    checked = " ".join(checked_layers())
    rooms = {path.stem for path in HOUSE.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
    assert rooms - set(re.findall(r"assay\.([a-z_]+)", checked)) == {"__init__", "__main__"}


def test_cells_are_run_by_studies_and_by_the_two_that_the_page_names() -> None:
    callers = set()
    for path in HOUSE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == "execute":
                callers.add(str(path.relative_to(HOUSE)))
    assert callers == {"studies/study.py", "studies/audit_run/rerun.py", "studies/reproduce/search.py"}
    assert all(f"`{caller}`" in PAGE for caller in callers)


HOP = r"`((?:[a-z_]+/)+[a-z_]*)`"
WALKS = re.findall(r"^\d\. (\*\*.+?)(?=^\d\. \*\*|^## )", PAGE, flags=re.M | re.S)


def modules_of(place: str) -> list[Path]:
    """The files of a room or a module that a walk names; inside an audit its rooms are named alone."""
    for home in (HOUSE, HOUSE / "audits" / "symmetry"):
        if (home / place).is_dir():
            return sorted((home / place).rglob("*.py"))
        if (home / place).with_suffix(".py").is_file():
            return [(home / place).with_suffix(".py")]
    return []


def imported_by(path: Path) -> set[str]:
    """What a file imports anywhere, and what it names as text for others to import."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node.value.startswith("assay."):
            found.add(node.value.partition(":")[0])
    return found


def test_every_hop_of_a_walk_is_made_by_one_before_it() -> None:
    assert len(WALKS) == 4
    for walk in WALKS:
        hops = [hop for name in re.findall(HOP, walk) if (hop := modules_of(name.rstrip("/")))]
        assert len(hops) >= 3, walk
        for before, hop in zip((hops[:n] for n in range(1, len(hops))), hops[1:], strict=True):
            names = {".".join(path.relative_to(HOUSE.parent).with_suffix("").parts) for path in hop}
            names |= {name.removesuffix(".__init__") for name in names}
            if len(hop) == 1:  # names of a package are loaded on first use: who imports them asks the package
                names |= {name.rpartition(".")[0] for name in names}
            reached = {name for room in before for path in room for name in imported_by(path)}
            assert reached & names, f"nothing before {sorted(names)[0]} leads there in: {walk[:60]}"


PUBLIC = re.compile(r"assay(\.(claims|models|tasks|symmetry|dependence|stats|errors|results|rules|learning|engine"
                    r"|watching|audits\.credit|protocols|seeding|watching\.(lightning|huggingface)))?")  # fmt: skip
"""As the page says; callbacks for a library stand in a module of their own, which is imported where that library is."""


def test_guides_import_public_names_only() -> None:
    pages = [ROOT / "README.md", *(p for p in (ROOT / "docs").rglob("*.md"))]
    found = {(page.name, name) for page in pages
             for name in re.findall(r"^\s*from (assay[.\w]*) import", page.read_text(encoding="utf-8"), flags=re.M)}
    assert len(found) > 10
    assert {(page, name) for page, name in found if not PUBLIC.fullmatch(name)} == set()
