"""Logs that inspect_ai 0.3 and lm-eval 0.4 really wrote, and CSV, compared item by item."""

from __future__ import annotations

import csv
import json
import zipfile
from pathlib import Path

import pytest
from typer.testing import CliRunner

import assay
from assay.errors import InputError
from assay.results import load_run
from assay.studies.evals import compare_evals, read_log

LOGS = Path(__file__).parent / "logs"
ZSTANDARD = "reading .eval archives before Python 3.14 needs the [evals] extra"


def table(path: Path, scores: dict[str, float], **columns: str) -> Path:
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "correct", *columns])
        for number, (name, score) in enumerate(scores.items()):
            writer.writerow([name, score, *(f"{text}{number // 3}" for text in columns.values())])
    return path


def pair(folder: Path, first: str, second: str) -> tuple[Path, Path]:
    for name in "ab":
        (folder / name).mkdir(parents=True)
    ones, twos = ({f"q{i}": float(sign) for i, sign in enumerate(signs)} for signs in (first, second))
    return table(folder / "a" / "mine.csv", ones, topic="t"), table(folder / "b" / "mine.csv", twos, topic="t")


def test_the_archive_and_the_json_of_inspect_say_the_same() -> None:
    pytest.importorskip("zstandard", reason=ZSTANDARD)
    for name in "ab":
        packed, plain = read_log(LOGS / f"inspect_{name}" / "sums.eval"), read_log(LOGS / f"inspect_{name}.json")
        scores = [{key: item.scores for key, item in log.tasks["sums"].items()} for log in (packed, plain)]
        assert scores[0] == scores[1] and len(scores[0]) == 24
        assert packed.name == "mockllm/model"


def test_scores_are_those_of_the_log_itself() -> None:
    log = json.loads((LOGS / "inspect_a.json").read_text())
    right = {sample["id"]: sample["scores"]["match"]["value"] for sample in log["samples"]}
    read = read_log(LOGS / "inspect_a.json").tasks["sums"]
    assert {name: item.scores["match"] for name, item in read.items()} == {
        name: {"C": 1.0, "I": 0.0}[value] for name, value in right.items()}
    (told,) = [m["value"] for s in log["results"]["scores"] for n, m in s["metrics"].items() if n == "accuracy"]
    run = compare_evals(LOGS / "inspect_a.json", LOGS / "inspect_b.json")
    assert run.findings[0].measurements[1].value == pytest.approx(100 * told)


def test_epochs_of_one_question_are_one_item() -> None:
    pytest.importorskip("zstandard", reason=ZSTANDARD)
    items = read_log(LOGS / "inspect_a" / "epochs.eval").tasks["sums-epochs"]
    assert len(items) == 8 and all(item.repeats == 3 for item in items.values())
    assert {round(3 * item.scores["match"]) for item in items.values()} <= {0, 1, 2, 3}


def test_samples_of_the_harness_are_paired_by_document() -> None:
    first, second = (sorted((LOGS / f"lm_{name}").glob("*.jsonl"))[0].read_text().splitlines() for name in "ab")
    rows = [[json.loads(line) for line in text] for text in (first, second)]
    gap = 100 * sum(a["acc"] - b["acc"] for a, b in zip(*rows, strict=True)) / 24
    run = compare_evals(LOGS / "lm_a", LOGS / "lm_b", margin=40)
    (finding,) = run.findings
    assert finding.name == "mine" and finding.measurement("gap").value == pytest.approx(gap)
    assert finding.measurement("gap").region.high == 40
    clustered = compare_evals(LOGS / "lm_a", LOGS / "lm_b", cluster="passage", metric="acc_norm").findings[0]
    assert clustered.measurement("gap").n == 8 and clustered.measurement("gap").of == "clusters"


def test_the_command_prints_the_verdict_and_leaves_a_report(tmp_path: Path) -> None:
    from assay.cli import _app

    words = ["compare-evals", str(LOGS / "lm_a"), str(LOGS / "lm_a"), "--margin", "20", "--out", str(tmp_path / "out")]
    done = CliRunner().invoke(_app(), words)
    assert done.exit_code == 0 and "PASS" in done.output and "McNemar" in done.output, done.output
    kept = load_run(tmp_path / "out")
    assert kept.verdict == "PASS" and kept.command.startswith("assay compare-evals")


def test_a_better_system_passes_a_worse_one_fails_and_few_items_decide_nothing(tmp_path: Path) -> None:
    good, bad = "1" * 40 + "0" * 10, "1" * 22 + "0" * 28
    a, b = pair(tmp_path / "many", good, bad)
    assert compare_evals(a, b).verdict == "PASS"
    assert compare_evals(b, a).verdict != "PASS"
    assert compare_evals(a, b, margin=5).verdict == "FAIL", "36 points are no parity"
    a, b = pair(tmp_path / "few", "1101", "1001")
    assert compare_evals(a, b).verdict == "INCONCLUSIVE"


def test_several_tasks_are_corrected_by_holm(tmp_path: Path) -> None:
    rows = [(task, f"q{i}", int(i < right)) for task, right in (("x", 12), ("y", 12), ("z", 12)) for i in range(20)]
    for name, ones in (("a", rows), ("b", [(t, q, int(s and int(q[1:]) >= 6)) for t, q, s in rows])):
        with (tmp_path / f"{name}.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerows([("task", "id", "score"), *ones])
    run = compare_evals(tmp_path / "a.csv", tmp_path / "b.csv")
    alone = compare_evals(tmp_path / "a.csv", tmp_path / "b.csv", tasks=["x"])
    assert len(run.findings) == 3 and all(f.checks[-1].name == "Holm over 3 tasks" for f in run.findings)
    index = run.tables[0].columns.index("claim p (Holm)")
    assert run.tables[0].rows[0][index] == pytest.approx(3 * alone.tables[0].rows[0][index])


def test_clusters_of_a_csv_are_a_column(tmp_path: Path) -> None:
    a, b = pair(tmp_path, "1" * 30 + "0" * 6, "1" * 15 + "0" * 21)
    assert compare_evals(a, b, cluster="topic").findings[0].measurement("gap").n == 12
    with pytest.raises(InputError, match="there are: id, correct, topic"):
        compare_evals(a, b, cluster="passage")


def test_items_that_one_log_lacks_are_refused_unless_told_what_to_do(tmp_path: Path) -> None:
    a, b = pair(tmp_path, "1" * 20, "1" * 15)
    with pytest.raises(InputError, match="5 of 20 items"):
        compare_evals(a, b)
    dropped, wrong = (compare_evals(a, b, missing=how, margin=30).findings[0] for how in ("drop", "wrong"))
    assert dropped.measurement("gap").value == 0 and wrong.measurement("gap").value == 25
    assert "5 items" in dropped.limitations[0] and "5 items" in wrong.limitations[0]


def test_a_sample_that_crashed_is_missing_not_wrong(tmp_path: Path) -> None:
    log = json.loads((LOGS / "inspect_a.json").read_text())
    log["samples"][3]["scores"] = {}
    (tmp_path / "crashed.json").write_text(json.dumps(log))
    with pytest.raises(InputError, match="1 of 24 items"):
        compare_evals(tmp_path / "crashed.json", LOGS / "inspect_b.json")


def test_other_documents_under_the_same_numbers_are_noticed(tmp_path: Path) -> None:
    text = sorted((LOGS / "lm_a").glob("*.jsonl"))[0].read_text()
    changed = [json.loads(line) for line in text.splitlines()]
    changed[5]["doc_hash"] = "0" * 64
    (tmp_path / "samples_mine_2026.jsonl").write_text("\n".join(map(json.dumps, changed)))
    with pytest.raises(InputError, match="1 of 24 items of 'mine' differ"):
        compare_evals(LOGS / "lm_a", tmp_path / "samples_mine_2026.jsonl")


@pytest.mark.parametrize(("name", "content", "words"), [
    ("a.csv", "question,correct\n1,1\n", "a column that names the item"),
    ("a.csv", "id,correct\n1,1,1\n", "2 values in every row"),
    ("a.csv", "id,correct\n", "at least one row"),
    ("a.jsonl", '{"doc_id": 1}\n', "lm_eval --log_samples"),
    ("a.jsonl", "{broken\n", "line 1"),
    ("a.json", "[]", "with samples"),
    ("a.json", '{"samples": [], "eval": {}}', "eval.task"),
    ("a.txt", "", "samples_"),
])
def test_what_is_no_log_is_refused_in_one_line(tmp_path: Path, name: str, content: str, words: str) -> None:
    (tmp_path / name).write_text(content)
    with pytest.raises(InputError, match=words) as caught:
        read_log(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_a_broken_or_unfinished_archive_is_said(tmp_path: Path) -> None:
    (tmp_path / "half.eval").write_bytes((LOGS / "inspect_a" / "sums.eval").read_bytes()[:20_000])
    with pytest.raises(InputError, match="whole"):
        read_log(tmp_path / "half.eval")
    with zipfile.ZipFile(tmp_path / "early.eval", "w") as archive:
        archive.writestr("samples/q0_epoch_1.json", "{}")
    with pytest.raises(InputError, match="finished log"):
        read_log(tmp_path / "early.eval")
    with pytest.raises(InputError, match="does not exist"):
        read_log(tmp_path / "none")
    with pytest.raises(InputError, match="where there is none"):
        (tmp_path / "empty").mkdir()
        read_log(tmp_path / "empty")


def test_it_is_a_public_name() -> None:
    assert assay.compare_evals is compare_evals
