"""The stability audit: is the map that a relaxation repeats a contraction on these inputs, and does it come to rest?"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from assay import stats
from assay.audits.equilibrium.lipschitz import Attack, Trace, attack, trace
from assay.audits.equilibrium.step_maps import Certificate, StepMap, certify, step_map
from assay.audits.equilibrium.true_gradient import in_float64
from assay.errors import expected
from assay.learning.subjects import subject_of
from assay.results import Check, Control, Figure, Finding, Measurement, Reference, Series, Table, Verdict

SETTLED = 1e-8
"""A float64 relaxation whose units move by less has settled for any purpose of float32 (epsilon 1e-7)."""


def audit_stability(
    model: Any,
    x: Tensor,
    *,
    limit: float = 1.0,
    sweeps: int = 200,
    seed: int = 0,
    step: Callable[[Tensor, Tensor], Tensor] | None = None,
    start: Tensor | None = None,
    certificate: float | None = None,
    device: str | None = None,
    subject: str = "",
) -> Finding:
    """Whether one step of the model, on the inputs ``x``, stretches no difference of states by more than ``limit``.

    The claim is about every state, so it needs two bounds: a certified upper bound (known for LoopedMLP and EnergyMLP;
    pass ``certificate=`` for another map) and the largest stretch an attack could find. PASS needs the certificate to
    stay within the limit, FAIL an attack above it; in between nothing is decided. For a module that is not an
    equilibrium model give its ``step(x, h)`` and the ``start`` state.

    Also reported, but no part of the verdict: the contraction rate of the relaxation, the share of inputs that settle,
    and whether it diverged. A map with L > 1 may settle all the same, and L <= 1 does not mean that it learns.

    >>> import assay
    >>> model = assay.models.LoopedMLP(4, 8, 3, spectral_norm=True, seed=0)
    >>> audit_stability(model, torch.linspace(-1, 1, 20).reshape(5, 4)).verdict
    <Verdict.PASS: 'PASS'>
    """
    model, x, start = subject_of(model, x, start, seed=seed, device=device)
    _check_arguments(x, limit, sweeps)
    precise, inputs = in_float64(model, x)
    subject_map = step_map(precise, inputs, step=step, start=start.double() if start is not None else None)
    path = trace(subject_map, sweeps)
    name = subject or type(model).__name__
    if not path.finite:
        return _diverged(name, path, limit)
    found = attack(subject_map, path, seed=seed)
    bound = _certificate(precise, inputs, certificate, use_model=step is None)
    rounding = _rounding(model)
    decision = stats.constrained(
        found.lower, max(bound.rows) if bound else None, limit, rounding=rounding, name="Lipschitz constant of the step"
    )
    controls = _controls(limit, seed)
    settled, rate = path.settled(SETTLED), path.rate(SETTLED)
    return Finding(
        subject=name,
        name="stability",
        title="Stability",
        claim=f"One step stretches no difference between states by more than {limit:g}.",
        verdict=decision.verdict,
        reason=decision.reason,
        experiment=f"{len(x)} inputs clamped, float64; power iteration on the Jacobian along {sweeps} sweeps, "
        f"at random states and uphill from the worst.",
        key_finding=_key_finding(found, bound, settled, rate),
        score=decision.score,
        evidence=stats.evidence_level(
            kind="deterministic", n=len(x), controls_separated=all(control.separated for control in controls)
        ),
        headline=decision.measurement.name,
        measurements=(
            decision.measurement.model_copy(update={"n": len(x), "of": "inputs"}),
            *_measurements(found, bound, settled, rate=rate, path=path),
        ),
        tables=(_table(found, bound, limit),),
        figures=(_residual_figure(path), _bound_figure(found, bound, limit)),
        checks=(decision.check("bounds"), _settles(settled, sweeps)),
        controls=controls,
        limitations=(
            f"The bounds hold for these {len(x)} inputs"
            + (f"; for every input at all L <= {bound.everywhere:.4g}." if bound else "."),
            *(() if bound else ("No certificate is known for this map: an attack alone cannot pass it.",)),
            "The free sweep in the Euclidean norm of all units; a nudge adds up to |beta| |W_o|^2 / 4 at the top.",
        ),
        varied=("inputs", "states", "float64"),
    )


def _settles(share: float, sweeps: int) -> Check:
    return Check(
        name="the relaxation settles",
        verdict=Verdict.PASS if share == 1.0 else Verdict.PARTIAL,
        reason=f"{share:.0%} of the inputs move by less than {SETTLED:g} after {sweeps} sweeps",
        label="not part of the verdict",
    )


def _certificate(model: nn.Module, x: Tensor, given: float | None, *, use_model: bool) -> Certificate | None:
    if given is not None:
        return Certificate(float(given), (float(given),) * len(x), "given by the caller")
    return certify(model, x) if use_model else None


def _rounding(model: nn.Module) -> float:
    """Weights normalised in their own precision exceed the bound by up to their width times its epsilon."""
    parameters = list(model.parameters())
    if not parameters:
        return torch.finfo(torch.float64).eps
    width = max(max(p.shape, default=1) for p in parameters)
    return float(width * max(torch.finfo(p.dtype).eps for p in parameters if p.is_floating_point()))


def _controls(limit: float, seed: int) -> tuple[Control, ...]:
    """Two linear maps whose constant is known: one below the limit and one above, both with a correct certificate."""
    controls = []
    for factor, good in ((0.9, True), (1.1, False)):
        size = factor * limit
        values = torch.linspace(0.1, 1.0, 6, dtype=torch.float64) * size
        rotation = torch.linalg.qr(torch.vander(torch.linspace(-1, 1, 6, dtype=torch.float64))).Q
        weight = rotation @ torch.diag(values) @ rotation.flip(0)
        planted = _planted(weight, limit)
        path = trace(planted, 20)
        found = attack(planted, path, seed=seed, rounds=60, climbs=2, random_states=1)
        decision = stats.constrained(found.lower, size, limit, rounding=1e-12)
        controls.append(
            Control(
                name=f"linear map of norm {size:g}",
                kind="known-good" if good else "known-bad",
                expected="PASS" if good else "FAIL",
                observed=f"{decision.verdict}: attack reached {found.lower:.6g}",
                separated=decision.verdict is (Verdict.PASS if good else Verdict.FAIL),
            )
        )
    return tuple(controls)


def _planted(weight: Tensor, limit: float) -> StepMap:
    start = torch.ones(2, len(weight), dtype=weight.dtype) * limit
    return StepMap(lambda state: (state[0] @ weight.t(),), (start,), ((-1.0, 1.0),))


def _measurements(
    found: Attack, bound: Certificate | None, settled: float, *, rate: float | None, path: Trace
) -> tuple[Measurement, ...]:
    n = len(found.worst)
    numbers = [
        Measurement(name="attacked lower bound", value=found.lower, n=n, note="largest over inputs and states"),
        Measurement(name="largest stretch at rest", value=max(found.at_rest), n=n, note="at the end of the relaxation"),
        Measurement(name="inputs that settle", value=100 * settled, unit="%", n=n),
        Measurement(name="last change", value=float(path.changes[-1].max()), n=n, note="largest over inputs and units"),
    ]
    if bound is not None:
        numbers += [
            Measurement(
                name="certified on these inputs", value=max(bound.rows), n=n, source="derived", note=bound.method
            ),
            Measurement(
                name="certified for every input", value=bound.everywhere, n=n, source="derived", note=bound.method
            ),
        ]
    numbers.append(
        Measurement(name="contraction rate", value=rate, n=n, note="of the slowest input, from its residuals")
    )
    return tuple(one.model_copy(update={"of": "inputs"}) for one in numbers)


def _table(found: Attack, bound: Certificate | None, limit: float) -> Table:
    rows: list[tuple[str, float | None, str]] = [
        ("attacked, at rest", max(found.at_rest), "power iteration where the relaxation ends"),
        ("attacked, worst state", found.lower, "power iteration along the way, at random states, and uphill"),
        ("certified, these inputs", max(bound.rows) if bound else None, bound.method if bound else "none known"),
        ("certified, every input", bound.everywhere if bound else None, bound.method if bound else "none known"),
    ]
    return Table(
        title=f"Lipschitz constant of one step (limit {limit:g})", columns=("Bound", "L", "How"), rows=tuple(rows)
    )


def _residual_figure(path: Trace) -> Figure:
    sweeps = tuple(float(i + 1) for i in range(len(path.changes)))
    least = torch.tensor(1e-17, dtype=path.changes.dtype)

    def line(name: str, values: Tensor) -> Series:
        return Series(name=name, x=sweeps, y=tuple(float(v) for v in torch.maximum(values, least)))

    return Figure(
        key="residual-by-sweep",
        question="Does the relaxation come to rest, and how fast?",
        x_label="sweep",
        y_label="largest change of a unit",
        y_scale="log",
        series=(line("slowest input", path.changes.amax(1)), line("median input", path.changes.median(1).values)),
        references=(Reference(value=SETTLED, label="settled"),),
    )


def _bound_figure(found: Attack, bound: Certificate | None, limit: float) -> Figure:
    rows = sorted(zip(found.worst, bound.rows if bound else found.worst, strict=True))
    places = tuple(float(i) for i in range(len(rows)))
    series = [Series(name="attacked", x=places, y=tuple(low for low, _ in rows), style="dots")]
    if bound is not None:
        series.append(Series(name="certified", x=places, y=tuple(high for _, high in rows), style="dots"))
    return Figure(
        key="bounds-by-input",
        question="How far apart are what is proven and what was found?",
        x_label="input, sorted",
        y_label="Lipschitz constant",
        series=tuple(series),
        references=(Reference(value=limit, label="limit"),),
    )


def _key_finding(found: Attack, bound: Certificate | None, settled: float, rate: float | None) -> str:
    proven = f"certified {max(bound.rows):.4g}" if bound else "no certificate"
    speed = "" if rate is None else f"; the slowest input contracts by {rate:.3g} per sweep"
    return f"L is at least {found.lower:.4g} (attacked), {proven}; {settled:.0%} of the inputs settle{speed}."


def _diverged(name: str, path: Trace, limit: float) -> Finding:
    reason = f"the relaxation left the finite numbers after {len(path.changes)} sweeps: no constant can be measured"
    return Finding(
        subject=name,
        name="stability",
        title="Stability",
        claim=f"One step stretches no difference between states by more than {limit:g}.",
        verdict=Verdict.FAIL,
        reason=reason,
        measurements=(Measurement(name="sweeps before it diverged", value=float(len(path.changes))),),
        checks=(Check(name="the relaxation stays finite", verdict=Verdict.FAIL, reason=reason),),
    )


def _check_arguments(x: Tensor, limit: float, sweeps: int) -> None:
    if len(x) == 0:
        raise expected("at least one input", given=f"x of shape {tuple(x.shape)}")
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        raise expected("finite inputs", given="x with NaN or infinite entries")
    if not (math.isfinite(limit) and limit > 0):
        raise expected("a finite limit > 0", given=f"limit={limit!r}")
    if isinstance(sweeps, bool) or sweeps < 16:
        raise expected("sweeps >= 16, enough to see a rate", given=f"sweeps={sweeps!r}")


__all__ = ["audit_stability"]
