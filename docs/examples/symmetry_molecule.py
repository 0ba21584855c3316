"""Energy and forces of a molecule: rotations, reflections, translations, permutations, and forces = -dE/dx."""

from __future__ import annotations

import torch
from torch import nn

from assay import symmetry as sym


class ForceField(nn.Module):
    """Energy of pair distances and atom types; forces by automatic differentiation."""

    def __init__(self) -> None:
        super().__init__()
        self.kinds = nn.Embedding(5, 8)
        self.pair = nn.Sequential(nn.Linear(17, 16), nn.SiLU(), nn.Linear(16, 1))

    def forward(self, z: torch.Tensor, pos: torch.Tensor) -> dict[str, torch.Tensor]:
        with torch.enable_grad():
            pos = pos if pos.requires_grad else pos.detach().requires_grad_(True)
            apart = (pos[:, :, None] - pos[:, None]).square().sum(-1, keepdim=True)
            h, n = self.kinds(z), z.shape[1]
            pairs = torch.cat([h[:, :, None].expand(-1, -1, n, -1), h[:, None].expand(-1, n, -1, -1), apart], dim=-1)
            energy = self.pair(pairs).sum((1, 2, 3))
            (slope,) = torch.autograd.grad(energy.sum(), pos, create_graph=True)
        return {"energy": energy, "forces": -slope}


def sample(n: int, generator: torch.Generator) -> dict[str, torch.Tensor]:
    return {
        "z": torch.randint(5, (n, 6), generator=generator),
        "pos": torch.randn(n, 6, 3, generator=generator),
    }


def main() -> None:
    spec = sym.Symmetry(
        sym.E(3) * sym.S(),
        inputs={"z": sym.permuted(1), "pos": sym.point() @ sym.permuted(1)},
        outputs={"energy": sym.invariant(), "forces": sym.vector() @ sym.permuted(1)},
    )
    finding = sym.audit_symmetry(ForceField(), sample, spec, inputs=20, transforms=10)
    print(finding.verdict, "-", finding.reason)
    for check in finding.checks:
        print(f"  {check.name:45} {check.label:14} {check.reason}")


if __name__ == "__main__":
    main()
