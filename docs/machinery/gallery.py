"""Make the reports of the gallery and their pictures: real runs, written into docs/gallery and docs/images.

    python docs/machinery/gallery.py                     all of them; some minutes, finished cells are kept
    python docs/machinery/gallery.py equivariance        one of them
    python docs/machinery/gallery.py --pictures          the pictures alone, of the reports that are there
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path

import torch
from pictures import Camera
from torch import Tensor, nn

import assay
from assay import symmetry as sym
from assay.audits.credit import Recipe
from assay.results import Finding, Run
from assay.seeding import torch_generator
from assay.studies.reproduce.page import read_records
from assay.studies.reproduce.report import report

DOCS = Path(__file__).resolve().parents[1]
STORE = DOCS.parent / "assay-runs" / "gallery"
POINTS = 40
FRAMED = "What lies beyond the margin is framed."


def verification() -> Run:
    """Claims of this project at the smallest number of seeds: some are decided, some say what they would need."""
    return assay.verify(1, 2, 22, seeds=3, store=STORE)


def benchmark() -> Run:
    """Three rules beside backprop on digits, at ten seeds."""
    return assay.bench("digits", rules=["eqprop", "fa-layer", "dfa-layer"], seeds=10, margin=1, store=STORE)


class Points(nn.Module):
    """The network of e3nn's models as it ships, with the sizes of an example; only its call is spelt out."""

    def __init__(self, seed: int) -> None:
        from e3nn.nn.models.gate_points_2101 import Network

        super().__init__()
        with torch.random.fork_rng():
            torch.manual_seed(seed)  # e3nn takes its weights from torch's own generator
            self.network = Network(
                irreps_in="4x0e", irreps_hidden="8x0e + 8x1o", irreps_out="0e", irreps_node_attr="0e",
                irreps_edge_attr="0e + 1o + 2e", layers=1, max_radius=2.0, number_of_basis=6, radial_layers=1,
                radial_neurons=16, num_neighbors=3.0, num_nodes=float(POINTS),
            )  # fmt: skip

    def forward(self, features: Tensor, positions: Tensor) -> Tensor:
        return self.network({"x": features, "pos": positions})


def equivariance(points: int = POINTS) -> Finding:
    """A published network that is invariant to rotations, until a cloud has more than 25 points."""
    draw = torch_generator(0, "gallery", "clouds")
    clouds = [(torch.randn(points, 4, generator=draw), 1.5 * torch.randn(points, 3, generator=draw)) for _ in range(8)]
    spec = sym.Symmetry(sym.SO(3), inputs=(sym.invariant(), sym.vector()), outputs=sym.invariant(), batch=None)
    name = f"e3nn Network, {points} points"
    return assay.audit_symmetry(Points(seed=0), clouds, spec, transforms=10, seed=0, name=name)


def credit() -> Finding:
    """A net trained by block-level direct feedback alignment whose accuracy looks well."""
    task = assay.tasks.digits(seed=0)
    model = _residual(0)
    rule = _feedback(model, 0)
    assay.train(model, task, rule, epochs=10, seed=0)
    recipe = Recipe(build=_residual, rule=_feedback, task=task, epochs=10, seeds=(0, 1, 2))
    return assay.audit_credit(model, task.test.x[:128], task.test.y[:128], rule=rule, train=recipe)


def _residual(seed: int) -> nn.Module:
    return assay.models.ResMLP(64, width=64, depth=4, seed=seed)


def _feedback(model: nn.Module, seed: int) -> assay.FeedbackAlignment:
    return assay.FeedbackAlignment(model, kind="dfa", level="block", seed=seed)


def published_benchmark() -> Run:
    """The benchmark of docs/results/bench.md as a report; nothing is run."""
    runs = json.loads((DOCS / "results" / "bench.json").read_text(encoding="utf-8"))
    run = Run.model_validate(runs[0])
    gaps = run.figures[0]  # made before pictures told verdicts and margins; both are in the findings
    verdicts = {finding.name: finding.verdict.value for finding in run.findings}
    notes = tuple(tuple(verdicts[f"{task}/{arm}"] for arm in gaps.categories) for task in gaps.row_names)
    region = run.findings[0].measurement("accuracy gap").region
    told = {"notes": notes, "margin": region.high if region else None, "caption": f"{gaps.caption} {FRAMED}"}
    return run.model_copy(update={"figures": (gaps.model_copy(update=told),)})


def published_protocol() -> Run:
    """The records of docs/results/fa-protocol.md as a report; nothing is run."""
    records = read_records(DOCS / "results" / "data" / "fa-protocol")
    return report(records, (), command="assay reproduce fa-protocol all", seconds=0.0)


REPORTS: dict[str, Callable[[], Run | Finding]] = {
    "verification": verification, "benchmark": benchmark, "equivariance": equivariance, "credit": credit,
    "results-benchmark": published_benchmark, "results-protocol": published_protocol,
}


def main() -> None:
    """Make the named reports, and the picture of each."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", choices=[*REPORTS, []], help="all if none is named")
    parser.add_argument("--pictures", action="store_true", help="run nothing")
    options = parser.parse_args()
    torch.set_num_threads(1)
    for name in options.names or REPORTS:
        page = DOCS / "gallery" / f"{name}.html"
        if not options.pictures:
            assay.save_report(REPORTS[name](), page)
        with Camera() as camera:
            camera.take(page, "body", DOCS / "images" / "gallery" / f"{name}.png", most=900)
            if name == "results-benchmark":  # what the README opens with
                camera.take(page, "body", DOCS / "images" / "report.png", most=1000)
        print(page.relative_to(DOCS.parent), page.stat().st_size)


if __name__ == "__main__":
    main()
