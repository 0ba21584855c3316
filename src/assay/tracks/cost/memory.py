"""Peak memory of one gradient: EP, which keeps two states, against *ordinary* backprop, which keeps one forward pass.

Flat in the number of sweeps is true (``audit_memory``) and is a comparison with backprop through the sweeps, which
nobody would use for a feed-forward task. What a user saves is measured against the backprop they would run: the same
widths, the same batch, no loop. Every tensor alive is counted at every operation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, ClassVar

from assay import stats
from assay.protocols import Budget, ControlArm, Outcomes, Trial, known_bad, known_good
from assay.registry import track
from assay.results import Figure, Finding, Series
from assay.stats import Decision
from assay.tracks.shared import findings, recipe
from assay.tracks.shared.records import Record, recorded

EQPROP, BACKPROP = "eqprop", "backprop"
LEAN, UNROLLED = "control: half the batch", "control: backprop through 30 sweeps"
DEPTHS, WIDTH, BATCH = (1, 2, 4, 8, 16), 128, 512
LIMIT = 1.0


class Peaks(Record):
    """Peak bytes of one gradient by number of hidden layers, gradients of the parameters included."""

    bytes_by_depth: dict[int, int]
    residual: float = 0.0


CLAIM = "A gradient by EP needs no more memory than one by ordinary backprop of the same network, at 1 to 16 layers."


@track(
    26,
    "memory-against-backprop",
    claim=CLAIM,
    title="Memory against ordinary backprop",
    also=(35,),
    kind="deterministic",
    on_request=True,
)
class MemoryAgainstBackprop:
    """Peaks by depth of both rules; networks of equal widths on equal batches."""

    controls: ClassVar[tuple[ControlArm, ...]] = (known_good(LEAN, EQPROP), known_bad(UNROLLED, EQPROP))

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        few = seeds[:3]  # storage does not depend on the seed: more would say the same again
        return [Trial(arm, seed, budget) for seed in few for arm in (EQPROP, BACKPROP, LEAN, UNROLLED)]

    def measure(self, trial: Trial) -> Peaks:
        """The peak of one gradient at every depth."""
        import torch

        from assay.probe.memory import measure_peak
        from assay.rules import Backprop
        from assay.seeding import torch_generator

        rows = BATCH // 2 if trial.arm == LEAN else BATCH
        generator = torch_generator(trial.seed, "memory")
        x, y = torch.rand(rows, 64, generator=generator), torch.randint(10, (rows,), generator=generator)
        peaks, residual = {}, 0.0
        for depth in DEPTHS:
            energy = recipe.network(trial.seed, widths=(64, *[WIDTH] * depth, 10))
            plain = trial.arm in (BACKPROP, LEAN)
            rule: Any = Backprop() if plain else recipe.resting(
                **({"nudge": "bptt", "sweeps": (30, 1), "tolerance": None} if trial.arm == UNROLLED else {}))
            model: Any = energy.feedforward() if plain else energy
            peaks[depth] = measure_peak(partial(rule.backward, model, x, y)).bytes
            residual = max(residual, 0.0 if plain else float(rule.last.residual))
        return Peaks(bytes_by_depth=peaks, residual=residual)

    def judge(self, outcomes: Outcomes) -> Decision:
        """The largest ratio of EP's peak to backprop's at any depth."""
        ours, theirs = (recorded(outcomes, arm, Peaks) for arm in (EQPROP, BACKPROP))
        ratios = {
            f"{depth} layers, seed {seed}": ours[seed].bytes_by_depth[depth] / theirs[seed].bytes_by_depth[depth]
            for seed in ours if seed in theirs for depth in DEPTHS
        }  # fmt: skip
        return stats.numeric_match(list(ratios.values()), LIMIT, labels=list(ratios), name="peak of EP over backprop's")

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if EP's peak is no larger at any depth."""
        found = {arm: recorded(outcomes, arm, Peaks) for arm in (EQPROP, BACKPROP, UNROLLED)}
        if not found[EQPROP] or not found[BACKPROP]:
            return findings.unfinished(CLAIM)
        seed = min(found[EQPROP])
        kilobytes = {arm: [records[seed].bytes_by_depth[d] / 1024 for d in DEPTHS]
                     for arm, records in found.items() if seed in records}  # fmt: skip
        ratio = [a / b for a, b in zip(kilobytes[EQPROP], kilobytes[BACKPROP], strict=True)]
        series = tuple(Series(name=arm, x=tuple(map(float, DEPTHS)), y=tuple(v)) for arm, v in kilobytes.items())
        return findings.concluded(
            self.judge(outcomes),
            claim=CLAIM,
            subject=f"EnergyMLP of 1 to 16 hidden layers of {WIDTH}, batch {BATCH}, float32",
            told=f"EP needs {min(ratio):.2f} to {max(ratio):.2f} times the memory of ordinary backprop and grows "
            "with depth as it does; it is backprop through the sweeps that EP undercuts.",
            figure=Figure(key="memory-by-depth", question="Does EP save memory against ordinary backprop?",
                          x_label="hidden layers", x_scale="log", y_label="peak of one gradient (kB)", y_scale="log",
                          series=series),
            limits=("Tensor storage beyond parameters and inputs; what an analogue device keeps is not counted.",
                    "Storage does not depend on the seed: three are run whatever the budget."),
            varied=("depth", "initialisation"),
        )  # fmt: skip
