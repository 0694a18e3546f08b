"""Generalized advantage estimation over whole rollouts."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import dispatch
from torch import Tensor
from torchrl.objectives import value as torchrl_value
from torchrl.objectives.value import ValueEstimatorBase

from torchrl_elegant.functional import gae
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
        unusual = (
            self.shifted
            # TorchRL keeps the network out of the graph: gradients can come from the rollout alone.
            or (self.differentiable and tensordict.requires_grad)
            or self.skip_existing
            or self.value_chunk_size is not None
            or self.num_chunks is not None
            or self.group_key is not None
        )
        return isinstance(self.value_network, StateValue) and not unusual

    def _values(self, tensordict: TensorDictBase) -> tuple[Tensor, Tensor]:
        """Values before and after each step, ``[*B, T, 1]``; writes them into ``tensordict``."""
        keys, network = self.tensor_keys, self.value_network
        after = tensordict.get("next")
        pairs = [torch.stack([tensordict.get(key), after.get(key)]) for key in network.in_keys]
        value, next_value = network.values(pairs)
        tensordict.set(keys.value, value)
        after.set(keys.value, next_value)
        return value, next_value

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

    def _is_direct(self, tensordict: TensorDictBase) -> bool:
        return not self.auto_reset_env and super()._is_direct(tensordict)

    def _estimate(self, tensordict: TensorDictBase, dim: int) -> TensorDictBase:
        keys, after = self.tensor_keys, tensordict.get("next")
        value, next_value = self._values(tensordict)
        reward, done = after.get(keys.reward), after.get(keys.done)
        advantage = gae(
            reward,
            value,
            next_value,
            after.get(keys.terminated, done),
            done,
            gamma=self._discount(tensordict, reward),
            lmbda=self.lmbda.to(reward.device),
            dim=dim,
        )
        target = advantage + value
        if self.average_gae and advantage.numel() > 1:
            advantage = self._normalize_advantage(advantage)
        tensordict.set(keys.advantage, advantage)
        return tensordict.set(keys.value_target, target)
