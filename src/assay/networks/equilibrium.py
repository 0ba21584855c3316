"""What all equilibrium models share: reading the free fixed point out, and parameter derivatives of an energy at rest.

``EquilibriumModule`` is abstract. A final model writes down ``clamp``, ``start``, ``sweep``, ``energy`` and ``logits``;
everything else follows from them, and a model overrides it only to be faster (EnergyMLP does).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, Generic, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.errors import InputError, expected, unknown
from assay.protocols import Batch, Nudge, State
from assay.solving.deviation import deviate, gauss
from assay.solving.relaxation import check_finite, relax
from assay.solving.solution import Solution
from assay.solving.tangent import tangent

Readout = Literal["softmax", "squared"]


class EquilibriumModule(nn.Module, ABC, Generic[Batch]):
    """An ``nn.Module`` whose output is read from a fixed point; see ``assay.protocols.EquilibriumModel``.

    ``sweeps`` and ``tolerance`` say how ``forward`` relaxes: with gradients enabled exactly ``sweeps`` sweeps are
    unrolled (so backprop through ``forward`` is backprop through time), without them the run may stop early.
    """

    def __init__(self, *, classes: int, readout: str, sweeps: int, tolerance: float | None) -> None:
        super().__init__()
        if readout not in ("softmax", "squared"):
            raise InputError(unknown("readout", readout, ("softmax", "squared")))
        self.classes = classes
        self.readout = readout
        self.sweeps = sweeps
        self.tolerance = tolerance

    @property
    @abstractmethod
    def loss_scale(self) -> float: ...

    @property
    def symmetric(self) -> bool:
        return True

    @abstractmethod
    def clamp(self, x: Tensor) -> Batch: ...

    @abstractmethod
    def start(self, clamped: Batch) -> State: ...

    @abstractmethod
    def sweep(self, clamped: Batch, state: State, nudge: Nudge | None = None) -> State: ...

    @abstractmethod
    def energy(self, clamped: Batch, state: State) -> Tensor: ...

    def coupling(self, clamped: Batch, state: State) -> Tensor:
        """The part of the energy that depends on parameters; the cost R of the units does not and may be left out."""
        return self.energy(clamped, state)

    @abstractmethod
    def logits(self, state: State) -> Tensor: ...

    def readout_parameters(self) -> tuple[nn.Parameter, ...]:
        """Parameters of the loss that are not in the energy; none when the output units are part of the state."""
        return ()

    def forward(self, x: Tensor) -> Tensor:
        """The logits at the free fixed point."""
        clamped = self.clamp(x)
        if not torch.is_grad_enabled():
            return self.logits(self.relax(clamped, None, sweeps=self.sweeps, tolerance=self.tolerance).value)
        state = self.start(clamped)
        for _ in range(self.sweeps):
            state = self.sweep(clamped, state)
        return self.logits(state)

    def relax(
        self, clamped: Batch, state: State | None, *, sweeps: int, tolerance: float | None = None,
        nudge: Nudge | None = None, trace: bool = False,
    ) -> Solution:
        with torch.no_grad():
            state = self.start(clamped) if state is None else state
            return relax(
                lambda s: self.sweep(clamped, s, nudge), state, sweeps=sweeps, tolerance=tolerance, trace=trace
            )

    def tangent(
        self, clamped: Batch, state: State, target: Tensor, *, sweeps: int, tolerance: float | None = None
    ) -> Solution:
        return tangent(self, clamped, state, target, sweeps=sweeps, tolerance=tolerance)

    def deviate(
        self, clamped: Batch, free: State, nudge: Nudge, *, sweeps: int, tolerance: float | None = None, order: int = 2
    ) -> Solution:
        return deviate(self, clamped, free, nudge, sweeps=sweeps, tolerance=tolerance, order=order)

    def row_losses(self, logits: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy averaged over positions (softmax), or half the squared distance to the one-hot target."""
        if self.readout == "softmax":
            flat = functional.cross_entropy(logits.flatten(0, -2), target.flatten(), reduction="none")
            return flat.view(len(target), -1).mean(1)
        return 0.5 * (logits - self.one_hot(target, logits.dtype)).square().flatten(1).sum(1)

    def check_target(self, target: Tensor, *, rows: int) -> None:
        check_classes(target, rows=rows, classes=self.classes)

    def one_hot(self, target: Tensor, dtype: torch.dtype) -> Tensor:
        """Class indices as rows of zeros with a single one."""
        return functional.one_hot(target, self.classes).to(dtype)

    def add_energy_gradient(self, clamped: Batch, state: State, weights: Tensor) -> None:
        phases = len(state[0]) // len(clamped.x)
        with torch.enable_grad():
            # Clamped again because the input drive depends on parameters too; the states are constants here.
            energies = self.coupling(self.clamp(clamped.x).repeat(phases), tuple(s.detach() for s in state))
            total = (weights * energies).sum()
            self._add_gradient(total.real if total.is_complex() else total)

    def add_deviation_gradient(
        self, clamped: Batch, free: State, deviation: State, coefficients: Sequence[complex], *, order: int = 2
    ) -> None:
        """The change of dE/dtheta is an integral along the deviation too: of d/dtheta <dE/ds, d>."""
        phases, rows = len(coefficients), len(free[0])
        weights = per_row([c / self.loss_scale for c in coefficients], deviation[0], rows)
        resting = tuple(torch.cat([layer] * phases).to(deviation[0].dtype) for layer in free)
        with torch.enable_grad():
            batch, total = self.clamp(clamped.x).repeat(phases), resting[0].new_zeros(())
            for node, share in zip(*gauss(order), strict=True):
                slopes = self.slopes(batch, tuple(s + node * d for s, d in zip(resting, deviation, strict=True)))
                for slope, d in zip(slopes, deviation, strict=True):
                    total = total + share * (weights.view(-1, *[1] * (d.dim() - 1)) * slope * d).sum()
            self._add_gradient(total.real if total.is_complex() else total)

    def slopes(self, clamped: Batch, state: State) -> tuple[Tensor, ...]:
        """dE/ds as far as it depends on parameters, and differentiable in them.

        A model without an energy gives minus its vector field.
        """
        leaves = tuple(s.detach().requires_grad_() for s in state)
        energies = self.coupling(clamped, leaves)
        found = torch.autograd.grad(energies, leaves, torch.ones_like(energies), create_graph=True)
        return tuple(slope.conj() for slope in found)  # of a complex state torch gives the conjugate

    def add_tangent_gradient(self, clamped: Batch, state: State, direction: State, weight: float) -> None:
        with torch.enable_grad():
            slopes = self.slopes(self.clamp(clamped.x), tuple(s.detach() for s in state))
            along = sum((slope * d).sum() for slope, d in zip(slopes, direction, strict=True))
            self._add_gradient(weight * torch.as_tensor(along))

    def add_readout_gradient(self, state: State, target: Tensor) -> Tensor:
        with torch.enable_grad():
            logits = self.logits(tuple(s.detach() for s in state))
            loss = self.row_losses(logits, target).mean()
            if parameters := [p for p in self.readout_parameters() if p.requires_grad]:
                add_to_grad(parameters, torch.autograd.grad(loss, parameters))
        return loss.detach()

    def _add_gradient(self, total: Tensor) -> None:
        parameters = [p for p in self.parameters() if p.requires_grad]
        gradients = torch.autograd.grad(total, parameters, allow_unused=True)
        used = [(p, g) for p, g in zip(parameters, gradients, strict=True) if g is not None]
        add_to_grad([p for p, _ in used], [g for _, g in used])


class Elementwise(nn.Module):
    """A function of each number as a module, for the feed-forward limits of energy models."""

    elementwise = True

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


def add_to_grad(parameters: Any, gradients: Any) -> None:
    """Add each gradient to its parameter's ``.grad``, making it where there is none; frozen parameters get none."""
    for parameter, gradient in zip(parameters, gradients, strict=True):
        if not parameter.requires_grad:
            continue
        parameter.grad = gradient.detach() if parameter.grad is None else parameter.grad.add_(gradient.detach())


def check_classes(y: Tensor, *, rows: int, classes: int) -> None:
    """Nothing, or an InputError: targets are class indices, one per row."""
    if y.dtype != torch.long:
        raise expected("class indices of dtype torch.int64", given=f"y of dtype {y.dtype}",
                       do="use y.long(); floats are predicted by assay.models.EnergyNet(net, loss='mse')")
    if len(y) != rows:
        raise expected(f"one target per row ({rows})", given=f"y of shape {tuple(y.shape)}")
    if len(y) == 0:
        raise expected("at least one row in the batch", given="none")
    low, high = (int(v) for v in torch.aminmax(y))
    if low < 0 or high >= classes:
        raise expected(f"class indices from 0 to {classes - 1}", given=f"indices from {low} to {high}",
                       do="give the model as many outputs as there are classes")


def per_row(values: Sequence[complex], like: Tensor, rows: int) -> Tensor:
    """Each value ``rows`` times over, in the dtype of ``like``."""
    numbers = list(values) if like.is_complex() else [complex(value).real for value in values]
    return torch.tensor(numbers, dtype=like.dtype, device=like.device).unsqueeze(1).expand(-1, rows).flatten()


def softmax(logits: Tensor) -> Tensor:
    """Softmax over the last axis, also for complex logits, where it is the analytic continuation."""
    if not logits.is_complex():
        return torch.softmax(logits, -1)
    exponentials = torch.exp(logits - logits.real.amax(-1, keepdim=True))
    return exponentials / exponentials.sum(-1, keepdim=True)


def seeded(kind: type[nn.Module], *sizes: int, generator: torch.Generator, **options: Any) -> nn.Module:
    """A linear or convolution layer with PyTorch's usual initialisation, drawn from ``generator`` alone."""
    layer = nn.utils.skip_init(kind, *sizes, **options)  # type: ignore[no-untyped-call]
    bound = layer.weight[0].numel() ** -0.5
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.uniform_(-bound, bound, generator=generator)
    return cast(nn.Module, layer)


def check_inputs(x: Tensor, *, shape: tuple[int | None, ...], like: Tensor, model: str) -> None:
    """Nothing, or an InputError: a batch must be floating, of the model's precision, of its shape, and finite."""
    if not x.is_floating_point():
        raise expected(f"floating-point inputs for {model}", given=f"x of dtype {x.dtype}",
                       do="convert with x.float(); token models take integers, energy models do not")
    wanted = ", ".join("any" if size is None else str(size) for size in shape)
    if x.dim() != len(shape) + 1 or any(s not in (None, g) for s, g in zip(shape, x.shape[1:], strict=True)):
        raise expected(f"inputs of shape (batch, {wanted}) for {model}", given=f"x of shape {tuple(x.shape)}",
                       do="reshape the batch, for instance x.flatten(1)")
    if len(x) == 0:
        raise expected("at least one row in the batch", given=f"x of shape {tuple(x.shape)}")
    if x.dtype != like.dtype:
        raise expected(f"inputs of the precision of {model} ({like.dtype})", given=f"x of dtype {x.dtype}",
                       do="use x.to(...) or model.double()")
    check_finite("inputs", x)
