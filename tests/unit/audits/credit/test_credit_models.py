"""The published architectures: their shapes, their starting statistics and their seeds."""

from __future__ import annotations

import pytest
import torch

from assay.errors import InputError
from assay.networks.feedforward.res_mlp import ResMLP
from assay.networks.feedforward.small_resnet import SmallResNet
from assay.networks.feedforward.vit_mini import ViTMini
from assay.seeding import torch_generator


def test_a_fresh_resmlp_block_writes_about_a_tenth_of_the_stream() -> None:
    """Published: |f| / |h| about 0.096 in the first block. One seed's spread over samples and seeds is below 2 %."""
    x = torch.randn(512, 3072, generator=torch_generator(0, "x"))
    ratios = []
    for seed in range(3):
        model = ResMLP(seed=seed)
        with torch.no_grad():
            h = model.embed(x)
            for block in model.blocks:
                ratios.append(float((block.write(h).norm(dim=1) / h.norm(dim=1)).mean()))
                h = block(h)
    assert ratios[0::4] == pytest.approx([0.096] * 3, rel=0.02)
    assert all(0.09 < ratio < 0.10 for ratio in ratios)


def test_write_matrices_start_small_and_their_biases_at_zero() -> None:
    model = ResMLP(seed=0)
    for block in model.blocks:
        assert float(block.w2.weight.detach().std()) == pytest.approx(0.01, rel=0.01)
        assert not block.w2.bias.any()


def test_resmlp_has_the_published_size() -> None:
    """3072 x 256 + 256 in, four blocks of two 256 x 256 matrices, head of 10."""
    block = 2 * 256 + 2 * (256 * 256 + 256)
    assert sum(p.numel() for p in ResMLP().parameters()) == 3072 * 256 + 256 + 4 * block + 2 * 256 + 2570


@pytest.mark.parametrize("build", [lambda s: ResMLP(48, width=8, depth=2, seed=s),
                                   lambda s: ViTMini(size=4, patch=2, width=8, depth=1, heads=2, seed=s),
                                   lambda s: SmallResNet(width=2, blocks_per_stage=1, seed=s)])
def test_the_seed_alone_decides_the_weights(build) -> None:
    before = torch.get_rng_state()
    one, same, other = build(1), build(1), build(2)
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(a, b) for a, b in zip(one.parameters(), same.parameters(), strict=True))
    assert any(not torch.equal(a, b) for a, b in zip(one.parameters(), other.parameters(), strict=True))
    assert all(p.isfinite().all() for p in one.parameters())


def test_default_weights_have_the_statistics_of_pytorchs_own() -> None:
    ours, theirs = ResMLP(seed=0).embed, torch.nn.Linear(3072, 256)
    assert float(ours.weight.detach().std()) == pytest.approx(float(theirs.weight.detach().std()), rel=0.01)
    assert float(ours.weight.detach().abs().max()) <= 3072**-0.5


def test_convolutional_stages_halve_the_picture_and_double_the_width() -> None:
    model = SmallResNet(width=4, blocks_per_stage=2)
    assert [tuple(block.conv1.weight.shape[:2]) for block in model.blocks] == [
        (4, 4), (4, 4), (8, 4), (8, 8), (16, 8), (16, 16)]


@pytest.mark.parametrize(("model", "shape"), [
    (ResMLP(12, width=4, depth=1), (2, 13)),
    (ViTMini(size=8, patch=4, width=8, depth=1, heads=2), (2, 3, 16, 16)),
    (SmallResNet(width=2), (2, 1, 8, 8)),
])
def test_inputs_of_the_wrong_shape_are_named(model, shape) -> None:
    with pytest.raises(InputError, match=r"expected .* given"):
        model(torch.zeros(shape))
