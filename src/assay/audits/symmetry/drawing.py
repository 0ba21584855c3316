"""Which inputs and elements a stage uses: the same for the same seed, and where it fails worst."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from assay.audits.symmetry.facts import EVERYTHING, Facts
from assay.audits.symmetry.groups.base import Draw, Group
from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.subject import Subject
from assay.probe.subject import Leaves
from assay.seeding import torch_generator

FEW = 4
"""Elements in the expensive parts (gradients, localisation, search, retests)."""
ROWS = 4
"""Inputs in the expensive parts."""
TRACED = 3
"""Elements a model is traced at."""


def drawn(facts: Facts, group: Group, name: str, count: int) -> Elements:
    """The elements of a generator (or of the whole group) an audit uses: the same for the same seed."""
    random = torch_generator(facts.options.seed, "elements", name)
    if name == EVERYTHING:
        every = group.elements()
        return group.sample(count, random) if every is None or every.count > count else every
    draw: Draw = group.generators()[name]
    return draw(count, random)


def drawing(facts: Facts, name: str, count: int | None = None) -> Callable[[Group], Elements]:
    """As many elements of a generator as the options say."""
    number = facts.options.transforms if count is None else count
    return lambda group: drawn(facts, group, name, number)


def few(facts: Facts, name: str, count: int = FEW) -> Callable[[Group], Elements]:
    """A few elements of a generator."""
    return drawing(facts, name, count)


def worst_pairs(facts: Facts, name: str) -> tuple[int, list[int], Elements]:
    """The case, the rows and the elements where a generator fails worst: a rare defect is looked for where it shows."""
    subject = facts.subject
    tests = [test for test in facts.tests if test.generator == name]
    errors = max(tests, key=lambda test: test.judgement.excess).errors
    ratio = torch.nan_to_num(errors.best / errors.floor, nan=0.0)
    order = ratio.argsort(descending=True)
    clusters = list(dict.fromkeys(errors.cluster[order].tolist()))
    case, most, some = 0, few_rows(subject), 1 if subject.large else TRACED
    if len(subject.cases) > 1:
        case, rows = int(clusters[0]), [0]
    else:
        rows = [int(c) for c in clusters[:most]]
    mine = order[errors.cluster[order] == clusters[0]]
    numbers = list(dict.fromkeys(errors.element[mine].tolist()))[:some]
    elements = drawn(facts, subject.group(case), name, facts.options.transforms)
    return case, filled(subject, case, rows), elements[torch.tensor(numbers)]


def few_rows(subject: Subject) -> int:
    """Inputs in the expensive parts: two of a large model, since one alone has no inner products."""
    return 2 if subject.large else ROWS


def filled(subject: Subject, case: int, rows: list[int]) -> list[int]:
    """The rows, repeated until a model that takes one number of rows only is satisfied."""
    if not subject.fixed_batch:
        return rows
    size = subject.batch(case)
    return (rows * size)[:size]


def take_rows(subject: Subject, case: int, rows: list[int]) -> Leaves:
    """Some rows of a case; the whole case if it has no batch axis."""
    leaves = subject.cases[case]
    if not subject.rows:
        return leaves
    size, rows = subject.batch(case), filled(subject, case, rows)
    return [x[rows] if isinstance(x, Tensor) and x.ndim and len(x) == size else x for x in leaves]
