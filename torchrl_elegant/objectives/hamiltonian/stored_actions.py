"""Log-probabilities of stored actions under an actor, stochastic or not."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from tensordict import TensorDictBase
from tensordict.nn import TensorDictModuleBase
from tensordict.nn.distributions import Delta as TensorDictDelta
from tensordict.utils import NestedKey
from torch import Tensor
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import Delta, TanhDelta
from torchrl.objectives import LossModule

from torchrl_elegant.functional import normal_log_prob, squashed_log_prob
from torchrl_elegant.modules import DeterministicActor, SquashedGaussianActor, StochasticActor
from torchrl_elegant.objectives.common.keys import keys_of

# Called directly: they hold their parameters themselves.
_DIRECT = (StochasticActor, SquashedGaussianActor, DeterministicActor)
# Distributions with all their weight in one point.
_POINTS = (TensorDictDelta, Delta, TanhDelta)


def stored_log_prob(loss: LossModule, tensordict: TensorDictBase, *, sigma: float | None) -> Tensor:
    """``log pi(a|s)`` of the actions in ``tensordict`` by the actor of ``loss``, ``[*B]``.

    This package's actors are called directly, others through ``get_dist``. An actor without a
    distribution, or with all of it in one point, is read as ``N(mu(s), sigma^2)``, with ``sigma``
    in halves of the range between the bounds of a ``DeterministicActor``.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> from torchrl_elegant.modules import EnsembleCritic
    >>> from torchrl_elegant.objectives import DDPGLoss
    >>> actor = DeterministicActor(observation={"x": (3,)}, low=[-2.0], high=[2.0])
    >>> critic = EnsembleCritic(observation={"x": (3,)}, action_shape=(1,), num_critics=1)
    >>> loss = DDPGLoss(actor, critic)
    >>> data = TensorDict({"x": torch.zeros(1, 3), "action": torch.zeros(1, 1)}, [1])
    >>> round(stored_log_prob(loss, data, sigma=0.5).item(), 4)
    -0.9189
    """
    with _parameters_in_place(loss):
        return _log_prob(loss.actor_network, tensordict, loss.tensor_keys.action, sigma)


def bind_actor(loss: LossModule) -> None:
    """Make an actor that is called directly hold the tensors that optimizers write."""
    if isinstance(loss.actor_network, _DIRECT):
        loss.actor_network_params.to_module(loss.actor_network, preserve_module_state=False)


def joint(log_prob: Tensor, ndim: int) -> Tensor:
    """Log-probability of a whole action, from those of its parts behind ``ndim`` dimensions.

    >>> import torch
    >>> joint(torch.ones(5, 2), 1).tolist()
    [2.0, 2.0, 2.0, 2.0, 2.0]
    """
    return log_prob.flatten(ndim).sum(-1) if log_prob.ndim > ndim else log_prob


def stored_keys(actor: TensorDictModuleBase) -> dict[str, Any]:
    """Keys under which ``actor`` writes its action and log-probability.

    >>> stored_keys(DeterministicActor(observation={"x": (3,)}, low=[-1.0], high=[1.0]))
    {'action': 'action'}
    """
    names = keys_of(actor)
    if "log_prob" in names:
        names["sample_log_prob"] = names.pop("log_prob")
    elif len(actor.out_keys) == 1:
        names["action"] = actor.out_keys[0]
    return names


def _parameters_in_place(loss: LossModule) -> AbstractContextManager:
    if isinstance(loss.actor_network, _DIRECT):
        return loss._watched["actor_network_params"].in_place(loss.actor_network)
    return loss.actor_network_params.to_module(loss.actor_network, preserve_module_state=False)


def _log_prob(
    actor: TensorDictModuleBase, tensordict: TensorDictBase, key: NestedKey, sigma: float | None
) -> Tensor:
    action = tensordict.get(key)
    if isinstance(actor, _DIRECT):
        seen = [tensordict.get(name) for name in actor.in_keys]
        if isinstance(actor, StochasticActor):
            return actor.head(seen).log_prob(action)
        if isinstance(actor, SquashedGaussianActor):
            return _squashed(actor, seen, action)
        return _around(actor.act(*seen), action, _given(sigma) * (actor.high - actor.low) * 0.5)
    data = tensordict.select(*actor.in_keys)
    if hasattr(actor, "get_dist"):
        dist = actor.get_dist(data)
        if not isinstance(dist, _POINTS):
            return joint(dist.log_prob(action), tensordict.ndim)
        mean = dist.mode
    else:
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            mean = actor(data).get(key)
    return _around(mean, action, mean.new_full(mean.shape[tensordict.ndim :], _given(sigma)))


def _squashed(actor: SquashedGaussianActor, seen: list[Tensor], action: Tensor) -> Tensor:
    half = (actor.high - actor.low) * 0.5
    unit = ((action - actor.low) / half - 1.0).flatten(action.ndim - half.ndim)
    return squashed_log_prob(*actor.parameters_of(seen), unit) - half.log().sum()


def _given(sigma: float | None) -> float:
    if sigma is None:
        raise ValueError("`sigma` must be given for a deterministic actor, got `None`")
    return sigma


def _around(mean: Tensor, action: Tensor, spread: Tensor) -> Tensor:
    start = action.ndim - spread.ndim
    log_std = spread.log().flatten()
    return normal_log_prob(mean.flatten(start), log_std, action.flatten(start))
