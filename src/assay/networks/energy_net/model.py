"""EnergyNet: any feed-forward network as an energy, so that it can be trained by equilibrium propagation.

    E = sum_l gamma^level(l) [ R_l(s_l) - <s_l, F_l(s_parents)> ]

The network is split at its monotone activations into layers of units and the links F between them. For any
differentiable link the stationary point is s_l = sigma_l( F_l(s_parents) + sum over children c of
gamma^(level(c) - level(l)) J_{F_c}^T s_c ): the network's own forward pass, plus feedback through the transpose of each
link, which is local automatic differentiation (``docs/explanations/autograd.md``). As gamma goes to 0 the state is the
forward pass and the credit travels as backprop's does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, final

import torch
from torch import Tensor, nn
from torch.nn import functional

from assay.errors import InputError, expected, unknown
from assay.networks.energy_net.deviation import AT_THE_START, NetDeviationSweep, Nodes, change_of_product
from assay.networks.energy_net.evaluation import Composable, Kept, LinkAnswers
from assay.networks.energy_net.graph import Unit, outputs_of, split
from assay.networks.energy_net.links import Conditions, Link
from assay.networks.equilibrium import EquilibriumModule, add_to_grad, check_classes, softmax
from assay.protocols import Nudge, State
from assay.solving.deviation import Units, gauss, relax_deviations
from assay.solving.relaxation import check_finite, relax
from assay.solving.responses import Response, response
from assay.solving.solution import Solution

LOSSES = ("cross-entropy", "mse")


@dataclass(frozen=True)
class ClampedNet:
    """A batch, the drives that depend on it alone, what was drawn for it, and its latest evaluation of every link."""

    x: Tensor
    drives: tuple[Tensor | None, ...]
    conditions: Conditions
    kept: Kept
    phases: int = 1

    def repeat(self, phases: int) -> Self:
        phases *= self.phases
        return replace(self, phases=phases, kept=Kept(self.conditions, phases))

    def links(self, like: Tensor) -> LinkAnswers:
        """The links for states ``like`` these that nothing differentiates."""
        return Composable(self.conditions, self.phases) if like.is_complex() else self.kept

    def drive(self, index: int) -> Tensor:
        """The constant drive of a unit, for every phase."""
        drive = self.drives[index]
        assert drive is not None
        return drive if self.phases == 1 else torch.cat([drive] * self.phases)


class EnergyNet(EquilibriumModule[ClampedNet]):
    """``net`` as an energy with feedback ``gamma``; its parameters are the network's own.

    ``loss`` is ``cross-entropy`` (class indices) or ``mse`` (targets shaped like the output). ``classes`` is found from
    the last layer of the network unless given.

    >>> net = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.LayerNorm(8), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 3))
    >>> EnergyNet(net, gamma=0.1)(torch.zeros(5, 4)).shape
    torch.Size([5, 3])
    """

    def __init__(
        self, net: nn.Module, *, gamma: float = 0.03, loss: str = "cross-entropy", classes: int | None = None,
        sweeps: int = 20, tolerance: float | None = 1e-6,
    ) -> None:
        if not 0 < gamma <= 1:
            raise expected("gamma in (0, 1]", given=f"gamma={gamma}", do="0.01 to 0.1 settles in a few sweeps")
        if loss not in LOSSES:
            raise InputError(unknown("loss", loss, LOSSES))
        parts = split(net)
        super().__init__(classes=classes or outputs_of(net, parts), sweeps=sweeps, tolerance=tolerance,
                         readout="softmax" if loss == "cross-entropy" else "squared")
        self.net, self.gamma, self.loss = net, gamma, loss
        self.parts = parts

    def __getstate__(self) -> dict[str, Any]:
        # The links hold the modules of the network and are cut anew: in a copy, in another process, after loading.
        return {name: value for name, value in self.__dict__.items() if name != "parts"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.parts = split(self.net)

    @property
    def loss_scale(self) -> float:
        return self.gamma**self.parts.levels

    @property
    def layer_names(self) -> tuple[str, ...]:
        """The units by their names in the network."""
        return tuple(unit.name for unit in self.parts.units)

    def feedforward(self) -> nn.Module:
        """The limit gamma -> 0: the network itself."""
        return self.net

    def clamp(self, x: Tensor) -> ClampedNet:
        if len(x) == 0:
            raise expected("at least one row in the batch", given=f"x of shape {tuple(x.shape)}")
        if x.is_floating_point():
            check_finite("inputs", x)
            own = next(self.net.parameters(), x)
            if own.dtype != x.dtype:
                raise expected(f"inputs of the precision of the network ({own.dtype})", given=f"x of dtype {x.dtype}",
                               do="use x.to(...) or model.double()")
        if self.training:
            for link in (*(unit.link for unit in self.parts.units), self.parts.readout):
                link.refuse_chance()
        first = Conditions(first=True, inputs=x)
        conditions = replace(first, first=False)
        kept = Kept(conditions)
        drives = tuple(
            None if not unit.constant else unit.link([x], first) if torch.is_grad_enabled()
            else kept.at(index, unit.link, [x], first).drive for index, unit in enumerate(self.parts.units)
        )
        return ClampedNet(x, drives, conditions, kept)

    def start(self, clamped: ClampedNet) -> State:
        """The forward pass of the network."""
        # The first time a batch meets the network: running statistics move here, and only here.
        first = replace(clamped.conditions, first=clamped.phases == 1 and self.training)
        state: list[Tensor] = []

        def drive_of(number: int, link: Link, parents: Sequence[int]) -> Tensor:
            below = [state[p] for p in parents]
            if torch.is_grad_enabled():
                return link(below, first)
            return clamped.kept.at(number, link, below, first).drive

        for index, unit in enumerate(self.parts.units):
            drive = clamped.drive(index) if unit.constant else drive_of(index, unit.link, unit.parents)
            state.append(unit.activation.function(drive))
        if first.first:
            drive_of(len(state), self.parts.readout, self.parts.readers)
        return tuple(state)

    def sweep(self, clamped: ClampedNet, state: State, nudge: Nudge | None = None) -> State:
        """Free sweeps go up, nudged sweeps down."""
        return self._swept(clamped, state, nudge, Composable(clamped.conditions, clamped.phases))

    def relax(
        self, clamped: ClampedNet, state: State | None, *, sweeps: int, tolerance: float | None = None,
        nudge: Nudge | None = None, trace: bool = False,
    ) -> Solution:
        with torch.no_grad():
            state = self.start(clamped) if state is None else state
            links = clamped.links(state[0])
            return relax(lambda s: self._swept(clamped, s, nudge, links), state, sweeps=sweeps, tolerance=tolerance,
                         trace=trace)

    def _swept(self, clamped: ClampedNet, state: State, nudge: Nudge | None, links: LinkAnswers) -> State:
        new, order = list(state), range(len(state))
        for index in order if nudge is None else reversed(order):
            drive = self._drive(index, clamped, new, nudge=nudge, links=links)
            new[index] = self.parts.units[index].activation.function(drive)
            links.arrived(index, new[index], drive)
        return tuple(new)

    def _drive(
        self, index: int, clamped: ClampedNet, state: Sequence[Tensor], *, nudge: Nudge | None, links: LinkAnswers
    ) -> Tensor:
        unit = self.parts.units[index]
        if unit.constant:
            drive = clamped.drive(index).to(state[index].dtype)
        else:
            drive = links.drive(index, unit.link, [state[p] for p in unit.parents])
        for child in self.parts.children(index):
            above = self.parts.units[child]
            below = [state[p] for p in above.parents]
            heard = links.transpose(child, above.link, below, state[child])[above.parents.index(index)]
            drive = drive + self.gamma ** (above.level - unit.level) * heard
        if nudge is not None and index in self.parts.readers:
            pulls = self._pulls(state, nudge, links)
            drive = drive + self.gamma ** (self.parts.levels - unit.level) * pulls[index]
        return drive

    def _pulls(self, state: Sequence[Tensor], nudge: Nudge, links: LinkAnswers) -> dict[int, Tensor]:
        """beta times minus the gradient of the loss with respect to each unit the output is read from."""
        readers = self.parts.readers
        number, below = len(self.parts.units), [state[p] for p in readers]
        error = self._error(links.drive(number, self.parts.readout, below), nudge.target)
        weighted = nudge.beta.view(-1, *[1] * (error.dim() - 1)) * error
        found = links.transpose(number, self.parts.readout, below, weighted)
        return dict(zip(readers, found, strict=True))

    def _error(self, logits: Tensor, target: Tensor) -> Tensor:
        """Minus the gradient of the loss of each row with respect to the output, analytic in the output."""
        each = logits[0].numel()
        if self.loss == "mse":
            return (target.to(logits.dtype).view_as(logits) - logits) * (2 / each)
        return (self.one_hot(target, logits.dtype) - softmax(logits)) * (self.classes / each)

    def energy(self, clamped: ClampedNet, state: State) -> Tensor:
        total = self.coupling(clamped, state)
        for unit, units in zip(self.parts.units, state, strict=True):
            cost = unit.activation.cost(units)
            if bool(torch.isnan(cost).any()):
                raise expected("units whose cost has a closed form for an energy", given=unit.activation.name,
                               do="the gradient does not need it")
            total = total + self.gamma**unit.level * cost.flatten(1).sum(1)
        return total

    def coupling(self, clamped: ClampedNet, state: State) -> Tensor:
        total = torch.zeros((), dtype=state[0].dtype, device=state[0].device)
        for index, (unit, units) in enumerate(zip(self.parts.units, state, strict=True)):
            drive = clamped.drive(index) if unit.constant else unit.link(
                [state[p] for p in unit.parents], clamped.conditions, phases=clamped.phases)
            total = total - self.gamma**unit.level * (units * drive).flatten(1).sum(1)
        return total

    def logits(self, state: State) -> Tensor:
        return self.parts.readout([state[p] for p in self.parts.readers], Conditions())

    def readout_parameters(self) -> tuple[nn.Parameter, ...]:
        return tuple(self.parts.readout.parameters())

    def row_losses(self, logits: Tensor, target: Tensor) -> Tensor:
        """Cross-entropy averaged over positions, or the mean squared error of each row."""
        if self.loss == "mse":
            return functional.mse_loss(logits, target.view_as(logits), reduction="none").flatten(1).mean(1)
        return super().row_losses(logits, target)

    def check_target(self, target: Tensor, *, rows: int) -> None:
        if self.loss == "cross-entropy":
            check_classes(target, rows=rows, classes=self.classes)
        elif not target.is_floating_point() or len(target) != rows or rows == 0:
            raise expected(f"floating-point targets, one per row ({rows})",
                           given=f"y of dtype {target.dtype} and shape {tuple(target.shape)}")

    @torch.no_grad()
    def deviate(
        self, clamped: ClampedNet, free: State, nudge: Nudge, *, sweeps: int, tolerance: float | None = None,
        order: int = 2,
    ) -> Solution:
        """Link by link (``energy_net.deviation``); a layer in units of gamma^(levels - level)."""
        strongest = float(nudge.beta.abs().max())
        return self._moved(
            clamped, free, nudge, nodes=gauss(order), strongest=strongest, sweeps=sweeps, tolerance=tolerance
        )

    @torch.no_grad()
    def tangent(
        self, clamped: ClampedNet, state: State, target: Tensor, *, sweeps: int, tolerance: float | None = None
    ) -> Solution:
        """The limit of a deviation: every link and unit taken at the free state alone."""
        nudge = Nudge(torch.ones(len(state[0]), dtype=state[0].dtype, device=state[0].device), target)
        found = self._moved(
            clamped, state, nudge, nodes=AT_THE_START, strongest=0.0, sweeps=sweeps, tolerance=tolerance
        )
        value = tuple(self._scale(unit) * u for unit, u in zip(self.parts.units, found.value, strict=True))
        return replace(found, value=value)

    def _moved(
        self, clamped: ClampedNet, free: State, nudge: Nudge, *, nodes: Nodes, strongest: float, sweeps: int,
        tolerance: float | None,
    ) -> Solution:
        phases, dtype, limit = len(nudge.beta) // len(free[0]), nudge.beta.dtype, nodes is AT_THE_START
        resting = tuple(torch.cat([layer] * phases).to(dtype) if phases > 1 else layer.to(dtype) for layer in free)
        links = clamped.links(resting[0]) if phases == 1 else clamped.repeat(phases).links(resting[0])
        responses: list[Response] = []
        for index, unit in enumerate(self.parts.units):
            if limit:
                responses.append(_Slope(unit.activation.slope(free[index])))
                continue
            needs = not unit.activation.smooth and not unit.activation.leak
            excess = self._drive_to(index, clamped, free) - free[index] if needs else None
            responses.append(response(unit.activation, free[index], scale=self._scale(unit), phases=phases,
                                      strongest=strongest, excess=excess, rows=0))

        def pull(units: Units) -> dict[int, Tensor]:
            at = list(resting)
            for p in () if limit else self.parts.readers:
                moved = units[p]
                at[p] = at[p] if moved is None else at[p] + self._scale(self.parts.units[p]) * moved
            return self._pulls(at, nudge, links)

        sweep = NetDeviationSweep(self.parts, self.gamma, free, resting, clamped.kept, clamped.conditions, responses,
                                  pull, nodes, phases)
        found = relax_deviations(sweep, len(free), sweeps=sweeps, tolerance=tolerance, like=resting[0])
        # A layer the nudge never reaches has no deviation of its own shape.
        pairs = zip(found.value, resting, strict=True)
        value = tuple(u if u.shape == s.shape else torch.zeros_like(s) for u, s in pairs)
        return replace(found, value=value)

    def add_deviation_gradient(
        self, clamped: ClampedNet, free: State, deviation: State, coefficients: Sequence[complex], *, order: int = 2
    ) -> None:
        for phase, coefficient in enumerate(coefficients):
            moved = tuple(units.chunk(len(coefficients))[phase] for units in deviation)
            self._add_changes(clamped, free, moved=moved, factor=-coefficient, nodes=gauss(order))

    def add_tangent_gradient(self, clamped: ClampedNet, state: State, direction: State, weight: float) -> None:
        units = tuple(d / self._scale(unit) for unit, d in zip(self.parts.units, direction, strict=True))
        self._add_changes(clamped, state, moved=units, factor=-weight * self.loss_scale, nodes=AT_THE_START)

    def _add_changes(
        self, clamped: ClampedNet, free: State, *, moved: State, factor: complex, nodes: Nodes
    ) -> None:
        """Add ``factor`` times the change of the coupling of every link, over loss_scale, to its parameters.

        At the start the change is that along ``moved`` as a direction, which reaches no further.
        """
        reach = 0.0 if nodes is AT_THE_START else 1.0
        for index, unit in enumerate(self.parts.units):
            if not (parameters := unit.link.parameters()):
                continue
            gradients: Sequence[Tensor | None]
            if moved[index].is_complex() or not (unit.constant or unit.link.linear):
                with torch.enable_grad():
                    change = self._change(clamped, index, free=free, moved=moved, reach=reach, nodes=nodes)
                    value = factor * change
                    gradients = torch.autograd.grad(value.real if value.is_complex() else value, parameters,
                                                    allow_unused=True)
            else:
                gradients = self._slopes_of_linear(clamped, index, free=free, moved=moved, reach=reach,
                                                factor=complex(factor).real, parameters=parameters)
            used = [(p, g) for p, g in zip(parameters, gradients, strict=True) if g is not None]
            add_to_grad([p for p, _ in used], [g for _, g in used])

    def _slopes_of_linear(
        self, clamped: ClampedNet, index: int, *, free: State, moved: State, reach: float, factor: float,
        parameters: Sequence[nn.Parameter],
    ) -> Sequence[Tensor | None]:
        """<u_l, F(s)> + <s_l + d_l, J d_p> in units of the layer: the link as it is kept, and once without its bias."""
        unit = self.parts.units[index]
        below = [clamped.x] if unit.constant else [free[p] for p in unit.parents]
        known = clamped.kept.at(index, unit.link, below)
        at_rest = known.slopes(parameters, factor * moved[index])
        if unit.constant:
            return at_rest
        above = factor * torch.add(free[index], moved[index], alpha=reach * self._scale(unit))
        with torch.enable_grad():
            bare = unit.link(self._along(unit, moved), clamped.conditions, winners=known.winners, bare=True)
        along = torch.autograd.grad(bare, parameters, above, allow_unused=True)
        return [a if b is None else b if a is None else a + b for a, b in zip(at_rest, along, strict=True)]

    def _change(
        self, clamped: ClampedNet, index: int, *, free: State, moved: State, reach: float, nodes: Nodes
    ) -> Tensor:
        unit, dtype = self.parts.units[index], moved[index].dtype
        if unit.constant:
            return (moved[index] * unit.link([clamped.x], clamped.conditions)).sum()
        below, linear = [free[p] for p in unit.parents], unit.link.linear
        winners = clamped.kept.at(index, unit.link, below).winners if linear else {}
        return change_of_product(
            unit.link, tuple(s.to(dtype) for s in below), above=free[index].to(dtype),
            shift=tuple(reach * self._scale(self.parts.units[p]) * moved[p] for p in unit.parents),
            along=self._along(unit, moved), moved=moved[index], conditions=clamped.conditions, nodes=nodes,
            linear=(lambda u: unit.link(u, clamped.conditions, winners=winners, bare=True)) if linear else None,
        )

    def _along(self, unit: Unit, moved: State) -> tuple[Tensor, ...]:
        """d of each parent in units of the layer ``unit``."""
        return tuple(self.gamma ** (unit.level - self.parts.units[p].level) * moved[p] for p in unit.parents)

    def _drive_to(self, index: int, clamped: ClampedNet, free: State) -> Tensor:
        """The whole drive of a layer at the free state, as its last sweep left it if it is of this batch."""
        known = clamped.kept.drive_to(index, free)
        return self._drive(index, clamped, free, nudge=None, links=clamped.kept) if known is None else known

    def add_energy_gradient(self, clamped: ClampedNet, state: State, weights: Tensor) -> None:
        phases = len(state[0]) // len(clamped.x)
        with torch.enable_grad():
            drives = tuple(u.link([clamped.x], clamped.conditions) if u.constant else None for u in self.parts.units)
            again = replace(clamped.repeat(phases), drives=drives)
            value = (weights * self.coupling(again, tuple(s.detach() for s in state))).sum()
            self._add_gradient(value.real if value.is_complex() else value)

    def _scale(self, unit: Unit) -> float:
        return self.gamma ** (self.parts.levels - unit.level)


@final
@dataclass(frozen=True)
class _Slope(Response):
    """The linear response of the limit."""

    slope: Tensor

    def __call__(self, force: Tensor) -> Tensor:
        return force * self.slope
