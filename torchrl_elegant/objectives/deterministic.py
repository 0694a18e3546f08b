"""What losses with a deterministic actor share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import dispatch
from torch import Tensor

from torchrl_elegant.functional import reduce_members
from torchrl_elegant.objectives.actor_critic import ActorCriticLoss
from torchrl_elegant.objectives.deterministic_networks import actor_caller
from torchrl_elegant.objectives.keys import CriticKeys


class DeterministicLoss(ActorCriticLoss):
    r"""The deterministic policy gradient (Silver et al. 2014, equation 9) over critics.

    With members :math:`Q_i`, delayed copies :math:`\bar Q_i, \bar\mu`, and what a subclass makes of
    the next action, :math:`\sigma`:

    .. math::

        y &= r + \gamma (1 - d) \min_i \bar Q_i(s', \sigma(\bar\mu(s')))   \\
        L_Q &= \sum_i \ell(Q_i(s, a), y)                                   \\
        L_\mu &= -Q(s, \mu(s))

    A subclass gives TorchRL's names to what is reported, ``_about_critics``.
    """

    _AcceptedKeys = CriticKeys
    default_keys = CriticKeys

    critic_term: str = "loss_qvalue"
    actor_value: str = "first"

    @dispatch
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        critic_loss, about = self._qvalue_loss(tensordict)
        self._write_priority(tensordict, about)
        actor_loss, actor_about = self._actor_loss(tensordict)
        terms = {"loss_actor": actor_loss, self.critic_term: critic_loss}
        return TensorDict({**terms, **actor_about, **about}, batch_size=[])

    def critic_terms(self, tensordict: TensorDictBase) -> dict[str, Tensor]:
        """Only what trains the critics, reports as means; writes the priority."""
        loss, about = self._qvalue_loss(tensordict)
        self._write_priority(tensordict, about)
        reports = {name: value.mean() for name, value in about.items() if name in self.terms}
        return {self.critic_term: loss, **reports}

    def actor_terms(self, tensordict: TensorDictBase) -> dict[str, Tensor]:
        """Only what trains the actor, reports as means; of the members only those it raises."""
        alone = self.actor_value == "first" and self.num_qvalue_nets is not None
        loss, about = self._raised(tensordict, members=1 if alone else None)
        return {"loss_actor": loss, **{name: value.mean() for name, value in about.items()}}

    @abstractmethod
    def _about_critics(
        self, value: Tensor, target: Tensor, next_value: Tensor
    ) -> dict[str, Tensor]:
        """What is reported, from values ``[N, *B]`` and targets ``[*B]``; with ``td_error``."""

    @abstractmethod
    def _write_priority(self, tensordict: TensorDictBase, about: dict[str, Tensor]) -> None:
        """Write ``td_error`` as one number a row."""

    def _qvalue_loss(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.no_grad():
            next_value = self._next_value(tensordict.get("next"))
        target = self._target_value(tensordict, next_value)  # [*B]
        value = self._stored_values(tensordict)  # [N, *B]
        losses = self._distances(value, target)
        about = self._about_critics(value.detach(), target, next_value)
        return self._reduce(losses.sum(0), tensordict), about

    def _stored_values(self, tensordict: TensorDictBase) -> Tensor:
        # An action that the actor has just written leads back to it, and is data here.
        return self._critic.online(tensordict, tensordict.get(self.tensor_keys.action).detach())

    def _actor_loss(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        return self._raised(tensordict, members=None)

    def _raised(
        self, tensordict: TensorDictBase, *, members: int | None
    ) -> tuple[Tensor, dict[str, Tensor]]:
        values = self._critic.frozen(*self._actor.online(tensordict), members)  # [N, *B]
        how = self.actor_value
        raised = values[0] if how == "first" else reduce_members(values, how)
        return self._reduce(-raised, tensordict), self._about_actor(values.detach())

    def _about_actor(self, values: Tensor) -> dict[str, Tensor]:
        """What is reported beside the actor's loss."""
        return {}

    def _next_value(self, after: TensorDictBase) -> Tensor:
        data, action = self._actor.target(after)
        return reduce_members(self._critic.target(data, self._smoothed(action)), "min")

    def _smoothed(self, action: Tensor) -> Tensor:
        """The next action as the target takes it."""
        return action

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        if any(name.startswith("_value_estimator.") for name in state_dict):
            _ = self.value_estimator  # a loss that was never called has none yet
        return super().load_state_dict(state_dict, *args, **kwargs)

    def _connect(self) -> None:
        self.__dict__["_actor"] = actor_caller(self)
        super()._connect()

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in super().__getstate__().items() if name != "_actor"}
