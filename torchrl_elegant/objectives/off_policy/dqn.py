"""Q-learning over discrete actions."""

from __future__ import annotations

from typing import Any

import torch
from tensordict import TensorDict, TensorDictBase, TensorDictParams
from tensordict.nn import TensorDictModuleBase, dispatch
from torch import Tensor, nn
from torchrl.data import TensorSpec
from torchrl.data.utils import _find_action_space
from torchrl.modules import DistributionalQValueActor, QValueActor
from torchrl.modules.tensordict_module.common import ensure_tensordict_compatible

from torchrl_elegant.functional import chosen
from torchrl_elegant.modules import QNetwork
from torchrl_elegant.objectives.common.keys import QValueKeys
from torchrl_elegant.objectives.off_policy.base import OffPolicyLoss
from torchrl_elegant.objectives.off_policy.own_networks import q_network_calls
from torchrl_elegant.objectives.off_policy.torchrl_contract import read_keys


class QLearningLoss(OffPolicyLoss):
    """Base of losses of Q(s, .): their options, and the one term that they have."""

    terms = ("loss",)

    def _take(
        self,
        network: nn.Module,
        *,
        loss_function: str | None,
        delay_value: bool,
        double_dqn: bool,
        action_space: str | TensorSpec | None,
        priority_key: str | None,
        reduction: str | None,
        use_prioritized_weights: str | bool,
    ) -> TensorDictModuleBase:
        """Keep the options; returns ``network`` as a module that names its own greedy action."""
        if double_dqn and not delay_value:
            raise ValueError(
                f"`delay_value` must be True with double_dqn, got `{delay_value}`; the online "
                "network chooses and the target network judges"
            )
        self.delay_value, self.double_dqn = delay_value, double_dqn
        self.loss_function, self.reduction = loss_function, reduction or "mean"
        self.use_prioritized_weights = use_prioritized_weights
        self._set_deprecated_ctor_keys(priority=priority_key)
        network = ensure_tensordict_compatible(
            module=network, wrapper_type=QValueActor, action_space=action_space
        )
        self.action_space = action_space_of(network, action_space)
        return network

    @dispatch
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        return TensorDict(self.critic_terms(tensordict), batch_size=[])


class DQNLoss(QLearningLoss):
    r"""DQN (Mnih et al. 2015) and Double DQN (van Hasselt et al. 2016, arXiv:1509.06461).

    .. math::

        y &= r + \gamma (1 - d) \max_a \bar Q(s', a)                                            \\
        y &= r + \gamma (1 - d) \bar Q(s', \arg\max_a Q(s', a)) \quad \text{(double, eq. 4)}    \\
        L &= \ell(Q(s, a), y)

    It stands where TorchRL's ``DQNLoss`` stands: same arguments, keys, output, target parameters
    and reductions. It differs by intent in this:

    - speed: a ``QNetwork`` is called directly, without parameter swaps or TensorDicts
      (``benchmarks/off_policy.py`` has the measured ratio), and so is a ``QValueActor`` over an
      ``MLP``; other networks work as in TorchRL;
    - the priority is the largest absolute error of a member, and not its square;
    - a ``QNetwork`` may have several members. Each learns, and the target takes the minimum of
      theirs: :math:`\max_a \min_i \bar Q_i(s', a)`, or :math:`\min_i \bar Q_i` at the action that
      the members prefer on average. The first, with two members, is ElegantRL's D3QN.

    A recurrent network starts the next steps from the state to which the online network, with its
    present parameters, has just come, as in TorchRL. The state that was stored under ``next`` is
    that of an older policy; such states make targets stale (Kapturowski et al. 2019, "Recurrent
    experience replay in distributed reinforcement learning", section 3).

    Args:
        value_network: a ``QNetwork``, a ``QValueActor``, or a module that one can be made of.

    Keyword Args:
        double_dqn: let the online network choose the next action; needs ``delay_value``.
        action_space: a name or a spec; by default that of the network.

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

    _AcceptedKeys = default_keys = QValueKeys
    critic_name = "value_network"

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
        if isinstance(value_network, DistributionalQValueActor):
            raise ValueError(
                "`value_network` must give one value per action, got "
                "`DistributionalQValueActor`; its loss is torchrl.objectives.DistributionalDQNLoss"
            )
        super().__init__()
        network = self._take(
            value_network,
            loss_function=loss_function,
            delay_value=delay_value,
            double_dqn=double_dqn,
            action_space=action_space,
            priority_key=priority_key,
            reduction=reduction,
            use_prioritized_weights=use_prioritized_weights,
        )
        self.convert_to_functional(network, "value_network", create_target_params=delay_value)
        self.value_network_in_keys = network.in_keys
        self._connect()

    def critic_terms(self, tensordict: TensorDictBase) -> dict[str, Tensor]:
        """All terms; writes the priority into ``tensordict``."""
        values, after = self._critic.online_and_next(tensordict)  # [N, *B, n]
        value = values_of_choices(self, values, tensordict)  # [N, *B]
        with torch.no_grad():
            next_value = self._next_value(after)
        target = self._target_value(tensordict, next_value)  # [*B]
        loss = self._distances(value, target)
        error = (value.detach() - target).abs().amax(0)
        tensordict.set(self.tensor_keys.priority, error.unsqueeze(-1))
        return {"loss": self._reduce(loss.sum(0), tensordict)}

    def _stored_values(self, tensordict: TensorDictBase) -> Tensor:
        return values_of_choices(self, self._critic.online(tensordict), tensordict)

    def _next_value(self, after: TensorDictBase) -> Tensor:
        critic = self._critic
        return critic.best_of_online(after) if self.double_dqn else critic.best(after)

    def _make_calls(self) -> dict[str, Any]:
        return {"_critic": q_network_calls(self, "value_network", stacked=False)}

    def _set_in_keys(self) -> None:
        keys, inputs = self.tensor_keys, self.value_network.in_keys
        self._in_keys = read_keys([keys.action, *inputs], keys, inputs)


def values_of_choices(loss: OffPolicyLoss, values: Tensor, tensordict: TensorDictBase) -> Tensor:
    """Those of ``values`` ``[N, *B, n]`` that the actions in ``tensordict`` have, ``[N, *B]``."""
    action = tensordict.get(loss.tensor_keys.action)
    return chosen(values, action.expand(values.shape[0], *action.shape), loss.action_space)


def action_space_of(network: Any, given: str | TensorSpec | None) -> str:
    """TorchRL's name of the action space: the ``given`` one, or else that of ``network``.

    >>> from types import SimpleNamespace
    >>> action_space_of(SimpleNamespace(action_space="categorical"), None)
    'categorical'
    """
    for found in (given, getattr(network, "action_space", None), getattr(network, "spec", None)):
        if found is not None:
            return _find_action_space(found)
    raise ValueError(
        f"`action_space` must be given for a network of type `{type(network).__name__}`, got "
        "`None`; pass a spec, or one of one-hot, mult-one-hot, binary, categorical"
    )
