"""A batch of group elements: named parts (a matrix, a shift, a permutation, ...), all with the same leading axis."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Elements:
    """``parts[name][i]`` is what part ``name`` of the i-th element looks like; floating parts are float64.

    >>> Elements({"linear": torch.eye(3).expand(5, 3, 3)})[1:3].count
    2
    """

    parts: Mapping[str, Tensor]

    @property
    def count(self) -> int:
        """How many elements there are."""
        return len(next(iter(self.parts.values())))

    def __getitem__(self, index: int | slice | Tensor) -> Elements:
        if isinstance(index, int):
            index = slice(index, index + 1)
        return Elements({name: part[index] for name, part in self.parts.items()})

    def __or__(self, other: Elements) -> Elements:
        return Elements({**self.parts, **other.parts})

    def only(self, names: Sequence[str]) -> Elements:
        """The same elements with only the named parts."""
        return Elements({name: self.parts[name] for name in names})

    @staticmethod
    def cat(several: Sequence[Elements]) -> Elements:
        """All elements of several batches, in order."""
        return Elements({name: torch.cat([one.parts[name] for one in several]) for name in several[0].parts})


def translation_of(part: str) -> str:
    """The part that holds the translation beside the matrix of ``part``.

    >>> translation_of("linear"), translation_of("frame")
    ('translation', 'translation of frame')
    """
    return "translation" if part == "linear" else f"translation of {part}"
