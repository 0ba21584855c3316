"""Watch a network settle: how far each sweep still moves it, and how its energy falls. Writes relaxation.svg."""

from __future__ import annotations

import math
from pathlib import Path

import torch

from assay import tasks
from assay.models import EnergyMLP

SWEEPS = 25
COLOURS = ("#0b6e99", "#c2571a", "#5b7f2b")


def settle(gamma: float) -> tuple[list[float], list[float]]:
    """Residual and mean energy above the lowest, sweep by sweep, of a 3-hidden-layer net on digits."""
    model = EnergyMLP([64, 128, 128, 128, 10], gamma=gamma, seed=0).double()
    with torch.no_grad():
        for layer in model.layers:
            layer.weight.mul_(2.0)  # about the size weights have after training
        clamped = model.clamp(tasks.digits(seed=0).train.x[:64].double())
        state = model.start(clamped)
        residuals, energies = [], [float(model.energy(clamped, state).mean())]
        for _ in range(SWEEPS):
            solution = model.relax(clamped, state, sweeps=1)
            state = solution.value
            residuals.append(solution.residual)
            energies.append(float(model.energy(clamped, state).mean()))
        rest = model.relax(clamped, state, sweeps=400).value
        lowest = float(model.energy(clamped, rest).mean())
    return residuals, [max(energy - lowest, 1e-16) for energy in energies]


def panel(title: str, curves: dict[str, list[float]], left: float) -> str:
    """One picture: a logarithmic axis from 1e-15 to 10, one line per curve."""
    width, height, top = 300, 190, 40
    lines = [f'<text x="{left}" y="20" font-size="13">{title}</text>',
             f'<rect x="{left}" y="{top}" width="{width}" height="{height}" fill="none" stroke="#888"/>']
    for power in range(-15, 2, 4):
        y = top + height * (1 - power) / 16
        lines.append(f'<text x="{left - 6}" y="{y + 4:.0f}" font-size="10" text-anchor="end">1e{power}</text>')
    for index, (name, values) in enumerate(curves.items()):
        points = " ".join(
            f"{left + width * i / SWEEPS:.1f},{top + height * (1 - max(math.log10(max(v, 1e-15)), -15)) / 16:.1f}"
            for i, v in enumerate(values)
        )
        lines.append(f'<polyline points="{points}" fill="none" stroke="{COLOURS[index]}" stroke-width="2"/>')
        lines.append(f'<text x="{left + 12}" y="{top + height - 12 - 16 * index}" font-size="12" '
                     f'fill="{COLOURS[index]}">{name}</text>')
    middle, bottom = left + width / 2, top + height + 18
    lines.append(f'<text x="{middle}" y="{bottom}" font-size="11" text-anchor="middle">sweep</text>')
    return "\n".join(lines)


runs = {f"gamma = {gamma}": settle(gamma) for gamma in (1.0, 0.5, 0.25)}
picture = "\n".join([
    '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 740 260" font-family="sans-serif" fill="#222">',
    '<rect width="740" height="260" fill="#fff"/>',
    panel("largest change of a unit in one sweep", {name: run[0] for name, run in runs.items()}, 50),
    panel("energy above its lowest value", {name: run[1] for name, run in runs.items()}, 420),
    "</svg>\n",
])
Path("relaxation.svg").write_text(picture, encoding="utf-8")
for name, (residuals, energies) in runs.items():
    print(f"{name}: residual {residuals[0]:.1e} -> {residuals[-1]:.1e}, energy {energies[0]:.1e} -> {energies[-1]:.1e}")
    assert energies[-1] < energies[0], "free sweeps must lower the energy"
