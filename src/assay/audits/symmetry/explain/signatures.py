"""The known signatures of broken symmetry: what the pattern of errors says about the cause, and what to do."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Signature:
    """A diagnosis: a title, its cause, the remedy, and which kind of script shows it."""

    title: str
    cause: str
    fix: str
    shown_by: str = "forward"


PADDING = Signature(
    "Padding",
    "the error is a ring at the edges and the middle is exact: what is padded in does not follow the transformation",
    "use circular padding for circular shifts, or compare the interior only: shifts(wrap=False), image(..., margin=m)",
)
DISCONTINUOUS = Signature(
    "The output is discontinuous",
    "at the same input {output} jumps by {jump:.2g} of its spread between two precisions, more than rounding: it is "
    "discontinuous there (a sign, a sort, an argmax, a hard cutoff, an eigenvector whose sign nobody fixed), and what "
    "it hangs on does not follow the transformation",
    "make the choice by a rule that follows the group (fix the sign by an invariant, break ties by value), or use "
    "features without a choice (projectors instead of eigenvectors)",
)
SHAPE = Signature(
    "The shape of an output depends on the element",
    "{output} has {shapes}: what is kept or dropped does not follow the transformation",
    "select by a quantity the group leaves alone (a distance, a norm), or return a mask of fixed length",
)
IDENTITY = Signature(
    "Differs at the identity",
    "f(ex) differs from rho(e) f(x): the output transformation does not match the output, or the model keeps state",
    "check the declared representation of the output, and that a call does not change the model",
)
PARITY = Signature(
    "Parity",
    "rotations hold, reflections do not: a cross product, a determinant or a signed angle enters, or a pseudovector is "
    "mixed with vectors",
    "keep pseudovectors apart from vectors (parity labels), or claim rotations only, as in SO(3) or SE(3)",
)
POSITION = Signature(
    "Absolute position",
    "translations break it: absolute coordinates enter where only differences may",
    "use relative positions, or subtract the centre of mass first",
)
DIRECTION = Signature(
    "A fixed direction",
    "rotations break it, whatever else holds: a fixed direction enters (a bias on vectors, a single component, an "
    "operation per component)",
    "act on norms and inner products, multiply vectors by invariants only, drop biases on vectors",
)
INDEX = Signature(
    "Index leak",
    "permutations break it: the place of an element in the list enters (a positional table, a cumulative or "
    "order-dependent operation, a cap on neighbours)",
    "aggregate with sum, mean or max, drop what depends on the index, break ties by value",
)
RECURRENT = Signature(
    "A recurrent layer reads entries in order",
    "its state depends on the order in which entries come, and the group changes their order",
    "sum, average or attend over entries, or sort them by a quantity the group leaves alone before the layer",
)
ONE_WAY = Signature(
    "Kernel is not symmetric in time",
    "the kernel of a convolution reads the past otherwise than the future",
    "add the layer's output for the reversed signal, reversed, or make the kernel even (or odd) in time",
)
EDGE_ORDER = Signature(
    "The order of edges enters",
    "the answer depends on the order in which edges are listed: an assignment that keeps the last of several edges "
    "into a node, or a cap or a sort that takes the first ones",
    "gather what arrives at a node by a sum, mean or maximum (index_add_, scatter_reduce), and break ties by value",
)
ADDED = Signature(
    "Added constant",
    "the error is the same for every input: something is added that does not follow the transformation (a bias per "
    "orientation, a channel or table of coordinates)",
    "share biases over orientations and drop what depends on the place, or let it turn along with the image",
)
ORIENTATION = Signature(
    "Orientations or places differ",
    "orientations or places that the group exchanges are not treated alike: a kernel that does not turn along, a gain "
    "per orientation, a sum along one axis of the image only",
    "make every orientation from the same weights by turning them, and treat both axes of the image alike",
)
UNKNOWN = Signature(
    "Symmetry broken",
    "cause unknown: no representation carries what this module returns at x to what it returns at gx, and no known "
    "pattern fits",
    "review this module against the constraint f(gx) = rho f(x)",
)
ROUNDED = (
    ". An error this small that float64 does not remove is often a table or a constant rounded to float32 (angles, "
    "harmonics): compute it in float64 before it is rounded, or declare a budget"
)
"""Said of errors below TABLE whose cause is unknown."""
TABLE = 1e-5
SIZE_PARITY = Signature(
    "Breaks at one parity of the image size",
    "a stride or pooling window does not tile images of {parity} size symmetrically",
    "pad to a size the strides divide, or choose kernel and stride so that size - kernel is a multiple of the stride",
)
SET_SIZE = Signature(
    "Breaks at other numbers of entries",
    "the symmetry holds with as many entries as the sample has and breaks with {sizes}: a table, a cap or a constant "
    "was made for one size",
    "let nothing depend on the number of entries but sums and means over them; test with samples of several sizes",
)
BACKWARD = Signature(
    "The backward pass breaks the symmetry",
    "the forward pass holds, the gradient by {name} is off by {relative:.2g}: a custom backward, or a "
    "detached component",
    "compare autograd.Function.backward with the derivative of its forward; remove detach() and .data from components",
    shown_by="gradient",
)
LATENT = Signature(
    "Latent: training will break it",
    "exact now, but {what}: {why}",
    "remove the parameter (a bias on vectors, a positional table) or build the constraint into the layer",
    shown_by="gradient",
)
NO_GRADIENT = Signature(
    "The gradient is not finite",
    "the forward pass is finite, the gradient by {name} is not: the derivative of a square root, norm or angle at zero "
    "(self-edges, equal points)",
    "leave self-edges out, or take the square root of the squared norm plus a small constant",
    shown_by="gradient",
)
NOT_DERIVATIVE = Signature(
    "Gradient is not the derivative",
    "autograd by {what} and finite differences differ by {relative:.2g}: a detach(), a straight-through trick or "
    "a wrong custom backward",
    "make the backward the derivative of the forward",
    shown_by="differences",
)
FORCES = Signature(
    "Forces are not the gradient of the energy",
    "{what} does not hold: off by {relative:.2g} {note}",
    "take the forces from autograd.grad(energy, positions), or do not claim that energy is conserved",
    shown_by="differences",
)
TRAIN_MODE = Signature(
    "Breaks in train mode",
    "evaluation mode holds, train mode does not: statistics of the batch enter",
    "normalise with quantities the group leaves alone: norms of vectors, statistics over the whole orbit",
)
PRECISION = Signature(
    "A step is kept in low precision",
    "the float64 copy is only {gain:.2g} times better than the low precision: a constant or a step stays in float32",
    "build constants in float64 or in the dtype of the input; it does not break the symmetry beyond rounding",
)
STOCHASTIC = Signature(
    "The model is stochastic",
    "two runs on the same input differ by {gap:.2g} in evaluation mode, so it differs from itself at the identity",
    "give forward a `generator` argument (it gets the same seeded one at every call), or switch the noise off in "
    "evaluation mode",
)
REMEMBERS = Signature(
    "The model keeps state between calls",
    "after another call the same input gives an output that differs by {gap:.2g}: f(x) and f(gx) are then values of "
    "two functions",
    "reset what forward keeps (a recurrent state, a cache) at the start of a call, or hand it in as an input",
)
COUPLED = Signature(
    "Rows of a batch depend on each other",
    "a row of the output changes with other rows: statistics over the batch, or a softmax or sum over axis 0",
    "use statistics of one input (GroupNorm, norms of vectors) or running statistics; if axis 0 holds parts of one "
    "input, declare batch=None",
)
STILL = Signature(
    "A generator moves no input",
    "no declared input changes under it, so its test says nothing",
    "declare an input that it moves (sym.point() for translations) or claim a smaller group",
)
VACUOUS = Signature(
    "Nothing was tested",
    "an output that does not react to its input has every symmetry",
    "check that the input reaches the output: a zero initialisation, a cutoff, a disconnected branch",
)
NOT_FINITE = Signature(
    "Output is not finite",
    "{reason}",
    "find the division, logarithm or square root at zero (self-edges, equal points) and guard it",
)
WRONG_TEST = Signature(
    "Your test is wrong",
    "{reason}",
    "correct the representation or the group: rho(gh) = rho(g) rho(h) must hold",
    shown_by="self-test",
)
MAYBE_WRONG_TEST = Signature(
    "Your test may be wrong",
    "under {generator}: {alternative}",
    "if that is what the model is meant to do, declare {name} as {fits}; otherwise the model returns the wrong type",
)
FURTHER = Signature(
    "Another module breaks it too",
    "with {first} mended, {generator} still breaks here: {share} of the error is its own",
    "mend it too: it is hidden behind the first one",
)
AT_ELEMENT = Signature(
    "Breaks at {generator}",
    "random elements hold, this one does not: {reason}",
    "look for branches, caps and thresholds that this element reaches",
)
