"""A model that remembers is asked as it was at first, whatever earlier calls left in it."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay.probe.state import Remembering


class Remembers(nn.Module):
    """Adds what it was given before: in a buffer, in a list, in a tensor, and in things that come and go."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(()))
        self.seen: list[float] = []
        self.last = torch.zeros(())
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        out = x + self.total + sum(self.seen) + self.last + self.calls
        self.total += 1.0  # in place
        self.seen.append(2.0)
        self.last.add_(3.0)
        self.calls += 4
        self.register_buffer("new", torch.ones(()))
        self.extra = 5
        return out + (len(self._buffers) - 2) + (getattr(self, "extra", 5) - 5)


def test_every_call_is_the_first_and_nothing_is_left_behind() -> None:
    model: Any = Remembers()
    call, x = Remembering(None, 0), torch.ones(3)
    before = call(model, x)
    for _ in range(2):
        assert torch.equal(call(model, x), before)
    assert float(model.total) == float(model.last) == model.calls == 0 and model.seen == []
    assert "new" not in model._buffers and not hasattr(model, "extra")
    assert float(model(x)[0]) == 1.0, "left to itself it is asked for the first time"


def test_what_a_call_is_given_is_handed_on_to_a_call_of_the_users_own() -> None:
    model = Remembers()
    call = Remembering(lambda m, value: m(value["x"]), 0)
    assert torch.equal(call(model, {"x": torch.ones(3)}), call(model, {"x": torch.ones(3)}))


def test_modules_inside_are_restored_and_parameters_are_left_alone() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    inside: Any = model[1]
    call, x = Remembering(None, 0), torch.randn(4, 2, generator=torch.Generator().manual_seed(0))
    call(model, x)
    assert int(inside.num_batches_tracked) == 0 and torch.equal(inside.running_mean, torch.zeros(2))
    with torch.no_grad():
        model[0].weight.zero_()
    call(model, x)
    assert not model[0].weight.any(), "weights are not memory: a step of training stays"


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_scripted_module_keeps_its_buffers_in_place() -> None:
    class Counts(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x: Tensor) -> Tensor:
            self.count += 1
            return x + self.count

    model: Any = torch.jit.script(Counts())
    call = Remembering(None, 0)
    first = call(model, torch.ones(2))
    assert torch.equal(call(model, torch.ones(2)), first) and float(model.count) == 0.0
