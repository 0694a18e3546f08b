"""`ChasingEnv`: equations row by row, a known return, resets by mask, no wait for a device."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field

import pytest
import torch
from no_sync import NoSync
from tensordict import TensorDict
from torch import Tensor
from torchrl.envs.utils import check_env_specs

from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.envs import ChasingEnv, make_env
from torchrl_elegant.modules import build_stochastic_actor


@dataclass
class Row:
    """One agent and one target in plain Python, with the random numbers handed in."""

    start: list[list[float]]
    max_steps: int
    steps: int = 0
    total: float = 0.0
    speeds: list[list[float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.places = [list(point) for point in self.start]
        self.speeds = [[0.0] * len(point) for point in self.start]
        self.distance = math.dist(*self.places)

    def step(self, action: list[float], wander: list[float]) -> tuple[float, bool, bool]:
        action, wander = [max(-1.0, min(1.0, a)) for a in action], list(wander)
        for push in (action, wander):
            size = math.hypot(*push)
            if size > 1.0:
                push[:] = [value / size for value in push]
        for point, (keep, push) in enumerate(((0.5, wander), (0.75, action))):
            speed = self.speeds[point]
            speed[:] = [keep * v + p for v, p in zip(speed, push, strict=True)]
            place = self.places[point]
            place[:] = [x + 0.01 * v for x, v in zip(place, speed, strict=True)]
        before, self.distance = self.distance, math.dist(*self.places)
        self.steps += 1
        caught = self.distance < 1.0
        reward = before - self.distance - 0.02 * math.hypot(*action) + (8.0 if caught else 0.0)
        self.total += reward
        return reward, caught, self.steps >= self.max_steps

    def observation(self) -> list[float]:
        gap = [(a - b) / 8 for a, b in zip(*self.places, strict=True)]
        return [*gap, *self.speeds[0], *(v / 4 for v in self.speeds[1])]


def starts(rng: torch.Generator, rows: int, dimensions: int) -> list[list[list[float]]]:
    drawn = torch.randn(2, dimensions, rows, generator=rng)
    drawn[1] -= 8.0
    return drawn.permute(2, 0, 1).tolist()


def chosen(env: ChasingEnv, heading: Tensor, rng: torch.Generator) -> tuple[Tensor, Tensor]:
    """Actions in the environment's form and as thrusts: row 0 at random, others towards the target
    with noise and sometimes too far."""
    rows, dimensions = heading.shape
    thrust = 3.0 * torch.rand(rows, dimensions, generator=rng) - 1.5
    thrust[1:] = 0.1 * thrust[1:] + heading[1:]
    if not env.discrete:
        return thrust, thrust
    thrust = thrust.round().clamp(-1, 1)
    table = torch.tensor([*itertools.product((-1.0, 0.0, 1.0), repeat=dimensions)])
    index = (table == thrust.unsqueeze(1)).all(-1).int().argmax(-1)
    form = env.action_spec.shape
    return (index if len(form) == 1 else torch.nn.functional.one_hot(index, len(table))), thrust


@pytest.mark.parametrize(
    ("dimensions", "options"),
    [
        (2, {}),
        (3, {"discrete": True}),
        (1, {"discrete": True, "discrete_actions": "categorical"}),
    ],
)
def test_it_is_the_reference_row_by_row(dimensions, options):
    rows, frames, limit = 4, 2500, 800
    env = ChasingEnv(num_envs=rows, dimensions=dimensions, max_steps=limit, seed=5, **options)
    twin, rng = torch.Generator().manual_seed(5), torch.Generator().manual_seed(6)
    places = starts(twin, rows, dimensions)
    reference = [Row(start, limit) for start in places]
    data, ends = env.reset(), {"terminated": 0, "truncated": 0}
    for _ in range(frames):
        gap = 8 * data["observation"][:, :dimensions]
        action, thrust = chosen(env, gap / gap.norm(dim=-1, keepdim=True), rng)
        after = env.step(data.set("action", action))["next"]
        wander = torch.rand(dimensions, rows, generator=twin).t().tolist()
        for i, row in enumerate(reference):
            reward, caught, late = row.step(thrust[i].tolist(), wander[i])
            assert after["reward"][i].item() == pytest.approx(reward, abs=2e-5)
            assert after["episode_reward"][i].item() == pytest.approx(row.total, abs=2e-3)
            assert after["observation"][i].tolist() == pytest.approx(row.observation(), abs=2e-4)
            told = [after[name][i].item() for name in ("terminated", "truncated", "done")]
            assert told == [caught, late, caught or late]
            assert after["step_count"][i].item() == row.steps
            ends["terminated"] += caught
            ends["truncated"] += late
        final = after["observation"].clone()
        data = env.reset(TensorDict({**after, "_reset": after["done"]}, [rows]))
        places = starts(twin, rows, dimensions)
        for i in after["done"][:, 0].nonzero()[:, 0].tolist():
            reference[i] = Row(places[i], limit)
        for i, row in enumerate(reference):
            assert data["observation"][i].tolist() == pytest.approx(row.observation(), abs=2e-4)
        # What an episode ended with is not overwritten by the next one.
        assert torch.equal(after["observation"], final)
    assert ends["terminated"] >= 5
    assert ends["truncated"] >= 3


def pursued(env: ChasingEnv) -> tuple[Tensor, Tensor]:
    """Return and length of each row's first episode, heading for the target at full speed."""
    data, returns = env.reset(), torch.full((env.num_envs,), torch.nan)
    lengths = torch.zeros_like(returns)
    for _ in range(env.max_steps):
        gap = data["observation"][:, : env.dimensions]
        data = env.step(data.set("action", gap / gap.norm(dim=-1, keepdim=True)))["next"]
        first = data["done"][:, 0] & returns.isnan()
        returns[first] = data["episode_reward"][first, 0]
        lengths[first] = data["step_count"][first, 0].float()
    return returns, lengths


def test_a_pursuer_returns_what_is_known():
    returns, lengths = pursued(ChasingEnv(num_envs=2048, seed=1))
    assert returns.mean().item() == pytest.approx(10.46, abs=0.03)
    assert returns.std().item() == pytest.approx(0.35, abs=0.03)
    assert lengths.mean().item() == pytest.approx(398, abs=3)


def test_who_does_nothing_pays_nothing_and_is_truncated():
    env = ChasingEnv(num_envs=64, max_steps=5, seed=0)
    data = env.reset()
    for step in range(5):
        before = data["observation"][:, :2].norm(dim=-1, keepdim=True) * 8
        data = env.step(data.set("action", torch.zeros(64, 2)))["next"]
        after = data["observation"][:, :2].norm(dim=-1, keepdim=True) * 8
        torch.testing.assert_close(data["reward"], before - after, rtol=0, atol=1e-5)
        assert data["truncated"].all() == (step == 4)
    assert not data["terminated"].any()
    assert data["done"].all()


def rollout(seed: int, **options) -> TensorDict:
    env = make_env("elegant/chasing", 3, seed=seed, env_kwargs=options)
    data, rows = env.reset(), []
    for step in range(20):
        rows.append(env.step(data.set("action", torch.full((3, 2), step / 20)))["next"])
        data = rows[-1]
    return torch.stack([row.select("observation", "reward") for row in rows])


def test_the_seed_decides_and_the_process_stream_is_left_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    one, same, other = rollout(1), rollout(1), rollout(2)
    assert torch.equal(before, torch.get_rng_state())
    assert (one == same).all()
    assert not torch.isclose(one["observation"], other["observation"]).all(-1).any()
    first = ChasingEnv(num_envs=2, seed=3)
    again = ChasingEnv(num_envs=2, seed=4)
    again.set_seed(3)
    assert torch.equal(first.reset()["observation"], again.reset()["observation"])
    assert not torch.equal(ChasingEnv().reset()["observation"], ChasingEnv().reset()["observation"])


@pytest.mark.parametrize("forms", [{}, {"discrete": True}])
@pytest.mark.parametrize("form", ["one_hot", "categorical"])
def test_specs_hold(forms, form):
    env = make_env("elegant/chasing", 3, discrete_actions=form, env_kwargs=forms)
    assert isinstance(env, ChasingEnv)
    check_env_specs(env)
    high = None if forms else [1.0, 1.0]
    assert (None if env.action_high is None else env.action_high.tolist()) == high
    if forms:
        assert env.full_action_spec["action"].space.n == 9


def test_a_state_made_in_inference_mode_goes_on_outside_of_it():
    env = ChasingEnv(num_envs=2, seed=0)
    with torch.inference_mode():
        env.rollout(2)
    assert env.rollout(2).shape == (2, 2)


@pytest.mark.parametrize("options", [{}, {"discrete": True}])
def test_nothing_waits_for_a_device(options):
    env = ChasingEnv(num_envs=3, seed=0, **options)
    action = env.action_spec.zero()
    with NoSync():
        step_and_reset(env, action)
    # The specs of TorchRL look at their bounds, so that only what is stepped can be without values.
    env._device, env._generator = torch.device("meta"), None
    for name, value in vars(env).items():
        if isinstance(value, Tensor):
            vars(env)[name] = value.to("meta")
    after = step_and_reset(env, action.to("meta"))
    assert {value.device.type for value in after.values(True, True)} == {"meta"}


def test_no_collection_under_a_policy_waits_for_a_device():
    env = make_env("elegant/chasing", 8, seed=0, env_kwargs={"max_steps": 5})
    actor = build_stochastic_actor(env, num_cells=(8,))
    collector = SyncCollector(env, actor, frames_per_batch=96, total_frames=-1)
    assert collector.is_lean
    with NoSync():
        batch = collector._fast.collect(collector)
    assert batch["next", "truncated"].sum() == 16
    # Each row goes on from where its step led, or from the beginning of an episode.
    goes_on = ~batch["next", "done"][:, :-1]
    before, after = batch["next", "observation"][:, :-1], batch["observation"][:, 1:]
    assert torch.equal((before == after).all(-1, keepdim=True), goes_on)
    assert (batch["step_count"][:, 1:][~goes_on] == 0).all()


def step_and_reset(env: ChasingEnv, action: Tensor) -> TensorDict:
    env._reset()
    after = env._step(TensorDict({"action": action}, env.batch_size))
    env._reset(TensorDict({"_reset": after["done"]}, env.batch_size))
    return after


def test_another_device_is_refused_with_the_way_out():
    env = ChasingEnv(num_envs=2)
    assert env.to("cpu") is env
    with pytest.raises(ValueError, match=r"got `meta`; make it there, with ChasingEnv\(device="):
        env.to("meta")


@pytest.mark.parametrize("name", ["num_envs", "dimensions", "max_steps"])
def test_sizes_below_one_are_refused(name):
    with pytest.raises(ValueError, match=f"`{name}` must be at least 1, got `0`"):
        ChasingEnv(**{name: 0})


def test_an_unknown_form_of_actions_is_refused():
    with pytest.raises(ValueError, match=r"`discrete_actions` must be .* got `both`"):
        ChasingEnv(discrete_actions="both")
