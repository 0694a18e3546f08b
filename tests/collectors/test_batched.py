"""Rollouts over batched environments: the rows of TorchRL's collector, without its steps."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from batched_toys import Drift, Flat, Masked, Sloppy, Team, Terse
from no_sync import NoSync
from tensordict import TensorDict
from tensordict.nn import TensorDictModule, TensorDictModuleBase, TensorDictSequential
from torch import nn
from torchrl.collectors import Collector
from torchrl.collectors.utils import _TrajectoryPool
from torchrl.data import Bounded, LazyTensorStorage, TensorDictReplayBuffer, Unbounded
from torchrl.envs import (
    Compose,
    DoubleToFloat,
    EnvBase,
    InitTracker,
    ObservationNorm,
    RewardSum,
    SerialEnv,
    StepCounter,
    TransformedEnv,
)
from torchrl.envs.libs.vmas import VmasEnv
from torchrl.envs.utils import ExplorationType
from torchrl.modules import (
    NormalParamExtractor,
    OrnsteinUhlenbeckProcessModule,
    ProbabilisticActor,
    TanhNormal,
)
from vmas.scenarios.balance import Scenario as Balance

from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.collectors.rollout.env_steps import EnvStepper
from torchrl_elegant.collectors.rollout.finite_check import CheckLater
from torchrl_elegant.collectors.rollout.trajectory_ids import DeferredPool
from torchrl_elegant.collectors.rollout.vmas import VmasStepper

pytestmark = pytest.mark.filterwarnings("ignore")


def keys_of(env: EnvBase) -> tuple:
    action = env.action_keys[0]
    name = "observation"
    return (action[0], name) if isinstance(action, tuple) else name, action


class Actor(TensorDictModuleBase):
    """Writes an action, and beside it what it was made from."""

    def __init__(self, env: EnvBase) -> None:
        super().__init__()
        seen, action = keys_of(env)
        beside = (*action[:-1], "beside") if isinstance(action, tuple) else "beside"
        self.in_keys, self.out_keys = [seen], [action, beside]
        sizes = env.full_observation_spec[seen].shape[-1], env.full_action_spec[action].shape[-1]
        torch.manual_seed(0)
        self.net = nn.Linear(*sizes)
        self.direct_calls = 0

    def _both(self, observation):
        noise = torch.randn(observation.shape[:-1]).unsqueeze(-1)
        return (self.net(observation) + noise).tanh(), noise

    def forward(self, tensordict):
        for key, value in zip(
            self.out_keys, self._both(tensordict.get(self.in_keys[0])), strict=True
        ):
            tensordict.set(key, value)
        return tensordict


class DirectActor(Actor):
    def act(self, observation):
        self.direct_calls += 1
        return self._both(observation)

    def forward(self, tensordict):
        return super().forward(tensordict)


def probabilistic(env: EnvBase) -> ProbabilisticActor:
    seen, action = keys_of(env)
    sizes = env.full_observation_spec[seen].shape[-1], env.full_action_spec[action].shape[-1]
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(sizes[0], 2 * sizes[1]), NormalParamExtractor())
    prefix = action[:-1] if isinstance(action, tuple) else ()
    names = [(*prefix, name) if prefix else name for name in ("loc", "scale")]
    return ProbabilisticActor(
        TensorDictModule(net, in_keys=[seen], out_keys=names),
        in_keys=names,
        out_keys=[action],
        distribution_class=TanhNormal,
        return_log_prob=True,
        log_prob_key=(*prefix, "log_prob") if prefix else "log_prob",
    )


def out_of_place(env: EnvBase) -> Callable:
    actor = Actor(env)
    empty = TensorDict({}, env.batch_size)

    def call(tensordict):
        return actor(empty.copy().set(actor.in_keys[0], tensordict.get(actor.in_keys[0])))

    return call


class Echo(Actor):
    """Carries on what it wrote before: TorchRL zeroes that where a row starts anew."""

    def forward(self, tensordict):
        before = tensordict.get(self.out_keys[1], None)
        action, noise = self._both(tensordict.get(self.in_keys[0]))
        tensordict.set(self.out_keys[0], action)
        return tensordict.set(self.out_keys[1], noise if before is None else before + 1)


POLICIES = {
    "direct": DirectActor,
    "module": Actor,
    "probabilistic": probabilistic,
    "out_of_place": out_of_place,
    "echo": Echo,
    "random": lambda env: None,
}


def transformed(env: EnvBase, **limits) -> TransformedEnv:
    reward = env.reward_keys[0]
    total = (*reward[:-1], "total") if isinstance(reward, tuple) else "total"
    own = StepCounter(**limits), RewardSum(in_keys=[reward], out_keys=[total]), InitTracker()
    return TransformedEnv(env, Compose(*own, DoubleToFloat()))


class Labelled(Drift):
    """Says more than its specs do, and writes into what it was given."""

    def _step(self, tensordict):
        tensordict.set("action", tensordict.get("action").clamp(-0.5, 0.5))
        return super()._step(tensordict)


ENVS = {
    "drift": partial(Drift, 5),
    "one": partial(Drift, 1),
    "alone": Drift,
    "terse alone": Terse,
    "team alone": Team,
    "transformed alone": lambda: transformed(Drift(), max_steps=6),
    "grid": partial(Drift, 2, 3),
    "masked": partial(Masked, 5),
    "terse": partial(Terse, 4),
    "flat": partial(Flat, 4),
    "sloppy": partial(Sloppy, 4),
    "labelled": partial(Labelled, 4),
    "team": partial(Team, 4),
    "transformed": lambda: transformed(Drift(5), max_steps=6),
    "transformed team": lambda: transformed(Team(4), max_steps=6),
    "transformed twice": lambda: TransformedEnv(
        transformed(Masked(5)), ObservationNorm(loc=0.5, scale=2.0, in_keys=["observation"])
    ),
}


def vmas(scenario: str, envs: int = 4, **kwargs) -> VmasEnv:
    return VmasEnv(scenario, num_envs=envs, seed=0, **kwargs)


def nobody(env: EnvBase) -> None:
    """No policy: random actions."""


class Blurred(Balance):
    """Observes with noise: another look at the same state is another observation."""

    def observation(self, agent):
        seen = super().observation(agent)
        return seen + torch.randn_like(seen)


VMAS = {
    "balance": (partial(vmas, "balance", n_agents=3), Actor),
    "navigation": (partial(vmas, "navigation", max_steps=11), DirectActor),
    "blurred": (lambda: vmas(Blurred(), max_steps=11), Actor),
    "discrete": (partial(vmas, "balance", continuous_actions=False), nobody),
    "one-hot": (
        partial(vmas, "balance", continuous_actions=False, categorical_actions=False),
        nobody,
    ),
    "two groups": (
        partial(
            vmas, "balance", n_agents=3, group_map={"b": ["agent_2"], "a": ["agent_1", "agent_0"]}
        ),
        nobody,
    ),
    "transformed": (lambda: transformed(vmas("balance"), max_steps=9), probabilistic),
}


def run(cls, make, policy=lambda env: None, *, steps=7, count=4, between=None, **options):
    env = make()
    envs = env.batch_size.numel()
    env.set_seed(3)
    actor = policy(env)
    options = {"frames_per_batch": steps * envs, "total_frames": steps * envs * count, **options}
    torch.manual_seed(4)
    collector = cls(env, actor, **options)
    if cls is SyncCollector:
        assert collector.is_lean
        assert isinstance(collector._fast._stepper, EnvStepper | VmasStepper)
    batches = []
    for index, batch in enumerate(collector):
        batches.append(None if batch is None else batch.clone())
        if between is not None and index == 0:
            between(collector)
    return batches, collector


def assert_same(ours, theirs):
    assert len(ours) == len(theirs) > 0
    for a, b in zip(ours, theirs, strict=True):
        assert_same_batch(a, b)


def assert_same_batch(a, b):
    assert set(a.keys(True, True)) == set(b.keys(True, True))
    for key in [(), *(key for key in a.keys(True) if key not in a.keys(True, True))]:
        x, y = (a.get(key), b.get(key)) if key else (a, b)
        assert (x.batch_size, x.names, x.device) == (y.batch_size, y.names, y.device), key
    for key in a.keys(True, True):
        assert a[key].dtype == b[key].dtype, key
        assert torch.equal(a[key], b[key]), key
        assert not a[key].is_inference()
        assert not a[key].requires_grad


def assert_same_rows(a, b):
    assert set(a.keys(True, True)) == set(b.keys(True, True))
    for key in a.keys(True, True):
        assert torch.equal(a[key], b[key]), key


@pytest.mark.parametrize("make", ENVS.values(), ids=ENVS)
@pytest.mark.parametrize("policy", POLICIES.values(), ids=POLICIES)
def test_rows_equal_torchrls(make, policy):
    ours, collector = run(SyncCollector, make, policy)
    theirs, _ = run(Collector, make, policy)
    assert_same(ours, theirs)
    # Rows ended apart from each other, and within batches as well as at their ends.
    ends = torch.stack([batch["next", "done"].squeeze(-1) for batch in ours])
    assert ends.any()
    assert collector.frames == sum(batch.numel() for batch in ours)
    ids = ours[-1]["collector", "traj_ids"]
    assert ids.max() >= ends[:-1].sum()


@pytest.mark.parametrize(("make", "policy"), VMAS.values(), ids=VMAS)
@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("steps", [1, 8])
def test_vmas_rows_equal_torchrls(make, policy, steps, apart):
    def again(collector):
        collector.reset(torch.tensor([1, 3]) if apart else None)

    options = {"steps": steps, "count": 32 // steps, "between": again}
    ours, _ = run(SyncCollector, make, policy, **options)
    theirs, _ = run(Collector, make, policy, **options)
    assert_same(ours, theirs)


@pytest.mark.parametrize("device", [None, "cpu"])
def test_what_an_environment_writes_into_its_input_is_kept_where_torchrl_keeps_it(device):
    ours, _ = run(SyncCollector, ENVS["labelled"], Actor, device=device)
    theirs, _ = run(Collector, ENVS["labelled"], Actor, device=device)
    assert_same(ours, theirs)
    assert (ours[0]["action"].abs().max() <= 0.5) == (device is not None)


OPTIONS = {
    "random": {"init_random_frames": 40},
    "mode": {"exploration_type": ExplorationType.DETERMINISTIC},
    "reset": {"reset_at_each_iter": True},
    "cut": {"set_truncated": True},
    "no ids": {"track_traj_ids": False},
    "storing": {"storing_device": "cpu"},
    "device": {"device": "cpu"},
    "fresh": {"use_buffers": False},
    "fresh random": {"use_buffers": False, "init_random_frames": 40},
    "limited": {"max_frames_per_traj": 4},
    "split": {"split_trajs": True},
    "postproc": {"postproc": lambda batch: batch.exclude("observation")},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("policy", [DirectActor, probabilistic], ids=["direct", "probabilistic"])
@pytest.mark.parametrize("make", [Drift, partial(Drift, 5), partial(Masked, 5)])
def test_options(make, policy, options):
    ours, _ = run(SyncCollector, make, policy, **options)
    theirs, _ = run(Collector, make, policy, **options)
    assert_same(ours, theirs)


@pytest.mark.parametrize("index", [None, torch.tensor([1]), torch.tensor([0, 4])])
@pytest.mark.parametrize("make", [ENVS["drift"], ENVS["masked"], ENVS["transformed"]])
def test_a_reset_between_batches(make, index):
    options = {"between": lambda collector: collector.reset(index)}
    ours, _ = run(SyncCollector, make, Actor, **options)
    theirs, _ = run(Collector, make, Actor, **options)
    assert_same(ours, theirs)


@pytest.mark.parametrize("options", [{}, {"init_random_frames": 70}])
@pytest.mark.parametrize("policy", [DirectActor, Actor, lambda env: None])
def test_a_buffer_holds_the_same_rows(policy, options):
    def rows(cls):
        buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(100), batch_size=4)
        given, _ = run(cls, partial(Drift, 5), policy, replay_buffer=buffer, **options)
        assert given == [None] * 4
        return buffer[:]

    ours, theirs = rows(SyncCollector), rows(Collector)
    assert_same_rows(ours, theirs)


def test_return_same_tensordict():
    def rows(cls):
        env = Drift(5)
        env.set_seed(0)
        torch.manual_seed(0)
        collector = cls(env, Actor(env), frames_per_batch=20, total_frames=80, return_same_td=True)
        given, copies = [], []
        for batch in collector:
            given.append(batch)
            copies.append(batch.clone())
        assert all(batch is given[0] for batch in given)
        return copies

    assert_same(rows(SyncCollector), rows(Collector))


def test_batches_stay_as_they_were_given():
    env = Drift(3)
    collector = iter(SyncCollector(env, Actor(env), frames_per_batch=12, total_frames=-1))
    first = next(collector)
    before = first.clone()
    second = next(collector)
    assert (first == before).all()
    storages = [
        {v.untyped_storage().data_ptr() for v in b.values(True, True)} for b in (first, second)
    ]
    assert not storages[0] & storages[1]
    # Each entry is its own: writing to one changes no other.
    assert len(storages[0]) == len(list(first.keys(True, True)))
    first.zero_()
    assert (next(collector)["observation"] != 0).any()


@pytest.mark.parametrize("policy", [DirectActor, Actor])
def test_rows_can_be_learned_from(policy):
    env = Drift(3)
    actor = policy(env)
    batch = next(iter(SyncCollector(env, actor, frames_per_batch=12, total_frames=12)))
    (actor.net(batch["observation"]) * batch["action"]).sum().backward()
    assert all(p.grad is not None for p in actor.parameters())
    assert actor.direct_calls == (4 if policy is DirectActor else 0)


def test_newest_parameters_are_used():
    env = Drift(3)
    actor = DirectActor(env)
    collector = iter(SyncCollector(env, actor, frames_per_batch=12, total_frames=-1))
    next(collector)
    with torch.no_grad():
        actor.net.weight.zero_()
        actor.net.bias.fill_(50.0)
    assert (next(collector)["action"] == 1).all()


def test_stepping_the_environment_between_batches_goes_on_from_there():
    env = Drift(2, length=50)
    collector = SyncCollector(env, Actor(env), frames_per_batch=6, total_frames=-1)
    it = iter(collector)
    last = next(it)["next", "observation"][:, -1]
    assert torch.equal(next(it)["observation"][:, 0], last)
    assert torch.equal(collector._carrier["observation"], env.place)


def test_state_dict_round_trip():
    def make(cls):
        env = Masked(3)
        return cls(env, Actor(env), frames_per_batch=21, total_frames=-1)

    collector = make(SyncCollector)
    it = iter(collector)
    used = max(int(next(it)["collector", "traj_ids"].max()) for _ in range(3))
    state = collector.state_dict()
    ended = int(state["traj_pool"]["traj_id"])
    assert used <= ended <= used + 3
    for cls in (SyncCollector, Collector):
        other = make(cls)
        other.load_state_dict(state)
        ids = next(iter(other))["collector", "traj_ids"]
        assert ids[:, 0].tolist() == [ended, ended + 1, ended + 2]


def test_not_finite():
    class Broken(Drift):
        def _step(self, tensordict):
            out = super()._step(tensordict)
            return out.set("reward", torch.where(self.age == 3, torch.nan, out.get("reward")))

    collector = SyncCollector(Broken(2), None, frames_per_batch=10, total_frames=10)
    assert collector.is_lean
    with pytest.raises(FloatingPointError, match="`reward` must be finite, got `nan`"):
        list(collector)


def test_a_missing_entry_is_named():
    class Silent(Drift):
        def _step(self, tensordict):
            return super()._step(tensordict).exclude("observation")

    collector = SyncCollector(Silent(2), None, frames_per_batch=4, total_frames=4)
    with pytest.raises(KeyError, match="`_step` of Silent must return 'observation'"):
        list(collector)


@pytest.mark.parametrize("cls", [SyncCollector, Collector])
def test_done_after_a_reset_is_refused_as_in_torchrl(cls):
    class Stuck(Drift):
        def _reset(self, tensordict=None, **kwargs):
            out = super()._reset(tensordict, **kwargs)
            return out if tensordict is None else out.set("done", tensordict.get("_reset"))

    collector = cls(Stuck(2), None, frames_per_batch=40, total_frames=40)
    with pytest.raises(RuntimeError, match="was \\(partially\\) True after reset"):
        list(collector)


def test_what_a_reset_leaves_out_is_as_in_torchrl():
    class Forgetful(Drift):
        def _reset(self, tensordict=None, **kwargs):
            out = super()._reset(tensordict, **kwargs)
            return out if tensordict is None else out.exclude("observation")

    ours, _ = run(SyncCollector, partial(Forgetful, 3), Actor)
    theirs, _ = run(Collector, partial(Forgetful, 3), Actor)
    assert_same(ours, theirs)


# ---- what is not for this path


class Stepping(Drift):
    def step(self, tensordict):
        return super().step(tensordict)


class Hooked(Drift):
    def _post_step_mdp_hooks(self, tensordict, tensordict_):
        return tensordict, tensordict_


class Choosing(Actor):
    """Means more by calling it than by `act`."""

    def act(self, observation):
        raise AssertionError("must not be called")


class Overriding(Choosing):
    def forward(self, tensordict):
        return super().forward(tensordict)


def ahead(env: EnvBase) -> TensorDictModule:
    """Leaves something for its next step, which TorchRL carries there."""
    net = nn.Linear(2, 2)
    return TensorDictModule(
        lambda x: (net(x), net(x)), in_keys=["observation"], out_keys=["action", ("next", "memory")]
    )


@pytest.mark.parametrize(
    ("make", "policy", "options"),
    [
        (partial(Stepping, 2), None, {}),
        (partial(Hooked, 2), None, {}),
        (partial(Team, 2, root=False), None, {}),
        (lambda: SerialEnv(2, Drift), None, {}),
        (lambda: Drift(2).set_spec_lock_(False), None, {"compact_obs": True}),
        (lambda: TransformedEnv(Stepping(2), StepCounter()), None, {}),
        (partial(Drift, 2), Actor, {"compile_policy": True}),
        (partial(Drift, 2), ahead, {"use_buffers": False}),
    ],
    ids=["step", "hook", "nested", "serial", "compact", "inside", "compiled", "ahead"],
)
def test_what_is_not_lean(make, policy, options):
    env = make()
    collector = SyncCollector(
        env, policy and policy(env), frames_per_batch=4, total_frames=4, **options
    )
    assert not collector.is_lean


def test_nested_flags_alone_run_as_in_torchrl():
    def rows(cls):
        env = Team(3, root=False)
        env.set_seed(0)
        actor = Actor(env)
        torch.manual_seed(0)
        return list(cls(env, actor, frames_per_batch=30, total_frames=90))

    assert_same(rows(SyncCollector), rows(Collector))


def test_a_class_that_overrides_forward_below_act_is_called():
    env = Drift(3)
    collector = SyncCollector(env, Overriding(env), frames_per_batch=6, total_frames=6)
    assert collector.is_lean
    assert len(list(collector)) == 1


# ---- nothing waits for a device


@pytest.mark.parametrize("track", [True, False])
@pytest.mark.parametrize("policy", [DirectActor, Actor, Echo])
@pytest.mark.parametrize("make", [partial(Masked, 5), lambda: transformed(Masked(5), max_steps=6)])
def test_no_rollout_over_a_masking_environment_waits(make, policy, track):
    env = make()
    collector = SyncCollector(
        env, policy(env), frames_per_batch=50, total_frames=-1, track_traj_ids=track
    )
    with NoSync():
        batches = [collector._fast.collect(collector) for _ in range(3)]
    assert sum(int(batch["next", "done"].sum()) for batch in batches) > 5


@pytest.mark.parametrize("policy", [DirectActor, Actor])
def test_no_iteration_over_a_masking_environment_waits(policy):
    env = Masked(5)
    chosen = policy(env)
    collector = SyncCollector(env, chosen, frames_per_batch=50, total_frames=-1)
    # As it would be chosen for a GPU.
    collector._check_finite = CheckLater([("next", "reward")], device=torch.device("cpu"))
    batches = iter(collector)
    with NoSync():
        collected = [next(batches) for _ in range(3)]
    assert collector.no_cuda_sync
    assert collector.policy is chosen
    assert all(value.device == env.device for value in collected[0].values(True, True))
    # On the CPU a look at the values costs nothing and comes at once.
    other = iter(SyncCollector(Masked(5), None, frames_per_batch=50, total_frames=-1))
    with pytest.raises(AssertionError, match="waits for the device"), NoSync():
        next(other)


def test_who_asks_for_torchrls_stream_gets_it():
    options = {"frames_per_batch": 50, "total_frames": -1, "return_same_td": True}
    assert not SyncCollector(Masked(5), None, **options).no_cuda_sync


@pytest.mark.parametrize("make", [partial(Drift, 5), lambda: transformed(Drift(5))])
def test_the_guard_sees_an_environment_that_is_asked(make):
    env = make()
    collector = SyncCollector(env, None, frames_per_batch=50, total_frames=-1)
    with pytest.raises(AssertionError, match="waits for the device"), NoSync():
        collector._fast.collect(collector)


def test_a_masking_environment_is_reset_under_its_mask_at_every_step():
    env = Masked(3, length=4)
    collector = SyncCollector(env, None, frames_per_batch=30, total_frames=30)
    (batch,) = collector
    assert len(env.masks) == 10
    assert torch.equal(torch.stack(env.masks, 1), batch["next", "done"])
    assert [mask.any().item() for mask in env.masks].count(False) > 0


def test_other_transforms_around_a_masking_environment_are_asked():
    env = TransformedEnv(Masked(3), ObservationNorm(loc=0.5, scale=2.0, in_keys=["observation"]))
    assert not EnvStepper(env).resets_by_mask
    assert EnvStepper(transformed(Masked(3))).resets_by_mask


def test_an_ordinary_environment_is_reset_only_when_done():
    env = Drift(3, length=4)
    list(SyncCollector(env, None, frames_per_batch=30, total_frames=30))
    assert env.masks
    assert all(mask.any() for mask in env.masks)


def test_a_pool_that_is_shared_is_counted_on_the_host():
    pool = _TrajectoryPool(ctx=torch.multiprocessing.get_context("spawn"))
    env = Masked(3)
    collector = SyncCollector(env, None, frames_per_batch=60, total_frames=60, traj_pool=pool)
    (batch,) = collector
    ends = int(batch["next", "done"].sum())
    assert not isinstance(collector._traj_pool, DeferredPool)
    assert pool.state_dict()["traj_id"] == 3 + ends > 3


def test_specs_of_the_toys():
    for name in ENVS.keys() - {"sloppy"}:
        env = ENVS[name]()
        env.set_seed(0)
        assert isinstance(next(iter(env.full_action_spec.values(True, True))), Bounded | Unbounded)
        env.check_env_specs()


def test_noise_that_is_carried_on_starts_anew():
    def policy(env):
        torch.manual_seed(0)
        actor = TensorDictModule(nn.Linear(2, 2), in_keys=["observation"], out_keys=["action"])
        noise = OrnsteinUhlenbeckProcessModule(spec=env.full_action_spec.clone())
        return TensorDictSequential(actor, noise)

    def make():
        return TransformedEnv(Drift(4), InitTracker())

    ours, _ = run(SyncCollector, make, policy)
    theirs, _ = run(Collector, make, policy)
    assert_same(ours, theirs)
