"""The clean model families, each exact in float64."""

from __future__ import annotations

from planted_symmetry.families.egnn import EGNN
from planted_symmetry.families.group_cnn import GROUP_CNN
from planted_symmetry.families.sets import ATTENTION, DEEP_SETS
from planted_symmetry.plant import Family


def families() -> dict[str, Family]:
    """Every family whose packages are installed, by name."""
    found = [EGNN, GROUP_CNN, DEEP_SETS, ATTENTION]
    try:
        from planted_symmetry.families.steerable import STEERABLE
    except ImportError:
        pass
    else:
        found.append(STEERABLE)
    return {family.name: family for family in found}
