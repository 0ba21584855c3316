"""Two claims that are not about changed inputs: decoding with a cache, and gradients of micro-batches."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn

from assay.audits.dependence.declarations import Accumulation, Cache
from assay.audits.dependence.measure import Movement, Passes
from assay.errors import expected
from assay.probe import tree
from assay.probe.rounding import VANISHES
from assay.probe.subject import Leaves, Precision, Probe
from assay.probe.values import exact, exact_spread


def decoded(passes: Passes, depends: Cache) -> tuple[list[Movement], tuple[float, ...]]:
    """The step-by-step outputs against the full pass, and the largest difference at each place."""
    probe = passes.probe
    leaf = next(x for x in probe.cases[0] if isinstance(x, Tensor))
    if leaf.ndim <= depends.inputs_dim or leaf.shape[depends.inputs_dim] < 2:
        raise expected(f"an input of at least two places along axis {depends.inputs_dim}", given=tuple(leaf.shape))
    full = {p: passes(probe.cases[0], p)[0] for p in probe.precisions}
    steps = {p: _step_by_step(probe, leaf, depends, p) for p in probe.precisions}
    name, best = probe.output_names[0], probe.precisions[-1]
    if full["low"].shape != steps["low"].shape:
        why = f"shape {tuple(steps['low'].shape)} instead of {tuple(full['low'].shape)}"
        return [Movement("step by step", name, math.inf, math.inf, 0.0, True, why)], ()
    gap = (full[best] - steps[best]).abs()
    if best == "high":
        allowed = float((full["low"] - full["high"]).abs().max()) + float((steps["low"] - steps["high"]).abs().max())
    else:
        allowed = 64 * torch.finfo(probe.low_dtype).eps * float(full["low"].abs().max())
    largest = float(gap.max()) if bool(torch.isfinite(gap).all()) else math.inf
    by_place = tuple(float(v) for v in gap.movedim(depends.outputs_dim, 0).flatten(1).amax(1))
    leaks = not largest <= allowed
    first = next((t for t, v in enumerate(by_place) if not v <= allowed), None)
    why = f"differs by {largest:.2g}; rounding of both explains {allowed:.2g}"
    why += f"; first at place {first}" if first is not None else ""
    return [Movement("step by step", name, largest, largest / exact_spread(full[best]), allowed, leaks, why)], by_place


def _step_by_step(probe: Probe, leaf: Tensor, depends: Cache, precision: Precision) -> Tensor:
    model, state, found = probe.twin(precision), None, []
    (fed,) = probe.fed([leaf], model, probe.dtype(precision))
    with torch.set_grad_enabled(probe.needs_grad):
        for place in range(leaf.shape[depends.inputs_dim]):
            y, state = depends.step(model, fed.narrow(depends.inputs_dim, place, 1), state)
            found.append(exact(y))
    probe.cost.add(probe.first_axis([leaf]))
    return torch.cat(found, depends.outputs_dim)


def accumulated(probe: Probe, depends: Accumulation) -> list[Movement]:
    """The averaged gradient of the parts against that of the whole, by parameter."""
    leaves = probe.cases[0]
    rows = probe.first_axis(leaves)
    if rows % depends.parts:
        raise expected(f"a batch that splits into {depends.parts} equal parts", given=f"{rows} rows")
    precision = probe.precisions[-1]
    model, dtype = probe.twin(precision), probe.dtype(precision)
    whole = _gradients(probe, leaves, depends, model=model, dtype=dtype)
    size = rows // depends.parts
    pieces = [
        [x[i * size : (i + 1) * size] if isinstance(x, Tensor) and x.ndim and len(x) == rows else x for x in leaves]
        for i in range(depends.parts)
    ]
    parts = [_gradients(probe, piece, depends, model=model, dtype=dtype) for piece in pieces]
    share = VANISHES if precision == "high" else 64 * torch.finfo(probe.low_dtype).eps
    largest = max((float(g.abs().max()) for g in whole.values() if g.numel()), default=0.0)
    if not largest:
        raise expected("a loss with a gradient", given="a gradient of zero everywhere")
    found = []
    for name, gradient in whole.items():
        mean = torch.stack([part[name] for part in parts]).mean(0)
        gap = float((mean - gradient).abs().max())
        why = f"the averaged gradient is off by {gap / largest:.2g} of the largest gradient"
        found.append(Movement("averaged", f"gradient of {name}", gap, gap / largest, share * largest,
                              not gap <= share * largest, why))  # fmt: skip
    return found


def _gradients(
    probe: Probe, leaves: Leaves, depends: Accumulation, *, model: nn.Module, dtype: torch.dtype
) -> dict[str, Tensor]:
    batch: Any = tree.rebuild(probe.template, iter(probe.fed(leaves, model, dtype)))
    probe.cost.add(probe.first_axis(leaves))
    weights = {name: p for name, p in model.named_parameters() if p.requires_grad}
    with torch.enable_grad():
        loss = depends.loss(model, batch)
        found = torch.autograd.grad(loss, list(weights.values()), allow_unused=True)
    return {n: exact(torch.zeros_like(p) if g is None else g) for (n, p), g in zip(weights.items(), found, strict=True)}
