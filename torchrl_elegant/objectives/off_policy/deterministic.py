"""Base of the losses of DDPG and TD3."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from copy import deepcopy
from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import dispatch
from torch import Tensor
from torchrl.envs.utils import set_exploration_type
from torchrl.objectives import LossModule

from torchrl_elegant.functional import reduce_members
from torchrl_elegant.modules import DeterministicActor
from torchrl_elegant.objectives.common.keys import CriticKeys
from torchrl_elegant.objectives.off_policy.actor_critic import ActorCriticLoss


class DirectActor:
    """Calls a ``DeterministicActor`` itself: no parameter swap, no TensorDict."""

    def __init__(self, loss: LossModule) -> None:
        self.network: DeterministicActor = loss.actor_network
        self.delayed = deepcopy(self.network)

    def bind(self, loss: LossModule) -> None:
        """Make both copies read the tensors that optimisers and target updaters write."""
        loss.actor_network_params.to_module(self.network, preserve_module_state=False)
        name = "target_actor_network_params"
        # Looked up past the attribute, which warns until an updater is there: none can be yet.
        target = loss._modules[name] if name in loss._modules else getattr(loss, name)
        target.to_module(self.delayed, preserve_module_state=False)

    def online(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, Tensor]:
        return tensordict, self.network.act(*self._observation(tensordict))

    def target(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, Tensor]:
        return tensordict, self.delayed.act(*self._observation(tensordict))

    def _observation(self, tensordict: TensorDictBase) -> list[Tensor]:
        return [tensordict.get(key) for key in self.network.in_keys]


class SwappedActor:
    """Calls any TorchRL actor with the loss's parameters put into it."""

    def __init__(self, loss: LossModule) -> None:
        self.loss = loss

    def bind(self, loss: LossModule) -> None:
        """Nothing to keep: parameters are put in at each call."""

    def online(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, Tensor]:
        return self._run(tensordict, self.loss.actor_network_params)

    def target(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, Tensor]:
        return self._run(tensordict, self.loss.target_actor_network_params)

    def _run(self, tensordict: TensorDictBase, params) -> tuple[TensorDictBase, Tensor]:
        loss, actor = self.loss, self.loss.actor_network
        data = tensordict.select(*actor.in_keys, *loss.qvalue_network.in_keys, strict=False)
        with (
            set_exploration_type(loss.deterministic_sampling_mode),
            params.to_module(actor, preserve_module_state=False),
        ):
            data = actor(data)
        return data, data.get(loss.tensor_keys.action)


def actor_caller(loss: LossModule) -> DirectActor | SwappedActor:
    """The right way to call ``loss.actor_network``; its ``bind`` makes it ready."""
    direct = isinstance(loss.actor_network, DeterministicActor)
    return DirectActor(loss) if direct else SwappedActor(loss)


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
