"""REDQ: many critics, few of them in each target, and an actor that maximizes their mean."""

from __future__ import annotations

from typing import Literal

import torch
from tensordict import TensorDict, TensorDictBase
from tensordict.nn import TensorDictModuleBase, dispatch
from torch import Tensor
from torchrl.data import TensorSpec

from torchrl_elegant.modules import DistributionalCritic, EnsembleCritic, Temperature
from torchrl_elegant.objectives.common.keys import REDQKeys
from torchrl_elegant.objectives.off_policy.sac import SACLoss

_EXTRAS = (
    "state_action_value_actor",
    "action_log_prob_actor",
    "next.state_value",
    "target_value",
)


class REDQLoss(SACLoss):
    r"""Randomized ensembled double Q-learning (Chen et al. 2021, arXiv:2101.05982, algorithm 1).

    It differs from ``SACLoss`` in this, with N critics of which M are drawn anew for each target:

    .. math::

        y &= r + \gamma (1 - d) [\min_{i \in M} \bar Q_i(s', a') - \alpha \log \pi(a'|s')]      \\
        L_Q &= \frac{1}{N} \sum_i \ell(Q_i(s, a), y)                                           \\
        L_\pi &= \alpha \log \pi(\tilde a|s) - \frac{1}{N} \sum_i Q_i(s, \tilde a)             \\
        L_\alpha &= -\alpha \, (\log \pi(\cdot|\cdot) + \bar H), \text{ at } s \text{ and at } s'

    Only the M drawn members are evaluated. With ``target="weighted"`` none are drawn, and the
    minimum is replaced by :math:`\frac13 \min_i + \frac23 \mathrm{mean}_i` over all, ElegantRL's
    target. The caller of ``critic_terms`` and ``actor_terms`` decides how often the actor is
    updated; in the paper it is once in G updates of the critics. The temperature's loss has
    :math:`\alpha` itself, as in TorchRL's REDQ; ``SACLoss`` has its logarithm.

    It stands where TorchRL's ``REDQLoss`` stands: same arguments (but ``gSDE``), outputs and
    reductions. It differs by intent in this: the priority is the largest absolute error, and not
    its square; ``sub_sample_len`` is taken as given or refused, where TorchRL turns 2 of 2 into 1;
    importance weights and the steps of n-step rows count, as for ``SACLoss``; ``critic_terms``
    leaves the actor out; alpha itself is kept within its bounds, and not only where it is used.

    Keyword Args:
        num_qvalue_nets: N, for an ordinary network; an ensemble brings its own number.
        sub_sample_len: M; None for 2, or all but one where that is fewer.
        target: ``"subset"`` or ``"weighted"``.

    The others are those of ``SACLoss``, with TorchRL's bounds of alpha for REDQ.

    >>> from torchrl_elegant.modules import EnsembleCritic, SquashedGaussianActor
    >>> shape = {"observation": (3,)}
    >>> actor = SquashedGaussianActor(observation=shape, low=[-1.0], high=[1.0])
    >>> critic = EnsembleCritic(observation=shape, action_shape=(1,), num_critics=10)
    >>> REDQLoss(actor, critic).sub_sample_len
    2
    """

    _AcceptedKeys = default_keys = REDQKeys
    _entropy_buffer = "target_entropy_buffer"
    _shows_distribution = False

    def __init__(
        self,
        actor_network: TensorDictModuleBase,
        qvalue_network: TensorDictModuleBase | list[TensorDictModuleBase],
        *,
        num_qvalue_nets: int = 10,
        sub_sample_len: int | None = None,
        target: Literal["subset", "weighted"] = "subset",
        temperature: Temperature | None = None,
        loss_function: str = "smooth_l1",
        alpha_init: float = 1.0,
        min_alpha: float | None = 0.1,
        max_alpha: float | None = 10.0,
        action_spec: TensorSpec | None = None,
        fixed_alpha: bool = False,
        target_entropy: str | float = "auto",
        delay_qvalue: bool = True,
        priority_key: str | None = None,
        separate_losses: bool = False,
        reduction: str | None = None,
        deactivate_vmap: bool = False,
        use_prioritized_weights: str | bool = "auto",
        scalar_output_mode: str | None = None,
    ) -> None:
        if isinstance(qvalue_network, DistributionalCritic):
            raise ValueError(
                "`qvalue_network` must predict values, got `DistributionalCritic`; its losses are "
                "SACLoss and TD3Loss"
            )
        if isinstance(qvalue_network, EnsembleCritic):
            num_qvalue_nets = qvalue_network.num_critics
        super().__init__(
            actor_network,
            qvalue_network,
            num_qvalue_nets=num_qvalue_nets,
            target_members=_members(num_qvalue_nets, sub_sample_len, target),
            actor_q="mean",
            temperature=temperature,
            loss_function=loss_function,
            alpha_init=alpha_init,
            min_alpha=min_alpha,
            max_alpha=max_alpha,
            fixed_alpha=fixed_alpha,
            target_entropy=target_entropy,
            action_spec=action_spec,
            delay_qvalue=delay_qvalue,
            priority_key=priority_key,
            separate_losses=separate_losses,
            reduction=reduction,
            deactivate_vmap=deactivate_vmap,
            use_prioritized_weights=use_prioritized_weights,
            scalar_output_mode=scalar_output_mode,
        )
        self.target_rule = "min" if target == "subset" else "weighted"
        self._out_keys = [*self.terms, *_EXTRAS]
        if fixed_alpha and temperature is None:
            # A fixed alpha does not need them, but TorchRL's checkpoints have them.
            for name, bound in (("min_log_alpha", min_alpha), ("max_log_alpha", max_alpha)):
                if bound is not None:
                    delattr(self, name)
                    self.register_buffer(name, torch.tensor(bound, device=self.device).log())

    def _set_in_keys(self) -> None:
        super()._set_in_keys()
        # TorchRL lists it; neither reads it.
        self.in_keys = list(dict.fromkeys([*self.in_keys, self.tensor_keys.sample_log_prob]))

    @property
    def sub_sample_len(self) -> int:
        """Number of members that enter a target."""
        members = self.target_members
        return self.num_qvalue_nets if members is None else members

    @dispatch
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        loss_qvalue, critic = self._qvalue_loss(tensordict)
        tensordict.set(self.tensor_keys.priority, critic["td_error"])
        loss_actor, actor = self._actor_loss(tensordict)
        seen = (actor["value"], actor["log_prob"][0], critic["next_value"], critic["target"])
        terms = self._actor_terms(loss_actor, actor, tensordict)
        terms |= {"loss_qvalue": loss_qvalue, **dict(zip(_EXTRAS, seen, strict=True))}
        scalars = {name: terms.pop(name) for name in ("alpha", "entropy")}
        if self.reduction != "none":
            terms |= scalars
        out = TensorDict(terms, batch_size=[])
        if self.reduction == "none" and self.scalar_output_mode == "non_tensor":
            for name, value in scalars.items():
                out.set_non_tensor(name, value)
        return out

    def _actor_loss(self, tensordict: TensorDictBase) -> tuple[Tensor, dict[str, Tensor]]:
        loss, metadata = super()._actor_loss(tensordict)
        with torch.no_grad():
            after = self._actor.sample(tensordict.get("next"))[1]
        metadata["log_prob"] = torch.stack([metadata["log_prob"], after])  # [2, *B]
        return loss, metadata

    def _alpha_loss(self, log_prob: Tensor) -> Tensor:
        return -self.log_alpha.exp() * (log_prob + self.target_entropy)

    def _over_members(self, values: Tensor, how: str) -> Tensor:
        # Left to the reduction: members are averaged, summed or kept as rows are.
        return values

    def _reduce(self, loss: Tensor, tensordict: TensorDictBase) -> Tensor:
        if self.reduction == "none":
            return super()._reduce(loss, tensordict.expand(loss.shape[0], *tensordict.batch_size))
        over = loss.mean(0) if self.reduction == "mean" else loss.sum(0)
        return super()._reduce(over, tensordict)


def _members(total: int, members: int | None, target: str) -> int | None:
    if target not in ("subset", "weighted"):
        raise ValueError(f"`target` must be 'subset' or 'weighted', got `{target}`")
    if target == "weighted":
        if members is not None:
            raise ValueError(
                "`sub_sample_len` must be None with target='weighted', which takes all members, "
                f"got `{members}`"
            )
        return None
    if members is None:
        return max(1, min(2, total - 1))
    if not 1 <= members <= total:
        raise ValueError(
            f"`sub_sample_len` must lie between 1 and the {total} critics, got `{members}`; pass "
            "fewer, or more critics as `num_qvalue_nets`"
        )
    return members
