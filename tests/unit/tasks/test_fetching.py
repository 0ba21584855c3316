"""Downloads resume, are checked, are atomic, and say what went wrong: against a server on this machine."""

from __future__ import annotations

import gzip
import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from assay.tasks import fetch, files
from assay.tasks.fetch import DownloadError
from assay.tasks.files import DataFile, Dataset


class Server:
    """Serves ``contents`` by path; ``cut`` closes connections early, ``ranges`` turns resuming on."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.cut: int | None = None
        self.ranges = True
        self.asked: list[tuple[str, str | None]] = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.answer(self)

            def log_message(self, *args: object) -> None:
                pass

        self.http = HTTPServer(("127.0.0.1", 0), Handler)
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self.thread.start()
        self.url = f"http://127.0.0.1:{self.http.server_port}/"

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        name, wanted = request.path.lstrip("/"), request.headers.get("Range")
        self.asked.append((name, wanted))
        if name not in self.contents:
            request.send_error(404)
            return
        body, start = self.contents[name], 0
        if wanted and self.ranges:
            start = int(wanted.removeprefix("bytes=").rstrip("-"))
            if start >= len(body):
                request.send_error(416)
                return
        request.send_response(206 if start else 200)
        request.send_header("Content-Length", str(len(body) - start))
        request.end_headers()
        request.wfile.write(body[start:] if self.cut is None else body[start:start + self.cut])

    def close(self) -> None:
        self.http.shutdown()
        self.http.server_close()
        self.thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    running = Server()
    yield running
    running.close()


@pytest.fixture
def one_file(server: Server, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A dataset "letters" of one gzipped file, known to Assay and served whole."""
    raw = bytes(range(256)) * 400
    file = DataFile("letters-ubyte", hashlib.sha256(raw).hexdigest(), len(raw))
    datasets = {"letters": Dataset("letters", (file,), server.url)}
    monkeypatch.setattr(files, "DATASETS", datasets)
    monkeypatch.setattr(fetch, "DATASETS", datasets)
    packed = gzip.compress(raw, mtime=0)
    server.contents["letters-ubyte.gz"] = packed
    return packed


def test_a_fetched_file_is_whole_and_a_second_fetch_asks_for_nothing(
    server: Server, one_file: bytes, tmp_path: Path
) -> None:
    seen: list[int] = []
    (path,) = fetch.fetch("letters", root=tmp_path, progress=lambda name, received, total: seen.append(received))
    assert path.read_bytes() == one_file
    assert seen[-1] == len(one_file)
    fetch.fetch("letters", root=tmp_path)
    assert len(server.asked) == 1
    assert [row.state for row in fetch.status(root=tmp_path)] == ["ok"]


def test_a_connection_that_keeps_breaking_is_resumed_where_it_broke(
    server: Server, one_file: bytes, tmp_path: Path
) -> None:
    server.cut = len(one_file) // 3 + 1
    (path,) = fetch.fetch("letters", root=tmp_path)
    assert path.read_bytes() == one_file
    step = server.cut
    assert [wanted for _, wanted in server.asked] == [None, f"bytes={step}-", f"bytes={2 * step}-"]


def test_what_was_received_before_a_kill_is_used_by_the_next_command(
    server: Server, one_file: bytes, tmp_path: Path
) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "letters-ubyte.gz.part").write_bytes(one_file[:100])
    fetch.fetch("letters", root=tmp_path)
    assert server.asked == [("letters-ubyte.gz", "bytes=100-")]


def test_a_server_that_cannot_resume_sends_the_file_again(server: Server, one_file: bytes, tmp_path: Path) -> None:
    server.ranges = False
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "letters-ubyte.gz.part").write_bytes(b"junk" * 10)
    (path,) = fetch.fetch("letters", root=tmp_path)
    assert path.read_bytes() == one_file


def test_a_part_of_another_file_is_thrown_away_and_fetched_anew(
    server: Server, one_file: bytes, tmp_path: Path
) -> None:
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "letters-ubyte.gz.part").write_bytes(b"x" * 50)
    (path,) = fetch.fetch("letters", root=tmp_path)
    assert path.read_bytes() == one_file
    assert [wanted for _, wanted in server.asked] == ["bytes=50-", None]


def test_a_connection_that_never_gets_anywhere_is_given_up_with_the_part_kept(
    server: Server, one_file: bytes, tmp_path: Path
) -> None:
    server.cut = 3
    with pytest.raises(DownloadError, match="the same command goes on from there"):
        fetch.fetch("letters", root=tmp_path)
    assert (tmp_path / "letters" / "letters-ubyte.gz.part").stat().st_size == 3 * fetch.ATTEMPTS
    assert not (tmp_path / "letters" / "letters-ubyte.gz").exists()


@pytest.mark.parametrize(
    "content", [gzip.compress(b"something else", mtime=0), b"<html>moved</html>"], ids=["another file", "a web page"]
)
def test_wrong_content_is_refused_and_not_kept(
    server: Server, one_file: bytes, tmp_path: Path, content: bytes
) -> None:
    server.contents["letters-ubyte.gz"] = content
    with pytest.raises(DownloadError, match="did not give the canonical"):
        fetch.fetch("letters", root=tmp_path)
    assert list((tmp_path / "letters").iterdir()) == []


def test_a_damaged_file_on_disk_is_replaced(server: Server, one_file: bytes, tmp_path: Path) -> None:
    (tmp_path / "letters").mkdir()
    target = tmp_path / "letters" / "letters-ubyte.gz"
    target.write_bytes(one_file[:-20])
    assert [row.state for row in fetch.status(root=tmp_path)] == ["damaged"]
    fetch.fetch("letters", root=tmp_path)
    assert target.read_bytes() == one_file


def test_an_address_that_is_not_there_is_named(server: Server, one_file: bytes, tmp_path: Path) -> None:
    with pytest.raises(DownloadError, match="404"):
        fetch.fetch("letters", root=tmp_path, base_url=server.url + "elsewhere/")
    server.close()
    with pytest.raises(DownloadError, match="could not be fetched"):
        fetch.fetch("letters", root=tmp_path)


def test_an_archive_gives_only_the_named_members_and_no_path_of_its_own(
    server: Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    raw, packed = b"\x01" * 3073, io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        for name, content in (("batches/one.bin", raw), ("../../escape.bin", b"bad"), ("batches/readme.html", b"hi")):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    server.contents["all.tar.gz"] = packed.getvalue()
    file = DataFile("one.bin", hashlib.sha256(raw).hexdigest(), len(raw))
    whole = hashlib.sha256(packed.getvalue()).hexdigest()
    datasets = {"tiles": Dataset("tiles", (file,), server.url, archive="all.tar.gz", archive_sha256=whole)}
    monkeypatch.setattr(files, "DATASETS", datasets)
    monkeypatch.setattr(fetch, "DATASETS", datasets)
    fetch.fetch("tiles", root=tmp_path / "data")
    assert [path.name for path in (tmp_path / "data" / "tiles").iterdir()] == ["one.bin"]
    assert not list(tmp_path.rglob("escape.bin"))
