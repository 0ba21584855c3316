"""The next character of English prose from the eight before it, by EP and by backprop on one network.

The text is what scikit-learn says about its data sets, which every installation has; letters are folded to lower case
and everything but letters, space, comma, full stop and newline becomes one sign. Score: bits per character on the
last tenth, which neither arm trains on. Floors: the frequencies of single characters and of pairs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache
from statistics import fmean
from typing import TYPE_CHECKING, Any, ClassVar

from assay import stats
from assay.protocols import Budget, ControlArm, Outcomes, Split, Trial, known_bad, known_good
from assay.registry import track
from assay.results import Finding, Reference
from assay.stats import Decision
from assay.tracks.shared import findings, recipe
from assay.tracks.shared.records import Record, paired, values_by_arm

if TYPE_CHECKING:
    from assay.tasks import ArrayTask

EQPROP, BACKPROP = "eqprop", "backprop"
TWIN, FROZEN = "control: backprop in another order", "control: frozen body"
SIGNS = "abcdefghijklmnopqrstuvwxyz ,.\n#"
CONTEXT, HIDDEN, TRAIN, TEST = 8, 128, 12_000, 3_000
EPOCHS, RATE, MARGIN = 2, 2e-3, 0.05


class Text(Record):
    """Bits per character on unseen text, and what counting alone reaches."""

    bits: float
    single: float
    pairs: float
    accuracy: float


CLAIM = "EP models characters as well as backprop on the same network: bits per character within 0.05."


@track(37, "characters", claim=CLAIM, title="Character language model", on_request=True)
class Characters:
    """One network of eight characters of context under both rules."""

    controls: ClassVar[tuple[ControlArm, ...]] = (known_good(TWIN, EQPROP), known_bad(FROZEN, EQPROP))

    def trials(self, budget: Budget, seeds: Sequence[int]) -> Iterable[Trial]:
        return findings.arms_and_controls((EQPROP, BACKPROP), self.controls, budget, seeds)

    def measure(self, trial: Trial) -> Text:
        """Bits per character of the trained network on the end of the text."""
        import math

        from assay.rules import Backprop

        task = prose(trial.seed)
        energy = recipe.network(trial.seed, widths=(CONTEXT * len(SIGNS), HIDDEN, HIDDEN, len(SIGNS)))
        model: Any = energy if trial.arm == EQPROP else energy.feedforward()
        if trial.arm == FROZEN:
            for parameter in list(model.parameters())[:-2]:
                parameter.requires_grad_(False)
        rule: Any = recipe.resting() if trial.arm == EQPROP else Backprop()
        result = recipe.learn(model, task, rule, trial, epochs=EPOCHS, rate=RATE, noise=0.0,
                              order=10_000 if trial.arm == TWIN else 0)
        single, pairs = _counted(task)
        return Text(bits=result.test_loss / math.log(2), single=single, pairs=pairs,
                    accuracy=100 * result.test_accuracy)  # fmt: skip

    def judge(self, outcomes: Outcomes) -> Decision:
        """The difference in bits, seed by seed."""
        pairs = paired(outcomes, EQPROP, BACKPROP, Text)
        return stats.parity(*pairs.of(lambda record: record.bits), margin=MARGIN, seeds=pairs.seeds, unit="bits",
                            name="bits per character, EP minus backprop")

    def decide(self, outcomes: Outcomes) -> Finding:
        """PASS if the interval of the difference lies within 0.05 bits."""
        pairs = paired(outcomes, EQPROP, BACKPROP, Text)
        if not pairs.seeds:
            return findings.unfinished(CLAIM)
        ours, theirs = pairs.of(lambda record: record.bits)
        floor, pair = fmean(r.single for r in pairs.first), fmean(r.pairs for r in pairs.first)
        values = values_by_arm(outcomes, (EQPROP, BACKPROP, TWIN, FROZEN), Text, lambda record: record.bits)
        return findings.concluded(
            self.judge(outcomes),
            claim=CLAIM,
            subject=f"EnergyMLP {CONTEXT * len(SIGNS)}-128-128-{len(SIGNS)}, gamma 0.25, {TRAIN:,} characters of prose",
            told=f"EP {fmean(ours):.3f} bits per character, backprop {fmean(theirs):.3f}; counting single characters "
            f"{floor:.2f}, pairs {pair:.2f}.",
            figure=findings.by_arm(values, key="bits-by-arm", question="Who predicts the next character better?",
                                   label="bits per character, unseen text",
                                   references=(Reference(value=floor, label="single"),
                                               Reference(value=pair, label="pairs"))),
            tables=(findings.seed_table("Bits per character by seed", pairs.seeds, {"EP": ours, "backprop": theirs}),),
            numbers=findings.summaries({EQPROP: ours, BACKPROP: theirs}, "bits", name="bits per character"),
            checks=(findings.aside("EP beats single characters", max(ours) < floor, f"{max(ours):.3f} against "
                f"{floor:.3f}"),
                    findings.aside("EP beats pairs", max(ours) < pair, f"{max(ours):.3f} against {pair:.3f}")),
            limits=("A window of eight characters and a small text: nothing is said of long contexts or large models.",
                    "The text comes with scikit-learn: another version of it is another text."),
        )  # fmt: skip


def prose(seed: int) -> ArrayTask:
    """Windows of text as one-hot inputs: 12,000 for training drawn by the seed, the end of the text for testing."""
    import torch

    from assay.seeding import torch_generator
    from assay.tasks.base import from_splits

    signs = _signs()
    windows = signs.unfold(0, CONTEXT + 1, 1)
    border = len(windows) - TEST
    known = torch.randperm(border - CONTEXT, generator=torch_generator(seed, "prose"))[: TRAIN + TEST]
    parts = (windows[known[:TRAIN]], windows[known[TRAIN:]], windows[border:])
    hot = torch.eye(len(SIGNS))
    return from_splits("prose", len(SIGNS), [Split(hot[p[:, :-1]].flatten(1), p[:, -1].contiguous()) for p in parts],
                       seed=seed)


@lru_cache(maxsize=1)
def _signs() -> Any:
    from importlib import resources

    import torch

    folder = resources.files("sklearn.datasets.descr")
    names = sorted(entry.name for entry in folder.iterdir() if entry.name.endswith(".rst"))
    text = "\n".join(folder.joinpath(name).read_text(encoding="utf-8") for name in names).lower()
    return torch.tensor([SIGNS.find(letter) if letter in SIGNS else len(SIGNS) - 1 for letter in text])


def _counted(task: ArrayTask) -> tuple[float, float]:
    """Bits per character of counting single characters, and of counting pairs; one count is added to each."""
    import torch

    size = len(SIGNS)
    last, target = task.train.x[:, -size:].argmax(1), task.train.y
    pairs = torch.ones(size, size).index_put_((last, target), torch.ones(len(target)), accumulate=True)
    single = pairs.sum(0) / pairs.sum()
    chained = pairs / pairs.sum(1, keepdim=True)
    previous, truth = task.test.x[:, -size:].argmax(1), task.test.y
    return float(-single[truth].log2().mean()), float(-chained[previous, truth].log2().mean())
