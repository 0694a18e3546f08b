"""V-trace over whole rollouts: advantages from the steps of an older policy."""

from __future__ import annotations

from typing import Any

from tensordict import TensorDictBase
from torch import Tensor
from torchrl.objectives import LossModule
from torchrl.objectives import value as torchrl_value

from torchrl_elegant.functional import junk_of, vtrace
from torchrl_elegant.modules import StochasticActor
from torchrl_elegant.objectives.on_policy.gae import WholeRollouts, standardized_without


class VTrace(WholeRollouts, torchrl_value.VTrace):
    """TorchRL's ``VTrace`` (Espeholt et al. 2018, arXiv:1802.01561) with two more options.

    It differs by intent in this: the ratio pi/mu is that of the stored actions. TorchRL 0.14.1
    draws new ones from pi and compares their probabilities with those that mu gave to the stored
    ones. Sums are computed by doubling. Over networks other than a ``StochasticActor`` and a
    ``StateValue``, and with options that the short way does not cover, it is TorchRL's.

    Args:
        lmbda: lambda of the traces, inside c as in remark 2; 1 is TorchRL's. Below 1 advantages
            are GAE's where pi is mu, which the paper's are not; see ``functional.vtrace``.
        weighted: True multiplies advantages by rho, as a policy gradient needs and TorchRL does; a
            surrogate with its own pi/mu, such as PPO's, must have False.
        kwargs: as TorchRL.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> from torchrl_elegant.modules import GaussianActor, StateValue
    >>> import torch
    >>> shapes = {"obs": (3,)}
    >>> actor = GaussianActor(observation=shapes, action_shape=(1,))
    >>> critic = StateValue(observation=shapes)
    >>> estimate = VTrace(gamma=0.99, actor_network=actor, value_network=critic)
    >>> after = {"obs": torch.zeros(2, 5, 3), "reward": torch.ones(2, 5, 1)}
    >>> after |= {name: torch.zeros(2, 5, 1, dtype=torch.bool) for name in ("done", "terminated")}
    >>> batch = TensorDict({"obs": torch.zeros(2, 5, 3), "next": after}, [2, 5])
    >>> estimate(actor(batch).detach())["advantage"].shape
    torch.Size([2, 5, 1])
    """

    def __init__(self, *, lmbda: float = 1.0, weighted: bool = True, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        if not 0.0 <= lmbda <= 1.0:
            raise ValueError(f"`lmbda` must lie in [0, 1], got `{lmbda}`")
        self.lmbda, self.weighted = lmbda, weighted

    @classmethod
    def for_loss(cls, loss_module: LossModule, **hyperparams: Any) -> VTrace:
        if not isinstance(loss_module.actor_network, StochasticActor):
            return super().for_loss(loss_module, **hyperparams)
        networks = {
            "actor_network": loss_module.actor_network,
            "value_network": loss_module.critic_network,
        }
        return cls(**{**networks, **hyperparams})

    def _is_direct(self, tensordict: TensorDictBase) -> bool:
        ours = isinstance(self.actor_network, StochasticActor)
        return ours and super()._is_direct(tensordict)

    def _estimate(self, tensordict: TensorDictBase, dim: int) -> TensorDictBase:
        keys = self.tensor_keys
        value, next_value = self._values(tensordict)
        reward, terminated, done, gamma = self._steps(tensordict, value)
        advantage, target, weight = vtrace(
            self._log_ratio(tensordict).view_as(value),
            reward,
            value,
            next_value,
            terminated,
            done,
            gamma=gamma,
            lmbda=self.lmbda,
            rho_max=self.rho_thresh.to(reward.device),
            c_max=self.c_thresh.to(reward.device),
            dim=dim,
        )
        advantage = weight * advantage if self.weighted else advantage
        if self.average_adv and advantage.numel() > 1:
            # TorchRL's floor
            advantage = standardized_without(advantage, junk_of(tensordict), floor=1e-5)
        tensordict.set(keys.advantage, advantage)
        return tensordict.set(keys.value_target, target)

    def _log_ratio(self, tensordict: TensorDictBase) -> Tensor:
        actor = self.actor_network
        head = actor.head([tensordict.get(key) for key in actor.in_keys])
        (action,) = actor.dist_sample_keys
        drawn = tensordict.get(self.tensor_keys.sample_log_prob)
        return head.log_prob(tensordict.get(action)) - drawn  # [*B, T]
