"""Activations: the cost of a unit and its activation belong together, or EP is not the gradient."""

from __future__ import annotations

import pytest
import torch

from assay.errors import InputError
from assay.solving.activations import activation

DRIVES = torch.linspace(-2, 2, 41, dtype=torch.float64)


@pytest.mark.parametrize("name", ["tanh", "smooth", "identity"])
def test_the_slope_of_the_cost_is_the_inverse_of_the_activation(name):
    unit = activation(name)
    state = unit.function(DRIVES).requires_grad_()
    (slope,) = torch.autograd.grad(unit.cost(state).sum(), state)
    # atanh of a state loses about eps / (1 - s^2), at most 30 eps for |a| <= 2.
    torch.testing.assert_close(slope, DRIVES, rtol=0, atol=1e-13)


@pytest.mark.parametrize("name", ["tanh", "smooth", "clipped", "identity"])
def test_a_unit_settles_where_its_energy_is_lowest(name):
    unit = activation(name)
    low, high = {"tanh": (-1, 1), "identity": (-3, 3)}.get(name, (0, 1))
    candidates = torch.linspace(low, high, 2001, dtype=torch.float64)
    energies = unit.cost(candidates) - DRIVES.unsqueeze(1) * candidates
    best = candidates[energies.argmin(1)]
    assert (best - unit.function(DRIVES)).abs().max() <= (high - low) / 2000


@pytest.mark.parametrize("name", ["tanh", "smooth", "clipped", "identity"])
def test_the_slope_written_in_the_state_is_the_derivative(name):
    unit = activation(name)
    drives = (DRIVES + 0.0123).requires_grad_()  # off the kinks of the clipped unit
    state = unit.function(drives)
    (derivative,) = torch.autograd.grad(state.sum(), drives)
    torch.testing.assert_close(unit.slope(state.detach()), derivative, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("name", ["tanh", "smooth"])
def test_an_affine_sigmoid_is_the_activation(name):
    unit = activation(name)
    p, q, r, t = unit.sigmoid
    torch.testing.assert_close(p * torch.sigmoid(q * DRIVES + r) + t, unit.function(DRIVES), rtol=0, atol=4e-16)


def test_a_saturated_unit_has_a_finite_cost():
    assert torch.isfinite(activation("tanh").cost(torch.tensor([-1.0, 1.0]))).all()
    assert torch.isfinite(activation("smooth").cost(torch.tensor([0.0, 1.0]))).all()


def test_an_unknown_activation_is_refused_with_the_nearest_name():
    with pytest.raises(InputError, match="did you mean 'tanh'"):
        activation("tahn")


def test_a_clipped_unit_refuses_complex_drives():
    with pytest.raises(InputError, match="no complex extension"):
        activation("clipped").function(torch.zeros(1, dtype=torch.complex64))
