"""DDPG: the deterministic policy gradient with one critic."""

from __future__ import annotations

from tensordict import TensorDictBase, TensorDictParams
from tensordict.nn import TensorDictModuleBase
from torch import Tensor

from torchrl_elegant.objectives.off_policy.deterministic import DeterministicLoss


class DDPGLoss(DeterministicLoss):
    r"""DDPG (Lillicrap et al. 2015, arXiv:1509.02971).

    .. math::

        y &= r + \gamma (1 - d) \bar Q(s', \bar\mu(s'))            \\
        L_Q &= \ell(Q(s, a), y)                                    \\
        L_\mu &= -Q(s, \mu(s))                          \qquad (6)

    It stands where TorchRL's ``DDPGLoss`` stands: same arguments, keys, outputs, target parameters,
    reductions and priorities (the squared error). It differs by intent in this:

    - given a ``DeterministicActor`` and an ``EnsembleCritic`` of one member it calls them directly,
      without parameter swaps; any other networks work as in TorchRL;
    - ``set_keys`` also takes ``action``, found by itself where the critic reads one entry that the
      actor writes.

    As in TorchRL ``delay_actor`` is off unless asked for; ``DDPGConfig`` asks for it, as the paper
    does.

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
    # The parameters of the one critic are not stacked.
    num_qvalue_nets = None
    deactivate_vmap = False

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
        self._in_keys = self._out_keys = None
        super().__init__()
        self.delay_actor, self.delay_value = delay_actor, delay_value
        self.reduction = "mean" if reduction is None else reduction
        self.loss_function = loss_function
        self.use_prioritized_weights = use_prioritized_weights
        self.convert_to_functional(actor_network, "actor_network", create_target_params=delay_actor)
        self.convert_to_functional(
            value_network,
            "value_network",
            create_target_params=delay_value,
            compare_against=list(actor_network.parameters()) if separate_losses else None,
        )
        shared = [key for key in actor_network.out_keys if key in value_network.in_keys]
        if shared:
            self.set_keys(action="action" if "action" in shared else shared[-1])
        self._connect()

    @property
    def qvalue_network(self) -> TensorDictModuleBase:
        """The critic, by the name that other losses give it."""
        return self.value_network

    @property
    def qvalue_network_params(self) -> TensorDictParams:
        """The critic's parameters, by the name that other losses give them."""
        return self.value_network_params

    @property
    def target_qvalue_network_params(self) -> TensorDictParams:
        """The delayed critic's parameters, by the name that other losses give them."""
        # Looked up past the attribute, which warns until an updater is there.
        known = self._modules.get("target_value_network_params")
        return self.target_value_network_params if known is None else known

    def loss_value(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        """The critic's loss; writes the priority, which is ``td_error`` of the metadata too."""
        loss, about = self._qvalue_loss(tensordict)
        self._write_priority(tensordict, about)
        return loss, about

    def loss_actor(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        """The actor's loss, which reaches the actor alone."""
        return self._actor_loss(tensordict)

    def _about_critics(
        self, value: Tensor, target: Tensor, next_value: Tensor
    ) -> dict[str, Tensor]:
        value = value[0]
        return {
            "td_error": (value - target).square(),
            "pred_value": value,
            "target_value": target,
            "pred_value_max": value.max(),
            "target_value_max": target.max(),
        }

    def _write_priority(self, tensordict: TensorDictBase, about: dict[str, Tensor]) -> None:
        tensordict.set(self.tensor_keys.priority, about["td_error"])
