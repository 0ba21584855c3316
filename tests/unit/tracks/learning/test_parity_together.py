"""Track 2 measures several seeds of an arm in one call, and each record is that of the seed alone."""

from __future__ import annotations

import pytest

from assay.protocols import Trial
from assay.registry import registry
from assay.tracks.learning import parity


@pytest.mark.parametrize("arm", [parity.EQPROP, parity.BACKPROP, parity.FROZEN, parity.SHUFFLED])
def test_seeds_measured_together_have_the_records_of_seeds_measured_apart(
    arm: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(parity, "EPOCHS", 1)
    monkeypatch.setattr(parity, "CONTROL_EPOCHS", 1)
    monkeypatch.setattr(parity, "LEARNING_RATES", (2e-3,))
    body = parity.Parity()
    trials = [Trial(arm, seed) for seed in (42, 43)]
    assert body.measure_together(trials) == [body.measure(trial) for trial in trials]


def test_seeds_of_backprop_alone_go_together() -> None:
    from assay.studies.verification import plan

    cells = plan(registry.find(2), "quick", (42, 43, 44))
    families: dict[str, set[str]] = {}
    for cell in cells:
        if cell.together is None:
            assert cell.payload["arm"] != parity.BACKPROP
        else:
            families.setdefault(cell.together.family, set()).add(cell.payload["arm"])
    assert list(families.values()) == [{parity.BACKPROP}]
