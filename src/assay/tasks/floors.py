"""Floors: what a result must beat before it says anything. Accuracy without them shows nothing."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

    from assay.tasks.base import ArrayTask

LOGISTIC_TRAIN_LIMIT = 10_000
"""Logistic regression sees at most this many training items: enough for a floor, seconds instead of minutes."""
LOGISTIC_FEATURE_LIMIT = 784
"""Wider inputs are projected onto this many principal directions of the training items used."""
STRENGTHS = (0.01, 1.0, 100.0)
"""Inverse regularisation strengths, tried in order until validation stops gaining."""
NEIGHBOURS = (1, 5, 15)


@dataclass(frozen=True)
class Floors:
    """Test accuracies of three subjects that have learned little: chance, the commonest class, a linear map.

    For sequences accuracy is per token, and the linear map sees the whole sequence one-hot and predicts each position
    on its own: it solves reversal and copy, which are routing, and fails at mirror_sum, which needs two tokens at once.
    """

    chance: float
    majority: float
    logistic: float
    logistic_items: int
    """Training items the logistic regression saw."""

    @property
    def highest(self) -> float:
        """The floor hardest to beat."""
        return max(self.chance, self.majority, self.logistic)

    def as_record(self) -> dict[str, float]:
        """The floors as a JSON object."""
        return {key: float(value) for key, value in asdict(self).items()}


@dataclass(frozen=True)
class RegressionFloors:
    """Root mean squared test errors, in units of the target, of subjects that have learned little: lower is harder."""

    mean: float
    """Always the mean of the training targets."""
    ridge: float
    neighbour: float
    """The mean of the nearest training rows, as many as validation prefers."""

    @property
    def highest(self) -> float:
        """The floor hardest to beat: the smallest error."""
        return min(self.mean, self.ridge, self.neighbour)

    def as_record(self) -> dict[str, float]:
        """The floors as a JSON object."""
        return {key: float(value) for key, value in asdict(self).items()}


def measure_floors(task: ArrayTask) -> Floors | RegressionFloors:
    """Chance, majority and logistic regression (regularised as validation prefers) on the test set of a task.

    Of a regression: the mean predictor, ridge regression and the nearest neighbours, chosen the same way.
    """
    import numpy as np

    if not task.classes:
        return _regression_floors(task)
    train_y, test_y = task.train.y.numpy(), task.test.y.numpy()
    counts = np.bincount(train_y.reshape(-1), minlength=task.classes)
    items = min(len(task.train), LOGISTIC_TRAIN_LIMIT)
    small = task.subset(train=items) if items < len(task.train) else task
    parts = (small.train, task.validation, task.test)
    inputs = [_features(part.x, task) for part in parts]
    if inputs[0].shape[1] > LOGISTIC_FEATURE_LIMIT:
        inputs = _project(*inputs, width=LOGISTIC_FEATURE_LIMIT)
    inputs = _standardise(*inputs)
    targets = [part.y.numpy().reshape(len(part), -1) for part in parts]
    hits = [_logistic_accuracy(inputs, [y[:, i] for y in targets]) for i in range(targets[0].shape[1])]
    return Floors(
        chance=1 / task.classes,
        majority=float((test_y == counts.argmax()).mean()),
        logistic=float(np.mean(hits)),
        logistic_items=items,
    )


def _regression_floors(task: ArrayTask) -> RegressionFloors:
    import numpy as np
    from sklearn.linear_model import Ridge
    from sklearn.neighbors import KNeighborsRegressor

    small = task.subset(train=min(len(task.train), LOGISTIC_TRAIN_LIMIT))
    parts = (small.train, task.validation, task.test)
    inputs = [np.asarray(part.x.numpy().reshape(len(part), -1), dtype=np.float64) for part in parts]
    targets = [part.y.numpy().astype(np.float64) for part in parts]

    def error(predicted: Any, part: int) -> float:
        return float(np.sqrt(np.mean((np.asarray(predicted).reshape(targets[part].shape) - targets[part]) ** 2)))

    def best(models: list[Any]) -> float:
        fitted = [model.fit(inputs[0], targets[0]) for model in models]
        chosen = min(fitted, key=lambda model: error(model.predict(inputs[1]), 1))
        return task.target_scale * error(chosen.predict(inputs[2]), 2)

    counts = [count for count in NEIGHBOURS if count <= len(small.train)]
    return RegressionFloors(
        mean=task.target_scale * error(np.broadcast_to(targets[0].mean(0), targets[2].shape), 2),
        ridge=best([Ridge(alpha=strength) for strength in (0.1, 10.0, 1000.0)]),
        neighbour=best([KNeighborsRegressor(count) for count in counts]),
    )


def _features(x: Any, task: ArrayTask) -> np.ndarray:
    """Inputs as rows of numbers; integer tokens become one-hot."""
    import numpy as np

    array = x.numpy()
    if not np.issubdtype(array.dtype, np.integer):
        return np.asarray(array.reshape(len(array), -1), dtype=np.float32)
    vocabulary = int(max(task.train.x.max(), task.test.x.max())) + 1
    rows: np.ndarray = np.eye(vocabulary, dtype=np.float32)[array].reshape(len(array), -1)
    return rows


def _standardise(train: np.ndarray, *others: np.ndarray) -> list[np.ndarray]:
    # One scale for all features: pixels share a unit, and blowing up the rare ones at the border lowers the floor.
    mean, spread = train.mean(0), train.std() or 1.0
    return [(part - mean) / spread for part in (train, *others)]


def _project(train: np.ndarray, *others: np.ndarray, width: int) -> list[np.ndarray]:
    import numpy as np

    mean = train.mean(0)
    _, vectors = np.linalg.eigh((train - mean).T @ (train - mean))
    return [(part - mean) @ vectors[:, -width:] for part in (train, *others)]


def _logistic_accuracy(inputs: list[np.ndarray], targets: list[np.ndarray]) -> float:
    """Test accuracy of the fit that is best on validation; both lists hold train, validation, test."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    best, best_score = None, -1.0
    for strength in STRENGTHS:
        with warnings.catch_warnings():
            # A floor stopped at 100 iterations is still a floor; its accuracy is what is reported.
            warnings.simplefilter("ignore", ConvergenceWarning)
            fit = LogisticRegression(C=strength, max_iter=100).fit(inputs[0], targets[0])
        score = fit.score(inputs[1], targets[1])
        if score <= best_score:
            break
        best, best_score = fit, score
    return float(best.score(inputs[2], targets[2])) if best is not None else 0.0
