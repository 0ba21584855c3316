"""Numbers the probe gives: where samples live, noise of a kind, spreads, labels of events, what a pass costs."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from assay.probe import tree
from assay.probe.copies import duplicate, everything_learning, untouched_random_state
from assay.probe.noise import normal, uniform
from assay.probe.rounding import perturbed_floor, silently_low
from assay.probe.samples import find_layout, other_first_sample
from assay.probe.subject import prepare_probe
from assay.probe.trace import Event, record
from assay.probe.values import exact_spread, jittered, largest


def generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


def after_change(before: Tensor, *rows: tuple[int, ...]) -> Tensor:
    changed = before.clone()
    for place in rows:
        changed[place] += 1
    return changed


@pytest.mark.parametrize(("shape", "samples", "rows", "layout"), [
    ((3, 5), 3, [(0,)], "batch first"),
    ((5, 3, 2), 3, [(t, 0) for t in range(5)], "batch second"),
    ((3, 3, 2), 3, [(0, t) for t in range(3)], "batch first"),
    ((3, 3, 2), 3, [(t, 0) for t in range(3)], "batch second"),
    ((6, 4), 3, [(0,), (1,)], "batch-major rows"),
    ((6, 4), 3, [(0,), (3,)], "token-major rows"),
    ((6, 4), 3, [(0,), (2,)], None),
    ((5, 3), 3, [(t, 0) for t in range(5)], None),
    ((7, 4), 3, [(0,)], None),
])  # fmt: skip
def test_samples_are_found_where_a_changed_one_shows(shape, samples, rows, layout) -> None:
    before = torch.zeros(shape)
    assert find_layout(before, after_change(before, *rows), samples) == layout


def test_tensors_of_other_shapes_or_none_hold_no_samples() -> None:
    assert find_layout(torch.zeros(3, 2), torch.zeros(3, 1), 3) is None
    assert find_layout(torch.tensor(1.0), torch.tensor(2.0), 1) is None


def test_the_first_sample_is_replaced_by_the_first_other_one() -> None:
    x = torch.tensor([[1.0, 1.0], [1.0, 1.0], [2.0, 1.0], [3.0, 1.0]])
    changed = other_first_sample(x)
    assert changed is not None and changed.tolist() == [[2, 1], [1, 1], [2, 1], [3, 1]] and float(x[0, 0]) == 1
    assert other_first_sample(torch.ones(3, 2)) is None
    single = other_first_sample(torch.tensor([[0.0, 0.0], [0.0, 5.0]]))
    assert single is not None and single[0].tolist() == [0, 5]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.complex64])
def test_noise_has_the_kind_of_what_it_is_shaped_like(dtype: torch.dtype) -> None:
    like = torch.zeros(4000, dtype=dtype)
    drawn, flat = normal(like, generator()), uniform(like, generator())
    assert drawn.dtype == flat.dtype == dtype
    parts = torch.view_as_real(flat) if dtype.is_complex else flat
    assert -1 <= float(parts.min()) < -0.9 and 0.9 < float(parts.max()) <= 1
    assert abs(float(parts.double().mean())) < 0.05
    assert float(drawn.abs().double().square().mean()) == pytest.approx(1, rel=0.1)


def test_integers_get_noise_in_float64() -> None:
    assert normal(torch.zeros(3, dtype=torch.int64), generator()).dtype == torch.float64


def test_the_spread_of_one_number_is_its_size_and_of_nothing_is_one() -> None:
    assert exact_spread(torch.tensor([3.0])) == 3 and exact_spread(torch.tensor([-2.0, -2.0])) == 2
    assert exact_spread(torch.zeros(4)) == 1 and exact_spread(torch.zeros(0)) == 1
    assert exact_spread(torch.tensor([0.0, 2.0])) == pytest.approx(2**0.5)
    assert exact_spread(torch.tensor([0, 2])) == pytest.approx(2**0.5)
    assert largest(torch.tensor([1.0, -3.0])) == 3 and largest(torch.zeros(0)) == 0
    assert largest(torch.tensor([True])) == 1 and largest(torch.tensor([3 + 4j])) == 5


def test_jitter_moves_numbers_by_their_spread_and_leaves_indices() -> None:
    values, index = torch.linspace(0, 10, 2000), torch.arange(3)
    moved, kept, word = jittered([values, index, "word"], generator())
    assert kept is index and word == "word" and moved.dtype == values.dtype
    assert float((moved - values).std()) == pytest.approx(float(values.std()), rel=0.1)


def test_an_event_is_called_by_its_module_and_the_number_of_a_later_call() -> None:
    assert Event("enter", "", 0, "", ()).label == "(model)"
    assert Event("exit", "layer", 0, "", ()).label == "layer"
    assert Event("exit", "layer", 1, "", ()).label == "layer (call 2)"


def test_a_trace_keeps_floating_tensors_that_hold_something_and_counts_calls() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 3)

        def forward(self, x: Tensor) -> dict[str, Tensor]:
            h = self.layer(self.layer(x))
            return {"h": h, "index": torch.arange(3), "empty": h[:0]}

    probe = prepare_probe(Twice(), torch.ones(2, 3), seed=0, inputs=2)
    seen = record(probe, probe.cases[0], probe.low, torch.float32, keep_calls=True)
    assert [(e.kind, e.module, e.call) for e in seen.events] == [
        ("enter", "", 0), ("enter", "layer", 0), ("exit", "layer", 0), ("enter", "layer", 1), ("exit", "layer", 1),
        ("exit", "", 0)]  # fmt: skip
    assert [name for name, _ in seen.events[-1].tensors] == ["h"], "neither integers nor empty tensors"
    assert [e.parent for e in seen.events] == [""] * 6 and set(seen.calls) == {("", 0), ("layer", 0), ("layer", 1)}
    assert torch.equal(seen.calls["layer", 1].args[0], seen.events[2].tensors[0][1].float())


def test_a_trace_shows_what_was_there_before_it_was_written_over() -> None:
    class Writes(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer, self.relu = nn.Linear(3, 3), nn.ReLU(inplace=True)

        def forward(self, x: Tensor) -> Tensor:
            return self.relu(self.layer(x))

    probe = prepare_probe(Writes(), torch.ones(2, 3), seed=0, inputs=2)
    events = record(probe, probe.cases[0], probe.low, torch.float32).events
    before, after = events[3].tensors[0][1], events[4].tensors[0][1]
    assert torch.equal(before, events[2].tensors[0][1]) and torch.equal(after, before.clamp_min(0))


def test_an_output_is_said_as_a_reader_would() -> None:
    assert tree.said("output") == "the output" and tree.said("energy") == "output energy"


def test_a_probe_counts_calls_and_rows_and_takes_gradients_only_where_asked() -> None:
    probe = prepare_probe(nn.Linear(3, 2), torch.ones(4, 3), seed=0, inputs=4)
    probe.cost.calls = probe.cost.inputs = 0
    (plain,) = probe.run(probe.cases[0], probe.low, torch.float32)
    fed = probe.fed(probe.cases[0], probe.low, torch.float32, grad=True)
    out = probe.result(fed, probe.low, grad=True)
    assert not plain.requires_grad and out.requires_grad and fed[0].requires_grad
    assert (probe.cost.calls, probe.cost.inputs) == (2, 8)
    assert not probe.cases[0][0].requires_grad, "the sample itself is never touched"


def test_a_model_that_needs_autograd_inside_gets_it() -> None:
    class Forces(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(3, 1)

        def forward(self, x: Tensor) -> Tensor:
            x = x.requires_grad_()
            return torch.autograd.grad(torch.tanh(self.layer(x)).sum(), x)[0]

    probe = prepare_probe(Forces(), torch.ones(2, 3), seed=0, inputs=2)
    assert probe.needs_grad and probe.base(0, "low")[0].shape == (2, 3)


def test_places_of_a_tuple_are_called_as_the_arguments_of_forward() -> None:
    class Pair(nn.Module):
        def forward(self, atoms: Tensor, *rest: Tensor) -> Tensor:
            return atoms + rest[0]

    probe = prepare_probe(Pair(), (torch.ones(2, 3), torch.ones(2, 3)), seed=0, inputs=2)
    assert probe.input_names == ["atoms", "1"] and probe.output_names == ["output"]


def test_a_copy_that_stays_in_low_precision_is_no_second_opinion() -> None:
    class Casts(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.float() * 3

    low = prepare_probe(Casts(), torch.ones(2, 3) / 3, seed=0, inputs=2)
    assert low.high is None and "float32" in low.high_problem

    class Hidden(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return (x.float() * 3).to(x.dtype)

    hidden = prepare_probe(Hidden(), torch.ones(2, 3) / 3, seed=0, inputs=2)
    honest = prepare_probe(nn.Linear(3, 2), torch.randn(4, 3, generator=generator()), seed=0, inputs=4)
    assert silently_low(hidden, [0]) and not silently_low(honest, [0]) and not silently_low(hidden, [])


def test_the_floor_of_rounding_is_of_the_size_of_rounding() -> None:
    """y = w x with w = x = 1000: a relative error of at most eps each, twice the largest of four draws."""
    layer = nn.Linear(1, 1, bias=False)
    nn.init.constant_(layer.weight, 1000.0)
    probe = prepare_probe(layer, torch.full((3, 1), 1000.0), seed=0, inputs=3)
    (floor,) = perturbed_floor(probe, 0, rows=True)
    eps = torch.finfo(torch.float32).eps
    assert floor.shape == (3,) and bool((floor <= 2 * 2.01e6 * eps).all()) and bool((floor > 0.2e6 * eps).all())


def test_indices_are_not_moved_by_rounding() -> None:
    probe = prepare_probe(nn.Embedding(5, 2), torch.tensor([[1], [4]]), seed=0, inputs=2)
    (floor,) = perturbed_floor(probe, 0, rows=True)
    assert floor.shape == (2,) and bool((floor > 0).all()), "its weights move, the indices stay"


def test_flags_random_states_and_gradients_are_put_back() -> None:
    model = nn.Linear(2, 2)
    model.bias.requires_grad_(False)
    model(torch.ones(1, 2)).sum().backward()
    twin = duplicate(model, dtype=torch.float64, training=None)
    assert all(p.grad is None for p in twin.parameters()) and model.weight.grad is not None and twin.training
    assert not duplicate(model).training and duplicate(model, training=True).training
    with everything_learning(model):
        assert all(p.requires_grad for p in model.parameters())
    assert [p.requires_grad for p in model.parameters()] == [True, False]
    state = torch.random.get_rng_state()
    with untouched_random_state():
        torch.rand(3)
    assert torch.equal(torch.random.get_rng_state(), state)


class Draws(nn.Module):
    """Adds noise of the global generator."""

    def forward(self, x: Tensor) -> Tensor:
        return x + torch.rand_like(x)


def test_noise_of_a_model_is_its_own_unless_the_same_is_asked_for_at_every_call() -> None:
    probe = prepare_probe(Draws(), torch.ones(2, 3), seed=0, inputs=2)
    one, other = (probe.values(probe.cases[0], "low")[0] for _ in range(2))
    assert not torch.equal(one, other)
    probe.common_noise = True
    one, other = (probe.values(probe.cases[0], "low")[0] for _ in range(2))
    assert torch.equal(one, other)


def test_answers_at_an_unchanged_input_are_computed_once_for_every_case() -> None:
    probe = prepare_probe(nn.Linear(3, 2), [torch.ones(1, 3), torch.zeros(1, 3)], seed=0, inputs=2)
    before = probe.cost.calls
    first, again = probe.base(1, "low"), probe.base(1, "low")
    assert probe.cost.calls == before + 1 and first is again
    assert torch.allclose(first[0], probe.low.bias.detach().double().expand(1, 2))
    assert probe.base(0, "low") is probe.base(0, "low") and probe.cost.calls == before + 1


def test_memory_is_planned_by_the_largest_and_by_all_activations_of_a_row() -> None:
    """Per row: 5 and then 2 numbers of four bytes; all of them again in float64, the model's own output included."""
    probe = prepare_probe(nn.Sequential(nn.Linear(3, 5), nn.Linear(5, 2)), torch.ones(4, 3), seed=0, inputs=4)
    assert probe.row_bytes == 5 * 4 and probe.trace_bytes == 8 * (5 + 2 + 2)
