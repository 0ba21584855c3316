"""Causes: each known signature of a defect becomes an issue with location, cause, remedy and a script."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Iterable
from typing import Literal

from torch import nn

from assay.audits.symmetry.edges import EDGES
from assay.audits.symmetry.explain import signatures
from assay.audits.symmetry.explain.causes import fitted_cause, module_cause
from assay.audits.symmetry.explain.signatures import Signature
from assay.audits.symmetry.facts import EVERYTHING, Facts
from assay.audits.symmetry.locate.isolate import MOST_MODULES
from assay.audits.symmetry.locate.localise import CLOSE, Location
from assay.audits.symmetry.locate.residual import edge_map, is_ring
from assay.audits.symmetry.measure.perturbed import ESTIMATE_SAFETY
from assay.audits.symmetry.measure.sizes import SETS
from assay.audits.symmetry.present.scripts import script
from assay.probe.tree import said
from assay.results import Issue

RARE = 0.2
"""Below this share of broken pairs a defect is called rare: it needs special inputs to show."""
Severity = Literal["high", "medium", "low"]


def issues(facts: Facts) -> list[Issue]:
    """Diagnosed defects, the most certain first: a wrong test before a wrong model."""
    if facts.guards.stopped:
        return list(_stopped(facts))
    rules: tuple[Callable[[Facts], Iterable[Issue]], ...] = (
        _wrong_test,
        _stochastic,
        _remembers,
        _coupled,
        _shapes,
        _jumps,
        _broken_modules,
        _size_parity,
        _gradient_only,
        _latent,
        _differences,
        _train_mode,
        _leak,
        _vacuous,
    )
    return [issue for rule in rules for issue in rule(facts)]


def limitations(facts: Facts) -> list[str]:
    """What the audit does not show."""
    subject, found = facts.subject, []
    undeclared = [name for name, rep in zip(subject.output_names, subject.outputs, strict=True) if rep is None]
    if undeclared:
        found.append(f"outputs without a declared representation are untested: {', '.join(undeclared)}")
    if subject.high is None:
        found.append(
            f"no float64 run ({subject.high_problem}): rounding is estimated by moving weights and inputs by one "
            f"rounding, and only {ESTIMATE_SAFETY:g} times the estimate, a factor set by hand, is called broken: small "
            "breaks may hide in it"
        )
    if not subject.rows and len(subject.cases) == 1 and not facts.guards.stopped:
        found.append("one input only: nothing can be said about other inputs; give a list of inputs or a callable")
    fixed = [one for _, one in facts.forward.sizes if one.problem]
    if fixed:
        found.append(f"some sizes do not run ({fixed[0].problem}): the sweep over sizes is incomplete")
    if not facts.options.adversarial and not facts.guards.stopped:
        found.append("inputs and elements were drawn at random; adversarial=N searches for worse ones")
    if any(len(results) >= MOST_MODULES for results in facts.places.isolated.values()):
        found.append(f"only the first {MOST_MODULES} module calls were tested in isolation (C)")
    excused = [
        p.event.label for one in facts.places.locations.values() for p in one.places if p.consistent and not p.fits
    ]
    if excused:
        found.append(
            f"no known representation describes the features of {', '.join(dict.fromkeys(excused[:3]))}; they were "
            f"excused because they keep inner products and no candidate comes within {CLOSE:g} (set by hand)"
        )
    if facts.places.locations and facts.broken:
        found.append("operations outside modules are blamed on the module whose code runs them")
    return found


def _issue(facts: Facts, signature: Signature, location: str, severity: Severity, **words: object) -> Issue:
    return Issue(
        title=signature.title.format(**words),
        location=location,
        severity=severity,
        cause=signature.cause.format(**words).strip(),
        fix=signature.fix.format(**words),
        script=script(facts, signature.shown_by, location),
    )


def _stopped(facts: Facts) -> Iterable[Issue]:
    last = facts.guards.checks[-1]
    if last.name == "self-test":
        yield _issue(facts, signatures.WRONG_TEST, "the declared symmetry", "high", reason=last.reason)
    elif facts.guards.stochastic:
        yield from _stochastic(facts)
    else:
        yield _issue(facts, signatures.NOT_FINITE, "the model", "high", reason=last.reason)


def _wrong_test(facts: Facts) -> Iterable[Issue]:
    for generator, several in facts.places.alternatives.items():
        for one in several:
            words = {"generator": generator, "alternative": one, "name": one.name, "fits": one.fits}
            yield _issue(facts, signatures.MAYBE_WRONG_TEST, f"{one.kind} {one.name}", "high", **words)


def _jumps(facts: Facts) -> Iterable[Issue]:
    jumping = [test for test in facts.tests if test.broken and test.errors.jump]
    if jumping:
        worst = max(jumping, key=lambda test: test.errors.jump)
        where = facts.places.locations.get(worst.generator)
        words = {"output": said(worst.errors.output), "jump": worst.errors.jump}
        name = where.where if where is not None else "the model"
        yield _issue(facts, signatures.DISCONTINUOUS, name, "high", **words)


def _shapes(facts: Facts) -> Iterable[Issue]:
    for test in facts.tests:
        if test.broken and test.judgement.reason.startswith("shape "):
            words = {"output": said(test.errors.output), "shapes": test.judgement.reason}
            yield _issue(facts, signatures.SHAPE, "the model", "high", **words)
            return


def _stochastic(facts: Facts) -> Iterable[Issue]:
    if facts.guards.stochastic:
        where = _first_module(facts, nn.modules.dropout._DropoutNd)
        yield _issue(facts, signatures.STOCHASTIC, where, "medium", gap=facts.guards.stochastic)


def _remembers(facts: Facts) -> Iterable[Issue]:
    if facts.guards.remembers:
        yield _issue(facts, signatures.REMEMBERS, "the model", "medium", gap=facts.guards.remembers)


def _coupled(facts: Facts) -> Iterable[Issue]:
    if facts.guards.coupling is not None and facts.guards.coupling.coupled:
        where = _first_module(facts, nn.modules.batchnorm._BatchNorm)
        yield _issue(facts, signatures.COUPLED, where, "medium")


def _broken_modules(facts: Facts) -> Iterable[Issue]:
    """One issue per place: generators that break at the same module share one."""
    if facts.guards.stochastic:
        return
    # If another declaration fits, the model may be right: its modules come second then.
    severity: Severity = "medium" if any(facts.places.alternatives.values()) else "high"
    places: dict[tuple[str, str], tuple[Signature, list[str]]] = {}
    for generator in facts.broken_generators:
        location = facts.places.locations.get(generator)
        signature = _signature(facts, generator, location)
        where = location.where if location is not None and location.first is not None else _unusual(location)
        places.setdefault((where, signature.title), (signature, []))[1].append(generator)
    for (where, _), (signature, generators) in places.items():
        rare = "".join(dict.fromkeys(_rarity(facts, generator) for generator in generators))
        rare += "".join(dict.fromkeys(_share(facts, generator) for generator in generators))
        found = Signature(
            signature.title, f"{', '.join(generators)}: {signature.cause}{rare}", signature.fix, signature.shown_by
        )
        yield _issue(facts, found, where, severity)
    seen: set[str] = set()
    for generator in facts.broken_generators:
        further = [issue for issue in _further(facts, generator) if issue.location not in seen]
        seen |= {issue.location for issue in further}
        yield from further
    if not facts.broken_generators and facts.broken:
        test = facts.broken[0]
        words = {"generator": test.generator, "reason": test.judgement.reason}
        yield _issue(facts, signatures.AT_ELEMENT, "the model", "high", **words)


def _signature(facts: Facts, generator: str, location: Location | None) -> Signature:
    """The cause from the edge map, the kind of module, and fits at the guilty module; unknown if nothing fits."""
    group = facts.subject.group() if location is None else location.group
    edge = edge_map(location, group) if location is not None else None
    if edge is not None and is_ring(edge):
        return signatures.PADDING
    if any(test.generator == "identity" and test.broken for test in facts.special):
        return signatures.IDENTITY
    by_module = module_cause(facts, location)
    if by_module is not None:
        return by_module
    otherwise = signatures.EDGE_ORDER if generator == f"permutation of {EDGES}" else signatures.UNKNOWN
    found = fitted_cause(facts, generator, location) or otherwise
    worst = max((test.judgement.worst for test in facts.tests if test.generator == generator), default=1.0)
    if found is signatures.UNKNOWN and worst < signatures.TABLE:
        return dataclasses.replace(found, cause=found.cause + signatures.ROUNDED)
    return found


def _share(facts: Facts, generator: str) -> str:
    """How much of the error the first module owns, if it is not the only one."""
    peeled = facts.places.peeled.get(generator, [])
    return f"; it owns {_part(peeled[0].share)} of the error, see below for the rest" if len(peeled) > 1 else ""


def _part(share: float) -> str:
    """A share in words; mending one of two errors that cancel makes the rest larger, so a share may be below 0."""
    return "none" if share < 0 else "all" if share > 1 else f"{share:.0%}"


def _rarity(facts: Facts, generator: str) -> str:
    for test in facts.tests:
        if test.generator == generator and test.broken:
            errors = test.errors
            sample = float((errors.best > errors.floor)[errors.sampled].double().mean())
            share = max(sample, errors.suspects / len(errors.screened), 1 / len(errors.screened))
            if share < RARE:
                return f"; it shows in {share:.1%} of the pairs only: a cap, a cutoff or a tie that few inputs reach"
    return ""


def _further(facts: Facts, generator: str) -> Iterable[Issue]:
    """Modules that break behind the first one, found by mending those before them."""
    peeled = facts.places.peeled.get(generator, [])
    for before, one in itertools.pairwise(peeled):
        words = {"first": before.module or "the model's own code", "generator": generator, "share": _part(one.share)}
        yield _issue(facts, signatures.FURTHER, one.where, "high", **words)


def _size_parity(facts: Facts) -> Iterable[Issue]:
    run = {size: one.broken for size, one in facts.forward.sizes if not one.problem}
    if any(one.condition.startswith(SETS) for _, one in facts.forward.sizes):
        bad = ", ".join(str(size) for size, broken in run.items() if broken)
        if bad and not facts.broken:
            yield _issue(facts, signatures.SET_SIZE, "what depends on the number of entries", "high", sizes=bad)
        return
    odd, even = [b for s, b in run.items() if s % 2], [b for s, b in run.items() if not s % 2]
    if odd and even and all(odd) != all(even) and any(odd) != any(even):
        parity = "odd" if all(odd) else "even"
        yield _issue(facts, signatures.SIZE_PARITY, "strides and poolings", "high", parity=parity)


def _gradient_only(facts: Facts) -> Iterable[Issue]:
    bad = [one for test in facts.backward.gradients for one in test.inputs if one.broken]
    if bad and not facts.broken:
        worst = max(bad, key=lambda one: one.relative)
        words = {"name": worst.name, "relative": worst.relative}
        signature = signatures.BACKWARD if math.isfinite(worst.relative) else signatures.NO_GRADIENT
        yield _issue(facts, signature, facts.wrong_backward or f"gradient by {worst.name}", "high", **words)


def _latent(facts: Facts) -> Iterable[Issue]:
    if facts.broken:
        return
    # A wrong backward pass spoils parameter gradients too; then only a break after a change of weights is latent.
    names = [] if facts.backward.wrong_backwards else latent_parameters(facts)
    retests = [
        one.condition for one in facts.again.retests if one.broken and not one.condition.startswith("train mode")
    ]
    if not names and not retests:
        return
    weights = dict(facts.subject.model.named_parameters())
    asleep = bool(names) and names[0] in weights and not bool(weights[names[0]].detach().any())
    words = {
        "what": f"the gradient by {names[0]} is not invariant" if names else f"it breaks with {retests[0]}",
        "why": "the parameter is zero now and breaks the symmetry as soon as it is trained"
        if asleep
        else "the symmetry holds at these weights and not at others",
    }
    yield _issue(facts, signatures.LATENT, names[0] if names else "the weights", "high", **words)


def latent_parameters(facts: Facts) -> list[str]:
    """Parameters whose gradient is not invariant; those that are zero first, for a defect asleep sits in one."""
    worst: dict[str, float] = {}
    for test in facts.backward.gradients:
        for one in test.parameters:
            if one.broken:
                worst[one.name] = max(worst.get(one.name, 0.0), one.relative)
    weights = dict(facts.subject.model.named_parameters())
    return sorted(worst, key=lambda n: (bool(weights[n].detach().any()) if n in weights else True, -worst[n]))


def _differences(facts: Facts) -> Iterable[Issue]:
    told = bool(facts.backward.wrong_backwards) and any(
        one.broken for test in facts.backward.gradients for one in test.inputs
    )
    for one in facts.backward.differences:
        if one.broken and math.isfinite(one.relative) and not (told and one.of_autograd):
            told = told or (bool(facts.backward.wrong_backwards) and one.of_autograd)  # one module, one issue
            signature = signatures.NOT_DERIVATIVE if one.of_autograd else signatures.FORCES
            words = {"what": one.what, "relative": one.relative, "note": one.note}
            named = facts.wrong_backward if one.of_autograd else ""
            yield _issue(facts, signature, named or ", ".join(one.names[:3]) or one.what, "high", **words)


def _train_mode(facts: Facts) -> Iterable[Issue]:
    if any(one.broken and one.condition.startswith("train mode") for one in facts.again.retests):
        where = _first_module(facts, nn.modules.batchnorm._BatchNorm)
        yield _issue(facts, signatures.TRAIN_MODE, where, "medium")


def _leak(facts: Facts) -> Iterable[Issue]:
    for test in facts.tests:
        ratio = test.judgement.high_over_low
        if test.judgement.label == "FLOAT-LIMITED" and ratio:
            yield _issue(facts, signatures.PRECISION, "the model", "low", gain=1 / ratio)
            return


def _vacuous(facts: Facts) -> Iterable[Issue]:
    still = [test.generator for test in facts.tests if not test.acts and test.generator != EVERYTHING]
    if still:
        yield _issue(facts, signatures.STILL, ", ".join(dict.fromkeys(still)), "medium")
    found = facts.guards.sensitivity
    if found is not None and (found.dead_outputs or found.dead_inputs):
        yield _issue(facts, signatures.VACUOUS, ", ".join([*found.dead_outputs, *found.dead_inputs]), "high")


def _unusual(location: Location | None) -> str:
    place = location.first_unexpected if location is not None else None
    return place.event.label if place is not None else "the model"


def _first_module(facts: Facts, kind: type[nn.Module]) -> str:
    names = [name for name, module in facts.subject.model.named_modules() if isinstance(module, kind)]
    return names[0] if names else "the model"
