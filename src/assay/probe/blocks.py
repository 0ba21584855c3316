"""Find the blocks of an arbitrary model: the repeated modules that read and write its main stream.

One forward pass with hooks shows which module ran when, on which shapes. Modules of one class that ran once each, one
after the other, form a group; the group with the largest share of the parameters is taken. A model without such a
group is read as a chain of its parametrised leaves. The choice is always printable, and a glob overrides it.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import count, pairwise
from typing import Any, Literal

import torch
from torch import Tensor, nn

from assay.errors import AssayError, expected
from assay.probe.samples import find_layout, other_first_sample

CONTAINERS = (nn.Sequential, nn.ModuleList, nn.ModuleDict)


@dataclass(frozen=True)
class Blocks:
    """The blocks of a model in the order in which they run, and how the stream passes between them.

    ``link`` is "direct" when the output of one block is the input of the next (a skip connection, if any, is inside the
    block) and "outside" when something happens in between (the caller adds the skip, or applies an activation).
    ``after`` is the module whose input is the stream behind the last block, when that is not the last block's output.
    """

    names: tuple[str, ...]
    link: Literal["direct", "outside"]
    after: str | None
    how: str
    batch_axis: int = 0
    """The axis of the stream that counts samples: 1 in a transformer that runs time first."""
    broken: bool = False
    """True when something with weights of its own lies between two blocks: the stages of a net that changes shape."""
    shapes: tuple[tuple[int, ...], ...] = ()
    """The shape of the stream in front of each block and behind the last, one sample."""

    def __len__(self) -> int:
        return len(self.names)

    def __str__(self) -> str:
        return f"{len(self)} blocks ({self.how}): {', '.join(self.names)}"


def discover_blocks(model: nn.Module, x: Tensor, *, glob: str | None = None) -> Blocks:
    """The blocks of ``model`` on input ``x``; ``glob`` (``encoder.layers.*``) names them instead of searching.

    Raises InputError when there is nothing that can be called a block, or when the glob matches nothing usable.
    """
    calls = _record_calls(model, x)
    residual = False
    if glob is not None:
        group, how = _matching(model, calls, glob), f"chosen by '{glob}'"
    else:
        group, how, residual = _found(model, x, calls)
    linked = all(a.output is b.input for a, b in pairwise(group))
    if residual:  # each adds to its own input: what happens between two of them is not part of either
        return Blocks(tuple(call.name for call in group), "direct", None, how, _batch_axis(model, x, group[0]),
                      broken=not linked, shapes=_shapes(group))
    direct = len(group) > 1 and all(a.output is b.input for a, b in pairwise(group))
    after = None if direct else _module_after(group[-1], calls)
    if len(group) == 1:  # a single block links to nothing: the next module tells whether something is added behind it
        following = _module_after(group[0], calls)
        direct = following is None or following.input is group[0].output
        after = None if direct else following
    names = tuple(call.name for call in group)
    return Blocks(
        names, "direct" if direct else "outside", after.name if after else None, how, _batch_axis(model, x, group[0]),
        shapes=_shapes(group),
    )


@dataclass
class _Call:
    """One call of a module during the recorded forward pass; tensors are kept so that identity is meaningful."""

    name: str
    module: nn.Module
    begin: int
    input: Tensor | None
    end: int = -1
    output: Tensor | None = None

    @property
    def keeps_shape(self) -> bool:
        return self.input is not None and self.output is not None and self.input.shape == self.output.shape


def first_tensor(value: Any) -> Tensor | None:
    """The first tensor among positional arguments, keyword arguments or a (possibly nested) output."""
    if isinstance(value, Tensor):
        return value
    items = value.values() if isinstance(value, dict) else value if isinstance(value, tuple | list) else ()
    return next((found for item in items if (found := first_tensor(item)) is not None), None)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """The model in evaluation mode, each module put back into its own mode afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def _record_calls(model: nn.Module, x: Tensor) -> list[_Call]:
    """Every module call of one forward pass in order of its beginning; evaluation mode, no graph, hooks removed."""
    calls: list[_Call] = []
    open_calls: dict[int, list[_Call]] = {}
    clock = count()
    handles = []

    def begin(name: str, module: nn.Module, args: Any, kwargs: Any) -> None:
        call = _Call(name, module, next(clock), first_tensor((args, kwargs)))
        calls.append(call)
        open_calls.setdefault(id(module), []).append(call)

    def finish(module: nn.Module, output: Any) -> None:
        call = open_calls[id(module)].pop()
        call.end, call.output = next(clock), first_tensor(output)

    try:
        for name, module in model.named_modules():
            if name:
                handles.append(
                    module.register_forward_pre_hook(lambda m, a, k, name=name: begin(name, m, a, k), with_kwargs=True)
                )
                handles.append(module.register_forward_hook(lambda m, a, o: finish(m, o)))
        with evaluating(model), torch.no_grad():
            model(x)
    finally:
        for handle in handles:
            handle.remove()
    return calls


def _found(model: nn.Module, x: Tensor, calls: list[_Call]) -> tuple[list[_Call], str, bool]:
    """The residual blocks by structure, unless a chain of one class around other things holds clearly more."""
    from assay.probe.residual import residual_modules

    names = residual_modules(model, x)
    group = [call for call in calls if call.name in names and call.input is not None and call.output is not None]
    total = max(1, _size(model))
    share = sum(_size(call.module) for call in group) / total
    try:
        chain, how = _best_group(model, calls)
    except AssayError:
        chain, how = [], ""
        if not group:
            raise
    same = [call.name for call in chain] == [call.name for call in group]
    clearly_more = how.startswith("class ") and sum(_size(call.module) for call in chain) / total > share + 0.1
    # Stages hold more than their blocks (what changes the shape between them); the blocks are their finer reading.
    inside = share > 0.5 and all(any(outer.begin < call.begin and call.end < outer.end for outer in chain)
                                 for call in group)
    if not group or same or (clearly_more and not inside):
        return chain, how, False
    classes = ", ".join(dict.fromkeys(type(call.module).__name__ for call in group))
    return group, f"residual by structure ({classes}), {share:.0%} of the parameters", True


def _shapes(group: list[_Call]) -> tuple[tuple[int, ...], ...]:
    tensors = [*(call.input for call in group), group[-1].output]
    return tuple(tuple(t.shape[1:]) for t in tensors if t is not None)


def _best_group(model: nn.Module, calls: list[_Call]) -> tuple[list[_Call], str]:
    counts: dict[int, int] = {}
    for call in calls:
        counts[id(call.module)] = counts.get(id(call.module), 0) + 1
    once = [c for c in calls if counts[id(c.module)] == 1 and c.output is not None and c.input is not None]
    composite = [c for c in once if next(c.module.children(), None) is not None and _size(c.module)]
    groups: dict[type[nn.Module], list[_Call]] = {}
    for call in composite:
        group = groups.setdefault(type(call.module), [])
        if not any(outer.begin < call.begin and call.end < outer.end for outer in group):
            group.append(call)
    total = max(1, _size(model))
    usable = [group for group in groups.values() if _is_chain(group) and (len(group) > 1 or _in_list(model, group[0]))]
    if usable:
        best = max(
            usable,
            key=lambda group: (
                round(sum(_size(c.module) for c in group) / total, 3),
                not isinstance(group[0].module, CONTAINERS),
                len(group),
            ),
        )
        share = sum(_size(c.module) for c in best) / total
        return best, f"class {type(best[0].module).__name__}, {share:.0%} of the parameters"
    leaves = [c for c in once if next(c.module.children(), None) is None and _is_matrix_layer(c.module)]
    if len(leaves) > 2:
        how = "no repeated block: the weight layers between the first and the last"
        beside = any(a.input is b.input for a, b in pairwise(leaves[1:-1]))
        return leaves[1:-1], how + (", some of which run beside each other: no stream" if beside else "")
    raise expected(
        "a model with blocks, or with at least three weight layers in a chain",
        given=f"{type(model).__name__} with {len(leaves)} weight layer(s) that ran once",
        do='name the blocks with a glob, such as blocks="encoder.layers.*"',
    )


def _matching(model: nn.Module, calls: list[_Call], glob: str) -> list[_Call]:
    wanted = glob.split(".")
    names = [
        n
        for n, _ in model.named_modules()
        if n.count(".") == len(wanted) - 1
        and all(fnmatchcase(part, pattern) for part, pattern in zip(n.split("."), wanted, strict=True))
    ]
    group = [call for call in calls if call.name in names]
    if not group:
        seen = ", ".join(call.name for call in calls[:12])
        raise expected(
            "a glob that matches modules of the forward pass",
            given=f"blocks='{glob}'",
            do=f"modules that ran: {seen or 'none'}",
        )
    repeated = sorted({c.name for c in group if sum(other.name == c.name for other in group) > 1})
    if repeated:
        raise expected(
            "blocks that run once each",
            given=f"{', '.join(repeated)}, called more than once",
            do="a block shared between depths has no layer of its own",
        )
    unusable = [call.name for call in group if call.input is None or call.output is None]
    if unusable:
        raise expected("blocks that take and return a tensor", given=", ".join(unusable))
    return group


def _module_after(last: _Call, calls: list[_Call]) -> _Call | None:
    """The first module that starts when ``last`` has ended and reads a tensor of the shape ``last`` produced."""
    shape = last.output.shape if last.output is not None else None
    following = [c for c in calls if c.begin > last.end and c.input is not None]
    return following[0] if following and following[0].input is not None and following[0].input.shape == shape else None


def _batch_axis(model: nn.Module, x: Tensor, first: _Call) -> int:
    """0 or 1; where the shape alone does not tell, one sample is changed to see where the stream changes."""
    shape = first.input.shape if first.input is not None else x.shape
    possible = [axis for axis in (0, 1) if len(shape) > axis + 1 and shape[axis] == len(x)]
    if len(possible) < 2 or first.input is None:
        return possible[0] if possible else 0
    changed = other_first_sample(x)
    again = next(c for c in _record_calls(model, x if changed is None else changed) if c.name == first.name)
    if again.input is None:
        return 0
    return 1 if find_layout(first.input, again.input, len(x)) == "batch second" else 0


def _is_chain(group: list[_Call]) -> bool:
    linked = all(
        a.output is not None and b.input is not None and a.output.shape == b.input.shape for a, b in pairwise(group)
    )
    return linked and any(call.keeps_shape for call in group)


def _in_list(model: nn.Module, call: _Call) -> bool:
    parent = call.name.rpartition(".")[0]
    return bool(parent) and isinstance(model.get_submodule(parent), nn.ModuleList | nn.Sequential)


def _is_matrix_layer(module: nn.Module) -> bool:
    return any(parameter.ndim > 1 for parameter in module.parameters(recurse=False))


def _size(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
