"""A convolutional network that claims to be invariant under quarter turns: audited, mended, compared."""

from __future__ import annotations

import torch
from torch import nn

import assay
from assay import symmetry as sym


class OverOrbit(nn.Module):
    """The same network, averaged over the four quarter turns of its input."""

    def __init__(self, body: nn.Module) -> None:
        super().__init__()
        self.body = body

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([self.body(torch.rot90(x, k, (-2, -1))) for k in range(4)]).mean(0)


def main() -> None:
    images = torch.randn(16, 1, 12, 12, generator=torch.Generator().manual_seed(0))
    cnn = nn.Sequential(
        nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 10)
    )
    spec = sym.Symmetry(sym.C(4), inputs=sym.image(-2, -1), outputs=sym.invariant())

    finding = assay.audit_symmetry(cnn, images, spec, seed=0)
    print(finding.verdict, "-", finding.reason)
    for issue in finding.issues:
        print(f"  {issue.title} at {issue.location}: {issue.fix}")

    mended = OverOrbit(cnn)
    print(sym.against(cnn, mended, images, spec).reason)
    print(assay.audit_symmetry(mended, images, spec).verdict)


if __name__ == "__main__":
    main()
