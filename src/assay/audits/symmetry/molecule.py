"""Molecules and crystals as other programs hold them: ASE atoms, graphs of PyG, dicts of MACE and NequIP."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Unpack

import numpy as np
import torch
from torch import Tensor, nn

from assay.audits.symmetry.audit import audit_symmetry
from assay.audits.symmetry.batches import CELLS, EDGES, PER_NODE, POSITIONS, agreement, atom_order, molecules
from assay.audits.symmetry.groups.continuous import E
from assay.audits.symmetry.groups.discrete import S
from assay.audits.symmetry.quick import AuditOptions
from assay.audits.symmetry.representations.actions import node_index, permuted
from assay.audits.symmetry.representations.base import Representation, invariant, point, tensor, vector
from assay.audits.symmetry.spec import Symmetry
from assay.errors import AssayError, expected
from assay.probe import tree
from assay.probe.containment import attempt, told
from assay.probe.values import difference, is_continuous, jittered, largest
from assay.results import Check, Finding, Verdict
from assay.seeding import torch_generator

CARTESIAN_SHIFTS = ("shifts", "_offsets", "edge_vec", "edge_vectors", "_Rij")
INVARIANT_OUTPUTS = ("energy", "total_energy", "interaction_energy", "free_energy")
VECTORS_PER_NODE = ("forces", "force")
TENSORS = ("stress", "virials", "virial")
NUMBERS_PER_NODE = ("node_energy", "atomic_energy", "energies")


def molecule(model: Any, sample: Any, *, outputs: Any = None, **options: Unpack[AuditOptions]) -> Finding:
    """``audit_symmetry`` under E(3) and permutations of the atoms, with the roles of inputs and outputs guessed.

    Args:
        model: an ASE calculator, or a module called with the graph or dict, or with arguments named as its keys.
        sample: ASE atoms, a graph of PyG (``Data``, ``Batch``), a dict of tensors, or a list of one of them. Batches
            of several molecules are taken apart, and a check says whether the model says the same of them together.
        outputs: representations of the outputs; without them, those with well-known names are tested.
        options: as in ``audit_symmetry``.

    Energies are invariant, forces are vectors per atom, stress is a tensor, the cell turns with the atoms. What was
    guessed is the first check of the finding; what has no well-known name is invariant as an input and untested as an
    output.
    """
    given = sample if isinstance(sample, list) else [sample]
    if not given:
        raise expected("at least one molecule", given="an empty list")
    first = given[0]
    call: Callable[[nn.Module, Any], Any] | None = None
    if hasattr(first, "get_positions"):
        subject, wholes = _with_calculator(model, given)
    elif isinstance(first, Mapping):
        subject, wholes, call = model, [dict(one) for one in given], _as_dict
    elif hasattr(first, "to_dict"):
        subject, wholes, call = model, [_graph(model, one) for one in given], _as_graph(model, _graphs_of(first)[0])
    else:
        raise expected("ASE atoms, a PyG graph or a dict of tensors", given=type(first).__name__)
    apart = [_apart(model, whole, one) for whole, one in zip(wholes, given, strict=True)]
    cases = [case for several in apart for case in several]
    guessed = guess(cases[0])
    first_result = _first_outputs(subject, cases[0], call)
    unread = _unread(subject, cases[0], call, first_result)
    inputs = {name: invariant() if name in unread else rep for name, rep in guessed.items()}
    found = outputs if outputs is not None else guess_outputs(first_result, _nodes(cases[0]))
    spec = Symmetry(E(3) * S(), inputs=inputs, outputs=found, batch=None)
    finding = audit_symmetry(subject, cases, spec, **{"call": call, **options})  # type: ignore[arg-type]
    together = []
    for whole, several, one in zip(wholes, apart, given, strict=True):
        if len(several) > 1:
            own = call if isinstance(one, Mapping) else _as_graph(model, one)
            asked = partial(_first_outputs, subject, whole, own)
            each = partial(_each, subject, several, call)
            together.append(agreement(asked, each, found, order=atom_order(whole)))
    return _with_checks(finding, [_shown(inputs, found), *together])


def _with_checks(finding: Finding, first: list[Check]) -> Finding:
    """The finding with checks of its own door in front; what they leave open takes a PASS away."""
    doubts = [check for check in first if check.verdict is not Verdict.PASS]
    changed: dict[str, Any] = {"checks": (*first, *finding.checks)}
    if doubts and finding.verdict is Verdict.PASS:
        changed |= {"verdict": Verdict.PARTIAL, "reason": f"{doubts[0].name}: {doubts[0].reason}"}
    return finding.model_copy(update=changed)


def guess(batch: Mapping[str, Any]) -> dict[str, Representation]:
    """How each entry of a dict of tensors transforms, by its name and shape.

    >>> guess({"pos": torch.zeros(5, 3), "z": torch.zeros(5), "cell": torch.zeros(3, 3)})
    {'pos': point @ permuted(0), 'z': permuted(0), 'cell': vector}
    """
    nodes = _nodes(batch)
    return {name: _input(name, value, nodes) for name, value in batch.items()}


def guess_outputs(result: Any, nodes: int) -> Any:
    """Representations of the outputs with well-known names; an InputError that lists the names if there are none."""
    if isinstance(result, Tensor):
        return permuted(0) if result.ndim and len(result) == nodes else invariant()
    if (pair := _energy_and_forces(result, nodes)) is not None:
        return pair
    named = {name: one for name, one in _items(result) if isinstance(one, Tensor)}
    found = {name: rep for name, one in named.items() if (rep := _output(name, one, nodes)) is not None}
    if not found:
        known = ", ".join([*INVARIANT_OUTPUTS, *VECTORS_PER_NODE, *TENSORS])
        raise expected(f"an output called {known}", given=", ".join(named) or "none", do="say outputs={...}")
    return found


def _energy_and_forces(result: Any, nodes: int) -> tuple[Representation, ...] | None:
    """Without names: one number, alone or with a vector for every atom, as models return energy and forces."""
    if not isinstance(result, tuple | list):
        return None
    shapes = [tuple(one.shape) for one in result if isinstance(one, Tensor)]
    if not shapes or torch.Size(shapes[0]).numel() != 1 or shapes[1:] not in ([], [(nodes, 3)]):
        return None
    return tuple(vector() @ permuted(0) if isinstance(one, Tensor) and one.shape == (nodes, 3) else invariant()
                 for one in result)


class Calculated(nn.Module):
    """An ASE calculator as a module: positions, numbers and cell in, energy, forces and stress out."""

    def __init__(self, calculator: Any, atoms: Any) -> None:
        super().__init__()
        self.calculator, self.atoms = calculator, atoms

    def __deepcopy__(self, memo: Any) -> Calculated:
        # A calculator may hold what cannot be copied (files, devices); it is asked for one structure at a time.
        return Calculated(self.calculator, self.atoms.copy())

    def forward(self, positions: Tensor, numbers: Tensor, cell: Tensor | None = None) -> dict[str, Tensor]:
        """One structure, computed afresh; without a cell it is the one of the first structure."""
        atoms = type(self.atoms)(
            numbers=numbers.cpu().numpy(),
            positions=positions.detach().cpu().double().numpy(),
            cell=self.atoms.cell if cell is None else cell.detach().cpu().double().numpy(),
            pbc=self.atoms.pbc,
        )
        atoms.calc = self.calculator
        found = {"energy": [atoms.get_potential_energy()], "forces": atoms.get_forces()}
        if bool(np.all(atoms.pbc)) and "stress" in getattr(self.calculator, "implemented_properties", ()):
            found["stress"] = atoms.get_stress(voigt=False)
        return {name: torch.as_tensor(np.asarray(one)).to(positions.dtype) for name, one in found.items()}


def _with_calculator(model: Any, samples: list[Any]) -> tuple[nn.Module, list[dict[str, Tensor]]]:
    calculator = model if hasattr(model, "get_potential_energy") else None
    if calculator is None:
        raise expected(
            "an ASE calculator for ASE atoms",
            given=type(model).__name__,
            do="wrap the model in its calculator, or give the graph it takes (a dict or PyG data)",
        )
    periodic = bool(np.any(samples[0].pbc))
    if any(bool(np.any(one.pbc != samples[0].pbc)) for one in samples):
        raise expected("structures with the same periodic axes", given="different ones", do="audit them one by one")
    cases = []
    for one in samples:
        case = {
            "positions": torch.as_tensor(one.get_positions()),
            "numbers": torch.as_tensor(one.get_atomic_numbers()),
        }
        cases.append({**case, "cell": torch.as_tensor(np.asarray(one.cell))} if periodic else case)
    return Calculated(calculator, samples[0].copy()), cases


def _as_dict(model: nn.Module, batch: Any) -> Any:
    return model(dict(batch))


def _as_graph(model: Any, graph: Any) -> Callable[[nn.Module, Any], Any]:
    """Calls a model with its arguments by name where the graph has them all, else with the graph."""
    wanted = [
        name
        for name, one in inspect.signature(model.forward).parameters.items()
        if one.kind in (one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
    ]
    by_name = len(wanted) > 1 and wanted[0] in _tensors_of(graph)

    def call(module: nn.Module, batch: Mapping[str, Tensor]) -> Any:
        if by_name:
            return module(**{name: batch[name] for name in wanted if name in batch})
        other = copy.copy(graph)
        for name, value in batch.items():
            other[name] = value
        return module(other)

    return call


def _graphs_of(one: Any) -> list[Any]:
    """The graphs of a batch of PyG as batches of one: atoms of different molecules do not change places."""
    if not hasattr(one, "to_data_list") or one.num_graphs < 2:
        return [one]
    return [type(one).from_data_list([graph]) for graph in one.to_data_list()]


def _apart(model: Any, whole: dict[str, Any], given: Any) -> list[dict[str, Any]]:
    """The molecules of one element of the sample; a batch of PyG knows them itself."""
    if hasattr(given, "to_data_list"):
        return [_graph(model, one) for one in _graphs_of(given)]
    return molecules(whole)


def _graph(model: Any, graph: Any) -> dict[str, Any]:
    """The tensors of a graph; one alone is the whole batch, where its model insists on being told the batch."""
    found = _tensors_of(graph)
    batch = inspect.signature(model.forward).parameters.get("batch")
    if batch is not None and batch.default is batch.empty and "batch" not in found:
        found["batch"] = torch.zeros(_nodes(found), dtype=torch.long)
    return found


def _tensors_of(graph: Any) -> dict[str, Any]:
    return {name: value for name, value in graph.to_dict().items() if isinstance(value, Tensor)}


def _nodes(batch: Mapping[str, Any]) -> int:
    place = next((name for name in POSITIONS if name in batch), None)
    if place is None:
        raise expected(f"positions called {', '.join(POSITIONS)}", given=", ".join(map(str, batch)))
    return len(batch[place])


def _input(name: str, value: Any, nodes: int) -> Representation:
    if not isinstance(value, Tensor):
        return invariant()
    if name in POSITIONS:
        return point() @ permuted(0)
    if name in EDGES:
        return node_index()
    if name in CELLS or (name in CARTESIAN_SHIFTS and value.ndim and value.shape[-1] == 3):
        return vector()
    if name in PER_NODE and value.ndim and len(value) == nodes:
        return permuted(0)
    return invariant()


def _output(name: str, value: Tensor, nodes: int) -> Representation | None:
    if name in INVARIANT_OUTPUTS:
        return invariant()
    if name in VECTORS_PER_NODE and value.shape == (nodes, 3):
        return vector() @ permuted(0)
    if name in TENSORS and value.shape[-2:] == (3, 3):
        return tensor(2)
    return permuted(0) if name in NUMBERS_PER_NODE and value.ndim and len(value) == nodes else None


def _first_outputs(model: nn.Module, case: Mapping[str, Any], call: Callable[[nn.Module, Any], Any] | None) -> Any:
    # On a copy, with copied inputs: a model may write into what it is given.
    fed = {name: one.clone() if isinstance(one, Tensor) else one for name, one in case.items()}
    other = copy.deepcopy(model).eval()
    try:
        return call(other, fed) if call is not None else other(**fed)
    except AssayError:
        raise
    except Exception as error:
        given = ", ".join(f"{name} {tuple(one.shape)}" for name, one in fed.items() if isinstance(one, Tensor))
        raise expected("a structure the model accepts", given=given,
                       do=f"{type(model).__name__} said {told(error)}") from error


def _each(model: nn.Module, cases: list[dict[str, Any]], call: Callable[[nn.Module, Any], Any] | None) -> list[Any]:
    return [_first_outputs(model, case, call) for case in cases]


def _unread(
    model: nn.Module, case: Mapping[str, Any], call: Callable[[nn.Module, Any], Any] | None, before: Any
) -> set[str]:
    """Continuous entries beside the positions that the model does not read: batches carry targets and spare fields."""
    found = set()
    for name, value in case.items():
        if not isinstance(value, Tensor) or not is_continuous(value) or name in POSITIONS:
            continue
        # Noise, another sign, another order: the largest of a one-hot entry stays where it is under noise alone.
        turned = value.flip(0) if value.ndim else value
        others = [*jittered([value], torch_generator(0, "unread", name)), -value, turned]
        afters = [attempt(partial(_first_outputs, model, {**case, name: one}, call)).value for one in others]
        if all(after is not None and _alike(before, after) for after in afters):
            found.add(name)
    return found


def _alike(before: Any, after: Any) -> bool:
    """The same but for rounding: compiled code (TorchScript) is compiled otherwise from its second call on."""
    pairs = list(zip(tree.tensors(before), tree.tensors(after), strict=False))
    limits = [64 * torch.finfo(a.dtype if is_continuous(a) else torch.float32).eps * largest(a) for a, _ in pairs]
    return all(
        a.shape == b.shape and largest(difference(a, b)) <= limit for (a, b), limit in zip(pairs, limits, strict=True)
    )


def _items(result: Any) -> list[tuple[str, Any]]:
    return list(result.items()) if isinstance(result, Mapping) else tree.leaves(result)


def _shown(inputs: Mapping[str, Representation], outputs: Any) -> Check:
    moved = {name: rep for name, rep in inputs.items() if repr(rep) != "invariant"}
    alone = [name for name in inputs if name not in moved]
    said = ", ".join(f"{name}: {rep!r}" for name, rep in moved.items())
    rest = f"; left alone: {', '.join(alone)}" if alone else ""
    answers = ", ".join(f"{n}: {r!r}" for n, r in outputs.items()) if isinstance(outputs, Mapping) else repr(outputs)
    return Check(name="declaration", verdict=Verdict.PASS, reason=f"taken for inputs {said}{rest}; outputs {answers}")
