"""The small interfaces through which the parts of Assay meet. No torch is imported at run time."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Literal, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

from assay.controls import ControlArm as ControlArm
from assay.controls import known_bad as known_bad
from assay.controls import known_good as known_good
from assay.errors import expected
from assay.results import Failure, Finding, Frozen

if TYPE_CHECKING:
    from torch import Tensor, nn

    from assay.solving.solution import Solution

Budget = Literal["smoke", "quick", "standard", "full"]
BUDGETS: tuple[Budget, ...] = ("smoke", "quick", "standard", "full")
SEEDS: dict[Budget, int] = {"smoke": 1, "quick": 3, "standard": 10, "full": 20}
"""How many seeds a budget runs."""


@runtime_checkable
class Rule(Protocol):
    """Gives parameters their ``.grad``: backprop, equilibrium propagation, feedback alignment, ..."""

    def backward(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        """The detached mean loss of the batch, after adding to ``.grad`` of every parameter the rule reaches."""


def is_local(rule: object) -> bool:
    """Whether a rule says ``local = True``: every layer gets its gradient from a graph of its own, and nothing travels
    down the stream of the model, so that what reached a depth is read off the gradients of its weights."""
    return getattr(rule, "local", False) is True


@runtime_checkable
class Writing(Protocol):
    """A rule that writes weights itself, without an optimiser. ``learning_rate``, if it has one, scales its update."""

    def step(self, model: nn.Module, x: Tensor, y: Tensor) -> Tensor | float:
        """The mean loss of the batch, after changing the model's parameters in place."""


@runtime_checkable
class Predicting(Protocol):
    """A rule whose inference is its own: what the trained model answers is ``predict(model, x)``, not ``model(x)``."""

    def predict(self, model: nn.Module, x: Tensor) -> Tensor: ...


State: TypeAlias = "tuple[Tensor, ...]"
"""The units of an equilibrium model, one tensor per layer; the first axis of each is the rows of the batch."""


@dataclass(frozen=True)
class Nudge:
    """How strongly each row is pulled towards its target: the energy gains ``beta * loss_scale * loss``.

    ``beta`` has one entry per row, real or complex. ``anchor`` is the free state, given when the sweep must subtract
    the antisymmetric part of its couplings, (J - J^T)(s - anchor).
    """

    beta: Tensor
    target: Tensor
    anchor: State | None = None


class Clamped(Protocol):
    """A batch clamped to the inputs of a model: what is computed once per batch (input drive, normalised weights)."""

    @property
    def x(self) -> Tensor: ...
    def repeat(self, phases: int) -> Self:
        """The same batch ``phases`` times over, so that several nudges relax as one batch."""


Batch = TypeVar("Batch", bound=Clamped)
"""The clamped batch of a model: its own class."""


@runtime_checkable
class EquilibriumModel(Protocol[Batch]):
    """What equilibrium propagation needs of a model: an energy, the sweep that lowers it, and the loss at rest.

    A model is also an ``nn.Module`` whose ``forward(x)`` gives the logits at the free fixed point. The fixed point of
    ``sweep`` must be a stationary point of ``energy + beta * loss_scale * loss`` (``symmetric``); ``audit_gradient``
    tells whether it is. ``networks.equilibrium.EquilibriumModule`` derives all but six of these from those six.
    """

    @property
    def classes(self) -> int: ...

    @property
    def loss_scale(self) -> float:
        """The weight of the loss in the energy (gamma^K for a layered net with weak feedback)."""

    @property
    def symmetric(self) -> bool:
        """False when feedback weights differ from forward weights: then no energy exists."""

    def clamp(self, x: Tensor) -> Batch:
        """The batch ready to relax; InputError for a wrong shape, an integer dtype or NaN."""

    def start(self, clamped: Batch) -> State:
        """The state before the first sweep, fresh storage."""

    def sweep(self, clamped: Batch, state: State, nudge: Nudge | None = None) -> State:
        """One sweep over all units, as a pure function: differentiable, and complex when the state is."""

    def relax(
        self, clamped: Batch, state: State | None, *, sweeps: int, tolerance: float | None = None,
        nudge: Nudge | None = None, trace: bool = False,
    ) -> Solution:
        """The same sweeps by the fastest kernel there is; may overwrite ``state``, and begins at ``start`` if None."""

    def deviate(
        self, clamped: Batch, free: State, nudge: Nudge, *, sweeps: int, tolerance: float | None = None, order: int = 2
    ) -> Solution:
        """How far the nudge moves the units away from ``free``, itself the unknown of the relaxation.

        The rows of the nudge are one or more phases of those of ``free``. A layer's deviation may be given in units of
        its own; residuals are relative to the size of a layer's deviation. ``order`` is how many orders of beta matter.
        """

    def tangent(
        self, clamped: Batch, state: State, target: Tensor, *, sweeps: int, tolerance: float | None = None
    ) -> Solution:
        """How the free fixed point ``state`` moves per unit of beta."""

    def energy(self, clamped: Batch, state: State) -> Tensor:
        """The energy of each row, without the loss."""

    def logits(self, state: State) -> Tensor:
        """The output read from a state."""

    def row_losses(self, logits: Tensor, target: Tensor) -> Tensor:
        """The loss of each row given its output; ``target`` holds class indices."""

    def check_target(self, target: Tensor, *, rows: int) -> None:
        """Nothing, or an InputError if ``target`` is not what the loss compares with."""

    def add_energy_gradient(self, clamped: Batch, state: State, weights: Tensor) -> None:
        """Add to ``.grad`` the sum over rows of ``weights`` times the derivative of the row's energy (real part)."""

    def add_deviation_gradient(
        self, clamped: Batch, free: State, deviation: State, coefficients: Sequence[complex], *, order: int = 2
    ) -> None:
        """Add to ``.grad`` each phase's coefficient times the change of dE/dtheta, summed over rows, over loss_scale.

        ``deviation`` is what ``deviate`` found; the change is computed as a sum of small terms, never as a difference.
        """

    def add_tangent_gradient(self, clamped: Batch, state: State, direction: State, weight: float) -> None:
        """Add to ``.grad`` ``weight`` times d/dtheta <dE/ds, direction>, the change of dE/dtheta as the state moves so.

        A model without an energy puts minus its vector field in the place of dE/ds.
        """

    def add_readout_gradient(self, state: State, target: Tensor) -> Tensor:
        """Add the exact gradient of parameters that only read the free state; the detached mean loss there."""


@dataclass(frozen=True)
class Split:
    """Inputs and targets of one part of a task: class indices, or floats (rows, columns) of a regression."""

    x: Tensor
    y: Tensor

    def __len__(self) -> int:
        return len(self.y)


@dataclass(frozen=True)
class Metric:
    """What a task is scored by: ``key`` in records, and how it is told (``factor`` times the number, in ``unit``)."""

    key: Literal["accuracy", "error"]
    name: str
    unit: str
    gap_unit: str
    factor: float
    higher_is_better: bool


ACCURACY = Metric("accuracy", "accuracy", "%", "pp", 100.0, higher_is_better=True)
ERROR = Metric("error", "root mean squared error", "target units", "target units", 1.0, higher_is_better=False)


class Task(Protocol):
    """Data with three parts and a fingerprint. Settings are chosen on ``validation``, never on ``test``."""

    @property
    def name(self) -> str: ...
    @property
    def classes(self) -> int: ...
    @property
    def train(self) -> Split: ...
    @property
    def validation(self) -> Split: ...
    @property
    def test(self) -> Split: ...
    @property
    def data_hash(self) -> str:
        """A digest of the data and of how it was split."""


@dataclass(frozen=True)
class Trial:
    """One cell of a track: an arm (``eqprop``, ``control: shuffled labels``), a seed and the settings."""

    arm: str
    seed: int
    budget: Budget = "quick"
    config: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Outcome:
    """What became of a trial: a record of JSON values, or a failure; ``cached`` if an earlier run had measured it."""

    trial: Trial
    record: Mapping[str, Any] | None
    failure: Failure | None = None
    seconds: float = 0.0
    cached: bool = False


@dataclass(frozen=True)
class Outcomes:
    """All outcomes of one track, in plan order."""

    all: tuple[Outcome, ...]

    def __iter__(self) -> Iterator[Outcome]:
        return iter(self.all)

    @property
    def failures(self) -> tuple[Failure, ...]:
        """Trials that raised, hung or were killed."""
        return tuple(outcome.failure for outcome in self.all if outcome.failure is not None)

    def arm(self, name: str) -> dict[int, Mapping[str, Any]]:
        """Records of an arm by seed, failed ones left out."""
        return {o.trial.seed: o.record for o in self.all if o.trial.arm == name and o.record is not None}

    def values(self, arm: str, key: str) -> tuple[float, ...]:
        """One number of each seed of an arm, in order of seed."""
        return tuple(float(record[key]) for _, record in sorted(self.arm(arm).items()))

    def with_control(self, control: ControlArm) -> Outcomes:
        """The outcomes as if the control arms had been measured in place of the arms they stand for.

        Of the other arms only the seeds are kept at which every one of the control arms finished.
        """
        swap = control.instead_of
        seeds = set.intersection(*(set(self.arm(arm)) for arm in control.arms))
        kept = [o for o in self.all if o.trial.arm not in swap and o.trial.seed in seeds]
        moved = [
            replace(o, trial=replace(o.trial, arm=claimed))
            for claimed, arm in swap.items()
            for o in self.all
            if o.trial.arm == arm and o.trial.seed in seeds
        ]
        return Outcomes((*moved, *kept))

    def paired(self, first: str, second: str, key: str) -> tuple[tuple[int, ...], tuple[float, ...], tuple[float, ...]]:
        """Seeds both arms finished, and the number of each arm at those seeds."""
        a, b = self.arm(first), self.arm(second)
        seeds = tuple(sorted(a.keys() & b.keys()))
        return seeds, tuple(float(a[s][key]) for s in seeds), tuple(float(b[s][key]) for s in seeds)


TrialRecord: TypeAlias = "Mapping[str, Any] | Frozen"
"""What a track measures of a trial: JSON values by name, or a frozen record of its own that is stored as such."""


class TrackBody(Protocol):
    """What a class under ``@track`` provides. ``measure`` returns numbers, ``decide`` a verdict; neither renders."""

    controls: Sequence[ControlArm]
    """The arms whose answer is known beforehand, by ``known_good`` and ``known_bad``; at least one of each.

    ``trials`` plans them, on three seeds where fewer decide nothing; ``decide`` need not know of them. They are judged
    by ``decide`` or, where the claim is about a check, by ``judge(outcomes)``, the part of ``decide`` that applies the
    check to the arm of the claim and returns something with a verdict and a reason.
    """

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        """The cells to run; seeds asked for later must add cells and change none."""

    def measure(self, trial: Trial) -> TrialRecord:
        """Numbers of one trial; runs in a worker process with one torch thread."""

    def decide(self, outcomes: Outcomes) -> Finding:
        """The verdict over all seeds; must cope with missing trials."""


@dataclass(frozen=True)
class Together:
    """How a cell may be computed with its siblings, the cells of the same ``family``, at most ``most`` in one call.

    ``target`` is ``module:function``; it maps a list of payloads to the list of their records. Each record must be,
    times apart, what the cell alone would return: whether cells are grouped is nobody's business but the scheduler's.
    """

    target: str
    family: str
    most: int = 10


@dataclass(frozen=True)
class Cell:
    """A piece of work the engine can run without knowing what it means.

    ``target`` is ``module:function``, called in a worker with ``payload``; it returns a JSON object. ``key`` is the
    content hash under which the result is stored; ``group`` names cells of one kind, whose times predict each other.
    """

    key: str
    target: str
    payload: Mapping[str, Any]
    label: str
    group: str
    timeout: float = 3600.0
    cpus: float = 1.0
    gpus: float = 0.0
    memory: int | None = None
    together: Together | None = None
    fresh: bool = False
    """Whether it must run in a process started for it alone, not in a child forked from a warm one."""

    def __post_init__(self) -> None:
        if not self.timeout > 0:  # a NaN would let it run for ever
            raise expected("a timeout > 0 (seconds)", given=f"timeout={self.timeout!r} of {self.label}")


@dataclass(frozen=True)
class CellResult:
    """What became of a cell: ``record`` on success, ``failure`` otherwise; ``cached`` if the store had it.

    ``together`` is the number of cells computed in the same call; ``seconds`` is this cell's share of its time.
    """

    cell: Cell
    record: Mapping[str, Any] | None
    failure: Failure | None
    seconds: float
    cached: bool = False
    together: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)
    """Versions, platform and machine of the process that computed it."""


@dataclass(frozen=True)
class CellEvent:
    """Something for a progress display to show."""

    kind: Literal["planned", "cached", "started", "done", "failed"]
    cell: Cell
    seconds: float = 0.0
    together: int = 1


class Executor(Protocol):
    """Runs cells somewhere and yields results in batches: those ready together, in any order, each cell exactly once.

    A batch is written to the store in one go, so that many short cells cost few waits for the disk.
    """

    def places(self) -> int:
        """How many cells run at once."""

    def run(self, cells: Iterable[Cell], *, notify: Callable[[CellEvent], None]) -> Iterator[Sequence[CellResult]]: ...


class Watcher(Protocol):
    """What a progress display listens to: rows (tracks, tasks) with their cells, events, and verdicts as they fall."""

    def planned(self, titles: Mapping[str, str], cells: Mapping[str, Sequence[Cell]]) -> None: ...
    def event(self, event: CellEvent) -> None: ...
    def decided(self, row: str, finding: Finding) -> None: ...
