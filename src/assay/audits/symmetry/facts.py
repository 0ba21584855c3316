"""Everything an audit measured, before anything is decided."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor

from assay.audits.symmetry.layout import Coupling
from assay.audits.symmetry.locate.isolate import Isolated
from assay.audits.symmetry.locate.localise import Location
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
    acts: bool = True

    @property
    def broken(self) -> bool:
        """This test found a break."""
        return self.judgement.label == "BROKEN"


@dataclass
class Facts:
    """The record of an audit; stages add to it in order."""

    subject: Subject
    options: Options
    name: str
    guards: list[Check] = field(default_factory=list)
    stopped: str = ""
    """Why nothing more was tested, if a guard made the rest meaningless."""
    stochastic: float = 0.0
    coupling: Coupling | None = None
    sensitivity: Sensitivity | None = None
    spreads: dict[int, float] = field(default_factory=dict)
    tests: list[Test] = field(default_factory=list)
    special: list[Test] = field(default_factory=list)
    angles: tuple[Tensor, list[Errors]] | None = None
    adversary: list[Test] = field(default_factory=list)
    sizes: list[tuple[int, Retest]] = field(default_factory=list)
    alternatives: dict[str, list[Alternative]] = field(default_factory=dict)
    locations: dict[str, Location] = field(default_factory=dict)
    isolated: dict[str, list[Isolated]] = field(default_factory=dict)
    gradients: list[GradientTest] = field(default_factory=list)
    differences: list[DifferenceTest] = field(default_factory=list)
    wrong_backwards: tuple[str, ...] = ()
    """Modules whose backward pass is not the derivative of their forward pass."""
    untested: dict[str, str] = field(default_factory=dict)
    """Parts that could not be run, with the reason; never a pass."""
    retests: list[Retest] = field(default_factory=list)

    @property
    def wrong_backward(self) -> str:
        """The first such module, "" if none was found, "(model)" for the model's own code."""
        return (self.wrong_backwards[0] or "(model)") if self.wrong_backwards else ""

    @property
    def broken(self) -> list[Test]:
        """End-to-end tests that found a break, generators before special elements."""
        return [test for test in [*self.tests, *self.special, *self.adversary] if test.broken]

    @property
    def broken_generators(self) -> list[str]:
        """Names of the generators under which some output breaks, without the mixture of all of them."""
        names = list(dict.fromkeys(test.generator for test in self.tests if test.broken and test.acts))
        single = [name for name in names if name != EVERYTHING]
        return single or names


EVERYTHING = "all together"
"""The name under which random elements of the whole group are reported."""
