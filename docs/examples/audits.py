"""The four audits of docs/guides/audits.md on small networks. Run: python docs/examples/audits.py"""

import torch

import assay
from assay.audits.equilibrium.kernel_problems import Answer, Problem
from assay.audits.equilibrium.kernel_subjects import eager
from assay.results import Finding
from assay.seeding import torch_generator


def show(title: str, finding: Finding) -> None:
    """One audit in three lines."""
    print(f"{title}: {finding.verdict}")
    print(f"  {finding.reason}")
    print(f"  {finding.key_finding}")


def gradient() -> None:
    """Centered EP against implicit differentiation, and the same rule pointing uphill."""
    model = assay.models.EnergyMLP([64, 128, 128, 10], gamma=0.25, activation="tanh", seed=0)
    generator = torch_generator(0, "docs", "audits")
    x, y = torch.randn(32, 64, generator=generator), torch.randint(0, 10, (32,), generator=generator)
    rule = assay.EqProp(beta=0.1, nudge="centered", sweeps=(30, 10))
    finding = assay.audit_gradient(model, x, y, rule=rule)
    show("gradient", finding)
    for setting, error in finding.tables[1].rows:
        print(f"    {setting}: {error:.2e}")


def stability() -> None:
    """A loop with spectral normalisation, and the same loop with its weight blown up and the norm left out."""
    x = torch.rand(16, 64, generator=torch_generator(0, "docs", "stability"))
    normalised = assay.models.LoopedMLP(64, 64, 10, spectral_norm=True, seed=0)
    wild = assay.models.LoopedMLP(64, 64, 10, spectral_norm=False, seed=0)
    with torch.no_grad():
        wild.loop.weight.mul_(3)
    show("stability, normalised", assay.audit_stability(normalised, x))
    show("stability, three times the weight", assay.audit_stability(wild, x))


def memory() -> None:
    """EP and backprop through the same sweeps."""
    model = assay.models.EnergyMLP([64, 128, 128, 10], seed=0)
    x, y = torch.zeros(64, 64), torch.zeros(64, dtype=torch.long)
    finding = assay.audit_memory(model, x, y, rule=assay.EqProp(), sweeps=(20, 200), depths=(2,))
    show("memory", finding)
    print("   ", finding.tables[0].columns)
    for row in finding.tables[0].rows:
        print("   ", row)


def kernel() -> None:
    """The fast kernel, and a kernel of one's own that secretly computes in float32."""

    def low(problem: Problem) -> Answer:
        return eager(problem.cast("float32"))

    show("kernel fast", assay.audit_kernel("fast", sweeps=(10, 5)))
    show("kernel in float32", assay.audit_kernel(low, sweeps=(10, 5), controls=False))


if __name__ == "__main__":
    gradient()
    stability()
    memory()
    kernel()
