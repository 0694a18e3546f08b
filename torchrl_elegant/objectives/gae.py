"""Generalised advantage estimation over whole rollouts at once."""

from __future__ import annotations

from tensordict import TensorDictBase
from torchrl.objectives import value as torchrl_value

from torchrl_elegant.functional import gae
from torchrl_elegant.objectives.whole_rollouts import WholeRollouts


class GAE(WholeRollouts, torchrl_value.GAE):
    """TorchRL's ``GAE``, with the same arguments, keys and results, for less.

    With a ``StateValue`` network it evaluates a rollout and its next observations in one call, and
    sums advantages by doubling instead of step by step: measured in ``benchmarks/ppo.py``. With any
    other network, with ``shifted=True`` or chunks, and where gradients have to pass through a
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
