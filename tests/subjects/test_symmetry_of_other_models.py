"""Steerable CNNs, encoders, Fourier operators, ResNets, graph transformers: clean, and with one planted defect each."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from assay import symmetry as sym
from assay.results import Finding, Verdict
from assay.seeding import torch_generator

pytestmark = [pytest.mark.subjects, pytest.mark.filterwarnings("ignore")]
QUICK = {"inputs": 4, "transforms": 4, "skip": ("gradients", "differences", "jitter", "train-mode", "training")}


def needs(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        why = f"needs {name}: python tests/subjects/environments.py"
        return pytest.importorskip(name, reason=why, exc_type=Exception)


def randn(*shape: int, name: str = "x") -> Tensor:
    return torch.randn(*shape, generator=torch_generator(0, name))


def holds(finding: Finding) -> None:
    wrong = [f"{check.name}: {check.reason}" for check in finding.checks if check.label in ("BROKEN", "VACUOUS")]
    assert not wrong and finding.verdict is Verdict.PARTIAL, (wrong, finding.reason)


class Steerable(nn.Module):
    """Two steerable convolutions of escnn over C(4); ``plain`` puts an ordinary convolution between them."""

    def __init__(self, *, plain: bool = False) -> None:
        super().__init__()
        escnn, self.wrap = needs("escnn.nn"), needs("escnn.nn").GeometricTensor
        space = needs("escnn.gspaces").rot2dOnR2(N=4)
        self.given = escnn.FieldType(space, [space.trivial_repr])
        hidden = escnn.FieldType(space, 3 * [space.regular_repr])
        self.first = escnn.R2Conv(self.given, hidden, kernel_size=3, padding=1)
        self.relu = escnn.ReLU(hidden)
        self.second = escnn.R2Conv(hidden, hidden, kernel_size=3, padding=1)
        self.pool = escnn.GroupPooling(hidden)
        self.plain = nn.Conv2d(3, 3, 3, padding=1) if plain else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        found = self.pool(self.second(self.relu(self.first(self.wrap(x, self.given))))).tensor
        return self.plain(found).mean(dim=(-2, -1))


def test_escnn() -> None:
    spec = sym.Symmetry(sym.C(4), inputs=sym.image(-2, -1), outputs=sym.invariant())
    holds(sym.audit_symmetry(Steerable(), randn(4, 1, 9, 9), spec, **QUICK))
    planted = sym.audit_symmetry(Steerable(plain=True), randn(4, 1, 9, 9), spec, **QUICK)
    assert planted.verdict is Verdict.FAIL and planted.issues[0].location == "plain"


class Unsteered(nn.Module):
    """An ordinary convolution between two steerable ones, handed geometric tensors."""

    def __init__(self, kind: Any) -> None:
        super().__init__()
        self.kind, self.conv = kind, nn.Conv2d(kind.size, kind.size, 3, padding=1)

    def forward(self, x: Any) -> Any:
        return type(x)(self.conv(x.tensor), self.kind)


def test_escnn_modules_that_hand_on_geometric_tensors_are_seen() -> None:
    spec = sym.Symmetry(sym.C(4), inputs=sym.image(-2, -1), outputs=sym.invariant())
    torch.manual_seed(0)
    model = Steerable()
    clean = sym.audit_symmetry(model, randn(4, 1, 9, 9), spec, **QUICK)
    rows = {row[0]: row for table in clean.tables if table.title == "Layers under rotation" for row in table.rows}
    assert {"first", "relu", "second", "pool"} <= set(rows) and all(row[5] == "fits" for row in rows.values())
    holds(clean)
    model.relu = nn.Sequential(model.relu, Unsteered(model.second.in_type))
    planted = sym.audit_symmetry(model, randn(4, 1, 9, 9), spec, **QUICK)
    assert [issue.location for issue in planted.issues] == ["relu.1.conv"], planted.issues


class Typed(nn.Module):
    """Hands its features out as they are typed: arrows, tensors of rank two and regular fields over C(8)."""

    def __init__(self, *, planted: bool) -> None:
        super().__init__()
        escnn, self.wrap = needs("escnn.nn"), needs("escnn.nn").GeometricTensor
        space = needs("escnn.gspaces").rot2dOnR2(N=8)
        self.given = escnn.FieldType(space, [space.trivial_repr])
        self.kind = escnn.FieldType(space, [space.irrep(1), space.irrep(2), space.regular_repr])
        self.first = escnn.R2Conv(self.given, self.kind, kernel_size=3, padding=1)
        self.second = escnn.R2Conv(self.kind, self.kind, kernel_size=3, padding=1)
        self.mix = nn.Conv2d(self.kind.size, self.kind.size, 1) if planted else nn.Identity()

    def forward(self, x: Tensor) -> Any:
        return self.second(self.wrap(self.mix(self.first(self.wrap(x, self.given)).tensor), self.kind))


@pytest.mark.parametrize("planted", [False, True])
def test_escnn_fields_are_declared_by_their_type(planted: bool) -> None:
    torch.manual_seed(0)
    model = Typed(planted=planted).eval()
    spec = sym.Symmetry(sym.C(4), inputs=sym.image(-2, -1), outputs=sym.image(-2, -1) @ sym.fields(model.kind))
    finding = sym.audit_symmetry(model, randn(4, 1, 9, 9), spec, **QUICK)
    if planted:
        assert finding.verdict is Verdict.FAIL and finding.issues[0].location == "mix", finding.reason
    else:
        holds(finding)


def test_a_bert_encoder_without_places_does_not_see_the_order_of_tokens() -> None:
    transformers = needs("transformers")
    config = transformers.BertConfig(
        hidden_size=16, num_hidden_layers=2, num_attention_heads=2, intermediate_size=32, vocab_size=20
    )
    bert = transformers.BertModel(config, add_pooling_layer=False).eval()
    sample = {"inputs_embeds": randn(4, 6, 16)}
    spec = sym.Symmetry(
        sym.S(6), inputs={"inputs_embeds": sym.permuted(1)}, outputs={"last_hidden_state": sym.permuted(1)}
    )
    finding = sym.audit_symmetry(bert, sample, spec, **QUICK)
    assert finding.verdict is Verdict.FAIL and finding.issues[0].location.startswith("embeddings"), finding.reason
    with torch.no_grad():
        bert.embeddings.position_embeddings.weight.zero_()
    holds(sym.audit_symmetry(bert, sample, spec, **QUICK))


class FourierOperator(nn.Module):
    """Two spectral layers with complex weights; ``windowed`` multiplies by a window that stays where it is."""

    def __init__(self, *, windowed: bool = False) -> None:
        super().__init__()
        self.lift, self.drop = nn.Conv1d(1, 6, 1), nn.Conv1d(6, 1, 1)
        scale = torch.randn(2, 6, 6, 5, dtype=torch.complex64, generator=torch_generator(0, "modes")) / 6
        self.modes, self.windowed = nn.Parameter(scale), windowed

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.lift(x)
        for weight in self.modes:
            spectrum = torch.fft.rfft(hidden)[..., :5]
            hidden = torch.tanh(torch.fft.irfft(torch.einsum("bim,iom->bom", spectrum, weight), n=x.shape[-1]) + hidden)
        if self.windowed:
            hidden = hidden * torch.hann_window(x.shape[-1]).to(hidden)
        return self.drop(hidden)


def test_a_fourier_operator_follows_circular_shifts() -> None:
    spec = sym.Symmetry(sym.shifts(1), inputs=sym.image(-1), outputs=sym.image(-1))
    holds(sym.audit_symmetry(FourierOperator(), randn(4, 1, 16), spec, **QUICK))
    assert sym.audit_symmetry(FourierOperator(windowed=True), randn(4, 1, 16), spec, **QUICK).verdict is Verdict.FAIL


class Residual(nn.Module):
    """A ResNet of two blocks with circular padding; ``stride`` samples every other pixel."""

    def __init__(self, stride: int = 1) -> None:
        super().__init__()
        circular = {"padding": 1, "padding_mode": "circular"}
        self.stem, self.first = nn.Conv2d(3, 8, 3, **circular), nn.Conv2d(8, 8, 3, **circular)
        self.norm, self.second = nn.BatchNorm2d(8), nn.Conv2d(8, 8, 3, stride=stride, **circular)
        self.head = nn.Linear(8, 4)

    def forward(self, x: Tensor) -> Tensor:
        hidden = torch.relu(self.stem(x))
        hidden = hidden + torch.relu(self.norm(self.first(hidden)))
        return self.head(torch.relu(self.second(hidden)).mean(dim=(-2, -1)))


def test_a_resnet_follows_circular_shifts_until_it_strides() -> None:
    spec = sym.Symmetry(sym.shifts(), inputs=sym.image(-2, -1), outputs=sym.invariant())
    holds(sym.audit_symmetry(Residual(), randn(4, 3, 12, 12), spec, **QUICK))
    planted = sym.audit_symmetry(Residual(stride=2), randn(4, 3, 12, 12), spec, **QUICK)
    assert planted.verdict is Verdict.FAIL and planted.issues[0].location == "second"


class GraphTransformer(nn.Module):
    """GPS of torch_geometric around a graph convolution; ``table`` adds a vector per node number."""

    def __init__(self, *, table: bool = False) -> None:
        super().__init__()
        geometric = needs("torch_geometric.nn")
        self.gps = geometric.GPSConv(8, geometric.GCNConv(8, 8), heads=2, norm="layer_norm")
        self.table = nn.Parameter(0.1 * randn(6, 8, name="table")) if table else None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.gps(x if self.table is None else x + self.table[: len(x)], edge_index)


def test_gps_follows_a_relabelling_of_the_nodes() -> None:
    pairs = torch.tensor([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (0, 3), (1, 4)])
    edges = torch.cat([pairs, pairs.flip(1)]).T.contiguous()
    sample = [{"x": randn(6, 8, name=f"x{number}"), "edge_index": edges} for number in range(3)]
    inputs = {"x": sym.permuted(0), "edge_index": sym.node_index()}
    spec = sym.Symmetry(sym.S(), inputs=inputs, outputs=sym.permuted(0), batch=None)
    holds(sym.audit_symmetry(GraphTransformer(), sample, spec, **QUICK))
    assert sym.audit_symmetry(GraphTransformer(table=True), sample, spec, **QUICK).verdict is Verdict.FAIL
