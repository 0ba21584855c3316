"""One forward pass that shows which weights a feedback rule reaches in a model, and a proof that it does.

The pass runs with every feedback matrix set to zero and everything requiring a gradient. Its graph tells for each
weight whether the error below it goes through feedback, through the weight itself, or not through it at all. Then the
proofs. Node by node: with every parameter exchanged for another, nothing that a node sends may change, unless it is
known to use that parameter (``hidden``). And for the whole: of all parameters that lie behind a weight, none may
receive anything, since zero is all that feedback sends.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from assay.errors import AssayError, expected
from assay.probe.copies import as_it_was, everything_learning
from assay.probe.samples import other_first_sample
from assay.rules.feedback.coverage import Coverage, WeightCoverage
from assay.rules.feedback.graph import Carrier, Graph
from assay.rules.feedback.hidden import find_fixed, find_hidden, find_rearranged
from assay.rules.feedback.hooked import Hooks
from assay.rules.feedback.layers import Operation, Route, run_direct, run_with_matrix
from assay.rules.feedback.mixed import find_mixed
from assay.rules.feedback.nodes import changed, children, kind, opaque
from assay.rules.feedback.places import Place, feedback_layers, select
from assay.rules.feedback.weights import WeightNames


@dataclass(frozen=True)
class Survey:
    """The coverage, and what a step needs: where products happen, whether imported functions must be seen, and the
    numbers of products between weights alone."""

    coverage: Coverage
    places: Sequence[Place]
    imported: bool = False
    skip: frozenset[int] = frozenset()


def take_survey(model: nn.Module, x: Tensor, known: WeightNames, *, direct: bool, unreachable: Collection[str] = (),
                learned: bool = False) -> Survey:
    """What a rule reaches in ``model`` on ``x``; the model, its buffers and the random state are left as they were.

    ``direct`` surveys direct feedback, ``unreachable`` names weights it has no matrix for, and ``learned`` leaves
    weights that are computed (parametrised) alone.
    """
    def look(imported: bool) -> Survey:
        return _look(model, x, known, direct=direct, unreachable=unreachable, learned=learned, imported=imported)

    with reading(model, x):
        found = look(False)
        if found.coverage.complete:
            return found
        with_imported = look(True)
    missed = [sum(not weight.reached for weight in survey.coverage.weights) for survey in (found, with_imported)]
    return with_imported if missed[1] < missed[0] else found


@contextlib.contextmanager
def reading(model: nn.Module, x: Tensor) -> Iterator[None]:
    """Refuses in a sentence what cannot be read; a model that cannot run at all says so itself."""
    try:
        yield
    except AssayError:
        raise
    except Exception as error:
        with as_it_was(model), torch.enable_grad():
            model(x)
        said = str(error).strip().split("\n")[0] or type(error).__name__
        raise expected("a model whose autograd graph can be read", given=type(model).__name__,
                       do=f"reading it ended with: {said}") from error


class _Recorder:
    """Routes that send zero and remember what they were asked for."""

    def __init__(self, known: WeightNames, *, direct: bool, unreachable: Collection[str], learned: bool) -> None:
        self.known, self.direct, self.unreachable, self.learned = known, direct, unreachable, learned
        self.inputs: list[Any] = []
        self.loaded: list[str] = []

    def __call__(self, weight: Tensor, x: Tensor) -> Route | None:
        found = self.known.find(weight)
        if found is None or self.known.find(x) is not None:
            return None
        self.inputs.append(x.grad_fn)
        unlearnable = self.learned and (found[1].ndim < 2 or not isinstance(found[1], nn.Parameter))
        out_of_reach = found[0] in self.unreachable or unlearnable
        return None if out_of_reach or not x.requires_grad else _ZeroRoute(self, *found)


@dataclass
class _ZeroRoute:
    recorder: _Recorder
    name: str
    parameter: Tensor

    def run(self, operation: Operation, x: Tensor, weight: Tensor) -> Tensor:
        if self.recorder.direct:
            return run_direct(operation, x, weight, torch.zeros_like)
        nothing = torch.zeros_like(self.parameter.detach())
        if weight is not self.parameter:
            nothing = nothing.as_strided(weight.shape, weight.stride(), weight.storage_offset())
        loaded = self.recorder.loaded
        return run_with_matrix(operation, x, weight, matrix=nothing, sends=lambda: loaded.append(self.name))


def _look(model: nn.Module, x: Tensor, known: WeightNames, *, direct: bool, unreachable: Collection[str],
          learned: bool, imported: bool) -> Survey:
    hits = {"torch.nn.functional.linear"}
    names: dict[int, str] = {}
    written: set[str] = set()
    hooks = Hooks()

    def run(data: Tensor, places: list[Place] | None) -> tuple[Graph, _Recorder, Tensor]:
        recorder = _Recorder(known, direct=direct, unreachable=unreachable, learned=learned)
        leaf = data.detach().requires_grad_() if data.is_floating_point() else data
        with as_it_was(model) as buffers, torch.enable_grad(), _no_checkpoints(), known.watched(), feedback_layers(
                recorder, only=places, hits=hits, imported=imported):
            output = model(leaf)
            written.update(buffers.written())
            names.update(buffers.names)
            if not isinstance(output, Tensor) or not output.requires_grad:
                raise expected("a model whose output is a tensor that depends on its parameters",
                               given=type(output).__name__)
            return Graph(output, parameters=known.names, data=leaf, loaded=recorder.loaded), recorder, output

    with everything_learning(model):  # a frozen weight carries the error as well as any other
        run(x, None)
        # What is read is what a step will do: with the places of a step in effect, and no others.
        places = select(hits)
        with hooks:
            graph, recorder, output = run(x, places)
        other, shifted = other_data(x), None
        graph.assume_data() if other is None else graph.add_sources(run(other, places)[0])
        skip = frozenset(number for number, node in enumerate(recorder.inputs, start=1)
                         if node is not None and node not in graph.depends)
        with contextlib.suppress(Exception), changed(known.parameters.values()):  # other weights may be nonsense
            shifted = run(x, places)[0]
        rows = _rows(graph, known, hooks) + find_fixed(graph, shifted, model, buffers=names, written=written)
        leaks = () if skip else _leaks(graph, known, output)
    return Survey(Coverage(tuple(rows), leaks), places, imported, skip)


def other_data(x: Tensor) -> Tensor | None:
    """Other data of the same kind: samples in another order, the first one replaced; None if all are the same."""
    return x.flip(0) if other_first_sample(x) is not None and not torch.equal(x.flip(0), x) else None


def _rows(graph: Graph, known: WeightNames, hooks: Hooks) -> list[WeightCoverage]:
    """What became of every parameter with two or more axes, and of any other that takes part in a matrix."""
    uses: dict[str, list[WeightCoverage]] = {}
    answered = _answered(graph)
    for hidden in (*find_hidden(graph, known.parameters), *find_rearranged(graph), *find_mixed(graph),
                   *hooks.users(known.parameters)):
        uses.setdefault(hidden.name, []).append(hidden)
    for node in graph.nodes:
        if node not in graph.depends or _is_direct(node):
            continue
        inputs = graph.open_inputs(node)
        below = any(graph.weights_below(child) for child in inputs)
        carriers = graph.carriers(node)
        looks_up = any(not kept.tensor.is_floating_point() for kept in graph.saved[node])
        for child in children(node):
            selected = child in graph.selected and graph.has_other_data(node)
            for name in () if child in graph.depends and not selected else graph.weights_below(child):
                mine = [carrier for carrier in carriers if name in carrier.weights or (
                    carrier.exchanged and known.owner(next(iter(carrier.weights))) == known.owner(name))]
                use = (_answer(name, answered[node]) if node in answered and not inputs
                       else _use(node, name, mine, below=below, sends=bool(inputs)) if inputs or looks_up
                       else _answer(name, False))
                uses.setdefault(name, []).append(use)
    exchanged = {name for node in graph.nodes for carrier in graph.carriers(node) if carrier.exchanged
                 for name in carrier.weights}
    tensors = known.parameters | graph.unregistered
    rows = [use for name, found in uses.items() if name not in tensors for use in found]  # a hook of its own
    for name, parameter in tensors.items():
        found = sorted(uses.get(name, []), key=lambda use: ORDER.index(use.status))
        if parameter.ndim > 1 or name in exchanged or (found and not found[0].reached):
            rows.append(found[0] if found else WeightCoverage(name, "not used", True, "the output does not depend "
                                                                                       "on it"))
    return rows


ORDER = ("not reached", "feedback", "first layer", "gain", "look-up", "additive")


def _is_direct(node: Any) -> bool:
    return type(node).__name__ == "DirectBackward"


def _answered(graph: Graph) -> dict[Any, bool]:
    """Nodes whose input was cut off and answered for, and whether anything that learns lies below the cut."""
    found: dict[Any, bool] = {}
    for node in graph.nodes:
        if _is_direct(node):
            x, result = (child for child, _ in node.next_functions[:2])
            waiting, learns = [result], bool(graph.weights_below(x))
            while waiting:
                now = waiting.pop()
                if now is not None and now not in found and not _is_direct(now):
                    found[now] = learns
                    waiting.extend(children(now))
    return found


def _answer(name: str, below: bool) -> WeightCoverage:
    if below:
        return WeightCoverage(name, "feedback", True, "")
    return WeightCoverage(name, "first layer", True, "nothing below it learns, so it sends no error")


def _use(node: Any, name: str, carriers: list[Carrier], *, below: bool, sends: bool) -> WeightCoverage:
    used_by = f"used by {kind(node)}"
    matrices = [carrier for carrier in carriers if not carrier.gain]
    if not sends:
        return WeightCoverage(name, "look-up", True, f"{kind(node)} sends no error below itself")
    if not below and (matrices or opaque(node)):
        return _answer(name, below)
    if any(not carrier.exchanged for carrier in matrices):
        return WeightCoverage(name, "not reached", False,
                              f"{used_by}, which sends the error through the weight itself")
    if matrices:
        return _answer(name, below)
    if opaque(node):
        return WeightCoverage(name, "not reached", False, f"{used_by}, a function of its own that may keep it")
    if carriers:
        return WeightCoverage(name, "gain", True, f"{kind(node)} multiplies by it elementwise: nothing is transposed")
    return WeightCoverage(name, "additive", True, f"{kind(node)} sends no error through it")


def _leaks(graph: Graph, known: WeightNames, output: Tensor) -> tuple[str, ...]:
    """Parameters behind a weight that still receive something although all feedback is zero."""
    open_names: set[str] = set()
    seen, waiting = set(), [output.grad_fn]
    while waiting:
        node: Any = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        if (name := known.names.get(graph.leaf.get(node, 0))) is not None:
            open_names.add(name)
        if _is_direct(node):
            waiting.append(node.next_functions[1][0])
            continue
        blocked = any(not carrier.gain for carrier in graph.carriers(node))
        waiting.extend(child for child in children(node) if not (blocked and child in graph.depends))
    names = [name for name in known.parameters if name not in open_names]
    if not names:
        return ()
    given = torch.autograd.grad(output, [known.parameters[name] for name in names], torch.ones_like(output),
                                allow_unused=True)
    return tuple(name for name, gradient in zip(names, given, strict=True)
                 if gradient is not None and bool(gradient.isfinite().all()) and bool(gradient.any()))


@contextlib.contextmanager
def _no_checkpoints() -> Iterator[None]:
    """Checkpointed parts are run as they are, so that their graph can be read."""
    from torch.utils import checkpoint

    def straight(*args: Any, **kwargs: Any) -> Iterator[None]:
        yield

    places = ((checkpoint.CheckpointFunction, "apply", lambda run, preserve, *args: run(*args)),
              (checkpoint, "_checkpoint_without_reentrant_generator", straight))
    before = [(owner, name, owner.__dict__.get(name)) for owner, name, _ in places]
    try:
        for owner, name, replacement in places:
            setattr(owner, name, replacement)
        yield
    finally:
        for owner, name, original in before:
            if original is None:
                delattr(owner, name)
            else:
                setattr(owner, name, original)
