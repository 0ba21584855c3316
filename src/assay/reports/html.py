"""A run as one self-contained HTML page: no network, readable without JavaScript, everything escaped."""

from __future__ import annotations

import base64
import functools
import hashlib
import json
import math
import re
import zlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from assay.reports import words
from assay.reports.charts import figure, strips
from assay.reports.charts.svg import number, percent, pretty, short, suffix, tag
from assay.reports.citation import citation
from assay.reports.next_steps import next_steps
from assay.reports.plain import plain, says_more
from assay.reports.terms import TERMS, used
from assay.reports.truth import contradictions, warnings
from assay.results import Failure, Figure, Finding, Measurement, Run, Verdict

MANY_CLAIMS = 40
"""Above this many claims the details of each travel compressed and become elements when a reader opens them."""
FEW_ROWS = 7
"""A table of measurements this short is shown whole."""
MOST_POINTS = 200
"""Rows of a picture's table before it shows every second, third, ... point; run.json always holds them all."""


def html(run: Run, *, back: str = "") -> str:
    """The whole page. Its policy allows only its own style and script, by hash, and no connection at all.

    ``back`` is the address of a list of runs, when a viewer shows the page.
    """
    css, script = asset("report.css"), asset("report.js")
    context = {"terms_here": True, "terms": TERMS}
    packed = _pack(run, context) if len(run.findings) > MANY_CLAIMS else ""
    return (
        environment()
        .get_template("report.html")
        .render(
            **context,
            run=run,
            back=back,
            packed=packed,
            title_of_run=words.run_title(run),
            warnings=warnings(run),
            steps=next_steps(run),
            smoke=_smoke(run),
            terms_used=used(run),
            kind=run.kind.capitalize() if run.kind != "verify" else "Verification",
            created=date(run.created),
            summary=words.summary(run),
            verdict_bar=verdict_bar(run.counts),
            citation=citation(run),
            config=json.dumps(run.config, indent=1, ensure_ascii=False, default=str) if run.config else "",
            policy=policy(css, script),
            css=Markup(css),
            script=Markup(script),
        )
    )


def _pack(run: Run, context: dict[str, Any]) -> str:
    """The details of every claim as deflated HTML in base64, in the order of the claims.

    They are made by the same escaping template as a small page's, so the browser may insert them as they are.
    """
    module = environment().get_template("finding.html").make_module(context)
    bodies = [str(module.body(finding, index)) for index, finding in enumerate(run.findings)]  # type: ignore[attr-defined]
    return base64.b64encode(zlib.compress("\0".join(bodies).encode(), 9)).decode()


def _smoke(run: Run) -> str:
    if run.budget != "smoke":
        return ""
    return "A first look with one seed: it shows that everything runs, and no verdict here is evidence."


@functools.cache
def asset(name: str) -> str:
    """A vendored file of the interactive layer or the style sheet, built from ``web/``."""
    return resources.files("assay.reports").joinpath("assets", name).read_text(encoding="utf-8").strip()


def policy(css: str, script: str, *, connect: str = "'none'", form: str = "'none'") -> str:
    """A Content-Security-Policy that runs exactly this style and this script and loads nothing else."""
    return (
        f"default-src 'none'; style-src {_hash(css)}; script-src {_hash(script)}; connect-src {connect}; "
        f"img-src data:; base-uri 'none'; form-action {form}"
    )


@functools.cache
def environment() -> jinja2.Environment:
    """The template environment: autoescaped, strict about unknown names, its loader confined to this package."""
    result = jinja2.Environment(
        loader=jinja2.PackageLoader("assay.reports", "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    result.filters.update(short=short, sentence=words.sentence, ended=words.ended, capital=words.capital)
    result.globals.update(terms_here=False, terms=TERMS)
    result.globals.update(
        words=words.WORDS,
        num=lambda value, at, unit="", like=None: number(value, at, unit=unit, like=like),
        plain_number=lambda value: pretty(words.number(value)),
        plain=lambda finding: pretty_numbers(plain(finding)),
        says_more=says_more,
        contradictions=contradictions,
        title=words.title,
        heading=words.heading,
        named=words.named,
        counted=words.counted,
        duration=words.duration,
        grouped_failures=_grouped_failures,
        time=_time,
        share=lambda value, at: Markup('<data value="{}" data-at="{}">{} %</data>').format(
            repr(value), at, pretty(words.number(100 * value))
        ),
        allows=_allows,
        headline=words.headline,
        worst=_worst,
        worst_label=words.worst_label,
        is_fact=_is_fact,
        control_sentence=words.control_sentence,
        seeds=_seeds,
        by_seeds=_by_seeds,
        strips=_strips,
        overview_row=_overview_row,
        draw=lambda data, identifier: figure.draw(data, identifier=identifier),
        legend=figure.legend,
        undrawable=figure.undrawable,
        swatch=_swatch,
        stride=lambda series: math.ceil(len(series.x) / MOST_POINTS) or 1,
        place=_place,
        suffix=suffix,
    )
    return result


def _grouped_failures(finding: Finding) -> list[Failure]:
    """Failures of one kind and message once, with the number of times they happened and the first one's traceback."""
    return [
        first if count == 1 else first.model_copy(update={"label": f"{first.label} and {count - 1} more"})
        for first, count in words.grouped(finding.failures)
    ]


def verdict_bar(counts: dict[Verdict, int]) -> Markup:
    """One bar whose parts are the shares of each verdict, worst last."""
    total = sum(counts.values())
    if not total:
        return Markup("")
    parts, start = [], 0.0
    for verdict, count in counts.items():
        if count:
            parts.append(
                tag("rect", x=percent(start / total), width=percent(count / total), height="100%", class_=str(verdict))
            )
            start += count
    described = ", ".join(f"{count} {words.WORDS[verdict].count.lower()}" for verdict, count in counts.items())
    return tag(
        "svg", tag("title", f"Verdicts of {total} claims: {described}"), *parts, class_="verdict-bar", role="img"
    )


def date(created: str) -> str:
    """A timestamp as a person writes it; text that is no timestamp stays as it is."""
    try:
        moment = datetime.fromisoformat(created)
    except ValueError:
        return short(created, 60)
    zone = " UTC" if moment.utcoffset() is not None and not moment.utcoffset() else ""
    return f"{moment.day} {moment:%B %Y, %H:%M}{zone}"


@dataclass(frozen=True)
class _Worst:
    seed: int
    value: float
    index: int

    def at(self, finding: Finding, field: str) -> str:
        names = [m.name for m in finding.measurements]
        return f"measurements.{names.index(finding.headline or '')}.{field}.{self.index}"


@dataclass(frozen=True)
class _Row:
    index: int
    picture: Markup
    axis: Markup


@dataclass(frozen=True)
class _SeedGroup:
    seeds: tuple[int, ...]
    indices: tuple[int, ...]


@dataclass(frozen=True)
class _Split:
    main: Sequence[_Row]
    rest: Sequence[_Row]


def _strips(finding: Finding) -> _Split:
    """The rows that carry the decision, and those a reader unfolds: beyond a few, numbers without limit or interval."""
    rows = list(_rows(finding))
    if len(rows) <= FEW_ROWS:
        return _Split(rows, [])
    measured = finding.measurements
    main = [
        row
        for row in rows
        if measured[row.index].name == finding.headline or measured[row.index].region or measured[row.index].interval
    ] or rows[:1]
    return _Split(main, [row for row in rows if row not in main])


def _rows(finding: Finding) -> Iterable[_Row]:
    drawn = strips.groups(finding.measurements)
    for group in drawn:
        floors = [finding.measurements[i] for i in group.floors]
        for index in group.members:
            last = index == group.members[-1]
            yield _Row(
                index,
                strips.strip(finding.measurements[index], group, floors),
                strips.axis(group) if last else Markup(""),
            )
    shown = {index for group in drawn for index in group.members}
    for index in range(len(finding.measurements)):
        if index not in shown:
            yield _Row(index, Markup(""), Markup(""))


def _by_seeds(finding: Finding) -> list[_SeedGroup]:
    found: dict[tuple[int, ...], list[int]] = {}
    for index, measurement in enumerate(finding.measurements):
        if measurement.seeds:
            found.setdefault(measurement.seeds, []).append(index)
    return [_SeedGroup(seeds, tuple(indices)) for seeds, indices in found.items()]


def _overview_row(measurement: Measurement, finding: Finding) -> Markup:
    label = (
        f"{measurement.name}: {words.with_unit(words.number(measurement.value), measurement.unit)}, interval "
        f"{words.interval(measurement.interval)}, claim allows {words.region(measurement)}: {finding.verdict}"
    )
    return strips.overview_row(measurement, label=short(label, 300))


def _allows(measurement: Measurement) -> Markup:
    region = measurement.region
    if region is None or (region.low is None and region.high is None):
        return tag("span", "—", class_="none")
    low, high = number(region.low, "region.low"), number(region.high, "region.high")
    unit = suffix(measurement.unit)
    if region.low is None:
        return Markup("at most {}{}").format(high, unit)
    if region.high is None:
        return Markup("at least {}{}").format(low, unit)
    return Markup("{} to {}{}").format(low, high, unit)


def _worst(measurement: Measurement) -> _Worst | None:
    found = words.worst(measurement)
    if found is None:
        return None
    return _Worst(*found, index=measurement.seeds.index(found[0]))


def _is_fact(measurement: Measurement) -> bool:
    # Floors and the smallest margin the seeds could show are what a reviewer asks for first.
    name = measurement.name.lower()
    return strips.is_floor(measurement) or any(
        phrase in name for phrase in ("detectable", "minimal margin", "smallest margin")
    )


def pretty_numbers(text: str) -> str:
    """Running text with true minus signs before numbers."""
    return re.sub(r"(?<![\w.-])-(?=\d)|(?<=\de)-(?=\d)", "\u2212", text)


def _seeds(seeds: Sequence[int], at: str) -> Markup:
    in_sequence = len(seeds) > 3 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds)))
    if len(seeds) == 1:
        return number(seeds[0], f"{at}.0")
    count = number(len(seeds), f"{at}.length")
    if in_sequence:
        first, last = number(seeds[0], f"{at}.0"), number(seeds[-1], f"{at}.{len(seeds) - 1}")
        return Markup('{} <span class="unit">({}–{})</span>').format(count, first, last)
    some = Markup(", ").join(number(seed, f"{at}.{k}") for k, seed in enumerate(seeds[:8]))
    return Markup('{} <span class="unit">({}{})</span>').format(count, some, ", …" if len(seeds) > 8 else "")


def _time(seconds: float, at: str) -> Markup:
    return Markup('<data value="{}" data-at="{}">{}</data>').format(repr(seconds), at, words.duration(seconds))


def _swatch(kind: str) -> str:
    if "bars" in kind:
        return "M4 1h14v8H4Z"
    return "M11 5h0" if "dots" in kind else "M1 5H21"


def _place(data: Figure, value: float) -> str:
    if data.categories and value == int(value) and 0 <= value < len(data.categories):
        return data.categories[int(value)]
    return pretty(words.number(value))


def _hash(content: str) -> str:
    digest = hashlib.sha256(content.encode()).digest()
    return f"'sha256-{base64.b64encode(digest).decode()}'"
