"""Two more ways to name a module. C: each module alone, fed transformed features. D: its output put right by hand.

C finds several defects at once, behind the first one as well. D says how much of the final error a module owns.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from assay.audits.symmetry.explain.candidates import Reshaped, candidates
from assay.audits.symmetry.groups.base import Group
from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.locate.derived import patched, plain_outputs
from assay.audits.symmetry.locate.localise import EventFit
from assay.audits.symmetry.measure.rounding import acted
from assay.audits.symmetry.representations.base import Representation
from assay.audits.symmetry.subject import Subject
from assay.probe import tree
from assay.probe.copies import cast
from assay.probe.rounding import VANISHES
from assay.probe.subject import Leaves, Precision
from assay.probe.trace import Call, Pass, record
from assay.probe.values import difference, exact, is_continuous

T = TypeVar("T")
MOST_MODULES = 80
"""Modules tested by C; the rest of a larger model is covered by A and B alone, and its limitations say so."""
MOST_RESTORED = 12
"""Modules tested by D, which costs a pass of the whole model each: those nearest to the first guilty one."""

UNKNOWN_KIND = 0.5
"""Relative error of the best fit above which a feature is of an unknown kind and its module is not tested alone."""


@dataclass(frozen=True)
class Isolated:
    """A module alone: its error over its rounding bound, and what is left of the final error once it is put right."""

    module: str
    call: int
    alone: float | None
    restored: float | None
    relative: float | None = None
    """The error of the module alone, relative to its output."""


def isolate(
    subject: Subject, leaves: Leaves, element: Elements, group: Group, *, near: EventFit | None = None
) -> list[Isolated]:
    """C for every module but the model itself, in order of completion, and D for those nearest to ``near``."""
    moved = [m if m is x else m[0] for m, x in zip(subject.transformed(leaves, element), leaves, strict=True)]
    runs: dict[Precision, tuple[Pass, Pass]] = {}
    for precision in subject.precisions:
        twin, dtype = subject.twin(precision), subject.dtype(precision)
        here = record(subject, leaves, twin, dtype, keep_calls=True)
        runs[precision] = (here, record(subject, moved, twin, dtype, keep_calls=True))
    # Without an output that can be put right there is no D: its column stays empty.
    probe = _Probe(subject, group, element, runs=runs, counted=_quietly(plain_outputs, subject, leaves) or [])
    done = [event for event in runs[subject.precisions[-1]][0].events if event.kind == "exit" and event.module]
    blamed = near.blamed if near is not None else None
    centre = next((i for i, event in enumerate(done) if event.module == blamed), 0)
    nearest = set(sorted(range(len(done)), key=lambda i: abs(i - centre))[:MOST_RESTORED])
    results = []
    for position, event in enumerate(done[:MOST_MODULES]):
        key = (event.module, event.call)
        alone = _quietly(probe.alone, *key)
        excess, relative = (None, None) if alone is None else alone
        restored = _quietly(probe.restored, *key, moved) if position in nearest else None
        results.append(Isolated(*key, excess, restored, relative))
    return results


def _quietly(measure: Callable[..., T | None], *args: Any) -> T | None:
    """None where a module cannot be run alone: it is untested by this method, and shown as such."""
    try:
        return measure(*args)
    except Exception:
        return None


class _Probe:
    """The recorded passes at x and gx, and what can be asked of them."""

    def __init__(
        self, subject: Subject, group: Group, element: Elements, *, runs: dict[Precision, tuple[Pass, Pass]],
        counted: list[int],
    ) -> None:
        self.subject, self.group, self.element, self.runs = subject, group, element, runs
        self.best: Precision = subject.precisions[-1]
        self.counted = counted
        self.modules = {p: dict(subject.twin(p).named_modules()) for p in subject.precisions}

    def alone(self, module: str, number: int) -> tuple[float, float] | None:
        """C: |m(rho h) - rho' m(h)| over rounding and over m, rho and rho' the best fits of inputs and outputs."""
        here, there = self.runs[self.best]
        calls = here.calls[module, number], there.calls[module, number]
        reps = [
            self._fit(a, b, self.modules[self.best][module])
            for a, b in zip(_floats(calls[0]), _floats(calls[1]), strict=True)
        ]
        if not all(
            self._close(rep, a, b) for rep, a, b in zip(reps, _floats(calls[0]), _floats(calls[1]), strict=True)
        ):
            return None
        outputs = {p: self._run_alone(p, module, number, reps) for p in self.subject.precisions}
        worst = (0.0, 0.0)
        for index, (plain, turned) in enumerate(outputs[self.best]):
            lows = outputs["low"][index] if self.best == "high" else None
            options = self._options(plain, self.modules[self.best][module])
            worst = max(worst, self._least_excess(options, plain, turned, lows))
        return worst

    def restored(self, module: str, number: int, moved: Leaves) -> float | None:
        """D: the final error with this module's output at gx replaced by rho h(x), over the final error without."""
        here, there = self.runs[self.best]
        wanted, found = _exit(here, module, number), _exit(there, module, number)
        fits = [self._fit(a, b, self.modules[self.best][module]) for a, b in zip(wanted, found, strict=True)]
        before = self._final_error(there.outputs)
        if not before:
            return None
        # A broken output may lie nearer to a wrong kind than to its own: the kind of the input is tried as well.
        tried: list[list[Tensor]] = []
        for reps in (fits, *self._kinds_of_inputs(module, number, wanted)):
            patch = [rep.act(self.element, x.unsqueeze(0))[0] for rep, x in zip(reps, wanted, strict=True)]
            if not any(all(map(torch.equal, patch, other)) for other in tried):
                tried.append(patch)
        return min(self._patched_error(moved, module, number, patch) for patch in tried) / before

    def _kinds_of_inputs(self, module: str, number: int, outputs: list[Tensor]) -> list[list[Representation]]:
        here, there = self.runs[self.best]
        pairs = zip(_floats(here.calls[module, number]), _floats(there.calls[module, number]), strict=True)
        kinds = [(a.shape, self._fit(a, b, self.modules[self.best][module])) for a, b in pairs]
        same = [[rep for shape, rep in kinds if shape == y.shape] for y in outputs]
        return [[options[0] for options in same]] if same and all(same) else []

    def _patched_error(self, moved: Leaves, module: str, number: int, patch: list[Tensor]) -> float:
        seen = 0

        def leave(m: nn.Module, args: Any, output: Any) -> Any:
            nonlocal seen
            seen += 1
            return patched(output, patch) if seen == number + 1 else None

        twin = self.subject.twin(self.best)
        handle = self.modules[self.best][module].register_forward_hook(leave)
        try:
            outputs = [exact(y) for y in self.subject.run(moved, twin, self.subject.dtype(self.best))]
        finally:
            handle.remove()
        return self._final_error(outputs)

    def _final_error(self, outputs: list[Tensor]) -> float:
        here, total = self.runs[self.best][0].outputs, 0.0
        for index in self.counted:
            carried = acted(self.subject.output(index), self.element, here[index])[0]
            total += float(difference(outputs[index], carried).abs().double().square().sum())
        return float(total**0.5)

    def _run_alone(
        self, precision: Precision, module: str, number: int, reps: list[Representation]
    ) -> list[tuple[Tensor, Tensor]]:
        here, there = self.runs[precision]
        call, dtype = here.calls[module, number], self.subject.dtype(precision)
        queue = iter(reps)
        turned = [
            next(queue).act(self.element, exact(a).unsqueeze(0))[0].to(cast(a, dtype).dtype) if _is_float(a) else b
            for (_, a), (_, b) in zip(_leaves(call), _leaves(there.calls[module, number]), strict=True)
        ]
        m = self.modules[precision][module]
        with torch.set_grad_enabled(self.subject.needs_grad):
            plain_out = m(*call.args, **call.kwargs)
            args, kwargs = tree.rebuild((call.args, call.kwargs), iter(turned))
            turned_out = m(*args, **kwargs)
        pairs = zip(tree.tensors(plain_out), tree.tensors(turned_out), strict=True)
        return [(exact(a), exact(b)) for a, b in pairs if is_continuous(a)]

    def _fit(self, here: Tensor, there: Tensor, module: nn.Module) -> Representation:
        """The candidate with the smallest error, whether it is rounding or not; the first that float64 cannot tell."""
        a, b = exact(here), exact(there)
        least, best = math.inf, None
        for rep in self._options(a, module):
            gap = float(torch.nan_to_num((rep.act(self.element, a.unsqueeze(0))[0] - b).norm(), nan=torch.inf))
            if best is None or gap < least:
                least, best = gap, rep
            if least <= VANISHES * float(b.norm()) and self.best == "high":
                break
        assert best is not None
        return best

    def _close(self, rep: Representation, here: Tensor, there: Tensor) -> bool:
        """Whether a fit can be meant: an input of an unknown kind leaves an error as large as itself."""
        a, b = exact(here), exact(there)
        gap = (rep.act(self.element, a.unsqueeze(0))[0] - b).norm()
        return float(gap) <= UNKNOWN_KIND * float(b.norm())

    def _options(self, x: Tensor, module: nn.Module) -> list[Representation]:
        batch = self._batch(x)
        shape = tuple(x.shape) if len(x) == batch else (batch, len(x) // batch, *x.shape[1:])
        return [Reshaped(rep, shape, plain=True) for rep in candidates(shape, self.element, self.group, module=module)]

    def _batch(self, x: Tensor) -> int:
        """Inputs along axis 0: nodes merged with the batch are taken apart, what has no batch axis is one input."""
        size = len(self.runs[self.best][0].outputs[self.subject.tested[0]]) if self.subject.rows else 1
        return size if x.ndim and len(x) % size == 0 else 1

    def _least_excess(
        self, options: list[Representation], plain: Tensor, turned: Tensor, lows: tuple[Tensor, Tensor] | None
    ) -> tuple[float, float]:
        """The excess under the best kind of output, or under the first that rounding explains."""
        least = (math.inf, math.inf)
        for rep in options:
            least = min(least, self._excess(rep, plain, turned, lows))
            if least[0] <= 1:
                break
        return least

    def _excess(
        self, rep: Representation, plain: Tensor, turned: Tensor, lows: tuple[Tensor, Tensor] | None
    ) -> tuple[float, float]:
        carried = rep.act(self.element, plain.unsqueeze(0))[0]
        error = float((turned - carried).norm())
        if lows is None:
            bound = 64 * torch.finfo(self.subject.low_dtype).eps * float(turned.norm())
        else:
            bound = float((lows[1] - turned).norm()) + float(
                (rep.act(self.element, lows[0].unsqueeze(0))[0] - carried).norm()
            )
        size = float(turned.norm()) or 1.0
        return 0.0 if error == 0 else error / bound if bound else float("inf"), error / size


def _leaves(call: Call) -> list[tuple[str, Any]]:
    return tree.leaves((call.args, call.kwargs))


def _floats(call: Call) -> list[Tensor]:
    return [leaf for _, leaf in _leaves(call) if _is_float(leaf)]


def _is_float(leaf: object) -> bool:
    return isinstance(leaf, Tensor) and is_continuous(leaf) and leaf.ndim > 0


def _exit(one: Pass, module: str, number: int) -> list[Tensor]:
    event = next(e for e in one.events if e.key == ("exit", module, number))
    return [tensor for _, tensor in event.tensors]
