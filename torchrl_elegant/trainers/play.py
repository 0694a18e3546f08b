"""Whole episodes of several simulators stepped together."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count as count_from

import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torchrl._utils import logger as torchrl_logger
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_elegant.envs import GymnasiumEnv

# Steps between two looks at whether to stop, and those after which an episode without an end is
# told of.
_LOOK, _LONG = 200, 100_000


class PlayStopped(Exception):
    """Episodes were left before their end, because somebody asked to stop."""


def play(
    env: GymnasiumEnv,
    policy: TensorDictModuleBase,
    episodes: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> list[tuple[float, int]]:
    """Return and length of ``episodes`` whole episodes, all with the policy's best action.

    ``should_stop`` is asked now and then; ``PlayStopped`` is raised where it says so.

    How many each environment plays is settled beforehand. Were the first to finish counted, short
    episodes would count too often.

    >>> from torchrl_elegant.envs import make_env
    >>> from torchrl_elegant.modules import build_stochastic_actor
    >>> env = make_env("Pendulum-v1", 2, env_kwargs={"max_episode_steps": 7})
    >>> [length for _, length in play(env, build_stochastic_actor(env), 3)]
    [7, 7, 7]
    """
    count = env.num_envs
    left = [episodes // count + (row < episodes % count) for row in range(count)]
    active = [row for row in range(count) if left[row]]
    choose = _chooser(env, policy)
    length, total = env.next_arrays["step_count"], env.next_arrays["episode_reward"]
    ended: list[tuple[float, int]] = []
    env.reset_numpy(active)
    with torch.inference_mode(), set_exploration_type(ExplorationType.DETERMINISTIC):
        for step in count_from(1):
            if not active:
                break
            if step % _LOOK == 0 and should_stop():
                raise PlayStopped
            if step % _LONG == 0 and not ended:
                torchrl_logger.warning(
                    "evaluation has not seen an episode end in %d steps: `env` must end its "
                    "episodes, for example with env_kwargs.max_episode_steps=1000",
                    step,
                )
            if not env.step_numpy(choose().cpu().numpy(), active):
                continue
            for row in set(env.done_rows()).intersection(active):
                ended.append((float(total.reshape(-1)[row]), int(length.reshape(-1)[row])))
                left[row] -= 1
                if left[row]:
                    env.reset_numpy([row])
            active = [row for row in active if left[row]]
    return ended


def _chooser(env: GymnasiumEnv, policy: TensorDictModuleBase) -> Callable[[], Tensor]:
    """A function from the present observations to actions."""
    device = next((param.device for param in policy.parameters()), torch.device("cpu"))
    # Views of the arrays that the simulators write.
    seen = {key: torch.from_numpy(env.root_arrays[key]) for key in env.root_arrays}
    if hasattr(policy, "act") and policy.out_keys[0] == "action":
        inputs = [seen[key] for key in policy.in_keys]

        def act() -> Tensor:
            result = policy.act(*(value.to(device) for value in inputs))
            return result[0] if isinstance(result, tuple) else result

        return act

    def call() -> Tensor:
        # Copies: a policy may change what it is given.
        copies = {key: value.to(device, copy=True) for key, value in seen.items()}
        return policy(TensorDict(copies, env.batch_size)).get("action")

    return call
