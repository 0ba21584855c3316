"""The sameness audit: does a candidate compute what a reference computes, up to what rounding explains?"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from assay.audits.same import conditions as at
from assay.audits.same import present
from assay.audits.same.judge import QuantityComparison, Truth, compare
from assay.audits.same.locate import first_difference, traced
from assay.audits.same.modes import agree_in_evaluation
from assay.audits.same.quantities import Call, Inquiry, Kind, Quantities, Quantity, Wrapped, counterparts
from assay.audits.same.swap import Pairs, blamed, counterpart_modules, exchange
from assay.errors import InputError, NotPassed, expected, unknown
from assay.learning.resolve import is_path
from assay.learning.subjects import as_module, subject_of
from assay.probe.containment import attempt
from assay.probe.copies import duplicate, native_dtype, room_to_compile, untouched_random_state
from assay.probe.subject import check_inputs, drawn, input_names
from assay.results import Finding
from assay.seeding import torch_generator

INPUTS = 8
"""Rows drawn from a sample that is a function."""


class NotSame(NotPassed, AssertionError):
    """What ``assert_same`` raises: also an AssertionError, so that test runners show it as a failure."""


@dataclass
class SameFacts:
    """What was measured, before anything is decided."""

    name: str
    seed: int
    dtype: torch.dtype
    budget: float | None
    without: tuple[str, ...] = ()
    compared: list[QuantityComparison] = field(default_factory=list)
    truth: Truth | None = None
    found: Quantities = field(default_factory=dict)
    untested: dict[str, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    wrong: dict[str, str] = field(default_factory=dict)
    """What is wrong apart from numbers: a dtype, a crash, noise."""
    lacking: dict[str, str] = field(default_factory=dict)
    """What the candidate has not, or raises at beyond inputs like the sample: what can be compared may agree."""
    module: str | None = None
    agree_in_evaluation: bool = False
    """They differ in the mode they are in, and their outputs agree once both are in evaluation mode."""
    high_problem: str = ""


def audit_same(
    reference: nn.Module | Callable[..., Any] | str,
    candidate: nn.Module | Callable[..., Any] | str,
    sample: Any,
    *,
    seed: int = 0,
    budget: float | None = None,
    gradients: bool = True,
    call: Call | None = None,
    parameters: Mapping[str, str] | None = None,
    without: Iterable[str] = (),
    device: str | None = None,
    name: str | None = None,
) -> Finding:
    """Whether ``candidate`` computes what ``reference`` computes: outputs, gradients, forces, buffers, edges.

    The reference in float64 is the truth; the candidate may be off by a derived multiple of what the working precision
    does to the reference itself, so a more accurate candidate passes and no tolerance is chosen. ``budget`` is the
    relative error you accept of an approximation instead. ``parameters`` maps names of the candidate to those of the
    reference where they differ; ``without`` names what the candidate does not claim (``"no row"``, ``"one row"``,
    ``"second derivatives"``, ...), and the finding repeats it. Both are compared in the mode they are in, and left
    exactly as they were found.

    It does not show that they agree on inputs unlike the sample.

    >>> layer = torch.nn.Linear(3, 2)
    >>> audit_same(layer, lambda x: torch.nn.functional.linear(x, layer.weight, layer.bias), torch.randn(4, 3),
    ...            gradients=False).verdict
    <Verdict.PASS: 'PASS'>
    """
    if budget is not None and not 0 < budget < 1:
        raise InputError(f"expected 0 < budget < 1 (a relative error) or None; given {budget}")
    unclaimed = _known(without)
    started = time.perf_counter()
    first, sample = subject_of(_module(reference, seed), sample, device=device)
    (second,) = subject_of(_module(candidate, seed), device=device)
    with untouched_random_state(), room_to_compile():
        facts = _measure(first, second, sample, seed=seed, budget=budget, gradients=gradients, call=call,
                         given=parameters, without=unclaimed, name=name)  # fmt: skip
        finding = present.summarise(facts)
    return finding.model_copy(update={"seconds": time.perf_counter() - started})


def assert_same(reference: Any, candidate: Any, sample: Any, **options: Any) -> Finding:
    """The finding of ``audit_same`` if it passed; else raises NotSame (an AssertionError)."""
    __tracebackhide__ = True
    finding = audit_same(reference, candidate, sample, **options)
    if finding.passed:
        return finding
    raise NotSame(f"{finding.subject}: {finding.verdict}: {finding.reason}", finding)


def _known(without: Iterable[str]) -> tuple[str, ...]:
    given = (without,) if isinstance(without, str) else tuple(without)
    for part in given:
        if part not in at.PARTS:
            raise InputError(unknown("part of without=", part, at.PARTS))
    return given


def _module(given: Any, seed: int) -> nn.Module:
    """A module; what a path or a class makes; any other callable is itself what is compared."""
    if is_path(given) or isinstance(given, nn.Module) or (isinstance(given, type) and issubclass(given, nn.Module)):
        return as_module(given, seed=seed)
    if not callable(given):
        raise expected("a torch.nn.Module, a callable or pkg.module:name", given=type(given).__name__)
    return Wrapped(given)


@dataclass(frozen=True)
class _Models:
    """Copies: the reference in the working precision and in float64 (twice, once nudged), and the candidate."""

    rough: nn.Module
    exact: nn.Module
    nudged: nn.Module
    candidate: nn.Module


def _measure(
    reference: nn.Module, candidate: nn.Module, sample: Any, *, seed: int, budget: float | None, gradients: bool,
    call: Call | None, given: Mapping[str, str] | None, without: tuple[str, ...], name: str | None,
) -> SameFacts:  # fmt: skip
    template, cases = drawn(sample, INPUTS, seed)
    names = input_names(reference, template)
    check_inputs(cases[0], names)
    leaves = cases[0]
    dtype = native_dtype(reference, [leaf for leaf in leaves if isinstance(leaf, Tensor)])
    subject = name or f"{_said(candidate)} against {_said(reference)}"
    facts = SameFacts(subject, seed, dtype, budget, without)
    question = Inquiry(template, tuple(names), call, seed, (1 if at.SECOND in without else 2) if gradients else 0)
    models = _copies(facts, reference, candidate, dtype=dtype, seed=seed)
    same = counterparts(reference, candidate, given)
    noise = torch_generator(seed, "noise").get_state()

    def ask(
        model: nn.Module, inputs: list[Any], kind: torch.dtype | None, *, order: int = 2, **how: Any
    ) -> Quantities:
        torch.set_rng_state(noise)  # what draws noise (dropout) draws the same in every pass
        return replace(question, order=min(order, question.order)).ask(model, inputs, kind, **how)

    high = torch.float64 if not facts.high_problem else dtype
    ours: dict[str, str] = {}
    theirs: dict[str, str] = {}
    rough = attempt(lambda: ask(models.rough, leaves, None, dtypes=ours))
    if rough.value is None:
        raise expected("a reference that runs on the sample", given=rough.problem)
    exact = attempt(lambda: ask(models.exact, leaves, high))
    if exact.value is None:  # a reference that cannot be widened (its weights hide in a closure) is its own truth
        facts.high_problem, high, exact = exact.problem, dtype, rough
        models = replace(models, exact=models.rough, nudged=models.rough)
    nudged = ask(models.nudged, at.nudged_leaves(leaves, dtype, seed), high)
    assert exact.value is not None
    truth = facts.truth = Truth(exact.value, rough.value, nudged)
    tried = attempt(lambda: ask(models.candidate, leaves, None, names=same, dtypes=theirs))
    if tried.value is None and any(n.kind is Kind.SECOND for n in truth.exact):
        # That one number per row is an energy is our guess: gradients are asked for alone before anything is blamed.
        first = attempt(lambda: ask(models.candidate, leaves, None, order=1, names=same, dtypes=theirs))
        if first.value is not None:
            facts.lacking[at.SECOND] = f"the candidate raises {tried.problem}, the reference does not"
            tried, question = first, replace(question, order=1)
    if tried.value is None:
        facts.wrong["as given"] = f"the candidate raises {tried.problem}"
        return facts
    facts.found = tried.value
    facts.compared += compare("as given", truth, facts.found)
    for output in ours.keys() & theirs.keys():
        if ours[output] != theirs[output]:
            facts.wrong["dtype"] = f"dtype of {output} is {theirs[output]}, {ours[output]} in the reference"
    _missing_gradients(facts, candidate, gradients)
    _again(facts, question, models, leaves)
    _edges(facts, models, leaves=leaves, ask=ask, same=same, high=high)
    _after_a_step(facts, models, leaves=leaves, ask=ask, same=same, high=high)
    if any(one.differs for one in facts.compared) and budget is None:
        facts.module = _locate(question, models, leaves=leaves, high=high, dtype=dtype, seed=seed)
        if facts.module is None:
            facts.module = _locate_by_exchange(facts, models, leaves=leaves, ask=ask, same=same)
    as_given = [one for one in facts.compared if one.condition == "as given"]
    if any(one.differs and one.quantity.kind is Kind.OUTPUT for one in as_given):
        four = (models.rough, models.exact, models.nudged, models.candidate)
        with_nudge, kinds = at.nudged_leaves(leaves, dtype, seed), (None, high, high, None)
        facts.agree_in_evaluation = agree_in_evaluation(four, lambda place, model: ask(
            model, with_nudge if place == 2 else leaves, kinds[place], order=0))  # fmt: skip
    return facts


def _copies(facts: SameFacts, reference: nn.Module, candidate: nn.Module, *, dtype: torch.dtype, seed: int) -> _Models:
    rough = duplicate(reference, training=None)
    wide = attempt(lambda: (duplicate(reference, dtype=torch.float64, training=None),
                            duplicate(reference, dtype=torch.float64, training=None)))  # fmt: skip
    if wide.value is None:
        facts.high_problem = wide.problem
        exact, nudged = duplicate(reference, training=None), duplicate(reference, training=None)
    else:
        exact, nudged = wide.value
    at.nudge_weights(nudged, dtype, seed)
    copied = attempt(lambda: duplicate(candidate, training=None))
    if copied.value is None:
        facts.notes.append(f"The candidate cannot be copied and was run itself ({copied.problem}).")
    return _Models(rough, exact, nudged, candidate if copied.value is None else copied.value)


def _missing_gradients(facts: SameFacts, candidate: nn.Module, asked: bool) -> None:
    assert facts.truth is not None
    wanted = [n for n in facts.truth.exact if n.kind is Kind.GRADIENT]
    missing = [n for n in wanted if n not in facts.found]
    if not asked or not missing:
        return
    if len(missing) == len(wanted) and any(p.requires_grad for p in candidate.parameters()):
        facts.wrong["gradients"] = "the output of the candidate has no gradient, that of the reference has"
    else:
        facts.lacking["gradients"] = f"the candidate has no {missing[0]}" + (
            f" (and {len(missing) - 1} more)" if len(missing) > 1 else "; give parameters={...}, or gradients=False"
        )


def _again(facts: SameFacts, question: Inquiry, models: _Models, leaves: list[Any]) -> None:
    """The same call twice, and inputs in another order of memory."""
    assert facts.truth is not None
    outputs = replace(question, order=0)
    only = Truth({k: v for k, v in facts.truth.exact.items() if k.kind is Kind.OUTPUT}, facts.truth.rough,
                 facts.truth.nudged)  # fmt: skip
    for condition, inputs in ((at.AGAIN, leaves), (at.STRIDED, at.non_contiguous(leaves))):
        if condition in facts.without:
            continue
        # No generator is set here: a candidate that draws noise is found by drawing other noise.
        tried = attempt(lambda inputs=inputs: outputs.ask(models.candidate, inputs, None))  # type: ignore[misc]
        if tried.value is None:
            facts.wrong[condition] = f"the candidate raises {tried.problem}"
        else:
            facts.compared += compare(condition, only, tried.value)


def _edges(
    facts: SameFacts, models: _Models, *, leaves: list[Any], ask: Callable[..., Quantities], same: dict[str, str],
    high: torch.dtype,
) -> None:  # fmt: skip
    assert facts.truth is not None
    for condition, inputs in (
        (at.EXTREME, at.edges(leaves)),
        (at.ONE_ROW, at.first_rows(leaves, 1)),
        (at.NO_ROW, at.first_rows(leaves, 0)),
    ):
        if condition in facts.without:
            continue
        empty = condition == at.NO_ROW
        truth = attempt(partial(ask, models.rough, inputs, None))
        if truth.value is None:
            facts.notes.append(f"The reference does not run with {condition}: nothing was asked there.")
            continue
        found = attempt(partial(ask, models.candidate, inputs, None, names=same))
        if found.value is None and empty:
            forward = attempt(partial(ask, models.candidate, inputs, None, order=0, names=same))
            if forward.value is not None:
                # Gradients of no row are zeros that nothing is learned from: told, but no value is to blame.
                facts.lacking[condition] = f"the backward pass of the candidate raises {found.problem}"
                found = forward
        if found.value is None:
            facts.wrong[condition] = f"the candidate raises {found.problem}, the reference does not"
            continue
        exact = truth if empty else attempt(partial(ask, models.exact, inputs, high))
        if exact.value is None:
            facts.untested[condition] = exact.problem
            continue
        found_here = {k: v for k, v in found.value.items() if k.kind is not Kind.BUFFER}
        wanted = {k: v for k, v in exact.value.items() if k.kind is not Kind.BUFFER}
        # What one rounding of the inputs does was measured at the inputs as given; here it is taken in proportion.
        nudged = {k: v + _in_proportion(facts.truth, k, v) for k, v in wanted.items()}
        results = compare(condition, Truth(wanted, truth.value, nudged), found_here)
        facts.compared += [one for one in results if not (empty and one.quantity.kind in (Kind.GRADIENT, Kind.SECOND))]


def _in_proportion(truth: Truth, name: Quantity, here: Tensor) -> Tensor:
    if name not in truth.exact or not here.is_floating_point():
        return torch.zeros_like(here)
    size = float(truth.exact[name].norm())
    share = float((truth.nudged[name] - truth.exact[name]).norm()) / size if size else 0.0
    return share * here.abs()


def _after_a_step(
    facts: SameFacts, models: _Models, *, leaves: list[Any], ask: Callable[..., Quantities], same: dict[str, str],
    high: torch.dtype,
) -> None:  # fmt: skip
    """Both take the same step of training: a candidate that keeps old weights somewhere is found out."""
    assert facts.truth is not None
    if at.AFTER_STEP in facts.without:
        return
    new = at.step_weights(models.rough, facts.truth.rough)
    if not new:
        return
    candidate = attempt(lambda: duplicate(models.candidate, training=None))
    if candidate.value is None or not at.put(candidate.value, new, same):
        facts.untested[at.AFTER_STEP] = candidate.problem or "weights of the candidate have no counterpart"
        return
    stepped = candidate.value
    rough, exact = duplicate(models.rough, training=None), duplicate(models.exact, training=None)
    at.put(rough, new)
    at.put(exact, new)
    tried = attempt(
        lambda: (ask(exact, leaves, high), ask(rough, leaves, None), ask(stepped, leaves, None, names=same))
    )
    if tried.value is None:
        facts.untested[at.AFTER_STEP] = tried.problem
        return
    truth, low, found = tried.value
    nudged = {k: v + (facts.truth.nudged[k] - facts.truth.exact[k]).abs() for k, v in truth.items()
              if k in facts.truth.exact and v.is_floating_point()}  # fmt: skip
    keep = {k: v for k, v in truth.items() if k in nudged and k in low and k.kind is not Kind.BUFFER}
    facts.compared += compare(at.AFTER_STEP, Truth(keep, low, nudged), found)


def _locate(
    question: Inquiry, models: _Models, *, leaves: list[Any], high: torch.dtype, dtype: torch.dtype, seed: int
) -> str | None:
    """Only where both have the same modules; the innermost one is named."""
    names = {name for name, _ in models.rough.named_modules()}
    if len(names) < 2 or not names <= {name for name, _ in models.candidate.named_modules()}:
        return None
    noise = torch_generator(seed, "noise").get_state()

    def trace(model: nn.Module, inputs: list[Any], kind: torch.dtype | None) -> Any:
        torch.set_rng_state(noise)
        return traced(question, model, inputs, kind)

    tried = attempt(lambda: first_difference(
        trace(models.exact, leaves, high), trace(models.rough, leaves, None),
        trace(models.nudged, at.nudged_leaves(leaves, dtype, seed), high), trace(models.candidate, leaves, None),
    ))  # fmt: skip
    return tried.value


def _locate_by_exchange(
    facts: SameFacts, models: _Models, *, leaves: list[Any], ask: Callable[..., Quantities], same: dict[str, str]
) -> str | None:
    """Where modules have other names: the one of the candidate that the reference's has to take the place of."""
    truth = facts.truth
    differing = {one.quantity for one in facts.compared if one.differs and one.condition == "as given"}
    compiled = any(hasattr(module, "_orig_mod") for module in models.candidate.modules())
    if truth is None or not differing or compiled or isinstance(models.candidate, torch.jit.ScriptModule):
        return None
    order = 0 if any(name.kind is Kind.OUTPUT for name in differing) else 2

    def agrees(chosen: Pairs) -> bool:
        ours, theirs = (duplicate(model, training=None) for model in (models.rough, models.candidate))
        mixed, names = exchange(theirs, ours, chosen, same)
        found = ask(mixed, leaves, None, order=order, names=names)
        wanted = {name for name in differing if order or name.kind is Kind.OUTPUT}
        results = {one.quantity: one for one in compare("", truth, found)}
        return all(name in results and not results[name].differs for name in wanted)

    pairs = counterpart_modules(models.rough, models.candidate, same)
    # An exchange that does not fit (another way of calling it) raises: then it mends nothing.
    return blamed(pairs, lambda chosen: bool(attempt(partial(agrees, chosen)).value))


def _said(model: nn.Module) -> str:
    if isinstance(model, Wrapped):
        return getattr(model.function, "__name__", type(model.function).__name__)
    return type(model).__name__
