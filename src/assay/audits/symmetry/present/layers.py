"""Layers alone, as the original template meant them, and the guilty ones with their shares."""

from __future__ import annotations

from torch import nn

from assay.audits.symmetry.facts import Facts
from assay.audits.symmetry.locate.isolate import Isolated
from assay.audits.symmetry.locate.localise import Location
from assay.results import Scalar, Table

TO_CHECK: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("Convolution", ("conv",), "does the kernel turn with the image?"),
    ("Normalisation", ("norm",), "are statistics taken over what the group mixes? it often breaks equivariance"),
    ("Pooling", ("pool",), "do all places count alike, and does the stride divide the size?"),
    ("Attention", ("attention", "attend", "transformer"), "do places enter only through a mask or table?"),
    ("Nonlinearity", ("relu", "tanh", "sigmoid", "gelu", "silu", "softplus", "gate", "activation"),
     "does it act on invariants, or on single components of what the group mixes?"),
    ("Linear", ("linear",), "are weights shared over what the group exchanges? no bias on vectors"),
    ("Dropout", ("dropout",), "off in evaluation mode"),
)  # fmt: skip
"""Kind of layer, what its class name holds, what to check."""


def kind_of(module: nn.Module) -> tuple[str, str]:
    """The kind of a layer and what to check in it.

    >>> kind_of(nn.LayerNorm(3))[0], kind_of(nn.ReLU())[0], kind_of(nn.Sequential())[0]
    ('Normalisation', 'Nonlinearity', 'other')
    """
    name = type(module).__name__.lower()
    for kind, parts, check in TO_CHECK:
        if any(part in name for part in parts):
            return kind, check
    return "other", "compare with f(gx) = rho f(x)"


def layers_alone(facts: Facts, location: Location) -> list[Table]:
    """Every layer fed with correctly transformed features; [] if no layer was run alone.

    Behind the first guilty module the kind of its features is a guess, so a module that the peeling cleared is cleared
    here as well.
    """
    results = facts.places.isolated.get(location.generator, [])
    if not results:
        return []
    modules = dict(facts.subject.model.named_modules())
    bad = [one.module for one in facts.places.peeled.get(location.generator, [])]
    seen = {place.blamed: place.relative for place in location.places if not place.consistent}
    rows: list[tuple[Scalar, ...]] = []
    for one in results:
        module = modules.get(one.module, facts.subject.model)
        kind, check = kind_of(module)
        label = one.module if one.call == 0 else f"{one.module} (call {one.call + 1})"
        verdict, error = _verdict(one, bad), one.relative
        if verdict == "FAIL" and one.module in seen:
            # One element is run alone; a stride may hold there and break at the others.
            error = max(error or 0.0, seen[one.module])
        rows.append((label, type(module).__name__, kind, error, verdict, check))
    columns = ("module", "type", "kind", "error alone", "verdict", "what to check")
    note = (
        "each layer is fed rho h(x) and compared with rho m(h(x)); a layer that holds a guilty one fails with it; "
        "UNTESTED where it cannot be run alone or the kind of its input is unknown"
    )
    return [Table(title=f"Layers alone under {location.generator}", columns=columns, rows=tuple(rows), note=note)]


def guilty(facts: Facts) -> list[Table]:
    """The guilty modules in order, each with the share of the error that goes away when it is mended."""
    rows: list[tuple[Scalar, ...]] = [
        (generator, one.where, one.share) for generator, several in facts.places.peeled.items() for one in several
    ]
    note = "modules are mended in a copy one after the other: at gx their output is replaced by rho h(x)"
    columns = ("generator", "module", "share of the error")
    return [Table(title="Guilty modules", columns=columns, rows=tuple(rows), note=note)] if rows else []


def _verdict(one: Isolated, bad: list[str]) -> str:
    if any(name == one.module or name.startswith(f"{one.module}.") for name in bad):
        return "FAIL"
    if bad:
        return "PASS"
    return "UNTESTED" if one.alone is None else "PASS" if one.alone <= 1 else "FAIL"
