"""Options that several commands have, each with one name, one meaning and one line of help."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from assay.cli.finish import place

ModelPath = Annotated[
    str, typer.Argument(help="pkg.module:name or file.py:name of an nn.Module, or of what makes one.")
]
RootSeed = Annotated[int, typer.Option(help="Root seed.")]
OneReport = Annotated[
    Path | None, typer.Option(help="Folder of the report, or one .html, .md, .json or .xml file.", callback=place)
]

Seeds = Annotated[int | None, typer.Option(help="Number of seeds; the budget's by default.")]
FirstSeed = Annotated[int | None, typer.Option(help="First seed (default: 42).")]
Data = Annotated[Path | None, typer.Option(help="Folder of datasets (default: ASSAY_DATA).")]
Report = Annotated[Path | None, typer.Option(help="Folder of the report (default: assay-runs/<id>).")]

Device = Annotated[str | None, typer.Option(help="Where to compute: cpu, cuda, mps or auto.")]

Workers = Annotated[int | None, typer.Option(help="Worker processes; one per core by default.")]
Engine = Annotated[str | None, typer.Option(help="local (processes on this machine; default) or ray.")]
Address = Annotated[str | None, typer.Option(help="Ray cluster: auto, host:port or ray://host:port.")]
Cells = Annotated[
    str | None, typer.Option(help="Folder or URL (s3://..., gs://...) of finished cells; drivers may share it.")
]
Grouping = Annotated[
    bool, typer.Option("--grouping/--no-grouping", help="Train seeds of narrow networks side by side.")
]
