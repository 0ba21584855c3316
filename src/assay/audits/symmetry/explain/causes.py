"""What usually goes wrong in a module of a given kind, given how its features transform."""

from __future__ import annotations

import dataclasses

import torch
from torch import nn

from assay.audits.symmetry.explain import signatures
from assay.audits.symmetry.explain.candidates import Reshaped, moving_parts
from assay.audits.symmetry.explain.signatures import Signature
from assay.audits.symmetry.facts import Facts
from assay.audits.symmetry.locate.localise import EventFit, Location
from assay.audits.symmetry.locate.probing import Fits
from assay.audits.symmetry.representations.actions import Backwards, Permuted, Scaled
from assay.audits.symmetry.representations.base import Invariant, Representation
from assay.audits.symmetry.representations.images import Image
from assay.audits.symmetry.representations.unitary import Phase
from assay.audits.symmetry.spec import atoms

NONLINEAR = (
    nn.ReLU,
    nn.LeakyReLU,
    nn.ELU,
    nn.SELU,
    nn.GELU,
    nn.SiLU,
    nn.Sigmoid,
    nn.Tanh,
    nn.Softplus,
    nn.Softmax,
    nn.Hardtanh,
    nn.PReLU,
    nn.Mish,
    nn.Hardswish,
    nn.ReLU6,
    nn.CELU,
    nn.Softsign,
    nn.LogSoftmax,
)
NORMS = (
    nn.LayerNorm,
    nn.GroupNorm,
    nn.modules.batchnorm._BatchNorm,
    nn.modules.instancenorm._InstanceNorm,
    nn.LocalResponseNorm,
)
POOLS = (nn.MaxPool1d, nn.MaxPool2d, nn.MaxPool3d, nn.AvgPool1d, nn.AvgPool2d, nn.AvgPool3d)
GRIDS = frozenset({"grid", "cube"})
"""Parts that turn a grid; the matrix that comes with them acts on features, if at all."""
CONVOLUTIONS = (nn.Conv1d, nn.Conv2d, nn.Conv3d)


def module_cause(facts: Facts, location: Location | None) -> Signature | None:
    """The signature if the blamed module is of a well-known kind; None otherwise."""
    if location is None or location.first is None or location.first.event.kind == "enter":
        return None
    module = dict(facts.subject.model.named_modules()).get(location.first.event.module)
    moving = set(moving_parts(location.elements, location.group))
    if isinstance(module, NONLINEAR) and moving & {"sign", "time"}:
        return Signature(
            "Nonlinearity is not odd",
            f"{type(module).__name__}(-x) is neither {type(module).__name__}(x) nor its negative",
            "use an odd function (tanh, x * |x|) on odd features and any function on even ones",
        )
    if isinstance(module, NONLINEAR) and "linear" in moving and not moving & GRIDS:
        return Signature(
            "Nonlinearity on components",
            f"{type(module).__name__} acts on single components of vectors, which mix under the group",
            "gate with an invariant (x * sigmoid(norm)) or act on norms only",
        )
    if isinstance(module, NORMS):
        return Signature(
            "Normalisation on components",
            f"{type(module).__name__} takes statistics over components or places that the group mixes",
            "normalise norms of vectors, or take statistics over axes the group leaves alone",
        )
    if isinstance(module, CONVOLUTIONS) and moving & {*GRIDS, "shift"}:
        return _convolution(module, moving)
    if isinstance(module, POOLS) and moving & {*GRIDS, "shift"}:
        return Signature(
            "Pooling",
            f"{type(module).__name__} with stride {module.stride} does not commute with the group at this size",
            "use stride 1 with blur pooling, or sizes the stride divides; shifts hold for multiples of the stride only",
        )
    if isinstance(module, nn.RNNBase) and _moves_entries(location, moving):
        return signatures.RECURRENT
    if isinstance(module, CONVOLUTIONS) and "time" in moving:
        return signatures.ONE_WAY
    if isinstance(module, nn.Linear):
        return _linear(module, location, moving)
    return None


def _moves_entries(location: Location, moving: set[str]) -> bool:
    """Whether what goes into the guilty module has entries that change places: along time, in a list or a signal."""
    before = _entered(location)
    rep = None if before is None else before.representation
    kinds = (Permuted, Backwards, Image)
    return rep is not None and bool(rep.parts & moving) and any(isinstance(one, kinds) for one in _atoms(rep))


def _entered(location: Location) -> EventFit | None:
    """What goes into the guilty module, and how it transforms."""
    name = location.first.event.module if location.first is not None else ""
    return next((p for p in location.places if p.event.kind == "enter" and p.event.module == name), None)


def _atoms(rep: Representation) -> list[Representation]:
    return atoms(rep.rep if isinstance(rep, Reshaped) else rep)


DISPLACED = {
    "added": "the error grows in proportion to the translation and is the same for every input: a position is added as "
    "it is",
    "weighed": "the error grows in proportion to the translation and depends on the input: a position is multiplied by "
    "features",
    "curved": "the error does not grow in proportion to the translation: a nonlinear function of coordinates (a norm, "
    "a network, a grid)",
}
SWAPPED = {
    "own": "what a place adds or weighs stays there when entries are exchanged (a table, a weight per place, a "
    "sorted list that is not put back)",
    "between": "exchanging two entries changes those between them: a cumulative or causal operation",
    "neighbours": "exchanging two entries changes their neighbours in the list: one reads the next or the last one",
    "first": "only exchanges with the first entry matter: it is treated apart",
    "last": "only exchanges with the last entry matter: it is treated apart",
    "one": "only exchanges with one entry matter: it is treated apart",
}


def fitted_cause(facts: Facts, generator: str, location: Location | None) -> Signature | None:
    """The signature that a fit at the guilty module supports; None if none does: no cause is guessed."""
    if location is None or location.first is None:
        return None
    moving = set(moving_parts(location.elements, location.group))
    fits, added = facts.places.fits.get(generator), location.first.added
    if fits is None:
        return None
    if fits.displaced and "linear" not in moving:
        how = DISPLACED[fits.displaced]
        return dataclasses.replace(signatures.POSITION, cause=f"{how}; {signatures.POSITION.cause}")
    if fits.swaps:
        how = "a constant per place is added" if added and fits.swaps == "own" else SWAPPED[fits.swaps]
        return dataclasses.replace(signatures.INDEX, cause=f"{how}; {signatures.INDEX.cause}")
    if moving & GRIDS:
        return signatures.ADDED if added else _on_grid(fits)
    if fits.stride:
        return Signature(
            "Stride",
            f"shifts by multiples of {fits.stride} hold and others do not: every {fits.stride}th place is read",
            "claim shifts by multiples of the stride, or blur before sampling",
        )
    if "linear" in moving and not moving & GRIDS:
        return _on_components(fits, added=added, translated="translation" in moving)
    return None


def _on_grid(fits: Fits) -> Signature | None:
    found = [
        (fits.gain, "the output is right but for factors that do not depend on the image: a gain per orientation"),
        (fits.half_turn, "half turns hold and quarter turns do not: the two axes of the image are treated differently"),
        (fits.linear, "the module is linear: its weights are not exchanged along with the orientations"),
    ]
    why = next((text for holds, text in found if holds), None)
    return None if why is None else dataclasses.replace(signatures.ORIENTATION, cause=why)


def _on_components(fits: Fits, *, added: bool, translated: bool) -> Signature | None:
    if fits.parity:
        return signatures.PARITY
    if added:
        why = "the same vector is added for every input"
    elif fits.about:
        why = f"rotations about the {fits.about} axis hold and others do not: this axis is treated apart"
    elif fits.components:
        why = "the axes may be exchanged but not turned: components are treated one by one"
    else:
        return None
    return dataclasses.replace(signatures.DIRECTION, cause=f"{why}; a fixed frame enters")


def _convolution(module: nn.Module, moving: set[str]) -> Signature:
    stride = getattr(module, "stride", (1,))
    if moving & GRIDS:
        return Signature(
            "Kernel is not symmetric",
            "an ordinary convolution kernel does not turn with the image: f(gx) is the same kernel on another image",
            "use a group convolution (lifting over C(4) or D(4)), average over the orbit, or claim shifts only; zero "
            "padding is not the cause",
        )
    if max(stride) > 1:
        return Signature(
            "Stride",
            f"a stride of {max(stride)} samples other pixels after a shift that is no multiple of it",
            "claim shifts by multiples of the stride, or blur before sampling",
        )
    return Signature(
        "Padding", "what is padded in does not follow the shift", "padding_mode='circular' for circular shifts"
    )


def _linear(module: nn.Linear, location: Location, moving: set[str]) -> Signature | None:
    before = _entered(location)
    rep = None if before is None else before.representation
    if before is None or rep is None or isinstance(rep, Invariant):
        return None
    shape = before.event.tensors[0][1].shape if before.event.tensors else torch.Size()
    acting = rep.parts & moving
    if all(isinstance(atom, (Scaled, Phase)) for atom in _atoms(rep)):
        return None if module.bias is None else _BIAS  # a matrix commutes with factors, a bias does not
    if "linear" in acting:
        along = (len(shape) - 1) in rep.axes(len(shape))
        if not along and len(shape) > 0:
            return _BIAS_ON_VECTORS if module.bias is not None else None
        return _ACROSS_COMPONENTS
    return _ACROSS_PLACES if acting else None


_BIAS = Signature(
    "Bias",
    "a bias adds the same numbers whatever the factor that the group multiplies the input by",
    "set bias=False on layers that act on what changes by a factor",
)
_BIAS_ON_VECTORS = Signature(
    "Bias on vectors",
    "a bias adds the same numbers to every component whatever the orientation: a fixed direction",
    "set bias=False on layers that act on vectors",
)
_ACROSS_COMPONENTS = Signature(
    "Linear layer across components",
    "a weight matrix mixes components of a vector: only multiples of the identity commute with rotations",
    "let it act on the channel axis, not on the components",
)
_ACROSS_PLACES = Signature(
    "Linear layer across places",
    "a weight per place: the entries that the group moves about get different weights",
    "share the weights over places, or aggregate (sum, mean, max) first",
)
