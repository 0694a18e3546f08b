"""`EnvKeys`: found from specs, nested or not, and refused where there are several."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from tensordict import TensorDict
from torchrl.data import Bounded, Composite, Unbounded
from torchrl.envs import EnvBase
from torchrl.envs.utils import check_env_specs

from torchrl_elegant.envs import EnvKeys, make_env


class Nested(EnvBase):
    """Everything under `robot`, its flags too unless they are at the root; bounds [0, 4].

    A row is terminated where its action is above 3, with the action as its reward.
    """

    def __init__(self, num_envs: int = 2, flags: str = "robot", rewards: int = 1) -> None:
        super().__init__(batch_size=[num_envs])
        shape, self.rewards = (num_envs, 1), rewards

        def under(**specs) -> Composite:
            return Composite(robot=Composite(specs, shape=(num_envs,)), shape=(num_envs,))

        self.observation_spec = under(position=Unbounded(shape))
        self.action_spec = under(force=Bounded(0.0, 4.0, shape))
        self.full_reward_spec = under(
            **{f"gain{i or ''}": Unbounded(shape) for i in range(rewards)}
        )
        flag = partial(Bounded, 0, 1, shape, dtype=torch.bool)
        both = {"done": flag(), "terminated": flag()}
        self.flags = flags
        self.full_done_spec = (
            under(**both) if flags == "robot" else Composite(both, shape=(num_envs,))
        )

    def _told(self, position: torch.Tensor, done: torch.Tensor) -> TensorDict:
        flags = {"done": done, "terminated": done.clone()}
        inner, outer = (flags, {}) if self.flags == "robot" else ({}, flags)
        return TensorDict({"robot": {"position": position, **inner}, **outer}, self.batch_size)

    def _reset(self, tensordict=None, **kwargs) -> TensorDict:
        zeros = torch.zeros(*self.batch_size, 1)
        return self._told(zeros, zeros.bool())

    def _step(self, tensordict) -> TensorDict:
        force = tensordict["robot", "force"]
        out = self._told(force.clone(), force > 3.0)
        for i in range(self.rewards):
            out["robot", f"gain{i or ''}"] = force.clone()
        return out

    def _set_seed(self, seed) -> None:
        pass


@pytest.mark.parametrize("flags", ["robot", "root"])
def test_nested_keys_pass_through_make_env(flags):
    env = make_env(Nested, 3, env_kwargs={"flags": flags})
    check_env_specs(env)
    level = (lambda name: ("robot", name)) if flags == "robot" else (lambda name: name)
    assert EnvKeys.of(env) == EnvKeys(
        action=("robot", "force"),
        reward=("robot", "gain"),
        done=level("done"),
        terminated=level("terminated"),
        truncated=level("truncated"),
    )
    # From [-1, 1] to [0, 4], with the nearest action for what lies outside.
    action = torch.tensor([[-1.0], [0.5], [7.0]])
    after = env.step(env.reset().set(("robot", "force"), action))["next"]
    assert after["robot", "gain"].flatten().tolist() == [0.0, 3.0, 4.0]
    assert after[level("terminated")].flatten().tolist() == [False, False, True]
    assert not after[level("truncated")].any()
    assert (env.action_low.tolist(), env.action_high.tolist()) == ([0], [4])
    entries = {key if isinstance(key, str) else key[-1] for key in after.keys(True, True)}
    assert entries >= {"step_count", "episode_reward"}


def test_the_keys_of_a_flat_environment_are_the_defaults():
    assert EnvKeys.of(make_env("Pendulum-v1")) == EnvKeys()
    assert EnvKeys.of(make_env("elegant/chasing", 2)) == EnvKeys()


def test_several_rewards_are_refused():
    with pytest.raises(ValueError, match=r"`env` must have one reward, got .*gain.*gain1"):
        EnvKeys.of(Nested(rewards=2))


class Aside(Nested):
    """Has its flags beside the reward, not above it."""

    def __init__(self) -> None:
        super().__init__()
        flags = dict(self.full_done_spec["robot"].items())
        self.full_done_spec = Composite(other=Composite(flags, shape=(2,)), shape=(2,))


def test_flags_that_stand_beside_the_reward_are_refused():
    with pytest.raises(ValueError, match=r"a done flag at the level of its reward or above"):
        EnvKeys.of(Aside())


@pytest.mark.parametrize("scenario", ["navigation", "simple"])
def test_a_team_is_refused(scenario):
    with pytest.raises(
        ValueError, match=r"`env` must have one agent, got rewards of shape \(., 1\)"
    ):
        EnvKeys.of(make_env(f"vmas/{scenario}", 2))
