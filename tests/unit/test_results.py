"""Results are frozen, survive JSON, and refuse what they cannot mean."""

from __future__ import annotations

import json
import math
from pathlib import Path

import pytest
from pydantic import ValidationError

from assay.errors import NotPassed, SchemaError
from assay.results import (
    SCHEMA_VERSION,
    Figure,
    Finding,
    Interval,
    Measurement,
    Region,
    Run,
    Series,
    Table,
    Verdict,
    json_schema,
    load_run,
)


def a_run(**changes: object) -> Run:
    gap = Measurement(
        name="gap",
        value=0.4,
        unit="pp",
        n=3,
        interval=Interval(low=-0.2, high=1.0, confidence=0.9, method="paired t"),
        region=Region(low=-1, high=1),
        values=(0.1, 0.4, 0.7),
        seeds=(42, 43, 44),
    )
    finding = Finding(
        subject="EqProp",
        claim="parity",
        verdict=Verdict.PASS,
        reason="the interval lies inside the margin",
        headline="gap",
        measurements=(gap,),
        tables=(Table(title="t", columns=("a", "b"), rows=((1, "x"), (math.nan, None))),),
        figures=(Figure(key="f", question="why?", series=(Series(name="s", x=(0, 1), y=(1.5, math.inf)),)),),
    )
    return Run(id="r1", created="2026-01-01T00:00:00+00:00", findings=(finding,), **changes)  # type: ignore[arg-type]


def test_a_run_survives_json_unchanged() -> None:
    run = a_run()
    again = Run.from_json(run.to_json())
    assert again.model_copy(update={"digest": ""}) == run
    assert again.to_json() == run.to_json()


def test_a_run_file_changed_after_it_was_written_is_recognised_and_an_untouched_one_is_not() -> None:
    text = a_run().to_json()
    assert not Run.from_json(text).altered
    changed = Run.from_json(text.replace('"FAIL"', '"PASS"') if '"FAIL"' in text else text.replace('"PASS"', '"FAIL"'))
    assert changed.altered
    assert Run.from_json(changed.to_json()).altered, "saving again must not wash it clean"


def test_an_interval_is_cut_at_what_the_quantity_can_be() -> None:
    wide = Interval(low=89.4, high=101.2, confidence=0.95, method="t")
    cut = Measurement(name="accuracy", value=95.0, n=3, interval=wide, possible=Region(low=0.0, high=100.0))
    assert cut.interval is not None and (cut.interval.low, cut.interval.high) == (89.4, 100.0)
    assert Measurement(name="gap", value=95.0, n=3, interval=wide).interval == wide


def test_a_nan_measurement_survives_json_as_nan() -> None:
    finding = Finding(
        subject="s",
        claim="c",
        verdict=Verdict.ERROR,
        reason="r",
        measurements=(Measurement(name="loss", value=math.nan),),
    )
    again = Run.from_json(Run(id="r", created="now", findings=(finding,)).to_json())
    assert math.isnan(again.findings[0].measurements[0].value or 0.0)


def test_results_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        a_run().findings[0].verdict = Verdict.FAIL  # type: ignore[misc]


def test_a_single_observation_has_no_interval() -> None:
    with pytest.raises(ValidationError, match="single observation"):
        Measurement(name="accuracy", value=1.0, n=1, interval=Interval(low=1, high=1, confidence=0.95, method="t"))


def test_the_worst_verdict_decides_and_nothing_is_inconclusive() -> None:
    order = [Verdict.ERROR, Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.STUB, Verdict.PARTIAL, Verdict.PASS]
    for index, verdict in enumerate(order):
        assert Verdict.worst(order[index:]) is verdict
    assert Verdict.worst([]) is Verdict.INCONCLUSIVE
    assert [v.exit_code for v in order] == [4, 1, 3, 3, 3, 0]


def test_a_run_from_the_future_is_refused_in_one_line() -> None:
    data = json.loads(a_run().to_json())
    data["schema_version"] = SCHEMA_VERSION + 1
    data["invented_later"] = True
    with pytest.raises(SchemaError, match=f"schema version {SCHEMA_VERSION + 1}.*upgrade"):
        Run.from_json(json.dumps(data))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("{", "not valid JSON"),
        ("[1]", "not an Assay run"),
        ('{"schema_version": 1}', "does not fit"),
        ('{"schema_version": true}', "not an Assay run"),
    ],
)
def test_a_corrupt_run_says_what_is_wrong(text: str, complaint: str, tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    file.write_text(text)
    with pytest.raises(SchemaError, match=complaint) as caught:
        load_run(tmp_path)
    assert "\n" not in str(caught.value)
    assert file.read_text() == text


def test_a_missing_run_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(SchemaError, match=r"expected a run folder or a run\.json"):
        load_run(tmp_path / "absent")


def test_the_exported_schema_describes_a_run() -> None:
    schema = json_schema()
    assert schema["$schema"].endswith("2020-12/schema")
    assert {"findings", "schema_version", "environment"} <= set(schema["properties"])
    assert "Measurement" in schema["$defs"]


def test_raise_unless_passed_carries_the_finding() -> None:
    finding = a_run().findings[0]
    assert finding.raise_unless_passed() is finding
    failed = finding.model_copy(update={"verdict": Verdict.INCONCLUSIVE})
    with pytest.raises(NotPassed, match="INCONCLUSIVE") as caught:
        failed.raise_unless_passed()
    assert caught.value.finding is failed
