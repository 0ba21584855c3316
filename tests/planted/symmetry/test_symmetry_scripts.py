"""The script attached to an issue, run as a reader would run it, shows the defect it speaks of."""

from __future__ import annotations

import contextlib
import io
import re

import pytest
import torch
from planted_symmetry.families import families
from planted_symmetry.judge import audit
from planted_symmetry.known_bugs import KNOWN_BUGS
from planted_symmetry.operators import operators
from planted_symmetry.plant import planted
from torch import Tensor, nn

from assay import symmetry as sym
from assay.errors import InputError
from assay.results import Issue

CASES = [
    pytest.param("forward", "EGNN", "vector bias", ["FAIL", "blocks.0.mix", "rotation"], marks=pytest.mark.slow),
    ("forward", "group CNN", "one kernel off", ["FAIL", "blocks.0.conv", "breaks"]),
    ("forward", "DeepSets", "cumulative sum", ["FAIL", "permutation", "BROKEN"]),
    ("latent", "attention", "sleeping table of places", ["PARTIAL", "parameter gradients BROKEN", "each.table"]),
    ("backward", "DeepSets", "element lost in backward", ["FAIL", "input gradients BROKEN"]),
    ("backward", "attention", "half the gradient", ["FAIL", "finite differences: inputs BROKEN"]),
]


def executed(issue: Issue) -> str:
    """What the script prints, run as it is in the session of the audit."""
    shown = io.StringIO()
    with contextlib.redirect_stdout(shown):
        exec(compile(issue.script, "issue", "exec"), {})
    return shown.getvalue()


@pytest.mark.parametrize(("kind", "family", "name", "said"), CASES, ids=lambda value: str(value))
def test_the_script_of_a_planted_defect_shows_it(kind, family, name, said) -> None:
    operator = next(one for one in operators(kind) if (one.family, one.name) == (family, name))
    subject = planted(families()[family], operator, 0, 1.0)
    issue = next(one for one in audit(subject, transforms=6).issues if one.title in operator.causes)
    shown = executed(issue)
    assert all(word in shown for word in said), shown


@pytest.mark.parametrize("bug", KNOWN_BUGS[::2], ids=lambda bug: bug.name)
def test_the_script_of_a_reported_defect_shows_it(bug) -> None:
    model = bug.model()
    finding = sym.audit_symmetry(model, bug.sample, bug.symmetry, inputs=8, transforms=6)
    issue = next(one for one in finding.issues if one.title == bug.title)
    shown = executed(issue)
    assert not shown.startswith("PASS"), shown
    assert "BROKEN" in shown or finding.verdict.value in shown.split()[0], shown


def test_the_script_of_a_wrong_test_shows_which_law_it_breaks() -> None:
    class Nothing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x

    spec = sym.Symmetry(
        sym.SO(3), inputs=sym.custom(lambda g, x: 2 * x, parts=("linear",)), outputs=sym.vector()
    )
    x = torch.ones(4, 3)
    finding = sym.audit_symmetry(Nothing(), x, spec)
    shown = executed(finding.issues[0])
    assert "ERROR" in shown and "not one of SO(3)" in shown


def test_a_script_of_another_session_says_what_to_put_in() -> None:
    finding = sym.audit_symmetry(nn.Linear(3, 3), torch.randn(4, 3), sym.Symmetry(
        sym.SO(3), inputs=sym.vector(), outputs=sym.vector()), inputs=4, transforms=4)
    issue = finding.issues[0]
    assert "FAIL" in executed(issue)
    elsewhere = issue.model_copy(update={"script": re.sub(r'audited\("\w+"\)', 'audited("0")', issue.script)})
    with pytest.raises(InputError, match="put your own model"):
        executed(elsewhere)
