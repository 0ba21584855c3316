"""Streams are reproducible, independent and never global."""

from __future__ import annotations

import pytest

from assay.errors import InputError
from assay.seeding import derive, numpy_generator, torch_generator


def test_the_same_name_gives_the_same_stream_and_another_name_another() -> None:
    assert derive(7, "init") == derive(7, "init")
    assert len({derive(seed, name) for seed in range(50) for name in ("init", "order", "split")}) == 150
    assert numpy_generator(1, "a").random() == numpy_generator(1, "a").random()


def test_torch_streams_leave_the_global_generator_alone() -> None:
    import torch

    before = torch.get_rng_state().clone()
    draw = torch.rand(3, generator=torch_generator(0, "x"))
    assert torch.equal(draw, torch.rand(3, generator=torch_generator(0, "x")))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("bad", [-1, True, 1.5, "1"])
def test_a_bad_seed_is_refused(bad: object) -> None:
    with pytest.raises(InputError, match="seed"):
        derive(bad)  # type: ignore[arg-type]
