"""The order of an audit: guards, end to end, search, localisation, gradients, robustness. Measures, decides nothing."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from assay.audits.symmetry import layout
from assay.audits.symmetry.facts import EVERYTHING, Facts, Test
from assay.audits.symmetry.groups.base import Draw, Group
from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.locate.isolate import isolate
from assay.audits.symmetry.locate.localise import locate
from assay.audits.symmetry.measure import differences, guards, robustness
from assay.audits.symmetry.measure.backward import wrong_backwards
from assay.audits.symmetry.measure.endtoend import Errors, measure, output_spreads
from assay.audits.symmetry.measure.gradients import gradient_test
from assay.audits.symmetry.measure.search import alternatives
from assay.audits.symmetry.measure.tolerance import Judgement, judge
from assay.audits.symmetry.subject import Subject
from assay.probe.containment import told
from assay.probe.subject import Leaves
from assay.results import Verdict
from assay.seeding import torch_generator

FEW = 4
"""Elements in the expensive parts (gradients, localisation, search, retests)."""
ROWS = 4
"""Inputs in the expensive parts."""


def run(facts: Facts, sample: Any) -> None:
    """All stages in order; a guard that makes the rest meaningless stops it."""
    run_guards(facts, sample)
    if facts.stopped:
        return
    run_end_to_end(facts)
    if any(test.judgement.excess == math.inf and test.errors.not_finite for test in facts.tests):
        return
    run_search(facts)
    run_localisation(facts)
    run_gradients(facts)
    run_robustness(facts)


def run_guards(facts: Facts, sample: Any) -> None:
    """Self-test, determinism, finiteness, batch coupling, identity, sensitivity."""
    subject = facts.subject
    facts.guards.append(guards.self_test_check(guards.self_tests(subject), subject.group()))
    if facts.guards[-1].verdict is Verdict.ERROR:
        facts.stopped = facts.guards[-1].reason
        return
    facts.stochastic = guards.is_stochastic(subject)
    reproducible = True
    if facts.stochastic:
        # Noise drawn in two dtypes is two noises: only one precision is compared with itself.
        subject.common_noise, subject._base, subject.high = True, {}, None
        subject.high_problem = "its noise differs between dtypes"
        reproducible = not guards.is_stochastic(subject)
    facts.guards.append(guards.determinism_check(facts.stochastic, reproducible))
    facts.guards.append(guards.finiteness_check(subject))
    if facts.guards[-1].verdict is Verdict.FAIL or not reproducible:
        facts.stopped = facts.guards[-1].reason if reproducible else facts.guards[-2].reason
        return
    facts.coupling = layout.arrange(subject, sample, facts.options.inputs, stochastic=bool(facts.stochastic))
    _keep_rows(subject, facts.options.inputs)
    facts.guards.append(guards.coupling_check(facts.coupling, subject.symmetry.batch))
    facts.spreads = output_spreads(subject)
    facts.special += _judged(facts, "identity", lambda group: group.identity())
    if facts.options.on("sensitivity"):
        facts.sensitivity = guards.sensitivity(subject)


def run_end_to_end(facts: Facts) -> None:
    """Every generator, the whole group, special elements, angles and, if asked for, an adversary."""
    group, count = facts.subject.group(), facts.options.transforms
    names = list(group.generators())
    for name in names:
        facts.tests += _judged(facts, name, _drawing(facts, name, count))
    if len(names) > 1:
        facts.tests += _judged(facts, EVERYTHING, _drawing(facts, EVERYTHING, count))
    if facts.options.on("special"):
        for name in group.special():
            if name != "identity":
                facts.special += _judged(facts, f"special: {name}", _special(name))
        steps = torch.linspace(0, 2 * math.pi, 25, dtype=torch.float64)
        if group.turned(steps) is not None:
            facts.angles = (steps, _at_angles(facts, steps))
    if facts.options.adversarial:
        from assay.audits.symmetry.measure.adversary import attack

        facts.adversary = attack(facts)
    if facts.options.on("sizes") and not facts.stochastic:
        name = facts.broken_generators[0] if facts.broken_generators else EVERYTHING if len(names) > 1 else names[0]
        facts.sizes = robustness.size_sweep(facts.subject, few(facts, name), facts.options.budget)


def run_search(facts: Facts) -> None:
    """Alternatives under which a broken generator holds."""
    if not facts.options.on("search") or facts.stochastic:
        return
    for name in facts.broken_generators:
        outputs = [test.errors.output for test in facts.tests if test.generator == name and test.broken]
        case, rows, elements = worst_pairs(facts, name)
        leaves = take_rows(facts.subject, case, rows[:FEW])
        facts.alternatives[name] = alternatives(facts.subject, leaves, elements, outputs)


def run_localisation(facts: Facts) -> None:
    """A to D for every broken generator; of a clean model A and B for its first one, to show the depth profile."""
    if not facts.options.on("localise") or facts.stochastic:
        return
    subject = facts.subject
    broken = facts.broken_generators
    for name in broken or list(subject.group().generators())[:1]:
        case, rows, elements = worst_pairs(facts, name)
        location = locate(subject, name, case, rows, elements)
        facts.locations[name] = location
        if broken:
            leaves = take_rows(subject, case, rows)
            facts.isolated[name] = isolate(subject, leaves, elements[0], subject.group(case))


def run_gradients(facts: Facts) -> None:
    """The three gradient tests."""
    subject = facts.subject
    if facts.stochastic:
        facts.untested["gradients"] = "the model is stochastic"
        return
    leaves = take_rows(subject, 0, list(range(min(ROWS, subject.batch(0)))))
    if facts.options.on("gradients"):
        for name in subject.group().generators():
            elements = few(facts, name)(subject.group())
            try:
                facts.gradients.append(gradient_test(subject, name, elements, leaves))
            except RuntimeError as error:
                facts.untested["gradients"] = told(error)
        problems = [test.problem for test in facts.gradients if test.problem]
        if problems:
            facts.untested["gradients"] = problems[0]
    if facts.options.on("differences"):
        _run_differences(facts, leaves)
    wrong = [one.broken for test in facts.gradients for one in test.inputs]
    wrong += [one.broken and one.of_autograd for one in facts.differences]
    if any(wrong) and not facts.broken and facts.options.on("localise"):
        facts.wrong_backwards = wrong_backwards(subject, leaves)


def _run_differences(facts: Facts, leaves: Leaves) -> None:
    subject = facts.subject
    jobs: list[Callable[[], differences.DifferenceTest | str]] = [
        lambda: differences.input_differences(subject, leaves),
        lambda: differences.parameter_differences(subject, leaves),
    ]
    names = force_names(subject)
    if names is not None:
        jobs.append(lambda: differences.force_differences(subject, leaves, names))
    for job in jobs:
        try:
            found = job()
        except RuntimeError as error:
            found = told(error)
        if isinstance(found, str):
            facts.untested.setdefault("differences", found)
        else:
            facts.differences.append(found)
    if facts.differences:
        facts.untested.pop("differences", None)


def run_robustness(facts: Facts) -> None:
    """Jittered weights, train mode, after training; only where the model as it is holds."""
    if facts.broken or facts.stochastic:
        return
    names = list(facts.subject.group().generators())
    draw = few(facts, EVERYTHING if len(names) > 1 else names[0])
    args = (facts.subject, draw, facts.spreads, facts.options.budget)
    found: list[robustness.Retest | None] = []
    if facts.options.on("jitter"):
        found.append(robustness.jittered_weights(*args))
    if facts.options.on("train-mode"):
        found.append(robustness.train_mode(*args))
    if facts.options.on("training") and facts.options.training_steps:
        found.append(robustness.after_training(*args, facts.options.training_steps))
    facts.retests += [one for one in found if one is not None]


def drawn(facts: Facts, group: Group, name: str, count: int) -> Elements:
    """The elements of a generator (or of the whole group) an audit uses: the same for the same seed."""
    random = torch_generator(facts.options.seed, "elements", name)
    if name == EVERYTHING:
        every = group.elements()
        return group.sample(count, random) if every is None or every.count > count else every
    draw: Draw = group.generators()[name]
    return draw(count, random)


def few(facts: Facts, name: str, count: int = FEW) -> Callable[[Group], Elements]:
    """A few elements of a generator."""
    return _drawing(facts, name, count)


def worst_pairs(facts: Facts, name: str) -> tuple[int, list[int], Elements]:
    """The case, the rows and the elements where a generator fails worst: a rare defect is looked for where it shows."""
    subject = facts.subject
    tests = [test for test in facts.tests if test.generator == name]
    errors = max(tests, key=lambda test: test.judgement.excess).errors
    ratio = torch.nan_to_num(errors.best / errors.floor, nan=0.0)
    order = ratio.argsort(descending=True)
    clusters = list(dict.fromkeys(errors.cluster[order].tolist()))
    case = 0
    if len(subject.cases) > 1:
        case, rows = int(clusters[0]), [0]
    else:
        rows = [int(c) for c in clusters[:ROWS]]
    mine = order[errors.cluster[order] == clusters[0]]
    numbers = list(dict.fromkeys(errors.element[mine].tolist()))[:3]
    elements = drawn(facts, subject.group(case), name, facts.options.transforms)
    return case, rows, elements[torch.tensor(numbers)]


def take_rows(subject: Subject, case: int, rows: list[int]) -> Leaves:
    """Some rows of a case; the whole case if it has no batch axis."""
    leaves = subject.cases[case]
    if not subject.rows:
        return leaves
    size = subject.batch(case)
    return [x[rows] if isinstance(x, Tensor) and x.ndim and len(x) == size else x for x in leaves]


def force_names(subject: Subject) -> tuple[str, str, str] | None:
    """(forces, energy, positions) as declared, or recognised by their usual names."""
    if subject.symmetry.forces is not None:
        return subject.symmetry.forces
    outputs, inputs = set(subject.output_names), subject.input_names
    position = next((name for name in ("pos", "positions", "coords", "x") if name in inputs), None)
    if {"energy", "forces"} <= outputs and position is not None:
        return "forces", "energy", position
    return None


def _drawing(facts: Facts, name: str, count: int) -> Callable[[Group], Elements]:
    return lambda group: drawn(facts, group, name, count)


def _special(name: str) -> Callable[[Group], Elements]:
    return lambda group: group.special()[name]


def _at_angles(facts: Facts, steps: Tensor) -> list[Errors]:
    """For the picture: float64 at every angle, so a few inputs only."""
    rows = list(range(min(ROWS, facts.subject.batch(0))))
    small = dataclasses.replace(facts.subject, cases=[take_rows(facts.subject, 0, rows)], _base={})
    return measure(small, lambda g: _present(g.turned(steps)), spreads=facts.spreads, everywhere=True)


def _judged(facts: Facts, name: str, draw: Callable[[Group], Elements]) -> list[Test]:
    errors = measure(facts.subject, draw, spreads=facts.spreads)
    acts = name == "identity" or guards.moved_by(facts.subject, draw)
    return [Test(name, one, _judge(facts, one), acts) for one in errors]


def _judge(facts: Facts, errors: Errors) -> Judgement:
    return judge(errors, low_dtype=facts.subject.low_dtype, budget=facts.options.budget)


def _keep_rows(subject: Subject, count: int) -> None:
    if subject.rows and subject.batch(0) > count:
        subject.cases[0] = take_rows(subject, 0, list(range(count)))
        subject._base.clear()


def _present(elements: Elements | None) -> Elements:
    assert elements is not None
    return elements
