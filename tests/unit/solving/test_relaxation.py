"""Relaxation: what a status means, and that nothing that failed is passed on as if it had not."""

from __future__ import annotations

import math

import pytest
import torch

from assay.errors import InputError
from assay.solving.relaxation import check_finite, relax
from assay.solving.solution import Diverged, Status


def halve(state):
    return (0.5 * state[0],)


def test_a_contraction_converges_to_its_tolerance_and_says_so():
    solution = relax(halve, (torch.ones(3, dtype=torch.float64),), sweeps=100, tolerance=1e-6)
    assert solution.status is Status.CONVERGED and solution.converged
    # The change of sweep k is 2^-k: the first one at most 1e-6 is number 20.
    assert solution.steps == 20 and solution.residual == pytest.approx(2.0**-20)
    assert len(solution.residuals) == 20


def test_fixed_sweeps_are_all_run_and_only_the_last_is_measured():
    solution = relax(halve, (torch.ones(3, dtype=torch.float64),), sweeps=5)
    assert (solution.status, solution.steps, solution.residuals) == (Status.TRUNCATED, 5, (2.0**-5,))


def test_a_tolerance_that_is_not_reached_is_unconverged_not_converged():
    assert relax(halve, (torch.ones(1),), sweeps=3, tolerance=1e-6).status is Status.UNCONVERGED


def test_a_run_that_grows_is_diverged_before_and_after_it_overflows():
    growing = relax(lambda s: (3 * s[0],), (torch.ones(1),), sweeps=10, tolerance=1e-6)
    overflowing = relax(lambda s: (s[0] * 1e30,), (torch.ones(1),), sweeps=10)
    assert growing.status is Status.DIVERGED and overflowing.status is Status.DIVERGED
    assert not math.isfinite(overflowing.residual)
    with pytest.raises(Diverged, match=r"nudged relaxation diverged.*smaller gamma"):
        overflowing.raise_if_diverged("nudged")


def test_a_limit_cycle_of_bounded_units_is_not_called_converged():
    flipping = relax(lambda s: (-s[0],), (torch.ones(2),), sweeps=50, tolerance=1e-3)
    assert flipping.status is Status.DIVERGED and flipping.residual == 2.0


def test_in_place_sweeps_report_the_same_residuals_as_pure_ones():
    def in_place(state):
        state[0].mul_(0.5)
        return state

    pure = relax(halve, (torch.ones(2),), sweeps=7, trace=True)
    assert relax(in_place, (torch.ones(2),), sweeps=7, trace=True, in_place=True).residuals == pure.residuals


def test_a_state_at_rest_in_its_precision_is_converged_without_a_tolerance():
    assert relax(lambda s: s, (torch.ones(2),), sweeps=2).status is Status.CONVERGED


@pytest.mark.parametrize("settings", [{"sweeps": 0}, {"sweeps": True}, {"sweeps": 3, "tolerance": 0.0}])
def test_impossible_settings_are_refused(settings):
    with pytest.raises(InputError, match="expected"):
        relax(halve, (torch.ones(1),), **settings)


def test_non_finite_entries_are_counted_and_large_finite_ones_are_allowed():
    with pytest.raises(InputError, match="2 NaN or infinite entries among 4"):
        check_finite("inputs", torch.tensor([1.0, math.nan, math.inf, 0.0]))
    check_finite("inputs", torch.full((4,), 3e38))
