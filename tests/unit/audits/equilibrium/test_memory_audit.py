"""The memory audit: a meter that counts what it should, flat EP, growing backprop, and leaks that are seen."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn

from assay.audits.equilibrium.memory import audit_memory
from assay.errors import InputError
from assay.models import EnergyMLP
from assay.probe.memory import measure_peak
from assay.results import Verdict
from assay.rules import Backprop, EqProp

X, Y = torch.linspace(-1, 1, 48).reshape(8, 6), torch.arange(8) % 3


def model() -> EnergyMLP:
    return EnergyMLP([6, 16, 16, 3], seed=0)


def test_the_meter_counts_live_storage_once() -> None:
    def call() -> None:
        first = torch.zeros(10, 100)
        view = first.t()[:50]
        first.add_(1)
        second = view + 1
        del first, view, second
        torch.zeros(500)

    # 4,000 bytes, and 50 x 10 x 4 more while both live; views and in-place operations add nothing.
    assert measure_peak(call).bytes == 4000 + 2000


def test_the_meter_does_not_load_the_compiler() -> None:
    asked = ("import sys, torch; from assay.probe.memory import measure_peak; "
             "print(measure_peak(lambda: torch.zeros(10) + 1).bytes, 'torch._dynamo' in sys.modules)")
    said = subprocess.run([sys.executable, "-c", asked], capture_output=True, text=True, check=True).stdout
    assert said.split() == ["80", "False"]  # loading it takes seconds, more than most audits


def test_the_meter_sees_what_backward_keeps() -> None:
    weight = torch.ones(64, 64, requires_grad=True)

    def deep(steps: int) -> int:
        def call() -> None:
            h = torch.ones(8, 64)
            for _ in range(steps):
                h = torch.tanh(h @ weight)
            h.sum().backward()  # type: ignore[no-untyped-call]
            weight.grad = None

        return measure_peak(call).bytes

    assert deep(40) - deep(20) == 20 * 8 * 64 * 4


def test_equilibrium_propagation_is_flat_and_backprop_is_not() -> None:
    flat = audit_memory(model(), X, Y, rule=EqProp(), sweeps=(20, 200), depths=(1,))
    assert flat.verdict is Verdict.PASS, flat.reason
    growth = flat.measurement("growth of the peak")
    assert growth.value <= 0.05
    assert growth.unit == "%" and growth.region is not None and growth.region.high == 5.0, "the limit in the same unit"
    assert all(control.separated for control in flat.controls)
    assert {table.title for table in flat.tables} >= {"Peak memory against the number of sweeps"}
    growing = audit_memory(model(), X, Y, rule=Backprop(), sweeps=(5, 20), depths=(1,))
    assert growing.verdict is Verdict.FAIL


def test_memory_leaves_no_gradients_behind() -> None:
    subject = model()
    audit_memory(subject, X, Y, rule=EqProp(), sweeps=(2, 4), depths=(1,))
    assert all(parameter.grad is None for parameter in subject.parameters())


@pytest.mark.parametrize(
    ("change", "complaint"),
    [
        ({"sweeps": (5,)}, "two different numbers"),
        ({"limit": 2.0}, "limit between 0 and 1"),
        ({"model": nn.Linear(6, 3)}, "an equilibrium model"),
    ],
)
def test_bad_arguments_of_memory_are_named(change: dict[str, object], complaint: str) -> None:
    arguments = {"model": model(), "rule": EqProp(), **change}
    with pytest.raises(InputError, match=complaint):
        audit_memory(arguments.pop("model"), X, Y, **arguments)  # type: ignore[arg-type]
