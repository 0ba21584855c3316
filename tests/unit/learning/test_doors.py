"""Names, classes, functions, objects and import paths are the same thing to train and to the audits."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import assay
from assay.errors import InputError
from assay.learning.names import RULES, SHORT, named_rule, spelled, with_level
from assay.learning.resolve import as_model, as_rule, as_task, shown
from assay.rules import Backprop, EqProp, FeedbackAlignment


def net(seed: int = 0, inputs: int = 16, outputs: int = 4) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(inputs, 24), nn.Tanh(), nn.Linear(24, outputs))


@pytest.fixture(scope="module")
def blobs() -> assay.tasks.ArrayTask:
    return assay.tasks.blobs(seed=0, train=300, validation=60, test=120)


class Plain:
    """Backprop in the user's own words; has no constructor arguments."""

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        return loss.detach()


class Descends:
    """Writes the weights itself."""

    learning_rate = 0.1

    def step(self, model: nn.Module, x: Tensor, y: Tensor) -> float:
        loss = nn.functional.cross_entropy(model(x), y)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter -= self.learning_rate * gradient
        return float(loss.detach())


class Opposite(Plain):
    """Its own inference reads the answer from the smallest output; trained accordingly."""

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        loss = nn.functional.cross_entropy(-model(x), y)
        loss.backward()
        return loss.detach()

    def predict(self, model: nn.Module, x: Tensor) -> Tensor:
        return -model(x)


def test_one_rule_has_one_meaning_under_every_spelling(blobs: Any) -> None:
    """A name, a class, an object, a function and a path train the very same weights."""
    trained = []
    given = ("backprop", "bp", Backprop, Backprop(), lambda model, seed: Backprop(), "assay.rules:Backprop", Plain)
    for rule in given:
        model = net()
        assay.train(model, blobs, rule, epochs=1, seed=3)
        trained.append([p.detach().clone() for p in model.parameters()])
    assert all(torch.equal(a, b) for other in trained[1:] for a, b in zip(trained[0], other, strict=True))


def test_train_takes_names_for_task_and_rule() -> None:
    model = assay.models.EnergyMLP([64, 16, 16, 10], seed=0)
    result = assay.train(model, "digits", "eqprop", epochs=1, seed=0)
    assert result.test_accuracy > 0.2


def test_the_level_is_part_of_every_name_that_is_written() -> None:
    assert spelled("dfa") == "dfa-layer" and with_level("dfa-block") == "dfa-block"
    assert all(name in RULES for name in SHORT.values())
    for bare in ("fa", "dfa"):
        with pytest.raises(InputError, match=f"write {bare}-layer or {bare}-block"):
            with_level(bare)
    made = named_rule("fa-layer", net(), seed=1)
    assert isinstance(made, FeedbackAlignment) and made.level == "layer"
    residual = assay.models.ResMLP(16, width=8, depth=2, classes=4)
    block = named_rule("dfa-block", residual, penalty=0.1)
    assert isinstance(block, FeedbackAlignment) and (block.kind, block.level, block.penalty) == ("dfa", "block", 0.1)
    assert isinstance(as_rule("eqprop", net()), EqProp)


def test_a_rule_that_writes_weights_trains_and_is_judged_by_its_update(blobs: Any) -> None:
    result = assay.train(net(), blobs, Descends, epochs=5, seed=0)
    assert result.test_accuracy > 0.8
    model = net().double()
    before = copy.deepcopy(model.state_dict())
    x, y = blobs.test.x[:32].double(), blobs.test.y[:32]
    finding = assay.audit_gradient(model, x, y, rule=Descends())
    assert finding.passed, finding.reason
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())

    class Climbs(Descends):
        def step(self, model: nn.Module, x: Tensor, y: Tensor) -> float:
            self.learning_rate = -0.1
            return super().step(model, x, y)

    wrong = Climbs()
    wrong.learning_rate = 0.1
    assert not assay.audit_gradient(net(), blobs.test.x[:32], y, rule=wrong).passed

    class Idle:
        def step(self, model: nn.Module, x: Tensor, y: Tensor) -> float:
            return 0.0

    with pytest.raises(InputError, match="changed no weight"):
        as_rule(Idle, net()).backward(net(), x.float(), y)


def test_a_rule_with_its_own_inference_is_scored_by_it(blobs: Any) -> None:
    model = net()
    result = assay.train(model, blobs, Opposite, epochs=8, seed=0)
    plainly = float((model(blobs.test.x).argmax(-1) == blobs.test.y).float().mean())
    assert result.test_accuracy > 0.8 > 0.4 > plainly


def test_regression_learns_and_reports_in_units_of_the_target() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(400, 3, generator=generator)
    task = assay.tasks.from_arrays(x, 100 + 50 * x[:, 0] * x[:, 1])
    result = assay.train(net(0, 3, 1), task, epochs=40, seed=0, learning_rate=1e-2)
    floors = task.floors().as_record()
    assert result.test_error < 0.5 * floors["ridge"] and result.test_accuracy != result.test_accuracy
    flat = nn.Sequential(net(0, 3, 1), nn.Flatten(0))
    assert assay.train(flat, task, epochs=1, seed=0).test_error > 0
    with pytest.raises(InputError, match=r"nn.Linear\(..., task.outputs\)"):
        assay.train(net(0, 3, 2), task, epochs=1, seed=0)
    assert assay.train(net(0, 3, 1), task, "fa-layer", epochs=1, seed=0).test_error > 0


def test_models_are_fresh_at_every_seed_or_refused() -> None:
    module = net()
    first, again, other = as_model(module, seed=1), as_model(module, seed=1), as_model(module, seed=2)
    assert torch.equal(first[0].weight, again[0].weight) and not torch.equal(first[0].weight, other[0].weight)
    assert first is not module

    class Owns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.scale = nn.Parameter(torch.ones(3))

    with pytest.raises(InputError, match="give a function of seed"):
        as_model(Owns(), seed=0)


@pytest.mark.parametrize(("call", "words"), [
    (lambda: as_rule("eqprp", net()), "did you mean 'eqprop'"),
    (lambda: as_rule("nowhere:Rule", net()), "an importable module"),
    (lambda: as_rule("assay.rules:Backprp", net()), "did you mean 'Backprop'"),
    (lambda: as_rule(torch.ones(100, 100), net()), "given a Tensor"),
    (lambda: as_rule(dict, net()), "given dict: a dict"),
    (lambda: as_model(torch.ones(100, 100)), "given a Tensor"),
    (lambda: as_task("digit"), "did you mean 'digits'"),
    (lambda: as_task(torch.utils.data.DataLoader([1])), "from_loaders"),
])
def test_what_does_not_fit_is_answered_in_one_line(call: Any, words: str) -> None:
    with pytest.raises(InputError, match=words) as caught:
        call()
    assert "\n" not in str(caught.value) and len(str(caught.value)) < 450


def test_audits_take_names_too(blobs: Any, tmp_path: Path) -> None:
    model, x, y = net(), blobs.test.x[:16], blobs.test.y[:16]
    assert assay.audit_gradient(model, x, y, rule="backprop").passed
    assert assay.audit_gradient(model, x, y, rule=Plain).passed
    assert not assay.audit_gradient(model, x, y, rule="fa-layer").passed
    assert shown(blobs) == "an ArrayTask"


def test_a_device_is_named_and_a_missing_one_is_said(blobs: Any) -> None:
    here = assay.train(net(), blobs, epochs=1, seed=0, device="cpu")
    assert here.test_accuracy == assay.train(net(), blobs, epochs=1, seed=0, device="auto").test_accuracy
    with pytest.raises(InputError, match="did you mean 'cuda'"):
        assay.train(net(), blobs, epochs=1, seed=0, device="cud")
    if not torch.cuda.is_available():
        with pytest.raises(InputError, match="a machine with cuda"):
            assay.train(net(), blobs, epochs=1, seed=0, device="cuda")
