"""Any configuration of toy episodes, batches and options gives the rows of TorchRL's collector."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lean_toys import Actor, Coded, Gaussian, Timetable, assert_identical, collected
from torchrl.collectors import Collector
from torchrl.envs import (
    Compose,
    DoubleToFloat,
    GymWrapper,
    InitTracker,
    RewardSum,
    SerialEnv,
    StepCounter,
    TransformedEnv,
)

from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.envs import make_env

pytestmark = pytest.mark.filterwarnings("ignore")

TRANSFORMS = st.permutations(["count", "limit", "sum", "init", "float"]).flatmap(
    lambda names: st.integers(0, 5).map(
        # Two counters would write to the same key.
        lambda k: [n for n in names[:k] if n != "limit" or "count" not in names[:k]]
    )
)


@st.composite
def configurations(draw):
    toy = draw(st.sampled_from([Timetable, Coded]))
    policies = [None, Actor] if toy is Coded else [None, Actor, Gaussian]
    count = draw(st.sampled_from([None, 1, 2, 3, 5]))
    frames = draw(st.integers(1, 12)) * (count or 1)
    batches = draw(st.integers(2, 5))
    options = {
        "init_random_frames": draw(st.sampled_from([0, frames, 2 * frames])),
        "use_buffers": draw(st.booleans()),
        "track_traj_ids": draw(st.booleans()),
        "set_truncated": draw(st.booleans()),
        "reset_at_each_iter": draw(st.booleans()),
    }
    return {
        "toy": partial(toy, longest=draw(st.integers(1, 7))),
        "count": count,
        "kind": draw(st.sampled_from(["torchrl", "elegant"])),
        "transforms": draw(TRANSFORMS),
        "limit": draw(st.integers(1, 4)),
        "seed": draw(st.integers(0, 9)),
        "policy": draw(st.sampled_from(policies)),
        "frames": frames,
        "batches": batches,
        "options": options,
    }


def build(c):
    if c["kind"] == "elegant":
        return make_env(c["toy"], c["count"], seed=c["seed"])
    make = lambda: GymWrapper(c["toy"]())  # noqa: E731
    env = make() if c["count"] is None else SerialEnv(c["count"], make)
    env.set_seed(c["seed"])
    made = {
        "count": StepCounter,
        "limit": partial(StepCounter, max_steps=c["limit"]),
        "sum": RewardSum,
        "init": InitTracker,
        "float": DoubleToFloat,
    }
    chosen = [made[name]() for name in c["transforms"]]
    return TransformedEnv(env, Compose(*chosen)) if chosen else env


@given(configurations())
@settings(max_examples=60, deadline=None, derandomize=True)
def test_any_configuration(c):
    kwargs = {
        "frames_per_batch": c["frames"],
        "total_frames": c["frames"] * c["batches"],
        **c["options"],
    }
    ours, _ = collected(SyncCollector, build(c), c["policy"], **kwargs)
    theirs, _ = collected(Collector, build(c), c["policy"], **kwargs)
    assert_identical(ours, theirs)
