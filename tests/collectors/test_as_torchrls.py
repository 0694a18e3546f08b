"""Our collectors in the place of TorchRL's: any policy, ragged batches, arguments, NaN."""

from __future__ import annotations

import inspect
from functools import partial

import pytest
import torch
from batched_toys import Drift
from lean_toys import Timetable
from tensordict import LazyStackedTensorDict, TensorDict
from tensordict.nn import TensorDictModuleBase
from torchrl.collectors import Collector
from torchrl.data import Bounded, Composite, LazyTensorStorage, ReplayBuffer, Unbounded
from torchrl.envs import EnvBase, GymWrapper, SerialEnv

from torchrl_elegant.collectors import AsyncCollector, ParallelCollector, SyncCollector
from torchrl_elegant.collectors.workers.arguments import WORKER_OPTIONS
from torchrl_elegant.envs import make_env

pytestmark = pytest.mark.filterwarnings("ignore")


class Silent(TensorDictModuleBase):
    """A policy that does not say what it reads and writes."""

    def forward(self, tensordict):
        action = tensordict.get("observation")[..., :2].tanh()
        return tensordict.set("action", action.float())


class Ragged(EnvBase):
    """Observes one number more at each step."""

    nan_at = -1

    def __init__(self) -> None:
        super().__init__()
        self.observation_spec = Composite(observation=Unbounded((-1,)))
        self.action_spec = Bounded(-1.0, 1.0, (1,))
        self.reward_spec = Unbounded((1,))
        self.steps = 0

    def _told(self) -> TensorDict:
        seen = torch.ones(self.steps + 1)
        return TensorDict({"observation": seen, "done": torch.tensor([self.steps > 5])})

    def _reset(self, tensordict=None, **kwargs):
        self.steps = 0
        return self._told()

    def _step(self, tensordict):
        self.steps += 1
        reward = torch.tensor([torch.nan if self.steps == self.nan_at else 1.0])
        return self._told().set("reward", reward)

    def _set_seed(self, seed) -> None:
        pass


class LastIsNan(Timetable):
    """Observes NaN where an episode ends."""

    def step(self, action):
        seen, *rest = super().step(action)
        return seen * (float("nan") if rest[1] or rest[2] else 1.0), *rest


MAKERS = {
    "gymnasium": lambda: GymWrapper(Timetable(longest=6)),
    "serial": lambda: SerialEnv(2, lambda: GymWrapper(Timetable(longest=6))),
    "elegant": lambda: make_env(Timetable, 2, seed=0),
    "tensors": lambda: Drift(2),
    "alone": Drift,
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_policy_need_not_declare_its_keys(make):
    def rows(cls):
        env = make()
        env.set_seed(1)
        collector = cls(env, Silent(), frames_per_batch=20, total_frames=60)
        return [batch.clone() for batch in collector], collector

    (ours, collector), (theirs, _) = rows(SyncCollector), rows(Collector)
    assert collector.is_lean
    for a, b in zip(ours, theirs, strict=True):
        assert (a == b).all()


class Placed(Silent):
    """Keeps the device of what it is called with."""

    def forward(self, tensordict):
        self.device = tensordict.device
        return super().forward(tensordict)


class InPlace(Drift):
    """Keeps the device of what it is stepped with."""

    def _step(self, tensordict):
        self.stepped = tensordict.device
        return super()._step(tensordict)


@pytest.mark.parametrize("policy_device", [None, "cpu"])
@pytest.mark.parametrize("env_device", [None, "cpu"])
def test_policies_and_environments_get_data_on_the_device_given_for_them(policy_device, env_device):
    devices = {"policy_device": policy_device, "env_device": env_device}

    def seen(cls):
        env, policy = InPlace(2), Placed()
        collector = cls(env, policy, frames_per_batch=8, total_frames=8, **devices)
        (batch,) = collector
        return policy.device, env.stepped, batch.device, collector

    *ours, collector = seen(SyncCollector)
    *theirs, _ = seen(Collector)
    assert collector.is_lean
    assert ours == theirs


def test_nor_need_the_policy_of_workers():
    env = partial(make_env, Timetable, 2)
    with ParallelCollector(env, Silent(), num_workers=1, frames_per_batch=8, seed=0) as collector:
        batch = next(iter(collector))
    assert torch.equal(batch["action"], batch["observation"][..., :2].tanh().float())


def test_ragged_batches():
    collector = SyncCollector(Ragged(), None, frames_per_batch=20, total_frames=40)
    batches = list(collector)
    assert all(isinstance(batch, LazyStackedTensorDict) for batch in batches)
    assert [len(step["observation"]) for step in batches[0].unbind(0)][:8] == [
        1,
        2,
        3,
        4,
        5,
        6,
        1,
        2,
    ]


def test_nan_in_a_ragged_batch_is_told():
    env = Ragged()
    env.nan_at = 3
    collector = SyncCollector(env, None, frames_per_batch=20, total_frames=40)
    with pytest.raises(
        FloatingPointError, match=r"`reward` must be finite, .* up to frame 20; mend"
    ):
        next(iter(collector))


@pytest.mark.parametrize("make", [GymWrapper, partial(make_env, num_envs=2)])
def test_nan_may_pass(make):
    env = partial(LastIsNan, longest=3)
    made = make(env()) if make is GymWrapper else make(env)
    with pytest.raises(FloatingPointError, match="`observation` must be finite"):
        list(SyncCollector(made, None, frames_per_batch=40, total_frames=40))
    made = make(env()) if make is GymWrapper else make(env)
    batch = next(
        iter(SyncCollector(made, None, frames_per_batch=40, total_frames=40, check_finite=False))
    )
    lost = batch["next", "observation"].isnan().all(-1, keepdim=True)
    assert torch.equal(lost, batch["next", "done"])
    assert batch["observation"].isfinite().all()


def test_nan_may_pass_in_workers():
    env = partial(make_env, partial(LastIsNan, longest=3), 2)
    options = {"num_workers": 1, "frames_per_batch": 40, "check_finite": False, "seed": 0}
    with ParallelCollector(env, None, **options) as collector:
        assert next(iter(collector))["next", "observation"].isnan().any()


def test_the_signature_names_torchrls_arguments():
    theirs = inspect.signature(Collector).parameters
    for signed in (SyncCollector, SyncCollector.__init__):
        ours = inspect.signature(signed).parameters
        missing = theirs.keys() - ours.keys()
        assert missing == {"backend", "backend_options", "num_collectors", "sync", "kwargs"}
        assert not [p for p in ours.values() if p.kind is p.VAR_KEYWORD]
        for name in theirs.keys() & ours.keys() - {"create_env_fn", "policy"}:
            assert (ours[name].default, ours[name].kind) == (
                theirs[name].default,
                theirs[name].kind,
            )


@pytest.mark.parametrize("cls", [AsyncCollector, ParallelCollector])
def test_the_signatures_with_workers_name_their_options(cls):
    ours = inspect.signature(cls).parameters
    assert WORKER_OPTIONS | {"create_env_fn", "policy", "frames_per_batch", "seed"} <= ours.keys()
    assert not {"self", "kwargs", "args"} & ours.keys()


def test_arguments_that_torchrl_does_not_know_are_refused():
    with pytest.raises(TypeError, match="no_such"):
        SyncCollector(Drift(2), None, frames_per_batch=8, total_frames=8, no_such=1)


@pytest.mark.parametrize("cls", [AsyncCollector, ParallelCollector])
def test_workers_refuse_ragged_rows(cls):
    options = {"replay_buffer": ReplayBuffer(storage=LazyTensorStorage(8))}
    with pytest.raises(ValueError, match="`create_env_fn` must make environments whose"):
        cls(
            Ragged,
            None,
            num_workers=1,
            frames_per_batch=8,
            **(options if cls is AsyncCollector else {}),
        )
