"""The kernel audit: does fast code compute what the slow, plain NumPy reference computes, sweep by sweep?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from assay import stats
from assay.audits.equilibrium.kernel_problems import (
    Array,
    Kernel,
    KernelAnswer,
    Problem,
    Steps,
    has_deviations,
    oracle,
    problems,
    tolerance,
)
from assay.audits.equilibrium.kernel_subjects import DEVIATING, KERNELS, planted, rounded
from assay.errors import InputError, expected, unknown
from assay.results import Check, Control, Figure, Finding, Measurement, Reference, Series, Table, Verdict

PRECISIONS = ("float32", "float64")
STRENGTH = "every comparison could have failed"
"""The check that a tolerance was smaller than what it judged."""


@dataclass(frozen=True)
class KernelComparison:
    """One quantity of one problem in one precision: the largest difference, what rounding allows, and its size."""

    problem: str
    precision: str
    quantity: str
    error: float
    allowed: float
    size: float

    @property
    def share(self) -> float:
        """The error in units of what rounding allows; infinite for a shape or a number that is wrong altogether."""
        return self.error / self.allowed if math.isfinite(self.error) else math.inf


def audit_kernel(
    kernel: str | Kernel = "fast",
    *,
    seed: int = 0,
    sweeps: tuple[int, int] = (30, 10),
    beta: float = 0.2,
    precisions: Sequence[str] = PRECISIONS,
    asked: Sequence[Problem] | None = None,
    controls: bool = True,
    subject: str = "",
) -> Finding:
    """Whether ``kernel`` computes what the NumPy reference computes, state by state and gradient by gradient.

    A kernel is ``eager``, ``fast``, ``deviations`` or ``population``, or any function from a ``Problem`` to a
    ``KernelAnswer`` (see ``assay.audits.equilibrium.kernel_problems``): arrays in, arrays out. It
    is asked for layered, looped, convolutional and attention networks, fresh and trained, in each precision;
    every unit after every sweep and every parameter's gradient is compared. Tolerances are derived from the dtype,
    the number and size of the terms, the depth and the contraction. With ``controls`` kernels with one planted
    mistake each are asked the same questions and must be rejected.

    It does not show that the networks learn, nor anything about shapes that were not asked for.

    >>> audit_kernel("eager", sweeps=(5, 3), controls=False).verdict
    <Verdict.PASS: 'PASS'>
    """
    call = _kernel(kernel)
    _check_arguments(sweeps, beta, precisions)
    asked = tuple(asked) if asked is not None else problems(seed=seed, sweeps=sweeps, beta=beta)
    if call in DEVIATING:
        asked = tuple(replace(p, coordinates="deviations") for p in asked if has_deviations(p))
    if not asked:
        raise expected("at least one problem", given="asked=()")
    compared, steps = compare_all(call, asked, precisions)
    decision = _decide(compared)
    told = _controls(asked, precisions) if controls else ()
    name = subject or (kernel if isinstance(kernel, str) else getattr(kernel, "__name__", "kernel"))
    worst = max(compared, key=lambda c: c.share)
    return Finding(
        subject=f"kernel {name}",
        name="kernel",
        title="Kernel",
        claim="The kernel matches the NumPy reference to within rounding, in every state and every gradient.",
        verdict=decision.verdict,
        reason=decision.reason,
        experiment=f"{len(asked)} problems in {', '.join(precisions)}; {sweeps[0]} free and {sweeps[1]} nudged sweeps, "
        f"beta {beta:g}; the reference is NumPy in float64 and shares no code with torch.",
        key_finding=f"{len(compared)} quantities compared; the largest error is {worst.error:.2g} ({worst.quantity}, "
        f"{worst.problem}, {worst.precision}), {worst.share:.2g} times what rounding allows.",
        score=decision.score,
        evidence=stats.evidence_level(
            kind="deterministic", n=len(compared), fixed_beforehand=True,
            controls_separated=bool(told) and all(control.separated for control in told),
        ),
        headline=decision.measurement.name,
        measurements=(decision.measurement, *_measurements(compared)),
        tables=(_summary(compared, steps, precisions), _step_table(steps), _gradient_table(compared)),
        figures=(_step_figure(steps, compared),),
        checks=(decision.check("agreement"), *_weakness(compared)),
        controls=told,
        limitations=(
            "Small networks (16 units a layer); errors grow with the width as its square root.",
            "Only layered networks have a population form; elsewhere the population kernel is that of one network, and "
            "of convolution and attention eager and fast are both the pure sweeps.",
            "Deviations are asked of layered and looped networks, which have kernels of their own for them.",
        ),
        varied=("weights", "trained and untrained", "inputs", *precisions),
    )  # fmt: skip


def compare_all(
    kernel: Kernel, asked: Iterable[Problem], precisions: Sequence[str]
) -> tuple[tuple[KernelComparison, ...], dict[str, list[float]]]:
    """Every comparison, and the largest difference of any unit after each free sweep by problem and precision."""
    compared: list[KernelComparison] = []
    steps: dict[str, list[float]] = {}
    for problem in asked:
        for precision in precisions:
            question = problem.cast(precision)
            truth = oracle(question)
            given = kernel(question)
            compared += _compare(question, given, truth)
            differences = [_difference_of_steps([g], [t]) for g, t in zip(given.free, truth.free, strict=False)]
            steps[f"{problem.name}, {precision}"] = differences
    return tuple(compared), steps


def _compare(problem: Problem, given: KernelAnswer, truth: KernelAnswer) -> list[KernelComparison]:
    allowed = tolerance(problem, truth)

    def row(quantity: str, error: float, limit: float, size: float) -> KernelComparison:
        return KernelComparison(problem.name, problem.precision, quantity, error, limit, size)

    rows = []
    for name in ("free", "plus", "minus"):
        found, wanted = getattr(given, name), getattr(truth, name)
        what = "states" if name == "free" else problem.coordinates
        label = {"free": "free states", "plus": f"{what} at +beta", "minus": f"{what} at -beta"}[name]
        limit = allowed.state if name == "free" else allowed.nudged
        rows.append(row(label, _difference_of_steps(found, wanted), limit, _size(wanted[-1])))
    reach = float(np.abs(truth.output).max())
    widest = max(1.0, float(np.abs(_output_weights(problem)).sum(1).max()))
    rows.append(row("output", _difference(given.output, truth.output), 2 * allowed.state * widest, reach))
    for name, wanted in truth.gradients.items():
        error = _difference(given.gradients[name], wanted) if name in given.gradients else math.inf
        rows.append(row(f"gradient of {name}", error, allowed.gradients[name], float(np.abs(wanted).max())))
    return rows


def _decide(compared: Sequence[KernelComparison]) -> stats.Decision:
    labels = [f"{c.quantity} ({c.problem}, {c.precision})" for c in compared]
    shares = [c.share for c in compared]
    return stats.numeric_match(shares, 1.0, labels=labels, name="largest error / allowed by rounding")


def _weakness(compared: Sequence[KernelComparison]) -> tuple[Check, ...]:
    """Quantities so small beside their tolerance that zeros would have passed: said, since they show nothing."""
    blind = [c for c in compared if c.allowed >= c.size]
    if not blind:
        reason = f"each of {len(compared)} tolerances is smaller than the largest entry it judges"
        return (Check(name=STRENGTH, verdict=Verdict.PASS, reason=reason),)
    reason = "; ".join(f"{c.quantity} ({c.problem}, {c.precision})" for c in blind[:4])
    reason = f"{len(blind)} of {len(compared)} could not: {reason}"
    return (Check(name=STRENGTH, verdict=Verdict.PARTIAL, reason=reason),)


def _controls(asked: Sequence[Problem], precisions: Sequence[str]) -> tuple[Control, ...]:
    controls = []
    subjects: list[tuple[str, Kernel, bool]] = [("the reference itself, rounded", rounded, True)]
    subjects += [(name, kernel, False) for name, kernel in planted().items()]
    for name, kernel, good in subjects:
        verdicts = []
        # One problem at a time: a mistake must be seen wherever it is made, not only where it is largest.
        for problem in asked:
            for precision in precisions:
                compared, _ = compare_all(kernel, (problem,), (precision,))
                verdicts.append(_decide(compared).verdict is Verdict.PASS)
        controls.append(
            Control(
                name=name,
                kind="known-good" if good else "known-bad",
                expected="accepted" if good else "rejected",
                observed=f"accepted in {sum(verdicts)} of {len(verdicts)} cases",
                separated=all(verdicts) if good else not any(verdicts),
            )
        )
    return tuple(controls)


def _measurements(compared: Sequence[KernelComparison]) -> tuple[Measurement, ...]:
    numbers = []
    for precision in dict.fromkeys(c.precision for c in compared):
        for name, part in (("state", "states"), ("gradient", "gradient")):
            errors = [c.error for c in compared if c.precision == precision and part in c.quantity]
            if errors:
                numbers.append(Measurement(name=f"largest {name} error, {precision}", value=max(errors), n=len(errors),
                                           of="comparisons"))
    return tuple(numbers)


def _summary(compared: Sequence[KernelComparison], steps: dict[str, list[float]], precisions: Sequence[str]) -> Table:
    rows: list[tuple[str, str, float | int, str | None]] = []
    for precision in precisions:
        for label, part in (("Max Hidden Diff", "states"), ("Output Diff", "output"), ("Gradient Diff", "gradient")):
            worst = max((c for c in compared if c.precision == precision and part in c.quantity), key=lambda c: c.share)
            rows.append((label, precision, worst.error, f"< {worst.allowed:.2e}"))
    rows.append(("Steps Compared", "each problem", max(map(len, steps.values()), default=0), None))
    return Table(title="Largest differences from the reference", columns=("Metric", "Precision", "Value", "Threshold"),
                 rows=tuple(rows), note="the pair nearest to its derived threshold")  # fmt: skip


def _step_table(steps: dict[str, list[float]]) -> Table:
    names = tuple(steps)
    count = min(map(len, steps.values()), default=0)
    shown = sorted({*range(min(5, count)), *range(max(0, count - 2), count)})
    rows = tuple((str(step), *(steps[name][step] for name in names)) for step in shown)
    return Table(title="Step-by-step comparison (first and last sweeps): largest difference of any unit",
                 columns=("Step", *names), rows=rows)  # fmt: skip


def _gradient_table(compared: Sequence[KernelComparison]) -> Table:
    rows = tuple(
        (c.problem, c.precision, c.quantity.removeprefix("gradient of "), c.error, c.allowed, c.size)
        for c in compared
        if c.quantity.startswith("gradient")
    )
    return Table(title="Gradients, parameter by parameter",
                 columns=("Problem", "Precision", "Parameter", "Largest difference", "Allowed", "Largest entry"),
                 rows=rows)  # fmt: skip


def _step_figure(steps: dict[str, list[float]], compared: Sequence[KernelComparison]) -> Figure:
    drawn = {name: values for name, values in steps.items() if values and all(map(math.isfinite, values))}
    series = []
    for precision in dict.fromkeys(c.precision for c in compared):
        mine = [values for name, values in drawn.items() if name.endswith(precision)]
        if not mine:
            continue
        # One line per problem would be sixteen on top of each other: the worst of them, over the range of all.
        ranges = [sorted(values[k] for values in mine if k < len(values)) for k in range(max(map(len, mine)))]
        series.append(Series(
            name=f"{precision}, worst of {len(mine)} problems", x=tuple(map(float, range(len(ranges)))),
            y=tuple(r[-1] for r in ranges), low=tuple(r[0] for r in ranges), high=tuple(r[-1] for r in ranges),
        ))  # fmt: skip
    limits = {
        precision: max(c.allowed for c in compared if c.precision == precision and c.quantity == "free states")
        for precision in dict.fromkeys(c.precision for c in compared)
    }
    return Figure(
        key="difference-by-step", question="Do kernel and reference drift apart?", x_label="sweep",
        y_label="largest difference of a unit", y_scale="log", series=tuple(series),
        references=tuple(Reference(value=v, label=f"allowed in {p}") for p, v in limits.items()),
    )  # fmt: skip


def _difference_of_steps(found: Steps, wanted: Steps) -> float:
    if len(found) != len(wanted) or any(len(a) != len(b) for a, b in zip(found, wanted, strict=True)):
        return math.inf
    return max(
        _difference(a, b) for step, truth in zip(found, wanted, strict=True) for a, b in zip(step, truth, strict=True)
    )


def _difference(found: Array, wanted: Array) -> float:
    if found.shape != wanted.shape or not bool(np.isfinite(found).all()):
        return math.inf
    return float(np.abs(found.astype(np.float64) - wanted).max())


def _size(state: Sequence[Array]) -> float:
    return max(float(np.abs(layer).max()) for layer in state)


def _output_weights(problem: Problem) -> Array:
    network = problem.network
    return network.w_out if hasattr(network, "w_out") else network.weights[-1]


def _kernel(kernel: str | Kernel) -> Kernel:
    if not isinstance(kernel, str):
        return kernel
    if kernel not in KERNELS:
        raise InputError(unknown("kernel", kernel, KERNELS))
    return KERNELS[kernel]


def _check_arguments(sweeps: tuple[int, int], beta: float, precisions: Sequence[str]) -> None:
    if len(sweeps) != 2 or min(sweeps) < 1:
        raise expected("sweeps=(free, nudged), each >= 1", given=f"sweeps={sweeps!r}")
    if not 0 < beta < 1:
        raise expected("0 < beta < 1", given=f"beta={beta!r}")
    for precision in precisions:
        if precision not in PRECISIONS:
            raise InputError(unknown("precision", precision, PRECISIONS))
