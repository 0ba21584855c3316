"""``assay audit credit``: audit how a model of your own uses its depth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.finish import finish, rerun
from assay.cli.typed.options import Device, ModelPath, OneReport, RootSeed

if TYPE_CHECKING:
    from assay.results import Finding


def audit_credit(
    model: ModelPath,
    data: Annotated[
        str,
        typer.Option(
            help="A task (digits, cifar10, ...), a .safetensors file with x and y, or pkg.module:name of a pair (x, y)."
        ),
    ],
    *,
    weights: Annotated[Path | None, typer.Option(help="A .safetensors file with the trained weights.")] = None,
    blocks: Annotated[str | None, typer.Option(help='Glob that names the blocks, such as "encoder.layers.*".')] = None,
    rule: Annotated[
        str,
        typer.Option(
            help="The rule that trained it, by name (assay bench --help lists them), or pkg.module:name of a rule or "
            "of a function of the model that makes one."
        ),
    ] = "backprop",
    feedback: Annotated[
        Path | None, typer.Option(help="A .safetensors file with the rule's feedback matrices.")
    ] = None,
    epochs: Annotated[int, typer.Option(help="Train the depth baselines for this many epochs; 0 leaves D3 out.")] = 0,
    seeds: Annotated[int, typer.Option(help="Seeds of the baselines.")] = 3,
    samples: Annotated[int, typer.Option(help="Test samples audited.")] = 128,
    seed: RootSeed = 0,
    device: Device = None,
    out: OneReport = None,
) -> None:
    """Does the learning signal reach every block, can it be measured, and does training the blocks pay?

    With --epochs the frozen, backprop and rule arms of a named task are trained first (cells in assay-runs/cells).
    Exit code: 0 PASS, 1 FAIL, 3 partial or undecided, 4 ERROR.
    """
    asked: dict[str, Any] = {name: value for name, value in locals().items() if name != "out"}
    finish(run(**asked), out)


def run(
    model: str,
    *,
    data: str,
    weights: Path | None = None,
    blocks: str | None = None,
    rule: str = "backprop",
    feedback: Path | None = None,
    epochs: int = 0,
    seeds: int = 3,
    samples: int = 128,
    seed: int = 0,
    device: str | None = None,
) -> Finding:
    """The finding for a model and data named on the command line."""
    asked: dict[str, Any] = {name: value for name, value in locals().items() if name != "model"}
    from assay.audits.credit import audit_credit as audit
    from assay.cli.audits import credit_inputs as inputs
    from assay.cli.typed.paths import as_module_path
    from assay.cli.typed.subjects import learning_rule, module, on
    from assay.errors import expected
    from assay.learning.subjects import subject_of
    from assay.studies.baselines import train_baselines

    for option, given, least in (("--samples", samples, 2), ("--epochs", epochs, 0), ("--seeds", seeds, 1)):
        if given < least:
            raise expected(f"{option} of at least {least}", given=given)
    with on(device):
        subject = module(model)
        if weights is not None:
            inputs.load_weights(subject, weights)
        _, x, y = subject_of(subject, *inputs.batch(data, samples))
        learning = learning_rule(rule, subject, seed=seed, blocks=blocks)
        if feedback is not None:
            inputs.load_feedback(learning, feedback, subject, x=x, y=y, named=rule)
        baselines = None
        if epochs:
            baselines = train_baselines(
                as_module_path(model), data, rule=as_module_path(rule), blocks=blocks, epochs=epochs,
                seeds=range(seed, seed + seeds), device=device,
            )
        found = audit(subject, x, y, rule=learning, baselines=baselines, blocks=blocks, seed=seed, subject=model)
    command = rerun("credit", model, **asked | {"epochs": epochs or None, "seeds": seeds if epochs else None})
    told = found.limitations
    if weights is None:
        told = (f"No --weights: the weights are those that {model} makes, untrained unless it loads some.", *told)
    return found.model_copy(update={"rerun": command, "limitations": told})
