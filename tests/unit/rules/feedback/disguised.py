"""More layers of width 8, one function of (module, x) each: weights in disguise, and healthy ones that look like it."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Layer(nn.Module):
    """Parameters by name and what to do with them."""

    def __init__(self, forward: Callable[[Any, Tensor], Tensor], **parts: Any) -> None:
        super().__init__()
        self.run = forward
        for name, part in parts.items():
            if isinstance(part, nn.Module):
                self.add_module(name, part)
            elif isinstance(part, Tensor):
                self.register_buffer(name, part)
            else:
                setattr(self, name, nn.Parameter(0.4 * torch.randn(part)))

    def forward(self, x: Tensor) -> Tensor:
        return self.run(self, x)


class KeepsItsModule(torch.autograd.Function):
    """The weight is not even an argument."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, module: Any) -> Tensor:
        ctx.module = module
        return x @ module.w

    @staticmethod
    def backward(ctx: Any, *errors: Tensor) -> tuple[Tensor, None]:
        return errors[0] @ ctx.module.w.t(), None


class OwnRelu(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, *errors: Tensor) -> Tensor:
        return errors[0] * (ctx.saved_tensors[0] > 0)


def without_gradient(m: Any, x: Tensor) -> Tensor:
    with torch.no_grad():
        weight = 1.5 * m.w
    return x @ weight


def unregistered() -> Layer:
    layer = Layer(lambda m, x: x @ m.outside[0])
    layer.outside = [torch.randn(8, 8, dtype=torch.float64, requires_grad=True)]
    return layer


def complex_product(m: Any, x: Tensor) -> Tensor:
    return torch.view_as_real(torch.view_as_complex(x.view(-1, 4, 2)) @ torch.view_as_complex(m.w)).flatten(1)


def state_space(m: Any, x: Tensor) -> Tensor:
    """The state is eight inputs times four numbers; the input is spread over four by B and gathered by C."""
    h = x.new_zeros(len(x), 8, 4)
    for _ in range(2):
        h = h * torch.sigmoid(m.a) + x[:, :, None] * m.b
    return (h * m.c).sum(-1)


def learned_keys(m: Any, x: Tensor) -> Tensor:
    heads = (len(x), 1, 3, 4)
    return F.scaled_dot_product_attention(x.view(-1, 1, 2, 4), m.k.expand(heads), m.v.expand(heads)).flatten(1)


def from_a_root(m: Any, x: Tensor) -> Tensor:
    return x @ torch.linalg.cholesky(m.w @ m.w.t() * 0 + torch.eye(8, dtype=x.dtype) + 0 * m.w)


def experts_by_index(m: Any, x: Tensor) -> Tensor:
    return torch.bmm(x[:, None], m.w[(x.sum(1) > 0).long()])[:, 0]


def chosen(pick: Callable[[Tensor, Tensor], Tensor]) -> Callable[[Any, Tensor], Tensor]:
    """A matrix for every sample, picked by its data."""
    return lambda m, x: torch.bmm(x[:, None], pick(m.w, digit(x)).view(-1, 8, 8))[:, 0]


def digit(x: Tensor) -> Tensor:
    """A number from 0 to 4 that differs from sample to sample."""
    return (1000 * x[:, 0].abs()).long() % 5


def rotation(m: Any, x: Tensor) -> Tensor:
    a, b = x[:, :4], x[:, 4:]
    return torch.cat([a * m.t.cos() - b * m.t.sin(), a * m.t.sin() + b * m.t.cos()], 1)


class Remembers(nn.Module):
    """A matrix that the forward pass writes itself: no parameter, yet it learns."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("table", torch.randn(8, 8))

    def forward(self, x: Tensor) -> Tensor:
        out = x @ self.table
        with torch.no_grad():
            self.table = 0.9 * self.table + 0.1 * x.T @ x
        return out


def scripted_product() -> Layer:
    with warnings.catch_warnings():  # deprecated, and still in many models
        warnings.simplefilter("ignore", DeprecationWarning)
        product = torch.jit.trace(torch.matmul, (torch.zeros(6, 8).double(), torch.zeros(8, 8).double()))
    return Layer(lambda m, x: product(x, m.w), w=(8, 8))


def complex_weight() -> Layer:
    layer = Layer(lambda m, x: torch.view_as_real(torch.view_as_complex(x.view(-1, 4, 2)) @ m.w).flatten(1))
    layer.w = nn.Parameter(0.4 * torch.randn(4, 4, dtype=torch.complex128))
    return layer


def under_autocast(m: Any, x: Tensor) -> Tensor:
    with torch.autocast("cpu", torch.bfloat16):
        return m.l(x)


def experts_mixed(m: Any, x: Tensor) -> Tensor:
    share = torch.softmax(m.r(x), -1)[:, :, None, None]
    return torch.bmm(x[:, None], (share * m.w).sum(1))[:, 0]


def with_prefix(m: Any, x: Tensor) -> Tensor:
    """Attention written by hand to the data and to rows that are learned: keys and values are joined first."""
    h = x.view(-1, 2, 4)
    keys, values = (torch.cat([rows.expand(len(x), -1, -1), h], 1) for rows in (m.k, m.v))
    return (torch.softmax(h @ keys.transpose(1, 2), -1) @ values).flatten(1)


def after_a_class_token(m: Any, x: Tensor) -> Tensor:
    return m.n(torch.cat([m.p.expand(len(x), -1, -1), x.view(-1, 2, 4)], 1))[:, 1:].flatten(1)


def without_query(m: Any, x: Tensor) -> Tensor:
    h = x.view(-1, 2, 4)
    return (torch.softmax(h @ m.k(h).transpose(1, 2), -1) @ m.v(h)).flatten(1)


def hooked(change: Callable[[Any, Tensor], Tensor]) -> Callable[[Any, Tensor], Tensor]:
    """The identity, whose gradient a hook changes."""
    def run(m: Any, x: Tensor) -> Tensor:
        h = 1.0 * x
        h.register_hook(lambda error: change(m, error))
        return h

    return run


def warped(m: Any, x: Tensor) -> Tensor:
    """A spatial transformer: where to look is computed, and enters no product."""
    h = x.view(-1, 2, 2, 2)
    grid = F.affine_grid(m.l(x).view(-1, 2, 3), list(h.shape), align_corners=False)
    return F.grid_sample(h, grid, align_corners=False).flatten(1)


def experts_by_einsum(m: Any, x: Tensor) -> Tensor:
    return torch.einsum("bi,boi->bo", x, torch.einsum("bk,koi->boi", torch.softmax(m.r(x), -1), m.w))


REACHED: dict[str, Callable[[], nn.Module]] = {
    "addmm by name": lambda: Layer(lambda m, x: torch.addmm(input=m.b, mat1=x, mat2=m.w), w=(8, 8), b=(8,)),
    "mm by name": lambda: Layer(lambda m, x: torch.mm(x, mat2=m.w), w=(8, 8)),
    "a slice": lambda: Layer(lambda m, x: x @ m.w[:8, 2:10], w=(10, 12)),
    "a transposed slice": lambda: Layer(lambda m, x: torch.matmul(x, m.w[2:10].t()[:8]), w=(12, 12)),
    "one of a stack": lambda: Layer(lambda m, x: x @ m.w[1], w=(3, 8, 8)),
    "chunks": lambda: Layer(lambda m, x: x @ m.w.chunk(3)[0] + x @ m.w.chunk(3)[2], w=(24, 8)),
    "linalg.matmul": lambda: Layer(lambda m, x: torch.linalg.matmul(x, m.w), w=(8, 8)),
    "inner": lambda: Layer(lambda m, x: torch.inner(x, m.w), w=(8, 8)),
    "a vector": lambda: Layer(lambda m, x: (x @ m.v)[:, None].expand(-1, 8), v=(8,)),
    "transposed convolution": lambda: Layer(lambda m, x: m.c(x.view(-1, 2, 4)).flatten(1),
                                            c=nn.ConvTranspose1d(2, 2, 1)),
    "projected LSTM": lambda: Layer(lambda m, x: m.r(x.view(-1, 2, 4))[0].flatten(1),
                                    r=nn.LSTM(4, 6, batch_first=True, proj_size=4)),
    "an activation of its own": lambda: Layer(lambda m, x: OwnRelu.apply(m.l(x)), l=nn.Linear(8, 8)),
    "a look-up in learned keys": lambda: Layer(lambda m, x: torch.softmax(x @ m.k.t(), -1) @ m.v, k=(5, 8), v=(5, 8)),
    "a complex weight": complex_weight,
    "float64 under autocast": lambda: Layer(under_autocast, l=nn.Linear(8, 8)),
    "the same parameters by functional_call": lambda: Layer(
        lambda m, x: torch.func.functional_call(m.l, dict(m.l.named_parameters()), (x,)), l=nn.Linear(8, 8)),
    "PReLU": lambda: Layer(lambda m, x: F.prelu(m.l(x), m.a), l=nn.Linear(8, 8), a=(8,)),
}
"""The error below them is all feedback."""
GAINS: dict[str, Callable[[], nn.Module]] = {
    "a table that scales": lambda: Layer(lambda m, x: (x.view(-1, 2, 4) * m.g).flatten(1), g=(2, 4)),
    "a norm of two axes": lambda: Layer(lambda m, x: m.n(x.view(-1, 2, 4)).flatten(1), n=nn.LayerNorm((2, 4))),
    "positions": lambda: Layer(lambda m, x: F.gelu(x.view(-1, 2, 4) + m.p).flatten(1), p=(2, 4)),
    "attention with a learned bias": lambda: Layer(lambda m, x: F.scaled_dot_product_attention(
        *[x.view(-1, 1, 2, 4)] * 3, attn_mask=m.b).flatten(1), b=(2, 2)),
    "a row of a table that scales": lambda: Layer(
        lambda m, x: x * F.embedding(digit(x), m.w), w=(5, 8)),
    "two scales of the same data": lambda: Layer(lambda m, x: x * m.g[0] + x.tanh() * m.g[1], g=(2, 8)),
    "one number that scales": lambda: Layer(lambda m, x: x + m.a * x.tanh(), a=()),
    "one number that divides": lambda: Layer(lambda m, x: x / m.a.exp(), a=()),
    "scales side by side": lambda: Layer(
        lambda m, x: torch.cat([x[:, :4] * m.a, x[:, 4:].flip(1) * m.b], 1)[:, :8], a=(4,), b=(4,)),
    "a learned slope": lambda: Layer(lambda m, x: torch.where(x > 0, x, m.a * x), a=()),
    "a class token before a norm": lambda: Layer(after_a_class_token, p=(1, 1, 4), n=nn.LayerNorm(4)),
    "a crossing of the data with its sum": lambda: Layer(lambda m, x: x + x * (x @ m.w)[:, None], w=(8,)),
    "scales of channels made of the data": lambda: Layer(
        lambda m, x: (m.g(x)[:, :, None] * x.view(-1, 2, 4)).flatten(1), g=nn.Linear(8, 2)),
    "a gate repeated over tokens": lambda: Layer(
        lambda m, x: (x.view(-1, 2, 4) + m.g(x)[:, None] * m.l(x.view(-1, 2, 4))).flatten(1), g=nn.Linear(8, 4),
        l=nn.Linear(4, 4)),
    "scales behind a filter": lambda: Layer(
        lambda m, x: torch.fft.irfft(torch.fft.rfft(x) * torch.linspace(0, 1, 5), n=8) * m.g, g=(8,)),
    "scales of complex numbers": lambda: Layer(
        lambda m, x: torch.view_as_real(torch.view_as_complex(x.view(-1, 4, 2)) * m.w).flatten(1), w=(4,)),
    "a hook that cuts gradients": lambda: Layer(hooked(lambda m, error: error.clamp(-1, 1)), g=(8,)),
    "a learned place to look": lambda: Layer(warped, l=nn.Linear(8, 6)),
    "a fixed matrix": lambda: Layer(lambda m, x: x @ m.fixed, fixed=torch.randn(8, 8), g=(8,)),
}
"""Nothing of theirs is transposed, or nothing that could be learned."""
NOT_REACHED: dict[str, Callable[[], nn.Module]] = {
    "W.detach()": lambda: Layer(lambda m, x: F.linear(x, m.w.detach()), w=(8, 8)),
    "W.data": lambda: Layer(lambda m, x: F.linear(x, m.w.data), w=(8, 8)),
    "computed without gradients": lambda: Layer(without_gradient, w=(8, 8)),
    "a tensor that is no parameter": unregistered,
    "a function that keeps its module": lambda: Layer(lambda m, x: KeepsItsModule.apply(x, m), w=(8, 8)),
    "W plus nothing of the data": lambda: Layer(lambda m, x: x @ (m.w + 0 * x.mean()), w=(8, 8)),
    "radial units": lambda: Layer(lambda m, x: (-((x[:, None] - m.w) ** 2).sum(-1)).exp(), w=(8, 8)),
    "cdist": lambda: Layer(lambda m, x: torch.cdist(x, m.w), w=(8, 8)),
    "convolution by spectra": lambda: Layer(lambda m, x: torch.fft.irfft(
        torch.fft.rfft(x) * torch.fft.rfft(m.w), n=8), w=(8,)),
    "a filter of real numbers": lambda: Layer(lambda m, x: torch.fft.irfft(torch.fft.rfft(x) * m.w, n=8), w=(5,)),
    "real numbers read as complex": lambda: Layer(complex_product, w=(4, 4, 2)),
    "two vectors by hand": lambda: Layer(lambda m, x: (x * m.u).sum(-1, keepdim=True) * m.v, u=(8,), v=(8,)),
    "a state space": lambda: Layer(state_space, a=(8, 4), b=(8, 4), c=(8, 4)),
    "experts by index": lambda: Layer(experts_by_index, w=(2, 8, 8)),
    "experts that differ": lambda: Layer(chosen(lambda w, i: w[i]), w=(5, 8, 8)),
    "experts by index_select": lambda: Layer(chosen(lambda w, i: w.index_select(0, i)), w=(5, 8, 8)),
    "experts by gather": lambda: Layer(
        chosen(lambda w, i: w.gather(0, i[:, None, None].expand(-1, 8, 8))), w=(5, 8, 8)),
    "experts in an embedding": lambda: Layer(chosen(lambda w, i: F.embedding(i, w)), w=(5, 64)),
    "a matrix by its diagonals": lambda: Layer(lambda m, x: sum(x.roll(k, 1) * m.w[k] for k in range(8)), w=(8, 8)),
    "a matrix by its diagonals, stacked": lambda: Layer(
        lambda m, x: torch.stack([x.roll(k, 1) * m.w[k] for k in range(8)]).sum(0), w=(8, 8)),
    "a matrix by its diagonals, laid side by side": lambda: Layer(
        lambda m, x: torch.cat([(x.roll(k, 1) * m.w[k])[..., None] for k in range(8)], -1).mean(-1), w=(8, 8)),
    "a matrix by its elements": lambda: Layer(lambda m, x: torch.stack(
        [sum(x[:, j] * m.w[i, j] for j in range(8)) for i in range(8)], 1), w=(8, 8)),
    "single numbers, each a parameter": lambda: Layer(
        lambda m, x: x * m.a + x.roll(1, 1) * m.b, a=(), b=()),
    "single numbers, stacked": lambda: Layer(
        lambda m, x: torch.stack([x * m.a, x.roll(1, 1) * m.b]).sum(0), a=(), b=()),
    "between data and its neighbours": lambda: Layer(
        lambda m, x: torch.lerp(x, x.roll(1, 1), m.g.sigmoid()), g=(8,)),
    "addcmul of data and its neighbours": lambda: Layer(
        lambda m, x: torch.addcmul(x * m.g, x.roll(1, 1), m.h), g=(8,), h=(8,)),
    "a learned rotation": lambda: Layer(rotation, t=(4,)),
    "a buffer that is written": Remembers,
    "a scripted function": scripted_product,
    "experts mixed": lambda: Layer(experts_mixed, w=(2, 8, 8), r=nn.Linear(8, 2)),
    "learned rows beside keys and values": lambda: Layer(with_prefix, k=(1, 3, 4), v=(1, 3, 4)),
    "experts mixed by einsum": lambda: Layer(experts_by_einsum, w=(3, 8, 8), r=nn.Linear(8, 3)),
    "a mixture of one expert": lambda: Layer(experts_by_einsum, w=(1, 8, 8), r=nn.Linear(8, 1)),
    "weights that a network makes of the data": lambda: Layer(
        lambda m, x: torch.bmm(x[:, None], m.s * m.h(torch.tanh(x)).view(-1, 8, 8))[:, 0], h=nn.Linear(8, 64), s=()),
    "attention without a query's weight": lambda: Layer(without_query, k=nn.Linear(4, 4), v=nn.Linear(4, 4)),
    "a hook that multiplies by W": lambda: Layer(hooked(lambda m, error: error @ m.w), w=(8, 8)),
    "weights made by a network": lambda: Layer(lambda m, x: x @ m.h(m.z).view(8, 8), z=(4,), h=nn.Linear(4, 64)),
    "learned keys in fused attention": lambda: Layer(learned_keys, k=(1, 1, 3, 4), v=(1, 1, 3, 4)),
    "bilinear": lambda: Layer(lambda m, x: m.b(x, x), b=nn.Bilinear(8, 8, 8)),
    "inside vmap": lambda: Layer(lambda m, x: torch.func.vmap(lambda h: h @ m.w)(x), w=(8, 8)),
    "a copy": lambda: Layer(lambda m, x: x @ m.w.t().contiguous(), w=(8, 8)),
    "a masked weight": lambda: Layer(lambda m, x: F.linear(x, m.w * m.mask), w=(8, 8), mask=torch.ones(8, 8).tril()),
    "a low-rank sum": lambda: Layer(lambda m, x: F.linear(x, m.w + m.a @ m.b), w=(8, 8), a=(8, 2), b=(2, 8)),
    "a product that is the identity now": lambda: Layer(from_a_root, w=(8, 8)),
    "a matrix that is zero now": lambda: Layer(lambda m, x: x + x @ (0 * m.w), w=(8, 8)),
    "a sparse copy": lambda: Layer(lambda m, x: torch.sparse.mm(m.w.to_sparse(), x.t()).t(), w=(8, 8)),
    "solve": lambda: Layer(lambda m, x: torch.linalg.solve(m.w, x.t()).t(), w=(8, 8)),
}
"""The error goes through the weight itself."""
