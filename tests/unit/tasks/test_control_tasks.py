"""Control tasks play real environments, their simulator equals gymnasium's, and returns tell good policies from bad."""

from __future__ import annotations

import gymnasium
import numpy as np
import pytest
import torch
from torch import nn

from assay import tasks
from assay.tasks.acrobot_search import search_actions, simple_actions, step
from assay.tasks.control import acrobot_expert, cartpole_expert

# One Runge-Kutta step is about 200 float64 operations on values below 30: 200 * 30 * 2.2e-16 ~ 1.3e-12.
STEP_TOLERANCE = 2e-12


def test_the_acrobot_integrator_equals_gymnasium_over_the_whole_state_space() -> None:
    random = np.random.default_rng(0)
    states = random.uniform(-1, 1, (400, 4)) * np.array([np.pi, np.pi, 4 * np.pi, 9 * np.pi])
    actions = random.integers(3, size=400)
    world = gymnasium.make("Acrobot-v1").unwrapped
    world.reset(seed=0)
    reached = []
    for state, action in zip(states, actions, strict=True):
        world.state = state
        world.step(int(action))
        reached.append(world.state)
    world.close()
    assert np.abs(step(states, actions) - np.array(reached)).max() < STEP_TOLERANCE


def test_the_integrator_comparison_would_notice_a_wrong_gravity(monkeypatch: pytest.MonkeyPatch) -> None:
    states, actions = np.full((1, 4), 0.5), np.array([2])
    right = step(states, actions)
    monkeypatch.setattr("assay.tasks.acrobot_search.GRAVITY", 9.81)
    assert np.abs(step(states, actions) - right).max() > 1e6 * STEP_TOLERANCE


def test_the_search_expert_beats_the_simple_rule_by_about_twenty_steps() -> None:
    task = tasks.acrobot(seed=0, episodes=6)
    search = task.expert_returns(episodes=20, seed=1)
    simple = task.policy_returns(lambda views, states: simple_actions(states), episodes=20, seed=1)
    assert search.mean > -66
    assert search.worst > -72
    assert simple.mean < search.mean - 10


def test_a_state_one_step_from_the_goal_is_finished_at_once() -> None:
    state = np.array([[2.0, 0.3, 4.0, 3.0]])
    assert search_actions(state).shape == (1,)
    assert acrobot_expert(np.empty((1, 6)), state) == search_actions(state)


def test_the_cartpole_expert_balances_every_episode_and_its_opposite_none() -> None:
    task = tasks.cartpole(seed=0, episodes=6)
    assert task.expert_returns(episodes=20, seed=1).worst == 500
    opposite = task.policy_returns(lambda views, states: 1 - cartpole_expert(views, states), episodes=20, seed=1)
    assert max(opposite.values) < 30


def test_a_model_that_is_the_expert_returns_500_and_keeps_its_mode() -> None:
    task = tasks.cartpole(seed=0, episodes=6)
    weights = torch.tensor([0.05, 0.16, 1.0, 0.32])
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 2))
    with torch.no_grad():
        model[1].weight.copy_(torch.stack([-weights * task.scale, weights * task.scale]))
        model[1].bias.copy_(torch.stack([-(weights @ task.center), weights @ task.center]))
    model[0].eval()
    found = task.returns(model, episodes=10, seed=2)
    assert found.mean == 500
    assert model.training and not model[0].training
    assert task.returns(model, episodes=10, seed=2) == found


def test_episodes_are_split_and_no_step_of_one_is_in_two_parts() -> None:
    task = tasks.cartpole(seed=0, episodes=12)
    shares = [len(split) for split in (task.train, task.validation, task.test)]
    assert shares == [8 * 500, 2 * 500, 2 * 500]
    assert task.train.x.mean(0).abs().max() < 1e-4
    assert (task.train.x.std(0) - 1).abs().max() < 1e-4


def test_the_recorded_action_is_the_experts_even_where_a_mistake_was_executed() -> None:
    task = tasks.cartpole(seed=0, episodes=6, mistakes=0.5)
    raw = task.test.x * task.scale + task.center
    expected = torch.from_numpy(cartpole_expert(raw.numpy(), raw.numpy()))
    # Standardising and back costs a few float32 roundings, which can flip an action only at the very boundary.
    assert (expected == task.test.y).float().mean() > 0.995


def test_control_data_is_the_same_for_the_same_seed_only() -> None:
    from assay.tasks.control import _clone

    first = tasks.cartpole(seed=4, episodes=6).data_hash
    _clone.cache_clear()
    assert tasks.cartpole(seed=4, episodes=6).data_hash == first != tasks.cartpole(seed=5, episodes=6).data_hash
