"""DDPG: the deterministic policy gradient with one critic."""

from __future__ import annotations

from typing import Literal

from tensordict import TensorDictBase, TensorDictParams
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from torchrl_elegant.functional import path_of
from torchrl_elegant.objectives.off_policy.base import OffPolicyLoss
from torchrl_elegant.objectives.off_policy.foreign_networks import parameters_of
from torchrl_elegant.objectives.off_policy.td3 import TD3Loss


class DDPGLoss(TD3Loss):
    r"""DDPG (Lillicrap et al. 2015, arXiv:1509.02971): TD3 with one critic and no noise.

    .. math::

        y &= r + \gamma (1 - d) \bar Q(s', \bar\mu(s'))   \qquad (5) \\
        L_Q &= \ell(Q(s, a), y)                           \qquad (4) \\
        L_\mu &= -Q(s, \mu(s))                            \qquad (6)

    It stands where TorchRL's ``DDPGLoss`` stands: same arguments, keys, outputs, target parameters
    and reductions. It differs by intent in this:

    - a ``DeterministicActor`` and an ``EnsembleCritic`` of one member are called directly, without
      parameter swaps, and so are TorchRL's usual networks, as for ``TD3Loss``; others work as in
      TorchRL;
    - ``td_error``, the priority, is absolute and not squared;
    - ``set_keys`` also takes ``action``; it is the entry that the actor writes and the critic
      reads.

    As in TorchRL, ``delay_actor`` is off by default; ``DDPGConfig`` sets it, as the paper does.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> from torchrl_elegant.modules import DeterministicActor, EnsembleCritic
    >>> shape = {"observation": (3,)}
    >>> actor = DeterministicActor(observation=shape, low=[-1.0], high=[1.0])
    >>> critic = EnsembleCritic(observation=shape, action_shape=(1,), num_critics=1)
    >>> state, flag = torch.zeros(4, 3), torch.zeros(4, 1, dtype=torch.bool)
    >>> after = {"observation": state, "reward": torch.ones(4, 1), "done": flag, "terminated": flag}
    >>> data = TensorDict({"observation": state, "action": torch.zeros(4, 1), "next": after}, [4])
    >>> DDPGLoss(actor, critic)(data)["pred_value"].shape
    torch.Size([4])
    """

    critic_term = "loss_value"
    terms = (
        "loss_actor",
        "loss_value",
        "pred_value",
        "target_value",
        "pred_value_max",
        "target_value_max",
    )
    critic_name = "value_network"
    num_qvalue_nets = None  # one critic, whose parameters are not stacked
    actor_q: Literal["first"] = "first"

    value_network: TensorDictModuleBase
    value_network_params: TensorDictParams
    target_value_network_params: TensorDictParams

    def __init__(
        self,
        actor_network: TensorDictModuleBase,
        value_network: TensorDictModuleBase,
        *,
        loss_function: str = "l2",
        delay_actor: bool = False,
        delay_value: bool = True,
        separate_losses: bool = False,
        reduction: str | None = None,
        use_prioritized_weights: str | bool = "auto",
    ) -> None:
        members = getattr(value_network, "num_critics", 1)
        if members != 1:
            raise ValueError(
                f"`value_network` must have one member, got `{members}`; TD3Loss takes ensembles"
            )
        OffPolicyLoss.__init__(self)
        self.delay_actor, self.delay_value = delay_actor, delay_value
        self.loss_function, self.reduction = loss_function, reduction or "mean"
        self.use_prioritized_weights = use_prioritized_weights
        self._convert(
            actor_network,
            value_network,
            copies=None,
            delay_critic=delay_value,
            separate_losses=separate_losses,
        )
        shared = [key for key in actor_network.out_keys if key in value_network.in_keys]
        if shared:
            self.set_keys(action="action" if "action" in shared else shared[-1])
        self._connect()

    @property
    def qvalue_network(self) -> TensorDictModuleBase:
        """Critic, by the name that other losses give it."""
        return self.value_network

    @property
    def qvalue_network_params(self) -> TensorDictParams:
        """Critic's parameters, by the name that other losses give them."""
        return self.value_network_params

    @property
    def target_qvalue_network_params(self) -> TensorDictParams:
        """Delayed critic's parameters, by the name that other losses give them."""
        return parameters_of(self, "value_network")[1]

    def loss_value(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        """Critic's loss; writes the priority, which the metadata have as ``td_error``."""
        loss, about = self._qvalue_loss(tensordict)
        self._write_priority(tensordict, about)
        return loss, about

    def loss_actor(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        """Actor's loss, which reaches the actor alone."""
        return self._actor_loss(tensordict)

    def _set_in_keys(self) -> None:
        super()._set_in_keys()
        # TorchRL lists two more, and sorts them; a caller may pass entries by position.
        judged = [("next", *path_of(key)) for key in self.value_network.in_keys]
        weight = [self.tensor_keys.priority_weight] if self.use_prioritized_weights else []
        self.in_keys = sorted({*self.in_keys, *judged, *weight}, key=str)

    def _smoothed(self, action: Tensor) -> Tensor:
        return action

    def _about_critics(
        self, value: Tensor, target: Tensor, next_value: Tensor
    ) -> dict[str, Tensor]:
        value = value[0]
        return {
            "td_error": (value - target).abs(),
            "pred_value": value,
            "target_value": target,
            "pred_value_max": value.max(),
            "target_value_max": target.max(),
        }

    def _write_priority(self, tensordict: TensorDictBase, about: dict[str, Tensor]) -> None:
        tensordict.set(self.tensor_keys.priority, about["td_error"])

    def _about_actor(self, values: Tensor) -> dict[str, Tensor]:
        return {}
