"""Q-learning of a team, whose value is mixed from those of its agents."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

import torch
from tensordict import NestedKey, TensorDictBase, TensorDictParams, unravel_key
from tensordict.nn import TensorDictModule, TensorDictModuleBase
from torch import Tensor, nn
from torchrl.data import TensorSpec
from torchrl.modules import QValueActor
from torchrl.modules.models.multiagent import Mixer

from torchrl_elegant.functional import chosen, path_of
from torchrl_elegant.objectives.common.keys import StepKeys
from torchrl_elegant.objectives.off_policy.dqn import QLearningLoss, values_of_choices
from torchrl_elegant.objectives.off_policy.foreign_networks import ForeignNetwork
from torchrl_elegant.objectives.off_policy.own_networks import OwnNetwork, q_network_calls
from torchrl_elegant.objectives.off_policy.torchrl_contract import read_keys
from torchrl_elegant.objectives.off_policy.torchrl_networks import is_plain_call


@dataclass
class QMixKeys(StepKeys):
    """Keys of a loss with a value for each agent and one for the team.

    >>> QMixKeys().value
    'chosen_action_value'
    """

    action: NestedKey = ("agents", "action")
    action_value: NestedKey = ("agents", "action_value")
    local_value: NestedKey = ("agents", "chosen_action_value")
    global_value: NestedKey = "chosen_action_value"
    advantage: NestedKey = "advantage"
    value_target: NestedKey = "value_target"
    priority: NestedKey = "td_error"
    priority_weight: NestedKey = "priority_weight"

    @property
    def value(self) -> NestedKey:
        """Entry in which value estimators look for the next state's value."""
        return self.global_value


class QMixLoss(QLearningLoss):
    r"""QMIX (Rashid et al. 2018, arXiv:1803.11485, eq. 6) and VDN (Sunehag et al. 2018).

    .. math::

        Q_{tot}(s, a) &= \mathrm{mix}(Q_1(o_1, a_1), \dots, Q_n(o_n, a_n);\, s)                 \\
        y &= r + \gamma (1 - d) \bar Q_{tot}(s', a')                                            \\
        a'_i &= \arg\max \bar Q_i(o'_i, \cdot)                                                  \\
        a'_i &= \arg\max Q_i(o'_i, \cdot) \quad \text{(double)}                                 \\
        L &= \ell(Q_{tot}(s, a), y)

    r and d are those of the team: a reward of one number a row, or one for each agent, which are
    joined. The mixer decides which algorithm this is: TorchRL's ``VDNMixer``, or ``QMixer`` of this
    package.

    It stands where TorchRL's ``QMixerLoss`` stands: same arguments, keys, output and target
    parameters. It differs by intent in this: ``double_dqn``, ``reduction`` and importance weights,
    which TorchRL's ignores; the priority is the absolute error and not its square.

    Args:
        local_value_network: values of the actions of each agent, with the agents in the last but
            one dimension: a ``QValueActor``, or a module that one can be made of.
        mixer_network: reads the values that the agents have chosen, and perhaps a state.

    Keyword Args:
        double_dqn: let the online network choose the next actions; needs ``delay_value``.
        action_space: a name or a spec; by default that of the network.
        team_reward: ``"mean"`` or ``"sum"`` over the agents, where the entry of the reward has one
            for each, ``[*B, agents, 1]``.

    The others are TorchRL's: ``loss_function``, ``delay_value``, ``priority_key``, ``reduction``,
    ``use_prioritized_weights``.

    >>> from tensordict import TensorDict
    >>> from torchrl.modules import QValueModule, SafeSequential
    >>> from torchrl.modules.models.multiagent import VDNMixer
    >>> values = TensorDictModule(
    ...     nn.Linear(4, 3), [("agents", "observation")], [("agents", "action_value")]
    ... )
    >>> keys = [("agents", name) for name in ("action", "action_value", "chosen_action_value")]
    >>> choice = QValueModule("categorical", action_value_key=keys[1], out_keys=keys)
    >>> network, mixer = SafeSequential(values, choice), VDNMixer(n_agents=2, device="cpu")
    >>> loss = QMixLoss(network, mixer, action_space="categorical")
    >>> flag, seen = torch.zeros(8, 1, dtype=torch.bool), {"observation": torch.zeros(8, 2, 4)}
    >>> after = {"agents": seen, "reward": torch.ones(8, 1), "done": flag, "terminated": flag}
    >>> agents = seen | {"action": torch.zeros(8, 2, dtype=torch.int64)}
    >>> data = TensorDict({"agents": agents, "next": after}, [8])
    >>> list(loss(data).keys()), data["td_error"].shape
    (['loss'], torch.Size([8, 1]))
    """

    _AcceptedKeys = default_keys = QMixKeys
    critic_name = "local_value_network"

    local_value_network: TensorDictModuleBase
    local_value_network_params: TensorDictParams
    target_local_value_network_params: TensorDictParams
    mixer_network: TensorDictModuleBase
    mixer_network_params: TensorDictParams
    target_mixer_network_params: TensorDictParams

    def __init__(
        self,
        local_value_network: QValueActor | nn.Module,
        mixer_network: TensorDictModule | nn.Module,
        *,
        loss_function: str | None = "l2",
        delay_value: bool = True,
        double_dqn: bool = False,
        action_space: str | TensorSpec | None = None,
        team_reward: Literal["mean", "sum"] = "mean",
        priority_key: str | None = None,
        reduction: str | None = None,
        use_prioritized_weights: str | bool = "auto",
    ) -> None:
        if team_reward not in ("mean", "sum"):
            raise ValueError(f"`team_reward` must be 'mean' or 'sum', got `{team_reward}`")
        super().__init__()
        self.team_reward = team_reward
        local = self._take(
            local_value_network,
            loss_function=loss_function,
            delay_value=delay_value,
            double_dqn=double_dqn,
            action_space=action_space,
            priority_key=priority_key,
            reduction=reduction,
            use_prioritized_weights=use_prioritized_weights,
        )
        for name, network in (
            ("local_value_network", local),
            ("mixer_network", _mixer_module(mixer_network, self.tensor_keys)),
        ):
            self.convert_to_functional(network, name, create_target_params=delay_value)
        self._connect()

    def critic_terms(self, tensordict: TensorDictBase) -> dict[str, Tensor]:
        """All terms; writes the priority into ``tensordict``."""
        values, after = self._critic.online_and_next(tensordict)  # [1, *B, agents, n]
        chosen_values = values_of_choices(self, values, tensordict)[0]  # [*B, agents]
        value = self._mixer.online(chosen_values, tensordict)  # [*B]
        with torch.no_grad():
            next_value = self._next_value(after)
        target = self._target_value(tensordict, next_value)
        loss = self._distances(value.unsqueeze(0), target)[0]
        error = (value.detach() - target).abs()
        tensordict.set(self.tensor_keys.priority, error.unsqueeze(-1))
        return {"loss": self._reduce(loss, tensordict)}

    def _target_value(self, tensordict: TensorDictBase, next_value: Tensor | None = None) -> Tensor:
        key = ("next", self.tensor_keys.reward)
        reward = tensordict.get(key)
        if reward.ndim > tensordict.ndim + 1:  # of each agent
            joined = reward.mean(-2) if self.team_reward == "mean" else reward.sum(-2)
            tensordict = tensordict.copy()
            if len(path := path_of(unravel_key(key))) > 2:
                # The entries of a group may have the agents in their batch.
                tensordict.get(path[:-1]).batch_size = tensordict.batch_size
            tensordict.set(key, joined)
        return super()._target_value(tensordict, next_value)

    def _next_value(self, after: TensorDictBase) -> Tensor:
        values = self._critic.target(after)[0]
        judged = self._critic.online(after)[0] if self.double_dqn else values
        best = chosen(values, judged.argmax(-1), "categorical")
        return self._mixer.target(best, after)

    def _stored_values(self, tensordict: TensorDictBase) -> Tensor:
        values = values_of_choices(self, self._critic.online(tensordict), tensordict)[0]
        return self._mixer.online(values, tensordict).unsqueeze(0)

    def _make_calls(self) -> dict[str, Any]:
        mixer = self.mixer_network
        is_plain = type(mixer) is TensorDictModule and is_plain_call(mixer)
        return {
            "_critic": q_network_calls(self, "local_value_network", stacked=False),
            "_mixer": (_BoundMixer if is_plain else _Mixer)(self, "mixer_network"),
        }

    def _set_in_keys(self) -> None:
        keys, local = self.tensor_keys, self.local_value_network.in_keys
        mixed = [key for key in self.mixer_network.in_keys if key != keys.local_value]
        self._in_keys = read_keys([keys.action, *local, *mixed], keys, [*local, *mixed])


def _mixer_module(mixer: nn.Module, keys: QMixKeys) -> TensorDictModuleBase:
    if isinstance(mixer, TensorDictModuleBase):
        return mixer
    if isinstance(mixer, Mixer) and mixer.needs_state:
        raise ValueError(
            f"`mixer_network` must say where its state is, got `{type(mixer).__name__}`; wrap it: "
            f"TensorDictModule(mixer, [{keys.local_value!r}, 'state'], [{keys.global_value!r}])"
        )
    return TensorDictModule(mixer, in_keys=[keys.local_value], out_keys=[keys.global_value])


class _BoundMixer(OwnNetwork):
    """``_Mixer`` of a module of tensors, which keeps the loss's own: no swap, no TensorDict."""

    def __init__(self, loss: QMixLoss, name: str) -> None:
        super().__init__(loss, name)
        self.loss = loss

    def bind(self, loss: Any) -> None:
        """Hold the loss's own parameters; a sum has none."""
        self._is_bare = f"{self.name}_params" not in loss._watched
        if not self._is_bare:
            super().bind(loss)

    @property
    def network(self) -> Any:
        return self._online.network if self._is_bare else super().network

    @property
    def delayed(self) -> Any:
        return self._online.network if self._is_bare else super().delayed

    def online(self, values: Tensor, tensordict: TensorDictBase) -> Tensor:
        return self._mixed(self.network, values, tensordict)

    def target(self, values: Tensor, tensordict: TensorDictBase) -> Tensor:
        return self._mixed(self.delayed, values, tensordict)

    def _mixed(self, network: Any, values: Tensor, tensordict: TensorDictBase) -> Tensor:
        own = self.loss.tensor_keys.local_value
        given = [
            values.unsqueeze(-1) if key == own else tensordict.get(key) for key in network.in_keys
        ]
        mixed: Tensor = network.module(*given)
        return mixed.squeeze(-1)


class _Mixer(ForeignNetwork):
    """The team's value ``[*B]`` of the agents' ``[*B, agents]``."""

    def online(self, values: Tensor, tensordict: TensorDictBase) -> Tensor:
        return self._mixed(values, tensordict, self.params)

    def target(self, values: Tensor, tensordict: TensorDictBase) -> Tensor:
        return self._mixed(values, tensordict, self.target_params)

    def _mixed(self, values: Tensor, tensordict: TensorDictBase, params: Any) -> Tensor:
        keys = self.loss.tensor_keys
        data = tensordict.select(*self.network.in_keys, strict=False)
        data.set(keys.local_value, values.unsqueeze(-1))
        return self.swapped(data, params).get(keys.global_value).squeeze(-1)
