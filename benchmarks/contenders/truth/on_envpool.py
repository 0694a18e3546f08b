"""Falls and time limits of envpool's CartPole, whose next state follows from the equations."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor

from contenders.truth.schedule import ROWS, STEPS, Truth, played
from torchrl_elegant.collectors import SyncCollector

# Pushed to one side all the time the pole falls in 8 to 10 steps.
_LIMIT = 9


class Pushing:
    """Policy that pushes to the right."""

    def __init__(self, env: Any, key: Any) -> None:
        (self._action,) = env.action_keys
        spec = env.full_action_spec[self._action]
        self._right = spec.encode(1) if spec.shape[-1:] == (2,) else torch.ones(ROWS, dtype=int)
        self._right = self._right.expand(spec.shape)

    def __call__(self, tensordict: TensorDictBase) -> TensorDictBase:
        return tensordict.set(self._action, self._right.clone())


def cartpole_truth(seen: Tensor, action: Tensor) -> Truth:
    """Next state by Euler's rule, as in Gymnasium's CartPole."""
    x, speed, angle, turning = seen.double().unbind(-1)
    pushed = (10.0 + 0.05 * turning**2 * angle.sin()) / 1.1
    sway = (9.8 * angle.sin() - angle.cos() * pushed) / (
        0.5 * (4.0 / 3.0 - 0.1 * angle.cos() ** 2 / 1.1)
    )
    gained = pushed - 0.05 * sway * angle.cos() / 1.1
    after = torch.stack(
        [x + 0.02 * speed, speed + 0.02 * gained, angle + 0.02 * turning, turning + 0.02 * sway], -1
    ).float()
    fell = (after[..., 0].abs() > 2.4) | (after[..., 2].abs() > 0.20943951)
    over = torch.zeros_like(fell)
    for row in range(ROWS):
        made = 0
        for t in range(STEPS):
            made += 1
            over[row, t] = made >= _LIMIT
            if fell[row, t] or over[row, t]:
                made = 0
    return Truth(after, torch.ones_like(fell, dtype=torch.float32), fell, over)


def envpool_rows() -> dict[str, Any]:
    """Ours and TorchRL's, over CartPole."""
    from torchrl.envs import MultiThreadedEnv

    from torchrl_elegant.envs import EnvpoolEnv

    judged: dict[str, Any] = {"policy": Pushing, "truth": cartpole_truth}
    ours = EnvpoolEnv("CartPole-v1", num_envs=ROWS, max_steps=_LIMIT, num_threads=1, seed=0)
    rows = {"ours": played(ours, collector=SyncCollector, **judged)}
    limit = {"max_episode_steps": _LIMIT, "seed": 0}
    try:
        theirs = MultiThreadedEnv(ROWS, "CartPole-v1", create_env_kwargs=limit)
        rows["torchrl"] = played(theirs, **judged)
    except ImportError as error:
        rows["torchrl"] = {"failed": f"does not start: {error}"}
    return rows
