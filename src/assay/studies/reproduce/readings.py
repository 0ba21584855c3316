"""The choices that the published recipe leaves open, each with the level used here and another a reader could take.

The source gives its architecture, optimiser and seeds, but not what the embedding learns from, how large the feedback
is, or where a block's signal comes from. A *reading* settles every one of them. Readings are tried by a two-level
design (Plackett and Burman 1946): sixteen runs judge fifteen choices, each effect from all sixteen; the mirrored
sixteen free the main effects from two-way interactions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from assay.errors import InputError, expected, unknown

RUNS = 16


@dataclass(frozen=True)
class Reading:
    """One way to read the recipe; the defaults are those of the main reproduction.

    >>> Reading().differences
    ()
    >>> Reading(schedule="constant").differences
    ('schedule: constant',)
    """

    embedding: str = "signal"
    """What the embedding learns from under a feedback rule: its own signal, or it is left untrained."""
    frozen_embedding: str = "gradient"
    """The same in the frozen-blocks baseline: the true gradient, or the signal of direct feedback."""
    cut: str = "every block"
    """Whether a block reads the stream cut off from its past, or block losses reach what lies below."""
    block_signal: str = "behind it"
    """Which signal a block learns from: that of the stream behind it, or in front of it."""
    length: str = "as it comes"
    """The signal of a sample as it comes, or scaled to unit length, so that samples already right count as much."""
    size: str = "1/width, mean"
    """Variance of the feedback and reduction over the batch: 1/width and mean, or 1 and sum."""
    distribution: str = "normal"
    """Feedback entries: normal or uniform."""
    schedule: str = "cosine"
    """Learning rate: cosine to 0 or constant."""
    optimiser: str = "AdamW"
    """Weight decay apart from the gradient (AdamW) or inside it (Adam)."""
    decay: str = "0.01"
    """Weight decay: 0.01 or 0."""
    clipping: str = "none"
    """Gradient clipping: none, or to norm 1."""
    norms: str = "learn"
    """Scale and shift of the layer norms: they learn, or are fixed."""
    write_init: str = "0.01"
    """Start of the write matrix: N(0, 0.01^2), or PyTorch's default."""
    pixels: str = "per channel"
    """Pixels normalised per channel, or left in [0, 1]."""
    augmentation: str = "crop and flip"
    """Crop and flip, or none."""

    @property
    def differences(self) -> tuple[str, ...]:
        """What differs from the default reading."""
        default = Reading()
        return tuple(
            f"{field.name}: {getattr(self, field.name)}"
            for field in fields(self)
            if getattr(self, field.name) != getattr(default, field.name)
        )

    def __str__(self) -> str:
        return "; ".join(self.differences).replace("_", " ") or "the reading of the main table"


OTHER = {
    "embedding": "untrained",
    "frozen_embedding": "signal",
    "cut": "nowhere",
    "block_signal": "in front",
    "length": "unit",
    "size": "1, sum",
    "distribution": "uniform",
    "schedule": "constant",
    "optimiser": "Adam",
    "decay": "0",
    "clipping": "1",
    "norms": "fixed",
    "write_init": "default",
    "pixels": "[0, 1]",
    "augmentation": "none",
}
"""The other level of every choice."""
CHOICES = tuple(OTHER)


def from_levels(levels: Sequence[bool]) -> Reading:
    """The reading that takes the other level where ``levels`` is True, in the order of CHOICES."""
    return replace(Reading(), **{name: OTHER[name] for name, other in zip(CHOICES, levels, strict=True) if other})


def levels_of(reading: Reading) -> tuple[bool, ...]:
    """Where a reading takes the other level."""
    default = Reading()
    return tuple(getattr(reading, name) != getattr(default, name) for name in CHOICES)


def effective(reading: Reading, arm: str) -> Reading:
    """The reading with every choice that cannot act on an arm put back: two readings that agree here train the same.

    Backprop has no feedback; frozen blocks have no signal, and their embedding has one only if the reading says so.

    >>> effective(Reading(length="unit", decay="0"), "bp").differences
    ('decay: 0',)
    """
    feedback = ("embedding", "frozen_embedding", "cut", "block_signal", "length", "size", "distribution")
    idle = {"bp": feedback, "frozen": ("cut", "block_signal")}.get(arm, ("frozen_embedding",))
    if arm == "frozen" and (reading.frozen_embedding == "gradient" or reading.embedding == "untrained"):
        idle = (*idle, "length", "size", "distribution")
    default = Reading()
    return replace(reading, **{name: getattr(default, name) for name in idle})


def acts_on(reading: Reading, arm: str) -> bool:
    """Whether an arm is trained otherwise under this reading than under the default one.

    >>> [acts_on(Reading(length="unit"), arm) for arm in ("dfa", "fa", "frozen", "bp")]
    [True, True, False, False]
    """
    return effective(reading, arm) != Reading()


def parse_reading(text: str) -> Reading:
    """A reading as it is written on the page: ``length: unit; decay: 0``.

    >>> str(parse_reading("length: unit; frozen embedding: signal"))
    'frozen embedding: signal; length: unit'
    """
    levels = {}
    for part in filter(None, (piece.strip() for piece in text.split(";"))):
        name, _, level = (word.strip() for word in part.partition(":"))
        known = name.replace(" ", "_")
        if known not in OTHER:
            raise InputError(unknown("choice", name, [choice.replace("_", " ") for choice in CHOICES]))
        if level not in (OTHER[known], getattr(Reading(), known)):
            raise expected(f"'{getattr(Reading(), known)}' or '{OTHER[known]}' for {name}", given=level)
        levels[known] = level
    return replace(Reading(), **levels)


def design(*, mirrored: bool = False) -> tuple[Reading, ...]:
    """Sixteen readings in which every choice takes each level eight times and any two choices are balanced.

    The first is the default reading. ``mirrored`` gives the sixteen opposite ones.

    >>> rows = [levels_of(reading) for reading in design()]
    >>> {sum(column) for column in zip(*rows)}
    {8}
    """
    # Sylvester's Hadamard matrix: entry (row, column) is the parity of row AND column.
    rows = ([(row & column).bit_count() % 2 == 1 for column in range(1, RUNS)] for row in range(RUNS))
    return tuple(from_levels([level != mirrored for level in row]) for row in rows)
