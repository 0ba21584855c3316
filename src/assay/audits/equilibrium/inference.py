"""The inference audit: at the settings used, is this predictive coding, or backprop scaled layer by layer?

Predictive coding is defined by the equilibrium of its inference. Inference starts at the feed-forward pass, where every
error below the output is zero, and each step carries the output error down one layer, times the rate. Stopped early,
the update of layer l is backprop's, multiplied by some number: the same direction, another learning rate. So the audit
asks where the update stands between two ends that it computes itself, in float64: backprop, and the update at rest.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from assay.audits.equilibrium.true_gradient import AT_REST, in_float64
from assay.audits.explained import explained
from assay.errors import expected
from assay.learning.resolve import as_rule
from assay.learning.subjects import subject_of
from assay.probe.chain import activities, layers_of
from assay.protocols import Rule
from assay.results import Check, Control, Figure, Finding, Measurement, Series, Table, Verdict
from assay.rules.backprop import Backprop
from assay.rules.predictive_coding import PredictiveCoding
from assay.solving.solution import Diverged
from assay.stats import evidence_level

CLAIM = "At the settings used, the update is that of predictive coding at rest, not backprop scaled layer by layer."
APART = 0.02
"""Angle (rad) between backprop and the update at rest below which they cannot be told apart: a cosine of .9998."""
NEAR = 0.1
"""A layer whose update stands within this share of the way from one end is at that end."""
STILL = 0.1
"""States that have at most this share of their way to go are at rest for what learning needs."""
MOST_STEPS = 20_000
OWN_RATES = (0.5, 0.125, 0.03125)
"""Rates at which the audit looks for the rest, the next one where the last goes round in circles;"""
SETTLES = 1e-6
"""a state that still moves by less after all steps is slow, and a smaller rate would be slower."""
LADDER = (1, 4, 16, 64, 256)
"""Multiples of the steps used at which what remains is measured, as long as they are"""
LONGEST = 2000
"""steps at most,"""
ARRIVED = 1e-3
"""and until no state has more than this share of its way to go."""


@dataclass(frozen=True)
class Stand:
    """Where one layer's update stands: angles (rad) to backprop and to the update at rest, and its size beside both."""

    layer: str
    to_backprop: float
    to_rest: float
    apart: float
    scale: float
    distance: float | None
    """What the states of this layer have still to go, as a share of the whole way; None where it has none."""

    @property
    def share(self) -> float | None:
        """0 at backprop, 1 at rest; None where the two ends are one direction."""
        way = self.to_backprop + self.to_rest
        return None if self.apart < APART else self.to_backprop / way if way > 0 else None


def audit_inference(
    model: Any, x: Tensor, y: Tensor, *, rule: Any = "pc", device: str | None = None, subject: str = ""
) -> Finding:
    """Whether predictive coding with these settings does anything that backprop with other learning rates would not.

    PASS: states are at rest and every layer's update is nearer to that of the equilibrium. FAIL: every layer's update
    is backprop's, times a number per layer. PARTIAL: in between, layer by layer in the table. INCONCLUSIVE: the two
    ends are one direction on this batch, or inference finds no rest. It does not say which of the two learns better.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 3))
    >>> x, y = torch.linspace(-1, 1, 24).reshape(6, 4), torch.arange(6) % 3
    >>> audit_inference(net, x, y, rule=PredictiveCoding(steps=5, rate=0.001)).verdict
    <Verdict.FAIL: 'FAIL'>
    """
    model, x, y = subject_of(model, x, y, device=device)
    made = as_rule(rule, model)
    if not isinstance(made, PredictiveCoding):
        raise expected("predictive coding, for instance rule='pc' or PredictiveCoding(steps=20)", given=repr(rule))
    with explained(x):
        precise, inputs = in_float64(model, x)
        layers = layers_of(precise, rule="predictive coding")
        ends = _ends(made, precise, inputs, y)
    name = subject or f"{made} on {type(model).__name__}"
    steps, rate = made.schedule(len(layers))
    if ends.residual > AT_REST:
        return Finding(subject=name, name="inference", title="Inference", claim=CLAIM, verdict=Verdict.INCONCLUSIVE,
                       reason=_restless(ends, fixed=made.form == "fixed"))
    stands = _stands(made, precise, inputs, y, ends=ends)
    ladder = _climb(made, precise, inputs, y, ends=ends, steps=steps)
    check = judge(stands, fixed=made.form == "fixed")
    controls = _controls(ends)
    verdict = check.verdict if all(control.separated for control in controls) else Verdict.INCONCLUSIVE
    return Finding(
        subject=name, name="inference", title="Inference", claim=CLAIM, verdict=verdict, reason=check.reason,
        experiment=f"{len(x)} inputs, float64 copies; {steps} steps at rate {rate:g}, beta {made.beta:g}, form "
                   f"'{made.form}'; the equilibrium by {ends.steps} steps of its own",
        key_finding=_told(stands), headline="nearest to backprop", checks=(check,), controls=controls,
        evidence=evidence_level(kind="deterministic", n=len(x), controls_separated=all(c.separated for c in controls)),
        measurements=_measurements(stands, len(x)), tables=(_table(stands), _remains(ladder)), figures=_figures(ladder),
        limitations=(f"One batch of {len(x)} inputs at one set of weights.",
                     "The direction of the update alone: an optimiser such as Adam undoes a scale per layer."),
    )


def judge(stands: Sequence[Stand], *, fixed: bool = False) -> Check:
    """The verdict on a set of layers; ``fixed`` predictions have backprop for an equilibrium, by construction."""
    name = "predictive coding or scaled backprop"
    shares = [stand.share for stand in stands if stand.share is not None]
    if not shares:
        widest = max(stand.apart for stand in stands)
        if fixed:
            reason = f"backprop itself: with fixed predictions the equilibrium is the gradient ({widest:.2g} rad apart)"
            return Check(name=name, verdict=Verdict.FAIL, reason=reason)
        reason = (f"at rest predictive coding and backprop give one direction here (at most {widest:.2g} rad apart): "
                  "there is nothing to tell; a larger beta or a trained network may show a difference")
        return Check(name=name, verdict=Verdict.INCONCLUSIVE, reason=reason)
    distance = max((stand.distance for stand in stands if stand.distance is not None), default=0.0)
    told = (f"updates stand {min(shares):.0%} to {max(shares):.0%} of the way from backprop to the update at rest; "
            f"states have up to {distance:.0%} of their way still to go")
    if max(shares) <= NEAR:
        return Check(name=name, verdict=Verdict.FAIL, reason=f"scaled backprop: {told}")
    if min(shares) >= 1 - NEAR and distance <= STILL:
        return Check(name=name, verdict=Verdict.PASS, reason=f"predictive coding: {told}")
    return Check(name=name, verdict=Verdict.PARTIAL, reason=f"between the two: {told}")


@dataclass(frozen=True)
class _Ends:
    """Both ends, by layer: gradients of backprop and at rest, and states of the feed-forward pass and at rest."""

    names: tuple[str, ...]
    backprop: Mapping[str, Tensor]
    rest: Mapping[str, Tensor]
    free: Sequence[Tensor]
    still: Sequence[Tensor]
    residual: float
    steps: int


def _ends(rule: PredictiveCoding, model: nn.Module, x: Tensor, y: Tensor) -> _Ends:
    layers = layers_of(model, rule="predictive coding")
    # States and errors have one equilibrium; over errors it is found sooner, at a rate of the audit's own.
    settled, rest = rule, dict[str, Tensor]()
    for rate in (rule.rate,) if rule.form == "fixed" else OWN_RATES:
        settled = (rule if rule.form == "fixed" else replace(rule, form="errors", rate=rate)).settled(
            tolerance=AT_REST, most=MOST_STEPS)
        try:
            rest = _gradients(settled, model, x, y)
        except Diverged:
            if rate == OWN_RATES[-1] or rule.form == "fixed":
                raise
            continue
        if settled.last is None or len(layers) < 2 or settled.last.residual <= SETTLES:
            break
    free = activities(layers, x)[:-1]
    assert settled.last is not None  # it has just run
    residual = settled.last.residual if len(layers) > 1 else 0.0
    still = settled.infer(layers, free, y) if rule.form != "fixed" and residual <= AT_REST else []
    return _Ends(tuple(rest), _gradients(Backprop(rule.loss), model, x, y), rest, free[1:], still, residual,
                 settled.last.steps)


def _restless(ends: _Ends, *, fixed: bool) -> str:
    """Why there is no rest to compare with, and what would help: only with fixed predictions the rate is the rule's."""
    said = f"inference finds no rest: after {MOST_STEPS} steps in float64 a state still moves by {ends.residual:.2g}"
    if fixed:
        return f"{said}; use a smaller rate"
    return (f"{said}, at rates of the audit's own (down to {OWN_RATES[-1]:g}), not yours; a smaller beta or smaller "
            "weights bring the rest nearer to the feed-forward pass")


def _gradients(rule: Rule, model: nn.Module, x: Tensor, y: Tensor) -> dict[str, Tensor]:
    """The gradient of each layer as one vector, on a copy of the model."""
    twin = copy.deepcopy(model)
    rule.backward(twin, x, y)
    return {
        layer.name: torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten()
                               for p in layer.parameters()])
        for layer in layers_of(twin, rule="predictive coding") if layer.parameters()
    }


def _stands(rule: PredictiveCoding, model: nn.Module, x: Tensor, y: Tensor, *, ends: _Ends) -> tuple[Stand, ...]:
    found = _gradients(rule, model, x, y)
    distances: list[float | None] = [None] * len(ends.names)
    if rule.form != "fixed":
        states = rule.infer(layers_of(model, rule="predictive coding"), [x, *ends.free], y)
        for number, (state, free, still) in enumerate(zip(states, ends.free, ends.still, strict=True)):
            way = float((free - still).norm())
            distances[number] = float((state - still).norm()) / way if way > 0 else 0.0
    return tuple(_stand(name, found[name], ends, distance)
                 for name, distance in zip(ends.names, distances, strict=True))


def _climb(
    rule: PredictiveCoding, model: nn.Module, x: Tensor, y: Tensor, *, ends: _Ends, steps: int
) -> list[tuple[int, tuple[Stand, ...]]]:
    """Where the layers stand after more and more steps of the same inference."""
    found: list[tuple[int, tuple[Stand, ...]]] = []
    for number in (steps * many for many in LADDER):
        if found and (number > LONGEST or all((s.distance or 0.0) <= ARRIVED for s in found[-1][1])):
            break
        found.append((number, _stands(replace(rule, steps=number), model, x, y, ends=ends)))
    return found


def _stand(name: str, found: Tensor, ends: _Ends, distance: float | None) -> Stand:
    truth, rest = ends.backprop[name], ends.rest[name]
    size = float(truth.norm())
    return Stand(name, _angle(found, truth), _angle(found, rest), _angle(rest, truth),
                 float(found.norm()) / size if size > 0 else math.nan, distance)


def _angle(a: Tensor, b: Tensor) -> float:
    """The angle between two vectors, exact also where it is tiny; a right one if either is zero."""
    if not a.any() or not b.any():
        return math.pi / 2
    first, second = a / a.norm(), b / b.norm()
    return 2 * math.atan2(float((first - second).norm()), float((first + second).norm()))


def _controls(ends: _Ends) -> tuple[Control, ...]:
    """The update at rest must be called predictive coding, and backprop scaled by layer must be called that."""
    known = [_stand(name, ends.rest[name], ends, 0.0) for name in ends.names]
    scaled = [_stand(name, 10.0**-number * ends.backprop[name], ends, 1.0) for number, name in enumerate(ends.names)]
    controls = []
    for name, stands, wanted in (("the update at rest", known, Verdict.PASS),
                                 ("backprop, a tenth per layer", scaled, Verdict.FAIL)):
        seen = judge(stands).verdict
        # Where both ends are one direction neither can be told, and the finding says so itself.
        controls.append(Control(name=name, kind="known-good" if wanted is Verdict.PASS else "known-bad",
                                expected=str(wanted), observed=str(seen),
                                separated=seen in (wanted, Verdict.INCONCLUSIVE)))
    return tuple(controls)


def _told(stands: Sequence[Stand]) -> str:
    return "cosines with backprop " + " ".join(f"{math.cos(stand.to_backprop):.4f}" for stand in stands)


def _measurements(stands: Sequence[Stand], n: int) -> tuple[Measurement, ...]:
    nearest = min(stands, key=lambda stand: stand.to_backprop)
    distance = max((s.distance for s in stands if s.distance is not None), default=None)
    rows = [
        Measurement(name="nearest to backprop", value=math.cos(nearest.to_backprop), unit="cosine", n=n,
                    note=f"layer {nearest.layer}"),
        Measurement(name="farthest from backprop", value=min(math.cos(s.to_backprop) for s in stands), unit="cosine",
                    n=n),
        Measurement(name="at rest, farthest from backprop", value=min(math.cos(s.apart) for s in stands),
                    unit="cosine", n=n, note="what inference would come to"),
    ]
    if distance is not None:
        rows.append(Measurement(name="way the states have still to go", value=distance, unit="share", n=n,
                                note="|s - s*| / |s_0 - s*|, worst layer"))
    return tuple(row.model_copy(update={"of": "inputs"}) for row in rows)


def _table(stands: Sequence[Stand]) -> Table:
    rows = tuple(
        (s.layer, round(math.cos(s.to_backprop), 6), round(math.cos(s.to_rest), 6), round(math.cos(s.apart), 6),
         float(f"{s.scale:.3g}"), None if s.share is None else round(s.share, 3),
         None if s.distance is None else round(s.distance, 4)) for s in stands
    )
    return Table(title="Where each layer's update stands",
                 columns=("layer", "cosine with backprop", "with the update at rest", "of the two ends",
                          "size over backprop's", "share of the way", "states still to go"), rows=rows,
                 note="Share of the way: 0 is backprop times a number, 1 is predictive coding at rest.")


def _remains(ladder: Sequence[tuple[int, Sequence[Stand]]]) -> Table:
    rows = tuple(
        (steps, round(min(math.cos(s.to_backprop) for s in stands), 6),
         round(min(math.cos(s.to_rest) for s in stands), 6),
         round(max((s.distance for s in stands if s.distance is not None), default=0.0), 4)) for steps, stands in ladder
    )
    return Table(title="What remains of backprop as inference goes on",
                 columns=("steps", "lowest cosine with backprop", "lowest with the update at rest",
                          "states still to go"), rows=rows, note="At the same rate; worst layer of each.")


def _figures(ladder: Sequence[tuple[int, Sequence[Stand]]]) -> tuple[Figure, ...]:
    x = tuple(float(steps) for steps, _ in ladder)
    return (Figure(
        key="inference-steps", question="What becomes of the update as inference goes on?", x_label="steps",
        y_label="lowest cosine of a layer", x_scale="log",
        series=(Series(name="with backprop", x=x,
                       y=tuple(min(math.cos(s.to_backprop) for s in stands) for _, stands in ladder)),
                Series(name="with the update at rest", x=x,
                       y=tuple(min(math.cos(s.to_rest) for s in stands) for _, stands in ladder))),
        caption="Predictive coding has arrived where the second line reaches 1.",
    ),)
