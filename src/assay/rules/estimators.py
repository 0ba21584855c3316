"""How the gradient is estimated from nudged states: finite differences of any order, as values rather than names.

With f(beta) = dE/dtheta at the state nudged by beta, the gradient of the loss is f'(0) / loss_scale. Every scheme but
``tangent`` and ``bptt`` is a stencil: nudges beta_k and coefficients c_k with f'(0) = sum_k c_k f(beta_k) + error.

    one-sided        f(b) - f(0) over b                          error O(b)
    centered         f(b) - f(-b) over 2b                        error O(b^2)
    richardson       (4 centered(b/2) - centered(b)) / 3         error O(b^4)
    holomorphic(N)   mean of f(b w^k) / (b w^k), w = e^(2 pi i / N)      error O(b^N)
    asymmetric       centered, with the antisymmetric part of the couplings removed while nudged: for untied weights
    tangent          the derivative of the fixed point itself (implicit differentiation)       exact at rest
    bptt             not EP: backprop through the unrolled free sweeps, the yardstick

(Scellier & Bengio 2017; Laborieux et al. 2021; Laborieux & Zenke 2022; Scurria et al. 2025.)
"""

from __future__ import annotations

import cmath
import math
import re
from dataclasses import dataclass

from assay.errors import InputError, expected, unknown

SCHEMES = ("one-sided", "centered", "richardson", "holomorphic(N)", "asymmetric", "tangent", "bptt")


@dataclass(frozen=True)
class Stencil:
    """Nudges and coefficients whose weighted sum of f estimates f'(0); ``free`` is the coefficient of f(0)."""

    betas: tuple[complex, ...]
    coefficients: tuple[complex, ...]
    free: float = 0.0

    @property
    def is_complex(self) -> bool:
        return any(beta.imag != 0 for beta in self.betas)


@dataclass(frozen=True)
class Estimator:
    """A scheme by name, with its number of points when it is holomorphic."""

    name: str
    points: int = 2

    @property
    def needs_symmetry(self) -> bool:
        """Whether the scheme is a gradient only where an energy exists."""
        return self.name not in ("asymmetric", "bptt")

    def stencil(self, beta: float) -> Stencil:
        """The nudges of this scheme at strength ``beta``."""
        half = 0.5 / beta
        if self.name == "one-sided":
            return Stencil((beta,), (1 / beta,), free=-1 / beta)
        if self.name in ("centered", "asymmetric"):
            return Stencil((beta, -beta), (half, -half))
        if self.name == "richardson":
            near, far = 8 / 3 * half, -half / 3
            return Stencil((beta / 2, -beta / 2, beta, -beta), (near, -near, far, -far))
        if self.name == "holomorphic":
            return _circle(beta, self.points)
        raise InputError(f"'{self.name}' is not a finite difference and has no nudges")


def estimator(text: str) -> Estimator:
    """The scheme a ``nudge=`` argument names.

    >>> estimator("holomorphic(8)")
    Estimator(name='holomorphic', points=8)
    """
    if match := re.fullmatch(r"holomorphic(?:\((\d+)\))?", text):
        points = int(match[1] or 4)
        if points < 2 or points % 2:
            raise expected("holomorphic(N) with an even N >= 2", given=text, do="use holomorphic(4) or holomorphic(8)")
        return Estimator("holomorphic", points)
    if text not in SCHEMES:
        raise InputError(unknown("nudge", text, SCHEMES))
    return Estimator(text)


def _circle(radius: float, points: int) -> Stencil:
    """The trapezoidal rule for Cauchy's integral. f(conj b) = conj f(b), so the upper half circle stands for both."""
    betas, coefficients = [], []
    for k in range(points // 2 + 1):
        angle = 2 * math.pi * k / points
        on_axis = k in (0, points // 2)
        beta = complex(radius * (1 if k == 0 else -1)) if on_axis else radius * cmath.exp(1j * angle)
        betas.append(beta)
        coefficients.append((1 if on_axis else 2) / (points * beta))
    return Stencil(tuple(betas), tuple(coefficients))
