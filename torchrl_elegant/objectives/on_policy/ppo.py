"""Proximal policy optimization with a clipped ratio."""

from __future__ import annotations

from collections.abc import Mapping

from tensordict import TensorDictBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl import objectives

from torchrl_elegant.functional import (
    clipped_surrogate,
    clipped_surrogate_slope,
    devices,
    explained_variance,
    kl_estimate,
    ratio_statistics,
    standardized,
)
from torchrl_elegant.objectives.compiled.recording import is_recording
from torchrl_elegant.objectives.on_policy.base import OnPolicyLoss
from torchrl_elegant.objectives.on_policy.plain_rows import is_plain_log_prob


class ClipPPOLoss(OnPolicyLoss, objectives.ClipPPOLoss):
    r"""PPO (Schulman et al. 2017, arXiv:1707.06347): TorchRL's ``ClipPPOLoss``, faster.

    .. math::

        \rho &= \pi(a|s) / \mu(a|s)                                                              \\
        L_\pi &= -\mathrm{E}[\min(\rho A, \mathrm{clip}(\rho, 1 - \epsilon, 1 + \epsilon) A)]
            \qquad (7)                                                                            \\
        L &= L_\pi + c_v \, \mathrm{E}[d(V(s), R)] - c_e \, \mathrm{E}[H]        \qquad (9)

    Same arguments, keys and results as TorchRL's. Log-probability and surrogate are one autograd
    node each, and gradients are written out where they can be (``benchmarks/ppo.py`` has the
    measured ratio). With options that this short way does not cover (a delayed actor, capped
    ratios, masks, other reductions), and where an entry is missing or has another shape, it is
    TorchRL's. One case differs: a stored log-probability ``[*B, 1]``, which TorchRL pairs with
    every row, is refused.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> from torchrl_elegant.modules import GaussianActor, StateValue
    >>> shapes = {"observation": (3,)}
    >>> actor = GaussianActor(observation=shapes, action_shape=(1,))
    >>> loss = ClipPPOLoss(actor, StateValue(observation=shapes))
    >>> batch = actor(TensorDict({"observation": torch.zeros(5, 3)}, [5])).detach()
    >>> _ = batch.set("advantage", torch.ones(5, 1)).set("value_target", torch.zeros(5, 1))
    >>> round(loss(batch)["loss_objective"].item(), 4)
    -1.0
    """

    @property
    def row_keys(self) -> list[NestedKey]:
        return [*super().row_keys, self.tensor_keys.sample_log_prob]

    @property
    def report_keys(self) -> list[str]:
        """See ``RolloutLoss``."""
        reports = [name for name in self.metric_names if not name.startswith("loss_")]
        return reports + (["explained_variance"] if self.log_explained_variance else [])

    def report(self, rows: TensorDictBase) -> dict[str, Tensor]:
        """Distances of the policy from the one that collected ``rows``."""
        terms = self(rows).items()
        return {name: value.mean() for name, value in terms if not name.startswith("loss_")}

    def divergence(self, rows: TensorDictBase) -> Tensor:
        """Estimate of ``KL(mu, pi)``, where mu collected ``rows`` and pi is the present policy."""
        log_prob, *_ = self._get_cur_log_prob(rows)  # by TorchRL, over any networks
        return kl_estimate(log_prob - rows.get(self.tensor_keys.sample_log_prob))

    def _gain(self, tensordict: TensorDictBase, log_prob: Tensor) -> Tensor:
        log_ratio = log_prob - tensordict.get(self.tensor_keys.sample_log_prob)
        return clipped_surrogate(log_ratio, self._advantage(tensordict), *self._ratio_bounds())

    def _gain_slope(self, tensordict: TensorDictBase, log_prob: Tensor) -> tuple[Tensor, Tensor]:
        log_ratio = log_prob - tensordict.get(self.tensor_keys.sample_log_prob)
        bounds = self._ratio_bounds()
        return clipped_surrogate_slope(log_ratio, self._advantage(tensordict), *bounds)

    def _advantage(self, tensordict: TensorDictBase) -> Tensor:
        if self.normalize_advantage and self.normalize_advantage_exclude_dims:
            advantage = tensordict.get(self.tensor_keys.advantage)
            return self._standardize_advantage(advantage, tensordict).squeeze(-1)
        advantage = super()._advantage(tensordict)
        return standardized(advantage) if self.normalize_advantage else advantage

    def _ratio_bounds(self) -> tuple[Tensor | float, Tensor | float]:
        below = self.clip_epsilon_low if self._asymmetric_clip else self.clip_epsilon
        above = self.clip_epsilon_high if self._asymmetric_clip else below
        # A kernel takes numbers for less, but from a GPU they would have to be waited for.
        at_once = devices.reads_at_once(below.device) and not is_recording()
        if at_once and not self._is_swapped:  # vmap has no numbers
            below, above = below.item(), above.item()
        return 1.0 - below, 1.0 + above

    def _reports(
        self, tensordict: TensorDictBase, log_prob: Tensor, value: Tensor
    ) -> Mapping[str, Tensor]:
        log_ratio = log_prob - tensordict.get(self.tensor_keys.sample_log_prob)
        reports = ratio_statistics(log_ratio, *self._ratio_bounds())
        if self.log_explained_variance:
            target = tensordict.get(self.tensor_keys.value_target)
            reports["explained_variance"] = explained_variance(value, target)
        return {**reports, **super()._reports(tensordict, log_prob, value)}

    def _is_usual(self) -> bool:
        return (
            not (self.separate_losses or self.delay_actor)
            and self.max_importance_ratio is None
            and self._entropy_coeff_map is None
            and self._has_critic
        )

    def _is_direct(self, tensordict: TensorDictBase) -> bool:
        drawn, shape = self.tensor_keys.sample_log_prob, self._row_shape(tensordict)
        return super()._is_direct(tensordict) and is_plain_log_prob(tensordict, drawn, shape=shape)
