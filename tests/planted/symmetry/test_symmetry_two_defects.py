"""Two defects at once: both modules are named, each with its share, and no clean module beside them."""

from __future__ import annotations

import pytest
from planted_symmetry.families import families
from planted_symmetry.judge import HIDDEN_PARTS, module_of
from planted_symmetry.operators import operators
from planted_symmetry.plant import healthy

from assay import symmetry as sym
from assay.seeding import torch_generator

pytestmark = pytest.mark.filterwarnings("ignore")
PAIRS = [
    ("DeepSets", ("cumulative sum", 0, 1.0), ("table of places", 2, 1.0)),
    ("DeepSets", ("table of places", 1, 1.0), ("next in the list", 2, 1e-2)),
    ("EGNN", ("abs of components", 1, 1e-2), ("height as a feature", 2, 1.0)),
    ("group CNN", ("one kernel off", 0, 1.0), ("gain per orientation", 2, 1.0)),
]


@pytest.mark.parametrize(("family", "first", "second"), PAIRS)
def test_both_of_two_defects_are_named_and_nothing_else(family: str, first: tuple, second: tuple) -> None:
    known = {(one.family, one.name): one for one in operators()}
    chosen = families()[family]
    model = healthy(chosen, 0)
    places = [
        known[family, name].plant(model, depth, size, torch_generator(0, name)) for name, depth, size in (first, second)
    ]
    finding = sym.audit_symmetry(
        model.eval(), chosen.sample, chosen.symmetry, inputs=8, transforms=8, skip=HIDDEN_PARTS
    )
    assert [module_of(issue.location) for issue in finding.issues] == places
    assert finding.issues[1].title == "Another module breaks it too"
