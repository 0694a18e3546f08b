"""Transforms that people use, on the lean rollout: rows and statistics as in TorchRL's."""

from __future__ import annotations

import pytest
import torch
from lean_toys import Actor, Nested, Timetable, assert_identical
from tensordict import TensorDictBase
from torchrl.collectors import Collector
from torchrl.envs import (
    ActionDiscretizer,
    CatFrames,
    ClipTransform,
    Compose,
    DoubleToFloat,
    EnvBase,
    FlattenObservation,
    FrameSkipTransform,
    GymWrapper,
    InitTracker,
    ObservationNorm,
    RewardClipping,
    RewardScaling,
    RewardSum,
    SerialEnv,
    StepCounter,
    TimeMaxPool,
    Transform,
    TransformedEnv,
    UnsqueezeTransform,
    VecNorm,
    VecNormV2,
)

from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.envs import make_env

pytestmark = pytest.mark.filterwarnings("ignore")

SEEN = ["observation"]


class Tally(Transform):
    """A user's own: it counts the rows that it sees, and keeps a sum from reset to reset."""

    def __init__(self) -> None:
        super().__init__(in_keys=SEEN, out_keys=SEEN)
        self.register_buffer("rows", torch.zeros((), dtype=torch.int64))
        self.register_buffer("total", torch.zeros((), dtype=torch.float64))

    def _step(self, tensordict, next_tensordict):
        self.rows += next_tensordict.numel()
        self.total += next_tensordict["observation"].double().sum()
        self.total += tensordict["action"].double().sum() + tensordict["done"].sum()
        return next_tensordict.set("observation", next_tensordict["observation"] + self.rows)

    def _reset(self, tensordict, tensordict_reset):
        self.total += tensordict_reset["observation"].double().sum() * 3
        if tensordict.get("_reset", None) is not None:
            self.total += 7 * tensordict["_reset"].sum()
        return tensordict_reset


TRANSFORMS = {
    "vecnorm": lambda: [VecNorm(in_keys=SEEN)],
    "vecnorm_reward": lambda: [VecNorm(in_keys=["observation", "reward"], decay=0.9)],
    "vecnorm_beside": lambda: [VecNorm(in_keys=SEEN, out_keys=["normed"])],
    "vecnorm_frozen": lambda: [VecNorm(in_keys=SEEN)],
    "vecnorm2": lambda: [VecNormV2(in_keys=SEEN)],
    "vecnorm2_reward": lambda: [VecNormV2(in_keys=["observation", "reward"], decay=0.9)],
    "vecnorm2_reduced": lambda: [VecNormV2(in_keys=SEEN, reduce_batch_dims=True)],
    "vecnorm2_stateless": lambda: [VecNormV2(in_keys=SEEN, stateful=False)],
    "vecnorm2_frozen": lambda: [VecNormV2(in_keys=SEEN)],
    "obsnorm": lambda: [ObservationNorm(loc=0.3, scale=2.0, in_keys=SEEN)],
    "scaling": lambda: [RewardScaling(loc=0.1, scale=0.3)],
    "clipping": lambda: [RewardClipping(-0.5, 0.5)],
    "frames": lambda: [CatFrames(4, dim=-1, in_keys=SEEN)],
    "frames_constant": lambda: [
        CatFrames(3, dim=-1, in_keys=SEEN, padding="constant", padding_value=0.5)
    ],
    "frames_stacked": lambda: [
        UnsqueezeTransform(dim=-2, in_keys=SEEN),
        CatFrames(2, dim=-2, in_keys=SEEN),
        FlattenObservation(-2, -1, in_keys=SEEN, allow_positive_dim=True),
    ],
    "pool": lambda: [TimeMaxPool(in_keys=SEEN, T=3)],
    "skip": lambda: [FrameSkipTransform(3)],
    "mujoco": lambda: [
        VecNorm(in_keys=SEEN, decay=0.99),
        ClipTransform(in_keys=SEEN, low=-10, high=10),
        RewardSum(),
        StepCounter(5),
        DoubleToFloat(),
    ],
    "all": lambda: [
        InitTracker(),
        ObservationNorm(loc=0.1, scale=2.0, in_keys=SEEN),
        RewardScaling(loc=0.0, scale=0.1),
        CatFrames(4, dim=-1, in_keys=SEEN),
        VecNormV2(in_keys=SEEN),
        StepCounter(4),
        RewardSum(),
    ],
    "own": lambda: [Tally(), StepCounter()],
}


def serial(toy, count: int) -> SerialEnv:
    return SerialEnv(count, [lambda i=i: GymWrapper(toy(i, longest=6)) for i in range(count)])


BASES = {
    "alone": lambda toy: GymWrapper(toy(longest=6)),
    "serial": lambda toy: serial(toy, 3),
    "serial of one": lambda toy: serial(toy, 1),
    "elegant": lambda toy: make_env(toy, 3),
    "elegant alone": lambda toy: make_env(toy),
}


def transformed(base: str, toy, transforms) -> TransformedEnv:
    env = BASES[base](toy)
    env.set_seed(1)
    return TransformedEnv(env, Compose(*transforms))


def rows_of(cls, env: EnvBase, policy, between=None) -> list[TensorDictBase]:
    frames = 11 * env.batch_size.numel()
    collector = cls(env, policy, frames_per_batch=frames, total_frames=-1)
    assert cls is Collector or collector.is_lean
    torch.manual_seed(3)
    batches, rows = iter(collector), []
    for number in range(4):
        rows.append(next(batches).clone())
        if number == 1 and between is not None:
            between(collector)
    return rows


def freeze(env: TransformedEnv) -> None:
    for transform in env.transform:
        if isinstance(transform, VecNorm | VecNormV2):
            transform.freeze()


def state(env: TransformedEnv) -> dict:
    found = env.transform.state_dict()
    for number, transform in enumerate(env.transform):
        if isinstance(transform, VecNormV2) and transform.stateful:
            for name in ("_loc", "_var", "_count"):
                found[f"{number}.{name}"] = getattr(transform, name)
        if isinstance(transform, VecNorm):
            found[f"{number}.td"] = transform._td
    return found


def flat(found: dict) -> dict:
    leaves = {}
    for key, value in found.items():
        if isinstance(value, TensorDictBase):
            leaves |= {(key, inner): x for inner, x in value.items(True, True)}
        elif isinstance(value, dict):
            leaves |= flat(value)
        elif isinstance(value, torch.Tensor):
            leaves[key] = value
    return leaves


def assert_equal(run) -> None:
    """Holds rows and state of both collectors against each other; `run` makes them."""
    (ours, kept), (theirs, expected) = run(SyncCollector), run(Collector)
    assert_identical(ours, theirs)
    assert sum(batch["next", "done"].sum() for batch in ours) > 5
    kept, expected = flat(kept), flat(expected)
    assert kept.keys() == expected.keys()
    for key in kept:
        assert torch.equal(kept[key], expected[key]), (key, kept[key], expected[key])


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("base", ["alone", "serial", "elegant"])
def test_rows_and_statistics(base, name):
    def run(cls):
        env = transformed(base, Timetable, TRANSFORMS[name]())
        halfway = (lambda _: freeze(env)) if "frozen" in name else None
        return rows_of(cls, env, Actor(env), halfway), state(env)

    assert_equal(run)


@pytest.mark.parametrize("index", [None, 1], ids=["all", "one"])
@pytest.mark.parametrize("base", BASES)
def test_a_reset_between_batches(base, index):
    if index is not None and base not in ("serial", "elegant"):
        index = 0

    def run(cls):
        env = transformed(base, Timetable, TRANSFORMS["all"]())
        again = None if index is None or not env.batch_size else torch.tensor([index])
        return rows_of(cls, env, None, lambda collector: collector.reset(again)), state(env)

    assert_equal(run)


@pytest.mark.parametrize("base", ["alone", "serial"])
def test_steps_of_others_between_batches(base):
    def run(cls):
        env = transformed(base, Timetable, TRANSFORMS["all"]())
        return rows_of(cls, env, None, lambda _: env.rollout(9)), state(env)

    assert_equal(run)


@pytest.mark.parametrize("base", ["alone", "serial"])
def test_transforms_of_actions_and_nested_observations(base):
    key = ("arm", "angle")

    def run(cls):
        made = [ActionDiscretizer(3), VecNorm(in_keys=[key, "reward"])]
        env = transformed(base, Nested, made)
        return rows_of(cls, env, None), state(env)

    assert_equal(run)


def test_counters_inside_of_each_simulator_are_left_to_torchrl():
    def run(cls):
        inner = [lambda: TransformedEnv(GymWrapper(Timetable(longest=6)), StepCounter(3))] * 2
        env = TransformedEnv(SerialEnv(2, inner), VecNorm(in_keys=SEEN))
        env.set_seed(0)
        collector = cls(env, None, frames_per_batch=42, total_frames=126)
        assert cls is Collector or not collector.is_lean
        torch.manual_seed(0)
        return [batch.clone() for batch in collector], {"td": env.transform._td}

    assert_equal(run)
