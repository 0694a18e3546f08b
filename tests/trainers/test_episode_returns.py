"""Mean return of the episodes that ended, read or added up."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict

from torchrl_elegant.envs import Outcome
from torchrl_elegant.trainers.episode_returns import EpisodeReturns


def steps(rewards, done, counted=None, **keys) -> TensorDict:
    """Steps ``[envs, time]`` from nested lists; ``counted`` are the returns that an env gives."""
    after = {
        keys.get("reward_key", "reward"): torch.tensor(rewards).unsqueeze(-1),
        keys.get("done_key", "done"): torch.tensor(done).bool().unsqueeze(-1),
    }
    if counted is not None:
        after["episode_reward"] = torch.tensor(counted).unsqueeze(-1)
    shape = torch.tensor(done).shape
    rows = TensorDict({}, shape)
    for key, value in after.items():
        rows["next", key] = value
    return rows


def test_every_episode_counts_once_and_as_much_as_any_other():
    returns = EpisodeReturns()
    returns.add(steps([[1.0, 2.0, 4.0], [8.0, 16.0, 32.0]], [[1, 0, 1], [0, 0, 1]]))
    assert returns.take() == pytest.approx((1 + 6 + 56) / 3)
    assert returns.take() is None


def test_episodes_go_on_from_batch_to_batch():
    returns = EpisodeReturns()
    returns.add(steps([[1.0, 2.0], [4.0, 8.0]], [[0, 1], [0, 0]]))
    assert returns.take() == 3.0
    returns.add(steps([[16.0], [32.0]], [[0], [0]]))
    assert returns.take() is None
    returns.add(steps([[64.0], [128.0]], [[0], [1]]))
    assert returns.take() == 4.0 + 8.0 + 32.0 + 128.0
    returns.add(steps([[256.0], [1.0]], [[1], [0]]))
    assert returns.take() == 16.0 + 64.0 + 256.0


def test_returns_that_an_environment_counts_are_read():
    returns = EpisodeReturns()
    returns.add(steps([[1.0, 1.0]], [[0, 1]], counted=[[70.0, 90.0]]))
    returns.add(steps([[1.0, 1.0]], [[1, 0]], counted=[[10.0, 20.0]]))
    assert returns.take() == 50.0


def test_nested_keys():
    keys = {"reward_key": ("team", "reward"), "done_key": ("team", "done")}
    outcome = Outcome(rewards=(keys["reward_key"],), done=keys["done_key"])
    returns = EpisodeReturns(outcome=outcome)
    returns.add(steps([[1.0, 2.0]], [[0, 1]], **keys))
    assert returns.take() == 3.0


def test_without_a_batch_there_is_no_return():
    returns = EpisodeReturns()
    assert returns.take() is None
    returns.add(steps([[1.0]], [[1]])[:, :0])
    assert returns.take() is None
