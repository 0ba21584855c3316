"""The page of all claims is what its command writes, and no number of the original is missing from it."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path
from types import ModuleType

import pytest

from assay.registry import registry
from assay.results import Finding

ROOT = Path(__file__).parents[2]
IN_USE = {*range(10), *range(12, 27), *range(28, 42), *range(50, 58), 60}
REMOVED = {10, 11, 27}
"""Numbers the original gave up in favour of others."""


@pytest.fixture(scope="module")
def page() -> ModuleType:
    place = importlib.util.spec_from_file_location("claims_page", ROOT / "benchmarks" / "claims.py")
    assert place is not None and place.loader is not None
    module = importlib.util.module_from_spec(place)
    place.loader.exec_module(module)
    return module


def test_every_number_of_the_original_is_there_once(page: ModuleType) -> None:
    claims = json.loads(page.ORIGINAL.read_text(encoding="utf-8"))["claims"]
    numbers = [claim["number"] for claim in claims]
    assert len(IN_USE) == 48 and sorted(numbers) == sorted(IN_USE | REMOVED)
    for claim in claims:
        assert claim["status"] in page.LABELS
        assert claim["asks"] and (claim["status"] == "tested" or claim["why"]), claim
        if "by" in claim:
            registry.find(claim["by"])


def test_a_number_that_is_a_track_here_leads_to_the_claim_the_page_names(page: ModuleType) -> None:
    """Except the old numbers of ours, which are read for one release and are other claims of the original."""
    for claim in json.loads(page.ORIGINAL.read_text(encoding="utf-8"))["claims"]:
        owners = [track for track in registry.ordered() if claim["number"] in track.numbers]
        if owners:
            assert claim["status"] == "tested" and registry.find(claim["by"]) is owners[0], claim


def test_the_committed_page_is_what_the_command_writes(page: ModuleType) -> None:
    kept = json.loads(page.KEPT.read_text(encoding="utf-8"))
    results = {name: (Finding.model_validate(entry["finding"]), entry) for name, entry in kept.items()}
    original = json.loads(page.ORIGINAL.read_text(encoding="utf-8"))
    assert page.PAGE.read_text(encoding="utf-8") == page.render(original, results)
    for finding, _ in results.values():
        assert (page.PICTURES / f"{finding.number}.svg").read_text(encoding="utf-8").startswith("<svg")
