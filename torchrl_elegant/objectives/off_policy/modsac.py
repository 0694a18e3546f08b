"""ModSAC: SAC with many critics and an actor that waits for them."""

from __future__ import annotations

from typing import Any, Literal

import torch
from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from torch import Tensor
from torch.nn import functional as F

from torchrl_elegant.modules import SquashedGaussianActor
from torchrl_elegant.objectives.off_policy.sac import SACLoss


class ModSACLoss(SACLoss):
    r"""SAC as ElegantRL's ModSAC has it.

    It differs from ``SACLoss`` in this:

    - the actor maximizes the mean of the ensemble (``actor_q="mean"``); the target stays its
      minimum;
    - the output has ``critic_error``, the critics' squared error in units of the targets' running
      variance, so that it means the same at any reward scale:

      .. math:: e = \frac{1}{N B} \sum_{i, b} \frac{(Q_i(s_b, a_b) - y_b)^2}{\mathrm{Var}[y]}

      A learner's ``CriticTrust`` reads it and decides when the actor is updated;
    - with ``std_regularization`` above zero, ``loss_actor`` gains
      :math:`\lambda \, \mathrm{smooth}_{L1}(\sigma(s), \bar\sigma)`, which draws the policy's
      standard deviation towards its running mean :math:`\bar\sigma` over newly collected states,
      those given to ``observe``.

    Keyword Args:
        std_regularization: lambda; ElegantRL used 2^-4, zero leaves the term out.
        decay: share that the two running means keep at each step.

    The others are those of ``SACLoss``.

    >>> from torchrl_elegant.modules import EnsembleCritic, SquashedGaussianActor
    >>> shape = {"observation": (3,)}
    >>> actor = SquashedGaussianActor(observation=shape, low=[-1.0], high=[1.0])
    >>> critic = EnsembleCritic(observation=shape, action_shape=(1,), num_critics=8)
    >>> ModSACLoss(actor, critic).actor_q
    'mean'
    """

    terms = (*SACLoss.terms, "critic_error")

    def __init__(
        self,
        actor_network: TensorDictModuleBase,
        qvalue_network: TensorDictModuleBase | list[TensorDictModuleBase],
        value_network: None = None,
        *,
        actor_q: Literal["min", "mean"] = "mean",
        std_regularization: float = 0.0,
        decay: float = 0.995,
        **sac: Any,
    ) -> None:
        if std_regularization < 0:
            raise ValueError(
                f"`std_regularization` must not be negative, got `{std_regularization}`"
            )
        if not 0.0 <= decay < 1.0:
            raise ValueError(f"`decay` must lie in [0, 1), got `{decay}`")
        if std_regularization and not isinstance(actor_network, SquashedGaussianActor):
            raise ValueError(
                f"`std_regularization` must be 0, got `{std_regularization}` for an actor of type "
                f"`{type(actor_network).__name__}`; only a SquashedGaussianActor shows its "
                "standard deviation"
            )
        super().__init__(actor_network, qvalue_network, value_network, actor_q=actor_q, **sac)
        self.std_regularization = std_regularization
        self.decay = decay
        device = next(self.parameters()).device
        for name in ("target_variance", "target_updates", "std_updates"):
            self.register_buffer(name, torch.zeros((), device=device))
        dimensions = actor_network.low.numel() if std_regularization else 0
        self.register_buffer("mean_std", torch.zeros(dimensions, device=device))

    def critic_terms(self, tensordict: TensorDictBase) -> dict[str, Tensor]:
        loss, metadata = self._qvalue_loss(tensordict)
        tensordict.set(self.tensor_keys.priority, metadata["td_error"])
        with torch.no_grad():
            self._follow("target_variance", "target_updates", metadata["target"].var(correction=0))
            error = metadata["error"].square().mean() / self.target_variance.clamp_min(1e-6)
        return {"loss_qvalue": loss, "critic_error": error}

    def actor_terms(self, tensordict: TensorDictBase) -> dict[str, Tensor]:
        terms = super().actor_terms(tensordict)
        if self.std_regularization:
            std = self._std(tensordict)
            pull = F.smooth_l1_loss(std, self.mean_std.expand_as(std), reduction="none").mean(-1)
            pull = pull * (self.std_updates > 0)  # nothing to be drawn to before
            terms["loss_actor"] = terms["loss_actor"] + self.std_regularization * self._reduce(
                pull, tensordict
            )
        return terms

    @property
    def observes(self) -> bool:
        return self.std_regularization > 0

    @torch.no_grad()
    def observe(self, tensordict: TensorDictBase) -> None:
        """Update the running mean of the standard deviation, where it is used."""
        if self.observes:
            self._follow("mean_std", "std_updates", self._std(tensordict).flatten(0, -2).mean(0))

    def _std(self, tensordict: TensorDictBase) -> Tensor:
        actor = self._actor.network
        return actor.parameters_of([tensordict.get(key) for key in actor.in_keys])[1].exp()

    def _follow(self, mean: str, count: str, value: Tensor) -> None:
        """Update a running mean, whose first values count as a plain average."""
        updates = getattr(self, count).add_(1.0)
        getattr(self, mean).lerp_(value, torch.clamp_min(1.0 / updates, 1.0 - self.decay))
