"""Everything an audit measured, before anything is decided."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torch import Tensor

from assay.audits.symmetry.layout import Coupling
from assay.audits.symmetry.locate.isolate import Isolated
from assay.audits.symmetry.locate.localise import Location
from assay.audits.symmetry.locate.peel import Peel
from assay.audits.symmetry.locate.probing import Fits
from assay.audits.symmetry.measure.differences import DifferenceTest
from assay.audits.symmetry.measure.endtoend import Errors
from assay.audits.symmetry.measure.gradients import GradientTest
from assay.audits.symmetry.measure.guards import Sensitivity
from assay.audits.symmetry.measure.robustness import Retest
from assay.audits.symmetry.measure.search import Alternative
from assay.audits.symmetry.measure.statistics import count_needed
from assay.audits.symmetry.measure.tolerance import Judgement
from assay.audits.symmetry.subject import Subject
from assay.errors import InputError, unknown
from assay.results import Check

RARE = 0.05
"""What shows in this share of inputs or of elements is met with 95 %, by default."""

PARTS = (
    "sensitivity",
    "sizes",
    "special",
    "search",
    "localise",
    "modules",
    "gradients",
    "differences",
    "jitter",
    "train-mode",
    "training",
)
"""Parts of an audit that can be switched off; what is off is UNTESTED."""


@dataclass(frozen=True)
class Options:
    """How much is tested."""

    seed: int = 0
    budget: float | None = None
    inputs: int = count_needed(RARE)
    transforms: int = count_needed(RARE)
    skip: frozenset[str] = frozenset()
    training_steps: int = 5
    adversarial: int = 0
    first_only: bool = False
    """Stop at the first generator that breaks: what an assertion needs."""

    def __post_init__(self) -> None:
        for name in self.skip:
            if name not in PARTS:
                raise InputError(unknown("part of an audit", name, PARTS))
        if self.inputs < 1 or self.transforms < 1 or self.training_steps < 0 or self.adversarial < 0:
            raise InputError(
                "expected inputs and transforms of at least 1, training_steps and adversarial of at least 0; given "
                f"{self.inputs}, {self.transforms}, {self.training_steps}, {self.adversarial}"
            )
        if self.budget is not None and not 0 < self.budget < 1:
            raise InputError(f"expected 0 < budget < 1 (a relative error) or None; given {self.budget}")

    @staticmethod
    def counts(rare: float, inputs: int | None, transforms: int | None) -> tuple[int, int]:
        """Inputs and elements: as given, else as many as meet a defect of the rate ``rare`` with 95 %."""
        if not 0 < rare < 1:
            raise InputError(f"expected 0 < rare < 1 (a share of inputs and of elements); given {rare}")
        needed = count_needed(rare)
        return needed if inputs is None else inputs, needed if transforms is None else transforms

    def on(self, part: str) -> bool:
        """Whether a part is to be run."""
        return part not in self.skip


@dataclass(frozen=True)
class Test:
    """One output under one generator, end to end."""

    __test__ = False
    generator: str
    errors: Errors
    judgement: Judgement
    moves: tuple[str, ...] = ()
    """Inputs that the elements change."""
    acts: bool = True
    """The output reacts to one of them; otherwise nothing was tested."""

    @property
    def broken(self) -> bool:
        """This test found a break."""
        return self.judgement.label == "BROKEN"


@dataclass(frozen=True)
class Guards:
    """What was found out before anything was tested."""

    checks: tuple[Check, ...] = ()
    stopped: str = ""
    """Why nothing more was tested, if a guard made the rest meaningless."""
    stochastic: float = 0.0
    remembers: float = 0.0
    """How far an output moves when another input was run before."""
    coupling: Coupling | None = None
    sensitivity: Sensitivity | None = None
    spreads: Mapping[int, float] = field(default_factory=dict)
    untested: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Forward:
    """The end-to-end tests."""

    tests: tuple[Test, ...] = ()
    special: tuple[Test, ...] = ()
    angles: tuple[Tensor, list[Errors]] | None = None
    adversary: tuple[Test, ...] = ()
    sizes: tuple[tuple[int, Retest], ...] = ()
    untested: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Places:
    """Where it breaks, and declarations under which it would not."""

    alternatives: Mapping[str, list[Alternative]] = field(default_factory=dict)
    locations: Mapping[str, Location] = field(default_factory=dict)
    isolated: Mapping[str, list[Isolated]] = field(default_factory=dict)
    peeled: Mapping[str, list[Peel]] = field(default_factory=dict)
    """Per generator the guilty modules in order, each with its share of the error."""
    fits: Mapping[str, Fits] = field(default_factory=dict)
    """What the first guilty module does at chosen elements."""
    untested: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Backward:
    """The three gradient tests."""

    gradients: tuple[GradientTest, ...] = ()
    differences: tuple[DifferenceTest, ...] = ()
    wrong_backwards: tuple[str, ...] = ()
    """Modules whose backward pass is not the derivative of their forward pass."""
    untested: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Again:
    """The end-to-end test under other conditions."""

    retests: tuple[Retest, ...] = ()
    untested: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Facts:
    """Everything an audit measured: one frozen part per stage, each made from those before it."""

    subject: Subject
    options: Options
    name: str
    guards: Guards = Guards()
    forward: Forward = Forward()
    places: Places = Places()
    backward: Backward = Backward()
    again: Again = Again()

    @property
    def untested(self) -> dict[str, str]:
        """Parts that could not be run, with the reason; never a pass."""
        parts = (self.guards, self.forward, self.places, self.backward, self.again)
        return {name: why for part in parts for name, why in part.untested.items()}

    @property
    def tests(self) -> tuple[Test, ...]:
        """Every output under every generator and under all of them together."""
        return self.forward.tests

    @property
    def special(self) -> tuple[Test, ...]:
        """Every output at the identity and at other special elements."""
        return self.forward.special

    @property
    def wrong_backward(self) -> str:
        """The first module with a wrong backward pass, "" if none was found, "(model)" for the model's own code."""
        wrong = self.backward.wrong_backwards
        return (wrong[0] or "(model)") if wrong else ""

    @property
    def broken(self) -> list[Test]:
        """End-to-end tests that found a break, generators before special elements."""
        return [test for test in [*self.tests, *self.special, *self.forward.adversary] if test.broken]

    @property
    def broken_generators(self) -> list[str]:
        """Names of the generators under which some output breaks, without the mixture of all of them."""
        names = list(dict.fromkeys(test.generator for test in self.tests if test.broken and test.acts))
        single = [name for name in names if name != EVERYTHING]
        return single or names


EVERYTHING = "all together"
"""The name under which random elements of the whole group are reported."""
