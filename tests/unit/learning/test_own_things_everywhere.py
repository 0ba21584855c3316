"""What a user brings fits everywhere: strings, classes, objects and paths; classes and amounts; any rule; a device."""

from __future__ import annotations

import sys
import types
from typing import Any

import pytest
import torch
from torch import nn

import assay
from assay import symmetry as sym
from assay.errors import InputError
from assay.learning.resolve import as_rule
from assay.learning.subjects import subject_of
from assay.learning.training import evaluate
from assay.rules import EqProp
from assay.studies.arms import arms
from assay.studies.arms.brought import bring

DRAW = torch.Generator().manual_seed(0)
X = torch.randn(120, 6, generator=DRAW)
CLASSES = (X[:, 0] > 0).long()
AMOUNTS = X[:, :1] - 0.5 * X[:, 1:2]


def net(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 2))


def predictor(seed: int = 0) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1))


class Net(nn.Sequential):
    def __init__(self) -> None:
        super().__init__(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2))


class Plain:
    def backward(self, model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = model(x)
        loss = nn.functional.mse_loss(out, y) if y.is_floating_point() else nn.functional.cross_entropy(out, y)
        loss.backward()
        return loss.detach()


class Writes:
    """A rule with all doors at once: it writes weights, and its answers are its own."""

    learning_rate = 0.05

    def step(self, model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        out = -model(x)
        loss = nn.functional.mse_loss(out, y) if y.is_floating_point() else nn.functional.cross_entropy(out, y)
        slopes = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, slope in zip(model.parameters(), slopes, strict=True):
                parameter -= self.learning_rate * slope
        return loss.detach()

    def backward(self, model: nn.Module, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        raise AssertionError("the step is what it does")

    def predict(self, model: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return -model(x)


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
    module = types.ModuleType("their_lab")
    module.__dict__.update(net=net, Net=Net, ready=Net(), Plain=Plain, predictor=predictor)
    monkeypatch.setitem(sys.modules, "their_lab", module)
    return module


@pytest.fixture(scope="module")
def blobs() -> Any:
    return assay.tasks.from_arrays(X, CLASSES, name="blobs")


@pytest.fixture(scope="module")
def line() -> Any:
    return assay.tasks.from_arrays(X, AMOUNTS, name="line")


@pytest.mark.parametrize(
    "model", ["their_lab:net", "their_lab:ready", "their_lab:Net", Net, net, Net()],
    ids=["path of a function", "path of a module", "path of a class", "class", "function", "module"],
)
def test_a_model_is_a_path_a_class_a_function_or_itself_in_training_and_audits(
    model: Any, lab: Any, blobs: Any
) -> None:
    result = assay.train(model, blobs, "backprop", epochs=1, seed=0)
    assert isinstance(result.model, nn.Module) and 0 <= result.test_accuracy <= 1
    assert assay.audit_gradient(model, X[:8], CLASSES[:8], rule="backprop").verdict == "PASS"
    spec = sym.Symmetry(sym.sign(), inputs=sym.odd(), outputs=sym.invariant())
    assert assay.audit_symmetry(model, X[:4], spec, inputs=4, transforms=2).verdict == "FAIL"
    assert assay.audit_same(model if model is not net else net(), model if model is not net else net(), X[:4]).verdict


def test_a_given_module_is_the_one_that_is_trained(blobs: Any) -> None:
    model = net()
    before = model[0].weight.clone()
    assert assay.train(model, blobs, Plain, epochs=1, seed=0).model is model
    assert not torch.equal(before, model[0].weight)


@pytest.mark.parametrize("rule", [Plain, Plain(), "backprop", Writes])
def test_every_audit_of_a_rule_takes_amounts_as_targets(rule: Any) -> None:
    found = assay.audit_gradient(predictor(), X[:16], AMOUNTS[:16], rule=rule)
    # A rule that answers with the opposite sign descends another loss than the model's own.
    assert found.verdict == ("FAIL" if rule is Writes else "PASS"), found.reason
    credit = assay.audit_credit(predictor(), X[:16], AMOUNTS[:16], rule=rule, redraws=0, responses=False)
    assert credit.verdict in ("PARTIAL", "INCONCLUSIVE", "FAIL") and credit.measurements


def test_credit_of_amounts_is_the_gradient_of_the_squared_error() -> None:
    from assay.audits.credit.stream import error_signal, exact_losses, sample_losses

    outputs = AMOUNTS[:5].double().neg().requires_grad_()
    losses = sample_losses(outputs, AMOUNTS[:5])
    assert torch.equal(losses, exact_losses(outputs, AMOUNTS[:5]))
    (slope,) = torch.autograd.grad(losses.sum(), outputs)
    assert torch.allclose(slope, error_signal(outputs, AMOUNTS[:5]))


def test_equilibrium_propagation_predicts_amounts(line: Any) -> None:
    model = assay.models.EnergyNet(predictor(), gamma=0.1, loss="mse")
    rule = EqProp(beta=0.1, nudge="centered")
    assert assay.audit_gradient(model, X[:16], AMOUNTS[:16], rule=rule).verdict == "PASS"
    with pytest.raises(InputError, match="loss='mse'"):
        EqProp().backward(assay.models.EnergyMLP([6, 4, 1]), X[:4], AMOUNTS[:4])
    from assay.studies.arms.build import build, fit
    from assay.studies.arms.settings import ArmSettings

    arm = arms(["eqprop"], ["mlp"])[-1]
    settings = ArmSettings(hidden=(16,), epochs=15, input_noise=0.0, gamma=0.1, sweeps=(10, 10), learning_rate=0.01)
    result = fit(build(arm, settings, line, seed=0), line, settings, seed=0)
    assert result.test_error < 0.6 * line.floors().as_record()["mean"]


def test_a_rule_that_writes_is_judged_by_its_step_and_answers_by_its_own_inference(blobs: Any) -> None:
    rule = as_rule(Writes, net())
    x, y = X[:16], CLASSES[:16]
    mirrored = nn.Sequential(net(), nn.Identity())
    truth = torch.autograd.grad(nn.functional.cross_entropy(-mirrored(x), y), list(mirrored.parameters()))
    rule.backward(mirrored, x, y)
    for parameter, slope in zip(mirrored.parameters(), truth, strict=True):
        assert torch.allclose(parameter.grad, slope, atol=1e-5)
    model = net()
    result = assay.train(model, blobs, Writes(), epochs=10, seed=0)
    assert result.test_accuracy > 0.5
    assert evaluate(model, blobs.test).accuracy == pytest.approx(1 - result.test_accuracy), "the model alone says not"


def test_the_answers_of_a_record_are_those_of_the_rules_inference(blobs: Any) -> None:
    from assay.learning.answers import answered
    from assay.stats import unpack

    model, rule = net(), as_rule(Writes, net())
    record = answered(model, blobs.test, rule=rule)
    right = (-model(blobs.test.x)).argmax(-1) == blobs.test.y
    assert unpack(record["correct"], record["items"]) == right.tolist()


def test_a_module_brought_to_several_rules_is_one_model() -> None:
    model = Net()
    names = [arm.name for arm in arms({"mine": Plain, "dfa": "dfa"}, {"theirs": model})]
    assert names == ["backprop/theirs", "mine/theirs", "dfa-layer/theirs"]
    assert bring(model).reference == bring(model).reference, "a key that tells what it holds"
    other = Net()
    assert bring(model).reference != bring(other).reference, "other weights are another model"


def test_a_search_takes_own_task_rule_and_model_and_amounts(blobs: Any, line: Any, tmp_path: Any) -> None:
    pytest.importorskip("optuna", reason="needs the [tune] extra")
    from assay.studies.tune import tune

    place = f"sqlite:///{tmp_path / 'trials.sqlite'}"
    own = tune(blobs, rule=Plain, model=net, trials=2, settings={"epochs": 1}, storage=place)
    assert (own.task, own.arm) == ("blobs", "Plain/net") and 0 <= own.validation <= 1
    amounts = tune(line, rule="backprop", trials=2, settings={"epochs": 1, "hidden": [4]}, storage=place)
    best = min(t.validation for t in amounts.trials if t.validation is not None)
    assert amounts.validation == best and "target units" in amounts.told
    assert own.settings.input_noise != amounts.settings.input_noise or own.settings != amounts.settings


# There is no accelerator here, and torch's CPU build refuses linear layers of tensors that claim to be on one; the meta
# device has no values, but a stray CPU tensor is an error there too.


def test_gradients_are_made_where_the_model_is() -> None:
    """Feedback rules look at values before they use them, which meta tensors have not: never run on a device."""
    model = net().to("meta")
    x, y = torch.randn(4, 6, device="meta"), torch.zeros(4, dtype=torch.long, device="meta")
    as_rule("backprop", model).backward(model, x, y)
    assert {p.grad.device.type for p in model.parameters() if p.grad is not None} == {"meta"}


def test_an_audit_moves_a_copy_and_leaves_the_module_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.learning import subjects

    monkeypatch.setattr(subjects, "chosen_device", lambda name: torch.device("meta"))
    model = net()
    moved, sample, function = subject_of(model, {"x": (X, [CLASSES])}, net, device="cuda")
    assert moved is not model and next(moved.parameters()).device.type == "meta"
    assert sample["x"][0].device.type == "meta" == sample["x"][1][0].device.type and function is net
    assert next(model.parameters()).device.type == "cpu"
    assert subject_of(model, X)[0] is model


def test_every_call_takes_a_device_and_says_in_a_line_that_there_is_none(blobs: Any) -> None:
    if torch.cuda.is_available():
        pytest.skip("this machine has one")
    spec = sym.Symmetry(sym.sign(), inputs=sym.odd(), outputs=sym.invariant())
    batch = (X[:8], CLASSES[:8])
    calls = {
        "train": lambda d: assay.train(net(), blobs, epochs=1, seed=0, device=d),
        "bench": lambda d: assay.bench(blobs, rules=[Plain], model=net, seeds=3, device=d),
        "gradient": lambda d: assay.audit_gradient(net(), *batch, rule="backprop", device=d),
        "credit": lambda d: assay.audit_credit(net(), *batch, device=d),
        "stability": lambda d: assay.audit_stability(assay.models.LoopedMLP(6, 4, 2), X[:4], device=d),
        "memory": lambda d: assay.audit_memory(assay.models.EnergyMLP([6, 4, 2]), *batch, rule="eqprop", device=d),
        "symmetry": lambda d: assay.audit_symmetry(net(), X[:4], spec, device=d),
        "same": lambda d: assay.audit_same(net(), net(), X[:4], device=d),
    }
    for name, call in calls.items():
        with pytest.raises(InputError, match="a machine with cuda") as told:
            call("cuda")
        assert "\n" not in str(told.value), name
        with pytest.raises(InputError, match="did you mean 'cuda'"):
            call("cuda0")
