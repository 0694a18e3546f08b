"""The Hamiltonian term as a loss over slices of trajectories."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, get_args

import torch
from tensordict import TensorDict, TensorDictBase, TensorDictParams
from tensordict.nn import TensorDictModuleBase, dispatch
from tensordict.utils import NestedKey
from torch import Tensor, nn
from torchrl.objectives import LossModule

from torchrl_elegant.functional import (
    Form,
    Steps,
    bellman_target,
    hamiltonian,
    hamiltonian_slope,
    steps_of,
)
from torchrl_elegant.objectives.common.bound_networks import BoundNetworks
from torchrl_elegant.objectives.common.keys import HamiltonianKeys
from torchrl_elegant.objectives.hamiltonian.stored_actions import (
    bind_actor,
    joint,
    stored_keys,
    stored_log_prob,
)
from torchrl_elegant.objectives.on_policy.written_gradients import backward_policy

# Numbers that hardly differ are divided by their size instead, so that noise stays small.
_LEAST_SPREAD = 0.1
_AT_FIRST = {"mean": 0.0, "variance": 1.0, "count": 0.0}


class RunningScale(nn.Module):
    """Mean and spread: exact over the first ``window`` numbers, then an average that forgets.

    With s, the share of a batch in all that counts, mean and variance move by (West 1979)

    ``mu += s (mu_b - mu)``, ``var <- (1 - s) (var + s (mu_b - mu)^2) + s var_b``

    Before the first number they are 0 and 1.

    >>> scale = RunningScale(window=100)
    >>> scale.observe(torch.tensor([1.0, 3.0]), torch.tensor([True, True]))
    >>> scale.mean.item(), scale.spread.item()
    (2.0, 1.0)
    """

    mean: Tensor
    variance: Tensor
    count: Tensor

    def __init__(self, *, window: int) -> None:
        super().__init__()
        if window < 1:
            raise ValueError(f"`window` must be at least 1, got `{window}`")
        self.window = window
        for name, value in _AT_FIRST.items():
            self.register_buffer(name, torch.tensor(value))

    @property
    def spread(self) -> Tensor:
        """Standard deviation; at least a tenth of the mean, whatever its sign."""
        least = (_LEAST_SPREAD * self.mean.abs()).clamp(min=1e-8)
        return self.variance.sqrt().maximum(least)

    def reset(self) -> None:
        """Forget all numbers."""
        for name, value in _AT_FIRST.items():
            getattr(self, name).fill_(value)

    @torch.no_grad()
    def observe(self, values: Tensor, counts: Tensor) -> None:
        """Update with those of ``values`` that count, without waiting for a GPU."""
        values, number = values.to(self.mean.dtype), counts.sum()
        whole = number.clamp(min=1)
        mean = (values * counts).sum() / whole
        variance = ((values - mean).square() * counts).sum() / whole
        most = number.clamp(min=self.window)
        share = number / (self.count + number).clamp(min=1).minimum(most)
        apart = mean - self.mean
        self.variance.copy_(torch.lerp(self.variance + share * apart.square(), variance, share))
        self.mean.add_(share * apart)
        self.count.add_(number)


Baseline = Literal["mean", "value", "zero"]


def slice_rewards(
    slices: TensorDictBase, *, keys: HamiltonianKeys, gamma: float, baseline: Baseline
) -> Tensor:
    """The rewards of slices, ``[L, K]``; ``r + gamma V(s') - V(s)`` for the baseline ``"value"``.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> after = {"reward": torch.ones(1, 1, 1), "state_value": torch.full((1, 1, 1), 4.0)}
    >>> after["terminated"] = torch.zeros(1, 1, 1, dtype=torch.bool)
    >>> slices = TensorDict({"state_value": torch.full((1, 1, 1), 2.0), "next": after}, [1, 1])
    >>> slice_rewards(slices, keys=HamiltonianKeys(), gamma=0.5, baseline="value").item()
    1.0
    """
    after = slices.get("next")
    reward = after.get(keys.reward)
    if baseline == "value":
        require_values(slices, keys.value)
        next_value, terminated = after.get(keys.value), after.get(keys.terminated)
        reward = bellman_target(reward, terminated, next_value, gamma) - slices.get(keys.value)
    return reward.squeeze(-1)


def require_values(steps: TensorDictBase, key: NestedKey) -> None:
    """Refuse steps without the values that the baseline ``"value"`` needs."""
    if steps.get(key, None) is None or steps.get(("next", key), None) is None:
        raise KeyError(
            f"slices must hold `{key}`, in `next` too, for baseline='value'; have a value "
            "estimator write them, or take baseline='mean'"
        )


def as_slices(tensordict: TensorDictBase, done_key: NestedKey) -> TensorDictBase:
    """Slices with the shape ``[L, K]``, which single tensors do not tell.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> as_slices(TensorDict({"next": {"done": torch.ones(5, 3, 1)}}, []), "done").shape
    torch.Size([5, 3])
    """
    shape = tensordict.get(("next", done_key)).shape[:-1]
    if len(shape) != 2:
        raise ValueError(
            f"slices must have the shape [slices, steps], got `{list(shape)}`; reshape the batch "
            "of a SliceSampler"
        )
    if tensordict.shape != shape:
        tensordict = tensordict.copy()
        tensordict.batch_size = shape
    return tensordict


_FORMS, _BASELINES = get_args(Form), get_args(Baseline)
_REDUCTIONS = ("mean", "sum", "none")


class HamiltonianLoss(BoundNetworks, LossModule):
    r"""Lowers the energy of a policy in ElegantRL's H-term: minus its K-step return.

    Over L slices of K steps ``[L, K]``, none of which goes on beyond its episode:

    .. math::

        L_H = -\frac{w}{L} \sum_l \sum_k \gamma^{k-1} m_k \frac{r_k - b}{\sigma_r} \phi(c_k),
        \quad c_k = \sum_{j \le k} [\log \pi(a_j|s_j) - \log \mu_j]

    ``functional.hamiltonian`` has the forms of :math:`\phi`. On slices of the present policy, the
    gradient of ``log`` and ``ratio`` is that of its K-step return. Steps after a termination have
    the reward 0, so that b cancels; those after a truncation do not count.

    ``b`` and ``sigma_r`` are the running mean and spread of the rewards given to ``observe``; 0 and
    1 before.

    Args:
        actor_network: the policy that a base loss trains as well; stochastic, or deterministic.

    Keyword Args:
        weight: w.
        gamma: discount factor within a slice.
        form: one of ``functional.hamiltonian``'s; None for ``"ratio"`` where slices hold a stored
            log-probability and ``"log"`` where not.
        baseline: ``"mean"`` for b as above, ``"zero"`` for 0. ``"value"`` replaces r by
            :math:`r + \gamma V(s') - V(s)`, from the values that slices hold, and takes b of that.
        clip_epsilon: bound of ``ratio``, which needs it.
        sigma: spread around a deterministic actor's action, which needs it; see
            ``stored_log_prob``.
        value_gamma: discount factor that those values were learned with; None for gamma.
        window: number of rewards that mean and spread remember.
        reduction: ``"mean"``, ``"sum"`` or ``"none"``, over slices.

    >>> from torchrl_elegant.modules import CategoricalActor
    >>> actor = CategoricalActor(observation={"observation": (1,)}, choices=2)
    >>> flag = torch.zeros(5, 3, 1, dtype=torch.bool)
    >>> after = {"reward": torch.ones(5, 3, 1), "done": flag, "terminated": flag}
    >>> slices = TensorDict({"observation": torch.zeros(5, 3, 1), "next": after}, [5, 3])
    >>> slices = actor(slices).detach()
    >>> loss = HamiltonianLoss(actor, weight=1.0, gamma=0.5, form="log", baseline="zero")
    >>> round(loss(slices)["loss_hamiltonian"].item(), 4)  # (1 + 2/2 + 3/4) log 2
    1.9062
    """

    _AcceptedKeys = HamiltonianKeys
    default_keys = HamiltonianKeys
    tensor_keys: HamiltonianKeys
    out_keys = ("loss_hamiltonian",)

    actor_network: TensorDictModuleBase
    actor_network_params: TensorDictParams
    target_actor_network_params: TensorDictParams

    def __init__(
        self,
        actor_network: TensorDictModuleBase,
        *,
        weight: float,
        gamma: float,
        form: Form | None,
        baseline: Baseline,
        clip_epsilon: float | None = None,
        sigma: float | None = None,
        value_gamma: float | None = None,
        window: int = 10_000,
        reduction: str | None = None,
    ) -> None:
        super().__init__()
        self.reduction = "mean" if reduction is None else reduction
        for sound, name, must, value in (
            (weight >= 0.0, "weight", "be 0 or more", weight),
            (0.0 <= gamma <= 1.0, "gamma", "lie in [0, 1]", gamma),
            (form in (None, *_FORMS), "form", f"be one of {', '.join(_FORMS)} or None", form),
            (_fits(clip_epsilon, form), "clip_epsilon", "lie in (0, 1) for a ratio", clip_epsilon),
            (baseline in _BASELINES, "baseline", f"be one of {', '.join(_BASELINES)}", baseline),
            (sigma is None or sigma > 0.0, "sigma", "be positive or None", sigma),
            (self.reduction in _REDUCTIONS, "reduction", "be mean, sum or none", reduction),
        ):
            if not sound:
                raise ValueError(f"`{name}` must {must}, got `{value}`")
        self.weight, self.gamma, self.form, self.clip_epsilon = weight, gamma, form, clip_epsilon
        self.baseline, self.sigma = baseline, sigma
        self.value_gamma = gamma if value_gamma is None else value_gamma
        self.convert_to_functional(actor_network, "actor_network")
        device = next(self.actor_network_params.parameters()).device
        self.scale = RunningScale(window=window).to(device)
        self.set_keys(**stored_keys(actor_network))
        self._connect()

    @property
    def in_keys(self) -> list[NestedKey]:
        """Entries that slices must hold; a mask and a stored log-probability are optional."""
        keys = self.tensor_keys
        after = [("next", name) for name in (keys.reward, keys.done, keys.terminated)]
        return [*self.actor_network.in_keys, keys.action, *after, *self._values]

    @property
    def store_keys(self) -> list[NestedKey]:
        """Entries of each step that a store must keep, beside its reward and flags."""
        keys = self.tensor_keys
        drawn = [keys.sample_log_prob] if self.form in (None, "ratio") else []
        return [*self.actor_network.in_keys, keys.action, *drawn, *self._values]

    @property
    def _values(self) -> list[NestedKey]:
        key = self.tensor_keys.value
        return [key, ("next", key)] if self.baseline == "value" else []

    @dispatch
    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        slices = as_slices(tensordict, self.tensor_keys.done)
        real, constants = self.constants(slices)
        log_prob = stored_log_prob(self, slices, sigma=self.sigma).masked_fill(~real, 0.0)
        energy = hamiltonian(log_prob, **constants)  # [L]
        loss = self.weight * energy
        if self.reduction != "none":
            loss = loss.mean() if self.reduction == "mean" else loss.sum()
        return TensorDict({"loss_hamiltonian": loss}, loss.shape)

    def constants(self, slices: TensorDictBase) -> tuple[Tensor, dict[str, Any]]:
        """Mask of real steps, and the arguments of ``hamiltonian`` beside ``log pi``."""
        steps, behavior = self._steps(slices), slices.get(self.tensor_keys.sample_log_prob, None)
        form = self.form or ("log" if behavior is None else "ratio")
        behavior = self._behavior(behavior, steps) if form == "ratio" else None
        gain = self._gain(slices, steps)
        clip = self.clip_epsilon
        return steps.real, {"gain": gain, "behavior": behavior, "form": form, "clip": clip}

    def observe(self, slices: TensorDictBase) -> None:
        """Update the mean and spread of rewards with newly collected slices."""
        steps = self._steps(slices)
        self.scale.observe(self._rewards(slices).masked_fill(~steps.real, 0.0), steps.rewarded)

    def _rewards(self, slices: TensorDictBase) -> Tensor:
        keys, gamma = self.tensor_keys, self.value_gamma
        return slice_rewards(slices, keys=keys, gamma=gamma, baseline=self.baseline)

    def _behavior(self, stored: Tensor | None, steps: Steps) -> Tensor:
        if stored is None:
            raise KeyError(
                f"slices must hold `{self.tensor_keys.sample_log_prob}` for form='ratio'; collect "
                "it, or take form='log'"
            )
        return joint(stored, 2).masked_fill(~steps.real, 0.0)

    def _gain(self, slices: TensorDictBase, steps: Steps) -> Tensor:
        """``gamma^(k-1) m_k (r_k - b) / sigma_r``, ``[L, K]``."""
        reward = self._rewards(slices).masked_fill(~steps.real, 0.0)
        if self.baseline != "zero":
            reward = reward - self.scale.mean
        at = torch.arange(reward.shape[1], device=reward.device, dtype=reward.dtype)
        return torch.pow(self.gamma, at) * steps.rewarded * reward / self.scale.spread

    def _steps(self, slices: TensorDictBase) -> Steps:
        keys = self.tensor_keys
        done, terminated = (
            slices.get(("next", key)).squeeze(-1) for key in (keys.done, keys.terminated)
        )
        return steps_of(done, terminated, slices.get(keys.mask, None))

    def backward_term(self, slices: TensorDictBase) -> Tensor:
        """``loss_hamiltonian`` of slices ``[L, K]``; adds its gradient to the parameters.

        Written out for the actors that ``backward_policy`` covers, by autograd for others.
        """
        if self.reduction == "mean" and not self._has_guests("actor_network"):
            actor, action = self.actor_network, self.tensor_keys.action
            rows = {key: slices.get(key).flatten(0, 1) for key in (*actor.in_keys, action)}
            term = backward_policy(actor, rows, action, partial(self._gain_slope, slices))
            if term is not None:
                return term
        term = self(slices).get("loss_hamiltonian")
        term.sum().backward()
        return term.detach()

    def _gain_slope(self, slices: TensorDictBase, log_prob: Tensor) -> tuple[Tensor, Tensor]:
        """Gain ``[L]`` whose mean is minus the loss, and a slope for the mean over all steps."""
        real, constants = self.constants(slices)
        energy, slope = hamiltonian_slope(
            log_prob.view_as(real).masked_fill(~real, 0.0), **constants
        )
        # A mean over slices is K times as steep as one over steps.
        steep = -self.weight * slope.shape[1]
        return -self.weight * energy, slope.masked_fill(~real, 0.0).mul_(steep).flatten()

    def _make_calls(self) -> dict[str, Any]:
        return {}

    def _bind(self) -> None:
        bind_actor(self)


def _fits(clip: float | None, form: Form | None) -> bool:
    """True if a clip is sound, and there where a ratio needs it."""
    return form in ("log", "imitate") if clip is None else 0.0 < clip < 1.0
