"""A search expert for Acrobot-v1: simulates every first action and takes the one that reaches the goal soonest.

The equations of motion are those of the "book" variant (Sutton and Barto, 2018, section 11.3, as gymnasium integrates
them: one fourth-order Runge-Kutta step of 0.2 s), for many states at once; the tests compare it with the environment.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

STEP = 0.2
GRAVITY = 9.8
MAX_VELOCITIES = (4.0, 9.0)
"""Bounds of the two angular velocities, in units of pi."""
TORQUES = (-1.0, 0.0, 1.0)


def search_actions(states: np.ndarray, *, horizon: int = 200) -> np.ndarray:
    """The action of each state (angles and angular velocities, shape (items, 4)) whose roll-out reaches the goal first.

    After the first action every roll-out follows ``simple_actions``. Ties go to the simple action, then to the lower
    number; a roll-out that does not arrive within ``horizon`` steps counts as the latest.
    """
    import numpy as np

    count, actions = len(states), len(TORQUES)
    current = step(np.repeat(states, actions, axis=0), np.tile(np.arange(actions), count))
    arrival = np.where(at_goal(current), 1, horizon + 1)
    for time in range(2, horizon + 1):
        # Once any roll-out of a state has arrived, the later ones cannot win: they need not be followed.
        decided = (arrival.reshape(count, actions) <= horizon).any(1).repeat(actions)
        live = np.flatnonzero(~decided)
        if not len(live):
            break
        current[live] = step(current[live], simple_actions(current[live]))
        arrival[live[at_goal(current[live])]] = time
    cost = arrival.reshape(count, actions).astype(float)
    cost[np.arange(count), simple_actions(states)] -= 0.5
    chosen: np.ndarray = cost.argmin(1)
    return chosen


def simple_actions(states: np.ndarray) -> np.ndarray:
    """Torque along the velocity of the second joint: pumps energy, returns about -83 on its own."""
    import numpy as np

    chosen: np.ndarray = (np.sign(states[:, 3]) + 1).astype(np.int64)
    return chosen


def at_goal(states: np.ndarray) -> np.ndarray:
    """Whether the tip is more than one link above the pivot."""
    import numpy as np

    reached: np.ndarray = -np.cos(states[:, 0]) - np.cos(states[:, 0] + states[:, 1]) > 1.0
    return reached


def step(states: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """The states one step of 0.2 s later: one Runge-Kutta step, angles wrapped to [-pi, pi], velocities bounded."""
    import numpy as np

    torque = np.asarray(TORQUES)[actions]
    k1 = _rates(states, torque)
    k2 = _rates(states + STEP / 2 * k1, torque)
    k3 = _rates(states + STEP / 2 * k2, torque)
    k4 = _rates(states + STEP * k3, torque)
    after = states + STEP / 6.0 * (k1 + 2 * k2 + 2 * k3 + k4)
    angles, velocities = after[:, :2], after[:, 2:]
    for _ in range(4):  # the fastest joint turns 9 pi * 0.2 s = 1.8 pi per step, so few turns are ever to be undone
        angles = np.where(angles > np.pi, angles - 2 * np.pi, angles)
        angles = np.where(angles < -np.pi, angles + 2 * np.pi, angles)
    limit = np.pi * np.asarray(MAX_VELOCITIES)
    return np.concatenate([angles, np.clip(velocities, -limit, limit)], axis=1)


def _rates(states: np.ndarray, torque: np.ndarray) -> np.ndarray:
    """Time derivatives of (angle 1, angle 2, velocity 1, velocity 2); links of unit mass and length, unit inertia."""
    import numpy as np

    angle1, angle2, rate1, rate2 = states.T
    cosine, sine = np.cos(angle2), np.sin(angle2)
    inertia = 3.5 + cosine
    coupling = 1.25 + 0.5 * cosine
    pull2 = 0.5 * GRAVITY * np.cos(angle1 + angle2 - np.pi / 2)
    pull1 = (-0.5 * rate2**2 * sine - rate2 * rate1 * sine + 1.5 * GRAVITY * np.cos(angle1 - np.pi / 2) + pull2)
    acceleration2 = (torque + coupling / inertia * pull1 - 0.5 * rate1**2 * sine - pull2) / (
        1.25 - coupling**2 / inertia
    )
    acceleration1 = -(coupling * acceleration2 + pull1) / inertia
    return np.stack([rate1, rate2, acceleration1, acceleration2], axis=1)
