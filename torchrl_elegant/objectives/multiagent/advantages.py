"""Advantages of each agent in a team, over whole rollouts."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import dispatch
from torch import Tensor
from torchrl.modules import ValueNorm
from torchrl.objectives.value import MultiAgentGAE

from torchrl_elegant.data.running_statistics import Gather, alone
from torchrl_elegant.modules import StateValue
from torchrl_elegant.objectives.on_policy.gae import GAE, WholeRollouts
from torchrl_elegant.objectives.on_policy.vtrace import VTrace

if TYPE_CHECKING:
    from typing_extensions import Self


class TeamRollouts(WholeRollouts):
    """Stands before an estimator: ``class TeamGAE(TeamRollouts, GAE)``.

    Values are ``[*B, T, agents, 1]``. Reward, done and terminated are those of each agent, or the
    team's ``[*B, T, 1]``. Any network is called once for a rollout and its next observations.

    With ``value_norm`` the network predicts normalized values. Advantages are taken of values in
    units of the reward. Then the statistics take in the targets, in training mode alone, and the
    rollout gets the targets in the network's new units: they stay the same until its last epoch.
    """

    def __init__(self, *, value_norm: ValueNorm | None = None, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        # Not registered: it is the loss's.
        self.__dict__["value_norm"] = value_norm
        self.gather: Gather = alone

    @classmethod
    def for_loss(cls, loss_module: Any, **hyperparams: Any) -> Self:
        made = super().for_loss(loss_module, value_norm=loss_module.value_norm, **hyperparams)
        made.gather = loss_module.gather
        return made

    @dispatch
    def forward(self, tensordict: TensorDictBase, *, params: Any = None, **kwargs: Any) -> Any:
        if kwargs.get("target_params") is not None or not self._is_direct(tensordict):
            if self.value_norm is not None:
                raise ValueError(
                    "`value_norm` must be None where TorchRL's own code makes the estimate, got "
                    f"`{type(self.value_norm).__name__}`; leave out shifted, chunks, groups, "
                    "target parameters and gradients through a rollout, and give V-trace networks "
                    "of this package"
                )
            return super().forward(tensordict, params=params, **kwargs)
        swapped = nullcontext() if params is None else params.to_module(self.value_network)
        time = self._get_time_dim(kwargs.get("time_dim"), tensordict)
        with torch.no_grad(), swapped:
            return self._estimate(tensordict, time)

    def _is_direct(self, tensordict: TensorDictBase) -> bool:
        return not self._is_unusual(tensordict)

    def _estimate(self, tensordict: TensorDictBase, dim: int) -> TensorDictBase:
        super()._estimate(tensordict, dim)  # type: ignore[safe-super]
        norm, key = self.value_norm, self.tensor_keys.value_target
        if norm is None:
            return tensordict
        target = tensordict.get(key)
        if self.training:
            norm.update(torch.cat([part.to(target) for part in self.gather(target)]))
        return tensordict.set(key, norm.normalize(target))

    def _values(self, tensordict: TensorDictBase) -> tuple[Tensor, Tensor]:
        value, next_value = super()._values(tensordict)
        norm = self.value_norm
        return (
            (value, next_value)
            if norm is None
            else (norm.denormalize(value), norm.denormalize(next_value))
        )

    def _judged(self, observation: Sequence[Tensor]) -> Tensor:
        network = self.value_network
        if isinstance(network, StateValue):
            return network.values(observation)
        data = TensorDict({}, [len(observation[0])])
        for key, entry in zip(network.in_keys, observation, strict=True):
            data.set(key, entry)
        return network(data).get(self.tensor_keys.value)

    def _steps(
        self, tensordict: TensorDictBase, value: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        reward, terminated, done, gamma = super()._steps(tensordict, value)
        reward, terminated, done = (
            x.unsqueeze(-2).expand_as(value) if x.ndim == value.ndim - 1 else x
            for x in (reward, terminated, done)
        )
        return reward, terminated, done, gamma

    def _discount(self, tensordict: TensorDictBase, reward: Tensor) -> Tensor:
        gamma = self.gamma.to(reward.device)
        steps = tensordict.get(self.tensor_keys.steps_to_next_obs, None)
        return gamma if steps is None else gamma ** steps.reshape(*tensordict.shape, 1, 1)


class TeamGAE(TeamRollouts, GAE, MultiAgentGAE):
    """TorchRL's ``MultiAgentGAE``, faster, and of denormalized values (see ``TeamRollouts``).

    >>> import torch
    >>> from tensordict import TensorDict
    >>> critic = StateValue(observation={"obs": (3,)})
    >>> estimate = TeamGAE(gamma=0.99, lmbda=0.95, value_network=critic)
    >>> after = {"obs": torch.zeros(2, 5, 4, 3), "reward": torch.ones(2, 5, 1)}
    >>> after |= {name: torch.zeros(2, 5, 1, dtype=torch.bool) for name in ("done", "terminated")}
    >>> batch = TensorDict({"obs": torch.zeros(2, 5, 4, 3), "next": after}, [2, 5])
    >>> estimate(batch)["advantage"].shape
    torch.Size([2, 5, 4, 1])
    """

    def _is_unusual(self, tensordict: TensorDictBase) -> bool:
        return self.agent_dim != -2 or super()._is_unusual(tensordict)


class TeamVTrace(TeamRollouts, VTrace):
    """``VTrace`` of each agent, whose ratio is that of its own action (see ``TeamRollouts``)."""

    def _is_direct(self, tensordict: TensorDictBase) -> bool:
        return VTrace._is_direct(self, tensordict)
