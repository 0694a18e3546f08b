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

    What differs from ``SACLoss``:

    - the actor raises the mean of the ensemble (``actor_value="mean"``), the target stays its
      minimum;
    - the output has ``critic_error``, the critics' squared error in units of the targets' running
      variance, so that it means the same at any reward scale:

      .. math:: e = \frac{1}{N B} \sum_{i, b} \frac{(Q_i(s_b, a_b) - y_b)^2}{\mathrm{Var}[y]}

      A learner's ``CriticTrust`` follows it and decides when the actor is updated; this loss
      decides nothing;
    - with ``std_pull`` above zero, ``loss_actor`` gains
      :math:`\lambda \, \mathrm{smooth}_{L1}(\sigma(s), \bar\sigma)`, which draws the policy's
      standard deviation towards its running mean :math:`\bar\sigma` over newly collected states,
      those given to ``observe``.

    Keyword Args:
        std_pull: lambda; ElegantRL used 2^-4, zero leaves the term out.
        decay: memory of the two running means.

    All others are those of ``SACLoss``.

    >>> from torchrl_elegant.modules import EnsembleCritic, SquashedGaussianActor
    >>> shape = {"observation": (3,)}
    >>> actor = SquashedGaussianActor(observation=shape, low=[-1.0], high=[1.0])
    >>> critic = EnsembleCritic(observation=shape, action_shape=(1,), num_critics=8)
    >>> ModSACLoss(actor, critic).actor_value
    'mean'
    """

    terms = (*SACLoss.terms, "critic_error")

    def __init__(
        self,
        actor_network: TensorDictModuleBase,
        qvalue_network: TensorDictModuleBase | list[TensorDictModuleBase],
        value_network: None = None,
        *,
        actor_value: Literal["min", "mean"] = "mean",
        std_pull: float = 0.0,
        decay: float = 0.995,
        **sac: Any,
    ) -> None:
        if std_pull < 0:
            raise ValueError(f"`std_pull` must not be negative, got `{std_pull}`")
        if not 0.0 <= decay < 1.0:
            raise ValueError(f"`decay` must lie in [0, 1), got `{decay}`")
        if std_pull and not isinstance(actor_network, SquashedGaussianActor):
            raise ValueError(
                f"`std_pull` must be 0 for an actor of type `{type(actor_network).__name__}`, got "
                f"`{std_pull}`; only a SquashedGaussianActor shows its standard deviation"
            )
        super().__init__(
            actor_network, qvalue_network, value_network, actor_value=actor_value, **sac
        )
        self.std_pull = std_pull
        self.decay = decay
        device = next(self.parameters()).device
        for name in ("target_variance", "target_updates", "std_updates"):
            self.register_buffer(name, torch.zeros((), device=device))
        dimensions = actor_network.low.numel() if std_pull else 0
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
        if self.std_pull and self.std_updates > 0:
            std = self._std(tensordict)
            pull = F.smooth_l1_loss(std, self.mean_std.expand_as(std), reduction="none").mean(-1)
            terms["loss_actor"] = terms["loss_actor"] + self.std_pull * self._reduce(
                pull, tensordict
            )
        return terms

    @torch.no_grad()
    def observe(self, tensordict: TensorDictBase) -> None:
        """Take note of newly collected states; does nothing unless ``std_pull`` needs them."""
        if self.std_pull:
            self._follow("mean_std", "std_updates", self._std(tensordict).flatten(0, -2).mean(0))

    def _std(self, tensordict: TensorDictBase) -> Tensor:
        actor = self.actor_network
        return actor.parameters_of([tensordict.get(key) for key in actor.in_keys])[1].exp()

    def _follow(self, mean: str, count: str, value: Tensor) -> None:
        """Running mean whose first values count as a plain average."""
        updates = getattr(self, count).add_(1.0)
        getattr(self, mean).lerp_(value, torch.clamp_min(1.0 / updates, 1.0 - self.decay))
