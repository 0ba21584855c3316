"""assay audit gradient, inference, stability, memory and kernel: audits of rules and relaxations, by import path."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from assay.cli.finish import finish, rerun
from assay.cli.typed.options import Device, ModelPath, OneReport, RootSeed
from assay.cli.typed.samples import sample_place
from assay.cli.typed.subjects import learning_rule, load, make, module, on
from assay.errors import expected

if TYPE_CHECKING:
    from torch import nn

    from assay.results import Finding

Sample = Annotated[
    str | None, typer.Option(help="pkg.module:name of (x, y), or of a function; by default `sample` beside the model.")
]
RuleName = Annotated[
    str, typer.Option(help="A rule by name (assay bench --help lists them), or pkg.module:name of one.")
]
Beta = Annotated[float, typer.Option(help="Nudge of eqprop.")]
NudgeName = Annotated[str, typer.Option(help="Estimator of eqprop: one-sided, centered, holomorphic(8), tangent, ...")]


def audit_gradient(
    model: ModelPath,
    sample: Sample = None,
    rule: RuleName = "eqprop",
    *,
    beta: Beta = 0.1,
    nudge: NudgeName = "centered",
    limit: Annotated[float | None, typer.Option(help="Largest relative error of any parameter.")] = None,
    seed: RootSeed = 0,
    device: Device = None,
    out: OneReport = None,
) -> None:
    """Does the learning rule give the gradient of the loss, parameter by parameter?"""
    from assay.audits.equilibrium.gradient import audit_gradient as audit

    x, y = _pair(model, sample)
    with on(device):
        built = module(model)
        learning = _rule(rule, built, beta, nudge=nudge, seed=seed)
        finding = audit(built, x, y, rule=learning, seed=seed, limit=limit, subject=model)
    again = rerun("gradient", model, sample=sample, **_named(rule, beta, nudge), limit=limit, seed=seed, device=device)
    _finish(finding, again, out)


def audit_inference(
    model: ModelPath,
    sample: Sample = None,
    steps: Annotated[int | None, typer.Option(help="Steps of inference (default: the form's own).")] = None,
    *,
    rate: Annotated[float | None, typer.Option(help="Rate of inference (default: the form's own).")] = None,
    beta: Annotated[float, typer.Option(help="Weight of the loss in the energy.")] = 1.0,
    form: Annotated[str, typer.Option(help="states, errors or fixed.")] = "states",
    device: Device = None,
    out: OneReport = None,
) -> None:
    """Is this predictive coding at the settings used, or backprop scaled layer by layer?"""
    from assay.audits.equilibrium.inference import audit_inference as audit
    from assay.rules import PredictiveCoding

    x, y = _pair(model, sample)
    chosen: Any = form
    with on(device):
        finding = audit(module(model), x, y, rule=PredictiveCoding(chosen, steps, rate, beta), subject=model)
    again = rerun("inference", model, sample=sample, steps=steps, rate=rate, beta=beta, form=form, device=device)
    _finish(finding, again, out)


def audit_stability(
    model: ModelPath,
    sample: Sample = None,
    limit: Annotated[float, typer.Option(help="Largest Lipschitz constant of one step.")] = 1.0,
    *,
    sweeps: Annotated[int, typer.Option(help="Sweeps the relaxation is followed for.")] = 200,
    seed: RootSeed = 0,
    device: Device = None,
    out: OneReport = None,
) -> None:
    """Is the map that the model repeats a contraction on these inputs, and does it come to rest?"""
    from assay.audits.equilibrium.stability import audit_stability as audit

    given = _loaded(model, sample)
    x = given[0] if isinstance(given, tuple) else given
    with on(device):
        finding = audit(module(model), x, limit=limit, sweeps=sweeps, seed=seed, subject=model)
    again = rerun("stability", model, sample=sample, limit=limit, sweeps=sweeps, seed=seed, device=device)
    _finish(finding, again, out)


def audit_memory(
    model: ModelPath,
    sample: Sample = None,
    rule: RuleName = "eqprop",
    *,
    beta: Beta = 0.1,
    nudge: NudgeName = "centered",
    limit: Annotated[float, typer.Option(help="Largest growth of the peak, as a share.")] = 0.05,
    device: Device = None,
    out: OneReport = None,
) -> None:
    """Does a gradient need more memory the longer the relaxation runs?"""
    from assay.audits.equilibrium.memory import audit_memory as audit

    x, y = _pair(model, sample)
    with on(device):
        built = module(model)
        finding = audit(built, x, y, rule=_rule(rule, built, beta, nudge=nudge, seed=0), limit=limit, subject=model)
    again = rerun("memory", model, sample=sample, **_named(rule, beta, nudge), limit=limit, device=device)
    _finish(finding, again, out)


def audit_kernel(
    kernel: Annotated[str, typer.Argument(help="eager, fast, population, or pkg.module:name of a kernel.")] = "fast",
    seed: RootSeed = 0,
    beta: Annotated[float, typer.Option(help="Nudge.")] = 0.2,
    out: OneReport = None,
) -> None:
    """Does fast code compute what the NumPy reference computes, sweep by sweep and gradient by gradient?"""
    from assay.audits.equilibrium.kernel import audit_kernel as audit

    subject: Any = load(kernel) if ":" in kernel else kernel
    finding = audit(subject, seed=seed, beta=beta, subject=kernel)
    _finish(finding, rerun("kernel", kernel, seed=seed, beta=beta), out)


def _rule(name: str, model: nn.Module, beta: float, *, nudge: str, seed: int) -> Any:
    from assay.rules import EqProp

    return EqProp(beta=beta, nudge=nudge) if name == "eqprop" else learning_rule(name, model, seed=seed)


def _named(rule: str, beta: float, nudge: str) -> dict[str, Any]:
    """The options that choose the rule; a nudge belongs to eqprop alone."""
    return {"rule": rule, "beta": beta, "nudge": nudge} if rule == "eqprop" else {"rule": rule}


def _loaded(model: str, sample: str | None) -> Any:
    from torch import Tensor

    path = sample if sample is not None else sample_place(model)
    if path is None:
        raise expected("example inputs", given=f"no `sample` beside {model}", do="write one there or pass --sample")
    return make(path, Tensor, tuple, list)


def _pair(model: str, sample: str | None) -> tuple[Any, Any]:
    given = _loaded(model, sample)
    if not isinstance(given, tuple | list) or len(given) != 2:
        raise expected("a sample (x, y): inputs and class indices", given=type(given).__name__, do="pass --sample")
    return given[0], given[1]


def _finish(finding: Finding, again: str, out: Path | None) -> None:
    """Print the finding, write its renderings if asked, and leave with the code of its verdict."""
    finish(finding.model_copy(update={"rerun": again}), out)
