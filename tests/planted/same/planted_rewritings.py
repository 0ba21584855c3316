"""The same computation written, ordered, laid out, compiled, exported or stepped in another way."""

from __future__ import annotations

import contextlib
import copy
import importlib
import importlib.util
import io
import shutil
from collections.abc import Callable
from typing import Any

import torch
from planted_families import Attention
from planted_swap import swap
from torch import Tensor, nn

from assay.probe import tree


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
            swap(module, lambda self, x: (x.unsqueeze(-2) * self.weight).sum(-1) + self.bias)
    return twin


def _norm_by_hand(model: nn.Module, x: Any, family: str) -> Any:
    twin, changed = copy.deepcopy(model), False
    for module in twin.modules():
        if type(module) is nn.LayerNorm:
            changed = True

            def by_hand(self: Any, x: Tensor) -> Tensor:
                gap = x - x.mean(-1, keepdim=True)
                return gap / (gap.square().mean(-1, keepdim=True) + self.eps).sqrt() * self.weight + self.bias

            swap(module, by_hand)
        if type(module) is nn.BatchNorm2d:
            changed = True

            def folded(self: Any, x: Tensor) -> Tensor:
                slope = self.weight / (self.running_var + self.eps).sqrt()
                return x * slope[:, None, None] + (self.bias - self.running_mean * slope)[:, None, None]

            swap(module, folded)
    return twin if changed else None


def _unfolded(model: nn.Module, x: Any, family: str) -> Any:
    twin, changed = copy.deepcopy(model), False
    for module in twin.modules():
        if type(module) is nn.Conv2d:
            changed = True

            def unfold(self: Any, x: Tensor) -> Tensor:
                columns = nn.functional.unfold(x, self.kernel_size, padding=self.padding)
                return (self.weight.flatten(1) @ columns + self.bias[:, None]).unflatten(-1, x.shape[-2:])

            swap(module, unfold)
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

            swap(module, fused)
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

    swap(twin.lstm, by_cells)
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


def _checkpointed(model: nn.Module, x: Any, family: str) -> Any:
    if family == "forces":
        return None
    from torch.utils.checkpoint import checkpoint

    twin = copy.deepcopy(model)
    kind = type(twin)
    swap(twin, lambda self, *args: checkpoint(lambda *a: kind.forward(self, *a), *args, use_reentrant=False))
    return twin


def _reloaded(model: nn.Module, x: Any, family: str) -> Any:
    file = io.BytesIO()
    torch.save(model.state_dict(), file)
    file.seek(0)
    twin = copy.deepcopy(model)
    for value in [*twin.parameters(), *twin.buffers()]:
        value.detach().zero_()
    twin.load_state_dict(torch.load(file, weights_only=True))
    return twin


def _inductor(model: nn.Module, x: Any, family: str) -> Any:
    # e3nn takes minutes to compile; forces taken inside the forward pass need a double backward, which torch.compile
    # does not have: such a model raises on ordinary inputs, and is no healthy twin.
    if family in ("e3nn", "forces"):
        return None
    torch._dynamo.reset()  # type: ignore[no-untyped-call]
    return torch.compile(copy.deepcopy(model))


def _onnx(model: nn.Module, x: Any, family: str) -> Any:
    if family == "forces":  # torch.export does not take a backward pass inside the model
        return None
    onnxruntime = importlib.import_module("onnxruntime")

    args = x if isinstance(x, tuple) else (x,)
    batch = tuple({0: torch.export.Dim.DYNAMIC} for _ in args)
    with contextlib.redirect_stdout(io.StringIO()):
        program = torch.onnx.export(copy.deepcopy(model), args, dynamo=True, dynamic_shapes=batch, verbose=False)
    assert program is not None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    session = onnxruntime.InferenceSession(program.model_proto.SerializeToString(), options,
                                           providers=["CPUExecutionProvider"])  # fmt: skip
    names = [one.name for one in session.get_inputs()]

    def run(*args: Tensor) -> Tensor:
        fed = {name: a.detach().contiguous().numpy() for name, a in zip(names, args, strict=True)}
        return torch.from_numpy(session.run(None, fed)[0])

    return run


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
    "checkpointed": _checkpointed,
    "reloaded": _reloaded,
}
COMPILED: dict[str, Callable[[nn.Module, Any, str], Any]] = {"inductor": _inductor, "ONNX Runtime": _onnx}
"""A quarter of a minute to minutes each: made once per seed, whatever the number of draws."""


def absent() -> dict[str, str]:
    """Which of the compiled ones cannot be made on this machine, and why."""
    missing = [name for name in ("onnx", "onnxscript", "onnxruntime") if importlib.util.find_spec(name) is None]
    found = {"ONNX Runtime": f"{', '.join(missing)} not installed"} if missing else {}
    return found | ({} if shutil.which("g++") or shutil.which("clang++") else {"inductor": "no C++ compiler"})


def unclaimed(name: str) -> dict[str, Any]:
    """What a twin does not claim, as arguments of the audit.

    ONNX Runtime has no gradients, and no answer to an empty batch: its LSTM ends the process.
    """
    return {"gradients": False, "without": ("no row",)} if name == "ONNX Runtime" else {}


class Stepping(nn.Module):
    """The weights of a small net after three steps of an optimiser on its inputs."""

    def __init__(self, net: nn.Module, kind: Callable[..., torch.optim.Optimizer], **how: Any) -> None:
        super().__init__()
        self.net, self.kind, self.how = net, kind, how

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        with torch.enable_grad():
            weights = {n: p.detach().clone().requires_grad_(True) for n, p in self.net.named_parameters()}
            optimiser = self.kind(list(weights.values()), lr=1e-2, weight_decay=0.1, **self.how)
            for _ in range(3):
                optimiser.zero_grad()
                torch.func.functional_call(self.net, weights, (x.detach(),)).square().mean().backward()
                optimiser.step()
        return {name.replace(".", " "): weight.detach() for name, weight in weights.items()}


STEPS: dict[str, dict[str, Any]] = {"fused AdamW": {"fused": True}, "foreach AdamW": {"foreach": True}}
WRONG_STEPS: dict[str, tuple[Callable[..., torch.optim.Optimizer], dict[str, Any]]] = {
    "coupled decay": (torch.optim.Adam, {}),
    "other beta": (torch.optim.AdamW, {"betas": (0.9, 0.99)}),
    "other eps": (torch.optim.AdamW, {"eps": 1e-5}),
}
