"""assay audit same: does one model named by import path compute what another one computes?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from assay.cli.finish import finish, rerun
from assay.cli.typed.options import Device, OneReport, RootSeed
from assay.cli.typed.samples import SamplePath, Shape, sample_of
from assay.cli.typed.subjects import load, make

if TYPE_CHECKING:
    from assay.results import Finding

Path = Annotated[str, typer.Argument(help="pkg.module:name or file.py:name of an nn.Module, or of what makes one.")]


def audit_same(
    reference: Path,
    candidate: Path,
    sample: SamplePath = None,
    *,
    shape: Shape = None,
    budget: Annotated[
        float | None, typer.Option(help="Largest relative error you accept; default: rounding only.")
    ] = None,
    gradients: Annotated[bool, typer.Option("--gradients/--no-gradients", help="Compare gradients too.")] = True,
    call: Annotated[
        str | None, typer.Option(help="pkg.module:name of call(model, inputs), if model(inputs) is not enough.")
    ] = None,
    without: Annotated[
        list[str] | None, typer.Option(help="What the candidate does not claim ('no row'); may be repeated.")
    ] = None,
    seed: RootSeed = 0,
    device: Device = None,
    out: OneReport = None,
) -> None:
    """Does the candidate compute what the reference computes? The first module that differs is named."""
    finding = run(reference, candidate, sample=sample, shape=shape, budget=budget, gradients=gradients, call=call,
                  without=tuple(without or ()), seed=seed, device=device)  # fmt: skip
    finish(finding, out)


def run(
    reference: str,
    candidate: str,
    *,
    sample: str | None = None,
    shape: str | None = None,
    budget: float | None = None,
    gradients: bool = True,
    call: str | None = None,
    without: tuple[str, ...] = (),
    seed: int = 0,
    device: str | None = None,
) -> Finding:
    """The finding for two models named on the command line."""
    from torch import nn

    from assay.audits.same import audit_same as audit

    data = sample_of(sample, shape, reference)
    how = None if call is None else load(call)
    ours, theirs = make(reference, nn.Module), make(candidate, nn.Module)
    found = audit(ours, theirs, data, seed=seed, budget=budget, gradients=gradients, call=how, without=without,
                  device=device, name=f"{candidate} against {reference}")  # fmt: skip
    again = rerun("same", reference, sample=sample, shape=shape, budget=budget, call=call, without=without, seed=seed,
                  device=device)  # fmt: skip
    again = again.replace(reference, f"{reference} {candidate}", 1) + ("" if gradients else " --no-gradients")
    return found.model_copy(update={"rerun": again})
