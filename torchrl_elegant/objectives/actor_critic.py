"""What losses with an actor and critics share: TorchRL's contract, and nothing else."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any

from tensordict import TensorDict, TensorDictBase, TensorDictParams
from tensordict.nn import TensorDictModuleBase, dispatch
from torch import Tensor

from torchrl_elegant.objectives.bootstrap import BootstrappedLoss, read_keys
from torchrl_elegant.objectives.keys import ActorCriticKeys, CriticKeys
from torchrl_elegant.objectives.networks import bind_networks, critic_caller


class ActorCriticLoss(BootstrappedLoss):
    """Keys and outputs, as TorchRL's losses with an actor have them.

    A subclass writes its equations into ``_qvalue_loss``, ``_actor_loss``, ``_next_value``, and
    puts together in ``actor_terms`` what trains the actor.
    ``forward`` is ``critic_terms`` and ``actor_terms`` together; a learner that leaves the actor
    out of an update calls the first alone. ``terms`` names what they give.
    """

    _AcceptedKeys: type[CriticKeys] = ActorCriticKeys
    default_keys: type[CriticKeys] = ActorCriticKeys
    tensor_keys: CriticKeys

    actor_network: TensorDictModuleBase
    actor_network_params: TensorDictParams
    target_actor_network_params: TensorDictParams
    qvalue_network: TensorDictModuleBase
    qvalue_network_params: TensorDictParams
    target_qvalue_network_params: TensorDictParams
    scalar_output_mode: str | None

    @dispatch
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        terms = self.critic_terms(tensordict)
        terms.update(self.actor_terms(tensordict))
        if self.reduction != "none":
            return TensorDict(terms, batch_size=[])
        scalars = {key: terms.pop(key) for key in list(terms) if not key.startswith("loss_")}
        out = TensorDict(terms, batch_size=tensordict.batch_size)
        if self.scalar_output_mode == "non_tensor":
            for key, value in scalars.items():
                out.set_non_tensor(key, value)
        return out

    def critic_terms(self, tensordict: TensorDictBase) -> dict[str, Tensor]:
        """Only what trains the critics; writes the priority into ``tensordict``."""
        loss, metadata = self._qvalue_loss(tensordict)
        tensordict.set(self.tensor_keys.priority, metadata["td_error"])
        return {"loss_qvalue": loss}

    @abstractmethod
    def actor_terms(self, tensordict: TensorDictBase) -> dict[str, Tensor]:
        """Only what trains the actor, and what is learnt beside it."""

    # TorchRL wraps every method called *loss in two context managers, which nothing below needs.

    def qvalue_loss(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        """The critics' loss; metadata with ``td_error``, the priority."""
        return self._qvalue_loss(tensordict)

    def actor_loss(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        """The actor's loss, which reaches the actor alone."""
        return self._actor_loss(tensordict)

    @abstractmethod
    def _qvalue_loss(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]: ...

    @abstractmethod
    def _actor_loss(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]: ...

    def _set_in_keys(self) -> None:
        keys, inputs = self.tensor_keys, self.actor_network.in_keys
        judged = self.qvalue_network.in_keys
        later = [key for key in judged if key != keys.action]  # the next action is the actor's
        self._in_keys = read_keys(
            keys.action,
            *inputs,
            *judged,
            after=[keys.reward, keys.done, keys.terminated, *inputs, *later],
        )

    def _make_caller(self) -> Any:
        return critic_caller(self)

    def _bind(self) -> None:
        bind_networks(self, self._critic)
