"""A model and example inputs, ready to be evaluated in two precisions; the model itself is never run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal

import torch
from torch import Tensor, nn

from assay.errors import AssayError, InputError, expected
from assay.probe import tree
from assay.probe.calling import arguments, default_call
from assay.probe.containment import attempt, told
from assay.probe.copies import cast, device_of, duplicate, native_dtype
from assay.probe.hooks import Hook, watching
from assay.probe.values import exact, is_continuous
from assay.seeding import torch_generator

Precision = Literal["low", "high"]
Leaves = list[Any]
Call = Callable[[nn.Module, Any], Any]


@dataclass
class Cost:
    """What an audit has cost so far: calls of the model and inputs sent through it."""

    calls: int = 0
    inputs: int = 0

    def add(self, inputs: int) -> None:
        """One more call."""
        self.calls, self.inputs = self.calls + 1, self.inputs + inputs


@dataclass(kw_only=True)
class Probe:
    """The model as a function from a list of input leaves to a list of output tensors, in two precisions."""

    model: nn.Module
    template: Any
    cases: list[Leaves]
    """Inputs, one list of leaves per call of the model; with a batch axis each case holds many rows."""
    input_names: list[str]
    call: Call | None
    low: nn.Module
    low_dtype: torch.dtype
    native: torch.dtype
    high: nn.Module | None = None
    high_problem: str = ""
    output_names: list[str] = field(default_factory=list)
    needs_grad: bool = False
    makes_graphs: bool = False
    """Its modules build a graph while it is only asked for values: it may return slopes (forces of an energy)."""
    lowest: torch.dtype | None = None
    """The coarsest dtype that a module hands on, where it is coarser than the model's own (autocast)."""
    row_bytes: int = 1
    """The largest activation per row."""
    trace_bytes: int = 1
    """All activations per row, in float64."""
    cost: Cost = field(default_factory=lambda: Cost())
    seed: int = 0
    common_noise: bool = False
    """A stochastic model: the global generator is set to the same state before every call."""
    _base: dict[tuple[int, Precision], list[Tensor]] = field(default_factory=dict)

    def base(self, case: int, precision: Precision) -> list[Tensor]:
        """Outputs at an unchanged case, computed once."""
        key = (case, precision)
        if key not in self._base:
            self._base[key] = self.values(self.cases[case], precision)
        return self._base[key]

    @property
    def precisions(self) -> tuple[Precision, ...]:
        """The precisions the model runs in."""
        return ("low", "high") if self.high is not None else ("low",)

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

    def first_axis(self, leaves: Leaves) -> int:
        """The size of axis 0 of the first tensor."""
        return next((len(leaf) for leaf in leaves if isinstance(leaf, Tensor) and leaf.ndim), 1)

    def rows_of(self, leaves: Leaves) -> int:
        """How many inputs one call with these leaves counts as."""
        return self.first_axis(leaves)

    def run(self, leaves: Leaves, model: nn.Module, dtype: torch.dtype, *, grad: bool = False) -> list[Tensor]:
        """Output tensors of one call. Inputs are copied first, so a model that writes into them does no harm."""
        return tree.tensors(self.result(self.fed(leaves, model, dtype, grad=grad), model, grad=grad))

    def fed(self, leaves: Leaves, model: nn.Module, dtype: torch.dtype, *, grad: bool = False) -> Leaves:
        """Copies of the leaves where the model lives, floating ones in ``dtype`` (and with gradients, if asked for)."""
        device = device_of(model)
        return [_fed(leaf, dtype, device, grad) for leaf in leaves]

    def result(self, fed: Leaves, model: nn.Module, *, grad: bool = False) -> Any:
        """What one call of the model returns, in the shape it returns it."""
        self.cost.add(self.rows_of(fed))
        if self.common_noise:
            torch.set_rng_state(torch_generator(self.seed, "noise").get_state())
        value = tree.rebuild(self.template, iter(fed))
        with torch.set_grad_enabled(grad or self.needs_grad):
            return self.call(model, value) if self.call else default_call(model, value, self.seed)

    def values(self, leaves: Leaves, precision: Precision) -> list[Tensor]:
        """Outputs of one call, detached, on the CPU, in float64 if floating."""
        found = self.run(leaves, self.twin(precision), self.dtype(precision))
        return [exact(output.detach()) for output in found]


def prepare_probe(model: nn.Module, sample: Any, *, seed: int, inputs: int, call: Call | None = None) -> Probe:
    """The model with copies in two precisions, inputs drawn and checked, structure of the outputs known."""
    check_module(model)
    template, cases = drawn(sample, inputs, seed)
    for case in cases:
        check_inputs(case, input_names(model, template))
    probe = Probe(template=template, cases=cases, call=call, seed=seed, **copies(model, template, cases))
    first = learn_outputs(probe)
    probe._base[0, "low"] = [exact(output) for output in tree.tensors(first)]
    high = add_high(probe)
    if high:
        probe._base[0, "high"] = [exact(output) for output in high]
    return probe


def check_module(model: nn.Module) -> None:
    """InputError for anything but a Module."""
    if not isinstance(model, nn.Module):
        raise expected("a torch.nn.Module", given=type(model).__name__, do="wrap a function in a small Module")
    lazy = [name for name, one in model.named_parameters() if isinstance(one, nn.parameter.UninitializedParameter)]
    if lazy:
        given = f"{', '.join(lazy[:3])} of a lazy module, not made yet"
        raise expected("a model with weights", given=given, do="call the model once with an example input")


def copies(model: nn.Module, template: Any, cases: list[Leaves]) -> dict[str, Any]:
    """The fields of a probe that follow from the model: its low copy, dtypes and the names of its inputs."""
    native = native_dtype(model, [leaf for leaf in cases[0] if isinstance(leaf, Tensor)])
    low_dtype = torch.float32 if native == torch.float64 else native
    low = duplicate(model, dtype=low_dtype if low_dtype != native else None)
    names = input_names(model, template)
    return {"model": model, "low": low, "low_dtype": low_dtype, "native": native, "input_names": names}


def drawn(sample: Any, inputs: int, seed: int) -> tuple[Any, list[Leaves]]:
    """The shape of one input and the leaves of each: a sample drawn, taken as it is, or a list of separate inputs."""
    if hasattr(sample, "edge_index") and hasattr(sample, "to_dict"):
        raise expected(
            "a tensor, a tuple, a dict, a list of them or a sampler (n, generator) -> inputs",
            given=f"a graph of torch_geometric ({type(sample).__name__})",
            do="sym.molecule(model, data) guesses what its keys are; or give data.to_dict() and call=",
        )
    if callable(sample) and not isinstance(sample, nn.Module):
        every = [sample(inputs, torch_generator(seed, "inputs"))]
    elif isinstance(sample, list):
        if not sample:
            raise expected("at least one input", given="an empty list")
        every = sample[:inputs]
    else:
        every = [sample]
    # Inputs are kept and changed on the CPU, wherever the model is: it gets copies there, and answers come back.
    return every[0], [[leaf.cpu() if isinstance(leaf, Tensor) else leaf for _, leaf in tree.leaves(one)]
                      for one in every]


def check_inputs(case: Leaves, names: list[str]) -> None:
    """InputError unless there are tensors, none of them empty and all of them finite."""
    if not any(isinstance(leaf, Tensor) for leaf in case):
        given = ", ".join(type(leaf).__name__ for leaf in case)
        raise expected("inputs that hold tensors", given=given, do="torch.as_tensor makes one of an array")
    for leaf, name in zip(case, names, strict=True):
        if not isinstance(leaf, Tensor):
            continue
        if leaf.layout is not torch.strided or leaf.is_nested:
            kind = "nested" if leaf.is_nested else str(leaf.layout).removeprefix("torch.")
            raise expected("dense tensors, which can be moved and compared", given=f"{name or 'an input'}: {kind}",
                           do="give it dense and make the sparse one in call=(model, inputs) -> outputs")
        if leaf.numel() == 0:
            raise expected("inputs with at least one entry", given=f"{name or 'input'} of shape {tuple(leaf.shape)}")
        if leaf.is_floating_point() and not bool(torch.isfinite(leaf).all()):
            raise expected("finite inputs", given=f"NaN or infinity in {name or 'the input'}")


def input_names(model: nn.Module, template: Any) -> list[str]:
    """Names of the input leaves; the places of a tuple are called as the arguments of ``forward`` are."""
    names = [name for name, _ in tree.leaves(template)]
    if not isinstance(template, tuple):
        return names
    kinds = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    known = [name for name, one in arguments(model).items() if one.kind in kinds]
    renamed = []
    for name in names:
        place, dot, rest = name.partition(".")
        renamed.append(f"{known[int(place)]}{dot}{rest}" if int(place) < len(known) else name)
    return renamed


def learn_outputs(probe: Probe) -> Any:
    """One call: learns the names of the outputs, their size, and whether the forward pass itself needs autograd.

    A float64 model is compared with its float32 copy; one that runs in float64 only is run in float64 alone.
    """
    if probe.low_dtype == probe.native:
        return _explained(probe)
    try:
        return _learn_outputs(probe)
    except Exception as error:
        probe.low, probe.low_dtype, probe.needs_grad = duplicate(probe.model), torch.float64, False
        probe.high_problem = f"it runs in float64 only ({told(error)}), and there is nothing more precise"
        return _explained(probe)


def _explained(probe: Probe) -> Any:
    """What the model says at its own example inputs; an InputError with its words if it does not take them."""
    try:
        return _learn_outputs(probe)
    except AssayError:
        raise
    except Exception as error:
        shapes = [tuple(leaf.shape) for leaf in probe.cases[0] if isinstance(leaf, Tensor)]
        raise expected(
            "example inputs the model accepts", given=f"shape {' and '.join(map(str, shapes))}",
            do=f"{type(probe.model).__name__} said {told(error)}",
        ) from error


def _learn_outputs(probe: Probe) -> Any:
    largest = total = 1
    graphs, coarse = False, probe.low_dtype

    def see(name: str) -> Hook:
        def hook(module: nn.Module, args: Any, kwargs: Any, output: Any) -> None:
            nonlocal largest, total, graphs, coarse
            for y in tree.tensors(output):
                if y.is_floating_point() and torch.finfo(y.dtype).eps > torch.finfo(coarse).eps:
                    coarse = y.dtype
                graphs = graphs or y.requires_grad
                largest, total = max(largest, y.numel() * y.element_size()), total + 8 * y.numel()

        return hook

    with watching(probe.low, None, see):
        result = _first_result(probe)
    probe.cost = Cost()
    result = tree.map_tensors(result, Tensor.detach)
    probe.output_names = [name or "output" for name, leaf in tree.leaves(result) if isinstance(leaf, Tensor)]
    rows = max(1, probe.first_axis(probe.cases[0]))
    probe.makes_graphs, probe.lowest = graphs, coarse
    probe.row_bytes, probe.trace_bytes = max(1, largest // rows), max(1, total // rows)
    return result


def add_high(probe: Probe) -> list[Tensor]:
    """Adds the float64 copy, or the reason why there is none; its outputs at the first case, if it runs."""
    if probe.low_dtype == torch.float64:
        return []
    tried = attempt(lambda: _high(probe))
    probe.high, probe.high_problem = (None, tried.problem) if tried.problem else (tried.value, "")
    if probe.high is None:
        return []
    found = attempt(lambda: probe.run(probe.cases[0], probe.twin("high"), torch.float64))
    floating = [output for output in found.value or () if is_continuous(output)]
    stays = floating and all(output.dtype not in (torch.float64, torch.complex128) for output in floating)
    problem = found.problem or (f"its outputs stay {floating[0].dtype} for float64 inputs" if stays else "")
    if problem:
        probe.high, probe.high_problem = None, problem
        return []
    return found.value or []


def _first_result(probe: Probe) -> Any:
    def run() -> Any:
        return probe.result(probe.fed(probe.cases[0], probe.low, probe.low_dtype), probe.low)

    try:
        return run()
    except RuntimeError as without:
        probe.needs_grad = True
        again = attempt(run)
        if again.problem:
            raise without from None
        return again.value


def _high(probe: Probe) -> nn.Module:
    high = duplicate(probe.model, dtype=torch.float64)
    return high.cpu() if device_of(high).type == "mps" else high


def _fed(leaf: Any, dtype: torch.dtype, device: torch.device, grad: bool) -> Any:
    if not isinstance(leaf, Tensor):
        return leaf
    fed = cast(leaf.detach().clone(), dtype).to(device)
    return fed.requires_grad_(True) if grad and is_continuous(fed) else fed
