"""What an audit says about a planted model, compared with what is known about it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

from assay import symmetry as sym
from assay.results import Finding, Verdict
from planted_symmetry.plant import Family, Planted
from planted_symmetry.truth import Truth, measure

Near = Literal["exact", "parent", "block", "wrong", "none"]
HIDDEN_PARTS = ("gradients", "differences", "jitter", "train-mode", "training", "sizes", "special")
"""Left out for defects that the output shows: none of them can unsay a break of the output."""
GENERIC = ("Symmetry broken",)


@dataclass(frozen=True)
class Score:
    """How an audit of one planted model did."""

    name: str
    family: str
    operator: str
    kind: str
    magnitude: float
    place: str
    truth: Truth
    caught: bool
    named: str
    near: Near
    generators: frozenset[str]
    title: str
    cause: Literal["right", "unspecific", "wrong"]
    seconds: float

    @property
    def counts(self) -> bool:
        """Float64 says the output is broken beyond ten times the floor; hidden defects always count."""
        return self.kind != "forward" or bool(self.truth.broken)

    @property
    def attributed(self) -> bool:
        """Exactly the generators that float64 says are broken were reported; near the floor either answer is right."""
        return self.truth.broken <= self.generators <= (self.truth.broken | self.truth.marginal)


def audit(planted: Planted, *, seed: int = 0, inputs: int = 16, transforms: int = 20) -> Finding:
    """The audit of a planted model; a defect of the output needs no gradient tests."""
    skip = HIDDEN_PARTS if planted.operator.kind == "forward" else ("sizes",)
    family = planted.family
    return sym.audit_symmetry(
        planted.model, family.sample, family.symmetry, seed=seed, inputs=inputs, transforms=transforms, skip=skip
    )


def score(planted: Planted, finding: Finding, truth: Truth | None = None) -> Score:
    """Compares a finding with the truth."""
    kind, operator = planted.operator.kind, planted.operator
    truth = truth or measure(planted.model, planted.family)
    if kind == "forward":
        caught = finding.verdict is Verdict.FAIL
        issue = finding.issues[0] if finding.issues else None
    else:
        wanted = [issue for issue in finding.issues if issue.title in operator.causes]
        issue = wanted[0] if wanted else (finding.issues[0] if finding.issues else None)
        caught = bool(finding.issues) and finding.verdict in (Verdict.FAIL, Verdict.PARTIAL)
    named = module_of(issue.location) if issue is not None else ""
    title = issue.title if issue is not None else ""
    cause = "right" if title in operator.causes else "unspecific" if title in GENERIC else "wrong"
    return Score(
        planted.name, planted.family.name, operator.name, kind, planted.magnitude, planted.place, truth, caught, named,
        nearness(named, planted.place) if issue is not None else "none", broken_generators(finding), title, cause,
        finding.seconds or 0.0,
    )  # fmt: skip


def module_of(location: str) -> str:
    """The module a location speaks of: 'blocks.1 (its own code, ...)' -> 'blocks.1', '(model) (...)' -> ''."""
    name = location.split(" ")[0]
    return "" if name.startswith("(") else name


def nearness(named: str, place: str) -> Near:
    """exact: the module itself (or the wrapper's own output); parent: the module that holds it; block: its block."""
    if named == place:
        return "exact"
    parent = place.rpartition(".")[0]
    if named == parent:
        return "parent"
    return "block" if named.split(".")[:2] == place.split(".")[:2] else "wrong"


def broken_generators(finding: Finding) -> frozenset[str]:
    """Generators with a broken end-to-end test."""
    broken = [check.name for check in finding.checks if check.label == "BROKEN" and ": " in check.name]
    names = {name.split(": ")[0] for name in broken if not name.startswith(("finite differences", "special"))}
    return frozenset(names - {"all together"})


def clean_audit(model: nn.Module, family: Family, seed: int) -> Finding:
    """The full audit, nothing left out."""
    return sym.audit_symmetry(model, family.sample, family.symmetry, seed=seed, inputs=24, transforms=16)
