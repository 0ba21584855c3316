"""Defects that people reported in public are found, diagnosed and put in the right place."""

from __future__ import annotations

import pytest
from planted_symmetry.known_bugs import KNOWN_BUGS, KnownBug

from assay import symmetry as sym


@pytest.mark.parametrize("bug", KNOWN_BUGS, ids=lambda bug: bug.name)
def test_a_reported_defect_is_found_and_diagnosed(bug: KnownBug) -> None:
    finding = sym.audit_symmetry(bug.model(), bug.sample, bug.symmetry, inputs=16, transforms=8)
    assert finding.verdict is bug.verdict, finding.reason
    issue = next((one for one in finding.issues if one.title == bug.title), None)
    assert issue is not None, [one.title for one in finding.issues]
    assert bug.location in issue.location
