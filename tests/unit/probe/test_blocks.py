"""Blocks and streams of small nets whose structure is known: what is a block, what lies between, where samples live."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from assay.errors import InputError
from assay.probe.blocks import discover_blocks
from assay.probe.residual import residual_modules
from assay.probe.stream import can_cut, tapped


class Plain(nn.Module):
    """No skip: weight, activation, weight."""

    def __init__(self, width: int = 6, out: int | None = None) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(width, width), nn.Linear(width, out or width)

    def forward(self, x: Tensor) -> Tensor:
        return self.b(torch.relu(self.a(x)))


class Skip(Plain):
    """The same with its input added."""

    def forward(self, x: Tensor) -> Tensor:
        return x + super().forward(x)


class AddedOutside(nn.Module):
    """The caller adds the skip around blocks that know nothing of it."""

    def __init__(self, depth: int) -> None:
        super().__init__()
        self.blocks = nn.ModuleList([Plain() for _ in range(depth)])
        self.norm, self.head = nn.LayerNorm(6), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        for block in self.blocks:
            x = x + block(x)
        return self.head(self.norm(x))


class TimeFirst(nn.Module):
    """Reads [batch, time, width] and runs its blocks on [time, batch, width]."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.head = nn.Sequential(Plain(), Plain()), nn.Linear(6, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.blocks(x.transpose(0, 1)).transpose(0, 1))


def data(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def test_blocks_that_hand_on_their_output_are_linked_directly() -> None:
    found = discover_blocks(nn.Sequential(nn.Linear(4, 6), Plain(), Plain(), nn.Linear(6, 3)), data(5, 4))
    assert found.names == ("1", "2") and found.link == "direct" and found.after is None
    assert found.shapes == ((6,), (6,), (6,)) and not found.broken and found.batch_axis == 0


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_a_skip_that_the_caller_adds_is_outside_and_the_stream_ends_at_the_module_behind(depth: int) -> None:
    found = discover_blocks(AddedOutside(depth), data(5, 6))
    assert found.names == tuple(f"blocks.{i}" for i in range(depth))
    assert found.link == "outside" and found.after == "norm"


def test_two_blocks_of_three_that_are_linked_are_not_a_direct_chain() -> None:
    class Bent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.blocks, self.head = nn.ModuleList([Plain() for _ in range(3)]), nn.Linear(6, 2)

        def forward(self, x: Tensor) -> Tensor:
            h = self.blocks[1](self.blocks[0](x))
            return self.head(self.blocks[2](torch.tanh(h)))

    assert discover_blocks(Bent(), data(5, 6)).link == "outside"


def test_a_single_block_is_direct_if_the_next_module_reads_what_it_wrote() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Sequential(Plain()), nn.Linear(6, 3))
    found = discover_blocks(model, data(5, 4), glob="1.0")
    assert (found.names, found.link, found.after) == (("1.0",), "direct", None)


def test_blocks_with_a_layer_between_their_stages_are_broken_and_linked_ones_are_not() -> None:
    whole = discover_blocks(nn.Sequential(nn.Linear(4, 6), Skip(), Skip(), nn.Linear(6, 3)), data(5, 4))
    parted = discover_blocks(nn.Sequential(nn.Linear(4, 6), Skip(), nn.Linear(6, 8), Skip(8), nn.Linear(8, 3)),
                             data(5, 4))
    assert whole.names == ("1", "2") and not whole.broken
    assert parted.names == ("1", "3") and parted.broken and parted.link == "direct"
    assert parted.shapes == ((6,), (8,), (8,))


def test_without_repeated_blocks_the_weight_layers_between_the_first_and_the_last_are_taken() -> None:
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 6), nn.Tanh(), nn.Linear(6, 3))
    assert discover_blocks(model, data(5, 4)).names == ("2",)
    with pytest.raises(InputError, match="at least three weight layers"):
        discover_blocks(nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.Linear(6, 3)), data(5, 4))


def test_classes_that_never_keep_a_shape_or_do_not_follow_each_other_are_no_blocks() -> None:
    shrinking = nn.Sequential(nn.Linear(4, 6), Plain(6, 5), Plain(5, 4), nn.Linear(4, 3))
    assert discover_blocks(shrinking, data(5, 4)).names != ("1", "2")
    strangers = nn.Sequential(Plain(6), nn.Linear(6, 4), Plain(4), nn.Linear(4, 4), nn.Linear(4, 3))
    assert discover_blocks(strangers, data(5, 6)).names != ("0", "2")


def test_the_axis_of_samples_is_found_by_changing_one_where_both_axes_fit() -> None:
    assert discover_blocks(TimeFirst(), data(4, 4, 6)).batch_axis == 1
    assert discover_blocks(TimeFirst(), data(3, 4, 6)).batch_axis == 1
    assert discover_blocks(nn.Sequential(Plain(), Plain(), nn.Linear(6, 3)), data(4, 4, 6)).batch_axis == 0


def test_a_glob_takes_modules_of_its_own_depth_that_run_once() -> None:
    model = AddedOutside(2)
    assert discover_blocks(model, data(5, 6), glob="blocks.*").names == ("blocks.0", "blocks.1")
    assert discover_blocks(model, data(5, 6), glob="blocks.*.a").names == ("blocks.0.a", "blocks.1.a")
    with pytest.raises(InputError, match="matches modules"):
        discover_blocks(model, data(5, 6), glob="layers.*")
    shared = nn.Linear(6, 6)
    with pytest.raises(InputError, match="more than once"):
        discover_blocks(nn.Sequential(shared, nn.Tanh(), shared), data(5, 6), glob="0")


def test_looking_leaves_no_hook_no_mode_and_no_flag_behind() -> None:
    model = nn.Sequential(nn.Linear(4, 6), Skip(), Skip(), nn.Linear(6, 3))
    model[1].eval()
    model[2].requires_grad_(False)
    discover_blocks(model, data(5, 4))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    assert model.training and not model[1].training and not any(p.requires_grad for p in model[2].parameters())
    assert all(p.requires_grad for p in model[1].parameters())


class Gated(nn.Module):
    """A recurrent gate: two products of equal length are added, which is no skip."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        return torch.tanh(self.a(x) + self.b(x))


class Projected(nn.Module):
    """A skip whose shape is changed by one product."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.project = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(6, 8)

    def forward(self, x: Tensor) -> Tensor:
        return self.project(x) + self.b(torch.relu(self.a(x)))


class LateSkip(nn.Module):
    """First changes the shape, then adds: what is added to is not its own input."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.block = nn.Linear(6, 8), Skip(8)

    def forward(self, x: Tensor) -> Tensor:
        return self.block(self.first(x))


def test_a_skip_addition_is_one_long_and_one_short_way_from_the_input() -> None:
    x = data(5, 6)
    assert residual_modules(nn.Sequential(Skip(), Skip()), x) == ["0", "1"]
    assert residual_modules(nn.Sequential(Plain(), Plain()), x) == []
    assert residual_modules(nn.Sequential(Gated(), Gated()), x) == []
    assert residual_modules(nn.Sequential(Projected(), nn.Linear(8, 2)), x) == ["0"]
    assert residual_modules(nn.Sequential(LateSkip(), nn.Linear(8, 2)), x) == ["0.block"]
    assert residual_modules(nn.Sequential(nn.Linear(6, 6), nn.ReLU()), x) == []


def test_a_module_that_runs_twice_is_no_block_and_the_insides_of_a_block_are_none() -> None:
    shared = Skip()
    assert residual_modules(nn.Sequential(shared, nn.Linear(6, 6), shared), data(5, 6)) == []

    class Nested(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = Skip()

        def forward(self, x: Tensor) -> Tensor:
            return x + self.inner(x)

    assert residual_modules(nn.Sequential(Nested(), Nested()), data(5, 6)) in (["0", "1"], ["0.inner", "1.inner"])


def test_taps_show_the_stream_in_order_and_what_they_return_takes_its_place() -> None:
    model = nn.Sequential(nn.Linear(4, 6), Plain(), Plain(), nn.Linear(6, 3))
    x = data(5, 4)
    blocks, seen, left = discover_blocks(model, x), [], []
    with tapped(model, blocks, lambda *what: seen.append(what), leave=lambda *what: left.append(what)):
        model(x)
    assert [depth for depth, _ in seen] == [0, 1, 2] and [depth for depth, _ in left] == [0, 1]
    assert torch.equal(seen[1][1], left[0][1]) and torch.equal(seen[0][1], model[0](x))
    with tapped(model, blocks, lambda depth, h: torch.zeros_like(h) if depth == 2 else None):
        assert torch.equal(model(x), model[3].bias.expand(5, 3))
    assert torch.equal(model(x), model[3](seen[2][1])), "and the hooks are gone"


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")
def test_a_stream_is_cut_only_where_every_parameter_still_learns() -> None:
    model = nn.Sequential(nn.Linear(4, 6), Plain(), Plain(), nn.BatchNorm1d(6), nn.Linear(6, 3))
    x = data(5, 4)
    blocks = discover_blocks(model, x)
    before = model[3].running_mean.clone()
    assert can_cut(model, x, blocks) and torch.equal(model[3].running_mean, before)
    model[1].requires_grad_(False)
    assert not can_cut(model, x, blocks), "behind a frozen block nothing would ask for the signal of what is in front"
    model[0].requires_grad_(False)
    assert can_cut(model, x, blocks), "nothing in front of it learns"

    class Hiding(Plain):
        def forward(self, x: Tensor) -> Tensor:
            return checkpoint(super().forward, x, use_reentrant=True)

    hidden = nn.Sequential(nn.Linear(4, 6), Hiding(), Hiding(), nn.Linear(6, 3))
    assert not can_cut(hidden, x, discover_blocks(hidden, x))


class Stage(nn.Module):
    """A wide layer, then ``blocks`` skips of the same width: how much of it is blocks is set by ``inner``."""

    def __init__(self, width: int, blocks: int, *, wide: int) -> None:
        super().__init__()
        self.into, self.out = nn.Linear(width, wide), nn.Linear(wide, width)
        self.blocks = nn.Sequential(*(Skip(width) for _ in range(blocks)))

    def forward(self, x: Tensor) -> Tensor:
        return self.blocks(torch.relu(self.out(self.into(x))))


def test_stages_are_read_by_their_blocks_only_where_these_hold_most_of_the_weights() -> None:
    fine = nn.Sequential(nn.Linear(4, 6), Stage(6, 2, wide=3), Stage(6, 2, wide=3), nn.Linear(6, 2))
    coarse = nn.Sequential(nn.Linear(4, 6), Stage(6, 1, wide=60), Stage(6, 1, wide=60), nn.Linear(6, 2))
    assert discover_blocks(fine, data(5, 4)).names == ("1.blocks.0", "1.blocks.1", "2.blocks.0", "2.blocks.1")
    assert discover_blocks(coarse, data(5, 4)).names == ("1", "2")


def test_a_stage_that_adds_to_its_input_and_holds_one_block_is_read_by_that_block_like_the_others() -> None:
    class Adds(nn.Module):
        def __init__(self, blocks: int) -> None:
            super().__init__()
            self.blocks = nn.Sequential(*(Skip() for _ in range(blocks)))

        def forward(self, x: Tensor) -> Tensor:
            return x + self.blocks(x)

    model = nn.Sequential(Adds(2), Adds(1))
    assert residual_modules(model, data(5, 6)) == ["0.blocks.0", "0.blocks.1", "1.blocks.0"]


def test_layers_beside_each_other_are_told_to_be_no_stream() -> None:
    """Attention written into the model itself: query, key and value follow each other in time, not in the net."""
    class Inline(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.head = nn.Linear(4, 6), nn.Linear(6, 3)
            self.q, self.k, self.v = (nn.Linear(6, 6) for _ in range(3))

        def forward(self, x: Tensor) -> Tensor:
            h = self.first(x)
            return self.head(h + torch.softmax(self.q(h) @ self.k(h).t(), -1) @ self.v(h))

    assert str(discover_blocks(Inline(), torch.randn(5, 4))).startswith(
        "3 blocks (no repeated block: the weight layers between the first and the last, some of which run beside each "
        "other: no stream): q, k, v")
