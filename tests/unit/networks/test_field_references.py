"""Convolution and attention against NumPy: state by state, gradient by gradient, and planted mistakes are seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from assay.models import EnergyAttention, EnergyConv
from assay.networks.reference.attention import AttentionReference
from assay.networks.reference.conv import ConvReference
from assay.networks.reference.layered import one_hot
from assay.protocols import Nudge
from assay.rules import EqProp
from assay.seeding import torch_generator

BETA, SWEEPS, ROWS = 0.3, (5, 4), 3
SMOOTH = [("average", "tanh"), ("average", "clipped"), ("max", "smooth"), ("max-first", "tanh")]


def arrays(tensors):
    return tuple(t.detach().double().numpy() for t in tensors)


def conv(pooling="average", activation="tanh", dtype=torch.float64):
    model = EnergyConv((2, 8, 8), [3, 4], classes=3, pooling=pooling, activation=activation, gamma=0.5, seed=1)
    model.to(dtype)
    pairs = [*model.layers, model.output]
    reference = ConvReference(arrays(p.weight for p in pairs), arrays(p.bias for p in pairs), 0.5, activation, pooling)
    generator = torch_generator(0, "images")
    x = torch.rand(ROWS, 2, 8, 8, generator=generator, dtype=torch.float64).to(dtype)
    names = [(f"{kind}.{i}", getattr(p, part)) for i, p in enumerate(pairs)
             for kind, part in (("weights", "weight"), ("biases", "bias"))]
    y = torch.randint(0, 3, (ROWS,), generator=generator)
    return model, reference, x, x.double().numpy(), y, dict(names)


def attention(dtype=torch.float64, layers=2):
    model = EnergyAttention(7, length=5, width=12, heads=3, layers=layers, hidden=8, gamma=0.5, seed=2).to(dtype)
    reference = AttentionReference(
        *arrays((model.tokens, model.positions, model.project.weight)), arrays(p.weight for p in model.layers),
        arrays(p.bias for p in model.layers), 0.5, 3,
    )
    generator = torch_generator(0, "tokens")
    x, y = (torch.randint(0, 7, (ROWS, 5), generator=generator) for _ in range(2))
    names = {"tokens": model.tokens, "positions": model.positions, "project": model.project.weight}
    names |= {f"weights.{i}": p.weight for i, p in enumerate(model.layers)}
    names |= {f"biases.{i}": p.bias for i, p in enumerate(model.layers)}
    return model, reference, x, x.numpy(), y, names


SUBJECTS = {f"{p} {a}": lambda dtype, p=p, a=a: conv(p, a, dtype) for p, a in SMOOTH} | {"attention": attention}


def gap_of_states(model, reference, x, inputs, y):
    """The largest difference of any unit after any sweep, free and nudged."""
    target = one_hot(y.numpy(), model.classes)
    with torch.no_grad():
        clamped = model.clamp(x)
        state, wanted = model.start(clamped), reference.start(inputs)
        worst = max(np.abs(s.double().numpy() - w).max() for s, w in zip(state, wanted, strict=True))
        for step in range(sum(SWEEPS)):
            nudged = step >= SWEEPS[0]
            pull = Nudge(torch.full((ROWS,), BETA, dtype=state[0].dtype), y) if nudged else None
            state = model.relax(clamped, state, sweeps=1, nudge=pull).value
            wanted = reference.sweep(inputs, wanted, beta=BETA, y=target if nudged else None)
            worst = max(worst, *(np.abs(s.double().numpy() - w).max() for s, w in zip(state, wanted, strict=True)))
    return worst


def gaps_of_gradients(model, reference, x, inputs, y, names):
    """The largest difference of each parameter's gradient."""
    found = reference.gradient(inputs, one_hot(y.numpy(), model.classes), beta=BETA, sweeps=SWEEPS)
    if not isinstance(found, dict):
        found = {f"{kind}.{i}": pair[j] for i, pair in enumerate(found) for j, kind in enumerate(("weights", "biases"))}
    model.zero_grad()
    EqProp(beta=BETA, sweeps=SWEEPS, coordinates="states").backward(model, x, y)
    assert found.keys() == names.keys()
    return {name: np.abs(names[name].grad.double().numpy() - found[name]).max() for name in names}


def state_tolerance(reference, dtype):
    # Per layer one sum of at most `fan` products of order one: 4 standard deviations of a random walk of roundings of
    # half an eps each; the maps contract by half or more, so the errors of earlier sweeps at most double it.
    fan = max(w[0].size for w in reference.weights)
    size = max(1.0, *(np.abs(w.reshape(len(w), -1)).sum(1).max() for w in reference.weights))
    return 4 * np.sqrt(fan) * size * len(reference.weights) * torch.finfo(dtype).eps


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_sweep_of_a_field_model_is_a_sweep_of_its_reference(subject, dtype):
    model, reference, x, inputs, y, _ = SUBJECTS[subject](dtype)
    assert gap_of_states(model, reference, x, inputs, y) < state_tolerance(reference, dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("subject", SUBJECTS)
def test_every_gradient_of_a_field_model_is_that_of_its_reference(subject, dtype):
    model, reference, x, inputs, y, names = SUBJECTS[subject](dtype)
    gaps = gaps_of_gradients(model, reference, x, inputs, y, names)
    # A contrast adds products of two states over all positions (a random walk again) and takes the mean over rows,
    # over 2 beta times the weight of the loss, for two ends; embeddings come in with their own size.
    positions = np.sqrt(inputs[0].size)
    reach = max(1.0, *(np.abs(getattr(reference, n, np.ones(1))).max() for n in ("tokens", "positions")))
    allowed = state_tolerance(reference, dtype) * positions * reach**2 / (BETA * reference.gamma**reference.depth)
    assert max(gaps.values()) < allowed
    for name, parameter in names.items():
        assert parameter.grad.abs().max() > 4 * allowed, f"the check of {name} could hardly fail"


CONV_MISTAKES = {
    "wrong sign of the feedback": lambda r: replace(r, gamma=-r.gamma),
    "kernel flipped": lambda r: replace(r, weights=(r.weights[0], r.weights[1][:, :, ::-1].copy(), *r.weights[2:])),
    "dropped bias": lambda r: replace(r, biases=(r.biases[0], 0 * r.biases[1], *r.biases[2:])),
    "another pooling": lambda r: replace(r, pooling="max"),
}
ATTENTION_MISTAKES = {
    "wrong sign of the feedback": lambda r: replace(r, gamma=-r.gamma),
    "keys and values swapped": lambda r: replace(r, project=np.roll(r.project, 12, axis=0)),
    "dropped bias": lambda r: replace(r, biases=(0 * r.biases[0], *r.biases[1:])),
    "heads mixed up": lambda r: replace(r, heads=2),
    "stale positions": lambda r: replace(r, positions=r.positions[::-1].copy()),
}


@pytest.mark.parametrize("mistake", CONV_MISTAKES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_mistake_in_a_convolution_is_seen(mistake, dtype):
    model, reference, x, inputs, y, _ = conv(dtype=dtype)
    wrong = CONV_MISTAKES[mistake](reference)
    assert gap_of_states(model, wrong, x, inputs, y) > 10 * state_tolerance(reference, dtype)


@pytest.mark.parametrize("mistake", ATTENTION_MISTAKES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_a_mistake_in_the_attention_is_seen(mistake, dtype):
    model, reference, x, inputs, y, _ = attention(dtype)
    wrong = ATTENTION_MISTAKES[mistake](reference)
    assert gap_of_states(model, wrong, x, inputs, y) > 10 * state_tolerance(reference, dtype)
