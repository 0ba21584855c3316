"""A model, example inputs and a declared symmetry, ready to be evaluated: many transformations in one batched pass."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from assay.audits.symmetry import tree
from assay.audits.symmetry.groups.base import Group
from assay.audits.symmetry.groups.elements import Elements
from assay.audits.symmetry.representations.base import Invariant, Representation, merge_sizes
from assay.audits.symmetry.spec import Symmetry
from assay.errors import InputError, expected
from assay.probe.calling import arguments, default_call
from assay.probe.containment import told
from assay.probe.copies import cast, device_of, duplicate, native_dtype
from assay.seeding import torch_generator

Precision = Literal["low", "high"]
Leaves = list[Any]
CHUNK_BYTES = 4 << 20
"""Activations of one pass: larger batches fall out of the cache and run slower, measured on CNN and EGNN."""


@dataclass
class Cost:
    """What an audit has cost so far: calls of the model and inputs sent through it."""

    calls: int = 0
    inputs: int = 0

    def add(self, inputs: int) -> None:
        """One more call."""
        self.calls, self.inputs = self.calls + 1, self.inputs + inputs


@dataclass
class Subject:
    """The model as a function from a list of input leaves to a list of output tensors."""

    model: nn.Module
    symmetry: Symmetry
    template: Any
    cases: list[Leaves]
    """Inputs, one list of leaves per call of the model; with a batch axis each case holds many rows."""
    inputs: list[Representation]
    input_names: list[str]
    call: Callable[[nn.Module, Any], Any] | None
    low: nn.Module
    low_dtype: torch.dtype
    native: torch.dtype
    high: nn.Module | None
    high_problem: str = ""
    outputs: list[Representation | None] = field(default_factory=list)
    output_names: list[str] = field(default_factory=list)
    rows: bool = False
    """Axis 0 of every input and output is a batch of independent inputs."""
    mergeable: bool = False
    """Several transformed batches may be put behind each other into one."""
    needs_grad: bool = False
    row_bytes: int = 1
    cost: Cost = field(default_factory=lambda: Cost())
    seed: int = 0
    common_noise: bool = False
    """A stochastic model: the global generator is set to the same state before every call."""
    _base: dict[tuple[int, Precision], list[Tensor]] = field(default_factory=dict)

    def base(self, case: int, precision: Precision) -> list[Tensor]:
        """Outputs at an untransformed case, computed once."""
        key = (case, precision)
        if key not in self._base:
            self._base[key] = self.values(self.cases[case], precision)
        return self._base[key]

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """The precisions the model runs in."""
        return ("low", "high") if self.high is not None else ("low",)

    @property
    def tested(self) -> list[int]:
        """Indices of the outputs that were declared."""
        return [index for index, rep in enumerate(self.outputs) if rep is not None]

    def output(self, index: int) -> Representation:
        """The declared representation of an output."""
        rep = self.outputs[index]
        assert rep is not None
        return rep

    def group(self, case: int = 0) -> Group:
        """The group with its open sizes taken from a case."""
        return bound(self.symmetry.group, self.inputs, self.cases[case])

    def batch(self, case: int = 0) -> int:
        """Rows of a case; 1 without a batch axis."""
        return batch_size(self.cases[case], self.inputs) if self.rows else 1

    def twin(self, precision: Precision) -> nn.Module:
        """The copy of the model that runs in this precision."""
        if precision == "low":
            return self.low
        if self.high is None:
            raise InputError(f"expected a model that runs in float64; given one that does not ({self.high_problem})")
        return self.high

    def dtype(self, precision: Precision) -> torch.dtype:
        """The dtype inputs have in this precision."""
        return self.low_dtype if precision == "low" else torch.float64

    def run(self, leaves: Leaves, model: nn.Module, dtype: torch.dtype, *, grad: bool = False) -> list[Tensor]:
        """Outputs of one call. Inputs are copied first, so a model that writes into them does no harm."""
        device = device_of(model)
        fed = [_fed(leaf, dtype, device, grad) for leaf in leaves]
        value = tree.rebuild(self.template, iter(fed))
        batch = batch_size(leaves, self.inputs) if self.rows else 1
        self.cost.add(batch)
        if self.common_noise:
            torch.set_rng_state(torch_generator(self.seed, "noise").get_state())
        with torch.set_grad_enabled(grad or self.needs_grad):
            result = self.call(model, value) if self.call else default_call(model, value, self.seed)
        return [leaf for _, leaf in tree.leaves(result) if isinstance(leaf, Tensor)]

    def values(self, leaves: Leaves, precision: Precision) -> list[Tensor]:
        """Outputs of one call, detached, on the CPU, in float64 if floating."""
        found = self.run(leaves, self.twin(precision), self.dtype(precision))
        return [exact(output.detach()) for output in found]

    def transformed(self, leaves: Leaves, elements: Elements) -> Leaves:
        """Leaves with a leading element axis where the group acts on them, unchanged where it does not."""
        moved: Leaves = []
        for leaf, rep in zip(leaves, self.inputs, strict=True):
            if not isinstance(leaf, Tensor) or isinstance(rep, Invariant):
                moved.append(leaf)
                continue
            value = exact(leaf)
            moved.append(rep.act(elements, value.expand(elements.count, *value.shape)))
        return moved

    def over(self, leaves: Leaves, elements: Elements, precision: Precision) -> list[Tensor]:
        """Outputs at every transformed input, each [n, *shape], in as few passes as the cache allows."""
        step = self.chunk(batch_size(leaves, self.inputs) if self.rows else 1)
        pieces = []
        for start in range(0, elements.count, step):
            pieces.append(self._chunk_over(leaves, elements[start : start + step], precision))
        return [torch.cat(parts) for parts in zip(*pieces, strict=True)]

    def chunk(self, batch: int) -> int:
        """How many transformations go into one pass: as many as keep the activations within the cache."""
        return max(1, CHUNK_BYTES // max(1, self.row_bytes * batch))

    def _chunk_over(self, leaves: Leaves, elements: Elements, precision: Precision) -> list[Tensor]:
        moved, n = self.transformed(leaves, elements), elements.count
        acts = [
            isinstance(leaf, Tensor) and not isinstance(r, Invariant)
            for leaf, r in zip(leaves, self.inputs, strict=True)
        ]
        if not self.mergeable:
            singles = [[m[i] if a else m for m, a in zip(moved, acts, strict=True)] for i in range(n)]
            results = [self.values(single, precision) for single in singles]
            self._check_shapes(results)
            return [torch.stack(outputs) for outputs in zip(*results, strict=True)]
        batch = batch_size(leaves, self.inputs)
        merged: Leaves = []
        for leaf, original, acted in zip(moved, leaves, acts, strict=True):
            if acted:
                merged.append(leaf.flatten(0, 1))
            elif isinstance(original, Tensor) and original.ndim and len(original) == batch:
                merged.append(original.repeat(n, *[1] * (original.ndim - 1)))
            else:
                merged.append(original)
        found = self.values(merged, precision)
        for name, output in zip(self.output_names, found, strict=True):
            if not output.ndim or len(output) != n * batch:
                raise ShapeChanged(name, (n * batch, *output.shape[1:]), tuple(output.shape))
        return [output.reshape(n, batch, *output.shape[1:]) for output in found]

    def _check_shapes(self, results: list[list[Tensor]]) -> None:
        for outputs in results:
            for name, first, other in zip(self.output_names, results[0], outputs, strict=True):
                if first.shape != other.shape:
                    raise ShapeChanged(name, tuple(first.shape), tuple(other.shape))


class ShapeChanged(RuntimeError):
    """An output has another shape at gx than at hx: no representation does that, so the symmetry is broken."""

    def __init__(self, output: str, first: tuple[int, ...], other: tuple[int, ...]) -> None:
        super().__init__(f"{tree.said(output)} has shape {first} at one element and {other} at another")
        self.output = output


def prepare(
    model: nn.Module,
    sample: Any,
    symmetry: Symmetry,
    *,
    seed: int,
    inputs: int,
    call: Callable[[nn.Module, Any], Any] | None = None,
) -> Subject:
    """The subject of an audit: copies in two precisions, inputs checked, structure of the outputs known."""
    if not isinstance(model, nn.Module):
        raise expected("a torch.nn.Module", given=type(model).__name__, do="wrap a function in a small Module")
    drawn = _draw(sample, inputs, seed)
    template = drawn[0]
    names = input_names(model, template)
    reps = [rep or Invariant() for rep in tree.match(symmetry.inputs, template, "input")]
    cases = [[leaf for _, leaf in tree.leaves(one)] for one in drawn]
    for case in cases:
        _check_inputs(case, reps, names, symmetry)
    native = native_dtype(model, [leaf for leaf in cases[0] if isinstance(leaf, Tensor)])
    low_dtype = torch.float32 if native == torch.float64 else native
    low = duplicate(model, dtype=low_dtype if low_dtype != native else None)
    subject = Subject(model, symmetry, template, cases, reps, names, call, low, low_dtype, native, None, seed=seed)
    if low_dtype == native:
        _probe_outputs(subject)
    else:
        subject = _in_float32(subject)
    if subject.low_dtype != torch.float64:
        _prepare_high(subject)
    return subject


def _in_float32(subject: Subject) -> Subject:
    """A float64 model is compared with its float32 copy; one that runs in float64 only is run in float64 alone."""
    try:
        _probe_outputs(subject)
    except Exception as error:
        alone = replace(subject, low=duplicate(subject.model), low_dtype=torch.float64)
        alone.high_problem = f"it runs in float64 only ({told(error)}), and there is nothing more precise"
        _probe_outputs(alone)
        return alone
    return subject


def input_names(model: nn.Module, template: Any) -> list[str]:
    """Names of the input leaves; the places of a tuple are called as the arguments of ``forward`` are."""
    names = [name for name, _ in tree.leaves(template)]
    if not isinstance(template, tuple):
        return names
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    named = [name for name, one in arguments(model).items() if one.kind in kinds]
    renamed = []
    for name in names:
        place, dot, rest = name.partition(".")
        renamed.append(f"{named[int(place)]}{dot}{rest}" if int(place) < len(named) else name)
    return renamed


def batch_size(leaves: Leaves, reps: Sequence[Representation]) -> int:
    """Size of axis 0 of the first input the group acts on, else of the first tensor."""
    tensors = [(leaf, rep) for leaf, rep in zip(leaves, reps, strict=True) if isinstance(leaf, Tensor) and leaf.ndim]
    acted = [leaf for leaf, rep in tensors if not isinstance(rep, Invariant)]
    return len(acted[0]) if acted else len(tensors[0][0]) if tensors else 1


def bound(group: Group, reps: Sequence[Representation], leaves: Leaves) -> Group:
    """The group with open sizes taken from these leaves."""
    found = [rep.sizes(tuple(leaf.shape)) for rep, leaf in zip(reps, leaves, strict=True) if isinstance(leaf, Tensor)]
    return group.bind(merge_sizes(found))


def exact(x: Tensor) -> Tensor:
    """The same values on the CPU, in float64 (complex128) if they are floating (complex)."""
    x = x.detach().cpu()
    return cast(x.clone() if x.is_inference() else x, torch.float64)


def is_continuous(x: object) -> bool:
    """Whether something is a tensor of real or complex numbers, which noise can move and derivatives exist of."""
    return isinstance(x, Tensor) and (x.is_floating_point() or x.is_complex())


def difference(a: Tensor, b: Tensor) -> Tensor:
    """a - b, also for integers and booleans; complex numbers stay complex."""
    return a - b if a.is_complex() or b.is_complex() else a.double() - b.double()


def _draw(sample: Any, inputs: int, seed: int) -> list[Any]:
    if callable(sample) and not isinstance(sample, nn.Module):
        return [sample(inputs, torch_generator(seed, "inputs"))]
    if isinstance(sample, list):
        if not sample:
            raise expected("at least one input", given="an empty list")
        return sample[:inputs]
    return [sample]


def _check_inputs(case: Leaves, reps: list[Representation], names: list[str], symmetry: Symmetry) -> None:
    if not any(isinstance(leaf, Tensor) for leaf in case):
        raise expected("inputs that hold tensors", given=", ".join(type(leaf).__name__ for leaf in case))
    group = bound(symmetry.group, reps, case)
    for leaf, rep, name in zip(case, reps, names, strict=True):
        if not isinstance(leaf, Tensor):
            continue
        if leaf.numel() == 0:
            raise expected("inputs with at least one entry", given=f"{name or 'input'} of shape {tuple(leaf.shape)}")
        if leaf.is_floating_point() and not bool(torch.isfinite(leaf).all()):
            raise expected("finite inputs", given=f"NaN or infinity in {name or 'the input'}")
        rep.check(group.identity(), tuple(leaf.shape))
    if all(isinstance(rep, Invariant) for rep in reps):
        raise expected("at least one input that the group acts on", given=f"inputs all invariant under {group.name}")


def _fed(leaf: Any, dtype: torch.dtype, device: torch.device, grad: bool) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    fed = cast(leaf.detach().clone(), dtype).to(device)
    return fed.requires_grad_(True) if grad and is_continuous(fed) else fed


def _probe_outputs(subject: Subject) -> None:
    """Learns the structure of the outputs and whether the model needs autograd inside its forward pass."""
    device = device_of(subject.low)
    fed = [_fed(leaf, subject.low_dtype, device, False) for leaf in subject.cases[0]]
    value = tree.rebuild(subject.template, iter(fed))
    run = subject.call or (lambda model, inputs: default_call(model, inputs, subject.seed))
    tracker = _ActivationBytes(subject.low)
    try:
        with torch.no_grad():
            result = run(subject.low, value)
    except RuntimeError as without:
        value = tree.rebuild(subject.template, (_fed(x, subject.low_dtype, device, False) for x in subject.cases[0]))
        try:
            with torch.enable_grad():
                result = run(subject.low, value)
        except Exception:
            raise without from None
        subject.needs_grad = True
    finally:
        tracker.close()
    result = tree.map_tensors(result, Tensor.detach)
    subject.outputs = [
        rep
        for rep, (_, leaf) in zip(
            tree.match(subject.symmetry.outputs, result, "output", partial=True), tree.leaves(result), strict=True
        )
        if isinstance(leaf, Tensor)
    ]
    subject.output_names = [name or "output" for name, leaf in tree.leaves(result) if isinstance(leaf, Tensor)]
    if not any(rep is not None for rep in subject.outputs):
        raise expected(
            "at least one declared output tensor", given=f"outputs {', '.join(subject.output_names) or 'none'}"
        )
    subject.row_bytes = max(1, tracker.largest // max(1, batch_size(subject.cases[0], subject.inputs)))
    identity = subject.group().identity()
    for rep, leaf in zip(subject.outputs, tree.tensors(result), strict=True):
        if rep is not None:
            rep.check(identity, tuple(leaf.shape))


def _prepare_high(subject: Subject) -> None:
    try:
        subject.high = duplicate(subject.model, dtype=torch.float64)
        if device_of(subject.high).type == "mps":
            subject.high = subject.high.cpu()
        found = subject.run(subject.cases[0], subject.high, torch.float64)
    except Exception as error:  # whatever a float32-only model raises: the audit goes on without float64
        subject.high, subject.high_problem = None, told(error)
        return
    floating = [output for output in found if output.is_floating_point() or output.is_complex()]
    if floating and all(output.dtype not in (torch.float64, torch.complex128) for output in floating):
        subject.high, subject.high_problem = None, f"its outputs stay {floating[0].dtype} for float64 inputs"


class _ActivationBytes:
    """Watches one pass and remembers the largest module output in bytes."""

    def __init__(self, model: nn.Module) -> None:
        self.largest = 1
        # TorchScript takes no hooks.
        plain = [module for module in model.modules() if not isinstance(module, torch.jit.ScriptModule)]
        self._hooks = [module.register_forward_hook(self._see) for module in plain]

    def _see(self, module: nn.Module, args: Any, output: Any) -> None:
        for tensor in tree.tensors(output):
            self.largest = max(self.largest, tensor.numel() * tensor.element_size())

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
