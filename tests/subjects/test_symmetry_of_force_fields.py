"""Published force fields, called as their users call them, hold what they claim; a planted field of force is found.

The planted defect is the same everywhere: energy gains 0.01 times the heights of the atoms, as a forgotten external
field does. What is not installed is skipped; `python tests/subjects/environments.py` makes an environment for each.
"""

from __future__ import annotations

import warnings
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor, nn

from assay import symmetry as sym
from assay.results import Finding, Verdict
from assay.seeding import torch_generator

pytestmark = [pytest.mark.subjects, pytest.mark.filterwarnings("ignore")]
QUICK = {"inputs": 2, "transforms": 3, "skip": ("gradients", "differences", "jitter", "train-mode", "training")}
NUMBERS = torch.tensor([6, 1, 1, 8, 7, 1])


def needs(name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        why = f"needs {name}: python tests/subjects/environments.py"
        return pytest.importorskip(name, reason=why, exc_type=Exception)


def places(number: int = 0, count: int = 6) -> Tensor:
    return 1.5 * torch.randn(count, 3, generator=torch_generator(number, "places"))


def ethanol(count: int) -> list[Any]:
    found = []
    for number in range(count):
        atoms = needs("ase.build").molecule("CH3CH2OH")
        atoms.rattle(0.05, seed=number)
        found.append(atoms)
    return found


class InAField(nn.Module):
    """A force field in an external field that its energy forgets to mention."""

    def __init__(self, inner: nn.Module, key: str, energy: str) -> None:
        super().__init__()
        self.inner, self.key, self.energy = inner, key, energy

    def forward(self, batch: dict[str, Tensor]) -> dict[str, Tensor]:
        height = batch[self.key][:, 2].sum()
        found = dict(self.inner(batch))
        return {**found, self.energy: found[self.energy] + 0.01 * height.detach()}


def holds(finding: Finding) -> None:
    wrong = [f"{check.name}: {check.reason}" for check in finding.checks if check.label in ("BROKEN", "VACUOUS")]
    assert not wrong and finding.verdict is Verdict.PARTIAL, (wrong, finding.reason)


def falls(finding: Finding) -> None:
    guilty = {check.name.split(": ")[0] for check in finding.checks if check.label == "BROKEN"}
    assert finding.verdict is Verdict.FAIL and {"rotation", "translation"} <= guilty
    assert "permutation" not in guilty


def test_ase_calculators_with_cell_and_stress() -> None:
    build, emt = needs("ase.build"), needs("ase.calculators.emt").EMT
    crystal = build.bulk("Cu", a=3.6) * (2, 1, 1)  # two atoms: the fewest of which one can change places
    crystal.rattle(0.1, seed=1)
    finding = sym.molecule(emt(), crystal, **QUICK)
    holds(finding)
    assert any(check.name == "rotation: stress" for check in finding.checks)

    class Tilted(emt):  # type: ignore[misc, valid-type]
        def calculate(self, *arguments: Any, **options: Any) -> None:
            super().calculate(*arguments, **options)
            self.results["stress"] = self.results["stress"] + 0.01

    guilty = {c.name for c in sym.molecule(Tilted(), crystal, **QUICK).checks if c.label == "BROKEN"}
    assert "rotation: stress" in guilty and "rotation: energy" not in guilty


def test_pyg_graphs_are_taken_as_they_are() -> None:
    models, data = needs("torch_geometric.nn").models, needs("torch_geometric.data").Data
    schnet = models.SchNet(hidden_channels=16, num_filters=16, num_interactions=1, num_gaussians=8)
    schnet.interaction_graph = Pairs()
    graphs = [data(z=NUMBERS, pos=places(number)) for number in range(2)]
    holds(sym.molecule(schnet, graphs, **QUICK))
    schnet.interaction_graph = Pairs(stretch=1.01)
    assert sym.molecule(schnet, graphs, **QUICK).verdict is Verdict.FAIL


class DensePairs(nn.Module):
    """Pair energies of molecules laid out side by side, for which PyG wants the atoms of a molecule together."""

    def __init__(self, field: float) -> None:
        super().__init__()
        self.field, self.mix = field, nn.Linear(1, 4)

    def forward(self, graphs: Any) -> dict[str, Tensor]:
        pos, there = needs("torch_geometric.utils").to_dense_batch(graphs.pos, graphs.batch)
        gaps = (pos[:, :, None] - pos[:, None]).norm(dim=-1, keepdim=True)
        pairs = torch.tanh(self.mix(torch.exp(-gaps))) * (there[:, :, None] & there[:, None]).unsqueeze(-1)
        return {"energy": pairs.sum((1, 2, 3)) + self.field * (pos[..., 0] * there).sum(1)}


@pytest.mark.parametrize("planted", [False, True])
def test_a_pyg_batch_is_taken_apart_into_its_molecules(planted: bool) -> None:
    data = needs("torch_geometric.data")
    several = [data.Data(z=NUMBERS[:count], pos=places(count)[:count]) for count in (4, 6, 5)]
    finding = sym.molecule(DensePairs(0.1 if planted else 0.0), data.Batch.from_data_list(several), **QUICK)
    (falls if planted else holds)(finding)


class Pairs(nn.Module):
    """All pairs and their distances; ``stretch`` measures one axis longer."""

    def __init__(self, stretch: float = 1.0) -> None:
        super().__init__()
        self.stretch = stretch

    def forward(self, pos: Tensor, batch: Tensor) -> tuple[Tensor, Tensor]:
        index = torch.combinations(torch.arange(len(pos))).T
        index = torch.cat([index, index.flip(0)], dim=1)
        scale = torch.tensor([1.0, 1.0, self.stretch]).to(pos)
        return index, ((pos[index[0]] - pos[index[1]]) * scale).norm(dim=-1)


def neighbours(pos: Tensor, r: float, batch: Tensor | None = None, loop: bool = False, **unused: Any) -> Tensor:
    """What PyG's compiled search gives for one structure: (source, target) of all pairs nearer than ``r``."""
    near = torch.cdist(pos, pos) < r
    if not loop:
        near &= ~torch.eye(len(pos), dtype=torch.bool)
    return near.nonzero().T.flip(0)


def triplets(edges: Tensor, num_nodes: int) -> tuple[Tensor, ...]:
    """What PyG's compiled matrices give: every pair of edges k -> j and j -> i with k other than i."""
    source, target = edges
    first, second = ((target[:, None] == source) & (source[:, None] != target)).nonzero().T
    return target, source, target[second], source[second], source[first], first, second


@pytest.mark.parametrize("planted", [False, True])
@pytest.mark.parametrize("name", ["dimenet", "visnet", pytest.param("visnet with forces", marks=pytest.mark.slow)])
def test_pyg_models_that_want_a_compiled_neighbour_search(
    name: str, planted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    models, data = needs("torch_geometric.nn").models, needs("torch_geometric.data").Data
    home = needs(f"torch_geometric.nn.models.{name.partition(' ')[0]}")
    monkeypatch.setattr(home, "radius_graph", neighbours)
    monkeypatch.setattr(home, "triplets", triplets, raising=False)
    if name == "dimenet":
        model: nn.Module = models.DimeNetPlusPlus(
            hidden_channels=8, out_channels=1, num_blocks=1, int_emb_size=4, basis_emb_size=4, out_emb_channels=8,
            num_spherical=3, num_radial=3,
        )
        nn.init.normal_(model.output_blocks[-1].lin.weight)  # zero in a fresh one, which then answers nothing
    else:
        model = models.ViSNet(
            num_heads=2, num_layers=1 + ("forces" in name), hidden_channels=16, num_rbf=8, derivative="forces" in name
        )
    graphs = [data(z=NUMBERS, pos=places(number)) for number in range(2)]
    finding = sym.molecule(Tilt(model) if planted else model, graphs, **QUICK)
    if planted:
        assert finding.verdict is Verdict.FAIL
    else:
        holds(finding)


class Tilt(nn.Module):
    """A model that is told positions measured by a bent ruler."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, z: Tensor, pos: Tensor, batch: Tensor) -> Any:
        return self.inner(z, pos * torch.tensor([1.0, 1.0, 1.02]).to(pos), batch)


@pytest.mark.parametrize("planted", [False, True])
def test_nequip(planted: bool) -> None:
    build = needs("nequip.model").NequIPGNNModel
    needs("nequip.utils.global_state").set_global_state()
    model = build(
        seed=1, model_dtype="float32", type_names=["C", "H", "O"], r_max=4.0, num_layers=2, l_max=1, num_features=8,
        parity=True, radial_mlp_depth=1, radial_mlp_width=8, avg_num_neighbors=5.0,
    )
    types = torch.tensor([0, 1, 1, 2, 0, 1])
    batches = [{"pos": places(n), "edge_index": neighbours(places(n), 4.0), "atom_types": types} for n in range(2)]
    subject = InAField(model, "pos", "total_energy") if planted else model
    (falls if planted else holds)(sym.molecule(subject, batches, **QUICK))
    both = {"pos": torch.cat([places(0), places(1)]), "atom_types": types.repeat(2), "num_atoms": torch.tensor([6, 6])}
    edges = torch.cat([batches[0]["edge_index"], batches[1]["edge_index"] + 6], dim=1)
    together = {**both, "edge_index": edges, "batch": torch.arange(2).repeat_interleave(6)}
    finding = sym.molecule(subject, together, **QUICK)
    (falls if planted else holds)(finding)
    assert {check.name: check for check in finding.checks}["molecules of a batch"].verdict is Verdict.PASS


@pytest.mark.parametrize("planted", [False, True])
def test_mace(planted: bool) -> None:
    needs("mace.modules")
    model, batches = mace_model(), mace_batches(2)
    subject = InAField(model, "positions", "energy") if planted else model
    (falls if planted else holds)(sym.molecule(subject, batches, outputs=MACE, **QUICK))
    (together,) = mace_batches(3, size=3)
    finding = sym.molecule(subject, together, outputs=MACE, **QUICK)
    (falls if planted else holds)(finding)
    assert {check.name: check for check in finding.checks}["molecules of a batch"].verdict is Verdict.PASS


MACE = {"energy": sym.invariant(), "forces": sym.vector() @ sym.permuted(0)}


def mace_model() -> nn.Module:
    modules, irreps = needs("mace.modules"), needs("e3nn.o3").Irreps
    return modules.MACE(
        r_max=4.0,
        num_bessel=4,
        num_polynomial_cutoff=3,
        max_ell=2,
        interaction_cls=modules.interaction_classes["RealAgnosticResidualInteractionBlock"],
        interaction_cls_first=modules.interaction_classes["RealAgnosticInteractionBlock"],
        num_interactions=2,
        num_elements=3,
        hidden_irreps=irreps("4x0e+4x1o"),
        MLP_irreps=irreps("4x0e"),
        gate=torch.nn.functional.silu,
        atomic_energies=torch.tensor([-1.0, -2.0, -3.0]).numpy(),
        avg_num_neighbors=4,
        atomic_numbers=[1, 6, 8],
        correlation=2,
    )


def mace_batches(count: int, size: int = 1) -> list[dict[str, Tensor]]:
    data, tools = needs("mace.data"), needs("mace.tools")
    table = tools.AtomicNumberTable([1, 6, 8])
    graphs = [
        data.AtomicData.from_config(data.config_from_atoms(atoms), z_table=table, cutoff=4.0)
        for atoms in ethanol(count)
    ]
    loader = needs("mace.tools.torch_geometric").dataloader.DataLoader(graphs, batch_size=size)
    return [batch.to_dict() for batch in loader]


@pytest.mark.parametrize("planted", [False, True])
def test_schnetpack(planted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    # schnetpack 2.1.1 imports a type variable that torch 2.13 no longer has.
    monkeypatch.setattr(torch.utils.data.dataloader, "T_co", TypeVar("T_co"), raising=False)
    spk = needs("schnetpack")
    representation = spk.representation.PaiNN(
        n_atom_basis=8,
        n_interactions=2,
        radial_basis=spk.nn.GaussianRBF(n_rbf=8, cutoff=5.0),
        cutoff_fn=spk.nn.CosineCutoff(5.0),
    )
    model = spk.model.NeuralNetworkPotential(
        representation=representation,
        input_modules=[spk.atomistic.PairwiseDistances()],
        output_modules=[spk.atomistic.Atomwise(n_in=8, output_key="energy"), spk.atomistic.Forces()],
    )
    batches = []
    for number in range(2):
        index = torch.combinations(torch.arange(6)).T
        index = torch.cat([index, index.flip(0)], dim=1)
        batches.append(
            {
                "_positions": places(number),
                "_atomic_numbers": NUMBERS,
                "_idx_i": index[0],
                "_idx_j": index[1],
                "_offsets": torch.zeros(index.shape[1], 3),
                "_idx_m": torch.zeros(6, dtype=torch.long),
                "_n_atoms": torch.tensor([6]),
            }
        )
    subject = InAField(model, "_positions", "energy") if planted else model
    (falls if planted else holds)(sym.molecule(subject, batches, **QUICK))
