"""What ``assay audit credit`` is given by name: a test batch, trained weights and the rule's feedback matrices."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.cli.typed.subjects import call, load
from assay.errors import expected
from assay.protocols import Rule

if TYPE_CHECKING:
    from torch import Tensor, nn


def batch(data: str, samples: int) -> tuple[Tensor, Tensor]:
    """The first samples of the test part of a task, of a file, or of a pair at an import path."""
    if data.endswith(".safetensors"):
        stored = tensors(Path(data))
        if not {"x", "y"} <= stored.keys():
            raise expected("tensors x and y in the file", given=f"{data} with {', '.join(sorted(stored)) or 'nothing'}")
        targets = stored["y"][:samples]
        return stored["x"][:samples], targets if targets.is_floating_point() else targets.long()
    if ":" in data:
        found: Any = load(data)
        pair = call(data, found) if callable(found) else found
        if hasattr(pair, "train") and hasattr(pair, "test"):
            return pair.test.x[:samples], pair.test.y[:samples]
        if not isinstance(pair, tuple | list) or len(pair) != 2:
            raise expected("a task or a pair (x, y) of tensors, or a function that returns one",
                           given=f"{data}: {type(pair).__name__}")
        return pair[0][:samples], pair[1][:samples]
    from assay import tasks

    split = tasks.load(data).test
    return split.x[:samples], split.y[:samples]


def load_weights(model: nn.Module, path: Path) -> None:
    """Put the tensors of a file into ``model``; every one must have its place and every place its tensor."""
    stored = tensors(path)
    _same(path, stored, {name: tuple(value.shape) for name, value in model.state_dict().items()}, type(model).__name__)
    model.load_state_dict(stored)


def load_feedback(rule: Rule, path: Path, model: nn.Module, *, x: Tensor, y: Tensor, named: str) -> None:
    """Give ``rule`` the matrices of a file, which must be those it uses on this model.

    A matrix the rule does not find is drawn at random when it is first used, so the wrong file would go unnoticed: one
    backward pass of a copy, which draws them all, shows which there must be.
    """
    from assay.audits.credit.stream import in_precision
    from assay.audits.explained import explained

    if not hasattr(rule, "load_state_dict") or not hasattr(rule, "state_dict"):
        raise expected("a rule with feedback matrices for --feedback", given=f"--rule {named}")
    stored, twin = tensors(path), copy.deepcopy(rule)
    with explained(x):
        twin.backward(*(in_precision(model, x[:2], None)), y[:2])
    needed = {name: tuple(value.shape) for name, value in twin.state_dict().items()}
    _same(path, stored, needed, f"rule {named}")
    rule.load_state_dict(stored)


def tensors(path: Path) -> dict[str, Tensor]:
    """The tensors of a safetensors file; nothing is ever unpickled."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    save = "save with safetensors.torch.save_file(state_dict, path)"
    if not path.is_file() or path.suffix != ".safetensors":
        raise expected("a .safetensors file", given=str(path), do=save)
    try:
        return dict(load_file(path))
    except SafetensorError as error:
        raise expected("a whole .safetensors file", given=f"{path}: {error}", do=save) from None


def _same(path: Path, stored: Mapping[str, Tensor], needed: Mapping[str, tuple[int, ...]], owner: str) -> None:
    """An error that names what a file lacks, has too much, or holds in another shape."""
    shapes = {name: tuple(value.shape) for name, value in stored.items() if name in needed}
    told = [
        _few("lacks", needed.keys() - stored.keys()),
        _few("has the unknown", stored.keys() - needed.keys()),
        _few("differs in", (f"{n} {s} instead of {needed[n]}" for n, s in shapes.items() if s != needed[n])),
    ]
    if any(told):
        raise expected(f"the tensors of {owner}", given=f"{path}, which {'; '.join(filter(None, told))}",
                       do="save the state_dict of the very same model and rule")


def _few(verb: str, names: Iterable[str], *, most: int = 3) -> str:
    found = sorted(names)
    more = f" and {len(found) - most} more" if len(found) > most else ""
    return f"{verb} {', '.join(found[:most])}{more}" if found else ""
