"""Precision, mode, script, size, dtype and container of a small model crossed with every stage of an audit.

Whatever the combination, an audit ends with a finding: a clean model is never broken, a broken one never passes.
"""

from __future__ import annotations

import itertools
import random

import pytest
import torch
from torch import Tensor, nn

from assay import symmetry as sym
from assay.results import Verdict
from assay.seeding import torch_generator

PRECISIONS = (torch.float32, torch.float64, torch.bfloat16)
CONTAINERS = ("tensor", "tuple", "dict", "list")
KINDS = ("real", "tokens", "mask")
EVERY = list(itertools.product(PRECISIONS, (True, False), (True, False), (1, 2, 7), KINDS, CONTAINERS, (False, True)))
DRAWN = random.Random(0).sample(EVERY, 24)


class Pooled(nn.Module):
    """Each entry through a small net with a norm and a dropout, then a sum; ``first`` counts the first entry twice."""

    def __init__(self, *, tokens: bool, first: bool) -> None:
        super().__init__()
        self.lift = nn.Embedding(5, 4) if tokens else nn.Linear(3, 4)
        self.norm, self.drop, self.head, self.first = nn.LayerNorm(4), nn.Dropout(0.1), nn.Linear(4, 2), first

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.tanh(self.drop(self.norm(self.lift(x))))
        pooled = hidden.mean(dim=1)
        if self.first:
            pooled = pooled + hidden[:, 0]
        return self.head(pooled)


class Masked(nn.Module):
    """The same behind a boolean mask."""

    def __init__(self, *, first: bool) -> None:
        super().__init__()
        self.inner = Pooled(tokens=False, first=first)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return self.inner(torch.where(mask.unsqueeze(-1), x, torch.zeros_like(x)))


def case(kind: str, rows: int, dtype: torch.dtype, number: int = 0) -> tuple[Tensor, ...]:
    generator = torch_generator(number, "fuzz")
    if kind == "tokens":
        return (torch.randint(5, (rows, 6), generator=generator),)
    x = torch.randn(rows, 6, 3, generator=generator).to(dtype)
    return (x, torch.rand(rows, 6, generator=generator) > 0.3) if kind == "mask" else (x,)


def contained(parts: tuple[Tensor, ...], container: str):
    names = ("x", "mask")
    if container == "dict":
        return dict(zip(names, parts, strict=False))
    return parts if container == "tuple" or len(parts) > 1 else parts[0]


@pytest.mark.parametrize("drawn", DRAWN, ids=lambda drawn: "-".join(str(one).removeprefix("torch.") for one in drawn))
def test_an_audit_ends_with_a_finding_that_is_not_false(drawn) -> None:
    dtype, training, scripted, rows, kind, container, first = drawn
    model: nn.Module = Masked(first=first) if kind == "mask" else Pooled(tokens=kind == "tokens", first=first)
    model = model.to(dtype).train(training)
    if scripted:
        with pytest.warns(DeprecationWarning):
            model = torch.jit.script(model)
    parts = case(kind, rows, dtype)
    sample = contained(parts, container)
    if container == "list":
        sample = [contained(case(kind, rows, dtype, number), "tuple") for number in range(2)]
    shape = tuple(sym.permuted(1) for _ in parts)
    declared = dict(zip(("x", "mask"), shape, strict=False)) if container == "dict" else shape
    single = container == "tensor" and len(parts) == 1
    spec = sym.Symmetry(sym.S(), inputs=shape[0] if single else declared, outputs=sym.invariant())
    finding = sym.audit_symmetry(model, sample, spec, inputs=4, transforms=4)
    wrong = {check.name: check.reason for check in finding.checks if check.label == "BROKEN"}
    assert finding.verdict is not Verdict.ERROR, finding.reason
    if first:
        assert finding.verdict is Verdict.FAIL, finding.reason
    else:
        assert not wrong and finding.verdict is not Verdict.FAIL, wrong
