from __future__ import annotations

import importlib.util
import pickle
import sys
from functools import partial

import gymnasium
import pytest
import torch
from gymnasium.error import DependencyNotInstalled
from torchrl.data import Bounded, Composite, Unbounded
from torchrl.envs import EnvBase, GymEnv, ParallelEnv, PendulumEnv
from torchrl.envs.utils import check_env_specs
from toys import Counter, kept, module_level_counter

from torchrl_elegant.envs import PREFIXES, GymnasiumEnv, make_env
from torchrl_elegant.envs.make import find_factory

KEYS = {"observation", "action", "done", "terminated", "truncated", "step_count", "episode_reward"}


def test_callable_is_called_once_per_environment():
    made, factory = kept(Counter)
    env = make_env(factory, 3)
    assert type(env) is GymnasiumEnv
    assert len(made) == 3
    assert set(env.rollout(2).keys()) >= KEYS


def test_name_of_a_callable():
    env = make_env("toys:module_level_counter", 2, env_kwargs={"length": 5})
    rows = env.rollout(9, break_when_any_done=True)
    assert rows.shape == (2, 5)


def test_module_that_registers_an_id():
    gymnasium.register("ToyCounter-v0", entry_point=Counter)
    try:
        assert make_env("toys:ToyCounter-v0").env_name.endswith("ToyCounter-v0")
    finally:
        del gymnasium.registry["ToyCounter-v0"]


@pytest.mark.parametrize("name", ["CartPole-v1", "toys:module_level_counter"])
def test_factory_of_a_name_pickles(name):
    assert isinstance(pickle.loads(pickle.dumps(find_factory(name, {})))(), gymnasium.Env)


def test_parallel_gives_the_rows_of_vector():
    def rows(backend):
        env = make_env("Pendulum-v1", 2, seed=3, backend=backend)
        torch.manual_seed(0)
        rollout = env.rollout(205, break_when_any_done=False)
        bounds = env.action_low.tolist(), env.action_high.tolist()
        kind = type(env)
        env.close()
        return rollout, bounds, kind

    threads = torch.get_num_threads()
    (a, bounds_a, kind_a), (b, bounds_b, kind_b) = rows("vector"), rows("parallel")
    assert kind_a is GymnasiumEnv
    assert issubclass(kind_b, ParallelEnv)
    assert bounds_a == bounds_b == ([-2], [2])
    assert a["next", "done"].sum() == 2
    assert (a == b).all()
    assert torch.get_num_threads() == threads


class Doubles(EnvBase):
    """A TorchRL environment in float64, without truncated key, bounds [0, 4]."""

    def __init__(self, batch_size=()):
        super().__init__(batch_size=batch_size)
        shape = (*self.batch_size, 1)
        self.observation_spec = Composite(
            observation=Unbounded(shape, dtype=torch.float64), shape=self.batch_size
        )
        self.action_spec = Bounded(0.0, 4.0, shape, dtype=torch.float64)
        self.reward_spec = Unbounded(shape, dtype=torch.float64)
        self.seed_seen = None

    def _reset(self, tensordict=None):
        return self.observation_spec.zero()

    def _step(self, tensordict):
        action = tensordict["action"]
        done = torch.zeros_like(action, dtype=torch.bool)
        return tensordict.empty().update(
            {"observation": action, "reward": action, "done": done, "terminated": done.clone()}
        )

    def _set_seed(self, seed):
        self.seed_seen = seed


class Episodic(Doubles):
    """Has an observation whose name begins like the return's."""

    def __init__(self):
        super().__init__()
        phase = Unbounded((1,), dtype=torch.float64)
        self.observation_spec = Composite(observation=phase.clone(), episode_phase=phase)

    def _step(self, tensordict):
        return super()._step(tensordict).set("episode_phase", tensordict["action"])


def test_an_observation_named_like_the_return_does_not_replace_it():
    assert "episode_reward" in make_env(Episodic).rollout(2)["next"]


@pytest.mark.parametrize("num_envs", [None, 2])
def test_torchrl_environment_is_completed(num_envs):
    env = make_env(Doubles, num_envs, seed=4)
    check_env_specs(env)
    assert env.batch_size == torch.Size([] if num_envs is None else [2])
    ones = torch.ones(*env.batch_size, 1)
    td = env.step(env.reset().set("action", ones))
    td = env.step(env.step_mdp(td).set("action", 0 * ones))
    assert set(td.keys()) >= KEYS
    assert td["next", "observation"].dtype == torch.float32
    assert (td["next", "reward"] == 2).all()
    assert (td["next", "episode_reward"] == 6).all()
    assert (td["next", "step_count"] == 2).all()
    assert not td["next", "truncated"].any()
    assert (env.action_low.tolist(), env.action_high.tolist()) == ([0], [4])


def test_batched_torchrl_environment():
    env = make_env(lambda: Doubles([5]), 5)
    assert env.rollout(2).shape == (5, 2)
    assert env.action_high.tolist() == [4]
    assert make_env(lambda: Doubles([5]), None).batch_size == (5,)
    with pytest.raises(ValueError, match=r"`num_envs` must be None or agree .* got `3`"):
        make_env(lambda: Doubles([5]), 3)


class Batch(Doubles):
    """Rows of a batch, with what it was given."""

    made = 0

    def __init__(self, *, num_envs=2, device="cpu", seed=None, length=1):
        super().__init__([num_envs])
        type(self).made += 1
        self.given = {"num_envs": num_envs, "device": device, "seed": seed, "length": length}


@pytest.mark.parametrize("factory", [Batch, partial(Batch, length=1), "test_make:Batch"])
def test_a_batched_environment_is_made_once_with_what_it_takes(monkeypatch, factory):
    monkeypatch.setitem(sys.modules, "test_make", sys.modules[__name__])
    Batch.made = 0
    env = make_env(factory, 5, seed=3, device="cpu")
    assert (Batch.made, env.batch_size) == (1, (5,))
    cpu = torch.device("cpu")
    assert env.base_env.given == {"num_envs": 5, "device": cpu, "seed": 3, "length": 1}
    assert env.base_env.seed_seen == 3


def test_arguments_of_the_caller_go_before():
    env = make_env(Batch, None, env_kwargs={"num_envs": 7})
    assert env.batch_size == (7,)
    with pytest.raises(ValueError, match=r"batch size \(7,\), got `5`; ask for 7, or give"):
        make_env(partial(Batch, num_envs=7), 5)
    with pytest.raises(ValueError, match=r"`backend` must be 'vector' .*, got `parallel`"):
        make_env(Batch, 2, backend="parallel")


def test_a_single_torchrl_environment_is_made_once_per_copy():
    made = []
    env = make_env(lambda: made.append(Doubles()) or made[-1], 3, seed=0)
    env.rollout(2)
    assert len(made) == 3
    assert len({child.seed_seen for child in made}) == 3


def test_names_with_a_prefix(monkeypatch):
    monkeypatch.setitem(PREFIXES, "toys", {"batch": Batch})
    assert make_env("toys/batch", 4).batch_size == (4,)
    assert pickle.loads(pickle.dumps(find_factory("elegant/chasing", {})))().batch_size == (1,)
    with pytest.raises(ValueError, match="got `elegant/chase`; the nearest: elegant/chasing"):
        make_env("elegant/chase")
    with pytest.raises(ValueError, match="must be a registered Gymnasium id, got `other/chase`"):
        make_env("other/chase")


@pytest.mark.parametrize("backend", ["vector", "parallel"])
def test_torchrl_factory_backends(backend):
    env = make_env(GymEnv, 2, seed=1, backend=backend, env_kwargs={"env_name": "Pendulum-v1"})
    rows = env.rollout(3)
    assert (rows["next", "step_count"][:, -1] == 3).all()
    torch.testing.assert_close(rows["next", "episode_reward"][:, -1], rows["next", "reward"].sum(1))
    env.close()


def test_torchrl_environment_with_nested_state():
    check_env_specs(make_env(PendulumEnv, 2, seed=0))


def test_unknown_id_names_the_nearest():
    with pytest.raises(ValueError, match="got `HalfCheeta-v5`; the nearest: HalfCheetah-v5"):
        make_env("HalfCheeta-v5")


@pytest.mark.parametrize(
    ("env_id", "module", "extra"),
    [("HalfCheetah-v5", "mujoco", "mujoco"), ("LunarLander-v3", "Box2D", "box2d")],
)
def test_missing_dependency_names_the_extra(monkeypatch, env_id, module, extra):
    def make(*args, **kwargs):
        raise DependencyNotInstalled("some other advice")

    find_spec = importlib.util.find_spec
    monkeypatch.setattr(gymnasium, "make", make)
    # The module is there: then the error is about something else, and stays as it is.
    with pytest.raises(DependencyNotInstalled, match="some other advice"):
        make_env(env_id)
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda n: None if n == module else find_spec(n)
    )
    with pytest.raises(ImportError, match=rf"pip install torchrl_elegant\[{extra}\]"):
        make_env(env_id)


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        (("CartPole-v1", 0), ValueError, "`num_envs` must be at least 1, got `0`"),
        (("CartPole-v1", True), TypeError, "`num_envs` must be an int or None"),
        (("CartPole-v1", 2.0), TypeError, "`num_envs` must be an int or None"),
        (("no_such_module:f",), ValueError, "importable module before the colon"),
        (("math:nothing",), ValueError, "a callable or a registered id after the colon"),
        (("math:pi",), TypeError, "`env` must be a Gymnasium id"),
        ((Counter(),), TypeError, "got `Counter`; for an instance pass what builds it"),
    ],
)
def test_bad_arguments(arguments, error, match):
    with pytest.raises(error, match=match):
        make_env(*arguments)


def test_bad_backend():
    with pytest.raises(ValueError, match="`backend` must be"):
        make_env(module_level_counter, backend="gpu")
    with pytest.raises(ValueError, match="`num_envs` must be an int with backend='parallel'"):
        make_env(module_level_counter, None, backend="parallel")
