"""The pictures of claims: every arm has a named place, and kinds of numbers stand side by side in it."""

from __future__ import annotations

from assay.tracks.shared import findings


def test_kinds_stand_beside_each_other_in_the_place_of_their_arm() -> None:
    values = {"eqprop": {"own": [1.0, 2.0], "other": [3.0]}, "control: masked": {"own": [], "other": [4.0]}}
    figure = findings.by_arm_and_kind(values, key="k", question="Who?", label="%")
    assert figure.categories == ("eqprop", "masked")
    own, other = figure.series
    assert (own.name, own.y) == ("own", (1.0, 2.0)) and (other.name, other.y) == ("other", (3.0, 4.0))
    assert all(abs(x) < 0.5 for x in own.x) and [round(x) for x in other.x] == [0, 1]
    assert own.x[0] < other.x[0]


def test_an_arm_without_numbers_has_no_place() -> None:
    values = {"eqprop": {"own": [1.0]}, "never ran": {"own": []}}
    figure = findings.by_arm_and_kind(values, key="k", question="?", label="")
    assert figure.categories == ("eqprop",)
