"""Causes: each known signature of a defect becomes an issue with location, cause, remedy and a script."""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch
from torch import nn

from assay.audits.symmetry.causes import module_cause
from assay.audits.symmetry.facts import EVERYTHING, Facts
from assay.audits.symmetry.figures import edge_map, is_ring
from assay.audits.symmetry.localise import Location
from assay.audits.symmetry.scripts import script
from assay.results import Issue

RARE = 0.2
"""Below this share of broken pairs a defect is called rare: it needs special inputs to show."""


def issues(facts: Facts) -> list[Issue]:
    """Diagnosed defects, the most certain first: a wrong test before a wrong model."""
    if facts.stopped:
        return list(_stopped(facts))
    rules: tuple[Callable[[Facts], Iterable[Issue]], ...] = (
        _wrong_test,
        _stochastic,
        _coupled,
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
            f"the model does not run in float64 ({subject.high_problem}): rounding is estimated, small breaks may hide in it"
        )
    if not subject.rows and len(subject.cases) == 1:
        found.append("one input only: nothing can be said about other inputs; give a list of inputs or a callable")
    fixed = [one for _, one in facts.sizes if one.problem]
    if fixed:
        found.append(f"some image sizes do not run ({fixed[0].problem}): the sweep over sizes is incomplete")
    if not facts.options.adversarial and not facts.stopped:
        found.append("inputs and elements were drawn at random; adversarial=N searches for worse ones")
    if facts.locations and facts.broken:
        found.append("operations outside modules are blamed on the module whose code runs them")
    return found


def _issue(
    facts: Facts, title: str, location: str, severity: str, cause: str, fix: str, kind: str = "forward"
) -> Issue:
    return Issue.model_validate(
        {
            "title": title,
            "location": location,
            "severity": severity,
            "cause": cause,
            "fix": fix,
            "script": script(facts, kind, location),
        }
    )


def _stopped(facts: Facts) -> Iterable[Issue]:
    last = facts.guards[-1]
    if last.name == "self-test":
        yield _issue(
            facts,
            "Your test is wrong",
            "the declared symmetry",
            "high",
            last.reason,
            "correct the representation or the group: rho(gh) = rho(g) rho(h) must hold",
            "self-test",
        )
    elif facts.stochastic:
        yield from _stochastic(facts)
    else:
        yield _issue(
            facts,
            "Output is not finite",
            "the model",
            "high",
            last.reason,
            "find the division, logarithm or square root at zero (self-edges, equal points) and guard it",
        )


def _wrong_test(facts: Facts) -> Iterable[Issue]:
    for generator, several in facts.alternatives.items():
        for one in several:
            yield _issue(
                facts,
                "Your test may be wrong",
                f"{one.kind} {one.name}",
                "high",
                f"under {generator}: {one}",
                f"if that is what the model is meant to do, declare {one.name} as {one.fits}; otherwise the model returns the wrong type",
            )


def _stochastic(facts: Facts) -> Iterable[Issue]:
    if facts.stochastic:
        names = [n for n, m in facts.subject.model.named_modules() if isinstance(m, nn.modules.dropout._DropoutNd)]
        yield _issue(
            facts,
            "The model is stochastic",
            names[0] if names else "the model",
            "medium",
            f"two runs on the same input differ by {facts.stochastic:.2g} in evaluation mode, so it differs from itself at the identity",
            "give forward a `generator` argument (it gets the same seeded one at every call), or switch the noise off in evaluation mode",
        )


def _coupled(facts: Facts) -> Iterable[Issue]:
    if facts.coupling is not None and facts.coupling.coupled:
        batch_norms = [
            n
            for n, m in facts.subject.model.named_modules()
            if isinstance(m, nn.modules.batchnorm._BatchNorm) and not m.track_running_stats
        ]
        yield _issue(
            facts,
            "Rows of a batch depend on each other",
            batch_norms[0] if batch_norms else "the model",
            "medium",
            "a row of the output changes with other rows: statistics over the batch, or a softmax or sum over axis 0",
            "use statistics of one input (GroupNorm, norms of vectors) or running statistics; if axis 0 holds parts of one input, declare batch=None",
        )


def _broken_modules(facts: Facts) -> Iterable[Issue]:
    broken = set(facts.broken_generators)
    if facts.alternatives and any(facts.alternatives.values()):
        return
    for generator in facts.broken_generators:
        location = facts.locations.get(generator)
        title, cause, fix = _signature(facts, generator, broken, location)
        where = location.where if location is not None and location.first is not None else "the model"
        yield _issue(facts, title, where, "high", cause + _rarity(facts, generator), fix)
        yield from _further(facts, generator, location)
    if not broken and facts.broken:
        test = facts.broken[0]
        yield _issue(
            facts,
            f"Breaks at {test.generator}",
            "the model",
            "high",
            f"random elements hold, this one does not: {test.judgement.reason}",
            "look for branches, caps and thresholds that this element reaches",
        )


def _signature(facts: Facts, generator: str, broken: set[str], location: Location | None) -> tuple[str, str, str]:
    """Title, cause and remedy from which generators break, from the edge map and from the kind of module."""
    others = set(facts.subject.group().generators()) - broken
    edge = edge_map(location) if location is not None else None
    if edge is not None and is_ring(edge):
        return (
            "Padding",
            "the error is a ring at the edges and the middle is exact: what is padded in does not follow the shift",
            "use circular padding for circular shifts, or compare only the interior (shifts(wrap=False), image(..., margin=m))",
        )
    if any(t.generator == "identity" and t.broken for t in facts.special):
        return (
            "Differs at the identity",
            "f(ex) differs from rho(e) f(x): the output transformation does not match the output, or the model is not a function",
            "check the declared representation of the output and that the model does not keep state between calls",
        )
    by_module = module_cause(facts, location)
    if by_module is not None:
        return by_module
    if generator == "reflection" and "rotation" in others:
        return (
            "Parity",
            "rotations hold, reflections do not: a cross product or another pseudovector is mixed with vectors, or a determinant or a signed angle enters",
            "keep pseudovectors apart from vectors (parity labels), or claim SO(3) / SE(3) only",
        )
    if generator == "translation" and "rotation" in others:
        return (
            "Absolute position",
            "rotations hold, translations do not: absolute coordinates enter instead of differences",
            "use relative positions, or subtract the centre of mass first",
        )
    if generator.startswith("permutation") and others:
        return (
            "Index leak",
            "only permutations break it: the place of an element in the list enters (positional table, cumulative or order-dependent operation, a cap on neighbours)",
            "aggregate with sum, mean or max, drop what depends on the index, break ties by value",
        )
    return (
        "Symmetry broken",
        "no representation carries this module's output at x to its output at gx",
        "review this module against the constraint f(gx) = rho f(x)",
    )


def _rarity(facts: Facts, generator: str) -> str:
    for test in facts.tests:
        if test.generator == generator and test.broken:
            floor = torch.maximum(test.errors.bound, test.errors.bound.median())
            share = float((test.errors.best > floor).double().mean())
            if share < RARE:
                return f"; it shows in {share:.1%} of the pairs only: a cap, a cutoff or a tie that few inputs reach"
    return ""


def _further(facts: Facts, generator: str, location: Location | None) -> Iterable[Issue]:
    """Modules behind the first one that break by themselves (method C)."""
    bad = [one.module for one in facts.isolated.get(generator, []) if one.alone is not None and one.alone > 1]
    first = location.module if location is not None else None
    inner = [m for m in dict.fromkeys(bad) if m != first and not any(o != m and o.startswith(f"{m}.") for o in bad)]
    for module in inner[:5]:
        if first and (module.startswith(f"{first}.") or first.startswith(f"{module}.")):
            continue
        yield _issue(
            facts,
            "Another module breaks by itself",
            module,
            "medium",
            f"fed correctly transformed features, {module} alone breaks {generator}",
            "mend it too: it is hidden behind the first one",
        )


def _size_parity(facts: Facts) -> Iterable[Issue]:
    run = {size: one.broken for size, one in facts.sizes if not one.problem}
    odd, even = [b for s, b in run.items() if s % 2], [b for s, b in run.items() if not s % 2]
    if odd and even and (all(odd) != all(even)) and (any(odd) != any(even)):
        parity = "odd" if all(odd) else "even"
        yield _issue(
            facts,
            "Breaks at one parity of the image size",
            "strides and poolings",
            "high",
            f"images of {parity} size break: a stride or pooling window does not tile them symmetrically",
            "pad to a size the strides divide, or choose kernel and stride so that (size - kernel) is a multiple of the stride",
        )


def _gradient_only(facts: Facts) -> Iterable[Issue]:
    bad = [one for test in facts.gradients for one in test.inputs if one.broken]
    if bad and not facts.broken:
        worst = max(bad, key=lambda one: one.relative)
        yield _issue(
            facts,
            "The backward pass breaks the symmetry",
            f"gradient by {worst.name}",
            "high",
            f"the forward pass holds, the gradient by {worst.name} is off by {worst.relative:.2g}: a custom backward, or a component that is detached",
            "compare autograd.Function.backward with the derivative of its forward; remove detach() and .data from single components",
            "gradient",
        )


def _latent(facts: Facts) -> Iterable[Issue]:
    if facts.broken:
        return
    errors = [one for test in facts.gradients for one in test.parameters if one.broken]
    worst: dict[str, float] = {}
    for one in errors:
        worst[one.name] = max(worst.get(one.name, 0.0), one.relative)
    weights = dict(facts.subject.model.named_parameters())
    # A defect that is still asleep sits in a parameter that is zero: name those first.
    names = sorted(worst, key=lambda n: (bool(weights[n].detach().any()) if n in weights else True, -worst[n]))
    retests = [one.condition for one in facts.retests if one.broken and one.condition != "train mode"]
    if names or retests:
        what = f"the gradient by {names[0]} is not invariant" if names else f"it breaks with {retests[0]}"
        asleep = names and names[0] in weights and not bool(weights[names[0]].detach().any())
        why = (
            "the parameter is zero now and breaks the symmetry as soon as it is trained"
            if asleep
            else "the symmetry holds at these weights and not at others"
        )
        yield _issue(
            facts,
            "Latent: training will break it",
            names[0] if names else "the weights",
            "high",
            f"exact now, but {what}: {why}",
            "remove the parameter (a bias on vectors, a positional table) or build the constraint into the layer",
            "gradient",
        )


def _differences(facts: Facts) -> Iterable[Issue]:
    for one in facts.differences:
        if one.broken:
            where = ", ".join(one.names[:3]) or one.what
            forces = one.what.startswith(("inputs", "parameters")) is False
            cause = (
                f"{one.what} does not hold: off by {one.relative:.2g} {one.note}".strip()
                if forces
                else f"autograd by {one.what} and finite differences differ by {one.relative:.2g}: a detach(), a straight-through trick or a wrong custom backward"
            )
            fix = (
                "take the forces from autograd.grad(energy, positions), or do not claim energy conservation"
                if forces
                else "make the backward the derivative of the forward"
            )
            yield _issue(
                facts,
                "Forces are not the gradient of the energy" if forces else "Gradient is not the derivative",
                where,
                "high",
                cause,
                fix,
                "differences",
            )


def _train_mode(facts: Facts) -> Iterable[Issue]:
    for one in facts.retests:
        if one.broken and one.condition == "train mode":
            names = [
                n for n, m in facts.subject.model.named_modules() if isinstance(m, nn.modules.batchnorm._BatchNorm)
            ]
            yield _issue(
                facts,
                "Breaks in train mode",
                names[0] if names else "the model",
                "medium",
                "evaluation mode holds, train mode does not: statistics of the batch enter",
                "normalise with quantities the group leaves alone (norms of vectors, statistics over the whole orbit)",
            )


def _leak(facts: Facts) -> Iterable[Issue]:
    for test in facts.tests:
        if test.judgement.label == "FLOAT-LIMITED" and test.judgement.high_over_low is not None:
            yield _issue(
                facts,
                "A step is kept in low precision",
                "the model",
                "low",
                f"the float64 copy is only {1 / max(test.judgement.high_over_low, 1e-300):.2g} times better than the low precision: a constant or a step stays in float32",
                "build constants in float64 or in the dtype of the input; it does not break the symmetry beyond rounding",
            )
            return


def _vacuous(facts: Facts) -> Iterable[Issue]:
    still = [test.generator for test in facts.tests if not test.acts and test.generator != EVERYTHING]
    if still:
        yield _issue(
            facts,
            "A generator moves no input",
            ", ".join(dict.fromkeys(still)),
            "medium",
            "no declared input changes under it, so its test says nothing",
            "declare an input that it moves (sym.point() for translations) or claim a smaller group",
        )
    found = facts.sensitivity
    if found is not None and (found.dead_outputs or found.dead_inputs):
        names = ", ".join([*found.dead_outputs, *found.dead_inputs])
        yield _issue(
            facts,
            "Nothing was tested",
            names,
            "high",
            "an output that does not react to its input has every symmetry",
            "check that the input reaches the output (a zero initialisation, a cutoff, a disconnected branch)",
        )
