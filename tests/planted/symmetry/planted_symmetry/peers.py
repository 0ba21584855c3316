"""What other checkers say about the same models: e3nn's ``assert_equivariant`` and the plain template of a checklist.

The template is the loop that most people write: random transformations, a norm, a fixed tolerance. As published it
does not run; here it is repaired just enough to run (transformations are sampled, outputs may be several, the gradient
test uses one transformation for both sides and an invariant loss).
"""

from __future__ import annotations

import contextlib
import copy
import io
import math
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from assay import symmetry as sym
from assay.errors import InputError
from assay.seeding import derive, torch_generator
from planted_symmetry.plant import Family, call, tensors
from planted_symmetry.truth import bind, tensors_of

TESTS, TOLERANCE, GRADIENT_TOLERANCE = 100, 1e-5, 1e-4
"""The defaults of the template."""


def e3nn_accepts(model: nn.Module, family: Family, *, double: bool) -> bool | None:
    """Whether ``e3nn.util.test.assert_equivariant`` passes with its default settings; None if it does not apply.

    ``double`` runs model and test in float64, where its tolerance is 1e-9; else in float32, where it is 1e-3.
    """
    if family.name not in ("EGNN", "e3nn"):
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from e3nn.util.test import assert_equivariant

    dtype = torch.float64 if double else torch.float32
    model = copy.deepcopy(model).to(dtype)
    x = family.sample(16, torch_generator(0, "peers", family.name))
    with _global_state(dtype, derive(0, "e3nn")), torch.no_grad():
        try:
            if family.name == "e3nn":
                assert_equivariant(model, [x.to(dtype)], ["2x0e+2x1o"], ["1x0e+2x1o+1x2e"])
            else:
                inputs = [x["pos"].to(dtype), x["kind"].to(dtype)]
                assert_equivariant(lambda p, k: tuple(_columns(model(pos=p, kind=k))), inputs,
                                   ["cartesian_points", "4x0e"], ["0e", "1o"])  # fmt: skip
        except AssertionError:
            return False
    return True


def template_accepts(model: nn.Module, family: Family, *, tests: int = TESTS) -> bool:
    """``test_model_equivariance`` of the template: every relative error below 1e-5, in the dtype of the model."""
    generator = torch_generator(0, "template", family.name)
    x = family.sample(16, generator)
    group, dtype = bind(family.symmetry, x), next(model.parameters()).dtype
    model.eval()
    with torch.no_grad():
        y = _cast(call(model, _cast(x, dtype)), dtype)
        for _ in range(tests):
            element = group.sample(1, generator)
            there = tensors(call(model, _moved(family.symmetry.inputs, element, x, dtype)))
            wanted = tensors(_moved(family.symmetry.outputs, element, y, dtype))
            for a, b in zip(there, wanted, strict=True):
                if not float(torch.norm(a - b)) / (float(torch.norm(b)) + 1e-8) < TOLERANCE:
                    return False
    return True


def template_names(model: nn.Module, family: Family) -> str | None:
    """``audit_all_layers`` of the template: the first layer that fails when it is fed with the model's own input.

    A layer holds if any of the declared output transformations fits what it returns.
    """
    generator = torch_generator(0, "template layers", family.name)
    x = family.sample(16, generator)
    group, dtype = bind(family.symmetry, x), next(model.parameters()).dtype
    element = group.sample(1, generator)
    for name, layer in model.named_modules():
        if not name:
            continue
        try:
            with torch.no_grad(), contextlib.redirect_stderr(io.StringIO()):
                there = call(layer, _moved(family.symmetry.inputs, element, x, dtype))
                here = call(layer, _cast(x, dtype))
        except Exception:  # a layer that cannot take the model's input cannot be tested by the template
            continue
        gaps = [_gap(rep, element, here, there) for rep in tensors_of(family.symmetry.outputs)]
        if not min(gaps) < TOLERANCE:
            return name
    return None


def _gap(rep: sym.Representation, element: sym.Elements, here: Any, there: Any) -> float:
    try:
        wanted = [rep.act(element, one.double().unsqueeze(0))[0] for one in tensors(here)]
        return max(float(torch.norm(a - b)) for a, b in zip(tensors(there), wanted, strict=True))
    except (RuntimeError, IndexError, InputError):  # the transformation does not fit the shape
        return math.inf


def template_gradient_accepts(model: nn.Module, family: Family) -> bool:
    """``test_gradient_equivariance`` of the template: one transformation, absolute tolerance 1e-4."""
    generator = torch_generator(0, "template gradient", family.name)
    x = family.sample(16, generator)
    group, dtype = bind(family.symmetry, x), next(model.parameters()).dtype
    element = group.sample(1, generator)
    still = sym.Elements({name: torch.zeros_like(part) if name == "translation" else part
                          for name, part in element.parts.items()})  # fmt: skip
    model = copy.deepcopy(model).train()
    here = _gradients(model, _cast(x, dtype))
    there = _gradients(model, _moved(family.symmetry.inputs, element, x, dtype))
    reps = tensors_of(family.symmetry.inputs)
    wanted = [rep.act(still, grad.unsqueeze(0))[0] for rep, grad in zip(reps, here, strict=True)]
    return all(float(torch.norm(a - b)) < GRADIENT_TOLERANCE for a, b in zip(there, wanted, strict=True))


def _gradients(model: nn.Module, x: Any) -> list[Tensor]:
    leaves = [one.requires_grad_(True) for one in tensors(x)]
    loss = sum(y.square().sum() for y in tensors(call(model, x)))
    return [g.double() for g in torch.autograd.grad(loss, leaves)]


def _columns(outputs: dict[str, Tensor]) -> list[Tensor]:
    return [outputs["energy"].unsqueeze(-1), outputs["vectors"]]


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return value.to(dtype).clone()
    return {name: one.to(dtype).clone() for name, one in value.items()}


def _moved(declared: Any, element: sym.Elements, value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        return declared.act(element, value.double().unsqueeze(0))[0].to(dtype)
    return {name: declared[name].act(element, one.double().unsqueeze(0))[0].to(dtype) for name, one in value.items()}


@contextlib.contextmanager
def _global_state(dtype: torch.dtype, seed: int) -> Iterator[None]:
    """e3nn draws from the global generator and reads the default dtype: both are put back."""
    before = torch.get_default_dtype()
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(seed % 2**31)
        torch.set_default_dtype(dtype)
        try:
            yield
        finally:
            torch.set_default_dtype(before)
