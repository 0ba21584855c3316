"""Where two models differ whose modules have other names: modules of the reference are put into the candidate.

Modules are counterparts if their weights are. With all of them exchanged both agree, or the difference lies outside;
the fewer of the first ones have to be exchanged, the later the first mistake, which a bisection finds. Then the same is
asked inside the module it found. Few passes: the logarithm of the number of modules, at every depth.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from torch import nn

Pairs = dict[str, str]
"""Modules of the candidate and their counterparts in the reference."""
Agrees = Callable[[Pairs], bool]
"""Whether the candidate, with these modules exchanged for the reference's, agrees with the reference."""


def counterpart_modules(reference: nn.Module, candidate: nn.Module, same: Mapping[str, str]) -> Pairs:
    """Modules that hold the same weights, outer ones before inner ones; ``same`` maps weights to the reference's.

    >>> one, two = nn.Sequential(nn.Linear(2, 2)), nn.ModuleDict({"only": nn.Linear(2, 2)})
    >>> counterpart_modules(one, two, {"only.weight": "0.weight", "only.bias": "0.bias"})
    {'only': '0'}
    """
    holders: dict[frozenset[str], list[str]] = {}
    for name, module in reference.named_modules():
        holders.setdefault(_weights(module, name), []).append(name)
    found: Pairs = {}
    for name, module in candidate.named_modules():
        theirs = frozenset(same.get(weight, "") for weight in _weights(module, name))
        if name and theirs and "" not in theirs:
            known = [other for other in holders.get(theirs, []) if other]
            # A wrapper around one module holds its weights too: wrappers are matched with wrappers, from outside.
            nested = sum(1 for outer in found if name.startswith(f"{outer}.") and found[outer] in known)
            if known:
                found[name] = known[min(nested, len(known) - 1)]
    return found


def blamed(found: Pairs, agrees: Agrees, scope: str = "") -> str | None:
    """The innermost module of the candidate that differs first; None if exchanging all of them mends nothing."""
    inside = [name for name in found if name.startswith(f"{scope}." if scope else "")]
    level = [name for name in inside if not any(name.startswith(f"{other}.") for other in inside)]
    if not level or not agrees({name: found[name] for name in level}):
        return scope or None
    enough, short = 0, len(level)  # exchanging from ``enough`` on mends it, from ``short`` on does not
    while short - enough > 1:
        middle = (enough + short) // 2
        if agrees({name: found[name] for name in level[middle:]}):
            enough = middle
        else:
            short = middle
    return blamed(found, agrees, level[enough])


def exchange(
    candidate: nn.Module, reference: nn.Module, chosen: Pairs, same: Mapping[str, str]
) -> tuple[nn.Module, dict[str, str]]:
    """``candidate`` with modules of ``reference`` in it, and whose weights are whose; copies are given."""
    names = dict(same)
    for theirs, ours in chosen.items():
        parent, _, last = theirs.rpartition(".")
        module = reference.get_submodule(ours)
        setattr(candidate.get_submodule(parent), last, module)
        names |= {f"{theirs}.{weight}": f"{ours}.{weight}" for weight, _ in module.named_parameters()}
    return candidate, names


def _weights(module: nn.Module, name: str) -> frozenset[str]:
    return frozenset(f"{name}.{weight}" if name else weight for weight, _ in module.named_parameters())
