"""Serves the viewer to this machine only, under an address nobody else can guess."""

from __future__ import annotations

import http.server
import secrets
from collections.abc import Callable
from http import HTTPStatus
from urllib.parse import parse_qs, quote, unquote, urlsplit

from assay.errors import AssayError, expected
from assay.reports.compare_page import compare_html
from assay.reports.formats import render
from assay.reports.html import html
from assay.reports.viewer.library import Library
from assay.reports.viewer.pages import list_page, progress_json, trends_page

MOST_COMPARED = 12
DOWNLOADS = {"json": "application/json", "md": "text/markdown", "csv": "text/csv"}
HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
}


class Viewer(http.server.ThreadingHTTPServer):
    """A viewer of one library, bound to the loopback address. ``address`` holds the secret."""

    daemon_threads = True

    def __init__(self, library: Library, *, port: int = 0) -> None:
        if not 0 <= port <= 65535:
            raise expected("a port from 0 to 65535", given=str(port))
        self.library = library
        self.token = secrets.token_urlsafe(24)
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as error:
            raise expected(f"a free port, not {port}", given=str(error.strerror), do="leave --port out") from None

    @property
    def address(self) -> str:
        """What to open in a browser."""
        return f"http://127.0.0.1:{self.server_port}/{self.token}/"

    @property
    def hosts(self) -> tuple[str, ...]:
        """Host headers a browser on this machine sends; any other name means a rebound DNS entry."""
        return (f"127.0.0.1:{self.server_port}", f"localhost:{self.server_port}")


class _Handler(http.server.BaseHTTPRequestHandler):
    server: Viewer
    protocol_version = "HTTP/1.1"
    server_version = "assay"
    sys_version = ""
    timeout = 30

    def do_GET(self) -> None:
        """Answer one request; whatever goes wrong is a status and a sentence."""
        if self.headers.get("Host", "") not in self.server.hosts:
            return self._send(HTTPStatus.FORBIDDEN, "this viewer answers only to 127.0.0.1\n")
        parts = urlsplit(self.path)
        _, _, rest = parts.path.partition("/")
        token, slash, rest = rest.partition("/")
        # Bytes, because comparing text in constant time works for ASCII only.
        if not slash or not secrets.compare_digest(unquote(token).encode(), self.server.token.encode()):
            return self._send(HTTPStatus.NOT_FOUND, "not found\n")
        try:
            return self._answer([unquote(piece) for piece in rest.split("/")], parse_qs(parts.query))
        except AssayError as error:
            return self._send(HTTPStatus.NOT_FOUND, f"{error}\n")

    do_HEAD = do_GET  # noqa: N815

    def _answer(self, pieces: list[str], query: dict[str, list[str]]) -> None:
        library = self.server.library
        match pieces:
            case [""]:
                self._page(lambda: list_page(library.entries(), folder=str(library.root)))
            case ["progress.json"]:
                self._send(HTTPStatus.OK, progress_json(library.running()), "application/json")
            case ["trends"]:
                self._page(lambda: trends_page(library.entries()))
            case ["compare"]:
                names = query.get("run", [])[:MOST_COMPARED]
                runs = sorted((library.run(name) for name in dict.fromkeys(names)), key=lambda run: run.created)
                self._page(lambda: compare_html(runs, back="./"))
            case ["runs", name, ""]:
                self._page(lambda: html(library.run(name), back="../../"))
            case ["runs", name, wanted] if wanted.removeprefix("report.") in DOWNLOADS:
                kind = wanted.removeprefix("report.")
                self._send(HTTPStatus.OK, render(library.run(name), kind), DOWNLOADS[kind], download=f"{name}.{kind}")
            case _:
                self._send(HTTPStatus.NOT_FOUND, "not found\n")

    def _page(self, make: Callable[[], str]) -> None:
        self._send(HTTPStatus.OK, make(), "text/html")

    def _send(self, status: HTTPStatus, text: str, kind: str = "text/plain", download: str = "") -> None:
        body = text.encode("utf-8", errors="replace")
        self.send_response(status)
        for name, value in HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", f"{kind}; charset=utf-8")
        self.send_header("Content-Length", str(len(body)))
        if download:
            self.send_header("Content-Disposition", f"attachment; filename*=UTF-8''{quote(download, safe='')}")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        """Nothing: the address holds the secret and belongs in no log."""
