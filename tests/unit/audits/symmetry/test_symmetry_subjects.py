"""Models of many shapes: dicts, graphs, several outputs, float32 only, fixed sizes, lists and callables of inputs."""

from __future__ import annotations

from types import SimpleNamespace

import torch
from torch import nn

from assay import symmetry as sym
from assay.audits.symmetry.representations.images import Image
from assay.results import Verdict

FAST = {"inputs": 6, "transforms": 5}


class GraphNet(nn.Module):
    """Two rounds of message passing over an edge list."""

    def __init__(self, *, leak: bool = False) -> None:
        super().__init__()
        self.first, self.second, self.leak = nn.Linear(4, 8), nn.Linear(8, 2), leak

    def forward(self, x, edge_index):
        h = self._pass(self.first, x, edge_index).tanh()
        return self._pass(self.second, h.cumsum(0) if self.leak else h, edge_index)

    def _pass(self, layer, x, edge_index):
        out = torch.zeros(len(x), layer.out_features, dtype=x.dtype)
        return out.index_add(0, edge_index[1], layer(x)[edge_index[0]])


GRAPH = sym.Symmetry(
    sym.S() * sym.S(name="edges"),
    inputs={"x": sym.permuted(0), "edge_index": sym.node_index() @ sym.permuted(1, of="edges")},
    outputs=sym.permuted(0),
)


def graph(n, generator):
    nodes = 4 + int(torch.randint(3, (1,), generator=generator))
    x = torch.randn(nodes, 4, generator=generator)
    return {"x": x, "edge_index": torch.randint(nodes, (2, 9), generator=generator)}


def test_a_graph_network_of_changing_size_is_exact_under_nodes_and_edges():
    finding = sym.audit_symmetry(GraphNet(), graph, GRAPH, **FAST)
    assert finding.passed, finding.reason
    assert finding.measurement("inputs tested").value == 6
    names = {check.name for check in finding.checks}
    assert {"permutation: output", "permutation of edges: output"} <= names


def test_an_order_dependent_graph_network_is_caught_at_its_place():
    finding = sym.audit_symmetry(GraphNet(leak=True), graph, GRAPH, **FAST)
    assert finding.verdict is Verdict.FAIL
    assert finding.issues[0].title == "Index leak"
    assert finding.issues[0].location == "(model) (its own code, before it calls second)"


def test_a_list_of_inputs_of_different_sizes_is_audited():
    inputs = [graph(1, torch.Generator().manual_seed(i)) for i in range(5)]
    finding = sym.audit_symmetry(GraphNet(), inputs, GRAPH, **FAST)
    assert finding.passed and finding.measurement("inputs tested").value == 5


class Several(nn.Module):
    """A dict of outputs of every kind, nested."""

    def forward(self, state):
        pos, velocity = state["pos"], state["velocity"]
        momentum = torch.linalg.cross(pos, velocity)
        stress = pos.unsqueeze(-1) * velocity.unsqueeze(-2)
        return {"energy": velocity.square().sum(-1), "rest": (momentum, stress.sum(1))}


def test_nested_inputs_and_outputs_are_declared_in_their_own_shape():
    sample = {"pos": torch.randn(8, 4, 3), "velocity": torch.randn(8, 4, 3)}
    spec = sym.Symmetry(
        sym.O(3) * sym.time_reversal(),
        inputs={"pos": sym.vector(), "velocity": sym.vector() @ sym.odd(of="time")},
        outputs={
            "energy": sym.invariant(),
            "rest": (sym.pseudovector() @ sym.odd(of="time"), sym.tensor(2) @ sym.odd(of="time")),
        },
    )
    finding = sym.audit_symmetry(Several(), sample, spec, **FAST)
    assert finding.passed, finding.reason
    assert {"rotation: rest.0", "time: rest.1"} <= {check.name for check in finding.checks}


class OnlyFloat32(nn.Module):
    """Holds constants in an object of its own, where no cast reaches them: float64 inputs raise."""

    def __init__(self, *, broken: bool = False) -> None:
        super().__init__()
        table = torch.randn(4, 4, generator=torch.Generator().manual_seed(0))
        self.constants, self.broken = SimpleNamespace(table=table), broken

    def forward(self, x):
        return (x[..., 0] if self.broken else x.square().sum(-1)) @ self.constants.table


def test_a_model_that_runs_in_float32_only_is_float_limited_or_broken_and_says_so():
    spec = sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=sym.invariant())
    x = torch.randn(8, 4, 3)
    good, bad = (sym.audit_symmetry(OnlyFloat32(broken=broken), x, spec, **FAST) for broken in (False, True))
    assert next(c for c in good.checks if c.name == "rotation: output").label == "FLOAT-LIMITED"
    assert any("no float64 run" in line for line in good.limitations)
    assert good.verdict is Verdict.PARTIAL  # finite differences need float64: untested, not passed
    assert bad.verdict is Verdict.FAIL


class SilentlyFloat32(nn.Module):
    def forward(self, x):
        return x.float().square().sum((-1, -2)).to(x.dtype)


def test_a_model_that_computes_in_float32_whatever_it_is_given_is_not_called_broken():
    spec = sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=sym.invariant())
    finding = sym.audit_symmetry(SilentlyFloat32(), torch.randn(8, 4, 3), spec, skip=["differences"], **FAST)
    assert next(c for c in finding.checks if c.name == "rotation: output").label == "FLOAT-LIMITED"


class Fixed(nn.Module):
    """Runs with one batch size and one image size only."""

    def forward(self, x):
        return x.reshape(4, 64).sum(1)


def test_a_model_of_fixed_batch_and_image_size_is_audited_at_that_size():
    spec = sym.Symmetry(sym.D(4), inputs=sym.image(-2, -1), outputs=sym.invariant())
    finding = sym.audit_symmetry(Fixed(), torch.randn(4, 1, 8, 8), spec, skip=["gradients", "differences"])
    assert not any(check.label == "BROKEN" for check in finding.checks)
    assert any("sizes do not run" in line for line in finding.limitations)


def test_transformations_are_merged_into_few_calls():
    spec = sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=sym.invariant())
    skip = [
        "sensitivity",
        "special",
        "search",
        "localise",
        "gradients",
        "differences",
        "jitter",
        "train-mode",
        "training",
    ]

    class Norm(nn.Module):
        def forward(self, x):
            return x.norm(dim=-1)

    finding = sym.audit_symmetry(Norm(), torch.randn(1, 5, 3), spec, transforms=100, skip=skip)
    assert finding.measurement("calls of the model").value < 30
    assert finding.measurement("inputs sent through the model").value >= 100


def test_a_call_of_ones_own_is_used():
    class Odd(nn.Module):
        def forward(self, x, *, flag):
            return x.norm(dim=-1) if flag else x[..., 0]

    spec = sym.Symmetry(sym.SO(3), inputs=sym.vector(), outputs=sym.invariant())
    x = torch.randn(8, 5, 3)
    assert sym.audit_symmetry(Odd(), x, spec, call=lambda m, v: m(v, flag=True), **FAST).passed
    assert sym.audit_symmetry(Odd(), x, spec, call=lambda m, v: m(v, flag=False), **FAST).verdict is Verdict.FAIL


def test_a_large_input_is_moved_by_few_elements_at_a_time(monkeypatch):
    moved = []
    act = Image.act

    def seen(self, elements, x):
        moved.append(x.numel() * x.element_size())
        return act(self, elements, x)

    monkeypatch.setattr(Image, "act", seen)
    spec = sym.Symmetry(sym.shifts(), inputs=sym.image(-2, -1), outputs=sym.image(-2, -1))
    x = torch.randn(2, 3, 256, 256)  # 3 MB in float64
    skip = ["sizes", "localise", "gradients", "differences", "jitter", "train-mode", "training"]
    assert sym.audit_symmetry(nn.Tanh(), x, spec, transforms=16, skip=skip).verdict is Verdict.PARTIAL
    assert max(moved) <= 8 << 20, f"{max(moved) >> 20} MB at once"
    moved.clear()
    assert sym.audit_symmetry(nn.Tanh(), x[..., :8, :8], spec, transforms=16, skip=skip).verdict is Verdict.PARTIAL
    assert max(moved) >= 16 * 2 * 3 * 64 * 8  # a small one by all of them together
