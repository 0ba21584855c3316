"""How the gradient is estimated from nudged states: finite differences of any order, as values rather than names.

With f(beta) = dE/dtheta at the state nudged by beta, the gradient of the loss is f'(0) / loss_scale. Every estimator
but ``Tangent`` and ``BPTT`` is a finite difference: nudges beta_k and coefficients c_k with
f'(0) = sum_k c_k [f(beta_k) - f(0)] + error.

    OneSided         [f(b) - f(0)] / b                           error O(b)
    Centered         [f(b) - f(-b)] / 2b                         error O(b^2)
    Richardson       (4 centered(b/2) - centered(b)) / 3         error O(b^4)
    Holomorphic(N)   mean of f(b w^k) / (b w^k), w = e^(2 pi i / N)      error O(b^N)
    Asymmetric       centered, with the antisymmetric part of the couplings removed while nudged: for untied weights
    Tangent          the derivative of the fixed point itself (implicit differentiation)       exact at rest
    BPTT             not EP: backprop through the unrolled free sweeps, the yardstick

(Scellier & Bengio 2017; Laborieux et al. 2021; Laborieux & Zenke 2022; Scurria et al. 2025.)
"""

from __future__ import annotations

import cmath
import math
import re
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import ClassVar, Self, final

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


class Estimator(ABC):
    """One way to estimate the gradient; ``str(estimator)`` is its spelling as ``nudge=``."""

    needs_symmetry: ClassVar[bool] = True
    """Whether the estimate is a gradient only where an energy exists."""

    @abstractmethod
    def __str__(self) -> str: ...


@dataclass(frozen=True)
class FiniteNudge(Estimator):
    """An estimator that pulls the output with a strength ``beta`` that is not zero."""

    beta: float = 0.1

    def __post_init__(self) -> None:
        if isinstance(self.beta, bool) or not isinstance(self.beta, int | float) or not 0 < abs(self.beta) < 1:
            raise expected("0 < |beta| < 1", given=f"beta={self.beta!r}",
                           do="use 0.1 to 0.5 with centered, 1e-3 with one-sided; beta -> 0 is nudge='tangent'")

    @property
    def order(self) -> int:
        """The power of beta with which the error falls."""
        return 2

    @abstractmethod
    def stencil(self) -> Stencil:
        """The nudges of this estimator and the coefficients of their states."""

    def with_beta(self, beta: float) -> Self:
        """The same estimator at another strength."""
        return replace(self, beta=beta)


@final
@dataclass(frozen=True)
class OneSided(FiniteNudge):
    """One nudge; its small default is exact enough and costs no precision in deviation coordinates.

    >>> OneSided().stencil()
    Stencil(betas=(0.001,), coefficients=(1000.0,), free=-1000.0)
    """

    beta: float = 1e-3

    @property
    def order(self) -> int:
        return 1

    def stencil(self) -> Stencil:
        return Stencil((self.beta,), (1 / self.beta,), free=-1 / self.beta)

    def __str__(self) -> str:
        return "one-sided"


@final
@dataclass(frozen=True)
class Centered(FiniteNudge):
    """Two nudges of opposite sign."""

    def stencil(self) -> Stencil:
        return _both_signs(self.beta)

    def __str__(self) -> str:
        return "centered"


@final
@dataclass(frozen=True)
class Asymmetric(FiniteNudge):
    """Two signs with the antisymmetric couplings removed while nudged: for a model without an energy."""

    needs_symmetry: ClassVar[bool] = False

    def stencil(self) -> Stencil:
        return _both_signs(self.beta)

    def __str__(self) -> str:
        return "asymmetric"


@final
@dataclass(frozen=True)
class Richardson(FiniteNudge):
    """Two centered differences, extrapolated."""

    @property
    def order(self) -> int:
        return 4

    def stencil(self) -> Stencil:
        near, far = 4 / (3 * self.beta), -1 / (6 * self.beta)
        half = self.beta / 2
        return Stencil((half, -half, self.beta, -self.beta), (near, -near, far, -far))

    def __str__(self) -> str:
        return "richardson"


@final
@dataclass(frozen=True, init=False)
class Holomorphic(FiniteNudge):
    """``points`` nudges on a circle in the complex plane; smooth units only.

    >>> Holomorphic(8, beta=0.2)
    Holomorphic(beta=0.2, points=8)
    """

    points: int = 4

    def __init__(self, points: int = 4, *, beta: float = 0.1) -> None:
        if isinstance(points, bool) or not isinstance(points, int) or points < 2 or points % 2:
            raise expected("holomorphic(N) with an even N >= 2", given=f"N={points!r}",
                           do="use holomorphic(4) or holomorphic(8)")
        object.__setattr__(self, "beta", beta)
        object.__setattr__(self, "points", points)
        self.__post_init__()

    @property
    def order(self) -> int:
        return self.points

    def stencil(self) -> Stencil:
        """The trapezoidal rule for Cauchy's integral. f(conj b) = conj f(b): the upper half circle stands for both."""
        betas, coefficients = [], []
        for k in range(self.points // 2 + 1):
            on_axis = k in (0, self.points // 2)
            turned = self.beta * cmath.exp(2j * math.pi * k / self.points)
            beta = complex(self.beta * (1 if k == 0 else -1)) if on_axis else turned
            betas.append(beta)
            coefficients.append((1 if on_axis else 2) / (self.points * beta))
        return Stencil(tuple(betas), tuple(coefficients))

    def __str__(self) -> str:
        return f"holomorphic({self.points})"


@final
@dataclass(frozen=True)
class Tangent(Estimator):
    """The limit beta -> 0, by one linear relaxation."""

    def __str__(self) -> str:
        return "tangent"


@final
@dataclass(frozen=True)
class BPTT(Estimator):
    """Backprop through the unrolled free sweeps: the yardstick, not EP."""

    needs_symmetry: ClassVar[bool] = False

    def __str__(self) -> str:
        return "bptt"


def estimator(text: str, beta: float | None = None) -> Estimator:
    """The estimator a ``nudge=`` argument spells; without a ``beta`` it has its own default.

    >>> estimator("holomorphic(8)", 0.2)
    Holomorphic(beta=0.2, points=8)
    """
    strength = {} if beta is None else {"beta": beta}
    if match := re.fullmatch(r"holomorphic(?:\((\d+)\))?", text):
        return Holomorphic(int(match[1] or 4), **strength)
    if text in _FINITE:
        return _FINITE[text](**strength)
    if text not in SCHEMES:
        raise InputError(unknown("nudge", text, SCHEMES))
    return Tangent() if text == "tangent" else BPTT()


def _both_signs(beta: float) -> Stencil:
    return Stencil((beta, -beta), (0.5 / beta, -0.5 / beta))


_FINITE: dict[str, type[OneSided | Centered | Richardson | Asymmetric]] = {
    "one-sided": OneSided, "centered": Centered, "richardson": Richardson, "asymmetric": Asymmetric,
}
