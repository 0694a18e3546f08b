"""The lean rollout against TorchRL's own `Collector`: the same rows, to the last bit."""

from __future__ import annotations

from functools import partial

import gymnasium
import pytest
import torch
from lean_toys import Actor, Coded, Gaussian, Nested, Timetable, assert_identical, collected
from torchrl.collectors import Collector
from torchrl.envs import (
    Compose,
    DoubleToFloat,
    GymEnv,
    GymWrapper,
    InitTracker,
    RewardSum,
    SerialEnv,
    StepCounter,
    TransformedEnv,
)
from torchrl.envs.utils import ExplorationType

from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.envs import make_env

pytestmark = pytest.mark.filterwarnings("ignore")

# Episodes short enough that each run crosses several of their ends.
IDS = {
    "CartPole-v1": {},
    "Pendulum-v1": {"max_episode_steps": 13},
    "HalfCheetah-v5": {"max_episode_steps": 17},
    "FrozenLake-v1": {"max_episode_steps": 11},
}


def torchrl_env(make, count, *, seed=1):
    env = make() if count is None else SerialEnv(count, make)
    env.set_seed(seed)
    return env


def elegant_env(env_id, count, **kwargs):
    return make_env(env_id, count, seed=1, env_kwargs=kwargs)


def compare(make_the_env, policy=Actor, **kwargs):
    """Both collectors over environments made alike; returns the batches of ours."""
    ours, collector = collected(SyncCollector, make_the_env(), policy, **kwargs)
    theirs, _ = collected(Collector, make_the_env(), policy, **kwargs)
    assert_identical(ours, theirs)
    if isinstance(collector.policy, Actor):
        assert collector.policy.acted > 0
    return ours


@pytest.mark.parametrize("exploration", [ExplorationType.DETERMINISTIC, ExplorationType.RANDOM])
@pytest.mark.parametrize("count", [None, 1, 3])
@pytest.mark.parametrize("env_id", IDS)
@pytest.mark.parametrize("kind", ["torchrl", "elegant"])
def test_environments_that_people_use(kind, env_id, count, exploration):
    options = IDS[env_id]

    def make():
        if kind == "elegant":
            return elegant_env(env_id, count, **options)
        return torchrl_env(partial(GymEnv, env_id, **options), count)

    frames = 21 * (count or 1)
    kwargs = {"frames_per_batch": frames, "total_frames": 7 * frames}
    ours = compare(make, exploration_type=exploration, **kwargs)
    ended = sum(batch["next", "done"].sum() for batch in ours)
    assert ended >= 3
    assert any(batch["next", "done"][..., :-1, :].any() for batch in ours)


def test_double_precision_stays():
    ours = compare(lambda: torchrl_env(partial(GymEnv, "HalfCheetah-v5"), None))
    assert ours[0]["observation"].dtype == torch.float64


TRANSFORMS = {
    "count": lambda: [StepCounter()],
    "limit": lambda: [StepCounter(max_steps=3)],
    "sum": lambda: [RewardSum()],
    "init": lambda: [InitTracker()],
    "float": lambda: [DoubleToFloat()],
    "float_of": lambda: [DoubleToFloat(in_keys=["observation"])],
    "usual": lambda: [DoubleToFloat(), StepCounter(), RewardSum(), InitTracker()],
    "turned": lambda: [InitTracker(), RewardSum(), StepCounter(3), DoubleToFloat()],
    "nested": lambda: [StepCounter(5), RewardSum(), Compose(DoubleToFloat())],
}


@pytest.mark.parametrize("where", ["outside", "inside", "both"])
@pytest.mark.parametrize("count", [None, 2])
@pytest.mark.parametrize("transforms", TRANSFORMS.values(), ids=TRANSFORMS)
def test_transforms(transforms, count, where):
    def child():
        env = GymWrapper(Timetable(longest=6))
        if where == "outside":
            return env
        made = transforms()
        return TransformedEnv(env, Compose(*(made if where == "inside" else made[:1])))

    def make():
        env = torchrl_env(child, count)
        made = transforms()
        kept = {"outside": made, "inside": [], "both": made[1:]}[where]
        return TransformedEnv(env, Compose(*kept)) if kept else env

    frames = 17 * (count or 1)
    ours = compare(make, frames_per_batch=frames, total_frames=6 * frames)
    assert sum(batch["next", "done"].sum() for batch in ours) > 5


@pytest.mark.parametrize("toy", [Timetable, Coded, Nested])
@pytest.mark.parametrize("count", [None, 1, 3])
@pytest.mark.parametrize("kind", ["torchrl", "categorical", "elegant"])
def test_spaces(kind, toy, count):
    keys = [("arm", "angle"), "room"] if toy is Nested else ["observation"]

    def make():
        if kind == "elegant":
            return make_env(toy, count, seed=1)
        coded = kind == "categorical"
        wrap = partial(GymWrapper, categorical_action_encoding=coded)
        return torchrl_env(lambda: wrap(toy()), count)

    if kind == "categorical" and toy is not Timetable:
        # Observations without a last dimension are beyond the linear policy here.
        compare(make, None, frames_per_batch=30, total_frames=120)
    else:
        compare(make, partial(Actor, in_keys=keys), frames_per_batch=30, total_frames=120)


@pytest.mark.parametrize("count", [None, 3])
@pytest.mark.parametrize("kind", ["torchrl", "elegant"])
def test_policies_that_write_more(kind, count):
    def make():
        if kind == "elegant":
            return elegant_env("Pendulum-v1", count, max_episode_steps=9)
        return torchrl_env(partial(GymEnv, "Pendulum-v1", max_episode_steps=9), count)

    ours = compare(make, Gaussian, frames_per_batch=30, total_frames=120)
    assert ours[0]["action_log_prob"].shape == ours[0].shape
    fresh = compare(make, Gaussian, frames_per_batch=30, total_frames=120, use_buffers=False)
    assert_identical(ours, fresh)
    # The first batches, drawn at random, hold zeros.
    mixed = compare(make, Gaussian, frames_per_batch=30, total_frames=120, init_random_frames=60)
    assert (mixed[0]["loc"] == 0).all()
    assert (mixed[3]["loc"] != 0).all()


OPTIONS = {
    "device": {"device": "cpu"},
    "storing": {"storing_device": "cpu"},
    "random": {"init_random_frames": 30},
    "reset": {"reset_at_each_iter": True},
    "cut": {"set_truncated": True},
    "no_ids": {"track_traj_ids": False},
    "fresh": {"use_buffers": False},
    "limit": {"max_frames_per_traj": 3},
    "split": {"split_trajs": True},
    "same": {"return_same_td": True},
    "hooked": {"postproc": lambda batch: batch.exclude("done")},
}


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
@pytest.mark.parametrize("count", [None, 3])
@pytest.mark.parametrize("policy", [Actor, None])
def test_options(policy, count, options):
    def make():
        return torchrl_env(lambda: GymWrapper(Timetable(longest=6)), count)

    compare(make, policy, frames_per_batch=30, total_frames=120, **options)


@pytest.mark.parametrize("device", [None, "cpu"])
@pytest.mark.parametrize("outer", [None, "cpu"])
def test_devices_of_the_parts(device, outer):
    def make():
        env = SerialEnv(2, lambda: GymWrapper(Timetable(), device=device), device=outer)
        env.set_seed(1)
        return env

    compare(make, None)


@pytest.mark.parametrize("index", [None, 1])
def test_reset_between_batches(index):
    def rows(cls):
        env = TransformedEnv(
            torchrl_env(lambda: GymWrapper(Timetable(longest=6)), 3),
            Compose(StepCounter(), InitTracker(), RewardSum()),
        )
        collector = cls(env, None, frames_per_batch=30, total_frames=90)
        torch.manual_seed(0)
        batches = []
        for batch in collector:
            batches.append(batch.clone())
            collector.reset(index)
        return batches

    assert_identical(rows(SyncCollector), rows(Collector))


def test_the_environment_may_be_stepped_between_batches():
    def rows(cls):
        env = TransformedEnv(
            torchrl_env(lambda: GymWrapper(Timetable(longest=6)), 3), StepCounter()
        )
        collector = cls(env, None, frames_per_batch=30, total_frames=-1)
        torch.manual_seed(0)
        batches = iter(collector)
        pairs = [(next(batches).clone(), env.rollout(4).contiguous()) for _ in range(4)]
        return zip(*pairs, strict=True)

    for ours, theirs in zip(rows(SyncCollector), rows(Collector), strict=True):
        assert_identical(ours, theirs)


def test_a_stopped_rollout_goes_on_from_its_last_whole_step():
    class Stopping(Timetable):
        stop_at = 14

        def step(self, action):
            if self.now[3] == self.stop_at:
                type(self).stop_at = -1
                raise KeyboardInterrupt
            return super().step(action)

    env = make_env(partial(Stopping, longest=100), 1, seed=0)
    collector = SyncCollector(env, Actor(env), frames_per_batch=10, total_frames=-1)
    batches = iter(collector)
    next(batches)
    with pytest.raises(KeyboardInterrupt):
        next(batches)
    after = next(iter(collector))
    assert after["observation"][0, :, 3].tolist() == list(range(14, 24))
    assert after["step_count"][0, 0, 0] == after["observation"][0, 0, 2]


def test_no_step_is_lost_or_doubled():
    env = make_env(Timetable, 3, seed=0)
    collector = SyncCollector(env, Actor(env), frames_per_batch=21, total_frames=21 * 50)
    steps = torch.cat([batch["next", "observation"][..., 3] for batch in collector], -1)
    assert steps.tolist() == [list(range(1, 351))] * 3


class Watcher(Actor):
    """Writes down all that it is shown."""

    act = None
    shown = ("step_count", "episode_reward", "is_init", ("collector", "traj_ids"))
    writes = ("action", "seen_steps", "seen_reward", "seen_init", "seen_ids", "seen_action")

    def forward(self, tensordict):
        acted = torch.full(tensordict.batch_size, "action" in tensordict)
        seen = [*(tensordict.get(key).clone() for key in self.shown), acted]
        for key, value in zip(self.writes[1:], seen, strict=True):
            tensordict.set(key, value)
        return super().forward(tensordict)


@pytest.mark.parametrize("count", [None, 3])
def test_policies_see_what_torchrl_shows_them(count):
    def make():
        return TransformedEnv(
            torchrl_env(lambda: GymWrapper(Timetable(longest=6)), count),
            Compose(StepCounter(), InitTracker(), RewardSum()),
        )

    kwargs = {"frames_per_batch": 30, "total_frames": 120, "init_random_frames": 30}
    ours, collector = collected(SyncCollector, make(), Watcher, **kwargs)
    assert_identical(ours, collected(Collector, make(), Watcher, **kwargs)[0])
    assert len(ours[-1]["seen_ids"].unique()) > 3
    assert torch.equal(ours[-1]["seen_reward"], ours[-1]["episode_reward"])
    assert collector.is_lean


class Stepped(Timetable):
    steps = 0

    def step(self, action):
        type(self).steps += 1
        return super().step(action)


@pytest.mark.parametrize("policy", [Actor, None])
def test_the_random_phase_may_end_within_a_batch(policy):
    def rows(cls):
        class Mixed(cls):
            def _should_use_random_frames(self):
                return Stepped.steps < 3 * 13

        Stepped.steps = 0
        env = torchrl_env(lambda: GymWrapper(Stepped(longest=6)), 3)
        collector = Mixed(
            env, policy and policy(env), frames_per_batch=30, total_frames=90, init_random_frames=60
        )
        torch.manual_seed(3)
        return [batch.clone() for batch in collector]

    assert_identical(rows(SyncCollector), rows(Collector))


NOT_KNOWN = {
    "unlike": lambda: SerialEnv(
        2, [lambda k=k: TransformedEnv(GymEnv("Pendulum-v1"), StepCounter(k)) for k in (3, 5)]
    ),
    "frame_skip": lambda: GymEnv("Pendulum-v1", frame_skip=2),
    "vector": lambda: GymWrapper(
        gymnasium.make_vec(
            "Pendulum-v1",
            2,
            vectorization_mode="sync",
            vector_kwargs={"autoreset_mode": gymnasium.vector.AutoresetMode.DISABLED},
        )
    ),
    "info": lambda: GymEnv("HalfCheetah-v5").auto_register_info_dict(),
    "reader": lambda: GymEnv("Pendulum-v1").set_info_dict_reader(
        lambda info, tensordict: tensordict.set("observation", -tensordict["observation"])
    ),
    "subclass": lambda: type("Mine", (GymEnv,), {})("Pendulum-v1"),
}


#: What no count for a whole batch gives: these transforms are called once a step.
STEP_BY_STEP = {
    "done": lambda: TransformedEnv(GymEnv("Pendulum-v1"), StepCounter(3, update_done=False)),
    "key": lambda: TransformedEnv(GymEnv("Pendulum-v1"), StepCounter(step_count_key="count")),
    "twice": lambda: TransformedEnv(
        TransformedEnv(GymEnv("Pendulum-v1"), StepCounter(3)), StepCounter(5)
    ),
    "renamed": lambda: TransformedEnv(
        GymEnv("HalfCheetah-v5"), DoubleToFloat(in_keys=["observation"], out_keys=["seen"])
    ),
}


@pytest.mark.parametrize("name", [*NOT_KNOWN, *STEP_BY_STEP])
def test_transforms_in_other_forms_and_what_is_not_known(name):
    def rows(cls):
        env = {**NOT_KNOWN, **STEP_BY_STEP}[name]()
        env.set_seed(0)
        collector = cls(env, None, frames_per_batch=20, total_frames=60)
        torch.manual_seed(0)
        return collector, [batch.clone() for batch in collector]

    collector, ours = rows(SyncCollector)
    assert collector.is_lean == (name in STEP_BY_STEP)
    assert_identical(ours, rows(Collector)[1])


def test_act_must_return_as_many_tensors_as_it_has_keys():
    class Short(Gaussian):
        def act(self, observation):
            return super().act(observation)[0]

    env = make_env("Pendulum-v1", 3)
    collector = SyncCollector(env, Short(env), frames_per_batch=30, total_frames=30)
    with pytest.raises(TypeError, match="`act` must return a tuple"):
        next(iter(collector))


class Overridden(Actor):
    def forward(self, tensordict):
        return super().forward(tensordict).set("action", -tensordict["action"])


class Narrow(Actor):
    def act(self, observation):
        return super().act(observation)

    def forward(self, tensordict):
        return super().forward(tensordict)


@pytest.mark.parametrize(
    ("policy", "toy", "keys"),
    [
        (Overridden, Timetable, ["observation"]),
        (Narrow, Nested, [("arm", "angle"), "room"]),
        (Actor, Timetable, ["observation", "step_count"]),
    ],
)
def test_act_is_not_called_where_it_says_less_than_forward(policy, toy, keys):
    def make():
        return TransformedEnv(torchrl_env(lambda: GymWrapper(toy(longest=6)), 3), StepCounter())

    ours, collector = collected(SyncCollector, make(), partial(policy, in_keys=keys))
    theirs, _ = collected(Collector, make(), partial(policy, in_keys=keys))
    assert_identical(ours, theirs)
    assert collector.policy.acted == 0
