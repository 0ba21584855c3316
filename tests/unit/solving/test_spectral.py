"""The spectral norm: as good as a decomposition, certified, and not fooled by a start beside the largest direction."""

from __future__ import annotations

import pytest
import torch

from assay.errors import InputError
from assay.models import LoopedMLP
from assay.rules import EqProp
from assay.seeding import torch_generator
from assay.solving.spectral import BLOCK, SLACK, keep_bounded, spectral_norm


def matrix(rows, columns, seed=0):
    return torch.randn(rows, columns, generator=torch_generator(seed, "matrix"))


@pytest.mark.parametrize("shape", [(5, 5), (40, 90), (90, 40), (1, 7)])
def test_it_is_the_largest_singular_value_from_any_start(shape):
    weight = matrix(*shape)
    true = float(torch.linalg.matrix_norm(weight, ord=2))
    for guess in (None, torch.zeros(shape[0], BLOCK), matrix(shape[0], BLOCK, seed=1)):
        found = spectral_norm(weight, guess)
        assert abs(float(found.of(weight)) / true - 1) < SLACK
    warm = spectral_norm(weight + 1e-3 * matrix(*shape, seed=2), found.block)
    assert abs(float(warm.of(weight)) / true - 1) < 1e-3


def test_a_start_beside_the_largest_direction_is_caught_by_the_certificate():
    values = torch.diag(torch.tensor([3.0, 2.0] + [1.0] * 28))
    beside = torch.eye(30)[:, 1 : BLOCK + 1]
    found = spectral_norm(values, beside)  # without rounding the iteration would stay at 2 for ever
    assert float(found.of(values)) == pytest.approx(3.0) and not found.certified
    left, _, right = torch.linalg.svd(matrix(30, 30), full_matrices=False)
    weight = left @ values @ right
    assert float(spectral_norm(weight, left @ beside).of(weight)) == pytest.approx(3.0, rel=1e-4)


@pytest.mark.parametrize("gap", [1e-1, 1e-2, 1e-3])
def test_its_derivative_is_right_where_singular_values_nearly_meet(gap):
    left, _, right = torch.linalg.svd(matrix(60, 60).double())
    crowd = 1 - gap * torch.arange(20).double()
    weight = (left[:, :20] * crowd.clamp_min(0.1) @ right[:20]).float()
    found = spectral_norm(weight, matrix(60, BLOCK, seed=3))
    # Rounding of the matrix itself turns its directions by eps / gap; the iteration may add as much again and a bit.
    ours, true = torch.outer(found.left, found.right).double(), torch.outer(left[:, 0], right[0])
    assert float((ours - true).norm()) < 2e-5 / gap


def test_its_derivative_is_that_of_the_norm():
    weight = matrix(20, 30).requires_grad_()
    (ours,) = torch.autograd.grad(spectral_norm(weight.detach()).of(weight), weight)
    (true,) = torch.autograd.grad(torch.linalg.matrix_norm(weight, ord=2), weight)
    assert float((ours - true).norm()) < 1e-2


def test_a_zero_matrix_has_norm_zero():
    assert float(spectral_norm(torch.zeros(4, 6)).of(torch.zeros(4, 6))) == 0.0


def test_a_loop_in_float32_has_the_gradient_of_float64():
    x, y = matrix(16, 24), torch.arange(16) % 5
    found = []
    for dtype in (torch.float32, torch.float64):
        model = LoopedMLP(24, 32, 5, bound=0.8, seed=0).to(dtype)
        with torch.no_grad():
            model.loop.weight.mul_(4)
        EqProp(sweeps=(80, 80)).backward(model, x.to(dtype), y)
        found.append(torch.cat([p.grad.double().flatten() for p in model.parameters()]))
    assert float((found[0] - found[1]).norm() / found[1].norm()) < 1e-3


@pytest.mark.parametrize("kind", ["linear", "convolution"])
def test_a_bounded_weight_stays_bounded_while_it_is_trained(kind):
    generator = torch_generator(0, "bounded")
    layer = torch.nn.Linear(256, 256) if kind == "linear" else torch.nn.Conv2d(16, 32, 3)
    x = torch.randn(64, 256, generator=generator) if kind == "linear" else torch.randn(8, 16, 8, 8, generator=generator)
    with torch.no_grad():
        layer.weight.uniform_(-0.1, 0.1, generator=generator)
    optimiser = keep_bounded(torch.optim.Adam(layer.parameters(), lr=1e-3), [layer.weight], bound=0.5)
    assert torch.linalg.matrix_norm(layer.weight.detach().flatten(1), 2) < 0.5 * 1.0001
    norms = []
    for _ in range(80):
        optimiser.zero_grad()
        (-layer(x).mean(0).abs().sum()).backward()
        optimiser.step()
        norms.append(float(torch.linalg.matrix_norm(layer.weight.detach().flatten(1), 2)))
    # A direction that appears at once, as in Adam's first steps, is caught within some ten.
    assert max(norms[20:]) < 0.5 * 1.02


@pytest.mark.parametrize("shape", [(6, 20), (20, 6)])
def test_each_singular_value_is_brought_down_and_the_others_stay(shape):
    weight = torch.nn.Parameter(matrix(*shape))
    left, values, right = torch.linalg.svd(weight.detach(), full_matrices=False)
    bound = float(values[2])
    optimiser = keep_bounded(torch.optim.SGD([weight], lr=0.1), [weight], bound=bound, each=True)
    torch.testing.assert_close(weight.detach(), (left * values.clamp(max=bound)) @ right, atol=1e-5, rtol=1e-4)
    before = weight.detach().clone()
    weight.grad = torch.zeros_like(weight)
    optimiser.step()  # within the bound already: nothing is left to do
    torch.testing.assert_close(weight.detach(), before, atol=1e-5, rtol=1e-4)
    weight.grad = -10 * torch.ones_like(weight)
    optimiser.step()
    assert torch.linalg.matrix_norm(weight.detach(), 2) < 1.0001 * bound


def test_a_bound_of_nothing_is_refused():
    layer = torch.nn.Linear(4, 4)
    with pytest.raises(InputError, match="bound"):
        keep_bounded(torch.optim.SGD(layer.parameters(), lr=0.1), [layer.weight], bound=0.0)
