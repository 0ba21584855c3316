"""A net is called covered only if no error can travel through a weight itself: read from the graph, proved by zero."""

from __future__ import annotations

import warnings
from dataclasses import replace

import pytest
import torch
from disguised import GAINS, Layer, hooked
from disguised import NOT_REACHED as DISGUISED
from disguised import REACHED as REACHED_TOO
from torch import Tensor, nn
from unusual import NOT_REACHED as UNUSUAL
from unusual import REACHED as REACHED_FIRST
from unusual import Conv1D, Recurrent, around

import assay
from assay.errors import InputError
from assay.protocols import Split
from assay.rules.feedback.rule import FeedbackAlignment
from subjects import backprop, gradients

REACHED, NOT_REACHED = REACHED_FIRST | REACHED_TOO, UNUSUAL | DISGUISED


def data() -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(3)
    return torch.randn(6, 5, generator=generator, dtype=torch.float64), torch.tensor([0, 1, 2, 0, 1, 2])


def silent(model: nn.Module, rule: FeedbackAlignment) -> dict[str, Tensor]:
    """The gradients of one step with the matrices of the middle layer set to zero: the head goes on sending."""
    x, y = data()
    rule.survey(model, x)
    rule.backward(model, x, y)
    for key, matrix in rule.matrices.tensors.items():
        matrix.mul_(key.startswith("4."))
    model.zero_grad()
    rule.backward(model, x, y)
    return gradients(model)


@pytest.mark.parametrize("kind", ["fa", "dfa"])
@pytest.mark.parametrize("name", REACHED)
def test_what_is_called_covered_sends_nothing_through_zero_feedback(name: str, kind: str) -> None:
    torch.manual_seed(0)
    model = around(REACHED[name]())
    rule = FeedbackAlignment(model, kind=kind, seed=1)
    if kind == "dfa" and name.startswith("packed"):  # a batch that shrinks on the way has no place for the error
        with pytest.warns(UserWarning, match="plain backprop"):
            assert not rule.survey(model, data()[0]).complete
        return
    rule.survey(model, data()[0])
    assert rule.coverage.complete, str(rule.coverage)
    found = silent(model, rule)
    assert not found["0.weight"].any(), "the stem still receives an error"
    assert any(value.any() for key, value in found.items() if key.startswith("2."))


@pytest.mark.parametrize("kind", ["fa", "dfa"])
@pytest.mark.parametrize("name", GAINS)
def test_what_transposes_no_weight_is_not_accused(name: str, kind: str) -> None:
    torch.manual_seed(0)
    model = around(GAINS[name]())
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        coverage = FeedbackAlignment(model, kind=kind, seed=1).survey(model, data()[0])
    assert coverage.complete, str(coverage)
    assert [str(warning.message) for warning in told] == [coverage.notice()] * bool(coverage.constants)
    assert {w.status for w in coverage.weights} <= {"first layer", "feedback", "gain", "additive", "constant"}


@pytest.mark.parametrize("kind", ["LSTM", "GRU", "RNN"])
def test_written_out_recurrences_compute_what_the_fused_ones_do(kind: str) -> None:
    for packed in (False, True):
        torch.manual_seed(0)
        model, (x, y) = around(Recurrent(getattr(nn, kind), packed, num_layers=2, bidirectional=True)), data()
        wanted = backprop(model, x, y)
        loss = FeedbackAlignment(model, feedback="weights").backward(model, x, y)
        torch.testing.assert_close(loss, nn.functional.cross_entropy(model(x), y).detach())
        for key, value in gradients(model).items():
            torch.testing.assert_close(value, wanted[key], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", REACHED)
def test_random_feedback_differs_from_backprop_and_the_weights_as_feedback_do_not(name: str) -> None:
    torch.manual_seed(0)
    model, (x, y) = around(REACHED[name]()).eval(), data()
    wanted = backprop(model, x, y)
    FeedbackAlignment(model, seed=1).backward(model, x, y)
    stem = gradients(model)["0.weight"]
    assert float((stem - wanted["0.weight"]).norm()) > 0.1 * float(stem.norm())
    FeedbackAlignment(model, feedback="weights").backward(model, x, y)
    found = gradients(model)
    for key, value in wanted.items():
        torch.testing.assert_close(found[key], value, rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("kind", ["fa", "dfa"])
@pytest.mark.parametrize("name", NOT_REACHED)
def test_what_cannot_be_reached_is_never_called_complete(name: str, kind: str) -> None:
    torch.manual_seed(0)
    model, (x, y) = around(NOT_REACHED[name]()), data()
    rule = FeedbackAlignment(model, kind=kind, seed=1)
    with pytest.warns(UserWarning, match="plain backprop"):
        rule.backward(model, x, y)
    assert not rule.coverage.complete
    assert all(missed.startswith(("2.", "a ")) for missed in rule.coverage.missed) and rule.coverage.missed
    if kind == "fa":  # a certificate would have been false: the error that the head sends arrives below
        for key, matrix in rule.matrices.tensors.items():
            matrix.mul_(key == "4.weight")
        model.zero_grad()
        rule.backward(model, x, y)
        assert gradients(model)["0.weight"].any()


def test_an_expert_that_is_given_nothing_is_surveyed() -> None:
    """Hard routing: where no sample goes there is no place to find samples in, and direct feedback says so."""
    class Routed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            out = torch.zeros_like(x)
            for number, expert in enumerate(self.experts):
                mine = x.sum(1).sign() == number - 1
                out[mine] = expert(x[mine])
            return out

    model = around(Routed())
    assert FeedbackAlignment(model).survey(model, data()[0]).complete
    with pytest.warns(UserWarning, match="plain backprop"):
        assert "2.experts.1.weight" in FeedbackAlignment(model, kind="dfa").survey(model, data()[0]).missed


def test_a_hook_that_cannot_be_asked_is_named() -> None:
    def stops(module: nn.Module, error: Tensor) -> Tensor:
        if error.any():
            raise RuntimeError("only once")
        return error

    model = around(Layer(hooked(stops), g=(8,)))
    with pytest.warns(UserWarning, match=r"a hook on a gradient, .* cannot be asked whether it uses a weight"):
        assert not FeedbackAlignment(model).survey(model, data()[0]).complete


def test_training_warns_and_a_comparison_refuses() -> None:
    """``assay.train`` runs the rule, which warns once; benchmark arms set ``refuse_partial``."""
    task = assay.tasks.digits(seed=0)
    model = nn.Sequential(nn.Linear(64, 8), NOT_REACHED["W + W.t()"](), nn.Linear(8, 10))
    with pytest.warns(UserWarning, match="plain backprop") as told:
        assay.train(model, replace(task, train=Split(task.train.x[:64], task.train.y[:64])), "fa", epochs=1, seed=0)
    assert len(told) == 1
    rule = FeedbackAlignment(model)
    rule.refuse_partial = True
    with pytest.raises(InputError, match=r"1\.weight"):
        rule.backward(model, task.train.x[:4], task.train.y[:4])


@pytest.mark.parametrize("name", ["W @ W.t()", "W + W.t()"])
def test_a_product_of_weights_keeps_its_own_gradient(name: str) -> None:
    """Feedback in W W^T would enter the gradient of W itself."""
    torch.manual_seed(0)
    model, (x, y) = around(NOT_REACHED[name]()), data()
    model[0].requires_grad_(False)
    wanted = backprop(model, x, y)["2.weight"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rule = FeedbackAlignment(model, seed=1)
        rule.backward(model, x, y)
        rule.matrices.tensors["4.weight"].copy_(model[4].weight)
        model.zero_grad()
        rule.backward(model, x, y)
    torch.testing.assert_close(gradients(model)["2.weight"], wanted)


@pytest.mark.parametrize("kind", ["fa", "dfa"])
def test_a_fixed_matrix_is_named_and_can_be_given_feedback(kind: str) -> None:
    """A buffer has no feedback: the coverage says through what the error goes exactly, and the way out works."""
    torch.manual_seed(0)
    model, (x, y) = around(GAINS["a fixed matrix"]()), data()
    rule = FeedbackAlignment(model, kind=kind, seed=1)
    with pytest.warns(UserWarning, match="exactly through what is fixed .* no feedback: 2.fixed"):
        rule.backward(model, x, y)
    assert rule.coverage.complete and rule.coverage.constants == ("2.fixed",) and not rule.coverage.missed
    assert "feedback on 1 of 2 weights; the error goes exactly through 1 fixed" in str(rule.coverage)
    for key, matrix in rule.matrices.tensors.items():
        matrix.mul_(key.startswith("4."))
    model.zero_grad()
    rule.backward(model, x, y)
    assert gradients(model)["0.weight"].any(), "what the coverage says: the error passes"
    fixed = model[2].fixed
    del model[2].fixed
    model[2].fixed = nn.Parameter(fixed, requires_grad=False)
    rule = FeedbackAlignment(model, kind=kind, seed=1)
    assert rule.survey(model, x).used == ("2.fixed", "4.weight") and not rule.coverage.constants
    assert not silent(model, rule)["0.weight"].any()


def test_a_graph_that_cannot_be_read_is_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    """Planted: reading stops. A model that cannot run at all is left to say so itself."""
    model, (x, y) = around(nn.Linear(8, 8)), data()

    def stops(*args: object, **options: object) -> None:
        raise RuntimeError("no such node\nin some file")

    monkeypatch.setattr("assay.rules.feedback.survey._rows", stops)
    with pytest.raises(InputError, match=r"can be read; given Sequential; reading it ended with: no such node$"):
        FeedbackAlignment(model).backward(model, x, y)
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        FeedbackAlignment(model).backward(model, x[:, :4], y)


def test_frozen_weights_and_tokens_are_surveyed_too() -> None:
    """A frozen weight carries the error as well as any other, and tokens carry no gradient that would show them."""

    class OneHot(nn.Module):
        def forward(self, tokens: Tensor) -> Tensor:
            return nn.functional.one_hot(tokens, 5).double()

    model = nn.Sequential(OneHot(), *around(Conv1D()))
    model[3].requires_grad_(False)
    tokens, y = torch.tensor([0, 1, 2, 3, 4, 1]), data()[1]
    rule = FeedbackAlignment(model, seed=0)
    rule.backward(model, tokens, y)
    assert {w.name: w.status for w in rule.coverage.weights} == {
        "1.weight": "first layer", "3.weight": "feedback", "5.weight": "feedback"}
    assert not model[3].weight.requires_grad and model[3].weight.grad is None


@pytest.mark.parametrize("kind", ["fa", "dfa"])
def test_a_survey_leaves_buffers_and_random_state_alone(kind: str) -> None:
    layers = (nn.Linear(5, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), DISGUISED["a buffer that is written"]())
    model = nn.Sequential(*layers, nn.Linear(8, 3)).double()
    kept, state = dict(model.named_buffers()), torch.get_rng_state()
    before = {name: buffer.clone() for name, buffer in kept.items()}
    with pytest.warns(UserWarning, match=r"3\.table is a buffer that the model writes"):
        FeedbackAlignment(model, kind=kind).survey(model, data()[0])
    assert torch.equal(torch.get_rng_state(), state)
    for name, buffer in model.named_buffers():
        assert buffer is kept[name] and torch.equal(buffer, before[name]), name


def test_a_model_that_changes_its_operations_is_surveyed_again() -> None:
    class Switches(nn.Linear):
        by_hand = False

        def forward(self, x: Tensor) -> Tensor:
            return (x[:, None, :] * self.weight).sum(-1) if self.by_hand else super().forward(x)

    model, (x, y) = around(Switches(8, 8)), data()
    rule = FeedbackAlignment(model)
    rule.backward(model, x, y)
    assert rule.coverage.complete
    model[2].by_hand = True
    rule.backward(model, x, y)
    with pytest.warns(UserWarning, match="plain backprop"):
        rule.backward(model, x, y)
    assert not rule.coverage.complete


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of torch.compile itself
@pytest.mark.parametrize("level", ["layer", "block"])
def test_a_compiled_model_is_refused_in_one_sentence(level: str) -> None:
    model, (x, y) = around(nn.Linear(8, 8)), data()
    for compiled in (torch.compile(model), nn.Sequential(torch.compile(model), nn.Identity())):
        with pytest.raises(InputError, match=r"before torch\.compile"):
            FeedbackAlignment(compiled, level=level).backward(compiled, x, y)
    model.compile()
    with pytest.raises(InputError, match=r"before torch\.compile"):
        FeedbackAlignment(model, level=level).backward(model, x, y)


@pytest.mark.parametrize("level", ["layer", "block"])
def test_empty_and_broken_batches_are_refused_before_a_gradient_changes(level: str) -> None:
    model, (x, y) = around(nn.Linear(8, 8)), data()
    rule = FeedbackAlignment(model, level=level)
    with pytest.raises(InputError, match="at least one sample"):
        rule.backward(model, x[:0], y[:0])
    with pytest.raises(InputError, match="finite inputs"):
        rule.backward(model, x.clone().fill_(torch.nan), y)
    if level == "layer":
        for spoiled in (x[:0], x * torch.nan):
            with pytest.raises(InputError, match="expected"):
                rule.survey(model, spoiled)
    assert all(parameter.grad is None for parameter in model.parameters())
