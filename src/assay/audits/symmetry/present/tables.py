"""The numbers of an audit as measurements and tables."""

from __future__ import annotations

import math
from collections.abc import Sequence

from assay.audits.symmetry.facts import Facts, Test
from assay.audits.symmetry.locate.isolate import MOST_RESTORED, Isolated
from assay.audits.symmetry.locate.localise import Location
from assay.audits.symmetry.measure.power import power_table
from assay.audits.symmetry.measure.statistics import rare_bound, summarise
from assay.audits.symmetry.measure.tolerance import ACTIONS, band
from assay.audits.symmetry.present.layers import guilty, layers_alone
from assay.results import Measurement, Region, Scalar, Table

DECLARED = "Declared symmetry"


def headline(facts: Facts) -> str | None:
    """The measurement that decided: the largest error over its rounding bound."""
    return "error / rounding bound" if facts.tests else None


def measurements(facts: Facts) -> list[Measurement]:
    """Errors with n, intervals where there are enough inputs, and the cost of the audit."""
    found: list[Measurement] = []
    if facts.tests:
        worst = max((test for test in facts.tests), key=lambda test: test.judgement.excess)
        n = _inputs(worst)
        note = f"largest over generators and outputs, at {worst.generator}, {worst.errors.output}"
        region = Region(high=1.0)
        found.append(
            Measurement(
                name="error / rounding bound", value=worst.judgement.excess, n=n, of="inputs", region=region, note=note
            )
        )
        found += _overall(facts, n)
        found += _quantiles(facts, worst)
        if not facts.broken and n > 1:
            value = rare_bound(n)
            found.append(
                Measurement(
                    name="rate of bad inputs, upper bound", value=value, n=n, of="inputs", source="derived",
                    note="95 %, exact", possible=Region(low=0.0, high=1.0),
                )
            )
    gradient = [one.relative for test in facts.backward.gradients for one in (*test.inputs, *test.parameters)]
    if gradient:
        found.append(
            Measurement(
                name="gradient equivariance error", value=max(gradient), n=len(gradient), of="gradients",
                note="largest relative",
            )
        )
    cost = facts.subject.cost
    found.append(Measurement(name="calls of the model", value=cost.calls, unit="calls"))
    found.append(Measurement(name="inputs sent through the model", value=cost.inputs, unit="forward passes"))
    return found


def tables(facts: Facts) -> list[Table]:
    """End to end, special elements, layers, gradients, sizes and other conditions."""
    found = []
    if facts.tests:
        found.append(_end_to_end("End to end", facts.tests))
        found.append(_intervals(facts))
        found.append(power_table(facts))
    if facts.special:
        found.append(_end_to_end("Special elements", facts.special))
    for location in facts.places.locations.values():
        found.append(_layers(facts, location))
        found += layers_alone(facts, location)
    found += guilty(facts)
    found += _gradient_tables(facts)
    if facts.forward.sizes:
        rows = [
            (size, one.problem or _label(one.worst), one.worst.worst if one.worst else None)
            for size, one in facts.forward.sizes
        ]
        found.append(Table(title="Sizes", columns=("size", "verdict", "max relative error"), rows=tuple(rows)))
    if facts.again.retests:
        again = [
            (one.condition, one.problem or _label(one.worst), one.worst.worst if one.worst else None)
            for one in facts.again.retests
        ]
        found.append(
            Table(title="Other conditions", columns=("condition", "verdict", "max relative error"), rows=tuple(again))
        )
    return [*found, _declared(facts)]


def _declared(facts: Facts) -> Table:
    """What was asked, apart from the sentence of the claim: a renderer reads it here."""
    spec, budget = facts.subject.symmetry, facts.options.budget
    kind = "invariant" if spec.is_invariance else "equivariant"
    row = (spec.group.name, kind, "rounding" if budget is None else f"a relative error of {budget:g}")
    return Table(title=DECLARED, columns=("group", "type", "up to"), rows=(row,))


def _quantiles(facts: Facts, test: Test) -> list[Measurement]:
    errors, fair = test.errors, test.errors.sampled
    name = f"{test.generator}, {errors.output}"
    return summarise(errors.relative[fair], errors.cluster[fair], errors.worst, name=name, seed=facts.options.seed)


def _intervals(facts: Facts) -> Table:
    """Quantiles of every test with their intervals; the measurements hold those of the worst test only."""
    rows = []
    for test in facts.tests:
        texts = []
        for one in _quantiles(facts, test)[:-1]:
            interval = f" [{one.interval.low:.2g}, {one.interval.high:.2g}]" if one.interval is not None else ""
            texts.append(f"{one.value:.2g}{interval}")
        rows.append((test.generator, test.errors.output, *texts))
    note = "relative errors of the float64 sample; 95 % intervals by a bootstrap over inputs, from 10 inputs on"
    columns = ("generator", "output", "median", "p95", "p99")
    return Table(title="Quantiles with intervals", columns=columns, rows=tuple(rows), note=note)


def _overall(facts: Facts, n: int) -> list[Measurement]:
    """Mean and maximum over all tests, absolute (in the units of the output) and relative, native precision."""
    errors = [test.errors for test in facts.tests if test.acts]
    native_high = str(facts.subject.native) == "torch.float64"
    absolute = [(one.best if native_high else one.screened) for one in errors]
    relative = [one.scaled(a) for a, one in zip(absolute, errors, strict=True)]
    if not absolute:
        return []
    count = sum(len(a) for a in absolute)
    note = f"{count} pairs, native precision"
    sizes = {
        "mean absolute error": float(sum(a.sum() for a in absolute)) / count,
        "max absolute error": max(float(a.max()) for a in absolute),
        "mean relative error": float(sum(r.sum() for r in relative)) / count,
        "max relative error": max(float(r.max()) for r in relative),
    }
    return [
        *(Measurement(name=name, value=value, n=n, of="inputs", note=note) for name, value in sizes.items()),
        Measurement(name="transformations tested", value=max(one.elements for one in errors), unit="per generator"),
        Measurement(name="inputs tested", value=n, unit="inputs"),
    ]


def _end_to_end(title: str, tests: Sequence[Test]) -> Table:
    columns = (
        "generator",
        "output",
        "verdict",
        "median",
        "p95",
        "p99",
        "max",
        "max in low precision",
        "error / bound",
        "float64 / low",
        "band",
        "action",
    )
    rows = []
    for test in tests:
        errors = test.errors
        low = float(errors.scaled(errors.screened).max())
        # By its size alone the original's template calls a break "excellent" that no rounding explains.
        size = "broken" if test.broken else band(low)
        quantiles = [float(errors.relative[errors.sampled].quantile(q)) for q in (0.5, 0.95, 0.99)]
        row: tuple[Scalar, ...] = (
            test.generator,
            errors.output,
            test.judgement.label if test.acts else "VACUOUS",
            *quantiles,
            errors.worst,
            low,
            test.judgement.excess,
            test.judgement.high_over_low,
            size,
            ACTIONS[size],
        )
        rows.append(row)
    note = (
        "errors relative to the spread of outputs of unrelated inputs; 'error / bound' above 1 cannot be rounding; "
        "quantiles are of the float64 sample; 'band' and 'action' are those of the original template, by the size of "
        "the error in the model's low precision (a BROKEN row is broken at any size)"
    )
    return Table(title=title, columns=columns, rows=tuple(rows), note=note)


def _layers(facts: Facts, location: Location) -> Table:
    alone = {(one.module, one.call): one for one in facts.places.isolated.get(location.generator, [])}
    modules = dict(facts.subject.model.named_modules())
    rows: list[tuple[Scalar, ...]] = []
    for place in location.places:
        event = place.event
        if event.kind == "enter":
            continue
        other = alone.get((event.module, event.call))
        rows.append(
            (
                event.label,
                type(modules.get(event.module, facts.subject.model)).__name__,
                repr(place.representation),
                place.relative,
                place.floor,
                "fits" if place.fits else "breaks",
                "untested" if place.gram_excess is None else "kept" if place.gram_excess <= 1 else "breaks",
                None if other is None or other.alone is None else "holds" if other.alone <= 1 else "breaks",
                _goes_away(other),
                "holds" if place.consistent else "breaks",
            )
        )
    elsewhere = _told_under(facts, location)
    unusual = location.first_unexpected.event.label if location.first_unexpected else "none"
    note = (
        "A: does some representation fit? B: are inner products kept (tested where A fails)? C: the module alone. "
        "D: share of the final error that goes away if its output is put right, for the "
        f"{MOST_RESTORED} modules nearest to the guilty one ('grows' if the error then grows: the modules behind it do "
        "not take the right output). The verdict is that of A, or of B for "
        "features of a kind that A does not know. "
        f"{elsewhere}"
        f"First module inconsistent with every representation: {location.where if location.first else 'none'}. "
        f"First inconsistent with the usual ones: {unusual}. "
        "Operations outside modules are blamed on the module whose code runs them."
    )
    columns = ("module", "type", "best representation", "error", "rounding", "A", "B", "C", "D", "verdict")
    return Table(title=f"Layers under {location.generator}", columns=columns, rows=tuple(rows), note=note)


def _told_under(facts: Facts, location: Location) -> str:
    """Where C and D stand if they are not here: they were asked once for each guilty module."""
    if facts.places.isolated.get(location.generator, ()):
        return ""
    same = [name for name, other in facts.places.locations.items()
            if other.module == location.module and facts.places.isolated.get(name)]
    return f"C and D stand under {same[0]}, which blames the same module. " if same else ""


def _goes_away(one: Isolated | None) -> Scalar:
    if one is None or one.restored is None:
        return None
    return 1 - one.restored if one.restored <= 1 else "grows"


def _gradient_tables(facts: Facts) -> list[Table]:
    rows = [
        (
            test.generator,
            test.elements,
            one.kind,
            one.name,
            one.relative,
            one.excess if math.isfinite(one.excess) else "inf",
            one.label,
        )
        for test in facts.backward.gradients
        for one in (*test.inputs, *test.parameters)
    ]
    found = []
    if rows:
        columns = ("generator", "elements", "kind", "by", "relative error", "error / bound", "verdict")
        note = (
            "'elements' is how many they were compared at: fewer in a large model, one where an output breaks, since "
            "its gradients break with it"
        )
        found.append(Table(title="Gradients", columns=columns, rows=tuple(rows), note=note))
    if facts.backward.differences:
        other = [
            (
                one.what,
                one.relative,
                f"{one.mismatches} of {one.directions}",
                one.label,
                one.note,
            )
            for one in facts.backward.differences
        ]
        titles = ("derivative", "relative difference", "directions that differ", "verdict", "note")
        found.append(Table(title="Finite differences", columns=titles, rows=tuple(other)))
    return found


def _label(judgement: object) -> str:
    return str(getattr(judgement, "label", "UNTESTED"))


def _inputs(test: Test) -> int:
    return len(set(test.errors.cluster.tolist()))
