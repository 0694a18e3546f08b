"""Soft actor-critic over an ensemble of critics."""

from __future__ import annotations

from typing import Any, ClassVar, Literal

import torch
from tensordict import TensorDict, TensorDictBase, TensorDictParams
from tensordict.nn import TensorDictModuleBase, dispatch
from torch import Tensor
from torchrl.data import TensorSpec

from torchrl_elegant.functional import draw_members, reduce_members, soft_value
from torchrl_elegant.modules import DistributionalCritic, EnsembleCritic, Temperature
from torchrl_elegant.objectives.common.keys import ActorCriticKeys, keys_of
from torchrl_elegant.objectives.off_policy.own_networks import actor_calls, critic_calls
from torchrl_elegant.objectives.off_policy.temperature import TemperatureLoss, temperature_from
from torchrl_elegant.objectives.off_policy.torchrl_contract import has_value


class SACLoss(TemperatureLoss):
    r"""SAC (Haarnoja et al. 2018, arXiv:1812.05905) for critic ensembles of any size.

    With members :math:`Q_i`, targets :math:`\bar Q_i`, a subset :math:`M` of members and actions
    :math:`a', \tilde a` drawn from the policy:

    .. math::

        \bar V(s') &= \min_{i \in M} \bar Q_i(s', a') - \alpha \log \pi(a'|s')  \qquad (3)   \\
        y &= r + \gamma (1 - d) \bar V(s')                                                   \\
        L_Q &= \sum_i \ell(Q_i(s, a), y)                                       \qquad (5)    \\
        L_\pi &= \alpha \log \pi(\tilde a|s) - \min_i Q_i(s, \tilde a)         \qquad (7)    \\
        L_\alpha &= -\log \alpha \, (\log \pi(\tilde a|s) + \bar H)            \qquad (18)

    Equation (18) has :math:`\alpha` in the place of :math:`\log \alpha`. Both gradients have the
    same sign and the same root. By :math:`\log \alpha` the one here is
    :math:`-(\log \pi + \bar H)`, the paper's is that times :math:`\alpha`, which stops a small
    temperature from growing again. The authors' code, TorchRL and Stable-Baselines3 take the log.

    It stands where TorchRL's ``SACLoss`` stands: same arguments, keys, outputs, target parameters,
    reductions and priorities. It differs by intent in this:

    - speed: an ``EnsembleCritic`` and its actor are called directly, without vmap or parameter
      swaps (``benchmarks/sac.py`` has the measured ratio). So are TorchRL's usual networks, an
      ``MLP`` in a ``ValueOperator`` and in a ``ProbabilisticActor`` with a ``TanhNormal``
      (``benchmarks/swapped_import.py``). All others work as in TorchRL;
    - ``target_members``, ``actor_q`` and ``temperature`` are new;
    - over a ``DistributionalCritic`` it learns distributions of returns; ``OffPolicyLoss`` has the
      equation;
    - ``skip_done_states`` skips terminated states, and truncated ones only where they were not
      observed (not finite); TorchRL lets the actor see zeros in every truncated state;
    - an actor of this package leaves nothing in the batch; any other leaves what its distribution
      is made of (``loc``, ``scale``), as in TorchRL;
    - version 1 of SAC, with a state value network, is TorchRL's alone; ``delay_value``, which is
      about that network, is accepted and has no effect, as in TorchRL's version 2.

    Args:
        actor_network: stochastic policy with ``get_dist``.
        qvalue_network: an ``EnsembleCritic``, or a Q network that is then copied
            ``num_qvalue_nets`` times, or a list of such.

    Keyword Args:
        num_qvalue_nets: members made of an ordinary network; an ensemble brings its own number.
        target_members: number of members, drawn anew for each target, that enter its minimum;
            ``None`` for all.
        actor_q: Q-value that the actor maximizes, ``"min"`` or ``"mean"`` over the critics.
        temperature: a ``LearnedTemperature`` or ``FixedTemperature``; the default is made from
            ``alpha_init``, ``min_alpha``, ``max_alpha``, ``fixed_alpha`` and ``target_entropy``.

    The others are TorchRL's: ``loss_function``, ``action_spec``, ``delay_actor``, ``delay_qvalue``,
    ``separate_losses``, ``reduction``, ``skip_done_states``, ``deactivate_vmap``,
    ``use_prioritized_weights``, ``scalar_output_mode``.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> from torchrl_elegant.modules import EnsembleCritic, SquashedGaussianActor
    >>> shape = {"observation": (3,)}
    >>> actor = SquashedGaussianActor(observation=shape, low=[-1.0], high=[1.0])
    >>> loss = SACLoss(actor, EnsembleCritic(observation=shape, action_shape=(1,), num_critics=5))
    >>> state, flag = torch.zeros(4, 3), torch.zeros(4, 1, dtype=torch.bool)
    >>> after = {"observation": state, "reward": torch.ones(4, 1), "done": flag, "terminated": flag}
    >>> data = TensorDict({"observation": state, "action": torch.zeros(4, 1), "next": after}, [4])
    >>> sorted(loss(data).keys())
    ['alpha', 'entropy', 'loss_actor', 'loss_alpha', 'loss_qvalue']
    """

    _AcceptedKeys = default_keys = ActorCriticKeys
    terms: tuple[str, ...] = ("loss_actor", "loss_qvalue", "loss_alpha", "alpha", "entropy")
    target_rule: str = "min"  # over the target's members
    # True if parameters of the actor's distribution are left in the batch.
    _shows_distribution: ClassVar[bool] = True

    qvalue_network: TensorDictModuleBase
    qvalue_network_params: TensorDictParams
    target_qvalue_network_params: TensorDictParams

    def __init__(
        self,
        actor_network: TensorDictModuleBase,
        qvalue_network: TensorDictModuleBase | list[TensorDictModuleBase],
        value_network: None = None,
        *,
        num_qvalue_nets: int = 2,
        target_members: int | None = None,
        actor_q: Literal["min", "mean"] = "min",
        temperature: Temperature | None = None,
        loss_function: str = "smooth_l1",
        alpha_init: float = 1.0,
        min_alpha: float | None = None,
        max_alpha: float | None = None,
        fixed_alpha: bool = False,
        target_entropy: str | float = "auto",
        action_spec: TensorSpec | None = None,
        delay_actor: bool = False,
        delay_qvalue: bool = True,
        delay_value: bool = True,
        priority_key: str | None = None,
        separate_losses: bool = False,
        reduction: str | None = None,
        skip_done_states: bool = False,
        deactivate_vmap: bool = False,
        use_prioritized_weights: str | bool = "auto",
        scalar_output_mode: str | None = None,
    ) -> None:
        if value_network is not None:
            raise ValueError(
                f"`value_network` must be None, got `{type(value_network).__name__}`; the first "
                "version of SAC, with a state value, is torchrl.objectives.SACLoss"
            )
        super().__init__()
        self._set_deprecated_ctor_keys(priority_key=priority_key)
        self.delay_actor, self.delay_qvalue = delay_actor, delay_qvalue
        self.loss_function, self.reduction = loss_function, reduction or "mean"
        self.use_prioritized_weights = use_prioritized_weights
        self.scalar_output_mode, self.skip_done_states = scalar_output_mode, skip_done_states
        self.deactivate_vmap = deactivate_vmap
        self.target_members, self.actor_q = target_members, actor_q
        if skip_done_states and isinstance(qvalue_network, DistributionalCritic):
            raise ValueError(
                "`skip_done_states` must be False over a DistributionalCritic, got `True`; it "
                "takes any last state of an episode that terminates"
            )
        own = self._own_members(qvalue_network)
        self.num_qvalue_nets = own or num_qvalue_nets
        self._check_members()
        self._convert(
            actor_network,
            qvalue_network,
            copies=None if own else num_qvalue_nets,
            delay_critic=delay_qvalue,
            separate_losses=separate_losses,
        )
        if temperature is None:
            temperature = temperature_from(
                alpha_init=alpha_init,
                min_alpha=min_alpha,
                max_alpha=max_alpha,
                fixed_alpha=fixed_alpha,
                target_entropy=target_entropy,
            )
        self._register_temperature(temperature, action_spec)
        self._take_keys(actor_network)
        self._connect()

    @dispatch
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        terms = self.update_terms(tensordict)
        if self.reduction != "none":
            return TensorDict(terms, batch_size=[])
        scalars = {key: terms.pop(key) for key in list(terms) if not key.startswith("loss_")}
        out = TensorDict(terms, batch_size=tensordict.batch_size)
        if self.scalar_output_mode == "non_tensor":
            for key, value in scalars.items():
                out.set_non_tensor(key, value)
        return out

    def critic_terms(self, tensordict: TensorDictBase) -> dict[str, Tensor]:
        loss, metadata = self._qvalue_loss(tensordict)
        tensordict.set(self.tensor_keys.priority, metadata["td_error"])
        return {"loss_qvalue": loss}

    def actor_terms(self, tensordict: TensorDictBase) -> dict[str, Tensor]:
        return self._actor_terms(*self._actor_loss(tensordict), tensordict)

    def _next_value(self, after: TensorDictBase) -> Tensor:
        """V of the next state, ``[*B]``; 0 where it is skipped."""
        if not self.skip_done_states:
            return self._soft_value(after)
        valid = has_value(after, self.tensor_keys, self.actor_network.in_keys)
        if not valid.any():
            return torch.zeros_like(valid, dtype=self.log_alpha.dtype)
        value = self._soft_value(after[valid])
        return value.new_zeros(valid.shape).masked_scatter(valid, value)

    def _soft_value(self, after: TensorDictBase) -> Tensor:
        """Equation (3)."""
        action, log_prob = self._actor.sample(after)
        members = draw_members(self.num_qvalue_nets, self.target_members, action.device)
        values = self._critic.target(after, action, members)  # [M, *B]
        return soft_value(reduce_members(values, self.target_rule), self._alpha, log_prob)

    def _next_distribution(self, after: TensorDictBase) -> tuple[Tensor, Tensor | None]:
        action, log_prob = self._actor.sample(after)
        members = draw_members(self.num_qvalue_nets, self.target_members, action.device)
        return self._critic.target_logits(after, action, members), self._alpha * log_prob

    def _qvalue_loss(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        """Equation (5), summed over the members."""
        self._bound_temperature()
        fit = self._fit(tensordict)
        error = fit.value - fit.target
        metadata = {"error": error, "target": fit.target, "next_value": fit.next_value}
        metadata["td_error"] = error.abs().amax(0)
        return self._reduce(self._over_members(fit.losses, "sum"), tensordict), metadata

    def _actor_loss(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        """Equation (7); reaches the actor alone. Metadata: ``log_prob``, ``alpha``, ``value``."""
        self._bound_temperature()
        action, log_prob = self._actor.sample(tensordict, shows=self._shows_distribution)
        values = self._acted_values(tensordict, tensordict, action)
        value = self._over_members(values, self.actor_q)
        if value.shape[value.ndim - log_prob.ndim :] != log_prob.shape:
            raise RuntimeError(
                f"the value must have the shape of the log-prob, got `{tuple(value.shape)}` and "
                f"`{tuple(log_prob.shape)}`; the last dimension of an action is its event"
            )
        alpha = self._alpha
        loss = self._reduce(alpha * log_prob - value, tensordict)
        return loss, {"log_prob": log_prob.detach(), "alpha": alpha, "value": value.detach()}

    def _alpha_loss(self, log_prob: Tensor) -> Tensor:
        """Equation (18), per sample."""
        return -self.log_alpha * (log_prob + self.target_entropy)

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

    def _over_members(self, values: Tensor, how: str) -> Tensor:
        """One number a row of the members' ``[N, *B]``."""
        return reduce_members(values, how)

    # TorchRL's public names. It wraps methods called *loss in two context managers, which the
    # ones above do not need.

    def qvalue_loss(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        """Critics' loss; metadata with ``td_error``, the priority."""
        return self._qvalue_loss(tensordict)

    def actor_loss(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        """Actor's loss."""
        return self._actor_loss(tensordict)

    def alpha_loss(self, log_prob: Tensor) -> Tensor:
        """Temperature's loss, per sample."""
        return self._alpha_loss(log_prob)

    def _make_calls(self) -> dict[str, Any]:
        return {
            "_actor": actor_calls(self),
            "_critic": critic_calls(self, "qvalue_network", stacked=True),
        }

    def _own_members(self, critic: Any) -> int | None:
        return critic.num_critics if isinstance(critic, EnsembleCritic) else None

    def _take_keys(self, actor: TensorDictModuleBase) -> None:
        self.set_keys(**keys_of(actor))

    def _check_members(self) -> None:
        members = self.target_members
        if members is not None and not 1 <= members <= self.num_qvalue_nets:
            raise ValueError(
                f"`target_members` must lie between 1 and the {self.num_qvalue_nets} critics, got "
                f"`{members}`"
            )
        if self.actor_q not in ("min", "mean"):
            raise ValueError(f"`actor_q` must be 'min' or 'mean', got `{self.actor_q}`")
