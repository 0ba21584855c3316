"""The pictures of a credit audit, as data: growth, gradient sizes, alignment with its null band, the depth ladder."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from assay.audits.credit.depth import Baselines
from assay.audits.credit.measure import Credit
from assay.audits.credit.published import GRADIENT_LIMIT, GROWTH_LIMIT
from assay.results import Figure, Reference, Series


def figures(credit: Credit) -> tuple[Figure, ...]:
    """All figures this audit has numbers for."""
    made = [_stream(credit), _growth(credit), _gradients(credit)]
    if any(a is not None for a in credit.alignment):
        made.append(_alignment(credit))
    if credit.baselines is not None and credit.baselines.ladder:
        made.append(_ladder(credit.baselines, len(credit.blocks)))
    return tuple(made)


def _stream(credit: Credit) -> Figure:
    """Which blocks were found, in order, and how wide the stream is in front of each."""
    blocks = credit.blocks
    sizes = [math.prod(shape) for shape in blocks.shapes] or [1] * (len(blocks) + 1)
    names = (*blocks.names, "head")
    return Figure(
        key="stream",
        question="Which blocks were found, and how wide is the stream in front of each?",
        x_label="block, in the order in which they run",
        y_label="numbers per sample",
        y_scale="log",
        categories=names,
        series=(Series(name="stream", x=_places(range(len(sizes))), y=tuple(float(size) for size in sizes)),),
        caption=" ".join(filter(None, (f"{blocks}.", _shapes(names, blocks.shapes), "Plain layers lie between stages; "
                                       "growth is that of the blocks alone." if blocks.broken else ""))),
    )


def _shapes(names: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> str:
    """The shape of the stream, and from where on it is another one."""
    told = [f"{' x '.join(map(str, shape))} from {name} on" for place, (name, shape) in
            enumerate(zip(names, shapes, strict=False)) if not place or shape != shapes[place - 1]]
    return f"The stream is {', '.join(told)}." if told else ""


def _growth(credit: Credit) -> Figure:
    depths = range(len(credit.scale.norms))
    return Figure(
        key="stream-growth",
        question="Does the stream keep its size with depth?",
        x_label="depth",
        y_label="mean |h|",
        y_scale="log",
        categories=credit.places,
        series=(
            Series(name="|h|", x=_places(depths), y=_sizes(credit.scale.norms)),
            Series(
                name="growth of the block before",
                x=_places(range(1, len(depths))),
                y=_sizes(credit.scale.growth),
                style="dots",
            ),
        ),
        references=(Reference(value=GROWTH_LIMIT, label="published D1 limit on growth"),),
    )


def _gradients(credit: Credit) -> Figure:
    depths = _places(range(len(credit.places)))
    return Figure(
        key="gradient-size",
        question="Is the true gradient small, or only small in these units?",
        x_label="depth",
        y_label="size",
        y_scale="log",
        categories=credit.places,
        series=(
            Series(name="raw |dL/dh| of the mean loss", x=depths, y=_sizes(credit.reference.raw)),
            Series(name="gauge-invariant |g| |h| / loss", x=depths, y=_sizes(credit.reference.invariant)),
        ),
        references=(Reference(value=GRADIENT_LIMIT, label="published D2 limit on the raw size"),),
        caption="Rescaling the stream moves the raw curve and leaves the other where it is.",
    )


def _alignment(credit: Credit) -> Figure:
    known = [(i, a) for i, a in enumerate(credit.alignment) if a is not None]
    series = [
        Series(
            name=credit.rule, x=_places(i for i, _ in known), y=tuple(_real(a.cosine) for _, a in known), style="dots"
        )
    ]
    null = [
        (i, a.null_mean, a.critical * a.spread) for i, a in known if a.null_mean is not None and a.spread is not None
    ]
    if null:
        name = f"null: {'fresh feedback' if credit.has_null else 'a random direction'}, 5 % of it above the band"
        series.append(
            Series(
                name=name,
                x=_places(i for i, *_ in null),
                y=tuple(mean for _, mean, _ in null),
                low=tuple(mean - band for _, mean, band in null),
                high=tuple(mean + band for _, mean, band in null),
            )
        )
    return Figure(
        key="alignment",
        question="Is the signal better than chance, and where?",
        x_label="depth",
        y_label="cosine with the true gradient",
        categories=credit.sites,
        series=tuple(series),
        references=(Reference(value=1.0, label="backprop"),),
    )


def _ladder(baselines: Baselines, depth: int) -> Figure:
    series = []
    for arm, steps in baselines.ladder.items():
        full = baselines.accuracy(arm)
        points = {0: baselines.accuracy("frozen"), depth: full}
        for count, rows in steps.items():
            points[count] = Baselines({"ladder": rows}).accuracy("ladder")
        found = sorted((k, v) for k, v in points.items() if v is not None)
        series.append(Series(name=arm, x=_places(k for k, _ in found), y=tuple(v for _, v in found)))
    return Figure(
        key="depth-ladder",
        question="Does each further trained block help?",
        x_label="trained blocks, counted from the top",
        y_label="test accuracy",
        series=tuple(series),
    )


def _places(values: Iterable[int]) -> tuple[float, ...]:
    return tuple(float(value) for value in values)


def _sizes(values: Iterable[float]) -> tuple[float, ...]:
    # A number that is not finite has no place on the axis; the page says how many there are, the table holds them.
    return tuple(float(value) for value in values)


def _real(value: float) -> float:
    return value if math.isfinite(value) else 0.0
