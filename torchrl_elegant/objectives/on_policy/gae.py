"""Generalized advantage estimation over whole rollouts."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import dispatch
from torch import Tensor
from torchrl.objectives import value as torchrl_value
from torchrl.objectives.value import ValueEstimatorBase

from torchrl_elegant.functional import gae, junk_of
from torchrl_elegant.modules import StateValue


class WholeRollouts(ValueEstimatorBase):
    """Stands before an estimator of TorchRL's: ``class GAE(WholeRollouts, torchrl_value.GAE)``.

    With a ``StateValue`` network, a rollout and its next observations are evaluated in one call.
    With other networks, with ``shifted=True`` or chunks, and where gradients pass through a
    rollout, the estimator is TorchRL's.
    """

    @abstractmethod
    def _estimate(self, tensordict: TensorDictBase, dim: int) -> TensorDictBase:
        """Write advantages and value targets, with time at ``dim``."""

    @dispatch
    def forward(self, tensordict: TensorDictBase, **kwargs: Any) -> TensorDictBase:
        if kwargs.get("params") is not None or not self._is_direct(tensordict):
            return super().forward(tensordict, **kwargs)
        with torch.no_grad():
            return self._estimate(
                tensordict, self._get_time_dim(kwargs.get("time_dim"), tensordict)
            )

    def _is_direct(self, tensordict: TensorDictBase) -> bool:
        return isinstance(self.value_network, StateValue) and not self._is_unusual(tensordict)

    def _is_unusual(self, tensordict: TensorDictBase) -> bool:
        """True for options and rollouts that TorchRL's own code covers alone."""
        return bool(
            self.shifted
            # TorchRL keeps the network out of the graph: gradients can come from the rollout alone.
            or (self.differentiable and tensordict.requires_grad)
            or self.skip_existing
            or self.value_chunk_size is not None
            or self.num_chunks is not None
            or self.group_key is not None
        )

    def _steps(
        self, tensordict: TensorDictBase, value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Reward, terminated and done in the shape of values, and the discount."""
        keys, after = self.tensor_keys, tensordict.get("next")
        reward, done = after.get(keys.reward), after.get(keys.done)
        gamma = self._discount(tensordict, reward)
        return reward, after.get(keys.terminated, done), done, gamma

    def _values(self, tensordict: TensorDictBase) -> tuple[Tensor, Tensor]:
        """Values before and after each step, ``[*B, T, 1]``; writes them into ``tensordict``."""
        key, network = self.tensor_keys.value, self.value_network
        after = tensordict.get("next")
        pairs = [torch.stack([tensordict.get(k), after.get(k)]) for k in network.in_keys]
        value, next_value = self._judged(pairs)
        tensordict.set(key, value)
        after.set(key, next_value)
        return value, next_value

    def _judged(self, observation: Sequence[Tensor]) -> Tensor:
        """Values of observations in the order of the network's ``in_keys``."""
        return self.value_network.values(observation)

    def _discount(self, tensordict: TensorDictBase, reward: Tensor) -> Tensor:
        gamma = self.gamma.to(reward.device)
        steps = tensordict.get(self.tensor_keys.steps_to_next_obs, None)
        return gamma if steps is None else gamma ** steps.view_as(reward)


class GAE(WholeRollouts, torchrl_value.GAE):
    """TorchRL's ``GAE``, with the same arguments, keys and results, faster.

    With a ``StateValue`` network it evaluates a rollout and its next observations in one call, and
    sums advantages by doubling instead of step by step (``benchmarks/ppo.py`` has the measured
    ratio). With other networks, with ``shifted=True`` or chunks, and where gradients pass through a
    rollout, it is TorchRL's.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> from torchrl_elegant.modules import StateValue
    >>> estimate = GAE(gamma=0.99, lmbda=0.95, value_network=StateValue(observation={"obs": (3,)}))
    >>> after = {"obs": torch.zeros(2, 5, 3), "reward": torch.ones(2, 5, 1)}
    >>> after |= {name: torch.zeros(2, 5, 1, dtype=torch.bool) for name in ("done", "terminated")}
    >>> batch = TensorDict({"obs": torch.zeros(2, 5, 3), "next": after}, [2, 5])
    >>> estimate(batch)["advantage"].shape
    torch.Size([2, 5, 1])
    """

    def _is_unusual(self, tensordict: TensorDictBase) -> bool:
        return self.auto_reset_env or super()._is_unusual(tensordict)

    def _estimate(self, tensordict: TensorDictBase, dim: int) -> TensorDictBase:
        keys = self.tensor_keys
        value, next_value = self._values(tensordict)
        reward, terminated, done, gamma = self._steps(tensordict, value)
        advantage = gae(
            reward,
            value,
            next_value,
            terminated,
            done,
            gamma=gamma,
            lmbda=self.lmbda.to(reward.device),
            dim=dim,
        )
        target = advantage + value
        if self.average_gae and advantage.numel() > 1:
            advantage = standardized_without(advantage, junk_of(tensordict), floor=1e-4)
        tensordict.set(keys.advantage, advantage)
        return tensordict.set(keys.value_target, target)


def standardized_without(advantage: Tensor, junk: Tensor | None, *, floor: float) -> Tensor:
    """Advantages of mean 0 and spread 1 over all steps but junk; ``floor`` is of the spread.

    >>> import torch
    >>> steps, junk = torch.tensor([[1.0], [9.0], [3.0]]), torch.tensor([False, True, False])
    >>> found = standardized_without(steps, junk, floor=1e-4)
    >>> [round(value, 3) for value in found[~junk, 0].tolist()]
    [-0.707, 0.707]
    """
    if junk is None:
        return (advantage - advantage.mean()) / advantage.std().clamp_min(floor)
    left_out = junk.view(*junk.shape, *[1] * (advantage.ndim - junk.ndim)).expand_as(advantage)
    count = (~left_out).sum()
    apart = advantage - advantage.masked_fill(left_out, 0.0).sum() / count
    squares = apart.masked_fill(left_out, 0.0).square().sum()
    return apart / (squares / (count - 1)).sqrt().clamp_min(floor)
