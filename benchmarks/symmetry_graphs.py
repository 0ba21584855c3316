"""How many calls of a model an audit of a list of graphs takes, block-diagonally and one by one.

    OMP_NUM_THREADS=1 python benchmarks/symmetry_graphs.py

Sixteen graphs of 4 to 19 nodes, a message-passing network, the defaults of the audit and of the assertion.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from unittest import mock

import torch
from torch import Tensor, nn

from assay import symmetry as sym
from assay.audits.symmetry import layout
from assay.results import Finding
from assay.seeding import torch_generator


class Messages(nn.Module):
    """Three rounds of messages along the edges."""

    def __init__(self) -> None:
        super().__init__()
        self.lift, self.head = nn.Linear(3, 32), nn.Linear(32, 2)
        self.rounds = nn.ModuleList(nn.Sequential(nn.Linear(64, 32), nn.SiLU(), nn.Linear(32, 32)) for _ in range(3))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        h = self.lift(x)
        for layer in self.rounds:
            messages = layer(torch.cat([h[edge_index[0]], h[edge_index[1]]], dim=-1))
            h = h + torch.zeros_like(h).index_add(0, edge_index[1], messages)
        found: Tensor = self.head(h)
        return found


def graph(number: int) -> dict[str, Tensor]:
    random, nodes = torch_generator(number, "graphs"), 4 + number
    edges = torch.randint(nodes, (2, 3 * nodes), generator=random)
    return {"x": torch.randn(nodes, 3, generator=random), "edge_index": edges}


def main() -> None:
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, graphs = Messages(), [graph(number) for number in range(16)]
    inputs = {"x": sym.permuted(0), "edge_index": sym.node_index()}
    spec = sym.Symmetry(sym.S(), inputs=inputs, outputs=sym.permuted(0), batch=None)
    jobs: dict[str, Callable[[], Finding]] = {
        "audit": lambda: sym.audit_symmetry(model, graphs, spec),
        "assert_equivariant": lambda: sym.assert_equivariant(model, graphs, spec),
    }
    for name, job in jobs.items():
        show(f"{name}, block-diagonally", job)
        with mock.patch.object(layout, "_joining", lambda subject: None):
            show(f"{name}, one by one", job)


def show(what: str, job: Callable[[], Finding]) -> None:
    began = time.process_time()
    finding = job()
    took, calls = time.process_time() - began, finding.measurement("calls of the model").value
    print(f"{what}: {finding.verdict}, {calls:.0f} calls, {took:.1f} s")


if __name__ == "__main__":
    main()
