"""Q-learning over discrete actions."""

from __future__ import annotations

from tensordict import TensorDict, TensorDictBase, TensorDictParams
from tensordict.nn import TensorDictModuleBase, dispatch
from torch import Tensor, nn
from torchrl.data import TensorSpec
from torchrl.modules import DistributionalQValueActor, QValueActor
from torchrl.modules.tensordict_module.common import ensure_tensordict_compatible

from torchrl_elegant.modules import QNetwork
from torchrl_elegant.objectives.common.keys import QValueKeys
from torchrl_elegant.objectives.common.value_target import BootstrappedLoss, read_keys
from torchrl_elegant.objectives.off_policy.q_networks import (
    DirectQ,
    SwappedQ,
    action_space_of,
    values_of_choices,
)


class DQNLoss(BootstrappedLoss):
    r"""DQN (Mnih et al. 2015) and Double DQN (van Hasselt et al. 2016, arXiv:1509.06461).

    .. math::

        y &= r + \gamma (1 - d) \max_a \bar Q(s', a)                                            \\
        y &= r + \gamma (1 - d) \bar Q(s', \arg\max_a Q(s', a)) \quad \text{(double, eq. 4)}    \\
        L &= \ell(Q(s, a), y)

    It stands where TorchRL's ``DQNLoss`` stands: same arguments, keys, output, target parameters,
    reductions and priorities. It differs by intent in this:

    - speed: a ``QNetwork`` is called directly, without parameter swaps or TensorDicts
      (``benchmarks/off_policy.py`` has the measured ratio); any other works as in TorchRL;
    - of a ``QNetwork`` with several members each learns, from targets that are the minimum of
      theirs: :math:`\max_a \min_i \bar Q_i(s', a)`, or :math:`\min_i \bar Q_i` at the action that
      the members prefer on average. The first, with two members, is ElegantRL's D3QN.

    Args:
        value_network: a ``QNetwork``, a ``QValueActor``, or a module that one can be made of.

    Keyword Args:
        double_dqn: let the online network choose the next action; needs ``delay_value``.
        action_space: a name or a spec; by default what the network says of itself.

    The others are TorchRL's: ``loss_function``, ``delay_value``, ``priority_key``, ``reduction``,
    ``use_prioritized_weights``.

    >>> import torch
    >>> net = QNetwork(observation={"observation": (3,)}, choices=2)
    >>> loss = DQNLoss(net, double_dqn=True)
    >>> state, flag = torch.zeros(4, 3), torch.zeros(4, 1, dtype=torch.bool)
    >>> after = {"observation": state, "reward": torch.ones(4, 1), "done": flag, "terminated": flag}
    >>> action = torch.tensor([[0, 1]]).expand(4, 2)
    >>> data = TensorDict({"observation": state, "action": action, "next": after}, [4])
    >>> list(loss(data).keys()), data["td_error"].shape
    (['loss'], torch.Size([4, 1]))
    """

    _AcceptedKeys = QValueKeys
    default_keys = QValueKeys
    tensor_keys: QValueKeys
    terms = ("loss",)

    value_network: TensorDictModuleBase
    value_network_params: TensorDictParams
    target_value_network_params: TensorDictParams

    def __init__(
        self,
        value_network: QNetwork | QValueActor | nn.Module,
        *,
        loss_function: str | None = "l2",
        delay_value: bool = True,
        double_dqn: bool = False,
        action_space: str | TensorSpec | None = None,
        priority_key: str | None = None,
        reduction: str | None = None,
        use_prioritized_weights: str | bool = "auto",
    ) -> None:
        if double_dqn and not delay_value:
            raise ValueError(
                f"`delay_value` must be True with double_dqn, got `{delay_value}`; the online "
                "network chooses and the target network judges"
            )
        if isinstance(value_network, DistributionalQValueActor):
            raise ValueError(
                "`value_network` must give one value per action, got "
                "`DistributionalQValueActor`; its loss is torchrl.objectives.DistributionalDQNLoss"
            )
        super().__init__()
        self.delay_value, self.double_dqn = delay_value, double_dqn
        self.loss_function = loss_function
        self.reduction = "mean" if reduction is None else reduction
        self.use_prioritized_weights = use_prioritized_weights
        self._set_deprecated_ctor_keys(priority=priority_key)
        network = ensure_tensordict_compatible(
            module=value_network, wrapper_type=QValueActor, action_space=action_space
        )
        self.convert_to_functional(network, "value_network", create_target_params=delay_value)
        self.value_network_in_keys = network.in_keys
        self.action_space = action_space_of(network, action_space)
        self._connect()

    @dispatch
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        return TensorDict(self.critic_terms(tensordict), batch_size=[])

    def critic_terms(self, tensordict: TensorDictBase) -> dict[str, Tensor]:
        """All that there is to train; writes the priority into ``tensordict``."""
        value = self._stored_values(tensordict)  # [N, *B]
        target = self._target_value(tensordict)  # [*B]
        loss = self._distances(value, target)
        error = (value.detach() - target).square().amax(0)
        tensordict.set(self.tensor_keys.priority, error.unsqueeze(-1))
        return {"loss": self._reduce(loss.sum(0), tensordict)}

    def _stored_values(self, tensordict: TensorDictBase) -> Tensor:
        return values_of_choices(self, tensordict)

    def _next_value(self, after: TensorDictBase) -> Tensor:
        critic = self._critic
        return critic.best_of_online(after) if self.double_dqn else critic.best(after)

    def _set_in_keys(self) -> None:
        keys, inputs = self.tensor_keys, self.value_network.in_keys
        self._in_keys = read_keys(
            keys.action, *inputs, after=[keys.reward, keys.done, keys.terminated, *inputs]
        )

    def _make_caller(self) -> DirectQ | SwappedQ:
        direct = isinstance(self.value_network, QNetwork)
        return (DirectQ if direct else SwappedQ)(self, "value_network")

    def _bind(self) -> None:
        self._critic.bind(self)
