"""Which test items each arm got right, seed by seed: what an inference over seeds *and* items needs.

A cell keeps the answers packed, one bit an item. Where the seed also draws the test set, it keeps the identity of the
items beside them, so that an item seen by two seeds is known to be one item.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.errors import expected

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Answers:
    """Paired differences of correctness: ``differences[k][i]`` is 1, 0 or -1 for item ``items[k][i]`` of ``seeds[k]``.

    1 means that only the first arm got the item right, -1 only the second.
    """

    seeds: tuple[int, ...]
    differences: tuple[Array, ...]
    items: tuple[Array, ...]

    @property
    def distinct(self) -> int:
        """How many different items were seen by any seed."""
        import numpy as np

        return len(np.unique(np.concatenate(self.items))) if self.items else 0


def paired_answers(
    first: Mapping[int, Sequence[bool]],
    second: Mapping[int, Sequence[bool]],
    *,
    items: Mapping[int, Sequence[int]] | None = None,
) -> Answers:
    """The answers of two arms at the seeds both finished; InputError where they did not answer the same items.

    ``items`` names the items of each seed; without it every seed answered the same ones, in the same order.

    >>> both = paired_answers({1: [True, True], 2: [True, False]}, {1: [True, False], 2: [True, False]})
    >>> both.differences[0].tolist()
    [0, 1]
    """
    import numpy as np

    seeds = tuple(sorted(first.keys() & second.keys()))
    if not seeds:
        raise expected("at least one seed that both arms finished", given="none")
    named = {seed: np.asarray((items or {}).get(seed, range(len(first[seed])))) for seed in seeds}
    counts = sorted({len(row) for arm in (first, second) for row in (arm[seed] for seed in seeds)})
    if items is None and (len(counts) != 1 or counts[0] < 2):
        raise expected("the same test items in every arm and seed, at least two", given=f"{counts} items")
    for seed in seeds:
        if not len(first[seed]) == len(second[seed]) == len(named[seed]) >= 2:
            given = f"{len(first[seed])} and {len(second[seed])} answers to {len(named[seed])} items at seed {seed}"
            raise expected("the same test items in both arms, at least two", given=given)
        if len(np.unique(named[seed])) != len(named[seed]):
            raise expected("every item once per seed", given=f"an item twice at seed {seed}")
    gaps = (np.asarray(first[s], dtype=np.int8) - np.asarray(second[s], dtype=np.int8) for s in seeds)
    return Answers(seeds, tuple(gaps), tuple(named[seed] for seed in seeds))


def recorded_answers(first: Mapping[int, Mapping[str, Any]], second: Mapping[int, Mapping[str, Any]]) -> Answers | None:
    """The answers of two arms from their records, as ``assay.learning.answers.answered`` writes them.

    None where a record has none, or where the seeds had different test sets whose items are not named.
    """
    seeds = sorted(first.keys() & second.keys())
    records = [arm[seed] for arm in (first, second) for seed in seeds]
    if not seeds or any(record.get(key) is None for record in records for key in ("correct", "test_set")):
        return None
    one_set = len({record["test_set"] for record in records}) == 1
    if not one_set and any(record.get("test_items") is None for record in records):
        return None
    if any(first[seed]["test_set"] != second[seed]["test_set"] for seed in seeds):
        return None
    rows = [{seed: unpack(arm[seed]["correct"], int(arm[seed]["items"])) for seed in seeds} for arm in (first, second)]
    named = None if one_set else {seed: unpack_items(first[seed]["test_items"]) for seed in seeds}
    return paired_answers(rows[0], rows[1], items=named)


def pack(correct: Iterable[bool]) -> str:
    """Answers as text for a record: one bit an item, base64.

    >>> unpack(pack([True, False, True]), 3)
    [True, False, True]
    """
    import numpy as np

    bits = np.fromiter((bool(item) for item in correct), dtype=np.uint8)
    return base64.b64encode(np.packbits(bits).tobytes()).decode()


def unpack(text: str, count: int) -> list[bool]:
    """The ``count`` answers packed in ``text``; InputError if it holds fewer."""
    import numpy as np

    try:
        bits = np.unpackbits(np.frombuffer(base64.b64decode(text, validate=True), dtype=np.uint8))
    except (binascii.Error, ValueError):
        raise expected("packed answers (base64)", given=repr(text)[:40]) from None
    if len(bits) < count:
        raise expected(f"answers to {count} items", given=f"{len(bits)} bits")
    return [bool(bit) for bit in bits[:count]]


def pack_items(identities: Iterable[int]) -> str:
    """The identities of items (whole numbers below 2**64) as text for a record."""
    import numpy as np

    return base64.b64encode(np.fromiter(identities, dtype="<u8").tobytes()).decode()


def unpack_items(text: str) -> list[int]:
    """The identities packed by ``pack_items``."""
    import numpy as np

    return [int(number) for number in np.frombuffer(base64.b64decode(text), dtype="<u8")]
