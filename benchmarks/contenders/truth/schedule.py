"""The schedule of falls and time limits, the task that plays it, and the judge of what came out.

Every scripted task is the same. It shows two numbers: one that was drawn at the start of the
episode, and the steps made since. An action above 0.5 is a fall: the episode terminates. At `LIMIT`
steps it is truncated. The reward is 1 + steps, and 10 more for a fall. So a transition tells by
itself what must have come out of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from tensordict import NestedKey, TensorDictBase
from torch import Tensor
from torchrl.collectors import Collector
from torchrl.envs import EnvBase

ROWS, STEPS, LIMIT, GAMMA = 6, 40, 5, 0.5
PARTS = ("reward", "terminated", "truncated", "next observation", "value target")


class Truth(NamedTuple):
    """Right outcome of transitions, `[rows, steps]`; `seen` is `[rows, steps, n]`."""

    seen: Tensor
    reward: Tensor
    terminated: Tensor
    truncated: Tensor


def falls(seen: Tensor) -> Tensor:
    """Falls by schedule: rows 0 and 3 never, 1 and 4 at step 3, 2 and 5 at the time limit."""
    row = torch.arange(len(seen), device=seen.device) % 3
    step = seen[..., 1].round()
    return ((row == 1) & (step == 2)) | ((row == 2) & (step == LIMIT - 1))


def scripted_truth(seen: Tensor, action: Tensor) -> Truth:
    """Outcome of the scripted task from what was seen and done, by its definition alone."""
    fell = action[..., 0] > 0.5
    step = seen[..., 1] + 1
    after = torch.stack([seen[..., 0], step], -1)
    return Truth(after, 1 + step + 10.0 * fell, fell, step >= LIMIT)


def value(seen: Tensor) -> Tensor:
    """Value function whose targets are compared."""
    return 5.0 + 2.0 * seen.sum(-1)


class Scripted:
    """Policy that falls by schedule; it may be asked at any time, for it looks at the step."""

    def __init__(self, env: EnvBase, key: NestedKey) -> None:
        self._key, (self._action,) = key, env.action_keys
        self._size = env.full_action_spec[self._action].shape

    def __call__(self, tensordict: TensorDictBase) -> TensorDictBase:
        seen = tensordict.get(self._key)
        fall = falls(seen.reshape(len(seen), -1)).to(torch.float32) * 0.9
        fall = fall.view(-1, *[1] * (len(self._size) - 1)).expand(self._size)
        return tensordict.set(self._action, fall.clone())


def played(
    env: EnvBase,
    *,
    observation: NestedKey = "observation",
    group: str | None = None,
    collector: Callable[..., Any] = Collector,
    policy: Callable[..., Any] = Scripted,
    truth: Callable[..., Truth] = scripted_truth,
) -> dict[str, Any]:
    """Collects one batch and judges it; a failure is told in a line."""
    key = observation if group is None else (group, observation)
    action = "action" if group is None else (group, "action")
    try:
        one = collector(
            env, policy(env, key), frames_per_batch=ROWS * STEPS, total_frames=ROWS * STEPS
        )
        batch = next(iter(one))
        shape = (ROWS, STEPS)
        parts = [batch.get(key), batch.get(action), batch.get(("next", *_path(key)))]
        seen, chosen, after = (x.reshape(*shape, -1) for x in parts)
        reward = ("reward",) if group is None else (group, "reward")
        told = [batch.get(("next", *reward)).reshape(shape)]
        names = ("terminated", "truncated")
        told += [batch.get(("next", name), torch.zeros(shape)).reshape(shape) for name in names]
        # Flagged transitions are no data: they lead across a reset.
        valid = batch.get(("collector", "mask"), torch.ones(shape, dtype=torch.bool)).reshape(shape)
        judged = judge(truth(seen, chosen), seen, Truth(after, *told), valid)
        one.shutdown(close_env=False)
        return judged
    except Exception as error:
        line = (str(error).splitlines() or [""])[0]
        return {"failed": f"{type(error).__name__}: {line[:160]}"}


def _path(key: NestedKey) -> tuple[str, ...]:
    return (key,) if isinstance(key, str) else key


def judge(true: Truth, seen: Tensor, told: Truth, valid: Tensor) -> dict[str, Any]:
    """Share of valid transitions that are right in each part, and what ended."""
    terminated, truncated = (x.to(torch.bool) for x in told[2:])
    right = [
        (true.reward - told.reward).abs() < 1e-4,
        true.terminated == terminated,
        true.truncated == truncated,
        ((true.seen - told.seen).abs() < 1e-4).all(-1),
        (target(true) - _target(seen, told)).abs() < 1e-3,
    ]
    shares = {name: x[valid].float().mean().item() for name, x in zip(PARTS, right, strict=True)}
    both = int((true.terminated & true.truncated)[valid].sum())
    return {
        **shares,
        "falls": int(true.terminated[valid].sum()) - both,
        "time limits": int(true.truncated[valid].sum()) - both,
        "both": both,
    }


def target(true: Truth) -> Tensor:
    """Right value target: the value of the true next observation, unless the episode fell."""
    return true.reward + GAMMA * value(true.seen) * ~true.terminated


def _target(seen: Tensor, told: Truth) -> Tensor:
    # TorchRL's estimators put the observation before the step where the next one is NaN.
    after = torch.where(told.seen.isnan(), seen, told.seen)
    return told.reward + GAMMA * value(after) * ~told.terminated.to(torch.bool)


def rsl_rl_share(falling: Sequence[int] = (2, LIMIT - 1)) -> float:
    """Share of targets of rsl_rl's rule that are right, over true episodes.

    rsl_rl adds gamma V(s_t) to the reward at each time-out, and cuts the return at each end.
    """
    row = torch.arange(ROWS).view(-1, 1) % 3
    # A fall at the third step begins a new episode.
    lengths = torch.where(row == 1, falling[0] + 1, LIMIT)
    steps = torch.arange(STEPS).expand(ROWS, STEPS) % lengths
    seen = torch.stack([torch.zeros(ROWS, STEPS), steps.float()], -1)
    fell = ((row == 1) & (steps == falling[0])) | ((row == 2) & (steps == falling[1]))
    true = scripted_truth(seen, fell.float().unsqueeze(-1))
    done = true.terminated | true.truncated
    theirs = true.reward + GAMMA * torch.where(done, value(seen) * true.truncated, value(true.seen))
    return ((theirs - target(true)).abs() < 1e-3).float().mean().item()
