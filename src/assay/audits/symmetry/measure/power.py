"""What an audit would have found, and what may have escaped it."""

from __future__ import annotations

from assay.audits.symmetry.facts import Facts, Test
from assay.audits.symmetry.measure.arbitrate import PROMISED
from assay.audits.symmetry.measure.statistics import rare_bound
from assay.results import Scalar, Table


def power_table(facts: Facts) -> Table:
    """Per generator the rarest defect that was met with 95 %, by the size of its error."""
    rows: list[tuple[Scalar, ...]] = []
    for test in {one.generator: one for one in facts.tests}.values():
        inputs = len(set(test.errors.cluster.tolist()))
        every, sampled = test.errors.elements, len(set(test.errors.element[test.errors.sampled].tolist()))
        if test.errors.estimated:
            sizes = [("above the estimate of rounding", every)]
        elif sampled == every:
            sizes = [("above the rounding bound", every)]
        else:
            sizes = [(f"above {PROMISED:g} rounding bounds", every), (f"1 to {PROMISED:g} rounding bounds", sampled)]
        rows += [
            (test.generator, size, f"{inputs} x {elements}", _share(inputs), _elements(facts, test, elements))
            for size, elements in sizes
        ]
    note = (
        "a defect that shows in at least this share of inputs, or of elements, was met with 95 % "
        "(1 - 0.05^(1/n)); float64 settles a sample of elements, and every pair whose low-precision error may "
        f"exceed {PROMISED:g} rounding bounds"
    )
    columns = ("generator", "error", "inputs x elements", "share of inputs", "share of elements")
    return Table(title="What was looked for", columns=columns, rows=tuple(rows), note=note)


def _elements(facts: Facts, test: Test, count: int) -> str:
    every = test.errors.elements
    if every < facts.options.transforms:  # a small group: its elements are not drawn but gone through
        return "all" if count == every else f"{count} of {every}"
    return _share(count)


def _share(n: int) -> str:
    return f"{rare_bound(n):.1%}" if n > 1 else "one only"
