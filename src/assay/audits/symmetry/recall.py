"""What was audited in this session, for the scripts of issues: they run as they are where the audit was made."""

from __future__ import annotations

import hashlib
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from assay.audits.symmetry.spec import Symmetry
from assay.errors import expected
from assay.probe import tree
from assay.probe.subject import Call

KEPT = 16
"""Audits that are remembered: the last ones."""
MOST_BYTES = 8 << 20
"""A model and its sample are kept alive for their scripts up to this size; larger ones are found while the caller keeps
them."""


@dataclass(frozen=True)
class Recalled:
    """What an audit was given."""

    model: nn.Module
    sample: Any
    symmetry: Symmetry
    call: Call | None = None


def remember(model: nn.Module, sample: Any, symmetry: Symmetry, *, call: Call | None, seed: int) -> str:
    """Notes what is audited; the name by which ``audited`` gives it back."""
    shapes = [tuple(leaf.shape) for leaf in tree.tensors(sample)] if not callable(sample) else "drawn"
    text = f"{type(model).__qualname__} {symmetry} {shapes} {seed}"
    name = hashlib.sha256(text.encode()).hexdigest()[:8]
    tensors = [*model.parameters(), *model.buffers(), *([] if callable(sample) else tree.tensors(sample))]
    small = sum(x.numel() * x.element_size() for x in tensors) <= MOST_BYTES
    if small or isinstance(sample, Tensor):
        ways = (_always(model), _always(sample)) if small else (weakref.ref(model), weakref.ref(sample))
        _LAST[name] = (*ways, symmetry, call)
        _LAST.move_to_end(name)
        while len(_LAST) > KEPT:
            _LAST.popitem(last=False)
    return name


def audited(name: str) -> Recalled:
    """What the audit that wrote ``name`` into its scripts was given, in the session that made it.

    >>> audited("0")
    Traceback (most recent call last):
    ...
    assay.errors.InputError: expected an audit of this session whose model and sample are still there; given '0'; \
put your own model, sample and symmetry in place of these lines
    """
    model, sample, symmetry, call = _LAST.get(name, (_nothing, _nothing, None, None))
    found, data = model(), sample()
    if found is None or data is None or symmetry is None:
        raise expected("an audit of this session whose model and sample are still there", given=repr(name),
                       do="put your own model, sample and symmetry in place of these lines")
    return Recalled(found, data, symmetry, call)


_LAST: OrderedDict[str, tuple[Callable[[], nn.Module | None], Callable[[], Any], Symmetry | None, Call | None]]
_LAST = OrderedDict()


def _nothing() -> None:
    return None


def _always(thing: Any) -> Callable[[], Any]:
    return lambda: thing
