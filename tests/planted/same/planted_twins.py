"""Twins of the reference models: one planted mistake each, in a module that is known; and healthy rewritings."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from planted_families import FAMILIES, Attention, reference, sample
from torch import Tensor, nn

from assay.audits.same.conditions import nudge_weights, nudged_leaves
from assay.audits.same.judge import SAFETY, Truth
from assay.audits.same.quantities import Question
from assay.probe import tree
from assay.probe.copies import duplicate
from assay.seeding import numpy_generator


@dataclass(frozen=True)
class Twin:
    """A candidate beside its reference; ``module`` is where the mistake is (None: healthy, "*": anywhere)."""

    name: str
    family: str
    reference: nn.Module
    candidate: Any
    sample: Any
    module: str | None
    gradients: bool = True


def _swap(module: nn.Module, forward: Callable[..., Any]) -> None:
    """Gives one module another forward pass and leaves its names as they are."""
    kind = type(module)
    module.__class__ = type(f"Other{kind.__name__}", (kind,), {"forward": forward, "_before": kind})


def _before(module: nn.Module, *args: Any) -> Any:
    return type(module)._before.forward(module, *args)  # type: ignore[attr-defined]


class _WrongSlope(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, by: float) -> Tensor:
        ctx.by = by
        return y.clone()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, None]:
        return g * ctx.by, None


def _wrong_backward(module: nn.Module) -> None:
    _swap(module, lambda self, x: _WrongSlope.apply(_before(self, x), 1.01))


def _detached(module: nn.Module) -> None:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        y = _before(self, x)
        return torch.cat([y[:, :1].detach(), y[:, 1:]], 1)

    _swap(module, forward)


def _half(module: nn.Module) -> None:
    def forward(self: Any, x: Tensor) -> Tensor:
        return nn.functional.linear(x.half().to(x), self.weight.half().to(x), self.bias)

    _swap(module, forward)


def _stale(module: nn.Module) -> None:
    module.kept = module.weight.detach().clone()  # type: ignore[assignment, union-attr, operator]

    def forward(self: Any, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.kept + (self.weight - self.weight.detach()), self.bias)

    _swap(module, forward)


def _last_row(module: nn.Module) -> None:
    def forward(self: nn.Module, x: Tensor) -> Tensor:
        y = _before(self, x)
        return torch.cat([y[:-1], torch.zeros_like(y[-1:])])

    _swap(module, forward)


def _no_bias_sign(module: nn.Module) -> None:
    with torch.no_grad():
        module.bias.neg_()  # type: ignore[union-attr, operator]


def _transposed(module: nn.Module) -> None:
    with torch.no_grad():
        module.weight.copy_(module.weight.mT.clone())  # type: ignore[union-attr, operator, arg-type]


def _set(name: str, value: Any) -> Callable[[nn.Module], None]:
    return lambda module: setattr(module, name, value)


def _buffer(module: nn.Module) -> None:
    module.running_mean.add_(0.01)  # type: ignore[union-attr, operator]


Plant = tuple[str, Callable[[nn.Module], bool], Callable[[nn.Module], None]]
ACTIVATIONS = (nn.ReLU, nn.SiLU, nn.GELU, nn.Tanh)
PLANTS: list[Plant] = [
    ("wrong backward", lambda m: isinstance(m, ACTIVATIONS), _wrong_backward),
    ("detached", lambda m: isinstance(m, ACTIVATIONS), _detached),
    ("half precision", lambda m: isinstance(m, nn.Linear), _half),
    ("stale weights", lambda m: isinstance(m, nn.Linear), _stale),
    ("last row dropped", lambda m: isinstance(m, (*ACTIVATIONS, nn.Linear)), _last_row),
    ("sign of a bias", lambda m: isinstance(m, (nn.Linear, nn.Conv2d, nn.Conv1d)), _no_bias_sign),
    ("transposed", lambda m: isinstance(m, nn.Linear) and m.in_features == m.out_features, _transposed),
    ("eps of a norm", lambda m: isinstance(m, (nn.LayerNorm, nn.GroupNorm)), _set("eps", 1e-3)),
    ("tanh gelu", lambda m: isinstance(m, nn.GELU), _set("approximate", "tanh")),
    ("no scale", lambda m: isinstance(m, Attention), _set("scale", 1.0)),
    ("mask off by one", lambda m: isinstance(m, Attention), _set("shift", 2)),
    ("dropout left on", lambda m: isinstance(m, nn.Dropout), lambda m: m.train() and None),
    ("batch norm training", lambda m: isinstance(m, (nn.BatchNorm1d, nn.BatchNorm2d)), lambda m: m.train() and None),
    ("stale buffer", lambda m: isinstance(m, (nn.BatchNorm1d, nn.BatchNorm2d)), _buffer),
]
LEVELS = (10.0, 100.0)


def planted(seed: int, *, draws: int = 1, families: tuple[str, ...] = tuple(FAMILIES)) -> list[Twin]:
    """Every plant in every family it fits, at a module drawn by the seed; and weights perturbed by a known amount."""
    found = []
    for draw in range(draws):
        for family in families:
            root = seed * 1000 + draw
            random = numpy_generator(root, "plants", family)
            model, x = reference(family, root), sample(family, root)
            for name, fits, plant in PLANTS:
                places = [n for n, m in model.named_modules() if n and fits(m)]
                if not places:
                    continue
                place = str(random.choice(places))
                twin = copy.deepcopy(model)
                plant(twin.get_submodule(place))
                # Forces are made by a backward pass inside the model: its result is an output of the whole model.
                inside = family == "forces" and name in ("wrong backward", "detached")
                expected = "*" if name == "stale weights" or inside else place
                found.append(Twin(f"{family}/{name}/{root}", family, model, twin, x, expected))
            weights = [n for n, p in model.named_parameters() if p.numel() > 1]
            for level in LEVELS:
                weight = str(random.choice(weights))
                moved = perturbed(model, x, weight, level, root)
                if moved is not None:
                    owner = weight.rpartition(".")[0] or "(model)"
                    found.append(Twin(f"{family}/weight x{level:g}/{root}", family, model, moved, x, owner))
    return found


def perturbed(model: nn.Module, x: Any, weight: str, level: float, seed: int) -> nn.Module | None:
    """A copy with one weight moved so that the outputs are off by ``level`` allowances; None if they do not react."""
    leaves = [leaf for _, leaf in tree.leaves(x)]
    question = Question(x, tuple(str(i) for i in range(len(leaves))), None, seed, 0)
    wide, nudged = duplicate(model, dtype=torch.float64), duplicate(model, dtype=torch.float64)
    nudge_weights(nudged, torch.float32, seed)
    truth = Truth(question.ask(wide, leaves, torch.float64), question.ask(model, leaves, None),
                  question.ask(nudged, nudged_leaves(leaves, torch.float32, seed), torch.float64))  # fmt: skip
    names = [n for n, y in truth.exact.items() if n.startswith("output") and y.is_floating_point()]
    allowed = {n: SAFETY * float(truth.scale(n).norm()) for n in names}
    size = 1e-4
    for _ in range(4):
        other = duplicate(model, dtype=torch.float64)
        _move(other, weight, size)
        moved = question.ask(other, leaves, torch.float64)
        shares = [float((moved[n] - truth.exact[n]).norm()) / allowed[n] for n in names if allowed[n]]
        if not shares or not max(shares) > 0:
            return None
        size *= level / max(shares)
    twin = copy.deepcopy(model)
    _move(twin, weight, size)
    return twin


def _move(model: nn.Module, weight: str, size: float) -> None:
    with torch.no_grad():
        flat = dict(model.named_parameters())[weight].view(-1)
        flat[flat.numel() // 2] += size


def healthy(seed: int, *, draws: int = 1, families: tuple[str, ...] = tuple(FAMILIES)) -> list[Twin]:
    """The same computation written, ordered, laid out or compiled in another way."""
    found = []
    for draw in range(draws):
        for family in families:
            root = seed * 1000 + draw
            model, x = reference(family, root), sample(family, root)
            for name, make in REWRITINGS.items():
                candidate = make(model, x, family)
                if candidate is not None:
                    found.append(Twin(f"{family}/{name}/{root}", family, model, candidate, x, None))
    return found


def _copied(model: nn.Module, x: Any, family: str) -> Any:
    return copy.deepcopy(model)


class _Wide(nn.Module):
    """Computes in float64 and rounds once: more accurate than the reference."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.inner = model

    def forward(self, *args: Tensor) -> Any:
        weights = {n: v.double() if v.is_floating_point() else v
                   for n, v in [*self.inner.named_parameters(), *self.inner.named_buffers()]}  # fmt: skip
        result = torch.func.functional_call(self.inner, weights, tuple(a.double() for a in args))
        return tree.map_tensors(result, lambda y: y.float())


def _wide(model: nn.Module, x: Any, family: str) -> Any:
    return None if family == "e3nn" else _Wide(copy.deepcopy(model))


class _RowByRow(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.inner = model

    def forward(self, *args: Tensor) -> Any:
        if len(args[0]) < 2:
            return self.inner(*args)
        pieces = [self.inner(*(a[i : i + 1] for a in args)) for i in range(len(args[0]))]
        flat = [tree.tensors(piece) for piece in pieces]
        return tree.rebuild(pieces[0], iter([torch.cat(parts) for parts in zip(*flat, strict=True)]))


def _row_by_row(model: nn.Module, x: Any, family: str) -> Any:
    return _RowByRow(copy.deepcopy(model))


def _einsum(model: nn.Module, x: Any, family: str) -> Any:
    twin = copy.deepcopy(model)
    for module in twin.modules():
        if type(module) is nn.Linear:
            _swap(module, lambda self, x: (x.unsqueeze(-2) * self.weight).sum(-1) + self.bias)
    return twin


def _norm_by_hand(model: nn.Module, x: Any, family: str) -> Any:
    twin, changed = copy.deepcopy(model), False
    for module in twin.modules():
        if type(module) is nn.LayerNorm:
            changed = True

            def by_hand(self: Any, x: Tensor) -> Tensor:
                gap = x - x.mean(-1, keepdim=True)
                return gap / (gap.square().mean(-1, keepdim=True) + self.eps).sqrt() * self.weight + self.bias

            _swap(module, by_hand)
        if type(module) is nn.BatchNorm2d:
            changed = True

            def folded(self: Any, x: Tensor) -> Tensor:
                slope = self.weight / (self.running_var + self.eps).sqrt()
                return x * slope[:, None, None] + (self.bias - self.running_mean * slope)[:, None, None]

            _swap(module, folded)
    return twin if changed else None


def _unfolded(model: nn.Module, x: Any, family: str) -> Any:
    twin, changed = copy.deepcopy(model), False
    for module in twin.modules():
        if type(module) is nn.Conv2d:
            changed = True

            def unfold(self: Any, x: Tensor) -> Tensor:
                columns = nn.functional.unfold(x, self.kernel_size, padding=self.padding)
                return (self.weight.flatten(1) @ columns + self.bias[:, None]).unflatten(-1, x.shape[-2:])

            _swap(module, unfold)
    return twin if changed else None


def _channels_last(model: nn.Module, x: Any, family: str) -> Any:
    return copy.deepcopy(model).to(memory_format=torch.channels_last) if family in ("cnn", "unet") else None


def _sdpa(model: nn.Module, x: Any, family: str) -> Any:
    twin, changed = copy.deepcopy(model), False
    for module in twin.modules():
        if isinstance(module, Attention):
            changed = True

            def fused(self: Any, x: Tensor) -> Tensor:
                q, k, v = self.qkv(x).chunk(3, -1)
                return self.out(nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=self.scale))

            _swap(module, fused)
    return twin if changed else None


def _cells(model: nn.Module, x: Any, family: str) -> Any:
    """The LSTM written out, gate by gate."""
    if family != "recurrent":
        return None
    twin: Any = copy.deepcopy(model)

    def by_cells(self: Any, x: Tensor) -> tuple[Tensor, None]:
        h = c = x.new_zeros(len(x), self.hidden_size)
        steps = []
        for t in range(x.shape[1]):
            gates = x[:, t] @ self.weight_ih_l0.T + self.bias_ih_l0 + h @ self.weight_hh_l0.T + self.bias_hh_l0
            i, f, g, o = gates.chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            h = o.sigmoid() * c.tanh()
            steps.append(h)
        return torch.stack(steps, 1), None

    _swap(twin.lstm, by_cells)
    return twin


def _exported(model: nn.Module, x: Any, family: str) -> Any:
    if family in ("forces", "e3nn", "recurrent"):
        return None
    args = x if isinstance(x, tuple) else (x,)
    batch = torch.export.Dim.AUTO
    shapes = tuple({0: batch} for _ in args)
    return torch.export.export(copy.deepcopy(model), args, dynamic_shapes=shapes).module()


def _traced(model: nn.Module, x: Any, family: str) -> Any:
    return None if family in ("forces", "e3nn") else torch.jit.trace(copy.deepcopy(model), x, check_trace=False)


REWRITINGS: dict[str, Callable[[nn.Module, Any, str], Any]] = {
    "copy": _copied,
    "in float64": _wide,
    "row by row": _row_by_row,
    "linear as a sum": _einsum,
    "norms by hand": _norm_by_hand,
    "convolution as unfold": _unfolded,
    "channels last": _channels_last,
    "fused attention": _sdpa,
    "LSTM by gates": _cells,
    "exported": _exported,
    "TorchScript": _traced,
}
