"""A run sent to a tracker is the run: numbers, verdicts and files read back by the tracker's own means."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assay.cli.reading.report import TRACKER_NAMES
from assay.errors import InputError
from assay.reports import save_report
from assay.reports.trackers import TRACKERS, label, numbers, send, verdicts
from assay.results import Finding, Interval, Measurement, Run, Verdict

GAP = Measurement(name="gap (ours − theirs)", value=0.25, unit="pp", n=3, seeds=(42, 43, 44), values=(0.1, 0.2, 0.45),
                  interval=Interval(low=-0.2, high=0.7, confidence=0.9, method="t"))
RUN = Run(
    id="run-7", created="2026-01-01T00:00:00+00:00", command="assay verify 2", budget="quick",
    config={"margin": 1.0, "nested": {"a": 1}},
    findings=(
        Finding(subject="mine/mlp", number=2, name="parity", claim="They agree.", verdict=Verdict.PASS, reason="inside",
                headline=GAP.name, measurements=(GAP, Measurement(name="empty", value=None))),
        Finding(subject="other & co", claim="It holds.", verdict=Verdict.FAIL, reason="outside", score=12.0),
    ),
)  # fmt: skip


def test_every_number_is_sent_once_under_a_name_that_all_trackers_take() -> None:
    sent = list(numbers(RUN))
    tag = "2-parity/gap -ours - theirs-"
    assert (tag, 0.25, 0) in sent and (f"{tag} low", -0.2, 0) in sent
    by_seed = [(value, step) for name, value, step in sent if name.endswith("by seed")]
    assert by_seed == [(0.1, 42), (0.2, 43), (0.45, 44)]
    assert ("other - co/score", 12.0, 0) in sent and len(sent) == 7
    assert verdicts(RUN) == {"verdict 2-parity": "PASS", "verdict other - co": "FAIL", "verdict": "FAIL"}
    assert set(TRACKERS) == set(TRACKER_NAMES)
    with pytest.raises(InputError, match="did you mean 'mlflow'"):
        send(RUN, "mlflw")


@pytest.mark.filterwarnings("ignore")  # TensorBoard's own
def test_tensorboard_reads_back_what_was_sent(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="needs the [tensorboard] extra")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    save_report(RUN, tmp_path / "run")
    from assay.cli import _app

    words = ["report", str(tmp_path / "run"), "-f", "tensorboard", "-o", str(tmp_path / "tb")]
    done = CliRunner().invoke(_app(), words)
    assert done.exit_code == 0 and str(tmp_path / "tb" / "run-7") in done.output, done.output
    events = EventAccumulator(str(tmp_path / "tb" / "run-7"))
    events.Reload()
    found = {}
    for tag in events.Tags()["tensors"]:
        for event in events.Tensors(tag):
            if event.tensor_proto.float_val or event.tensor_proto.tensor_content:
                import numpy as np

                content = event.tensor_proto.tensor_content
                value = np.frombuffer(content, "<f4")[0] if content else event.tensor_proto.float_val[0]
                found[tag, event.step] = float(value)
    assert found == {(tag, step): pytest.approx(value) for tag, value, step in numbers(RUN)}
    text = events.Tensors(f"{label(RUN.findings[1])}/verdict")[0].tensor_proto.string_val[0].decode()
    assert "FAIL" in text and "outside" in text


@pytest.mark.filterwarnings("ignore")  # MLflow's own
def test_mlflow_reads_back_what_was_sent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mlflow = pytest.importorskip("mlflow", reason="needs the [mlflow] extra")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    send(RUN, "mlflow", tmp_path / "store")
    client = mlflow.MlflowClient(tracking_uri=(tmp_path / "store").as_uri())
    (kept,) = client.search_runs([client.get_experiment_by_name("assay").experiment_id])
    assert kept.data.tags["verdict 2-parity"] == "PASS" and kept.data.tags["verdict"] == "FAIL"
    assert kept.data.metrics["2-parity/gap -ours - theirs-"] == 0.25
    history = client.get_metric_history(kept.info.run_id, "2-parity/gap -ours - theirs- by seed")
    assert [(metric.step, metric.value) for metric in history] == [(42, 0.1), (43, 0.2), (44, 0.45)]
    names = {entry.path for entry in client.list_artifacts(kept.info.run_id)}
    assert {"run.json", "index.html"} <= names and kept.info.status == "FINISHED"


@pytest.mark.filterwarnings("ignore")  # W&B's own
def test_wandb_keeps_an_offline_run_with_the_report(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("wandb", reason="needs the [wandb] extra")
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_SILENT", "true")
    where = Path(send(RUN, "wandb", tmp_path))
    assert where.is_relative_to(tmp_path) and list(where.glob("*.wandb"))
    assert json.loads((where / "files" / "report" / "run.json").read_text())["id"] == "run-7"
