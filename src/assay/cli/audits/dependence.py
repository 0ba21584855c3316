"""assay audit dependence: does an output of a model named by import path see what it must not see?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from assay.cli.finish import finish, rerun
from assay.cli.typed.options import Device, ModelPath, OneReport, RootSeed
from assay.cli.typed.samples import SamplePath, Shape, sample_of
from assay.cli.typed.subjects import load, make, module

if TYPE_CHECKING:
    from assay.results import Finding


def audit_dependence(
    model: ModelPath,
    depends: Annotated[
        str, typer.Option(help="pkg.module:name of a declaration (dep.causal(), ...), or: causal, rows.")
    ],
    sample: SamplePath = None,
    *,
    shape: Shape = None,
    call: Annotated[
        str | None, typer.Option(help="pkg.module:name of call(model, inputs), if model(inputs) is not enough.")
    ] = None,
    seed: RootSeed = 0,
    device: Device = None,
    out: OneReport = None,
) -> None:
    """Which outputs depend on which inputs, and is that as declared? The first leaking module is named."""
    finding = run(model, depends, sample=sample, shape=shape, call=call, seed=seed, device=device)
    finish(finding, out)


def run(
    model: str, depends: str, *, sample: str | None = None, shape: str | None = None, call: str | None = None,
    seed: int = 0, device: str | None = None,
) -> Finding:
    """The finding for a model and a declaration named on the command line."""
    from assay.audits.dependence import audit_dependence as audit

    data = sample_of(sample, shape, model)
    how = None if call is None else load(call)
    found = audit(module(model), data, _declared(depends), seed=seed, call=how, device=device, name=model)
    again = rerun("dependence", model, depends=depends, sample=sample, shape=shape, call=call, seed=seed,
                  device=device)
    return found.model_copy(update={"rerun": again})


def _declared(path: str) -> Any:
    """A declaration by import path, or one that needs no more than its name."""
    from assay.audits.dependence import declarations
    from assay.errors import InputError, unknown

    named: dict[str, Any] = {"causal": declarations.causal(), "rows": declarations.rows()}
    if path in named:
        return named[path]
    if ":" not in path:
        raise InputError(unknown("declaration", path, [*named, "pkg.module:name"]))
    return make(path, *get_args(declarations.Declaration))
