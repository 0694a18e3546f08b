from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictModuleBase
from torch import nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs import InitTracker, TransformedEnv
from torchrl.envs.utils import ExplorationType, exploration_type
from torchrl.modules import NormalParamExtractor, ProbabilisticActor, TanhNormal

from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.envs import GymnasiumEnv, make_env

sys.path.insert(0, str(Path(__file__).parents[1] / "envs"))
from toys import Counter, Faulty, Spaces

pytestmark = pytest.mark.filterwarnings("ignore")


class Actor(TensorDictModuleBase):
    """Samples or gives the mode, as the exploration type says."""

    def __init__(self, env):
        super().__init__()
        self.in_keys, self.out_keys = ["observation"], ["action"]
        torch.manual_seed(0)
        sizes = env.observation_spec["observation"].shape[-1], env.action_spec.shape[-1]
        self.net = nn.Sequential(nn.Linear(sizes[0], 8), nn.Tanh(), nn.Linear(8, sizes[1]))

    def sample(self, observation):
        loc = self.net(observation)
        if exploration_type() in (None, ExplorationType.RANDOM):
            loc = loc + torch.randn_like(loc)
        return loc.tanh()

    def forward(self, tensordict):
        return tensordict.set("action", self.sample(tensordict.get("observation")))


class DirectActor(Actor):
    def act(self, observation):
        return self.sample(observation)


def probabilistic(env):
    torch.manual_seed(0)
    sizes = env.observation_spec["observation"].shape[-1], env.action_spec.shape[-1]
    net = nn.Sequential(nn.Linear(sizes[0], 2 * sizes[1]), NormalParamExtractor())
    return ProbabilisticActor(
        TensorDictModule(net, in_keys=["observation"], out_keys=["loc", "scale"]),
        in_keys=["loc", "scale"],
        distribution_class=TanhNormal,
        return_log_prob=True,
    )


class OutOfPlace(Actor):
    def forward(self, tensordict):
        action = self.sample(tensordict.get("observation"))
        return TensorDict({"action": action}, tensordict.batch_size)


class Unknown(TransformedEnv):
    """An environment of a type that the lean path does not know."""


class PlainCollector(SyncCollector):
    """The same collector, on TorchRL's own rollout."""

    def __init__(self, create_env_fn, policy=None, **kwargs):
        super().__init__(Unknown(create_env_fn), policy, **kwargs)


def batches(cls, policy, num_envs, env_id="Pendulum-v1", **kwargs):
    count = num_envs or 1
    env = make_env(env_id, num_envs, seed=1)
    kwargs = {"frames_per_batch": 70 * count, "total_frames": 490 * count, **kwargs}
    collector = cls(env, policy and policy(env), **kwargs)
    assert getattr(collector, "is_lean", False) == (cls is SyncCollector)
    torch.manual_seed(3)
    return list(collector), collector


def assert_identical(ours, theirs):
    assert len(ours) == len(theirs) > 0
    for a, b in zip(ours, theirs, strict=True):
        assert set(a.keys(True, True)) == set(b.keys(True, True))
        assert (a.batch_size, a.names, a.device) == (b.batch_size, b.names, b.device)
        assert (a["next"].names, a["next"].device) == (b["next"].names, b["next"].device)
        for key in a.keys(True, True):
            assert a[key].dtype == b[key].dtype, key
            assert torch.equal(a[key], b[key]), key
            assert not a[key].is_inference()
            assert not a[key].requires_grad


OPTIONS = {
    "default": {},
    "random": {"init_random_frames": 210},
    "mode": {"exploration_type": ExplorationType.DETERMINISTIC},
    "reset": {"reset_at_each_iter": True},
    "cut": {"set_truncated": True},
    "no_ids": {"track_traj_ids": False},
    "storing": {"storing_device": "cpu"},
    "device": {"device": "cpu"},
    "fresh": {"use_buffers": False},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("num_envs", [None, 3])
@pytest.mark.parametrize("policy", [DirectActor, Actor, probabilistic, OutOfPlace, None])
def test_lean_equals_plain(policy, num_envs, options):
    ours, collector = batches(SyncCollector, policy, num_envs, **options)
    theirs, _ = batches(PlainCollector, policy, num_envs, **options)
    assert_identical(ours, theirs)
    # Episodes of 200 steps: only batches that start anew never see their end.
    assert any(b["next", "done"].any() for b in ours) != ("reset_at_each_iter" in options)
    assert collector.frames == 490 * (num_envs or 1)


@pytest.mark.parametrize("num_envs", [None, 1, 3])
def test_lean_equals_torchrl_step_by_step_across_terminations(num_envs):
    options = {"frames_per_batch": num_envs or 1, "total_frames": 200 * (num_envs or 1)}
    ours, _ = batches(SyncCollector, None, num_envs, "CartPole-v1", **options)
    theirs, _ = batches(Collector, None, num_envs, "CartPole-v1", **options)
    assert_identical(ours, theirs)
    assert sum(b["next", "terminated"].sum() for b in ours) > 3


def test_trajectory_ids_and_rows_by_hand():
    env = GymnasiumEnv(factories=[partial(Counter, 2), partial(Counter, 3)])
    collector = SyncCollector(env, None, frames_per_batch=8, total_frames=16)
    first, second = collector
    assert first["collector", "traj_ids"].tolist() == [[0, 0, 2, 2], [1, 1, 1, 3]]
    assert second["collector", "traj_ids"].tolist() == [[4, 4, 5, 5], [3, 3, 6, 6]]
    assert first["observation"][..., 1].tolist() == [[0, 1, 0, 1], [0, 1, 2, 0]]
    assert second["next", "observation"][..., 1].tolist() == [[1, 2, 1, 2], [2, 3, 1, 2]]


def test_other_observations():
    space = spaces.Dict(
        arm=spaces.Dict(angle=spaces.Box(-1, 1, (2,))),
        image=spaces.Box(0, 255, (2, 2, 3), np.uint8),
    )

    def rows(cls):
        space.seed(0)
        env = GymnasiumEnv(factories=[lambda: Spaces(space, spaces.Discrete(3))] * 2)
        torch.manual_seed(0)
        return list(cls(env, None, frames_per_batch=10, total_frames=20))

    assert_identical(rows(SyncCollector), rows(PlainCollector))


def test_batches_stay_as_they_were_given():
    env = make_env("Pendulum-v1", 2, seed=0)
    collector = iter(SyncCollector(env, None, frames_per_batch=8, total_frames=-1))
    first = next(collector)
    before = first.clone()
    next(collector)
    assert (first == before).all()
    first.zero_()
    first["next"].set("reward", torch.full((2, 4, 1), 7.0))
    assert (next(collector)["next", "reward"] < 0).all()


def test_return_same_tensordict():
    ours, theirs = [], []
    for rows, cls in ((ours, SyncCollector), (theirs, PlainCollector)):
        env = make_env("Pendulum-v1", 2, seed=0)
        collector = cls(
            env, DirectActor(env), frames_per_batch=8, total_frames=32, return_same_td=True
        )
        torch.manual_seed(0)
        given = []
        for batch in collector:
            given.append(batch)
            rows.append(batch.clone())
        assert all(batch is given[0] for batch in given)
    assert_identical(ours, theirs)


@pytest.mark.parametrize("options", [{}, {"init_random_frames": 16}, {"extend_buffer": False}])
def test_replay_buffer_holds_the_same_rows(options):
    def rows(cls):
        env = make_env("Pendulum-v1", 2, seed=0)
        buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(100), batch_size=4)
        collector = cls(
            env, Actor(env), replay_buffer=buffer, frames_per_batch=8, total_frames=32, **options
        )
        torch.manual_seed(0)
        assert list(collector) == [None] * 4
        return buffer[:]

    a, b = rows(SyncCollector), rows(PlainCollector)
    # TorchRL adds one row of both environments a step if it does not extend.
    assert len(a) == len(b) == (16 if "extend_buffer" in options else 8)
    assert (a == b).all()


@pytest.mark.parametrize("make", [DirectActor, Actor])
def test_rows_can_be_learned_from(make):
    env = make_env("Pendulum-v1", 2, seed=0)
    actor = make(env)
    batch = next(iter(SyncCollector(env, actor, frames_per_batch=8, total_frames=8)))
    loss = (actor.net(batch["observation"]) * batch["action"]).sum()
    loss.backward()
    assert all(p.grad is not None for p in actor.parameters())


def test_newest_parameters_are_used():
    env = make_env("Pendulum-v1", 2, seed=0)
    actor = DirectActor(env)
    collector = iter(SyncCollector(env, actor, frames_per_batch=4, total_frames=-1))
    next(collector)
    with torch.no_grad():
        actor.net[-1].weight.zero_()
        actor.net[-1].bias.fill_(50.0)
    assert (next(collector)["action"] == 1).all()


@pytest.mark.parametrize("index", [None, 1])
def test_reset_starts_new_rows(index):
    def rows(cls):
        env = GymnasiumEnv(factories=[partial(Counter, 5)] * 2)
        collector = cls(env, None, frames_per_batch=6, total_frames=12)
        torch.manual_seed(0)
        it = iter(collector)
        first = next(it)
        collector.reset(index)
        return [first, next(it)]

    ours, theirs = rows(SyncCollector), rows(PlainCollector)
    assert_identical(ours, theirs)
    steps = ours[1]["step_count"][:, 0, 0].tolist()
    assert steps == ([0, 0] if index is None else [3, 0])


def test_set_seed_starts_the_seeded_episode_at_once():
    def first(seed):
        collector = SyncCollector(
            make_env("Pendulum-v1", 2), None, frames_per_batch=4, total_frames=4
        )
        assert collector.set_seed(seed) != seed
        return next(iter(collector))["observation"][:, 0]

    assert torch.equal(first(1), first(1))
    assert not torch.equal(first(1), first(2))
    seeded = make_env("Pendulum-v1", 2, seed=1).reset()["observation"]
    assert torch.equal(first(1), seeded)


def test_state_dict_round_trip():
    def make():
        env = make_env("Pendulum-v1", 2, seed=0)
        return SyncCollector(env, Actor(env), frames_per_batch=8, total_frames=64)

    collector = make()
    it = iter(collector)
    next(it), next(it)
    with torch.no_grad():
        collector.policy.net[0].weight.fill_(3.0)
    other = make()
    other.load_state_dict(collector.state_dict())
    assert other.frames == 16
    assert (other.policy.net[0].weight == 3).all()
    assert next(iter(other))["collector", "traj_ids"].tolist() == [[2] * 4, [3] * 4]


@pytest.mark.parametrize("cls", [SyncCollector, PlainCollector])
@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize(
    ("where", "at", "key", "frame"),
    [
        ("reward", 7, "reward", 20),
        ("observation", 4, "observation", 11),
        ("reset", 0, "observation", 2),
    ],
)
def test_not_finite(cls, value, where, at, key, frame):
    factories = [partial(Counter, 9), partial(Faulty, where, at, value), partial(Counter, 9)]
    collector = cls(GymnasiumEnv(factories=factories), None, frames_per_batch=12, total_frames=48)
    message = f"`{key}` must be finite, got `{value}` from sub environment 1 at frame {frame};"
    with pytest.raises(FloatingPointError, match=message):
        list(collector)


def test_huge_but_finite_values_pass():
    class Huge(Counter):
        def step(self, action):
            observation, _, *rest = super().step(action)
            return observation, 3e38, *rest

    env = GymnasiumEnv(factories=[Huge] * 2)
    collector = SyncCollector(env, None, frames_per_batch=8, total_frames=8)
    assert len(list(collector)) == 1


@pytest.mark.parametrize("cls", [SyncCollector, PlainCollector])
def test_frames_of_a_resumed_run_count(cls):
    env = make_env("Pendulum-v1", 2)
    collector = cls(env, Actor(env), frames_per_batch=4, total_frames=20, frames_done=12)
    assert collector.frames == 12
    assert len(list(collector)) == 2
    assert collector.frames == 20


def test_what_is_not_lean():
    def is_lean(env, **kwargs):
        policy = None if "compile_policy" not in kwargs else DirectActor(env)
        return SyncCollector(env, policy, frames_per_batch=4, total_frames=4, **kwargs).is_lean

    class Sub(GymnasiumEnv):
        pass

    factory = partial(gymnasium.make, "Pendulum-v1")
    assert is_lean(make_env("Pendulum-v1", 2))
    assert not is_lean(Sub(factories=[factory]))
    assert is_lean(TransformedEnv(make_env("Pendulum-v1"), InitTracker()))
    assert not is_lean(Unknown(make_env("Pendulum-v1")))
    assert not is_lean(make_env("Pendulum-v1"), compact_obs=True)
    assert not is_lean(make_env("Pendulum-v1"), compile_policy=True)


def test_shutdown_closes_the_simulators():
    env = make_env("Pendulum-v1", 2)
    collector = SyncCollector(env, None, frames_per_batch=4, total_frames=-1)
    next(iter(collector))
    collector.shutdown()
    collector.shutdown()
    assert env.is_closed
