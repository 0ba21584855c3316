"""Published layers and networks have the symmetry they claim, and a defect planted into them is found and named.

Needs the ``[subjects]`` extra; what is not installed is skipped with the reason.
"""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import Tensor, nn

from assay import symmetry as sym
from assay.results import Verdict
from assay.seeding import torch_generator

QUICK = {"inputs": 6, "transforms": 4, "seed": 0}
FORWARD = {**QUICK, "skip": ("gradients", "differences", "jitter", "train-mode", "training")}
NODES = 6

pytestmark = [pytest.mark.subjects, pytest.mark.filterwarnings("ignore")]


def needs(name: str):
    """The module, or a skip that says what to install."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip(name, reason=f"needs {name}: pip install 'assay-ml[subjects]'", exc_type=ImportError)


def randn(*shape: int, name: str = "x", dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch_generator(0, name), dtype=dtype)


def graph() -> Tensor:
    """A fixed connected graph on six nodes, both directions."""
    pairs = torch.tensor([(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (0, 3), (1, 4)])
    return torch.cat([pairs, pairs.flip(1)]).T.contiguous()


def broken(finding) -> list[str]:
    return [f"{check.name}: {check.reason}" for check in finding.checks if check.label == "BROKEN"]


# torch_geometric: node features and an edge index, no batch axis


class OnGraph(nn.Module):
    """Two layers of a convolution of torch_geometric, with or without a table of node places between them."""

    def __init__(self, make, *, table: bool = False) -> None:
        super().__init__()
        self.first, self.second = make(4, 8), make(8, 3)
        self.between = Table() if table else nn.Identity()

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(torch.tanh(self.between(self.first(x, edge_index))), edge_index)


class Table(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Parameter(0.1 * randn(NODES, 8, name="table"))

    def forward(self, h: Tensor) -> Tensor:
        return h + self.table


GRAPH = sym.Symmetry(
    sym.S(), inputs={"x": sym.permuted(0), "edge_index": sym.node_index()}, outputs=sym.permuted(0), batch=None
)


@pytest.mark.parametrize("layer", ["GCNConv", "GATv2Conv"])
def test_graph_convolutions_follow_a_relabelling_of_the_nodes(layer: str) -> None:
    geometric = needs("torch_geometric.nn")
    samples = [{"x": randn(NODES, 4, name=f"x{i}"), "edge_index": graph()} for i in range(4)]
    clean = sym.audit_symmetry(OnGraph(getattr(geometric, layer)), samples, GRAPH, **QUICK)
    assert not broken(clean), broken(clean)
    assert clean.verdict in (Verdict.PASS, Verdict.PARTIAL), clean.reason
    bad = sym.audit_symmetry(OnGraph(getattr(geometric, layer), table=True), samples, GRAPH, **FORWARD)
    assert bad.verdict is Verdict.FAIL
    assert bad.issues[0].title == "Index leak" and bad.issues[0].location == "between"


class SchNetWithGraph(nn.Module):
    """SchNet with all pairs of nodes as edges, so that no compiled neighbour search is needed."""

    def __init__(self, schnet: nn.Module, *, absolute: bool = False) -> None:
        super().__init__()
        self.schnet, self.absolute = schnet, absolute
        schnet.interaction_graph = AllPairs(absolute=absolute)

    def forward(self, z: Tensor, pos: Tensor) -> Tensor:
        return self.schnet(z, pos)


class AllPairs(nn.Module):
    """Every ordered pair with its distance; ``absolute`` measures from the origin by mistake."""

    def __init__(self, *, absolute: bool) -> None:
        super().__init__()
        self.absolute = absolute

    def forward(self, pos: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        index = torch.combinations(torch.arange(len(pos))).T
        index = torch.cat([index, index.flip(0)], dim=1)
        gap = pos[index[0]] - pos[index[1]]
        distance = gap.norm(dim=-1)
        return index, distance + 0.01 * pos[index[0]].norm(dim=-1) if self.absolute else distance


@pytest.mark.parametrize("absolute", [False, True])
def test_schnet_is_invariant_under_rigid_motions(absolute: bool) -> None:
    models = needs("torch_geometric.nn").models
    schnet = models.SchNet(hidden_channels=16, num_filters=16, num_interactions=2, num_gaussians=8)
    samples = [(torch.tensor([6, 1, 1, 8, 7, 1]), randn(NODES, 3, name=f"pos{i}")) for i in range(4)]
    spec = sym.Symmetry(sym.E(3), inputs=(sym.invariant(), sym.point()), outputs=sym.invariant(), batch=None)
    options = FORWARD if absolute else QUICK
    finding = sym.audit_symmetry(SchNetWithGraph(schnet, absolute=absolute), samples, spec, **options)
    if absolute:
        assert finding.verdict is Verdict.FAIL
        assert finding.issues[0].title == "Absolute position"
        assert "schnet.interaction_graph" in finding.issues[0].location
    else:
        assert not broken(finding), broken(finding)


# egnn-pytorch: features and coordinates, with a batch axis


class TwoEgnn(nn.Module):
    """Two layers of egnn-pytorch, with or without a shift of the coordinates that is not a displacement."""

    def __init__(self, layer, *, drift: bool = False) -> None:
        super().__init__()
        self.first, self.second = layer(dim=8, m_dim=8), layer(dim=8, m_dim=8)
        self.drift = Drift() if drift else nn.Identity()

    def forward(self, feats: Tensor, coors: Tensor) -> tuple[Tensor, Tensor]:
        feats, coors = self.first(feats, coors)
        return self.second(feats, self.drift(coors))


class Drift(nn.Module):
    def forward(self, coors: Tensor) -> Tensor:
        return coors * torch.tensor([1.0, 1.0, 1.05]).to(coors)


EGNN = sym.Symmetry(
    sym.E(3) * sym.S(),
    inputs=(sym.permuted(1), sym.point() @ sym.permuted(1)),
    outputs=(sym.permuted(1), sym.point() @ sym.permuted(1)),
)


@pytest.mark.parametrize("drift", [False, True])
def test_egnn_moves_with_its_coordinates(drift: bool) -> None:
    layer = needs("egnn_pytorch").EGNN
    sample = (randn(6, 5, 8, name="feats"), randn(6, 5, 3, name="coors"))
    finding = sym.audit_symmetry(TwoEgnn(layer, drift=drift), sample, EGNN, **(FORWARD if drift else QUICK))
    if drift:
        assert finding.verdict is Verdict.FAIL
        assert finding.issues[0].location == "drift"
    else:
        assert not broken(finding), broken(finding)


# e3nn: a network as its documentation builds it


class GatedProduct(nn.Module):
    """Spherical harmonics, a tensor product with itself, a gate, a linear layer; ``relu`` acts on components."""

    def __init__(self, *, relu: bool = False) -> None:
        super().__init__()
        o3, gate = needs("e3nn.o3"), needs("e3nn.nn").Gate
        self.gate = gate("8x0e", [torch.relu], "4x0e", [torch.sigmoid], "4x1o")
        self.harmonics = o3.SphericalHarmonics("1x0e+1x1o+1x2e", normalize=True)
        self.product = o3.FullyConnectedTensorProduct("1x0e+1x1o+1x2e", "1x0e+1x1o+1x2e", self.gate.irreps_in)
        self.middle = nn.ReLU() if relu else nn.Identity()
        self.head = o3.Linear(self.gate.irreps_out, "1x0e+2x1o")

    def forward(self, x: Tensor) -> Tensor:
        y = self.harmonics(x)
        return self.head(self.middle(self.gate(self.product(y, y))))


@pytest.mark.parametrize("relu", [False, True])
def test_an_e3nn_network_is_covariant(relu: bool) -> None:
    needs("e3nn.o3")
    spec = sym.Symmetry(sym.O(3), inputs=sym.vector(), outputs=sym.irreps("1x0e+2x1o"))
    finding = sym.audit_symmetry(GatedProduct(relu=relu), randn(8, 3), spec, **(FORWARD if relu else QUICK))
    if relu:
        assert finding.verdict is Verdict.FAIL
        assert finding.issues[0].location == "middle" and finding.issues[0].title == "Nonlinearity on components"
    else:
        assert not broken(finding), broken(finding)
