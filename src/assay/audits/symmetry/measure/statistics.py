"""Numbers over pairs (input, element), with inputs as clusters: pairs of one input are not independent."""

from __future__ import annotations

import math

import numpy as np
from torch import Tensor

from assay.results import Interval, Measurement
from assay.seeding import numpy_generator

QUANTILES = (("median", 0.5), ("p95", 0.95), ("p99", 0.99))
RESAMPLES = 200
FEWEST_CLUSTERS = 10
"""Below this a bootstrap interval covers far less than it says (STATISTICS.md): none is given."""


def summarise(relative: Tensor, cluster: Tensor, worst: float, *, name: str, seed: int) -> list[Measurement]:
    """Quantiles of a fair sample of relative errors with cluster-bootstrap intervals; n counts inputs."""
    values, groups = relative.numpy(), cluster.numpy()
    n = len(np.unique(groups))
    note = f"{len(values)} pairs of {n} inputs"
    table = _by_cluster(values, groups) if n >= FEWEST_CLUSTERS else None
    found = []
    for label, quantile in QUANTILES:
        interval = None if table is None else _bootstrap(table, quantile, seed)
        value = float(np.quantile(values, quantile))
        found.append(
            Measurement(
                name=f"{label} relative error, {name}", value=value, n=n, of="inputs", interval=interval, note=note
            )
        )
    found.append(Measurement(name=f"max relative error, {name}", value=worst, n=n, of="inputs", note="over all pairs"))
    return found


def rare_bound(n: int, *, confidence: float = 0.95) -> float:
    """The largest rate of bad inputs that n inputs without a bad one leave possible: 1 - 0.05^(1/n), about 3/n.

    >>> round(rare_bound(100), 3)
    0.03
    """
    return float(1 - (1 - confidence) ** (1 / n))


def count_needed(rate: float, *, confidence: float = 0.95) -> int:
    """How many draws (inputs, elements) meet at least one of a kind that makes up ``rate`` of them all.

    Found none among them, a larger rate is excluded at this confidence.

    >>> count_needed(0.001), count_needed(0.05)
    (2995, 59)
    """
    return math.ceil(math.log(1 - confidence) / math.log(1 - rate))


def rare_statement(n: int) -> str:
    """The exact statement that a pass supports."""
    if n < 2:
        return "one input: nothing can be said about other inputs"
    return (
        f"P(an input exceeds the tolerance) <= {rare_bound(n):.3g} at 95 % ({n} independent inputs, about 3/n); "
        f"a defect in 1 of 1000 inputs needs {count_needed(1e-3)} inputs to be excluded"
    )


def _by_cluster(values: np.ndarray, groups: np.ndarray) -> np.ndarray | None:
    order = np.argsort(groups, kind="stable")
    counts = np.unique(groups, return_counts=True)[1]
    return values[order].reshape(len(counts), -1) if len(set(counts.tolist())) == 1 else None


def _bootstrap(table: np.ndarray, quantile: float, seed: int) -> Interval:
    rng = numpy_generator(seed, "bootstrap", str(quantile))
    chosen = rng.integers(len(table), size=(RESAMPLES, len(table)))
    found = np.quantile(table[chosen].reshape(RESAMPLES, -1), quantile, axis=1)
    low, high = np.quantile(found, [0.025, 0.975])
    return Interval(low=float(low), high=float(high), confidence=0.95, method="bootstrap over inputs")
