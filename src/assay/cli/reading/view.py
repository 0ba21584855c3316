"""``assay view``: the runs of a folder in the browser, on this machine only."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.terminal.common import console


def view_command(
    folder: Annotated[Path, typer.Argument(help="A folder of runs, or one run.", metavar="[DIR]")] = Path("assay-runs"),
    port: Annotated[int, typer.Option("--port", help="A fixed port; 0 takes a free one.")] = 0,
    open_browser: Annotated[bool, typer.Option("--open/--no-open", help="Open the address in a browser.")] = False,
) -> None:
    """List, filter, open and compare runs, see trends over git revisions, follow a running verification."""
    from assay.reports.viewer.library import Library
    from assay.reports.viewer.server import Viewer

    viewer = Viewer(Library(folder), port=port)
    console().print(f"Viewing {folder} at\n\n  {viewer.address}\n\nThis machine only. Ctrl-C stops it.", soft_wrap=True)
    if open_browser:
        import webbrowser

        webbrowser.open(viewer.address)
    try:
        viewer.serve_forever()
    except KeyboardInterrupt:
        console().print("stopped")
    finally:
        viewer.server_close()
