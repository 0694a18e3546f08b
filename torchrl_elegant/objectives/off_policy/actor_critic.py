"""Base of losses with an actor and Q(s, a) critics, and of those with a temperature."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from tensordict import TensorDict, TensorDictBase, TensorDictParams
from tensordict.nn import TensorDictModuleBase, dispatch
from torch import Tensor, nn
from torchrl.data import Composite, TensorSpec

from torchrl_elegant.modules import FixedTemperature, LearnedTemperature, Temperature
from torchrl_elegant.objectives.common.keys import ActorCriticKeys, CriticKeys
from torchrl_elegant.objectives.common.networks import bind_networks, critic_caller
from torchrl_elegant.objectives.common.value_target import BootstrappedLoss, read_keys


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


class EntropyRegularisedLoss(ActorCriticLoss):
    """A loss with an actor and a temperature, under the names that TorchRL's SAC gives them.

    ``log_alpha`` is a parameter (learnt) or a buffer (fixed); ``alpha_init``, ``_target_entropy``
    and the bounds are buffers. The target entropy is looked up when first needed, because
    TorchRL's trainers hand the action spec in after construction.

    A subclass says in ``_automatic_entropy`` what ``"auto"`` means, and in ``_entropy_buffer`` the
    name of that number in a state dict.
    """

    # Names that a schedule may assign a number to, as for TorchRL's SAC.
    _schedulable_buffers = frozenset({"alpha_init", "min_log_alpha", "max_log_alpha", "log_alpha"})

    # What the target entropy is called in checkpoints.
    _entropy_buffer: ClassVar[str] = "_target_entropy"

    terms: tuple[str, ...] = ("loss_actor", "loss_qvalue", "loss_alpha", "alpha", "entropy")
    _action_spec: TensorSpec | None

    def _register_temperature(
        self, temperature: Temperature, action_spec: TensorSpec | None
    ) -> None:
        device = next(self.parameters()).device
        log_alpha = torch.tensor(math.log(temperature.alpha), device=device)
        self.register_buffer("alpha_init", torch.tensor(float(temperature.alpha), device=device))
        self.min_log_alpha = self.max_log_alpha = None
        self._action_spec = action_spec
        self._wanted_entropy: float | str = temperature.target_entropy
        if isinstance(temperature, FixedTemperature):
            self.register_buffer("log_alpha", log_alpha)
            return
        self.log_alpha = nn.Parameter(log_alpha)
        for name in ("minimum", "maximum"):
            bound = getattr(temperature, name)
            if bound is not None:
                short = f"{name[:3]}_log_alpha"
                delattr(self, short)
                self.register_buffer(short, torch.tensor(math.log(bound), device=device))

    def actor_terms(self, tensordict: TensorDictBase) -> dict[str, Tensor]:
        return self._actor_terms(*self._actor_loss(tensordict), tensordict)

    def _actor_terms(
        self, loss: Tensor, metadata: dict[str, Tensor], tensordict: TensorDictBase
    ) -> dict[str, Tensor]:
        log_prob = metadata["log_prob"]
        return {
            "loss_actor": loss,
            "loss_alpha": self._reduce(self._alpha_loss(log_prob), tensordict),
            "alpha": metadata["alpha"],
            "entropy": -log_prob.mean(),
        }

    @property
    def device(self) -> torch.device:
        """Where the parameters are."""
        return next(self.parameters()).device

    @property
    def target_entropy(self) -> Tensor:
        """The entropy that a learnt temperature aims at."""
        known = self._buffers.get(self._entropy_buffer)
        if known is None:
            value = self._wanted_entropy
            number = self._automatic_entropy() if value == "auto" else float(value)
            known = torch.tensor(number, device=next(self.parameters()).device)
            # Not registered: the name may be this property's own.
            self._buffers[self._entropy_buffer] = known
        return known

    def _automatic_entropy(self) -> float:
        """Minus the number of action dimensions (Haarnoja et al. 2018b, sec. D)."""
        return -float(self._action_dimensions())

    def alpha_loss(self, log_prob: Tensor) -> Tensor:
        """``-log alpha (log pi + target entropy)``, per sample."""
        return self._alpha_loss(log_prob)

    def _alpha_loss(self, log_prob: Tensor) -> Tensor:
        return -self.log_alpha * (log_prob + self.target_entropy)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:
        _ = self.target_entropy  # a lazily found number must be in every checkpoint
        return super().state_dict(*args, **kwargs)

    def load_state_dict(self, state_dict: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
        _ = self.target_entropy
        return super().load_state_dict(state_dict, *args, **kwargs)

    @property
    def _alpha(self) -> Tensor:
        return self.log_alpha.detach().exp()

    def _bound_temperature(self) -> None:
        if self.min_log_alpha is not None or self.max_log_alpha is not None:
            self.log_alpha.data.clamp_(self.min_log_alpha, self.max_log_alpha)

    def _action_dimensions(self) -> int:
        shape = getattr(self.actor_network, "action_shape", None)
        if shape is not None:
            return torch.Size(shape).numel()
        spec = self._action_spec
        spec = getattr(self.actor_network, "spec", None) if spec is None else spec
        key = self.tensor_keys.action
        container: torch.Size = torch.Size([])
        if isinstance(spec, Composite):
            holder = spec[key[:-1]] if isinstance(key, tuple) and len(key) > 1 else spec
            container, spec = holder.shape, spec[key]
        if spec is None:
            raise RuntimeError(
                "`target_entropy` 'auto' needs the action's size, got an actor without a spec; "
                "pass `action_spec` or a number as `target_entropy`"
            )
        if isinstance(spec, Composite):
            leaves = [leaf for leaf in spec.values(True, True) if leaf is not None]
            return sum(leaf.shape[len(container) :].numel() for leaf in leaves)
        return spec.shape[len(container) :].numel()


def temperature_from(
    *,
    alpha_init: float,
    min_alpha: float | None,
    max_alpha: float | None,
    fixed_alpha: bool,
    target_entropy: float | str,
) -> Temperature:
    """The temperature that TorchRL's arguments describe; a ``min_alpha`` of 0 is none."""
    minimum = min_alpha or None
    if fixed_alpha:
        if not (minimum or 0.0) <= alpha_init <= (max_alpha or math.inf):
            raise ValueError(
                "`alpha_init` must lie within `min_alpha` and `max_alpha` when fixed, got "
                f"`{alpha_init}`, `{min_alpha}` and `{max_alpha}`"
            )
        return FixedTemperature(alpha=alpha_init, target_entropy=target_entropy)
    if minimum is not None and max_alpha is None:
        # TorchRL's own stand-in for no upper bound: it has a place in its checkpoints.
        max_alpha = 1e9
    return LearnedTemperature(
        alpha=alpha_init, minimum=minimum, maximum=max_alpha, target_entropy=target_entropy
    )
