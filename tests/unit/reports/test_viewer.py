"""The viewer answers this machine alone, under its secret, and opens nothing but the runs it lists."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.errors import InputError
from assay.reports.viewer.library import Library
from assay.reports.viewer.server import Viewer
from assay.reports.viewer.trends import trends
from assay.results import Run, Verdict

PROGRESS = {
    "started": 1.0,
    "updated": 2.0,
    "seconds_left": 30.0,
    "tracks": [
        {"number": 1, "name": "one", "done": 3, "running": 1, "failed": 1, "total": 10, "verdict": None},
        {"number": 2, "name": "two", "done": 5, "running": 0, "failed": 0, "total": 5, "verdict": "PASS"},
    ],
}


@pytest.fixture
def folder(rich: Run, tmp_path: Path) -> Path:
    root = tmp_path / "assay-runs"
    for index, name in enumerate(("a run", "b/../c".replace("/", "%"), "later")):
        (root / name).mkdir(parents=True)
        run = rich.model_copy(update={"id": name, "created": f"2026-01-0{index + 1}T00:00:00+00:00"})
        (root / name / "run.json").write_text(run.to_json())
    (root / "broken").mkdir()
    (root / "broken" / "run.json").write_text('{"schema_version": 1, "id"')
    (root / "running").mkdir()
    (root / "running" / "progress.json").write_text(json.dumps(PROGRESS))
    (root / "cells").mkdir()
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "run.json").write_text(rich.model_copy(update={"title": "SECRET"}).to_json())
    (root / "link").symlink_to(secret)
    (root / "linked-file").mkdir()
    (root / "linked-file" / "run.json").symlink_to(secret / "run.json")
    return root


@pytest.fixture
def viewer(folder: Path) -> Iterator[Viewer]:
    server = Viewer(Library(folder))
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
    thread.start()
    yield server
    server.shutdown()
    server.server_close()
    thread.join()


def ask(viewer: Viewer, path: str, *, host: str = "", method: str = "GET") -> tuple[int, str]:
    connection = http.client.HTTPConnection("127.0.0.1", viewer.server_port, timeout=120)
    connection.request(method, path, headers={"Host": host or f"127.0.0.1:{viewer.server_port}"})
    answer = connection.getresponse()
    body = answer.read().decode()
    assert answer.getheader("X-Content-Type-Options") == "nosniff" or answer.status == 501
    connection.close()
    return answer.status, body


def test_the_list_shows_runs_running_ones_and_unreadable_ones(viewer: Viewer) -> None:
    status, page = ask(viewer, f"/{viewer.token}/")
    assert status == 200
    assert "a run" in page and "Running: running" in page and "9 of 15 cells, 1 failed" in page
    assert "broken/run.json is not valid JSON" in page
    assert "SECRET" not in page and ">cells<" not in page


def test_a_run_opens_with_a_way_back_and_downloads(viewer: Viewer, rich: Run) -> None:
    status, page = ask(viewer, f"/{viewer.token}/runs/a%20run/")
    assert status == 200 and rich.title in page and 'href="../../"' in page
    status, text = ask(viewer, f"/{viewer.token}/runs/a%20run/report.json")
    assert status == 200 and json.loads(text)["id"] == "a run"


def test_runs_compare_in_order_of_time_whatever_the_order_asked(viewer: Viewer) -> None:
    status, page = ask(viewer, f"/{viewer.token}/compare?run=later&run=a%20run")
    assert status == 200 and page.index("<code>a run</code>") < page.index("<code>later</code>")
    assert ask(viewer, f"/{viewer.token}/compare?run=later")[0] == 404


def test_progress_is_served_as_plain_facts(viewer: Viewer) -> None:
    status, text = ask(viewer, f"/{viewer.token}/progress.json")
    (running,) = json.loads(text)
    assert status == 200 and running["name"] == "running" and (running["done"], running["total"]) == (9, 15)
    assert [track["state"] for track in running["tracks"]] == ["running", "PASS"]


@pytest.mark.parametrize(
    "path", ["/", "/wrong/", "/{token}", "/{token}x/", "/%00/", "//evil/", "/{token}/../x", "/%C3%A9/"]
)
def test_without_the_exact_secret_there_is_nothing(viewer: Viewer, path: str) -> None:
    status, body = ask(viewer, path.format(token=viewer.token))
    assert status == 404 and "run" not in body


@pytest.mark.parametrize(
    "name",
    [
        "..",
        "%2e%2e",
        "..%2f..%2fsecret",
        "%2fetc",
        "link",
        "linked-file",
        "cells",
        "running",
        "%00",
        "a%20run%2f..",
        ".",
    ],
)
def test_no_path_leads_outside_the_listed_runs(viewer: Viewer, name: str) -> None:
    for path in (f"runs/{name}/", f"runs/{name}/report.json", f"compare?run={name}&run=later"):
        status, body = ask(viewer, f"/{viewer.token}/{path}")
        assert status == 404 and "SECRET" not in body, path


@pytest.mark.parametrize("host", ["evil.example", "evil.example:80", "127.0.0.1", "localhost.evil.example", "[::1]"])
def test_a_rebound_host_name_is_refused(viewer: Viewer, host: str) -> None:
    assert ask(viewer, f"/{viewer.token}/", host=host)[0] == 403


def test_it_listens_on_the_loopback_address_only_and_reads_only(viewer: Viewer) -> None:
    assert viewer.server_address[0] == "127.0.0.1" and len(viewer.token) >= 32
    assert ask(viewer, f"/{viewer.token}/", method="POST")[0] == 501
    assert ask(viewer, f"/{viewer.token}/", method="HEAD") == (200, "")


def test_a_finished_run_takes_the_place_of_its_progress(viewer: Viewer, folder: Path, rich: Run) -> None:
    time.sleep(0.01)
    (folder / "running" / "run.json").write_text(rich.to_json())
    assert json.loads(ask(viewer, f"/{viewer.token}/progress.json")[1]) == []
    assert ask(viewer, f"/{viewer.token}/runs/running/")[0] == 200


def test_a_copied_run_is_not_taken_for_a_running_one(viewer: Viewer, folder: Path, rich: Run) -> None:
    """Copying sets the times of files anew, in any order; what was written at the end stays what it is."""
    for name, progress in (("copied", {**PROGRESS, "finished": True}), ("older", PROGRESS)):
        (folder / name).mkdir()
        (folder / name / "run.json").write_text(rich.to_json())
        os.utime(folder / name / "run.json", (1, 1))
        (folder / name / "progress.json").write_text(json.dumps(progress))
    running = [run["name"] for run in json.loads(ask(viewer, f"/{viewer.token}/progress.json")[1])]
    assert running == ["running"]


def test_a_run_begun_again_in_its_folder_is_running(viewer: Viewer, folder: Path) -> None:
    (folder / "a run" / "progress.json").write_text(json.dumps({**PROGRESS, "started": time.time()}))
    running = [run["name"] for run in json.loads(ask(viewer, f"/{viewer.token}/progress.json")[1])]
    assert sorted(running) == ["a run", "running"]


def test_audits_are_listed_and_followed_apart_from_verifications(viewer: Viewer, folder: Path, rich: Run) -> None:
    (folder / "audit").mkdir()
    audit = rich.model_copy(update={"kind": "audit", "title": "An audit of mine", "findings": rich.findings[:1]})
    (folder / "audit" / "run.json").write_text(audit.to_json())
    for page in ("", "trends"):
        text = ask(viewer, f"/{viewer.token}/{page}")[1]
        assert text.index("Verifications and benchmarks") < text.index(">Audits")
    assert text.count('class="data matrix"') == 2


def test_one_run_folder_can_be_viewed_alone(folder: Path) -> None:
    assert [entry.name for entry in Library(folder / "a run").entries()] == ["a run"]


def test_a_missing_folder_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="assay verify"):
        Library(tmp_path / "none")


def test_trends_count_changes_and_follow_revisions(rich: Run) -> None:
    worse = rich.model_copy(
        update={
            "created": "2027-01-01",
            "findings": (rich.findings[0].model_copy(update={"verdict": Verdict.FAIL}), *rich.findings[2:]),
        }
    )
    first, *others = trends([("new", Run.model_validate(worse.model_dump())), ("old", rich)])
    assert first.changes == 1 and [step.verdict for step in first.steps] == ["PASS", "FAIL"]
    assert first.figure is not None and len(first.figure.series[0].y) == 2
    dropped = next(trend for trend in others if trend.title == rich.findings[1].name)
    assert [step.verdict for step in dropped.steps] == ["PASS", None] and dropped.figure is None


def test_the_viewer_starts_without_torch_in_under_two_seconds(folder: Path) -> None:
    # Processor time from the start of the interpreter on: what an idle machine needs, whatever else this one does.
    code = (
        "import sys, time\n"
        "from assay.reports.viewer.library import Library\n"
        "from assay.reports.viewer.server import Viewer\n"
        f"viewer = Viewer(Library({str(folder)!r})); viewer.server_close()\n"
        "assert 'torch' not in sys.modules; print(time.process_time())"
    )
    seconds = float(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert seconds < 2.0
