"""`GenesisEnv`: a scene of Genesis as an environment; `Go2Env`: a quadruped that learns to walk."""

from __future__ import annotations

import importlib
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from torchrl_elegant.envs.batched.rows import present_device
from torchrl_elegant.envs.batched.simulator import (
    Actions,
    SimulatorEnv,
    SimulatorTasks,
    Stepped,
    check_steps,
)


class GenesisEnv(SimulatorEnv):
    """A built scene of Genesis in `num_envs` rows; a task subclasses it.

    A task says what an action does (`_act`), what is seen (`_observe`), what a step is worth
    (`_reward`), when an episode has failed (`_fallen`), and what begins beside the physics
    (`_begin`). Physics are reset row by row (`scene.reset(envs_idx=...)`) to the state that the
    scene was built in, or that `scene.reset(state)` has registered. A fall terminates, `max_steps`
    truncates, each row by a count of its own.

    TorchRL's `GenesisWrapper` never resets the physics, counts steps for all rows together, and
    never terminates.

    The scene belongs to who built it: a task that builds its own destroys it in `_end`.

    Args:
        scene: a scene after `scene.build(n_envs=...)`.
        max_steps: steps after which an episode is truncated; None for no limit.
        seed: of the numbers that the task draws from `self._generator`.
    """

    def __init__(
        self, scene: Any, *, max_steps: int | None = None, seed: int | None = None
    ) -> None:
        check_steps(max_steps)
        super().__init__(num_envs=scene.n_envs, device=_genesis().device)
        self.max_steps, self._scene = max_steps, scene
        self._generator = torch.Generator(self.device)
        self._set_seed(seed)

    def _complete(self, actions: Actions) -> None:
        """Resets all rows and writes the specs; a task calls it at the end of its construction."""
        everywhere = torch.ones(self.num_envs, dtype=torch.bool, device=self.device)
        self._describe(self._restart(everywhere), actions)

    @property
    def simulator(self) -> Any:
        """The scene of Genesis."""
        return self._scene

    @abstractmethod
    def _act(self, action: Tensor) -> None:
        """Gives the scene the action of all rows."""

    @abstractmethod
    def _observe(self) -> Mapping[str, Tensor]:
        """Looks at all rows."""

    @abstractmethod
    def _reward(self, action: Tensor) -> Tensor:
        """Reward `[num_envs]` of the step that was just made."""

    @abstractmethod
    def _fallen(self) -> Tensor:
        """Rows `[num_envs]` that have failed."""

    def _begin(self, rows: Tensor) -> None:
        """Begins what is not physics in the rows at these indices; they are reset already."""

    def _advance(self, action: Tensor) -> Stepped:
        self._act(action)
        self._scene.step()
        reward, fallen = self._reward(action), self._fallen()
        seen = self._observe()
        return Stepped(seen, reward, fallen, torch.zeros_like(fallen))

    def _restart(self, rows: Tensor) -> Mapping[str, Tensor]:
        indices = rows.nonzero().view(-1)
        if len(indices):
            self._scene.reset(envs_idx=indices)
            self._begin(indices)
        return self._observe()

    def _set_seed(self, seed: int | None) -> None:
        if seed is None:
            self._generator.seed()
        else:
            self._generator.manual_seed(seed)


_LEGS = ("FR", "FL", "RR", "RL")
_PARTS = ("hip", "thigh", "calf")
# Angles of a standing robot.
_STANDING = {"hip": 0.0, "thigh": 0.9, "calf": -1.6}
_SECONDS = 0.02


class Go2Env(GenesisEnv):
    r"""Unitree's Go2 learns to walk at a given velocity on a plane.

    The model of the robot comes with Genesis. An action moves the targets of the twelve joints by
    at most `reach` radians from those of the standing robot, 50 times a second. With the velocity
    :math:`v` and the rate of turn :math:`\omega` of the body in its own frame, its height
    :math:`z`, the angles :math:`q` of the joints and the commands :math:`v^*, \omega^*`:

    .. math::
        r = 0.02\, \big( & e^{-4 |v^*_{xy} - v_{xy}|^2} + 0.5\, e^{-4 (\omega^* - \omega_z)^2}
            - v_z^2 - 0.05\, |\omega_{xy}|^2 \\
            & - 0.01\, |a_t - a_{t-1}|^2 - 0.1\, |q - q_{standing}|_1 - 20\, (z - 0.3)^2 \big)

    An episode terminates when the body tilts by more than 45 degrees or sinks below 0.15 m. It is
    truncated after `max_steps` steps. It begins with joints within 0.1 rad of the standing ones.

    The policy sees velocity, rate of turn, the direction of gravity, joint angles, joint speeds and
    the last action, scaled to about 1.

    Args:
        num_envs: rows.
        max_steps: steps after which an episode is truncated; None for no limit.
        command: forward, sideward (m/s) and turning (rad/s) velocity.
        reach: angle by which an action of 1 moves a target.
        device: where it runs; Genesis is started there, once for the process, unless it runs.
        seed: of the starts; None takes one from the operating system.
    """

    def __init__(
        self,
        *,
        num_envs: int = 1,
        max_steps: int | None = 1000,
        command: Sequence[float] = (0.5, 0.0, 0.0),
        reach: float = 0.5,
        device: torch.device | str = "cpu",
        seed: int | None = None,
    ) -> None:
        if len(command) != 3:
            raise ValueError(f"`command` must be three velocities, got `{command}`")
        if num_envs < 1:
            raise ValueError(f"`num_envs` must be at least 1, got `{num_envs}`")
        start_genesis(present_device(device))
        scene, robot = _standing_robots(num_envs)
        super().__init__(scene, max_steps=max_steps, seed=seed)
        self._robot = robot
        names = [f"{leg}_{part}_joint" for leg in _LEGS for part in _PARTS]
        self._motors = [robot.get_joint(name).dofs_idx_local[0] for name in names]
        angles = [_STANDING[part] for _ in _LEGS for part in _PARTS]
        self._angles = torch.tensor(angles, device=self.device)
        robot.set_dofs_kp([20.0] * 12, self._motors)
        robot.set_dofs_kv([0.5] * 12, self._motors)
        robot.set_dofs_position(self._angles.expand(num_envs, 12), self._motors)
        scene.reset(scene.get_state())
        self._command = torch.tensor([*command], dtype=torch.float32, device=self.device)
        self._last = self._before = torch.zeros(num_envs, 12, device=self.device)
        self._reach = reach
        self._complete(Actions.within(12, reach))

    def _end(self) -> None:
        self._scene.destroy()

    def _begin(self, rows: Tensor) -> None:
        shape = len(rows), 12
        drawn = torch.rand(shape, generator=self._generator, device=self.device)
        angles = self._angles + 0.2 * drawn - 0.1
        self._robot.set_dofs_position(angles, self._motors, envs_idx=rows)
        self._last = self._last.index_fill(0, rows, 0.0)

    def _act(self, action: Tensor) -> None:
        self._robot.control_dofs_position(self._angles + action, self._motors)
        self._before, self._last = self._last, action / self._reach

    def _look(self) -> tuple[Tensor, ...]:
        """Velocity, rate of turn and direction of gravity in the body's frame; joint angles."""
        turned = self._robot.get_quat()
        down = torch.zeros(self.num_envs, 3, device=self.device)
        down[:, 2] = -1.0
        in_world = (self._robot.get_vel(), self._robot.get_ang(), down)
        in_body = (_turned_back(turned, vector) for vector in in_world)
        return *in_body, self._robot.get_dofs_position(self._motors) - self._angles

    def _observe(self) -> dict[str, Tensor]:
        velocity, turning, down, angles = self._look()
        speeds = self._robot.get_dofs_velocity(self._motors)
        seen = [2.0 * velocity, 0.25 * turning, down, angles, 0.05 * speeds, self._last]
        return {"observation": torch.cat(seen, -1)}

    def _reward(self, action: Tensor) -> Tensor:
        velocity, turning, _, angles = self._look()
        height = self._robot.get_pos()[:, 2]
        along = (self._command[:2] - velocity[:, :2]).square().sum(-1)
        around = (self._command[2] - turning[:, 2]).square()
        reward = torch.exp(-4.0 * along) + 0.5 * torch.exp(-4.0 * around)
        reward = reward - velocity[:, 2].square() - 0.05 * turning[:, :2].square().sum(-1)
        reward = reward - 0.01 * (self._last - self._before).square().sum(-1)
        reward = reward - 0.1 * angles.abs().sum(-1) - 20.0 * (height - 0.3).square()
        return _SECONDS * reward

    def _fallen(self) -> Tensor:
        _, _, down, _ = self._look()
        return (down[:, 2] > -(0.5**0.5)) | (self._robot.get_pos()[:, 2] < 0.15)


def _turned_back(turned: Tensor, vector: Tensor) -> Tensor:
    """Vectors of the world in the frame of a body whose attitude is a quaternion `[w, x, y, z]`."""
    real, axis = turned[:, :1], -turned[:, 1:]
    twice = 2.0 * torch.linalg.cross(axis, vector)
    return vector + real * twice + torch.linalg.cross(axis, twice)


def start_genesis(device: torch.device) -> None:
    """Starts Genesis on a device, once for the process; refuses another device later."""
    genesis = _genesis()
    if not genesis._initialized:
        backend = genesis.cuda if device.type == "cuda" else genesis.cpu
        genesis.init(backend=backend, logging_level="warning")
    if genesis.device.type != device.type:
        raise ValueError(
            f"`device` must be the {genesis.device} that Genesis runs on in this process, got "
            f"`{device}`; start another process"
        )


def _standing_robots(num_envs: int) -> tuple[Any, Any]:
    """A plane with a robot on it, and that robot, in `num_envs` rows."""
    genesis = _genesis()
    scene = genesis.Scene(
        show_viewer=False,
        sim_options=genesis.options.SimOptions(dt=_SECONDS, substeps=2),
        rigid_options=genesis.options.RigidOptions(enable_joint_limit=True),
    )
    scene.add_entity(genesis.morphs.URDF(file="urdf/plane/plane.urdf", fixed=True))
    body = genesis.morphs.URDF(file="urdf/go2/urdf/go2.urdf", pos=(0.0, 0.0, 0.36))
    robot = scene.add_entity(body)
    scene.build(n_envs=num_envs)
    return scene, robot


GENESIS_TASKS = SimulatorTasks(
    "genesis",
    package="genesis",
    install="pip install genesis-world (benchmarks/requirements-genesis.txt)",
    names=lambda: ["go2"],
    make=lambda name, **kwargs: Go2Env(**kwargs),
)


def _genesis() -> Any:
    return importlib.import_module("genesis")
