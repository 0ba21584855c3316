"""The key of a cell follows everything its code can reach, and nothing else."""

from __future__ import annotations

import importlib.metadata
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from assay.engine import cell_key, fingerprint, identity
from assay.engine.identity import closure_of
from assay.registry import registry

Write = Callable[..., None]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    monkeypatch.syspath_prepend(str(tmp_path))

    def put(**files: str) -> None:
        for name, text in files.items():
            file = tmp_path / (name.replace("__in__", "/").replace("__dot__", "."))
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)

    return put


@pytest.mark.parametrize("line", [
    "import idhelper", "import idhelper as other", "from idhelper import value",
    "def later():\n    from idhelper import value\n    return value",
    "import importlib\nhelper = importlib.import_module('idhelper')",
    "CELL = 'idhelper:value'",
    "import importlib\ndef find(n): return importlib.import_module(f'idpack.{n}')\nKNOWN = {'a': 'inner'}",
    "from idpack import inner", "import idpack.inner", "from idpack import thing", "import idpack\nx = idpack.thing",
    "import idpack as p\ndef f(): return g(p)", "from idpack import *",
])
def test_an_edited_helper_is_another_identity_however_it_is_imported(write: Write, line: str) -> None:
    lazy = "import importlib\n_HOMES = {'thing': 'idpack.inner'}\n__all__ = ['inner']\n" \
           "def __getattr__(name): return getattr(importlib.import_module(_HOMES[name]), name)\n"
    write(idmain__dot__py=line, idhelper__dot__py="value = 1", idpack__in____init____dot__py=lazy,
          idpack__in__inner__dot__py="from .. import nothing\nfrom idhelper import value as thing",
          unrelated__dot__py="x = 1")
    before = fingerprint(["idmain"])
    write(unrelated__dot__py="x = 2")
    assert fingerprint(["idmain"]) == before
    write(idhelper__dot__py="value = 2")
    assert fingerprint(["idmain"]) != before
    write(idhelper__dot__py="value = 1")
    assert fingerprint(["idmain"]) == before, "content counts, not the time of an edit"


def test_relative_imports_and_the_packages_above_count(write: Write) -> None:
    write(idrel__in____init____dot__py="", idrel__in__deep__in____init____dot__py="",
          idrel__in__deep__in__a__dot__py="from ..b import x\nfrom . import c", idrel__in__b__dot__py="x = 1",
          idrel__in__deep__in__c__dot__py="")
    found = closure_of(["idrel.deep.a"]).files
    assert set(found) == {"idrel", "idrel.deep", "idrel.deep.a", "idrel.b", "idrel.deep.c"}


def test_what_only_a_type_checker_reads_does_not_count(write: Write) -> None:
    write(idtyped__dot__py="from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import idhelper2\n",
          idhelper2__dot__py="x = 1")
    assert set(closure_of(["idtyped"]).files) == {"idtyped"}


def test_an_edit_within_one_tick_of_the_clock_is_seen(write: Write, tmp_path: Path) -> None:
    write(idtick__dot__py="x = 1")
    file = tmp_path / "idtick.py"
    os.utime(file, ns=(10**18, 10**18))
    before = fingerprint(["idtick"])
    file.write_text("x = 2")
    os.utime(file, ns=(10**18, 10**18))
    assert fingerprint(["idtick"]) != before


def test_a_settled_answer_is_remembered_and_still_checked(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(idold__dot__py="x = 1")
    monkeypatch.setattr(identity, "SETTLED_SECONDS", 0.0)
    before = fingerprint(["idold"])
    reads = []
    monkeypatch.setattr(identity, "closure_of", lambda roots: reads.append(roots) or closure_of(roots))
    assert fingerprint(["idold"]) == before and not reads
    time.sleep(0.02)
    write(idold__dot__py="x = 3")
    assert fingerprint(["idold"]) != before and reads


def test_data_that_a_module_names_counts(write: Write, tmp_path: Path) -> None:
    write(iddata__dot__py="NAME = 'levels.json'", levels__dot__json="[1]", other__dot__json="[1]")
    before = fingerprint(["iddata"])
    write(other__dot__json="[2]")
    assert fingerprint(["iddata"]) == before
    write(levels__dot__json="[2]")
    assert fingerprint(["iddata"]) != before
    write(idpack2__in____init____dot__py="FOLDER = 'chosen'\ndef f(n): return f'{n}.toml'",
          idpack2__in__chosen__in__a__dot__json="1", idpack2__in__b__dot__toml="1")
    assert set(closure_of(["idpack2"]).files) == {"idpack2", "idpack2/chosen/a.json", "idpack2/b.toml"}


def test_versions_of_what_is_imported_and_of_the_ground_count(write: Write, monkeypatch: pytest.MonkeyPatch) -> None:
    write(idversions__dot__py="def f():\n    import sklearn.svm")
    seen: dict[str, str] = {}
    monkeypatch.setattr(identity, "version_of", lambda name: seen.get(name, "1.0"))
    before = fingerprint(["idversions"], extras=["declared"])
    assert fingerprint(["idversions"], extras=["declared"]) == before
    for name in ("torch", "numpy", "scipy", "sklearn", "declared"):
        seen[name] = "2.0"
        assert fingerprint(["idversions"], extras=["declared"]) != before, name
        seen.clear()
    monkeypatch.setattr("platform.python_version", lambda: "3.99.0")
    assert fingerprint(["idversions"], extras=["declared"]) != before


def test_a_rule_named_in_the_work_is_part_of_the_key(write: Write) -> None:
    write(idrule__dot__py="class Rule: ...")
    work = {"rule": "idrule:Rule", "seed": 1}
    before = cell_key("assay.errors:nothing", work)
    assert cell_key("assay.errors:nothing", work) == before != cell_key("assay.errors:nothing", {**work, "seed": 2})
    write(idrule__dot__py="class Rule: strength = 2")
    assert cell_key("assay.errors:nothing", work) != before


def test_every_module_a_track_loads_is_in_its_closure_and_all_are_found_quickly() -> None:
    modules = sorted({track.module for track in registry.ordered() if track.module.startswith("assay.")})
    start = time.process_time()
    files = {name for module in modules for name in closure_of([module, "assay.studies.measure"]).files}
    assert time.process_time() - start < 3.0  # about 0.5 s; room for a slow machine
    program = (
        "import importlib, json, sys\n"
        f"for name in {[*modules, 'assay.studies.measure']!r}: importlib.import_module(name)\n"
        "print(json.dumps([name for name in sys.modules if name.split('.')[0] == 'assay']))"
    )
    loaded = json.loads(subprocess.run([sys.executable, "-c", program], capture_output=True, check=True).stdout)
    assert len(loaded) > 30 and set(loaded) <= files
    assert not any(name.startswith(("assay.cli", "assay.reports")) for name in files)


def test_a_missing_root_is_not_the_same_as_an_empty_one(write: Write) -> None:
    write(idempty__dot__py="")
    assert len({fingerprint(["idempty"]), fingerprint(["idmissing"]), fingerprint([])}) == 3


@pytest.mark.parametrize("edited", [True, False])
def test_compiled_code_older_than_its_source_is_not_left_for_workers(
    write: Write, tmp_path: Path, edited: bool
) -> None:
    """Edited within the second in which it was compiled, to the same size: Python would run the old code."""
    import py_compile

    write(idhasty__dot__py="value = 1\n")
    compiled = Path(py_compile.compile(str(tmp_path / "idhasty.py"), doraise=True))
    moment = compiled.stat().st_mtime_ns
    os.utime(tmp_path / "idhasty.py", ns=(moment, moment + (1 if edited else -1)))
    closure_of(["idhasty"])
    assert compiled.exists() is not edited


def test_a_changed_helper_runs_the_cells_again_and_a_reloaded_track_too(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib

    from assay.studies.verification import verify

    track = (
        "from assay import Finding, Trial, Verdict, track\nimport stale_helper\n"
        "@track(9195, 'stale', claim='helpers count', kind='deterministic')\nclass Stale:\n"
        "    controls = ('control: none',)\n"
        "    def trials(self, budget, seeds): return [Trial('a', seeds[0])]\n"
        "    def measure(self, trial): return {'x': stale_helper.value * SCALE}\n"
        "    def decide(self, outcomes):\n"
        "        x = outcomes.values('a', 'x')[0]\n"
        "        return Finding(subject='s', claim='c', verdict=Verdict.FAIL, reason='r', key_finding=f'x is {x:g}')\n"
    )
    write(stale_track__dot__py=track + "SCALE = 1\n", stale_helper__dot__py="value = 1\n")
    monkeypatch.setattr(registry, "tracks", dict(registry.tracks))
    registry.load_module("stale_track")
    assert not registry.broken.get("stale_track"), registry.broken

    def answer() -> str:
        return verify(9195, seeds=1, workers=1, store=tmp_path / "cells").findings[0].key_finding

    assert answer() == "x is 1"
    write(stale_helper__dot__py="value = 2\n")
    assert answer() == "x is 2"
    write(stale_track__dot__py=track + "SCALE = 10\n")
    importlib.reload(sys.modules["stale_track"])
    assert answer() == "x is 20"
    write(stale_helper__dot__py="value = 1\n", stale_track__dot__py=track + "SCALE = 1\n")
    assert answer() == "x is 1"
    assert len(list((tmp_path / "cells").glob("??/*.json"))) == 3, "the old code's answer is found again, not redone"


def test_what_a_plugin_imports_of_its_own_travels_with_it(write: Write) -> None:
    write(idplug__dot__py="def f():\n    import idplug_helper\n    import numpy",
          idplug_helper__dot__py="from idplugpack.deep import x", idplugpack__in__deep__dot__py="x = 1",
          idplugpack__in____init____dot__py="from assay.errors import AssayError")
    sent = set(identity.own_roots(["idplug"]))
    assert {"idplug", "idplug_helper", "idplugpack"} <= sent and not sent & {"assay", "numpy"}


def test_packages_and_their_distributions_are_those_that_python_finds() -> None:
    theirs, ours = importlib.metadata.packages_distributions(), identity._distributions()
    assert len(ours) > 50 and {"numpy", "sklearn", "_pytest"} <= set(ours)
    assert {top: sorted(names) for top, names in ours.items()} == {top: sorted(theirs[top]) for top in ours}
    # Later versions of Python also name folders without Python code.
    assert sys.version_info >= (3, 12) or set(theirs) == set(ours)
