"""The scripted task in Genesis: a box that glides, so that its place tells the steps."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from contenders.truth.schedule import LIMIT, ROWS, played
from torchrl_elegant.collectors import SyncCollector

_SECONDS, _SPEED = 0.02, 5.0


def gliding() -> tuple[Any, Any]:
    """A box without gravity, which moves 0.1 m a step from the state that a reset restores."""
    import genesis

    scene = genesis.Scene(
        show_viewer=False,
        sim_options=genesis.options.SimOptions(dt=_SECONDS, gravity=(0.0, 0.0, 0.0)),
    )
    box = scene.add_entity(genesis.morphs.Box(size=(0.1, 0.1, 0.1), pos=(0.0, 0.0, 1.0)))
    scene.build(n_envs=ROWS)
    velocity = torch.zeros(ROWS, 6, device=genesis.device)
    velocity[:, 0] = _SPEED
    box.set_dofs_velocity(velocity)
    scene.reset(scene.get_state())
    return scene, box


def look(box: Any) -> Tensor:
    """Observation of the scripted task; nothing is drawn at the start."""
    steps = (box.get_pos()[:, 0] / (_SPEED * _SECONDS)).round()
    return torch.stack([torch.zeros_like(steps), steps], -1)


def genesis_rows() -> dict[str, Any]:
    """Ours and TorchRL's, over the same scene."""
    from torchrl.envs import GenesisWrapper

    from torchrl_elegant.envs.batched import Actions, GenesisEnv
    from torchrl_elegant.envs.batched.genesis import start_genesis

    start_genesis(torch.device("cpu"))

    class Ours(GenesisEnv):
        def __init__(self) -> None:
            scene, self_box = gliding()
            super().__init__(scene, max_steps=LIMIT, seed=0)
            self._box, self._fell = self_box, torch.zeros(ROWS, dtype=torch.bool)
            self._complete(Actions.within(6, 1.0))

        def _act(self, action: Tensor) -> None:
            self._fell = action[:, 0] > 0.5

        def _observe(self) -> dict[str, Tensor]:
            return {"observation": look(self._box)}

        def _reward(self, action: Tensor) -> Tensor:
            return 1 + look(self._box)[:, 1] + 10.0 * self._fell

        def _fallen(self) -> Tensor:
            return self._fell

    class Theirs(GenesisWrapper):
        def _make_obs(self) -> dict[str, Tensor]:
            return {"observation": look(self._scene.entities[0])}

        def _apply_action(self, action: Tensor) -> None:
            self._fell = action[:, 0] > 0.5

        def _compute_reward(self, action: Tensor) -> Tensor:
            return 1 + look(self._scene.entities[0])[:, 1] + 10.0 * self._fell

    return {
        "ours": played(Ours(), collector=SyncCollector),
        "torchrl": played(Theirs(gliding()[0], max_steps=LIMIT)),
    }
