"""A link: the part of a network between units, evaluated, differentiated and transposed locally.

Most links are linear up to a bias: linear layers, convolutions, pooling, reshaping, joins by addition, and at fixed
statistics batch normalisation. They act on a deviation without the bias. A maximum counts as linear at the winners of
the free state. Everything else (other norms, attention, a user's own module) is *curved* and is differentiated in
forward mode along the deviation. A link's transpose is a vector-Jacobian product through this link alone.

Dropout keeps one mask for all phases of a batch. Batch normalisation in training mode takes its statistics from the
states, phase by phase, and its running statistics move once per batch (``Conditions.first``).
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, cast

import torch
from torch import Tensor, fx, nn
from torch.func import functional_call, vjp
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd
from torch.nn.modules.dropout import _DropoutNd

from assay.errors import expected
from assay.solving.tangent import load_forward_mode

SHAPES = ("size", "dim", "shape", getattr, len)
"""Questions about a tensor rather than computations with it."""
_MEANS = (
    nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d, nn.AdaptiveAvgPool1d, nn.AdaptiveAvgPool2d, nn.AdaptiveAvgPool3d,
    nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d, nn.PixelShuffle, nn.Upsample,
)
"""Linear and real: a complex tensor passes through them in two parts."""
_PLAIN = (
    *_MEANS, nn.Identity, nn.Flatten, nn.Unflatten, nn.Linear, _ConvNd, _DropoutNd, nn.MaxPool1d, nn.MaxPool2d,
    nn.MaxPool3d,
)
_PLAIN_CALLS = (operator.add, torch.add, operator.iadd, torch.flatten, torch.cat, torch.reshape, torch.permute,
                torch.transpose, torch.mean, torch.sum, *SHAPES)
_PLAIN_METHODS = ("add", "add_", "flatten", "reshape", "view", "permute", "transpose", "contiguous", "mean", "sum",
                  "squeeze", "unsqueeze", *SHAPES)
_IN_PLACE = (operator.iadd, operator.imul, operator.isub, operator.itruediv)
_DROPOUT_CALLS = (functional.dropout, functional.dropout1d, functional.dropout2d, functional.dropout3d, torch.dropout,
                  functional.alpha_dropout, functional.feature_alpha_dropout)
_MAXIMA: dict[type[nn.Module], Callable[..., Any]] = {
    nn.MaxPool1d: functional.max_pool1d, nn.MaxPool2d: functional.max_pool2d, nn.MaxPool3d: functional.max_pool3d,
}


@dataclass(eq=False)
class Conditions:
    """What is drawn once for a batch, when it is first asked for: dropout masks, by node. ``first`` is True while the
    batch is clamped; ``inputs`` are for links that read them beside states."""

    masks: dict[str, Tensor] = field(default_factory=dict)
    first: bool = False
    inputs: Tensor | None = None


@dataclass(frozen=True, eq=False)
class Link:
    """The nodes between ``sources`` and ``output``, in order; ``modules`` are those of the whole network.

    ``clamped`` is the input of the network if the link reads it beside states: a constant of the batch.
    """

    nodes: tuple[fx.Node, ...]
    output: fx.Node
    sources: tuple[fx.Node, ...]
    modules: Mapping[str, nn.Module]
    clamped: fx.Node | None = None

    @property
    def linear(self) -> bool:
        """Whether it acts on a deviation as it does on a state, but for the bias."""
        return all(self._is_linear(node) for node in self.nodes)

    @property
    def couples_rows(self) -> bool:
        """Whether rows of a batch feel each other: batch statistics."""
        return any(isinstance(m, _BatchNorm) and m.training for m in self.own_modules())

    @cached_property
    def attends(self) -> bool:
        """Whether there may be attention in it: inside a module that is not plain, or as a call."""
        parts = (part for module in self.own_modules() for part in module.modules())
        inside = any(isinstance(part, nn.MultiheadAttention) for part in parts)
        return inside or any(node.target is functional.scaled_dot_product_attention for node in self.nodes)

    def parameters(self) -> list[nn.Parameter]:
        """Those that require a gradient, each once."""
        found = [p for module in self.own_modules() for p in module.parameters()]
        found += [value for node in self.nodes if node.op == "get_attr"
                  and isinstance(value := self._attribute(node), nn.Parameter)]
        return [p for p in dict.fromkeys(found) if p.requires_grad]

    def __call__(
        self, below: Sequence[Tensor], conditions: Conditions, *, phases: int = 1,
        winners: dict[str, Tensor] | None = None, bare: bool = False,
    ) -> Tensor:
        """The drive that the states ``below`` make; ``bare`` leaves out every bias.

        ``winners`` is filled with those of each maximum, or if ``bare`` they are taken from there.
        """
        if phases > 1 and self.couples_rows:
            parts = zip(*(s.chunk(phases) for s in below), strict=True)
            return torch.cat([self(part, conditions, winners=winners, bare=bare) for part in parts])
        values: dict[fx.Node, Any] = dict(zip(self.sources, below, strict=True))
        if self.clamped is not None:
            values[self.clamped] = _for_rows(conditions.inputs, len(below[0]), still=bare)
        # torch's fused attention has no second derivative, which a curved link needs.
        with sdpa_kernel(SDPBackend.MATH) if self.attends else nullcontext():
            for node in self.nodes:
                values[node] = self._run(node, values, conditions, winners=winners, bare=bare)
        return cast(Tensor, values[self.output])

    def transpose(
        self, below: Sequence[Tensor], cotangent: Tensor, conditions: Conditions, *, phases: int = 1
    ) -> tuple[Tensor, ...]:
        """J^T v at the states ``below``, one tensor for each; complex tensors take the analytic continuation."""
        load_forward_mode()
        _, pull, *_ = vjp(lambda *s: self(s, conditions, phases=phases), *below)
        if cotangent.is_complex():
            return tuple(g.conj() for g in pull(cotangent.conj()))
        return cast("tuple[Tensor, ...]", pull(cotangent))

    def curvature(
        self, below: Sequence[Tensor], along: Sequence[Tensor], cotangent: Tensor, conditions: Conditions, *,
        phases: int = 1,
    ) -> tuple[Tensor, ...]:
        """The derivative of J^T v along a direction. It is symmetric, so it is the transpose of J^T v itself.

        Reverse over reverse mode: the forward derivative of a backward pass is missing for group normalisation, and
        the reverse of torch's forward derivative of layer normalisation is wrong (torch 2.13).
        """
        _, pull, *_ = vjp(lambda *s: self.transpose(s, cotangent, conditions, phases=phases), *below)
        return tuple(g.conj() for g in pull(tuple(d.conj() for d in along)))

    def _run(
        self, node: fx.Node, values: dict[fx.Node, Any], conditions: Conditions, *, winners: dict[str, Tensor] | None,
        bare: bool,
    ) -> Any:
        if node.op == "get_attr":
            return self._attribute(node)
        args: Any = fx.node.map_arg(node.args, lambda n: values[n])
        options: Any = fx.node.map_arg(node.kwargs, lambda n: values[n])
        if self._writes(node):
            # The state it would write into belongs to the relaxation.
            args = (args[0].clone(), *args[1:])
        if node.op == "call_method":
            return getattr(args[0], str(node.target))(*args[1:], **options)
        if node.op == "call_function":
            return cast(Callable[..., Any], node.target)(*args, **options)
        module = self.modules[str(node.target)]
        x = args[0]
        if isinstance(module, _DropoutNd):
            return self._dropped(node, module, x, conditions)
        if type(module) in _MAXIMA and (winners is not None or bare):
            return _maximum(module, x, node.name, winners=winners, bare=bare)
        if bare and isinstance(module, nn.Linear):
            return functional.linear(x, module.weight.to(x.dtype))
        if bare and isinstance(module, _ConvTransposeNd):
            return _transposed_convolution(module, x)
        if bare and isinstance(module, _ConvNd):
            return cast(Any, module)._conv_forward(x, module.weight.to(x.dtype), None)
        if bare and isinstance(module, _BatchNorm):
            return x * _at_fixed_statistics(module, x)
        if isinstance(module, _MEANS) and x.is_complex():
            return torch.complex(module(x.real), module(x.imag))
        return _call(module, args, options, first=conditions.first)

    def _writes(self, node: fx.Node) -> bool:
        """Whether a node works in place on what it is given."""
        if node.op == "call_module":
            return bool(getattr(self.modules[str(node.target)], "inplace", False))
        if node.op == "call_method":
            return str(node.target).endswith("_")
        return node.target in _IN_PLACE or node.kwargs.get("inplace") is True

    def refuse_chance(self) -> None:
        """Nothing, or an InputError: chance drawn anew at every call would be another network at every sweep."""
        for node in self.nodes:
            module = self.modules[str(node.target)] if node.op == "call_module" else None
            if node.target in _DROPOUT_CALLS and node.kwargs.get("training", True) is not False:
                raise expected("dropout as a module, whose mask is drawn once per batch", given=f"call {node.name}",
                               do="use nn.Dropout, or model.eval() before EnergyNet(...)")
            if module is not None and module.training and not isinstance(module, _DropoutNd) and _draws(module):
                raise expected("links without dropout inside", given=f"{type(module).__name__} with dropout",
                               do="set its dropout to 0, or put nn.Dropout beside it")

    def _dropped(self, node: fx.Node, module: _DropoutNd, x: Tensor, conditions: Conditions) -> Tensor:
        if not module.training or module.p == 0:
            return x
        if not _plain_dropout(module):
            raise expected("nn.Dropout, Dropout1d, 2d or 3d in training mode", given=type(module).__name__)
        if node.name not in conditions.masks:
            conditions.masks[node.name] = module(torch.ones_like(x.real if x.is_complex() else x)).detach()
        mask = conditions.masks[node.name]
        return x * (mask if len(mask) == len(x) else torch.cat([mask] * (len(x) // len(mask))))

    def _is_linear(self, node: fx.Node) -> bool:
        if node.op == "get_attr":
            return False
        if node.op == "call_module":
            module = self.modules[str(node.target)]
            return isinstance(module, _PLAIN) or (isinstance(module, _BatchNorm) and not module.training)
        known = _PLAIN_METHODS if node.op == "call_method" else _PLAIN_CALLS
        if node.target not in known:
            return False
        # x + 3 is not linear, and neither is a product that calls itself a sum: both operands must be tensors.
        adds = node.target in (operator.add, torch.add, operator.iadd, "add", "add_")
        return not adds or (len(node.args) == 2 and all(isinstance(a, fx.Node) for a in node.args) and not node.kwargs)

    def own_modules(self) -> list[nn.Module]:
        """The modules it calls, in order."""
        return [self.modules[str(node.target)] for node in self.nodes if node.op == "call_module"]

    def _attribute(self, node: fx.Node) -> Any:
        found: Any = self.modules[""]
        for part in str(node.target).split("."):
            found = getattr(found, part)
        return found


def _for_rows(inputs: Tensor | None, rows: int, *, still: bool) -> Tensor:
    """The clamped input for every phase; zero as a deviation, since it does not move."""
    assert inputs is not None
    whole = inputs if rows == len(inputs) else torch.cat([inputs] * (rows // len(inputs)))
    return torch.zeros_like(whole) if still else whole


def _call(module: nn.Module, args: Any, options: Any, *, first: bool) -> Any:
    """The module; its buffers move only the ``first`` time a batch meets it, and complex states get complex weights."""
    x = args[0]
    is_complex = isinstance(x, Tensor) and x.is_complex()
    if first or not (is_complex or (module.training and any(True for _ in module.buffers()))):
        return module(*args, **options)
    dtype = x.dtype if is_complex else None
    held = {name: buffer.detach().clone() for name, buffer in module.named_buffers()}
    changed = {n: p.to(dtype) for n, p in module.named_parameters()} if dtype else dict(module.named_parameters())
    try:
        return functional_call(module, {**changed, **held}, args, options)
    except (NotImplementedError, RuntimeError) as error:
        if not is_complex:
            raise
        raise expected("links with a complex extension for a holomorphic nudge", given=type(module).__name__,
                       do="use another estimator, for instance EqProp() or nudge='tangent'") from error


def _maximum(module: nn.Module, x: Tensor, name: str, *, winners: dict[str, Tensor] | None, bare: bool) -> Tensor:
    """The maximum, its winners kept; or the entries of ``x`` at the winners kept before."""
    pool: Any = module
    if bare:
        assert winners is not None
        held = winners[name]
        held = held if len(held) == len(x) else torch.cat([held] * (len(x) // len(held)))
        start = -(held.dim() - 2)
        return x.flatten(start).gather(-1, held.flatten(start)).view_as(held)
    value, found = _MAXIMA[type(module)](
        x, pool.kernel_size, pool.stride, pool.padding, pool.dilation, pool.ceil_mode, return_indices=True
    )
    assert winners is not None
    winners[name] = found
    return cast(Tensor, value)


def _transposed_convolution(module: _ConvTransposeNd, x: Tensor) -> Tensor:
    call = {1: functional.conv_transpose1d, 2: functional.conv_transpose2d, 3: functional.conv_transpose3d}
    like: Any = module
    return call[len(like.kernel_size)](x, like.weight.to(x.dtype), None, like.stride, like.padding, like.output_padding,
                                       like.groups, like.dilation)


def _draws(module: nn.Module) -> bool:
    """Whether a module drops anything inside itself."""
    for part in module.modules():
        rate = part.p if isinstance(part, _DropoutNd) else getattr(part, "dropout", 0.0)
        if isinstance(rate, float) and rate > 0:
            return True
    return False


def _at_fixed_statistics(module: _BatchNorm, x: Tensor) -> Tensor:
    assert module.running_var is not None
    scale = torch.rsqrt(module.running_var + module.eps)
    scale = scale if module.weight is None else scale * module.weight
    return scale.to(x.dtype).view(1, -1, *[1] * (x.dim() - 2))


def _plain_dropout(module: nn.Module) -> bool:
    return type(module) in (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
