"""A run in the tracker a team already looks at: TensorBoard event files, MLflow, Weights & Biases.

Each gets the same facts: a number per measurement (with the ends of its interval, and seeds as steps), verdicts and
reasons as text, the report as files. Nothing is computed here.
"""

from __future__ import annotations

import math
import re
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from assay.errors import InputError, MissingExtra, unknown
from assay.reports.markdown import markdown
from assay.reports.save import save_report
from assay.results import Finding, Measurement, Run

PROJECT = "assay"


def send(run: Run, tracker: str, place: str | Path | None = None) -> str:
    """Where the run is to be found in the named tracker; ``place`` is a folder, or a tracking URI of MLflow.

    Default places: ``assay-runs/tensorboard``, MLflow's own tracking URI, and W&B's own folder and mode (offline under
    WANDB_MODE=offline).
    """
    if tracker not in TRACKERS:
        raise InputError(unknown("tracker", tracker, TRACKERS))
    return TRACKERS[tracker](run, place)


def numbers(run: Run) -> Iterator[tuple[str, float, int]]:
    """Every number of a run as (tag, value, step): values and interval ends at step 0, observations at their seed.

    No tag is the folder of another: MLflow keeps metrics as files.
    """
    for finding in run.findings:
        for measurement in finding.measurements:
            tag = f"{label(finding)}/{_plain(measurement.name)}"
            interval = measurement.interval
            ends = () if interval is None else (("low", interval.low), ("high", interval.high))
            for suffix, value in (("", measurement.value), *((f" {end}", at) for end, at in ends)):
                if value is not None and math.isfinite(value):
                    yield tag + suffix, value, 0
            yield from _by_seed(tag, measurement)
        if finding.score is not None:
            yield f"{label(finding)}/score", finding.score, 0


def label(finding: Finding) -> str:
    """What a tracker calls a finding: letters, digits and few signs."""
    number = "" if finding.number is None else f"{finding.number}-"
    return f"{number}{_plain(finding.name or finding.subject)}"


def verdicts(run: Run) -> dict[str, str]:
    """The verdict of every finding by its label, and of the run."""
    return {**{f"verdict {label(finding)}": finding.verdict.value for finding in run.findings},
            "verdict": run.verdict.value}


def to_tensorboard(run: Run, place: str | Path | None) -> str:
    """An event file under ``place/RUN-ID``; needs the package tensorboard, not TensorFlow."""
    try:
        from tensorboard.compat.proto.event_pb2 import Event
        from tensorboard.plugins.scalar.summary_v2 import scalar_pb
        from tensorboard.plugins.text.summary_v2 import text_pb
        from tensorboard.summary.writer.event_file_writer import EventFileWriter
    except ImportError:
        raise MissingExtra("tensorboard", "tensorboard", "report --format tensorboard") from None
    folder = Path(place or "assay-runs/tensorboard") / run.id
    writer = EventFileWriter(str(folder))
    try:
        for tag, value, step in numbers(run):
            writer.add_event(Event(wall_time=time.time(), step=step, summary=scalar_pb(tag, value)))
        texts = {f"{label(f)}/verdict": f"**{f.verdict.value}** {f.claim}\n\n{f.reason}" for f in run.findings}
        for tag, text in {**texts, "report": markdown(run)}.items():
            writer.add_event(Event(wall_time=time.time(), step=0, summary=text_pb(tag, text)))
    finally:
        writer.close()
    return str(folder)


def to_mlflow(run: Run, place: str | Path | None) -> str:
    """A run of the experiment ``assay``: metrics, verdicts as tags, the report as artifacts."""
    try:
        import mlflow
    except ImportError:
        raise MissingExtra("mlflow", "mlflow", "report --format mlflow") from None
    uri = None if place is None else str(place) if "://" in str(place) else Path(place).absolute().as_uri()
    client = mlflow.MlflowClient(tracking_uri=uri)
    found = client.get_experiment_by_name(PROJECT)
    experiment = found.experiment_id if found else client.create_experiment(PROJECT)
    tags = {**verdicts(run), "assay.command": run.command, "assay.budget": run.budget, "mlflow.runName": run.id}
    made = client.create_run(experiment, tags={key: text for key, text in tags.items() if text}, run_name=run.id)
    for tag, value, step in numbers(run):
        client.log_metric(made.info.run_id, tag, value, step=step)
    with tempfile.TemporaryDirectory() as folder:
        client.log_artifacts(made.info.run_id, str(save_report(run, Path(folder) / "report")))
    client.set_terminated(made.info.run_id)
    return f"experiment {PROJECT}, run {made.info.run_id}"


def to_wandb(run: Run, place: str | Path | None) -> str:
    """A run of the project ``assay``: a summary of numbers and verdicts, a table, the report as files."""
    try:
        import wandb
    except ImportError:
        raise MissingExtra("wandb", "wandb", "report --format wandb") from None
    if place is not None:
        Path(place).mkdir(parents=True, exist_ok=True)
    made = wandb.init(project=PROJECT, name=run.id, job_type=run.kind, dir=None if place is None else str(place),
                      config={"command": run.command, "budget": run.budget, **_flat(run.config)})
    made.summary.update({**{tag: value for tag, value, step in numbers(run) if step == 0}, **verdicts(run)})
    rows = [[label(f), f.verdict.value, f.claim, f.reason] for f in run.findings]
    made.log({"findings": wandb.Table(columns=["finding", "verdict", "claim", "reason"], data=rows)})
    save_report(run, Path(made.dir) / "report")
    made.save(str(Path(made.dir) / "report" / "*"), base_path=made.dir, policy="now")
    where = str(Path(made.dir).parent)
    made.finish()
    return where


TRACKERS: dict[str, Callable[[Run, str | Path | None], str]] = {
    "wandb": to_wandb,
    "mlflow": to_mlflow,
    "tensorboard": to_tensorboard,
}


def _by_seed(tag: str, measurement: Measurement) -> Iterator[tuple[str, float, int]]:
    for seed, value in zip(measurement.seeds, measurement.values, strict=False):
        if math.isfinite(value):
            yield f"{tag} by seed", value, seed


def _plain(name: str) -> str:
    """Names that every tracker takes: MLflow is the strictest."""
    return re.sub(r"[^\w\-. /:]", "-", name).strip(" /") or "unnamed"


def _flat(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in config.items() if isinstance(value, str | int | float | bool | None)}
