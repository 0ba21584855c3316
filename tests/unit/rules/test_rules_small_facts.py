"""Small facts of the rules: each was once changed by a line without any test noticing."""

from __future__ import annotations

import pytest
import torch

from assay.rules import ForwardGradient, WeightPerturbation
from assay.rules.feedback.places import feedback_layers


@pytest.mark.parametrize("rule", [ForwardGradient, WeightPerturbation])
def test_directions_are_drawn_from_seed_0_unless_another_is_given(rule: type) -> None:
    assert rule() == rule(seed=0) != rule(seed=1)


def test_a_product_that_is_written_into_a_tensor_is_left_alone() -> None:
    a, b, out = torch.eye(2), torch.arange(4.0).reshape(2, 2), torch.empty(2, 2)
    with feedback_layers(lambda weight, x: None):
        torch.matmul(a, b, out=out)
        assert torch.equal(torch.mm(a, b), b) and torch.equal(torch.matmul(input=a, other=b), b)
    assert torch.equal(out, b)
