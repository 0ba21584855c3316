"""The credit commands as typed: bad input is one sentence and exit code 2, and the printed command can be run again."""

from __future__ import annotations

import importlib
import os
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from assay.audits.credit import Baselines
from assay.cli import main
from assay.networks.feedforward.res_mlp import ResMLP
from assay.protocols import Cell, CellEvent, CellResult
from assay.rules.feedback.rule import FeedbackAlignment

MODELS = '''
import torch
from assay.models import ResMLP
from assay.rules import Backprop, FeedbackAlignment

number = 3
def build(seed=0): return ResMLP(64, width=8, depth=2, seed=seed)
def broken(): raise RuntimeError("boom")
def pair(): return torch.randn(8, 64, generator=torch.Generator().manual_seed(0)), torch.arange(8)
def triple(): return 1, 2, 3
def rule(model): return FeedbackAlignment(model, kind="dfa", level="block", seed=7)
def no_rule(model): return 3
'''


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user's folder: models, weights, feedback matrices, and files that are not what they seem."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "credit_models", raising=False)
    (tmp_path / "credit_models.py").write_text(MODELS)
    model = ResMLP(64, width=8, depth=2, seed=3)
    save_file(model.state_dict(), tmp_path / "my weights.safetensors")
    rule = FeedbackAlignment(model, kind="dfa", level="block", seed=5)
    rule.backward(model, torch.zeros(2, 64), torch.tensor([0, 1]))
    save_file(rule.state_dict(), tmp_path / "feedback.safetensors")
    save_file({"w": torch.zeros(3)}, tmp_path / "other.safetensors")
    save_file({**rule.state_dict(), "stream.0": torch.zeros(2, 2)}, tmp_path / "shape.safetensors")
    (tmp_path / "junk.safetensors").write_text("junk")
    return tmp_path


def typed(line: str, monkeypatch: pytest.MonkeyPatch) -> object:
    """The exit code of ``assay`` started with these words, as a shell would hand them over."""
    monkeypatch.setattr(sys, "argv", shlex.split(line))
    with pytest.raises(SystemExit) as left:
        main()
    return left.value.code


def refused(line: str, told: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """One sentence that holds ``told``, and exit code 2."""
    assert typed(line, monkeypatch) == 2
    said = capsys.readouterr().err
    assert said.startswith("assay: ") and told in said and said.count("\n") == 1


AUDIT = "assay audit credit credit_models:build --data digits"


@pytest.mark.parametrize(("line", "told"), [
    ("assay audit credit nope:thing --data digits", "expected an importable module; given 'nope'"),
    ("assay audit credit nope --data digits", "expected pkg.module:name; given 'nope'"),
    ("assay audit credit credit_models:buld --data digits", "did you mean 'build'?"),
    ("assay audit credit credit_models:number --data digits", "expected a torch.nn.Module"),
    ("assay audit credit credit_models:broken --data digits", "given RuntimeError: boom"),
    ("assay audit credit credit_models:no_rule --data digits", "callable with nothing; given TypeError"),
    ("assay audit credit credit_models:build --data nodata", "unknown task 'nodata'"),
    ("assay audit credit credit_models:build --data missing.safetensors", "expected a .safetensors file"),
    ("assay audit credit credit_models:build --data other.safetensors", "given other.safetensors with w"),
    ("assay audit credit credit_models:build --data credit_models:triple", "a pair (x, y)"),
    ("assay audit credit credit_models:build --data credit_models:number", "a pair (x, y)"),
    (f"{AUDIT} --blocks 'zzz.*'", "modules that ran: embed, blocks.0"),
    (f"{AUDIT} --weights missing.safetensors", "expected a .safetensors file; given missing.safetensors"),
    (f"{AUDIT} --weights junk.safetensors", "expected a whole .safetensors file"),
    (f"{AUDIT} --weights other.safetensors", "has the unknown w"),
    (f"{AUDIT} --rule nope", "unknown rule 'nope'"),
    (f"{AUDIT} --rule eqprop", "expected an equilibrium model"),
    (f"{AUDIT} --rule credit_models:no_rule", "given credit_models:no_rule: an int"),
    (f"{AUDIT} --rule credit_models:broken", "'credit_models:broken' to be callable with model, seed; given "),
    (f"{AUDIT} --feedback feedback.safetensors", "expected a rule with feedback matrices"),
    (f"{AUDIT} --samples -5", "expected --samples of at least 2; given -5"),
    (f"{AUDIT} --epochs -1", "expected --epochs of at least 0; given -1"),
    (f"{AUDIT} --epochs 1 --seeds 0", "expected --seeds of at least 1; given 0"),
    ("assay audit credit credit_models:build --data credit_models:pair --epochs 1", "expected a named task"),
])
def test_a_bad_audit_is_refused_in_one_sentence(
    line: str, told: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(line, told, monkeypatch, capsys)


@pytest.mark.parametrize(("file", "told"), [
    ("other.safetensors", "lacks stream.0, stream.1, stream.2; has the unknown w"),
    ("shape.safetensors", "differs in stream.0 (2, 2) instead of (8, 10)"),
])
def test_feedback_of_another_model_is_not_silently_replaced_by_random_matrices(
    file: str, told: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(f"{AUDIT} --rule dfa-block --feedback {file}", told, monkeypatch, capsys)


REPRODUCE = "assay reproduce fa-protocol"


@pytest.mark.parametrize(("line", "told"), [
    ("assay reproduce nope", "unknown experiment 'nope'"),
    (f"{REPRODUCE} nope", "unknown step 'nope'"),
    (f"{REPRODUCE} --arch nope", "unknown architecture 'nope'"),
    (f"{REPRODUCE} --methods nope", "unknown rule 'nope'"),
    (f"{REPRODUCE} --methods fa-zzz", "unknown rule 'fa-zzz'"),
    (f"{REPRODUCE} --methods bp-layer", "unknown rule 'bp-layer'"),
    (f"{REPRODUCE} --seeds --epochs 1", "expected at least one value after --seeds; given --epochs"),
    (f"{REPRODUCE} --seeds -1", "expected seeds of at least 0; given -1"),
    (f"{REPRODUCE} --epochs 0", "expected epochs of at least 1; given 0"),
    (f"{REPRODUCE} penalty --lambdas 0.1 -1", "numbers of at least 0; given -1.0"),
    (f"{REPRODUCE} penalty --lambdas nan", "numbers of at least 0; given nan"),
    (f"{REPRODUCE} --lambdas 0.1", "expected options that 'methods' uses; given --lambdas"),
    (f"{REPRODUCE} frozen --methods fa", "expected options that 'frozen' uses; given --methods"),
    (f"{REPRODUCE} all --ladder", "expected options that 'all' uses; given --ladder"),
    (f"{REPRODUCE} --data nowhere", "cifar10 is not under nowhere (data_batch_1.bin is missing); run: assay data"),
])
def test_a_bad_reproduction_is_refused_before_anything_is_trained(
    line: str, told: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    refused(line, told, monkeypatch, capsys)
    assert not (here / "assay-runs").exists()


def printed_command(output: str) -> str:
    return output.rpartition("again ")[2].strip()


@pytest.mark.parametrize("options", [
    "--rule dfa-block --samples 16 --weights 'my weights.safetensors' --feedback feedback.safetensors --seed 2",
    "--rule credit_models:rule --samples 16 --blocks 'blocks.[01]'",
    "--rule fa --samples 16 --epochs 3 --seeds 4 --seed 1",
])
def test_the_printed_command_gives_the_same_answer(
    options: str, here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = []

    def baselines(model: str, task: str, **settings: object) -> Baselines:
        asked.append((model, task, settings))
        right = {arm: {seed: [item % (2 + k) > 0 for item in range(90)] for seed in (1, 2, 3)}
                 for k, arm in enumerate(("frozen", "rule", "backprop"))}
        return Baselines(right)

    monkeypatch.setattr("assay.studies.baselines.train_baselines", baselines)
    code = typed(f"{AUDIT} {options}", monkeypatch)
    first = capsys.readouterr().out
    again = printed_command(first)
    assert typed(again, monkeypatch) == code
    assert capsys.readouterr().out == first
    assert asked in ([], asked[:1] * 2)


def test_the_printed_command_runs_in_a_shell(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A fresh process, a space in a file name and a glob that would match files in this folder."""
    (here / "blocks.0").touch()
    code = typed(f"{AUDIT} --samples 16 --weights 'my weights.safetensors' --blocks 'blocks.*'", monkeypatch)
    first = capsys.readouterr().out
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])
    again = subprocess.run(printed_command(first), shell=True, capture_output=True, text=True, cwd=here,
                           env={**os.environ, "PATH": path}, timeout=300, check=False)
    assert again.returncode == code, again.stderr
    assert again.stdout == first


class Interrupted:
    """An executor in this process that is stopped when it begins cell number ``dies``; ``ran`` holds what it began."""

    ran: tuple[str, ...] = ()
    dies: int | None = None

    def places(self) -> int:
        return 1

    def run(self, cells: Iterable[Cell], *, notify: Callable[[CellEvent], None]) -> Iterator[Sequence[CellResult]]:
        for number, cell in enumerate(cells):
            Interrupted.ran += (cell.label,)
            if number == Interrupted.dies:
                raise KeyboardInterrupt
            module, _, function = cell.target.partition(":")
            record = getattr(importlib.import_module(module), function)(cell.payload)
            notify(CellEvent("done", cell, 0.1))
            yield [CellResult(cell, record, None, 0.1)]


def test_a_stopped_reproduction_goes_on_where_it_was(
    tiny_cifar: Path, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = f"{REPRODUCE} --methods bp dfa --seeds 1 --epochs 1 --data {tiny_cifar} --out out"
    monkeypatch.setattr("assay.engine.choose_executor", lambda *args, **kwargs: Interrupted())

    def run(*, dies: int | None) -> tuple[tuple[str, ...], object]:
        Interrupted.ran, Interrupted.dies = (), dies
        code = typed(line, monkeypatch)
        return Interrupted.ran, code

    bp, dfa = "resmlp-bp-1ep-seed1", "resmlp-dfa-block-1ep-seed1"
    assert run(dies=1) == ((bp, dfa), 130)
    kept = {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in stored(here / "out")}
    assert len(kept) == 1 and not (here / "out" / "records").exists()
    assert run(dies=None)[0] == (dfa,)
    assert len(stored(here / "out")) == 2
    assert {path: (path.stat().st_mtime_ns, path.read_bytes()) for path in kept} == kept
    records = sorted(path.stem for path in (here / "out" / "records").iterdir())
    assert records == [bp, dfa]
    assert run(dies=None)[0] == ()


def stored(out: Path) -> list[Path]:
    """The files of finished cells; the store also keeps what cells cost."""
    return [path for path in (out / "cells").rglob("*.json") if '"correct"' in path.read_text()]
