"""Tracks are found by number or name, never clash, and a broken plugin never vanishes."""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path
from typing import Any

import pytest

from assay import registry as module
from assay.errors import InputError
from assay.registry import Registry, track


@pytest.fixture
def fresh(monkeypatch: pytest.MonkeyPatch) -> Registry:
    """An empty registry that ``@track`` fills, marked as loaded so that the built-in tracks stay out."""
    empty = Registry(loaded=True)
    monkeypatch.setattr(module, "registry", empty)
    return empty


def a_body(name: str = "Body", **members: Any) -> type:
    def nothing(self: Any, *arguments: Any) -> None:
        return None

    return type(name, (), {"controls": ("bad",), "trials": nothing, "measure": nothing, "decide": nothing, **members})


def test_a_track_is_found_by_number_and_by_name(fresh: Registry) -> None:
    track(5, "five", claim="five is odd")(a_body())
    assert fresh.find(5) is fresh.find("5") is fresh.find("five")
    assert fresh.find("five").claim == "five is odd"


def test_an_unknown_track_gets_a_suggestion(fresh: Registry) -> None:
    track(5, "parity", claim="c")(a_body())
    with pytest.raises(InputError, match="did you mean 'parity'"):
        fresh.find("partiy")
    with pytest.raises(InputError, match=r"unknown track 7; known: 5 \(parity\)"):
        fresh.find(7)
    with pytest.raises(InputError, match="unknown track -1"):
        fresh.find(-1)


def test_duplicates_are_refused_and_both_places_named(fresh: Registry) -> None:
    track(5, "five", claim="c")(a_body())
    with pytest.raises(InputError, match=r"clashes with track 5 'five'"):
        track(5, "other", claim="c")(a_body("Other"))
    with pytest.raises(InputError, match="clashes"):
        track(6, "five", claim="c")(a_body("Six"))


def test_further_numbers_lead_to_the_same_track_and_clash_like_its_own(fresh: Registry) -> None:
    track(5, "five", claim="c", also=(50, 55))(a_body())
    assert fresh.find(50) is fresh.find("55") is fresh.find("five")
    with pytest.raises(InputError, match="clashes"):
        track(55, "other", claim="c")(a_body("Other"))
    with pytest.raises(InputError, match="expected a track number"):
        track(7, "seven", claim="c", also=(-1,))(a_body("Seven"))


def test_a_track_on_request_is_known_and_does_not_stand(fresh: Registry) -> None:
    track(5, "five", claim="c")(a_body())
    track(6, "six", claim="c", on_request=True)(a_body("Six"))
    assert [t.number for t in fresh.ordered()] == [5, 6] and [t.number for t in fresh.standing()] == [5]


def test_a_number_that_moved_is_read_unless_it_is_taken(fresh: Registry) -> None:
    track(131, "moved", claim="c")(a_body())
    assert fresh.find(31).number == 131
    track(31, "new", claim="c")(a_body("New"))
    assert fresh.find(31).name == "new"


@pytest.mark.parametrize(("number", "name"), [(-1, "a"), (True, "a"), (1, ""), (1, "Has Space"), (1, "12")])
def test_bad_numbers_and_names_are_refused(fresh: Registry, number: int, name: str) -> None:
    with pytest.raises(InputError, match="expected a track"):
        track(number, name, claim="c")(a_body())


def test_a_track_without_controls_is_refused(fresh: Registry) -> None:
    with pytest.raises(InputError, match="control"):
        track(5, "five", claim="c")(a_body(controls=()))


def test_a_class_without_decide_is_refused(fresh: Registry) -> None:
    body = a_body()
    del body.decide  # type: ignore[attr-defined]
    with pytest.raises(InputError, match="'decide'"):
        track(5, "five", claim="c")(body)


def test_a_broken_plugin_is_kept_as_a_failure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "assay_broken_plugin.py").write_text("raise RuntimeError('planted')\n")
    (tmp_path / "assay_good_plugin.py").write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    points = [
        importlib.metadata.EntryPoint("broken", "assay_broken_plugin", "assay.tracks"),
        importlib.metadata.EntryPoint("good", "assay_good_plugin", "assay.tracks"),
        importlib.metadata.EntryPoint("absent", "assay_no_such_plugin:thing", "assay.tracks"),
    ]
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: points)
    found = Registry().load()
    assert set(found.broken) == {"broken", "absent"}
    assert "planted" in found.broken["broken"].message and "RuntimeError" in found.broken["broken"].traceback


@pytest.mark.parametrize("timeout", [float("nan"), float("inf"), 0, -1.0])
def test_a_timeout_that_never_comes_is_refused(fresh: Registry, timeout: float) -> None:
    with pytest.raises(InputError, match="a finite timeout > 0"):
        track(5, "five", claim="five is odd", timeout=timeout)(a_body())


def test_a_claim_is_found_in_its_room_and_a_room_that_cannot_be_imported_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    house = tmp_path / "assay_house_of_claims"
    for room in ("sound", "sound/helpers", "broken"):
        (house / room).mkdir(parents=True, exist_ok=True)
        (house / room / "__init__.py").write_text("raise RuntimeError('planted')\n" if room == "broken" else "")
    (house / "__init__.py").write_text("")
    for file in ("loose.py", "sound/claim.py", "sound/helpers/no_claim.py", "broken/claim.py"):
        (house / file).write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr("assay.registry.BUILT_IN", "assay_house_of_claims")
    monkeypatch.setattr(importlib.metadata, "entry_points", lambda group: [])
    found = Registry().load()
    assert set(found.broken) == {"broken.claim"} and "planted" in found.broken["broken.claim"].message
    loaded = {name for name in sys.modules if name.startswith("assay_house_of_claims.")}
    assert {f"assay_house_of_claims.{one}" for one in ("loose", "sound.claim")} <= loaded
    assert "assay_house_of_claims.sound.helpers.no_claim" not in loaded
