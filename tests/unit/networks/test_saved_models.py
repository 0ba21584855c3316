"""A model saved whole, pickled or copied is the same model, in this process and in another one."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from assay import EqProp, models

X = torch.linspace(-1, 1, 24)
IMAGES = torch.linspace(0, 1, 128).view(2, 1, 8, 8)
MODELS = {
    **{f"mlp, {name}": (models.EnergyMLP([6, 8, 8, 3], activation=name, seed=0), X.view(4, 6))
       for name in ("tanh", "clipped", "smooth", "identity")},
    "looped": (models.LoopedMLP(6, 8, 3, seed=0), X.view(4, 6)),
    "convolution": (models.EnergyConv((1, 8, 8), [4], classes=3, seed=0), IMAGES),
    "attention": (models.EnergyAttention(5, length=6, classes=3, width=8, heads=2, seed=0),
                  torch.arange(12).view(2, 6) % 5),
}  # fmt: skip
CHILD = """
import sys, torch
for name, (model, x) in torch.load(sys.argv[1], weights_only=False).items():
    with torch.no_grad():
        print(name, *model(x).double().flatten().tolist(), sep="|")
"""


def used(model: nn.Module, x: torch.Tensor) -> nn.Module:
    """A model that has learned a step, with whatever it keeps from that."""
    answers = model(x).shape[:-1]
    EqProp(beta=0.3, sweeps=(6, 4)).backward(model, x, (torch.arange(answers.numel()) % 3).view(answers))
    return model


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("way", [lambda m: pickle.loads(pickle.dumps(m)), copy.deepcopy], ids=["pickle", "deepcopy"])
def test_a_copy_gives_the_same_answer_and_learns_the_same(name, way) -> None:
    model, x = MODELS[name]
    model = used(copy.deepcopy(model), x)
    other = way(model)
    assert torch.equal(model(x), other(x)) and other.activation is not None
    for one in (model, other):
        one.zero_grad()
        used(one, x)
    assert all(torch.equal(a.grad, b.grad) for a, b in zip(model.parameters(), other.parameters(), strict=True))


def test_whole_models_saved_here_work_in_another_process(tmp_path: Path, python: Any) -> None:
    torch.save({name: (used(model, x), x) for name, (model, x) in MODELS.items()}, tmp_path / "models.pt")
    done = python.run(["-c", CHILD, str(tmp_path / "models.pt")])
    assert done.returncode == 0, done.stderr
    told = {line.split("|")[0]: [float(word) for word in line.split("|")[1:]] for line in done.stdout.splitlines()}
    assert list(told) == list(MODELS)
    for name, (model, x) in MODELS.items():
        with torch.no_grad():
            assert told[name] == pytest.approx(model(x).double().flatten().tolist(), abs=1e-6)
