"""Random and special matrices, batched and exact to double precision: orthogonal, unitary, Lorentz."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def orthogonal(n: int, dimension: int, generator: torch.Generator) -> Tensor:
    """n Haar-distributed orthogonal matrices: QR of Gaussian matrices with the signs of R's diagonal moved into Q.

    Without the sign correction the distribution depends on the QR routine and is not Haar (Mezzadri 2007).
    """
    gaussian = torch.randn(n, dimension, dimension, dtype=torch.float64, generator=generator)
    q, r = torch.linalg.qr(gaussian)
    signs: Tensor = torch.diagonal(r, dim1=-2, dim2=-1).sign().unsqueeze(-2)
    haar: Tensor = q * signs
    return haar


def rotation(n: int, dimension: int, generator: torch.Generator) -> Tensor:
    """n Haar-distributed rotations: orthogonal matrices with the first column negated where the determinant is -1."""
    matrix = orthogonal(n, dimension, generator)
    matrix[..., 0] = matrix[..., 0] * torch.linalg.det(matrix).sign().unsqueeze(-1)
    return matrix


def unitary(n: int, dimension: int, generator: torch.Generator, *, special: bool) -> Tensor:
    """n Haar-distributed unitary matrices (Mezzadri 2007, as above with phases); of determinant 1 if ``special``."""
    gaussian = torch.randn(n, dimension, dimension, dtype=torch.complex128, generator=generator)
    q, r = torch.linalg.qr(gaussian)
    diagonal = torch.diagonal(r, dim1=-2, dim2=-1)
    haar: Tensor = q * (diagonal / diagonal.abs()).unsqueeze(-2)
    if special:
        haar[..., 0] = haar[..., 0] * torch.linalg.det(haar).conj().unsqueeze(-1)
    return haar


def reflection(n: int, dimension: int, generator: torch.Generator) -> Tensor:
    """n reflections I - 2 v v^T through uniformly random hyperplanes."""
    normal = torch.randn(n, dimension, dtype=torch.float64, generator=generator)
    normal = normal / torch.linalg.vector_norm(normal, dim=-1, keepdim=True)
    outer: Tensor = normal.unsqueeze(-1) * normal.unsqueeze(-2)
    return torch.eye(dimension, dtype=torch.float64) - 2 * outer


def turned(angles: Tensor, dimension: int) -> Tensor:
    """Rotations by ``angles`` in the plane of the first two axes.

    Multiples of 90 degrees come out without rounding, so that exact cases stay exact.
    """
    angles = angles.to(torch.float64)
    matrix = torch.eye(dimension, dtype=torch.float64).repeat(len(angles), 1, 1)
    quarter = angles / (math.pi / 2)
    whole = (quarter - quarter.round()).abs() < 1e-12
    cosine, sine = torch.cos(angles), torch.sin(angles)
    cosine, sine = torch.where(whole, cosine.round(), cosine), torch.where(whole, sine.round(), sine)
    matrix[:, 0, 0], matrix[:, 0, 1], matrix[:, 1, 0], matrix[:, 1, 1] = cosine, -sine, sine, cosine
    return matrix


def boost(n: int, rapidity: float, generator: torch.Generator) -> Tensor:
    """n Lorentz boosts (time first) in uniformly random directions, rapidity uniform in [-rapidity, rapidity]."""
    direction = torch.randn(n, 3, dtype=torch.float64, generator=generator)
    direction = direction / torch.linalg.vector_norm(direction, dim=-1, keepdim=True)
    amount = (2 * torch.rand(n, dtype=torch.float64, generator=generator) - 1) * rapidity
    return boost_along(direction, amount)


def boost_along(direction: Tensor, rapidity: Tensor) -> Tensor:
    """Boosts along unit vectors ``direction`` [n, 3] by ``rapidity`` [n]."""
    cosh, sinh = torch.cosh(rapidity), torch.sinh(rapidity)
    matrix = torch.eye(4, dtype=torch.float64).repeat(len(rapidity), 1, 1)
    matrix[:, 0, 0] = cosh
    matrix[:, 0, 1:] = matrix[:, 1:, 0] = -sinh.unsqueeze(-1) * direction
    matrix[:, 1:, 1:] += (cosh - 1).view(-1, 1, 1) * direction.unsqueeze(-1) * direction.unsqueeze(-2)
    return matrix


def space_rotation(n: int, generator: torch.Generator) -> Tensor:
    """n 4x4 matrices that rotate space and leave time alone."""
    matrix = torch.eye(4, dtype=torch.float64).repeat(n, 1, 1)
    matrix[:, 1:, 1:] = rotation(n, 3, generator)
    return matrix
