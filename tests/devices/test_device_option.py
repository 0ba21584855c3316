"""``--device`` on the command line: carried to the subject and into the command to repeat; a missing one is a line."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from elsewhere import THERE, elsewhere

from assay.cli import main
from assay.learning import device as devices

NET = """
import torch
from torch import nn

def seen(module, args, output):
    print("answered on", output.device.type)

def build():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))
    net.register_forward_hook(seen)
    return net

sample = (torch.randn(4, 4), torch.arange(4) % 3)
inputs = torch.ones(3, 4)
"""


@pytest.fixture
def net(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "net_for_devices.py").write_text(NET)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    monkeypatch.delitem(sys.modules, "net_for_devices", raising=False)
    return "net_for_devices:build"


COMMANDS = {
    "gradient": ("gradient", "{net}", "--rule", "fa-layer"),
    "inference": ("inference", "{net}", "--steps", "5", "--rate", "0.001"),
    "same": ("same", "{net}", "{net}", "--sample", "net_for_devices:inputs"),
    "credit": ("credit", "{net}", "--data", "net_for_devices:sample", "--rule", "dfa-layer", "--samples", "4"),
}


@pytest.mark.parametrize("name", [
    pytest.param(name, marks=pytest.mark.slow if name == "inference" else ()) for name in COMMANDS
])
def test_an_audit_command_looks_at_the_model_where_it_was_told_to(
    name: str, net: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(devices, "DEVICES", (*devices.DEVICES, THERE.type))
    words = ["audit", *(word.format(net=net) for word in COMMANDS[name]), "--device", THERE.type, "--out", "found.json"]
    monkeypatch.setattr(sys, "argv", ["assay", *words])
    with elsewhere(), pytest.raises(SystemExit) as left:
        main()
    said = capsys.readouterr().out
    assert left.value.code in (0, 1, 3), said
    assert f"answered on {THERE.type}" in said and "answered on cpu" not in said
    assert f"--device {THERE.type}" in Path("found.json").read_text()


@pytest.mark.parametrize("words", [("verify", "0"), ("audit", "gradient", "{net}"), ("bench", "digits")])
def test_a_device_that_is_not_there_is_refused_before_anything_runs(
    words: tuple[str, ...], net: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(devices, "_is_there", lambda kind: kind == "cpu")
    monkeypatch.setattr(sys, "argv", ["assay", *(word.format(net=net) for word in words), "--device", "cuda"])
    with pytest.raises(SystemExit) as left:
        main()
    told = capsys.readouterr().err
    assert left.value.code == 2 and "a machine with cuda" in told and "Traceback" not in told
    assert not list(Path().glob("assay-runs/*/run.json"))
