"""From what was measured to checks, a verdict and the sentence that says why."""

from __future__ import annotations

import math
from collections.abc import Sequence

from assay.audits.symmetry.facts import PARTS, Facts, Test
from assay.audits.symmetry.measure.guards import sensitivity_check
from assay.audits.symmetry.measure.robustness import Retest
from assay.audits.symmetry.measure.sizes import SETS
from assay.audits.symmetry.measure.statistics import rare_statement
from assay.audits.symmetry.measure.tolerance import VERDICTS, Label
from assay.probe.tree import said
from assay.results import Check, Control, Verdict

LATENT = "the symmetry holds at these weights only"


def checks(facts: Facts) -> list[Check]:
    """Every guard and test with its verdict; what was not run is UNTESTED."""
    found = list(facts.guards.checks)
    if facts.guards.stopped:
        return [*found, *(untested(part, f"not run after {found[-1].name}") for part in ("end to end", *PARTS))]
    if facts.guards.sensitivity is not None:
        found.append(sensitivity_check(facts.guards.sensitivity))
    found += [_end_to_end(test) for test in facts.tests]
    found += _special(facts)
    found += [_end_to_end(test) for test in facts.forward.adversary]
    found += _sizes(facts)
    found += _search(facts)
    found += _gradients(facts)
    found += [_retest(one) for one in facts.again.retests]
    found += [untested(part, why) for part, why in facts.untested.items()]
    found += [untested(part, f"switched off (skip={part!r})") for part in PARTS if not facts.options.on(part)]
    return found


def verdict(facts: Facts, found: list[Check]) -> Verdict:
    """FAIL if the symmetry is broken; INCONCLUSIVE if it could not be tested; PARTIAL if it holds with reservations."""
    if facts.guards.stopped:
        return Verdict.worst(check.verdict for check in facts.guards.checks)
    if any(check.verdict is Verdict.FAIL for check in found):
        return Verdict.INCONCLUSIVE if facts.guards.stochastic else Verdict.FAIL
    if _vacuous(facts) or facts.guards.stochastic or not any(test.acts for test in facts.tests):
        return Verdict.INCONCLUSIVE
    if any(test.judgement.label == "UNTESTED" for test in facts.tests) or _not_run(facts):
        return Verdict.INCONCLUSIVE
    if any(check.verdict is not Verdict.PASS for check in found):
        return Verdict.PARTIAL
    return Verdict.PASS


def calibrated(outcome: Verdict, why: str, controls: Sequence[Control]) -> tuple[Verdict, str]:
    """Verdict and reason, unless a control was not told for what it is: then PASS and FAIL are worth nothing."""
    confused = [control for control in controls if not control.separated]
    if not confused or outcome not in (Verdict.PASS, Verdict.FAIL):
        return outcome, why
    names = ", ".join(f"{one.name} ({one.observed} instead of {one.expected})" for one in confused)
    return Verdict.INCONCLUSIVE, f"not calibrated: the test did not tell {names}"


def _vacuous(facts: Facts) -> bool:
    """An output or an input took no part, or an output does not react to what some generator moves."""
    found = facts.guards.sensitivity
    dead = found is not None and bool(found.dead_outputs or found.dead_inputs)
    return dead or any(test.moves and not test.acts for test in facts.tests)


def _not_run(facts: Facts) -> bool:
    return any(part.startswith("end to end: ") for part in facts.untested)


def reason(facts: Facts, found: list[Check], outcome: Verdict) -> str:
    """One sentence: what decided, and for a break the first module that breaks it."""
    if facts.guards.stopped:
        return facts.guards.stopped
    if facts.guards.stochastic:
        return next(check.reason for check in found if check.name == "determinism")
    if outcome is Verdict.FAIL and facts.broken:
        return _where_it_breaks(facts)
    if outcome is not Verdict.PASS:
        bad = [check for check in found if check.verdict is not Verdict.PASS]
        first = max(bad, key=lambda check: (check.label != "UNTESTED", check.verdict.severity))
        holds = "" if facts.broken or outcome is not Verdict.PARTIAL else "end to end it holds, but "
        skipped = [check.name for check in bad if check.label == "UNTESTED"]
        if outcome is Verdict.PARTIAL and len(skipped) == len(bad):
            return f"it holds in everything that was tested; untested: {', '.join(skipped)}"
        return f"{holds}{first.name}: {first.reason}"
    worst = max(facts.tests, key=lambda test: test.judgement.worst)
    labels = sorted({test.judgement.label for test in facts.tests})
    n = int(worst.errors.cluster.max()) + 1
    return (
        f"{facts.subject.symmetry.group.name} holds ({', '.join(labels)}): largest relative error "
        f"{worst.judgement.worst:.2g} ({worst.generator}); {rare_statement(n)}"
    )


def _where_it_breaks(facts: Facts) -> str:
    named = [name for name in facts.broken_generators if name in facts.places.locations]
    test = max(facts.broken, key=lambda one: one.judgement.excess)
    if named:
        mine = [one for one in facts.broken if one.generator == named[0]]
        test = max(mine, key=lambda one: one.judgement.excess)
    text = f"{test.generator}: {said(test.errors.output)} has {test.judgement.reason}"
    name = facts.places.locations[named[0]].module if named else None
    where = f"'{name}' ({module_type(facts, name)})" if name else f"the model's own code ({module_type(facts, '')})"
    wrong = [str(one) for several in facts.places.alternatives.values() for one in several]
    if wrong:
        other = "" if name is None else f"; if the declaration is right, the first module to look at is {where}"
        return f"{text}; your test may be wrong: {wrong[0]}{other}"
    if not named:
        return text
    if name is None:
        return f"{text}; no single module could be named"
    return f"the first module that breaks {named[0]} is {where}; {text}"


def module_type(facts: Facts, name: str | None) -> str:
    """The class name of a module."""
    if name is None:
        return "unknown"
    return type(dict(facts.subject.model.named_modules()).get(name, facts.subject.model)).__name__


def untested(name: str, why: str) -> Check:
    """A part that was not run: never a pass."""
    return Check(name=name, verdict=Verdict.INCONCLUSIVE, reason=why, label="UNTESTED")


def _labelled(name: str, label: Label, why: str) -> Check:
    return Check(name=name, verdict=VERDICTS[label], reason=why, label=label)


def _end_to_end(test: Test) -> Check:
    name = f"{test.generator}: {test.errors.output}"
    if not test.acts:
        why = f"no declared input changes under {test.generator}"
        if test.moves:
            why = (
                f"{said(test.errors.output)} does not react to {', '.join(test.moves)}, all that {test.generator} moves"
            )
        return _labelled(name, "VACUOUS", f"{why}: nothing was tested")
    return _labelled(name, test.judgement.label, test.judgement.reason)


def _special(facts: Facts) -> list[Check]:
    if not facts.special:
        return []
    identity = [test for test in facts.special if test.generator == "identity"]
    others = [test for test in facts.special if test.generator != "identity"]
    found = []
    for name, tests in (("identity", identity), ("special elements", others)):
        if not tests:
            continue
        bad = [test for test in tests if test.broken]
        if bad:
            worst = max(bad, key=lambda test: test.judgement.excess)
            found.append(_labelled(name, "BROKEN", f"{worst.generator}: {worst.judgement.reason}"))
        else:
            labels: list[Label] = [test.judgement.label for test in tests]
            label = max(labels, key=_LOOSER.index)
            found.append(
                _labelled(
                    name,
                    label,
                    f"{len(tests)} {'test' if len(tests) == 1 else 'tests'}, "
                    f"largest relative error {max(t.judgement.worst for t in tests):.2g}",
                )
            )
    return found


_LOOSER: tuple[Label, ...] = ("EXACT", "FLOAT-LIMITED", "APPROXIMATE", "UNTESTED")


def _sizes(facts: Facts) -> list[Check]:
    run = [(size, one) for size, one in facts.forward.sizes if not one.problem]
    if len(run) < 2:
        return []
    bad = [size for size, one in run if one.broken]
    name = "set sizes" if run[0][1].condition.startswith(SETS) else "image sizes"
    if not bad:
        labels = {judged.label for _, one in run for _, judged in one.judgements}
        open_at = [str(size) for size, one in run if any(judged.label == "UNTESTED" for _, judged in one.judgements)]
        held = [str(size) for size, _ in run if str(size) not in open_at]
        texts = [f"holds at sizes {', '.join(held)}"] if held else []
        texts += [f"rounding is too large to tell at {', '.join(open_at)}"] if open_at else []
        return [_labelled(name, max(labels, key=_LOOSER.index, default="UNTESTED"), "; ".join(texts))]
    good = [size for size, _ in run if size not in bad]
    text = f"breaks at sizes {', '.join(map(str, bad))}" + (f", holds at {', '.join(map(str, good))}" if good else "")
    return [_labelled(name, "BROKEN", text)]


def _search(facts: Facts) -> list[Check]:
    texts = [str(one) for several in facts.places.alternatives.values() for one in several]
    return (
        [Check(name="is the test wrong?", verdict=Verdict.FAIL, reason="; ".join(dict.fromkeys(texts)))]
        if texts
        else []
    )


def _gradients(facts: Facts) -> list[Check]:
    found = []
    tested = [test for test in facts.backward.gradients if not test.problem]
    for kind, title in (("inputs", "input gradients"), ("parameters", "parameter gradients")):
        errors = [(test.generator, one) for test in tested for one in getattr(test, kind)]
        if not errors:
            continue
        bad = [pair for pair in errors if pair[1].broken]
        if not bad:
            text = f"covariant: largest relative error {max(one.relative for _, one in errors):.2g}"
            if any(one.label == "UNTESTED" for _, one in errors):
                low = str(facts.subject.low_dtype).removeprefix("torch.")
                why = f"the gradients of {low} and float64 differ as much as those to be compared: a kink or a jump"
                found.append(_labelled(title, "UNTESTED", why))
                continue
            loose = any(one.label == "APPROXIMATE" for _, one in errors)
            text = f"{text}, within the declared budget {facts.options.budget:g}" if loose else text
            found.append(_labelled(title, "APPROXIMATE" if loose else "EXACT", text))
            continue
        generator, worst = max(bad, key=lambda pair: pair[1].excess)
        names = list(
            dict.fromkeys(one.name for _, one in sorted(errors, key=lambda pair: -pair[1].relative) if one.broken)
        )
        size = f"off by {worst.relative:.2g}, {worst.excess:.2g} times rounding"
        size = size if math.isfinite(worst.excess) else "not finite"
        text = f"{generator}: the gradient by {', '.join(names[:3])} is {size}"
        latent = kind == "parameters" and not facts.broken
        outcome = Verdict.PARTIAL if latent else Verdict.FAIL
        found.append(Check(name=title, verdict=outcome, reason=f"{text}; {LATENT}" if latent else text, label="BROKEN"))
    for one in facts.backward.differences:
        found.append(_labelled(f"finite differences: {one.what}", one.label, one.reason))
    return found


def _retest(one: Retest) -> Check:
    if one.problem:
        return untested(one.condition, one.problem)
    worst = one.worst
    if worst is None:
        return untested(one.condition, "no declared output")
    if one.broken:
        return Check(
            name=one.condition, verdict=Verdict.PARTIAL, reason=f"breaks: {worst.reason}; {LATENT}", label="BROKEN"
        )
    return _labelled(one.condition, worst.label, worst.reason)
