"""Chains of a hundred random layers, each normalised to spectral norm 1: what is left of the difference of two inputs?

The claim is that an activation between the layers regenerates the signal that a linear chain loses. A 1-Lipschitz
activation cannot: no layer of norm at most 1 followed by tanh or ReLU moves two inputs apart. What biases keep alive
is activity that is the same for every input, and carries nothing of it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from statistics import fmean
from typing import ClassVar

from assay import stats
from assay.protocols import Budget, ControlArm, Outcomes, Trial, known_bad, known_good
from assay.registry import track
from assay.results import Figure, Finding, Reference, Series
from assay.stats import Decision
from assay.tracks.shared import findings
from assay.tracks.shared.records import Record, recorded

TANH, RELU, LINEAR = "tanh", "relu", "linear"
ORTHOGONAL, SHRUNK = "control: orthogonal, linear", "control: norm 0.5, tanh"
CHAINS = (TANH, RELU, LINEAR, ORTHOGONAL, SHRUNK)
DEPTH, WIDTH, ROWS = 100, 64, 64
KEPT = 0.1
"""The share of the difference of two inputs that must arrive at the last layer."""


class Signal(Record):
    """The share of the difference between inputs left after each layer."""

    shares: tuple[float, ...]


CLAIM = (
    "With an activation between layers of spectral norm 1, a tenth of the signal crosses 100 layers; linear "
    "chains lose it."
)


@track(
    55,
    "deep-chains",
    claim=CLAIM,
    title="Signal through deep chains",
    also=(56,),
    kind="deterministic",
    on_request=True,
)
class DeepChains:
    """Random chains under spectral normalisation, with and without activations."""

    controls: ClassVar[tuple[ControlArm, ...]] = (known_good(ORTHOGONAL, TANH), known_bad(SHRUNK, TANH))

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        return [Trial(arm, seed, budget) for seed in seeds for arm in CHAINS]

    def measure(self, trial: Trial) -> Signal:
        """Send pairs of inputs through a chain and see how far apart they still are."""
        import torch

        from assay.seeding import torch_generator

        generator = torch_generator(trial.seed, "chain")
        a, b = torch.randn(2, ROWS, WIDTH, generator=generator, dtype=torch.float64)
        first = (a - b).norm(dim=1)
        act = {TANH: torch.tanh, RELU: torch.relu, SHRUNK: torch.tanh}.get(trial.arm)
        shares = []
        for _ in range(DEPTH):
            weight = torch.randn(WIDTH, WIDTH, generator=generator, dtype=torch.float64)
            if trial.arm == ORTHOGONAL:
                weight = torch.linalg.qr(weight).Q
            weight = weight / torch.linalg.matrix_norm(weight, ord=2) * (0.5 if trial.arm == SHRUNK else 1.0)
            bias = 0.1 * torch.randn(WIDTH, generator=generator, dtype=torch.float64)
            a, b = (side @ weight.t() + bias for side in (a, b))
            a, b = (a, b) if act is None else (act(a), act(b))
            shares.append(float(((a - b).norm(dim=1) / first).mean()))
        return Signal(shares=tuple(shares))

    def judge(self, outcomes: Outcomes) -> Decision:
        """What the chain with activations loses of the signal, at its worst seed."""
        lost = {f"seed {seed}": 1 - record.shares[-1] for seed, record in recorded(outcomes, TANH, Signal).items()}
        return stats.numeric_match(list(lost.values()), 1 - KEPT, magnitude=1.0, labels=list(lost),
                                   name=f"share of the signal lost in {DEPTH} layers")

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if a tenth of the difference of two inputs arrives at every seed."""
        found = {arm: recorded(outcomes, arm, Signal) for arm in CHAINS}
        if not found[TANH]:
            return findings.unfinished(CLAIM)
        last = {arm: [r.shares[-1] for r in records.values()] for arm, records in found.items() if records}
        one = min(found[TANH])
        series = tuple(
            Series(name=arm, x=tuple(float(i + 1) for i in range(DEPTH)), y=records[one].shares)
            for arm, records in found.items() if one in records
        )  # fmt: skip
        return findings.concluded(
            self.judge(outcomes),
            claim=CLAIM,
            subject=f"{DEPTH} random layers of width {WIDTH}, spectral norm 1, biases of size 0.1",
            told="Share of the signal that arrives: "
            + ", ".join(f"{arm} {fmean(values):.2g}" for arm, values in last.items())
            + ". Spectral norm 1 bounds the largest direction; all others shrink at every layer, with or without tanh.",
            figure=Figure(key="signal-by-layer", question="Does an activation keep the signal alive?", x_label="layer",
                          y_label="share of the difference left", y_scale="log", series=series,
                          references=(Reference(value=KEPT, label="claimed"),)),
            limits=("Untrained random chains, as in the original; a trained network can widen what it needs.",),
            varied=("weights", "inputs", "float64"),
        )  # fmt: skip
