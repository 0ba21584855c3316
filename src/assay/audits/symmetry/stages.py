"""The order of an audit: guards, end to end, places, gradients, conditions. Measures, decides nothing.

Each stage makes one frozen part of the facts from those before it. What raises is UNTESTED with its reason, and the
other stages go on.
"""

from __future__ import annotations

import dataclasses
import hashlib
import math
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar

import torch
from torch import Tensor

from assay.audits.symmetry import layout
from assay.audits.symmetry.drawing import FEW, drawing, few, few_rows, take_rows, worst_pairs
from assay.audits.symmetry.facts import EVERYTHING, Again, Backward, Facts, Forward, Guards, Options, Places, Test
from assay.audits.symmetry.groups.base import Group
from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.locate.isolate import Isolated, isolate
from assay.audits.symmetry.locate.localise import locate
from assay.audits.symmetry.locate.peel import peel
from assay.audits.symmetry.locate.probing import fit
from assay.audits.symmetry.measure import differences, guards, robustness
from assay.audits.symmetry.measure.backward import wrong_backwards
from assay.audits.symmetry.measure.endtoend import Errors, measure, output_spreads, shape_errors
from assay.audits.symmetry.measure.gradients import gradient_test
from assay.audits.symmetry.measure.search import alternatives
from assay.audits.symmetry.measure.sizes import size_sweep
from assay.audits.symmetry.measure.tolerance import Judgement, judge
from assay.audits.symmetry.subject import ShapeChanged, Subject, restored
from assay.probe.containment import told
from assay.probe.subject import Leaves
from assay.results import Verdict

T = TypeVar("T")


def run(subject: Subject, options: Options, name: str, sample: Any) -> Facts:
    """All stages in order; a guard that makes the rest meaningless stops it."""
    facts = run_forward(subject, options, name, sample)
    if facts.guards.stopped or any(math.isinf(t.judgement.excess) and t.errors.not_finite for t in facts.tests):
        return facts
    facts = dataclasses.replace(facts, places=run_places(facts))
    facts = dataclasses.replace(facts, backward=run_gradients(facts))
    return dataclasses.replace(facts, again=run_again(facts))


def run_forward(subject: Subject, options: Options, name: str, sample: Any) -> Facts:
    """Guards and end-to-end tests only: what a comparison of two models and a training log need."""
    subject, found, identity = run_guards(subject, options, sample)
    facts = Facts(subject, options, name, guards=found)
    return facts if found.stopped else dataclasses.replace(facts, forward=run_end_to_end(facts, identity))


class Attempts:
    """Runs parts of a stage and keeps the reasons of those that raised."""

    def __init__(self) -> None:
        self.untested: dict[str, str] = {}

    def __call__(self, part: str, job: Callable[[], T]) -> T | None:
        """What ``job`` returns, or None with the reason noted."""
        try:
            return job()
        except Exception as error:  # whatever a model raises under a test it was not written for
            self.untested.setdefault(part, told(error))
            return None


def run_guards(subject: Subject, options: Options, sample: Any) -> tuple[Subject, Guards, tuple[Test, ...]]:
    """Self-test, determinism, finiteness, batch coupling, identity, sensitivity; the subject as it is to be tested."""
    checks = [guards.self_test_check(guards.self_tests(subject), subject.group())]
    if checks[-1].verdict is Verdict.ERROR:
        return subject, Guards(tuple(checks), checks[-1].reason), ()
    problem = guards.twin_check(subject)
    if problem is not None:
        checks.append(problem)
        if problem.verdict is Verdict.ERROR:
            return subject, Guards(tuple(checks), problem.reason), ()
    notes = (guards.mode_check(subject.model), guards.compiled_check(subject.model))
    checks += [note for note in notes if note is not None]
    stochastic, reproducible, remembered = guards.is_stochastic(subject), True, 0.0
    if stochastic and not guards.is_stochastic(restored(subject)):
        stochastic, remembered = 0.0, stochastic  # no noise: it remembers what it was asked before
    if stochastic:
        # Noise drawn in two dtypes is two noises: only one precision is compared with itself.
        why = "its noise differs between dtypes"
        subject = dataclasses.replace(subject, common_noise=True, high=None, high_problem=why, _base={})
        reproducible = not guards.is_stochastic(subject)
    checks.append(guards.determinism_check(stochastic, reproducible))
    remembered = remembered or (0.0 if stochastic else guards.remembers(subject))
    memory = guards.memory_check(remembered)
    if memory is not None:
        checks.append(memory)
        subject = restored(subject)
    finite = guards.finiteness_check(subject)
    checks.append(finite)
    if finite.verdict is Verdict.FAIL or not reproducible:
        stopped = finite.reason if reproducible else checks[-2].reason
        return subject, Guards(tuple(checks), stopped, stochastic), ()
    subject, coupling = layout.arrange(subject, sample, options.inputs, stochastic=bool(stochastic))
    subject = _with_fewer_rows(_without_repeats(subject), options.inputs)
    checks.append(guards.coupling_check(coupling, subject.symmetry.batch))
    tried = Attempts()
    spreads = tried("spread of the outputs", lambda: output_spreads(subject)) or {}
    reacts = None
    if options.on("sensitivity"):
        reacts = tried("sensitivity", lambda: guards.sensitivity(subject))
    found = Guards(tuple(checks), "", stochastic, remembered, coupling, reacts, spreads, tried.untested)
    facts = Facts(subject, options, "", guards=found)
    identity = tried("identity", lambda: _judged(facts, "identity", lambda group: group.identity())) or []
    return subject, found, tuple(identity)


def run_end_to_end(facts: Facts, identity: tuple[Test, ...]) -> Forward:
    """Every generator, the whole group, special elements, angles and, if asked for, an adversary."""
    group, options, tried = facts.subject.group(), facts.options, Attempts()
    names = [*group.generators()]
    names += [EVERYTHING] if len(names) > 1 else []
    tests: list[Test] = []
    for name in names:
        tests += tried(f"end to end: {name}", partial(_judged, facts, name, drawing(facts, name))) or []
        if options.first_only and any(test.broken for test in tests):
            return Forward(tuple(tests), identity, None, untested=tried.untested)
    special, angles = list(identity), None
    if options.on("special"):
        for name in [name for name in group.special() if name != "identity"]:
            special += tried("special", partial(_judged, facts, f"special: {name}", _special(name))) or []
        steps = torch.linspace(0, 2 * math.pi, 25, dtype=torch.float64)
        if group.turned(steps) is not None:
            angles = tried("angles", lambda: (steps, _at_angles(facts, steps)))
    forward = Forward(tuple(tests), tuple(special), angles)
    facts = dataclasses.replace(facts, forward=forward)
    adversary: list[Test] = []
    if options.adversarial:
        from assay.audits.symmetry.measure.adversary import attack

        adversary = tried("adversary", lambda: attack(facts)) or []
    sizes: list[tuple[int, robustness.Retest]] = []
    if options.on("sizes") and not facts.guards.stochastic:
        name = facts.broken_generators[0] if facts.broken_generators else names[-1]
        swept = _with_fewer_rows(facts.subject, few_rows(facts.subject)) if facts.subject.large else facts.subject
        sweep = partial(size_sweep, swept, few(facts, name), options.budget)
        sizes = tried("sizes", sweep) or []
    return dataclasses.replace(forward, adversary=tuple(adversary), sizes=tuple(sizes), untested=tried.untested)


def run_places(facts: Facts) -> Places:
    """Other declarations that fit, A to D and the peeling for every broken generator.

    Of a clean model A and B for its first generator, to show the depth profile.
    """
    if facts.guards.stochastic:
        return Places()
    subject, tried, found = facts.subject, Attempts(), Places()
    between = [name for name in subject.group().generators() if subject.inexact(few(facts, name)(subject.group()))]
    if between:
        why = f"the grid is interpolated under {between[0]}: places are found at exact turns, as in C(4)"
        tried.untested["localise"] = why
    broken = [name for name in facts.broken_generators if name not in between]
    if between and broken in ([], [EVERYTHING]):
        return Places(untested=tried.untested)
    for name in broken if facts.options.on("search") else ():
        tests = [test for test in facts.tests if test.generator == name and test.broken]
        # Where outputs jump, rounding says nothing about which declaration fits.
        outputs = [test.errors.output for test in tests if not test.errors.jump]

        def search(name: str = name, outputs: list[str] = outputs) -> Any:
            case, rows, elements = worst_pairs(facts, name)
            return alternatives(subject, take_rows(subject, case, rows[:FEW]), elements, outputs,
                                spreads=facts.guards.spreads, others=_others(facts, name))

        if outputs:
            found = dataclasses.replace(found, alternatives={**found.alternatives, name: tried("search", search) or []})
    if not facts.options.on("localise"):
        return dataclasses.replace(found, untested=tried.untested)
    for name in broken or list(subject.group().generators())[:1]:
        found = _located(facts, found, name, tried, deep=bool(broken))
    return dataclasses.replace(found, untested=tried.untested)


def _others(facts: Facts, name: str) -> list[tuple[Elements, set[str]]]:
    """Two elements of every other generator, and the outputs that hold under it."""
    group, found = facts.subject.group(), []
    for other in group.generators():
        tests = [test for test in facts.tests if test.generator == other]
        if other not in (name, EVERYTHING) and tests:
            held = {test.errors.output for test in tests if not test.broken}
            found.append((few(facts, other, 2)(group), held))
    return found


def _located(facts: Facts, found: Places, name: str, tried: Attempts, *, deep: bool) -> Places:
    subject = facts.subject
    if not any(test.generator == name for test in facts.tests):
        return found
    case, rows, elements = worst_pairs(facts, name)
    location = tried("localise", lambda: locate(subject, name, case, rows=rows, elements=elements))
    if location is None:
        return found
    found = dataclasses.replace(found, locations={**found.locations, name: location})
    if not deep or not facts.options.on("modules"):
        return found
    leaves, group = take_rows(subject, case, rows), subject.group(case)
    alone: list[Isolated] = []
    if location.module not in {one.module for other, one in found.locations.items() if other != name}:
        # The same module again: what the others do alone was told under the generator before.
        alone = tried("isolate", lambda: isolate(subject, leaves, elements[0], group, near=location.first)) or []
    peeled = tried("peel", lambda: peel(subject, location, leaves, element=elements[0], group=group)) or []
    fitted = tried("cause", lambda: fit(subject, location, leaves, group))
    return dataclasses.replace(
        found,
        isolated={**found.isolated, name: alone},
        peeled={**found.peeled, name: peeled},
        fits={**found.fits, name: fitted} if fitted is not None else found.fits,
    )


def run_gradients(facts: Facts) -> Backward:
    """The three gradient tests."""
    subject, options, tried = facts.subject, facts.options, Attempts()
    if facts.guards.stochastic:
        return Backward(untested={"gradients": "the model is stochastic"})
    leaves = take_rows(subject, 0, list(range(min(few_rows(subject), subject.batch(0)))))
    gradients = []
    if options.on("gradients"):
        for name in subject.group().generators():
            # Where outputs break their gradients do: one element says how much.
            count = 1 if name in facts.broken_generators else 2 if subject.large else FEW
            elements = few(facts, name, count)(subject.group())

            def test(name: str = name, elements: Elements = elements) -> Any:
                return gradient_test(subject, name, elements, leaves, budget=options.budget)

            found = tried("gradients", test)
            gradients += [found] if found is not None else []
        problems = [one.problem for one in gradients if one.problem]
        if problems:
            tried.untested["gradients"] = problems[0]
    quotients = _differences(facts, leaves, tried) if options.on("differences") else []
    wrong = [one.broken for test in gradients for one in test.inputs]
    wrong += [one.broken and one.of_autograd for one in quotients]
    guilty: tuple[str, ...] = ()
    if any(wrong) and not facts.broken and options.on("localise"):
        guilty = tried("place of the wrong gradient", lambda: wrong_backwards(subject, leaves)) or ()
    return Backward(tuple(gradients), tuple(quotients), guilty, tried.untested)


def _differences(facts: Facts, leaves: Leaves, tried: Attempts) -> list[differences.DifferenceTest]:
    subject, names = facts.subject, force_names(facts.subject)
    jobs: list[differences.Test] = [
        lambda x: differences.input_differences(subject, x),
        lambda x: differences.parameter_differences(subject, x),
    ]
    if names is not None:
        jobs.append(lambda x: differences.force_differences(subject, x, names))
    found: list[differences.DifferenceTest] = []
    reasons = Attempts()
    for job in jobs:
        one = reasons("differences", partial(differences.at_a_smooth_point, job, subject, leaves))
        if isinstance(one, differences.DifferenceTest):
            found.append(dataclasses.replace(one, budget=facts.options.budget))
        elif one:
            reasons.untested.setdefault("differences", one)
    if not found:
        tried.untested.update(reasons.untested)
    return found


def run_again(facts: Facts) -> Again:
    """Jittered weights, train mode, after training; only where the model as it is holds."""
    if facts.broken or facts.guards.stochastic:
        return Again()
    names, options, tried = list(facts.subject.group().generators()), facts.options, Attempts()
    draw = few(facts, EVERYTHING if len(names) > 1 else names[0])
    given = (facts.subject, draw, options.budget)
    found: list[robustness.Retest | None] = []
    if options.on("jitter"):
        found.append(tried("jitter", lambda: robustness.jittered_weights(*given)))
    if options.on("train-mode"):
        found += tried("train-mode", lambda: robustness.train_mode(*given)) or []
    if options.on("training") and options.training_steps:
        found.append(tried("training", lambda: robustness.after_training(*given, steps=options.training_steps)))
    return Again(tuple(one for one in found if one is not None), tried.untested)


def force_names(subject: Subject) -> tuple[str, str, str] | None:
    """(forces, energy, positions) as declared, or recognised by their usual names."""
    if subject.symmetry.forces is not None:
        return subject.symmetry.forces
    outputs, inputs = set(subject.output_names), subject.input_names
    position = next((name for name in ("pos", "positions", "coords", "x") if name in inputs), None)
    if {"energy", "forces"} <= outputs and position is not None:
        return "forces", "energy", position
    return None


def _special(name: str) -> Callable[[Group], Elements]:
    return lambda group: group.special()[name]


def _at_angles(facts: Facts, steps: Tensor) -> list[Errors]:
    """For the picture: float64 at every angle, so a few inputs only."""
    rows = list(range(min(few_rows(facts.subject), facts.subject.batch(0))))
    small = dataclasses.replace(facts.subject, cases=[take_rows(facts.subject, 0, rows)], _base={})

    def turned(group: Group) -> Elements:
        elements = group.turned(steps)
        assert elements is not None
        return elements

    return measure(small, turned, spreads=dict(facts.guards.spreads), everywhere=True)


def _judged(facts: Facts, name: str, draw: Callable[[Group], Elements]) -> list[Test]:
    subject = facts.subject
    moves = guards.moved_by(subject, draw)
    try:
        errors = measure(subject, draw, spreads=dict(facts.guards.spreads))
    except ShapeChanged as change:
        errors = shape_errors(subject, change, facts.guards.spreads)
        excess = 1 / torch.finfo(subject.low_dtype).eps
        judged = [Judgement("BROKEN", excess, excess, None, 1.0, change.shapes) for _ in errors]
    else:
        judged = [judge(one, low_dtype=subject.low_dtype, budget=facts.options.budget) for one in errors]
    reacts = facts.guards.sensitivity
    found = []
    for one, verdict in zip(errors, judged, strict=True):
        acts = name == "identity" or (bool(moves) and (reacts is None or reacts.reacts_to(one.output, moves)))
        found.append(Test(name, one, verdict, moves, acts))
    return found


def _without_repeats(subject: Subject) -> Subject:
    """Each row once: rows that are the same (torch.ones) are one input, and their outputs have no spread."""
    if not subject.rows or subject.fixed_batch:
        return subject
    size = subject.batch(0)
    rowwise = [x for x in subject.cases[0] if isinstance(x, Tensor) and x.ndim and len(x) == size]
    first: dict[bytes, int] = {}
    for row in range(size):
        digest = hashlib.blake2b()
        for x in rowwise:
            digest.update(x.detach()[row].reshape(-1).view(torch.uint8).numpy().tobytes())
        first.setdefault(digest.digest(), row)
    if len(first) == size:
        return subject
    return dataclasses.replace(subject, cases=[take_rows(subject, 0, list(first.values()))], _base={})


def _with_fewer_rows(subject: Subject, count: int) -> Subject:
    if not subject.rows or subject.fixed_batch or subject.batch(0) <= count:
        return subject
    return dataclasses.replace(subject, cases=[take_rows(subject, 0, list(range(count)))], _base={})
