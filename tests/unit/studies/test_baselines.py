"""The depth baselines of a user's own model: fresh weights per seed, and a refusal before anything is trained."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from assay.errors import InputError
from assay.studies.baselines import arm_cell, train_baselines

OWN = """
import torch
from torch import nn

class Plain(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Linear(64, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 10))

def build(seed):
    torch.manual_seed(seed)
    return Plain()

made = Plain()
number = 3

class Odd(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(64, 10))

odd = Odd()
"""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "own_depth.py").write_text(OWN)
    monkeypatch.syspath_prepend(str(tmp_path))
    return "own_depth"


@pytest.mark.parametrize("name", ["odd", "number"])
def test_what_makes_no_fresh_model_is_refused_before_anything_is_trained(home: str, name: str, tmp_path: Path) -> None:
    store = tmp_path / "cells"
    with pytest.raises(InputError, match="seed"):
        train_baselines(f"{home}:{name}", "digits", rule="backprop", blocks=None, epochs=1, seeds=range(1), store=store)
    assert not store.exists()


@pytest.mark.parametrize("name", ["Plain", "build", "made"])
@pytest.mark.parametrize("rule", ["backprop", "dtp", "forward-forward"])
def test_whatever_makes_a_model_gives_every_seed_its_own(home: str, name: str, rule: str) -> None:
    def record(seed: int) -> str:
        payload = {"model": f"{home}:{name}", "task": "digits", "rule": rule, "trainable": None, "blocks": None,
                   "epochs": 1, "seed": seed}
        return str(arm_cell(payload)["correct"])

    first = record(0)
    torch.manual_seed(99)
    assert record(0) == first and record(1) != first
