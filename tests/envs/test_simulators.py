"""Adapters of simulators: the true end of every episode, over stand-ins with their interfaces."""

from __future__ import annotations

import copy
import importlib.util
import itertools
import sys
import weakref
from types import ModuleType, SimpleNamespace

import gymnasium
import numpy as np
import pytest
import torch
from tensordict import TensorDictBase
from torchrl.envs.utils import check_env_specs

from tests.simulator_toys import (
    LIMIT,
    Envpool,
    IsaacLab,
    Mjlab,
    PrivilegedTask,
    jax_on_torch,
    mjlab_cfg,
    stand_in,
)
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.envs import (
    Go2Env,
    IsaacLabEnv,
    JaxSimulatorEnv,
    MjlabEnv,
    SimulatorEnv,
    make_env,
)
from torchrl_elegant.envs.batched import ISAAC_LAB_TASKS, Actions

NAMES = ["mjlab", "isaaclab", "genesis", "envpool", "jax"]
ROWS, STEPS = 3, 12


def falling(tensordict: TensorDictBase) -> TensorDictBase:
    """Row 0 never falls, row 1 at its second step, row 2 at the time limit."""
    step = tensordict["observation"][:, 1]
    fall = torch.stack([step[0] < 0, step[1] == 1, step[2] == LIMIT - 1])
    return tensordict.set("action", fall.float().unsqueeze(-1))


@pytest.fixture(params=NAMES)
def env(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> SimulatorEnv:
    return stand_in(monkeypatch, request.param, ROWS)


def collected(env: SimulatorEnv) -> TensorDictBase:
    frames = ROWS * STEPS
    return next(iter(SyncCollector(env, falling, frames_per_batch=frames, total_frames=frames)))


def test_each_transition_is_true(env: SimulatorEnv) -> None:
    batch = collected(env)
    seen, fell = batch["observation"], batch["action"] > 0.5
    after, step = batch["next", "observation"], seen[..., 1:] + 1
    assert torch.equal(after, torch.cat([seen[..., :1], step], -1))
    assert torch.equal(batch["next", "reward"], 1 + step + 10 * fell)
    assert torch.equal(batch["next", "terminated"], fell)
    assert torch.equal(batch["next", "truncated"], step >= LIMIT)
    assert torch.equal(batch["next", "done"], fell | (step >= LIMIT))
    assert torch.equal(batch["next", "step_count"], step.long())
    both = batch["next", "terminated"] & batch["next", "truncated"]
    assert both.sum(1).flatten().tolist() == [0, 0, STEPS // LIMIT]


def test_an_episode_begins_after_each_end(env: SimulatorEnv) -> None:
    batch = collected(env)
    done, seen = batch["next", "done"][:, :-1, 0], batch["observation"][:, 1:]
    before = batch["next", "observation"][:, :-1]
    assert torch.equal(seen[~done], before[~done])
    assert (seen[done][:, 1] == 0).all()
    assert (seen[done][:, 0] != before[done][:, 0]).all()
    assert (batch["step_count"][:, 1:, 0][done] == 0).all()
    total = batch["next", "episode_reward"][0, LIMIT - 1]
    assert total == batch["next", "reward"][0, :LIMIT].sum()
    assert (batch["episode_reward"][:, 1:][done] == 0).all()


def test_specs_hold(env: SimulatorEnv) -> None:
    check_env_specs(env)
    assert env.action_high is not None
    assert env.action_high.tolist() == [1.0]


def test_nothing_that_comes_out_is_a_live_buffer(env: SimulatorEnv) -> None:
    still = torch.zeros(ROWS, 1)
    first = env.step(env.reset().set("action", still))["next"]
    kept = first.clone()
    env.step(first.clone().set("action", still))
    assert (first == kept).all()


def boxed(
    monkeypatch: pytest.MonkeyPatch, low: object, high: object, **arguments: float
) -> SimulatorEnv:
    space = gymnasium.spaces.Box(np.array(low, np.float32), np.array(high, np.float32))
    monkeypatch.setattr(Envpool, "action_space", space, raising=False)
    return stand_in(monkeypatch, "envpool", 2, **arguments)


def test_actions_without_bounds_need_some(monkeypatch: pytest.MonkeyPatch) -> None:
    for low in (-np.inf, -1.0):
        with pytest.raises(ValueError, match=r"finite bounds, got .*inf.*`action_bound`") as told:
            boxed(monkeypatch, [low], [np.inf])
        assert len(str(told.value).splitlines()) == 1
    env = boxed(monkeypatch, [-np.inf], [np.inf], action_bound=0.5)
    assert env.action_high is not None
    assert env.action_high.tolist() == [0.5]


def test_actions_that_are_no_row_of_numbers_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TypeError, match="must be a box of one dimension or choices"):
        boxed(monkeypatch, [[-1.0]], [[1.0]])
    monkeypatch.setattr(Envpool, "action_space", gymnasium.spaces.MultiBinary(2))
    with pytest.raises(TypeError, match="got `MultiBinary"):
        stand_in(monkeypatch, "envpool", 2)
    one = np.ones(1, np.float32)
    for bad in (Actions(), Actions(low=-one), Actions(low=-one[None], high=one[None])):
        with pytest.raises(ValueError, match="`actions` must"):
            bad.check()


@pytest.mark.parametrize("name", ["mjlab", "isaaclab", "envpool"])
def test_a_closed_environment_ends_its_simulator(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    env = stand_in(monkeypatch, name, 1)
    inner = env.simulator
    for _ in range(2):
        env.close()
    assert inner.closed == 1


def test_a_seed_ends_the_old_pool(monkeypatch: pytest.MonkeyPatch) -> None:
    env = stand_in(monkeypatch, "envpool", 1)
    old = weakref.ref(env.simulator)
    env.set_seed(1)
    assert old() is None
    last = weakref.ref(env.simulator)
    env.close()
    assert last() is None


def test_mjlab_shows_the_critic_a_state_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    env = stand_in(monkeypatch, "mjlab", 2)
    assert set(env.reset().keys()) >= {"observation", "state"}
    env.set_seed(5)
    assert env.simulator.seeds[-1] == 5


@pytest.mark.parametrize("name", ["mjlab", "isaaclab"])
def test_the_limit_of_a_finite_task_is_an_end(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    stand_in(monkeypatch, name, 1)
    if name == "mjlab":
        env: SimulatorEnv = MjlabEnv(mjlab_cfg(is_finite_horizon=True), num_envs=ROWS)
    else:
        env = IsaacLabEnv(IsaacLab(ROWS, finite=True))
    batch = collected(env)
    assert not batch["next", "truncated"].any()
    assert torch.equal(batch["next", "terminated"], batch["next", "done"])


def test_mjlab_takes_a_limit_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "mjlab", 1)
    cfg = MjlabEnv(mjlab_cfg(), max_steps=7).simulator.cfg
    assert 6 < cfg.episode_length_s / (cfg.decimation * cfg.sim.mujoco.timestep) < 7


def test_mjlab_leaves_its_configuration_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "mjlab", 1)
    cfg = mjlab_cfg(scene=SimpleNamespace(num_envs=5))
    before = copy.deepcopy(cfg)
    assert MjlabEnv(cfg).batch_size == (5,)
    assert MjlabEnv(cfg, num_envs=2, seed=3, max_steps=7).batch_size == (2,)
    assert cfg == before


def test_actions_are_scaled_to_the_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "mjlab", 1)
    env = MjlabEnv(mjlab_cfg(), num_envs=2, action_bound=0.25)
    acted = []
    monkeypatch.setattr(
        Mjlab, "step", lambda self, action: (acted.append(action), self.stepped(action))[1]
    )
    monkeypatch.setattr(
        Mjlab,
        "stepped",
        lambda self, _: (self.groups(), self.reward, self.fell, self.over, {}),
        raising=False,
    )
    env.step(env.reset().set("action", torch.tensor([[1.0], [-3.0]])))
    assert acted[0].tolist() == [[0.25], [-0.25]]


def test_isaac_lab_takes_registered_tasks_of_any_name(monkeypatch: pytest.MonkeyPatch) -> None:
    found = importlib.util.find_spec("torch")
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: found if name == "isaaclab" else None
    )
    monkeypatch.setitem(gymnasium.registry, "Mine-v0", None)
    monkeypatch.setitem(gymnasium.registry, "Isaac-Ant-v0", None)
    assert "Mine-v0" in ISAAC_LAB_TASKS
    assert [*ISAAC_LAB_TASKS] == ["Isaac-Ant-v0"]
    with pytest.raises(ValueError, match="nearest: isaaclab/Isaac-Ant-v0"):
        make_env("isaaclab/Yours-v0")


def test_isaac_lab_begins_no_row_twice() -> None:
    inner = IsaacLab(ROWS)
    env = IsaacLabEnv(inner)
    collected(env)
    # Once at construction, and once for the collector.
    assert inner.begins == 2


def test_isaac_lab_needs_the_last_observation() -> None:
    with pytest.raises(ValueError, match="compute_final_obs=True"):
        IsaacLabEnv(IsaacLab(1, final=False))


def test_rows_of_isaac_lab_that_run_on_are_not_reset_alone() -> None:
    env = IsaacLabEnv(IsaacLab(2))
    data = env.reset()
    data["_reset"] = torch.tensor([[True], [False]])
    with pytest.raises(RuntimeError, match="all together"):
        env.reset(data)


def test_playground_shows_the_critic_a_state_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", jax_on_torch())
    data = JaxSimulatorEnv(PrivilegedTask(), num_envs=2, seed=0).reset()
    assert torch.equal(data["state"], -data["observation"])


def test_jax_draws_starts_anew_when_a_row_has_used_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    env = stand_in(monkeypatch, "jax", 2)
    assert isinstance(env, JaxSimulatorEnv)
    only_first = torch.tensor([[True], [False]])
    data = env.reset()
    begun = [data["observation"][:, 0].tolist()]
    for mask in (only_first, ~only_first, only_first):
        data = env.reset(data.set("_reset", mask))
        begun.append(data["observation"][:, 0].tolist())
    first, second = zip(*begun, strict=True)
    assert [a != b for a, b in itertools.pairwise(first)] == [True, False, True]
    assert [a != b for a, b in itertools.pairwise(second)] == [False, True, False]


class Robot:
    """Go2 that stands still in the air, tilted about its x-axis."""

    def __init__(self, rows: int, tilt: float = 0.0) -> None:
        half = torch.tensor(tilt / 2)
        self.turned = torch.stack([half.cos(), half.sin(), half * 0, half * 0]).expand(rows, 4)
        self.rows, self.joints = rows, torch.zeros(rows, 12)

    def get_joint(self, name: str) -> SimpleNamespace:
        return SimpleNamespace(dofs_idx_local=[6])

    def set_dofs_position(self, x: torch.Tensor, motors: list[int], **rows: torch.Tensor) -> None:
        self.joints = self.joints.clone()
        self.joints[rows.get("envs_idx", slice(None))] = x

    def set_dofs_kp(self, x: list[float], motors: list[int]) -> None: ...

    set_dofs_kv = set_dofs_kp

    def control_dofs_position(self, x: torch.Tensor, motors: list[int]) -> None:
        self.joints = x

    def get_dofs_position(self, motors: list[int]) -> torch.Tensor:
        return self.joints

    def get_dofs_velocity(self, motors: list[int]) -> torch.Tensor:
        return torch.zeros(self.rows, 12)

    def get_quat(self) -> torch.Tensor:
        return self.turned

    def get_vel(self) -> torch.Tensor:
        return torch.tensor([0.5, 0.0, 1.0]).expand(self.rows, 3)

    def get_ang(self) -> torch.Tensor:
        return torch.zeros(self.rows, 3)

    def get_pos(self) -> torch.Tensor:
        return torch.tensor([0.0, 0.0, 0.4]).expand(self.rows, 3)


def go2(monkeypatch: pytest.MonkeyPatch, robot: Robot) -> Go2Env:
    genesis = ModuleType("genesis")
    vars(genesis).update(device=torch.device("cpu"), _initialized=True)
    monkeypatch.setitem(sys.modules, "genesis", genesis)
    scene = SimpleNamespace(
        n_envs=robot.rows, step=lambda: None, reset=lambda *a, **k: None, get_state=lambda: None
    )
    monkeypatch.setattr(
        "torchrl_elegant.envs.batched.genesis._standing_robots", lambda rows: (scene, robot)
    )
    return Go2Env(num_envs=robot.rows, seed=0)


def test_the_robot_ends_its_scene(monkeypatch: pytest.MonkeyPatch) -> None:
    env = go2(monkeypatch, Robot(1))
    ended = []
    env.simulator.destroy = lambda: ended.append(True)
    env.close()
    assert ended == [True]


def test_reward_of_the_robot_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    env = go2(monkeypatch, Robot(2))
    after = env.step(env.reset().set("action", torch.full((2, 12), 0.2)))["next"]
    # Joints follow at once: 12 of 0.1 rad off, an action that changed by 0.2; v_z = 1; z = 0.4.
    hand = 0.02 * (1 + 0.5 - 1.0 - 0.01 * 12 * 0.04 - 0.1 * 12 * 0.1 - 20 * 0.01)
    torch.testing.assert_close(after["reward"], torch.full((2, 1), hand))
    assert not after["done"].any()
    assert after["observation"][0, :9].tolist() == [1.0, 0.0, 2.0, 0.0, 0.0, 0.0, 0.0, 0.0, -1.0]


def test_a_tilted_robot_has_fallen(monkeypatch: pytest.MonkeyPatch) -> None:
    env = go2(monkeypatch, Robot(1, tilt=0.8))
    data = env.reset().set("action", torch.zeros(1, 12))
    down = env.step(data)["next", "observation"][0, 6:9]
    torch.testing.assert_close(down, torch.tensor([0.0, -0.7173561, -0.6967067]))
    assert env.step(data)["next", "terminated"].all()


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("mjlab/Mjlab-Cartpole-Balance", "mjlab"),
        ("isaaclab/Isaac-Ant-v0", "isaaclab"),
        ("genesis/go2", "genesis"),
        ("brax/ant", "brax"),
        ("playground/CheetahRun", "mujoco_playground"),
        ("envpool/CartPole-v1", "envpool"),
    ],
)
def test_a_simulator_that_is_not_installed(
    monkeypatch: pytest.MonkeyPatch, name: str, package: str
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ImportError, match="benchmarks/requirements-") as told:
        make_env(name)
    assert f"`{name}`" in str(told.value)
    assert len(str(told.value).splitlines()) == 1


def test_an_unknown_task_names_the_nearest() -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda _: True)
        with pytest.raises(ValueError, match="the nearest: genesis/go2"):
            make_env("genesis/go1")


def test_a_device_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in(monkeypatch, "mjlab", 1)
    with pytest.raises(ValueError, match="`device` must be one that is there, got `cuda:99`"):
        MjlabEnv(mjlab_cfg(), device="cuda:99")


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"num_envs": 0}, "`num_envs` must be at least 1"),
        ({"max_steps": 0}, "`max_steps` must be None or at least 1"),
        ({"action_bound": 0.0}, "`action_bound` must be above 0"),
    ],
)
def test_bad_numbers(monkeypatch: pytest.MonkeyPatch, wrong: dict[str, float], told: str) -> None:
    stand_in(monkeypatch, "mjlab", 1)
    with pytest.raises(ValueError, match=told):
        MjlabEnv(mjlab_cfg(), **wrong)
