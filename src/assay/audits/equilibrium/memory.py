"""The memory audit: does a rule need more memory the longer a relaxation runs, or the deeper a network is?"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

from assay import stats
from assay.audits.equilibrium.agreement import changed, has_setting
from assay.audits.equilibrium.true_gradient import untouched
from assay.errors import expected
from assay.learning.resolve import as_rule
from assay.learning.subjects import subject_of
from assay.models import EnergyMLP
from assay.probe.memory import Peak, measure_peak
from assay.protocols import Clamped, EquilibriumModel, Rule
from assay.results import Control, Figure, Finding, Measurement, Region, Series, Table
from assay.rules import Backprop, EqProp

CALIBRATION = (1000, 250)
"""Rows of float32 allocated one after the other, the first freed before the last: a peak that is known beforehand."""


@dataclass(frozen=True)
class Curve:
    """Peaks of one rule, by number of sweeps."""

    name: str
    sweeps: tuple[int, ...]
    peaks: tuple[Peak, ...]

    @property
    def growth(self) -> float:
        """By how much the largest peak exceeds the smallest, as a share of the smallest."""
        sizes = [peak.bytes for peak in self.peaks]
        return max(sizes) / min(sizes) - 1

    @property
    def per_sweep(self) -> float:
        """Bytes added by each further sweep, between the fewest and the most."""
        return (self.peaks[-1].bytes - self.peaks[0].bytes) / (self.sweeps[-1] - self.sweeps[0])


def audit_memory(
    model: Any,
    x: Tensor,
    y: Tensor,
    *,
    rule: Any,
    sweeps: Sequence[int] = (20, 50, 100, 200),
    limit: float = 0.05,
    depths: Sequence[int] = (1, 2, 4, 8),
    family: Callable[[int], nn.Module] | None = None,
    device: str | None = None,
    subject: str = "",
) -> Finding:
    """Whether the peak memory of ``rule`` stays within ``limit`` from the fewest to the most ``sweeps``.

    Measured, not computed: every tensor made during ``rule.backward`` is counted while it lives. Backprop through the
    same sweeps is measured beside it and must be seen to grow, or the meter is not trusted. Ordinary backprop of the
    same network without feedback is reported beside both. ``family(depth)`` makes networks of other depths (known for
    EnergyMLP); growth with depth is reported, and no rule that stores its states escapes it.

    The count is of tensor storage on top of parameters and inputs: allocator slack, library buffers inside one
    operation and the interpreter are not in it.

    >>> import assay
    >>> model = assay.models.EnergyMLP([4, 8, 8, 3], seed=0)
    >>> x, y = torch.zeros(5, 4), torch.zeros(5, dtype=torch.long)
    >>> audit_memory(model, x, y, rule=assay.EqProp(), sweeps=(5, 50)).verdict
    <Verdict.PASS: 'PASS'>
    """
    model, x, y = subject_of(model, x, y, device=device)
    rule = as_rule(rule, model)
    counts = _check_arguments(model, rule, x=x, y=y, sweeps=sweeps, limit=limit)
    ours = _curve(type(rule).__name__, model, rule=rule, x=x, y=y, counts=counts)
    through_time = EqProp(nudge="bptt")
    theirs = _curve("backprop through the sweeps", model, rule=through_time, x=x, y=y, counts=counts)
    decision = stats.numeric_match(
        [100 * ours.growth], 100 * limit, labels=["all sweeps"], name="growth of the peak", unit="%"
    )
    controls = (_calibration(), *_curve_controls(theirs, model, x=x, y=y, counts=counts, limit=limit))
    by_depth = _by_depth(
        model, rule, through_time=through_time, x=x, y=y, depths=depths, family=family, sweeps=counts[0]
    )
    plain, last = _plain_peak(model, x, y), counts[-1]
    return Finding(
        subject=subject or f"{type(rule).__name__} on {type(model).__name__}",
        name="memory",
        title="Memory",
        claim=f"Peak memory grows by at most {limit:.0%} from {counts[0]} to {last} sweeps.",
        verdict=decision.verdict,
        reason=f"the peak grew by {ours.growth:.1%} from {counts[0]} to {last} sweeps "
        f"({_kilobytes(ours.peaks[0])} to {_kilobytes(ours.peaks[-1])} kB), limit {limit:.0%}; backprop through the "
        f"sweeps grew by {theirs.growth:.0%}",
        experiment=f"Tensor storage alive at once during one gradient of {len(x)} rows, counted at every operation.",
        key_finding=f"{_kilobytes(ours.peaks[-1])} kB at {last} sweeps, {_kilobytes(theirs.peaks[-1])} kB for backprop "
        f"through them: a factor {theirs.peaks[-1].bytes / ours.peaks[-1].bytes:.1f}.",
        score=decision.score,
        evidence=stats.evidence_level(
            kind="deterministic", n=len(counts), controls_separated=all(control.separated for control in controls)
        ),
        headline=decision.measurement.name,
        measurements=(
            decision.measurement.model_copy(
                update={"n": len(counts), "of": "numbers of sweeps", "region": Region(high=round(100 * limit, 10))}
            ),
            *(
                Measurement(name=name, value=curve.per_sweep, unit="B", n=len(counts), of="numbers of sweeps")
                for name, curve in (("bytes per further sweep", ours), ("bytes per further sweep, backprop", theirs))
            ),
            *_beside_backprop(ours, plain, by_depth),
        ),
        tables=(_sweep_table(ours, theirs), *_depth_tables(by_depth, counts[0])),
        figures=(_figure("memory-by-sweeps", "Does memory grow with the number of sweeps?", "sweeps", (ours, theirs)),
                 *_depth_figures(by_depth)),
        checks=(decision.check("flat in the number of sweeps"),),
        controls=controls,
        limitations=(
            "Tensor storage beyond parameters and inputs; slack of the allocator and the interpreter are not counted.",
            f"One batch of {len(x)}; states grow in proportion to it for every rule.",
        ),
        varied=("sweeps", *(("depth",) if by_depth else ())),
    )  # fmt: skip


@runtime_checkable
class FeedForward(Protocol):
    """A model that knows the ordinary network it becomes without feedback."""

    def feedforward(self) -> nn.Module: ...


def _plain_peak(model: nn.Module, x: Tensor, y: Tensor) -> Peak | None:
    """The peak of ordinary backprop of the same network without feedback; None where there is none."""
    if not isinstance(model, FeedForward) or y.is_floating_point():
        return None
    plain = untouched(model.feedforward())
    Backprop().backward(plain, x, y)
    for parameter in plain.parameters():
        parameter.grad = None
    return measure_peak(lambda: Backprop().backward(plain, x, y))


def _beside_backprop(ours: Curve, plain: Peak | None, by_depth: Sequence[Curve]) -> tuple[Measurement, ...]:
    """The peak as a multiple of ordinary backprop's: of this network, and of the deepest of its family."""
    found = []
    if plain is not None:
        found.append(Measurement(name="peak over ordinary backprop", value=ours.peaks[-1].bytes / plain.bytes))
    if len(by_depth) == 3:
        own, _, ordinary = by_depth
        found.append(Measurement(name=f"peak over ordinary backprop, {own.sweeps[-1]} hidden layers",
                                 value=own.peaks[-1].bytes / ordinary.peaks[-1].bytes))
    return tuple(found)


def _curve(name: str, model: nn.Module, *, rule: Rule, x: Tensor, y: Tensor, counts: Sequence[int]) -> Curve:
    return Curve(name, tuple(counts), tuple(_peak(model, rule, x, y, sweeps=count) for count in counts))


def _peak(model: nn.Module, rule: Rule, x: Tensor, y: Tensor, *, sweeps: int) -> Peak:
    twin = untouched(model)
    if has_setting(rule, "sweeps"):
        rule = changed(rule, sweeps=(sweeps, sweeps))
        if has_setting(rule, "tolerance"):
            rule = changed(rule, tolerance=None)
    else:
        cast(Any, twin).sweeps = sweeps
    # The first call makes gradients and caches; what a training step needs is what the second call needs.
    rule.backward(twin, x, y)
    for parameter in twin.parameters():
        parameter.grad = None
    return measure_peak(lambda: rule.backward(twin, x, y))


def _calibration() -> Control:
    """A call whose peak is known: 4 x 1000 x (1000 + 250) bytes."""
    rows, later = CALIBRATION

    def call() -> None:
        first = torch.empty(rows, rows)
        kept = torch.empty(later, rows)
        del first
        torch.empty(rows // 2, rows)
        del kept

    found, known = measure_peak(call).bytes, 4 * rows * (rows + later)
    return Control(name="a known allocation", kind="known-good", expected=f"{known} bytes", observed=f"{found} bytes",
                   separated=found == known)  # fmt: skip


class _Hoarder:
    """EqProp that keeps a copy of its input for every sweep: a leak the audit must see."""

    def __init__(self, sweeps: tuple[int, int] = (20, 20)) -> None:
        self.sweeps = sweeps

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        kept = [x + 0 for _ in range(self.sweeps[0])]
        loss = EqProp(sweeps=self.sweeps).backward(model, x, y)
        return loss + 0 * sum(float(copy[0].sum()) for copy in kept)


def _curve_controls(
    theirs: Curve, model: nn.Module, *, x: Tensor, y: Tensor, counts: Sequence[int], limit: float
) -> tuple[Control, ...]:
    curves = [theirs]
    if x.is_floating_point() and cast(EquilibriumModel[Clamped], model).symmetric:
        curves.append(_curve("EqProp that keeps a tensor per sweep", model, rule=_Hoarder(), x=x, y=y, counts=counts))
    return tuple(
        Control(name=curve.name, kind="known-bad", expected=f"growth above {limit:.0%}",
                observed=f"growth {curve.growth:.0%}", separated=curve.growth > limit)
        for curve in curves
    )  # fmt: skip


def _by_depth(
    model: nn.Module,
    rule: Rule,
    *,
    through_time: Rule,
    x: Tensor,
    y: Tensor,
    depths: Sequence[int],
    family: Callable[[int], nn.Module] | None,
    sweeps: int,
) -> tuple[Curve, ...]:
    """Peaks against depth at a fixed number of sweeps; none where no family is known."""
    if family is None and isinstance(model, EnergyMLP):
        widths, gamma, name, readout = model.widths, model.gamma, model.activation.name, model.readout

        def family(depth: int) -> nn.Module:
            layers = [widths[0], *[widths[1]] * depth, widths[-1]]
            return EnergyMLP(layers, gamma=gamma, activation=name, readout=readout).to(x.dtype)

    if family is None:
        return ()
    curves = [
        Curve(name, tuple(depths), tuple(_peak(family(depth), a_rule, x, y, sweeps=sweeps) for depth in depths))
        for name, a_rule in ((type(rule).__name__, rule), ("backprop through the sweeps", through_time))
    ]
    ordinary = [_plain_peak(family(depth), x, y) for depth in depths]
    if all(peak is not None for peak in ordinary):
        curves.append(Curve("ordinary backprop", tuple(depths), tuple(p for p in ordinary if p is not None)))
    return tuple(curves)


def _sweep_table(ours: Curve, theirs: Curve) -> Table:
    rows = tuple(
        (count, _kilobytes(a), _kilobytes(b), b.bytes / a.bytes)
        for count, a, b in zip(ours.sweeps, ours.peaks, theirs.peaks, strict=True)
    )
    columns = ("Sweeps", f"{ours.name} (kB)", f"{theirs.name} (kB)", "ratio")
    return Table(title="Peak memory against the number of sweeps", columns=columns, rows=rows)


def _depth_tables(curves: Sequence[Curve], sweeps: int) -> tuple[Table, ...]:
    if not curves:
        return ()
    rows = tuple((depth, *(_kilobytes(curve.peaks[i]) for curve in curves)) for i, depth in enumerate(curves[0].sweeps))
    columns = ("Hidden layers", *(f"{curve.name} (kB)" for curve in curves))
    return (Table(title=f"Peak memory against depth, {sweeps} sweeps", columns=columns, rows=rows),)


def _depth_figures(curves: Sequence[Curve]) -> tuple[Figure, ...]:
    return (_figure("memory-by-depth", "And with depth?", "hidden layers", curves),) if curves else ()


def _figure(key: str, question: str, label: str, curves: Sequence[Curve]) -> Figure:
    series = tuple(
        Series(name=c.name, x=tuple(map(float, c.sweeps)), y=tuple(_kilobytes(peak) for peak in c.peaks))
        for c in curves
    )
    return Figure(key=key, question=question, x_label=label, y_label="peak (kB)", series=series)


def _kilobytes(peak: Peak) -> float:
    return round(peak.bytes / 1000, 1)


def _check_arguments(
    model: nn.Module, rule: Rule, *, x: Tensor, y: Tensor, sweeps: Sequence[int], limit: float
) -> tuple[int, ...]:
    if not isinstance(model, EquilibriumModel):
        raise expected("an equilibrium model", given=type(model).__name__, do="a feed-forward module has no sweeps")
    if not has_setting(rule, "sweeps") and not hasattr(model, "sweeps"):
        raise expected("a rule or model with `sweeps`", given=type(rule).__name__)
    counts = tuple(sorted(set(sweeps)))
    if len(counts) < 2 or counts[0] < 1:
        raise expected("at least two different numbers of sweeps >= 1", given=f"sweeps={tuple(sweeps)}")
    if len(x) != len(y) or len(x) == 0:
        raise expected("as many targets as inputs, at least one", given=f"{len(x)} inputs and {len(y)} targets")
    if not 0 < limit < 1:
        raise expected("a limit between 0 and 1", given=f"limit={limit!r}", do="it is a share of the smallest peak")
    return counts


__all__ = ["audit_memory"]
