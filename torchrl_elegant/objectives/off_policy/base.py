"""Base of all losses that learn values from targets with a delayed network."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, NamedTuple

import torch
from tensordict import TensorDictBase, TensorDictParams
from tensordict.nn import TensorDictModuleBase
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.objectives import LossModule
from torchrl.objectives.utils import distance_loss
from torchrl.objectives.value import TD0Estimator

from torchrl_elegant.functional import (
    bellman_target,
    categorical_projection,
    cross_entropy,
    of_smallest_mean,
)
from torchrl_elegant.modules import DistributionalCritic, Memory
from torchrl_elegant.objectives.common.update_loss import UpdateDefaults
from torchrl_elegant.objectives.off_policy.torchrl_contract import TorchRLContract


class Fit(NamedTuple):
    """Losses of N critics at stored actions, and what they come from."""

    losses: Tensor  # [N, *B]
    value: Tensor  # [N, *B], without gradients
    target: Tensor  # [*B]
    next_value: Tensor  # [*B]


class OffPolicyLoss(UpdateDefaults, TorchRLContract, LossModule):
    r"""Values :math:`Q_i(s, a)` that approach a target, as TorchRL's losses have them.

    .. math::

        y &= r + \gamma^m (1 - d) \bar V(s')                                                    \\
        \mathrm{priority} &= \max_i |Q_i(s, a) - y|                                              \\
        L &= \sum_b w_b \ell_b \, / \, \sum_b w_b

    m is the number of steps that a row spans. The priority is Schaul et al.'s (2016,
    arXiv:1511.05952, section 3.3) absolute error, for every loss of this package. TorchRL's DQN,
    DDPG, TD3 and REDQ write its square instead, so that an exponent ``alpha`` of their priorities
    counts twice.

    Rows with importance weights w are averaged as in TorchRL, by the sum of the weights. Schaul et
    al. (section 3.4) divide by the largest weight of all and by the number of rows. Both have the
    same direction; here small weights in a whole batch do not shorten its step.

    Over a ``DistributionalCritic`` the whole distribution of the next state moves, and not its mean
    alone. With its atoms :math:`z_j`, the member i whose mean is smallest and the projection
    :math:`\Phi` (``categorical_projection``; Bellemare et al. 2017, arXiv:1707.06887):

    .. math::

        m &= \Phi\big(\bar p_i(s'); \; r + \gamma^m (1 - d) (z_j - \alpha \log \pi)\big)  \\
        \ell_n &= - \sum_j m_j \log p_{n, j}(s, a)

    y is then the mean of m.

    ``forward`` gives all terms. A learner that leaves the actor out of an update calls
    ``critic_terms`` alone. A subclass gives both and ``_next_value``, which is :math:`\bar V`.
    """

    tensor_keys: Any
    loss_function: str | None
    deactivate_vmap: bool = False
    actor_network: TensorDictModuleBase
    actor_network_params: TensorDictParams
    target_actor_network_params: TensorDictParams

    @abstractmethod
    def critic_terms(self, tensordict: TensorDictBase) -> dict[str, Tensor]:
        """Terms that train the critics; writes the priority into ``tensordict``."""

    def actor_terms(self, tensordict: TensorDictBase) -> dict[str, Tensor]:
        """Terms that train the actor and the temperature; none for a loss of values alone."""
        return {}

    def update_terms(self, tensordict: TensorDictBase, *, actor: bool = True) -> dict[str, Tensor]:
        terms = self.critic_terms(tensordict)
        return terms | self.actor_terms(tensordict) if actor else terms

    @property
    def metric_names(self) -> list[str]:
        return list(self.terms)

    @property
    def priority_key(self) -> NestedKey:
        return self.tensor_keys.priority

    @abstractmethod
    def _next_value(self, after: TensorDictBase) -> Tensor:
        """Value of the next state, from delayed networks, ``[*B]``."""

    def _next_distribution(self, after: TensorDictBase) -> tuple[Tensor, Tensor | None]:
        """Outputs of the delayed critics at the next actions, ``[M, *B, K]``, and what the next
        value loses to their log-probability, ``[*B]``; None for nothing."""
        raise NotImplementedError

    def _fit(self, tensordict: TensorDictBase) -> Fit:
        """Losses of the critics at the stored actions."""
        if self._is_distributional:
            return self._distribution_fit(tensordict, self._critic.network)
        with torch.no_grad():
            next_value = self._next_value(tensordict.get("next"))
        target = self._target_value(tensordict, next_value)  # [*B]
        value = self._stored_values(tensordict)  # [N, *B]
        return Fit(self._distances(value, target), value.detach(), target, next_value)

    def _distribution_fit(self, tensordict: TensorDictBase, critic: DistributionalCritic) -> Fit:
        action = tensordict.get(self.tensor_keys.action).detach()
        atoms, place = critic.atoms(action.device), ("next", self.tensor_keys.terminated)  # [K]
        with torch.no_grad():
            outputs, cost = self._next_distribution(tensordict.get("next"))
            probs = of_smallest_mean(outputs.softmax(-1), atoms)  # [*B, K]
            # All of it moves to the reward; the state after the end may be anything, even NaN.
            ends = tensordict.get(place, None)
            if ends is None:  # as in TorchRL's estimators
                ends = tensordict.get(("next", self.tensor_keys.done))
                tensordict = tensordict.copy().set(place, ends)
            probs = probs.masked_fill(ends, 1.0 / len(atoms))
            ahead = atoms.view(-1, *[1] * (probs.ndim - 1)).expand(-1, *probs.shape[:-1])
            ahead = ahead if cost is None else ahead - cost  # [K, *B]
            moved = self._target_value(tensordict, ahead).movedim(0, -1)  # [*B, K]
            target = categorical_projection(probs, moved, low=critic.v_min, high=critic.v_max)
        logits = self._critic.online_logits(tensordict, action)  # [N, *B, K]
        value = logits.detach().softmax(-1) @ atoms
        next_value = (probs * ahead.movedim(0, -1)).sum(-1)
        return Fit(cross_entropy(target, logits), value, target @ atoms, next_value)

    def memories(self) -> dict[NestedKey, Memory]:
        """Memories of the networks that learn, by the entry that each writes."""
        found = [self.__dict__[name].memories() for name in self._calls]
        return {key: memory for each in found for key, memory in each.items()}

    def critic_memories(self) -> dict[NestedKey, Memory]:
        """Those of the critics among them."""
        return self._critic.memories()

    def delayed_memories(self) -> dict[NestedKey, Memory]:
        """Memories of delayed copies, by the entry that those read."""
        found = [self.__dict__[name].delayed_memories() for name in self._calls]
        return {key: memory for each in found for key, memory in each.items()}

    def _stored_values(self, tensordict: TensorDictBase) -> Tensor:
        """Values of the stored actions, ``[N, *B]``, which train all N critics."""
        return self._critic.online(tensordict, tensordict.get(self.tensor_keys.action))

    def _acted_values(
        self,
        rows: TensorDictBase,
        seen: TensorDictBase,
        action: Tensor,
        members: int | None = None,
    ) -> Tensor:
        """Values of the policy's actions, ``[N, *B]``, by the first ``members`` or all critics.

        They train the actions alone. ``seen`` is ``rows`` with what the actor has written there.
        """
        return self._critic.frozen(seen, action, members)

    @torch.no_grad()
    def _target_value(self, tensordict: TensorDictBase, next_value: Tensor | None = None) -> Tensor:
        """y, ``[*B]``; through the loss's value estimator where that is not the plain one."""
        if next_value is None:
            next_value = self._next_value(tensordict.get("next"))
        estimator, keys = self.value_estimator, self.tensor_keys
        terminated = tensordict.get(("next", keys.terminated), None)
        plain = type(estimator) is TD0Estimator and not estimator.average_rewards
        if not plain or terminated is None:
            data = tensordict.copy()
            data.set(("next", estimator.tensor_keys.value), next_value.unsqueeze(-1))
            return estimator.value_estimate(data).squeeze(-1)
        reward = tensordict.get(("next", keys.reward))
        gamma = estimator.gamma
        steps = tensordict.get(estimator.tensor_keys.steps_to_next_obs, None)
        if steps is not None:
            gamma = gamma ** steps.view_as(reward).squeeze(-1)
        return bellman_target(reward.squeeze(-1), terminated.squeeze(-1), next_value, gamma)

    def _distances(self, value: Tensor, target: Tensor) -> Tensor:
        """Distances of values ``[N, *B]`` from their target ``[*B]``, ``[N, *B]``."""
        if target.shape != value.shape[1:]:
            raise RuntimeError(
                f"the target must have a critic's shape, got `{tuple(target.shape)}` and "
                f"`{tuple(value.shape[1:])}`; reward and terminated end in a dimension of 1"
            )
        return distance_loss(value, target.expand_as(value), loss_function=self.loss_function)

    def _reduce(self, loss: Tensor, tensordict: TensorDictBase) -> Tensor:
        """Mean over rows, or the loss's other reduction; with weights and masks of the rows."""
        weights = self._maybe_get_priority_weight(tensordict)
        if self.reduction == "mean" and weights is None and self._loss_mask_key == "auto":
            # Looking for each mask entry in each term costs more than the mean itself.
            names = tensordict.keys()
            if "collector" not in names and "shifted_valid" not in names:
                return loss.mean()
        return self._reduce_loss(loss, tensordict=tensordict, weights=weights)
