"""Behaviour cloning on real gymnasium environments: CartPole-v1 and Acrobot-v1, each with a strong expert.

Accuracy alone shows little here (a linear map imitates a simple expert as well as a network does), so a control task is
scored twice: by held-out accuracy and by ``returns``, the reward of the cloned policy in the environment.

Episodes are split, never their steps: neighbouring steps are nearly equal and would leak from train into test. While
data is collected, the executed action is sometimes random and the recorded one is always the expert's, so that the
clone also sees what to do after a mistake.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from assay.errors import MissingExtra, expected
from assay.protocols import Split
from assay.seeding import derive, numpy_generator
from assay.tasks.acrobot_search import search_actions
from assay.tasks.base import ArrayTask, check_count, split_digest

if TYPE_CHECKING:
    import numpy as np
    from torch import Tensor, nn

Expert = Callable[["np.ndarray", "np.ndarray"], "np.ndarray"]
"""(observations, internal states) of several episodes -> one action each."""

MAX_STEPS = 500


@dataclass(frozen=True)
class Returns:
    """Rewards of whole episodes."""

    values: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The average episode."""
        return sum(self.values) / len(self.values)

    @property
    def worst(self) -> float:
        """The worst episode."""
        return min(self.values)


@dataclass(frozen=True)
class ControlTask(ArrayTask):
    """A cloning task that can also be played: inputs are observations, standardised over the training steps."""

    environment: str = ""
    center: Tensor | None = None
    scale: Tensor | None = None
    expert: Expert | None = None

    def returns(self, model: nn.Module, *, episodes: int = 100, seed: int = 0) -> Returns:
        """The rewards of ``episodes`` fresh episodes in which ``model`` chooses the action with the highest output.

        ``seed`` draws the starting states, which no episode of the data shares. The mode of the model is restored.
        """
        import torch

        modes = [(module, module.training) for module in model.modules()]
        model.eval()

        def act(observations: np.ndarray, states: np.ndarray) -> np.ndarray:
            with torch.no_grad():
                outputs = model(self.standardise(torch.from_numpy(observations)))
            chosen: np.ndarray = outputs.argmax(-1).numpy()
            return chosen

        try:
            return self.policy_returns(act, episodes=episodes, seed=seed)
        finally:
            for module, training in modes:
                module.training = training

    def expert_returns(self, *, episodes: int = 100, seed: int = 0) -> Returns:
        """The rewards of the expert itself on the same episodes as ``returns``."""
        if self.expert is None:
            raise expected("a control task with its expert", given=f"task '{self.name}' without one")
        return self.policy_returns(self.expert, episodes=episodes, seed=seed)

    def policy_returns(self, act: Expert, *, episodes: int = 100, seed: int = 0) -> Returns:
        """The rewards of any policy: a function of (observations, internal states) of the running episodes."""
        check_count("episodes", episodes, low=1)
        starts = [derive(seed, self.environment, "returns", i) % 2**31 for i in range(episodes)]
        return Returns(tuple(float(value) for value in _play(self.environment, starts, act).rewards))

    def standardise(self, observations: Tensor) -> Tensor:
        """Raw observations of the environment as inputs of the task."""
        if self.center is None or self.scale is None:
            return observations
        return (observations - self.center) / self.scale


def cartpole(seed: int = 0, *, episodes: int = 60, mistakes: float = 0.2) -> ControlTask:
    """Clone a linear rule that balances CartPole-v1 for all 500 steps: 4 observations, 2 actions.

    ``episodes`` are split 4 : 1 : 1 into train, validation and test; ``mistakes`` is the share of random actions while
    data is collected.
    """
    return _clone("cartpole-bc", "CartPole-v1", cartpole_expert, 2, seed=seed, episodes=episodes, mistakes=mistakes)


def acrobot(seed: int = 0, *, episodes: int = 180, mistakes: float = 0.1) -> ControlTask:
    """Clone a search that swings up Acrobot-v1 in about 64 steps: 6 observations, 3 actions.

    The expert tries the three actions, follows each with the simple rule "torque along the second joint's velocity",
    and takes the one whose roll-out reaches the goal first: no linear function of the observations does that.
    """
    return _clone("acrobot-bc", "Acrobot-v1", acrobot_expert, 3, seed=seed, episodes=episodes, mistakes=mistakes)


def cartpole_expert(observations: np.ndarray, states: np.ndarray) -> np.ndarray:
    """Push right when ``0.05 x + 0.16 v + angle + 0.32 rate > 0``."""
    import numpy as np

    chosen: np.ndarray = (observations @ np.array([0.05, 0.16, 1.0, 0.32]) > 0).astype(np.int64)
    return chosen


def acrobot_expert(observations: np.ndarray, states: np.ndarray) -> np.ndarray:
    """The action whose simulated future reaches the goal first."""
    return search_actions(states)


@dataclass(frozen=True)
class _Played:
    rewards: np.ndarray
    observations: Sequence[np.ndarray]
    labels: Sequence[np.ndarray]
    episodes: Sequence[np.ndarray]


@lru_cache(maxsize=4)
def _clone(
    name: str, environment: str, expert: Expert, actions: int, *, seed: int, episodes: int, mistakes: float
) -> ControlTask:
    import numpy as np
    import torch

    check_count("episodes", episodes, low=6)
    if not 0 <= mistakes < 1:
        raise expected("mistakes from 0 to 1, 1 excluded", given=repr(mistakes))
    starts = [derive(seed, name, "data", i) % 2**31 for i in range(episodes)]
    random = numpy_generator(seed, name, "mistakes")

    def disturb(chosen: np.ndarray) -> np.ndarray:
        slip = random.random(len(chosen)) < mistakes
        return np.where(slip, random.integers(actions, size=len(chosen)), chosen)

    played = _play(environment, starts, expert, disturb=disturb)
    x, y = torch.from_numpy(np.concatenate(played.observations)), torch.from_numpy(np.concatenate(played.labels))
    episode = torch.from_numpy(np.concatenate(played.episodes))
    test, validation = episode < episodes // 6, (episode >= episodes // 6) & (episode < 2 * (episodes // 6))
    train = ~(test | validation)
    center, scale = x[train].mean(0), x[train].std(0)
    splits = [Split((x[part] - center) / scale, y[part]) for part in (train, validation, test)]
    return ControlTask(
        name, actions, splits[0], splits[1], splits[2], data_hash=split_digest(name, *splits), seed=seed,
        note="the seed draws the starting states, the mistakes and so the split by episodes",
        environment=environment, center=center, scale=scale, expert=expert,
    )


def _play(
    environment: str, starts: list[int], act: Expert, *, disturb: Callable[[np.ndarray], np.ndarray] | None = None
) -> _Played:
    """Plays one real environment per start, in step with each other, so that the policy sees them as one batch."""
    import numpy as np

    worlds = [_make_environment(environment) for _ in starts]
    try:
        views = [world.reset(seed=start)[0] for world, start in zip(worlds, starts, strict=True)]
        rewards, running = np.zeros(len(worlds)), np.arange(len(worlds))
        observed: list[np.ndarray] = []
        labels: list[np.ndarray] = []
        episodes: list[np.ndarray] = []
        while len(running):
            observations = np.stack([views[i] for i in running]).astype(np.float32)
            states = np.stack([np.asarray(worlds[i].unwrapped.state, dtype=np.float64) for i in running])
            wanted = np.asarray(act(observations, states))
            observed.append(observations)
            labels.append(wanted.astype(np.int64))
            episodes.append(running.copy())
            done = np.zeros(len(running), dtype=bool)
            for k, (i, action) in enumerate(zip(running, disturb(wanted) if disturb else wanted, strict=True)):
                views[i], reward, terminated, truncated, _ = worlds[i].step(int(action))
                rewards[i] += float(reward)
                done[k] = terminated or truncated
            running = running[~done]
        return _Played(rewards, observed, labels, episodes)
    finally:
        for world in worlds:
            world.close()


def _make_environment(name: str) -> Any:
    try:
        import gymnasium
    except ImportError:
        raise MissingExtra("gymnasium", "control", f"the task on {name}") from None
    return gymnasium.make(name, max_episode_steps=MAX_STEPS)
