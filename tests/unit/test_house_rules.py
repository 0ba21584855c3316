"""The rules of the house that a machine can check."""

from __future__ import annotations

import abc
import ast
import doctest
import importlib
import inspect
import pkgutil
import re
from functools import cache
from pathlib import Path
from typing import Protocol

import pytest

import assay

ROOT = Path(__file__).parents[2]
SOURCES = sorted((ROOT / "src").rglob("*.py"))
MODULES = sorted(
    info.name for info in pkgutil.walk_packages(assay.__path__, "assay.") if not info.name.endswith("__main__")
)


@cache
def tree_of(path: Path) -> ast.Module:
    """Parsed once for all rules: hundreds of files, and six rules that read them."""
    return ast.parse(path.read_text(encoding="utf-8"))


def source_of(module: str) -> str:
    place = ROOT / "src" / module.replace(".", "/")
    return (place / "__init__.py" if place.is_dir() else place.with_suffix(".py")).read_text(encoding="utf-8")


def test_a_file_holds_one_idea_and_says_which() -> None:
    for path in SOURCES:  # not a test each: hundreds of them cost more than what they look at
        text = path.read_text(encoding="utf-8")
        tree = tree_of(path)
        assert ast.get_docstring(tree), f"{path}: the first line says what the file is"
        assert text.count("\n") <= 400, path
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno
                assert length <= 80, f"{path}: {node.name} is too long to read in one go"


def test_nothing_is_left_for_later_and_nothing_is_unpickled() -> None:
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"\b(TODO|FIXME|XXX)\b", text), path
        assert not re.search(r"^\s*(import pickle|from pickle)", text, flags=re.M), path
        assert not re.search(r"torch\.load\((?![^)]*weights_only=True)", text), path
        assert "torch.manual_seed(" not in text, f"{path}: seeds are arguments; the global generator is never touched"


MEANT_TWICE = {"AssayCallback"}
"""One name on purpose: a callback for Lightning and one for transformers, each imported from its module."""


def test_a_class_name_means_one_thing() -> None:
    places: dict[str, list[str]] = {}
    for path in SOURCES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                places.setdefault(node.name, []).append(str(path.relative_to(ROOT / "src")))
    assert {name: found for name, found in places.items() if len(found) > 1 and name not in MEANT_TWICE} == {}


def test_a_constant_is_written_once() -> None:
    """A second value under one name changes what the lines above meant by it, and no type tells."""
    twice = {}
    for path in SOURCES:
        names = [name.id for node in tree_of(path).body if isinstance(node, ast.Assign)
                 for target in node.targets for name in ast.walk(target)
                 if isinstance(name, ast.Name) and name.id.isupper()]  # fmt: skip
        if len(set(names)) < len(names):
            twice[str(path.relative_to(ROOT / "src"))] = names
    assert twice == {}


BY_PLACE = {
    "assay/rules/feedback/recurrent.py": "cells and the loop around them take their arguments as torch hands them over",
    "assay/audits/credit/published.py": "FAProtocol is called as the users of the published protocol call it",
}


def test_at_most_four_arguments_are_given_by_place() -> None:
    many = []
    for path in SOURCES:
        if path.relative_to(ROOT / "src").as_posix() in BY_PLACE:
            continue
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.FunctionDef):
                names = [one.arg for one in (*node.args.posonlyargs, *node.args.args) if one.arg not in ("self", "cls")]
                many += [f"{path.name}: {node.name}({', '.join(names)})"] if len(names) > 4 else []
    assert many == []


EXTENDED = {
    "AssayError": "errors are told apart by class",
    "NotPassed": "errors are told apart by class",
    "Frozen": "the base of all data",
    "Record": "the base of the records of claims",
    "PlainFlags": "typer wants its own classes extended",
    "Command": "typer wants its own classes extended",
    "CommandGroup": "typer wants its own classes extended",
    "ArrayTask": "a task is one whatever else it can do: be drawn again from rows, be played",
    "EnergyMLP": "a claim reads its states with noise",
    "Convolution": "the demonstration breaks it",
    "Counting": "a display counts what it prints",
    "Key": "an audit takes every signature, under a key that says so",
    "Remembering": "under other conditions a model is called without its dropout besides",
    "Probe": "what is asked for a symmetry has a group beside all that a probe has",
}
"""Classes that are used as they are and extended all the same, and why."""


def test_a_class_is_abstract_or_final() -> None:
    homes, bases = {}, set()
    for path in SOURCES:
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.ClassDef):
                homes[node.name] = path
                names = (base.value if isinstance(base, ast.Subscript) else base for base in node.bases)
                bases |= {name.id for name in names if isinstance(name, ast.Name)}
    for name in sorted(bases & homes.keys() - EXTENDED.keys()):
        module = ".".join(homes[name].relative_to(ROOT / "src").with_suffix("").parts)
        found = getattr(importlib.import_module(module.removesuffix(".__init__")), name)
        assert abc.ABC in found.__bases__ or Protocol in found.__bases__ or inspect.isabstract(found), (
            f"{module}.{name} is used as it is and extended: make it abstract, or say why in EXTENDED")


def test_what_is_frozen_holds_nothing_that_changes() -> None:
    for path in SOURCES:
        for node in ast.walk(tree_of(path)):
            told = map(ast.unparse, node.decorator_list) if isinstance(node, ast.ClassDef) else ()
            if not isinstance(node, ast.ClassDef) or not any("frozen=True" in one for one in told):
                continue
            kinds = {ast.unparse(part.annotation).partition("[")[0] for part in node.body
                     if isinstance(part, ast.AnnAssign)}  # fmt: skip
            assert not kinds & {"list", "dict", "set"}, f"{path}: {node.name} is frozen and holds {kinds}"


def test_a_room_holds_no_more_modules_than_a_reader_can_survey() -> None:
    rooms = {path.parent for path in SOURCES}
    assert {str(room): n for room in rooms if (n := len(list(room.glob("*.py")))) > 22} == {}


def test_a_finding_is_born_with_its_claim() -> None:
    for path in SOURCES:
        for node in ast.walk(tree_of(path)):
            if not isinstance(node, ast.Call) or getattr(node.func, "id", getattr(node.func, "attr", "")) != "Finding":
                continue
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            claim, where = given.get("claim"), f"{path}, line {node.lineno}"
            assert None in given or claim is not None, f"{where}: a finding without a claim"
            assert not (isinstance(claim, ast.Constant) and not claim.value), f"{where}: an empty claim"


def test_every_module_can_be_imported() -> None:
    assert all(importlib.import_module(name).__doc__ for name in MODULES)


@pytest.mark.parametrize("name", [name for name in MODULES if ">>>" in source_of(name)])
def test_the_examples_in_docstrings_run(name: str) -> None:
    ran = doctest.testmod(importlib.import_module(name))
    assert ran.failed == 0


def test_every_public_name_exists() -> None:
    for name in assay.__all__:
        assert getattr(assay, name) is not None
    with pytest.raises(AttributeError, match="did you mean 'verify'"):
        assay.verfy  # type: ignore[attr-defined]


def test_no_public_name_is_hidden_by_a_module_of_the_same_name() -> None:
    """``import assay.x`` binds the module to ``assay.x``: a public function of that name would turn into a module."""
    modules = {info.name for info in pkgutil.iter_modules(assay.__path__)}
    faces = {"claims", "models", "tasks", "symmetry", "dependence", "stats", "errors", "results"}
    assert not modules & (set(assay.__all__) - faces)
