"""assay audit symmetry: audit a model named by import path."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.finish import finish, rerun
from assay.cli.typed.options import Device, ModelPath, OneReport, RootSeed
from assay.cli.typed.samples import SamplePath, Shape, beside, sample_of, sample_place
from assay.cli.typed.subjects import make
from assay.errors import InputError

if TYPE_CHECKING:
    from assay.results import Finding


def audit_symmetry(
    model: ModelPath,
    symmetry: Annotated[
        str | None,
        typer.Option(
            help='pkg.module:name of a Symmetry, or one spelt out: "C(4): image(-2, -1) -> invariant"; by default '
            "`symmetry` beside the model."
        ),
    ] = None,
    *,
    sample: SamplePath = None,
    shape: Shape = None,
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
    """Does the model have the symmetry it claims? Where does it break, why, and how is it mended?

    assay audit symmetry demo:leaky-cnn\n
    assay audit symmetry model.py:Net --shape 1,3,32,32 --symmetry "C(4): image(-2, -1) -> invariant"
    """
    finding = run(
        model,
        symmetry,
        sample=sample,
        shape=shape,
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
    symmetry: str | None = None,
    *,
    sample: str | None = None,
    shape: str | None = None,
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

    where = symmetry if symmetry is not None else _beside(model)
    spec = _declared(where)
    neighbours = (model,) if _spelt_out(where) else (model, where)
    data = sample_of(sample, shape, *neighbours)
    how: dict[str, Any] = {
        "seed": seed, "budget": budget, "rare": rare, "inputs": inputs, "transforms": transforms,
        "device": device,
    }  # fmt: skip
    again = rerun("symmetry", model, symmetry=symmetry, sample=sample, shape=shape, against=against, **how, skip=skip)
    if against is not None:
        found = compare(_made(against), _made(model), data, spec, **how)
        return found.model_copy(update={"rerun": again, "subject": f"{model} against {against}"})
    found = audit(_made(model), data, spec, **how, skip=skip, name=model)
    found_at = sample or (None if shape else sample_place(*neighbours))
    lines = {
        "model": _makes(model),
        "sample": f'of_shape("{shape}")' if found_at is None else f'load("{found_at}")',
        "symmetry": f'spelt("{where}")' if _spelt_out(where) else _makes(where),
    }
    issues = tuple(issue.model_copy(update={"script": filled_in(issue.script, lines)}) for issue in found.issues)
    return found.model_copy(update={"rerun": again, "issues": issues})


def filled_in(script: str, lines: Mapping[str, str]) -> str:
    """A script of an issue that takes what it needs from where the command line found it."""
    for name, how in lines.items():
        line = f"{name} = {how}   #".replace("\\", r"\\")  # a replacement reads backslashes
        script = re.sub(rf"^{name} = given\.{name} +#", line, script, flags=re.MULTILINE)
    needed = ["from assay.cli.typed.subjects import load, make"]
    needed += ["from assay.cli.typed.samples import of_shape"] if "of_shape(" in lines["sample"] else []
    needed += ["from assay.audits.symmetry.spelling import spelt"] if "spelt(" in lines["symmetry"] else []
    return re.sub(r"^# what was audited in this session.*\ngiven = .*$", "\n".join(needed), script, flags=re.MULTILINE)


def _makes(path: str) -> str:
    return f'make("{path}", torch.nn.Module, sym.Symmetry)'


def _spelt_out(symmetry: str) -> bool:
    return "->" in symmetry


def _beside(model: str) -> str:
    """Where ``symmetry`` stands beside the model; an error tells the ways to say which one is claimed."""
    place = beside("symmetry", model)
    if place is None:
        raise InputError(
            f"expected the symmetry that is claimed; {model.rpartition(':')[0]} has no `symmetry`. Spell it out, as in "
            '--symmetry "C(4): image(-2, -1) -> invariant", or name one with --symmetry file.py:name'
        )
    return place


def _declared(symmetry: str) -> Any:
    if not _spelt_out(symmetry):
        return _made(symmetry)
    from assay.audits.symmetry.spelling import spelt

    return spelt(symmetry)


def _made(path: str) -> Any:
    """The object at a path, called if it is a class or function."""
    from torch import nn

    from assay.audits.symmetry.spec import Symmetry

    return make(path, nn.Module, Symmetry)
