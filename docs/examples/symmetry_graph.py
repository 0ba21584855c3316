"""A message-passing network over an edge list: nodes may be renumbered, edges may be listed in any order."""

from __future__ import annotations

import torch
from torch import nn

from assay import symmetry as sym


class GraphNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(4, 8), nn.Linear(8, 2)

    def forward(self, x: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        h = self.gather(self.first(x), edge_index).tanh()
        return self.gather(self.second(h), edge_index)

    def gather(self, messages: torch.Tensor, edge_index: torch.Tensor) -> torch.Tensor:
        out = torch.zeros_like(messages)
        return out.index_add(0, edge_index[1], messages[edge_index[0]])


def graphs(n: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
    """One graph per call: graphs have no batch axis and may differ in size."""
    nodes = 5 + int(torch.randint(4, (1,), generator=generator))
    return {
        "x": torch.randn(nodes, 4, generator=generator),
        "edge_index": torch.randint(nodes, (2, 3 * nodes), generator=generator),
    }


def main() -> None:
    spec = sym.Symmetry(
        sym.S() * sym.S(name="edges"),
        inputs={"x": sym.permuted(0), "edge_index": sym.node_index() @ sym.permuted(1, of="edges")},
        outputs=sym.permuted(0),
    )
    finding = sym.audit_symmetry(GraphNet(), graphs, spec, inputs=10, transforms=8)
    print(finding.verdict, "-", finding.reason)


if __name__ == "__main__":
    main()
