"""The probe: copies, containers, traces and contained crashes of models that were written without it in mind."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor, nn

from assay.errors import InputError
from assay.probe import tree
from assay.probe.containment import attempt
from assay.probe.subject import prepare_probe
from assay.probe.trace import record


@dataclass(frozen=True)
class Named:
    energy: Tensor
    parts: tuple[Tensor, ...]


@pytest.mark.filterwarnings("ignore:.*torch.jit.*:DeprecationWarning")
def test_a_scripted_model_is_probed_in_both_precisions() -> None:
    probe = prepare_probe(torch.jit.script(nn.Linear(3, 2)), torch.randn(4, 3), seed=0, inputs=4)
    assert probe.high is not None, probe.high_problem
    low, high = probe.base(0, "low")[0], probe.base(0, "high")[0]
    assert 0 < float((low - high).abs().max()) < 1e-5


def test_a_dataclass_is_a_container_like_any_other() -> None:
    value = Named(torch.ones(2), (torch.zeros(1), torch.zeros(1)))
    assert [name for name, _ in tree.leaves(value)] == ["energy", "parts.0", "parts.1"]
    doubled = tree.map_tensors(value, lambda x: x + 1)
    assert isinstance(doubled, Named) and float(doubled.parts[1]) == 1.0 and float(value.parts[1]) == 0.0


def test_a_model_that_crashes_in_float64_is_probed_without_it_and_the_reason_is_kept() -> None:
    class OnlyFloat(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            if x.dtype == torch.float64:
                raise TypeError("this kernel has no double")
            return 2 * x

    probe = prepare_probe(OnlyFloat(), torch.ones(2, 2), seed=0, inputs=2)
    assert probe.high is None and probe.high_problem == "TypeError: this kernel has no double"


def test_a_crash_is_a_reason_but_an_interruption_is_not_swallowed() -> None:
    assert attempt(lambda: [][0]).problem == "IndexError: list index out of range"

    def interrupted() -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        attempt(interrupted)


def test_the_trace_names_what_entered_and_left_every_module_in_order() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.ReLU())
    probe = prepare_probe(model, torch.randn(2, 3), seed=0, inputs=2)
    events = record(probe, probe.cases[0], probe.low, torch.float32).events
    named = [(event.kind, event.module) for event in events]
    assert named == [("enter", ""), ("enter", "0"), ("exit", "0"), ("enter", "1"), ("exit", "1"), ("exit", "")]
    assert torch.equal(events[2].tensors[0][1], events[3].tensors[0][1])


def test_not_finite_and_empty_inputs_are_refused() -> None:
    for bad in (torch.full((2, 3), torch.nan), torch.zeros(0, 3)):
        with pytest.raises(InputError, match="expected"):
            prepare_probe(nn.Linear(3, 2), bad, seed=0, inputs=2)
