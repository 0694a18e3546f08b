"""What slices of trajectories hold for a loss over them."""

from __future__ import annotations

from typing import Literal

from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor

from torchrl_elegant.functional import bellman_target
from torchrl_elegant.objectives.keys import HamiltonianKeys

Baseline = Literal["mean", "value", "zero"]


def slice_rewards(
    slices: TensorDictBase, *, keys: HamiltonianKeys, gamma: float, baseline: Baseline
) -> Tensor:
    """The rewards of slices, ``[L, K]``; ``r + gamma V(s') - V(s)`` for the baseline ``"value"``.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> after = {"reward": torch.ones(1, 1, 1), "state_value": torch.full((1, 1, 1), 4.0)}
    >>> after["terminated"] = torch.zeros(1, 1, 1, dtype=torch.bool)
    >>> slices = TensorDict({"state_value": torch.full((1, 1, 1), 2.0), "next": after}, [1, 1])
    >>> slice_rewards(slices, keys=HamiltonianKeys(), gamma=0.5, baseline="value").item()
    1.0
    """
    after = slices.get("next")
    reward = after.get(keys.reward)
    if baseline == "value":
        require_values(slices, keys.value)
        next_value, terminated = after.get(keys.value), after.get(keys.terminated)
        reward = bellman_target(reward, terminated, next_value, gamma) - slices.get(keys.value)
    return reward.squeeze(-1)


def require_values(steps: TensorDictBase, key: NestedKey) -> None:
    """Refuse steps without the values that rewards are to be measured against."""
    if steps.get(key, None) is None or steps.get(("next", key), None) is None:
        raise KeyError(
            f"slices must hold `{key}`, in `next` too, for baseline='value'; have a value "
            "estimator write them, or take baseline='mean'"
        )


def as_slices(tensordict: TensorDictBase, done_key: NestedKey) -> TensorDictBase:
    """The same with the shape ``[L, K]``, which single tensors do not tell.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> as_slices(TensorDict({"next": {"done": torch.ones(5, 3, 1)}}, []), "done").shape
    torch.Size([5, 3])
    """
    shape = tensordict.get(("next", done_key)).shape[:-1]
    if len(shape) != 2:
        raise ValueError(
            f"slices must have the shape [slices, steps], got `{list(shape)}`; reshape what a "
            "SliceSampler gives"
        )
    if tensordict.shape != shape:
        tensordict = tensordict.copy()
        tensordict.batch_size = shape
    return tensordict
