"""assay audit symmetry: audit a model named by import path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.finish import finish, rerun
from assay.cli.options import Device, ModelPath, OneReport, RootSeed
from assay.cli.subjects import load, make, placed

if TYPE_CHECKING:
    from assay.results import Finding


def audit_symmetry(
    model: ModelPath,
    symmetry: Annotated[str, typer.Option(help="pkg.module:name of a Symmetry, or of a function that returns one.")],
    sample: Annotated[
        str | None, typer.Option(help="pkg.module:name of example inputs; by default `sample` beside the symmetry.")
    ] = None,
    against: Annotated[
        str | None, typer.Option(help="pkg.module:name of an older model: was its defect mended?")
    ] = None,
    out: OneReport = None,
    seed: RootSeed = 0,
    budget: Annotated[
        float | None, typer.Option(help="Largest relative error you accept; default: rounding only.")
    ] = None,
    rare: Annotated[
        float, typer.Option(help="The rarest defect to be met with 95 %: a share of inputs and of group elements.")
    ] = 0.05,
    inputs: Annotated[int | None, typer.Option(help="Inputs used at most; default: as --rare needs.")] = None,
    transforms: Annotated[int | None, typer.Option(help="Group elements per generator; as --rare needs.")] = None,
    skip: Annotated[list[str] | None, typer.Option(help="A part to leave out (UNTESTED); may be repeated.")] = None,
    device: Device = None,
) -> None:
    """Does the model have the symmetry it claims? Where does it break, why, and how is it mended?"""
    finding = run(
        model,
        symmetry,
        sample=sample,
        against=against,
        seed=seed,
        budget=budget,
        rare=rare,
        inputs=inputs,
        transforms=transforms,
        skip=tuple(skip or ()),
        device=device,
    )
    finish(finding, out)


def run(
    model: str,
    symmetry: str,
    *,
    sample: str | None = None,
    against: str | None = None,
    seed: int = 0,
    budget: float | None = None,
    rare: float = 0.05,
    inputs: int | None = None,
    transforms: int | None = None,
    skip: tuple[str, ...] = (),
    device: str | None = None,
) -> Finding:
    """The finding for models named by import path."""
    from assay.audits.symmetry.audit import audit_symmetry as audit
    from assay.audits.symmetry.versus import against as compare

    spec = _made(symmetry)
    where = sample if sample is not None else f"{symmetry.partition(':')[0]}:sample"
    data = load(where)
    how: dict[str, Any] = {
        "seed": seed, "budget": budget, "rare": rare, "inputs": inputs, "transforms": transforms
    }  # fmt: skip
    again = rerun("symmetry", model, symmetry=symmetry, sample=sample, against=against, **how, skip=skip, device=device)
    if against is not None:
        older, data = placed(_made(against), data, device=device)
        (newer,) = placed(_made(model), device=device)
        found = compare(older, newer, data, spec, **how)
        return found.model_copy(update={"rerun": again, "subject": f"{model} against {against}"})
    found = audit(_made(model), data, spec, **how, skip=skip, device=device, name=model)
    paths = {"model": model, "sample": where, "symmetry": symmetry}
    issues = tuple(issue.model_copy(update={"script": filled_in(issue.script, paths)}) for issue in found.issues)
    return found.model_copy(update={"rerun": again, "issues": issues})


def filled_in(script: str, paths: Mapping[str, str]) -> str:
    """A script of an issue with the lines that a reader would fill in taken from the command line."""
    for name, path in paths.items():
        how = f'load("{path}")' if name == "sample" else f'make("{path}", torch.nn.Module, sym.Symmetry)'
        script = re.sub(rf"^{name} = \.\.\. +#", f"{name} = {how}   #", script, flags=re.MULTILINE)
    return script.replace("# what was audited; fill in", "from assay.cli.subjects import load, make")


def _made(path: str) -> Any:
    """The object at a path, called if it is a class or function."""
    from torch import nn

    from assay.audits.symmetry.spec import Symmetry

    return make(path, nn.Module, Symmetry)
