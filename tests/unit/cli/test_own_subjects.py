"""A stranger's model on the command line: a file, a shape, a symmetry spelt out, the subjects that ship."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from assay.audits.symmetry import demo
from assay.audits.symmetry.spelling import spelt
from assay.cli.audits import symmetry as audit_symmetry
from assay.cli.typed import samples
from assay.cli.typed.paths import as_module_path
from assay.errors import InputError
from assay.results import Verdict

NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Flatten(), nn.Linear(36, 3))
    def forward(self, x):
        return self.body(x)
"""
CLAIM = "C(4): image(-2, -1) -> invariant"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model in a file; whatever is imported from it is forgotten afterwards."""
    (tmp_path / "inner").mkdir()
    (tmp_path / "own_net_of_mine.py").write_text(NET)
    (tmp_path / "inner" / "own_net_inside.py").write_text(NET + "\nsample = torch.randn(8, 1, 6, 6)\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    for name in ("own_net_of_mine", "own_net_inside"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    return tmp_path


def test_a_file_is_as_good_as_a_module(folder: Path) -> None:
    assert as_module_path("own_net_of_mine.py:Net") == "own_net_of_mine:Net"
    assert as_module_path("inner/own_net_inside.py:Net") == "own_net_inside:Net"
    assert as_module_path("pkg.module:name") == "pkg.module:name" and as_module_path("eqprop") == "eqprop"


def test_a_file_inside_a_package_is_imported_as_part_of_it(folder: Path) -> None:
    (folder / "package_of_mine").mkdir()
    (folder / "package_of_mine" / "__init__.py").touch()
    (folder / "package_of_mine" / "nets.py").write_text(NET)
    assert as_module_path("package_of_mine/nets.py:Net") == "package_of_mine.nets:Net"


@pytest.mark.parametrize(
    ("name", "says"), [("none.py", "exists"), ("json.py", "rename json.py"), ("two-words.py", "can be imported")]
)
def test_a_file_that_cannot_be_imported_says_why(folder: Path, name: str, says: str) -> None:
    if name != "none.py":
        (folder / name).write_text(NET)
    with pytest.raises(InputError, match=says):
        as_module_path(f"{name}:Net")


def test_a_model_of_a_file_is_audited_at_a_shape_with_a_symmetry_spelt_out(folder: Path, python: Any) -> None:
    found = audit_symmetry.run("own_net_of_mine.py:Net", CLAIM, shape="1,1,6,6", inputs=4, transforms=3)
    assert found.verdict is Verdict.FAIL and found.issues[0].location
    script = found.issues[0].script
    assert "of_shape" in script and "spelt(" in script
    (folder / "again.py").write_text(script)
    done = python.run(["again.py"])
    assert "Error" not in done.stderr.replace("AssertionError", ""), done.stderr


def test_a_sample_beside_the_model_is_found_and_its_absence_tells_three_ways(folder: Path) -> None:
    assert samples.sample_of(None, None, "inner/own_net_inside.py:Net").shape == (8, 1, 6, 6)
    with pytest.raises(InputError, match=r"--shape 1,3,32,32") as raised:
        samples.sample_of(None, None, "own_net_of_mine.py:Net")
    assert "--sample" in str(raised.value) and "beside the model" in str(raised.value)
    with pytest.raises(InputError, match="Spell it out"):
        audit_symmetry.run("own_net_of_mine.py:Net", shape="1,1,6,6")


def test_a_shape_the_model_refuses_is_one_line_with_the_models_words(folder: Path) -> None:
    with pytest.raises(InputError, match=r"shape \(\d+, 1, 5, 5\).*Net said RuntimeError"):
        audit_symmetry.run("own_net_of_mine.py:Net", CLAIM, shape="1,1,5,5")


@pytest.mark.parametrize("text", ["C(4)", "X(4): image(-2, -1) -> invariant", "C(4): open('x') -> invariant",
                                  "C(4): image(*[1]) -> invariant", "C(4): image(__import__('os')) -> invariant"])
def test_nothing_but_groups_actions_and_constants_can_be_spelt(text: str) -> None:
    with pytest.raises(InputError):
        spelt(text)


def test_every_public_group_and_action_can_be_spelt() -> None:
    from assay import symmetry
    from assay.audits.symmetry import spelling

    homes = {home.split(".")[2]: set() for home in symmetry._HOMES}
    for home, names in symmetry._HOMES.items():
        homes[home.split(".")[2]] |= set(names)
    assert homes["groups"] - {"Group", "matrix_group", "Elements"} == set(spelling.GROUPS)
    objects = {"Representation", "custom", "fields"}  # the last two take what only Python can hold
    assert homes["representations"] - objects == set(spelling.ACTIONS) - {"scalar"}
    assert spelt("SO(3): vector -> scalar").is_invariance, "another spelling of invariant, here and in Python"


def test_the_demo_is_told_from_its_healthy_twin() -> None:
    from assay.audits.symmetry.audit import audit_symmetry as audit

    leaky = audit(demo.leaky_cnn(), demo.sample, demo.symmetry, inputs=8, transforms=3)
    assert leaky.verdict is Verdict.FAIL and leaky.issues[0].location == "second"
    sound = audit(demo.sound_cnn(), demo.sample, demo.symmetry, inputs=8, transforms=3)
    assert sound.verdict is Verdict.PASS
    assert as_module_path("demo:leaky-cnn").endswith("demo:leaky_cnn")
    with pytest.raises(InputError, match="demo:sound-cnn"):
        as_module_path("demo:leaky-bucket")


def test_the_audit_shows_controls_and_a_picture_to_judge_by_eye() -> None:
    from assay.audits.symmetry.audit import audit_symmetry as audit

    found = audit(demo.leaky_cnn(), demo.sample, demo.symmetry, inputs=8, transforms=3)
    assert [control.kind for control in found.controls] == ["known-good", "known-bad"]
    assert all(control.separated for control in found.controls)
    picture = next(figure for figure in found.figures if figure.key == "by-eye")
    x, gx, there, wanted, difference = (torch.tensor(panel.grid) for panel in picture.panels)
    assert any(torch.allclose(torch.rot90(x, k), gx) for k in range(1, 4))
    assert torch.allclose(there - wanted, difference) and float(difference.abs().max()) > 0.01
    layers = next(table for table in found.tables if table.title.startswith("Layers under"))
    shares = [row[layers.columns.index("D")] for row in layers.rows]
    assert all(share is None or share == "grows" or 0 <= float(share) <= 1 for share in shares)


def test_a_control_that_is_not_told_apart_leaves_the_audit_undecided() -> None:
    from assay.audits.symmetry import decide
    from assay.results import Control

    confused = Control(name="c", kind="known-bad", expected="BROKEN", observed="EXACT", separated=False)
    for verdict in (Verdict.PASS, Verdict.FAIL):
        assert decide.calibrated(verdict, "because", (confused,))[0] is Verdict.INCONCLUSIVE
    assert decide.calibrated(Verdict.PASS, "because", ()) == (Verdict.PASS, "because")
