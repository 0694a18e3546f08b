"""What estimators share that work on whole rollouts at once."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

import torch
from tensordict import TensorDictBase
from tensordict.nn import dispatch
from torch import Tensor
from torchrl.objectives.value import ValueEstimatorBase

from torchrl_elegant.modules import StateValue


class WholeRollouts(ValueEstimatorBase):
    """Stands before an estimator of TorchRL's: ``class GAE(WholeRollouts, torchrl_value.GAE)``.

    With a ``StateValue`` network a rollout and its next observations are evaluated in one call.
    With any other network, with ``shifted=True`` or chunks, and where gradients have to pass
    through a rollout, the estimator is TorchRL's.
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
            # TorchRL holds the network out of the graph: there is one only if the rollout has it.
            or (self.differentiable and tensordict.requires_grad)
            or self.skip_existing
            or self.value_chunk_size is not None
            or self.num_chunks is not None
            or self.group_key is not None
        )
        return isinstance(self.value_network, StateValue) and not unusual

    def _values(self, tensordict: TensorDictBase) -> tuple[Tensor, Tensor]:
        """Values before and after each step, ``[*B, T, 1]``, which are written too."""
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
