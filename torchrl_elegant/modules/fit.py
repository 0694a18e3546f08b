"""Networks of TorchRL or of users, fitted to an environment: wrapped by keys, and checked.

The border to modules of any class: here one is asked for its keys and its distribution.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, Protocol, runtime_checkable

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase
from tensordict.nn import TensorDictModule, TensorDictModuleBase, TensorDictSequential
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torchrl.data import OneHot, TensorSpec
from torchrl.envs import EnvBase
from torchrl.envs.utils import ExplorationType, set_exploration_type
from torchrl.modules import (
    IndependentNormal,
    NormalParamExtractor,
    OneHotCategorical,
    ProbabilisticActor,
    QValueModule,
    TanhDelta,
    TanhNormal,
    ValueOperator,
)

from torchrl_elegant.functional import action_mask_of
from torchrl_elegant.modules.action_mask import MaskedValues
from torchrl_elegant.modules.bounded_actor import BoundedActor
from torchrl_elegant.modules.build import (
    ActionSpaceError,
    kind_of,
    observation_shapes,
    only_action,
)
from torchrl_elegant.modules.ensemble import EnsembleCritic
from torchrl_elegant.modules.foreign import ForeignActor, ForeignQNetwork, evaluating, told
from torchrl_elegant.modules.q_network import QNetwork
from torchrl_elegant.modules.stochastic_actor import StochasticActor
from torchrl_elegant.modules.value import StateValue

#: Kinds of actors: one that off-policy losses draw from, one that writes its log-probability, and
#: one that writes an action alone.
Kind = Literal["sampling", "rollout", "deterministic"]


@runtime_checkable
class HasDistribution(Protocol):
    """Actor that gives its distribution over actions."""

    def get_dist(self, tensordict: TensorDictBase) -> Any:
        """Distribution at the observations in ``tensordict``."""


def fit_actor(
    network: nn.Module, env: EnvBase, *, kind: Kind, in_keys: Sequence[NestedKey] | None = None
) -> Any:
    """Fits an actor to ``env``; ValueError where it cannot. This package's own stay as they are.

    Args:
        network: a TensorDict module that writes the action, or a plain module. That is called with
            the observation entries and gives the parameters of the action's distribution: for
            continuous actions ``kind="sampling"`` means and raw spreads of a ``TanhNormal``,
            ``"rollout"`` those of an ``IndependentNormal``, ``"deterministic"`` what a tanh brings
            to the bounds; for discrete ones logits.
        env: gives the specs.
        kind: what the algorithm does with it.
        in_keys: entries that a plain module reads, in their order; None for all.

    >>> from torchrl_elegant.envs import make_env
    >>> env = make_env("Pendulum-v1")
    >>> fit_actor(nn.Linear(3, 2), env, kind="sampling").act(torch.zeros(5, 3)).shape
    torch.Size([5, 1])
    """
    if isinstance(network, BoundedActor | StochasticActor):
        return _with_distribution(network, kind)
    key, spec = only_action(env, algorithm="an actor")
    module = _keyed(network, "actor", in_keys)
    refuse_batch_norm("actor", network)
    _refuse_unread_mask(env, [] if module is None else module.in_keys)
    if module is None:
        entries = list(observation_shapes(env, in_keys))
        if kind_of(spec) in ("continuous", "discrete"):
            _probe_plain("actor", network, env, entries, _parameters(spec, kind))
        module = _plain_actor(network, entries, key, spec, kind)
    module = module if env.device is None else module.to(env.device)
    module = _with_distribution(module, kind)
    writes = [key, *(_log_prob_keys(module) if kind == "rollout" else ())]
    _probe("actor", module, env, {name: spec.shape if name == key else () for name in writes})
    bounds = (spec.space.low, spec.space.high) if kind_of(spec) == "continuous" else None
    shapes = observation_shapes(env, module.in_keys)
    return ForeignActor(module, shapes, writes=writes, bounds=bounds)


def refuse_batch_norm(place: str, network: nn.Module) -> None:
    """Raise ValueError for batch normalization that learns, in a network that sees single rows.

    >>> refuse_batch_norm("actor", nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).eval())
    """
    for part in network.modules():
        if isinstance(part, _BatchNorm) and part.training:
            raise ValueError(
                f"`{place}` must not normalize over a batch, since it sees single rows and whole "
                f"rollouts, too, got `{type(part).__name__}` in training mode; use nn.LayerNorm, "
                "or freeze it by `.eval()`"
            )


def _refuse_unread_mask(env: EnvBase, reads: Sequence[NestedKey]) -> None:
    mask = action_mask_of(env)
    if mask is not None and mask not in reads:
        raise ValueError(
            f"`actor` must choose among the actions that {mask!r} allows, got a network that "
            "knows no masks; leave the place to the algorithm's own network, or give PPO or A2C a "
            "ProbabilisticActor over a MaskedCategorical"
        )


def fit_q_network(
    network: nn.Module, env: EnvBase, *, in_keys: Sequence[NestedKey] | None = None
) -> Any:
    """Fits Q(s, .) to ``env``: a ``QValueActor``, what writes ``action_value``, or a plain module.

    Where the environment has an action mask, the values of forbidden actions are replaced.

    >>> from torchrl_elegant.envs import make_env
    >>> fit_q_network(nn.Linear(4, 2), make_env("CartPole-v1")).network.out_keys
    ['action', 'action_value', 'chosen_action_value']
    """
    if isinstance(network, QNetwork):
        return network
    key, spec = only_action(env, algorithm="a Q network over actions")
    if kind_of(spec) != "discrete":
        raise ActionSpaceError(
            f"`critic` must value one choice among several, got `{type(spec).__name__}` of shape "
            f"`{tuple(spec.shape)}`",
            kind=kind_of(spec),
        )
    form = "one_hot" if isinstance(spec, OneHot) else "categorical"
    module = _keyed(network, "critic", in_keys)
    if module is None:
        module = TensorDictModule(network, list(observation_shapes(env, in_keys)), ["action_value"])
    mask = action_mask_of(env)
    if mask is not None:
        allowed = TensorDictModule(MaskedValues(), ["action_value", mask], ["action_value"])
        module = TensorDictSequential(module, allowed)
    if mask is not None or key not in module.out_keys:
        names = [key, "action_value", "chosen_action_value"]
        greedy = QValueModule(action_space=form, out_keys=names)
        module = TensorDictSequential(module, greedy)
    module = module if env.device is None else module.to(env.device)
    choices = spec.space.n
    needs = {"action_value": (choices,), "chosen_action_value": (1,), key: spec.shape}
    _probe("critic", module, env, needs)
    shapes = observation_shapes(env, module.in_keys)
    shared: dict[str, Any] = {"choices": choices, "form": form, "action_key": key}
    return ForeignQNetwork(module, shapes, **shared, action_mask=mask)


def fit_critic(
    network: nn.Module, env: EnvBase, *, in_keys: Sequence[NestedKey] | None = None
) -> TensorDictModuleBase:
    """Fits Q(s, a) to ``env``: a ``ValueOperator``, or a plain module of observation and action.

    >>> from torchrl_elegant.envs import make_env
    >>> from torchrl.modules import MLP
    >>> fit_critic(MLP(in_features=4, out_features=1), make_env("Pendulum-v1")).in_keys
    ['observation', 'action']
    """
    if isinstance(network, EnsembleCritic):
        return network
    key, _ = only_action(env, algorithm="a Q(s, a) critic")
    module = _keyed(network, "critic", in_keys)
    if module is None:
        entries = [*observation_shapes(env, in_keys), key]
        _probe_plain("critic", network, env, entries, ((1,), "one value"))
        module = ValueOperator(network, in_keys=entries)
    module = module if env.device is None else module.to(env.device)
    if key not in module.in_keys:
        raise ValueError(f"`critic` must read the action `{key}`, got {told(module)}")
    _probe("critic", module, env, {"state_action_value": (1,)})
    return module


def fit_value(
    network: nn.Module, env: EnvBase, *, in_keys: Sequence[NestedKey] | None = None
) -> TensorDictModuleBase:
    """Fits V(s) to ``env``: a ``ValueOperator``, or a plain module of the observation.

    >>> from torchrl_elegant.envs import make_env
    >>> fit_value(nn.Linear(3, 1), make_env("Pendulum-v1")).out_keys
    ['state_value']
    """
    if isinstance(network, StateValue):
        return network
    module = _keyed(network, "critic", in_keys)
    refuse_batch_norm("critic", network)
    if module is None:
        module = ValueOperator(network, in_keys=list(observation_shapes(env, in_keys)))
    module = module if env.device is None else module.to(env.device)
    _probe("critic", module, env, {"state_value": (1,)})
    return module


def _with_distribution(actor: Any, kind: Kind) -> Any:
    if kind == "deterministic" or isinstance(actor, HasDistribution):
        return actor
    raise ValueError(
        f"`actor` must give a distribution, got {told(actor)}; wrap it in TorchRL's "
        "ProbabilisticActor"
    )


def _keyed(
    network: Any, name: str, in_keys: Sequence[NestedKey] | None
) -> TensorDictModuleBase | None:
    """The network, if it names its own keys; None for a plain module."""
    if not isinstance(network, nn.Module):
        raise ValueError(f"`{name}` must be an nn.Module, got `{type(network).__name__}`")
    if not isinstance(network, TensorDictModuleBase):
        return None
    if in_keys is not None:
        raise ValueError(
            f"`{name}_keys` must be none where the {name} names its own keys, got {list(in_keys)} "
            f"beside {told(network)}"
        )
    return network


def _plain_actor(
    network: nn.Module, entries: list[NestedKey], key: NestedKey, spec: TensorSpec, kind: Kind
) -> TensorDictModuleBase:
    found, rollout = kind_of(spec), kind == "rollout"
    shared: dict[str, Any] = {"out_keys": [key], "return_log_prob": rollout}
    if found == "discrete":
        law = OneHotCategorical if isinstance(spec, OneHot) else torch.distributions.Categorical
        body = TensorDictModule(network, entries, ["logits"])
        return ProbabilisticActor(body, in_keys=["logits"], distribution_class=law, **shared)
    if found != "continuous":
        raise ValueError(
            f"`actor` must be a TensorDict module for {found} actions, got the plain module "
            f"`{type(network).__name__}`; wrap it in TorchRL's ProbabilisticActor with a "
            "distribution over all choices"
        )
    bounds = {"low": spec.space.low, "high": spec.space.high}
    if kind == "deterministic":
        body = TensorDictModule(network, entries, ["param"])
        return ProbabilisticActor(
            body,
            in_keys=["param"],
            distribution_class=TanhDelta,
            distribution_kwargs=bounds,
            out_keys=[key],
        )
    body = TensorDictSequential(
        TensorDictModule(network, entries, ["param"]),
        TensorDictModule(NormalParamExtractor(), ["param"], ["loc", "scale"]),
    )
    return ProbabilisticActor(
        body,
        in_keys=["loc", "scale"],
        distribution_class=IndependentNormal if rollout else TanhNormal,
        distribution_kwargs={} if rollout else bounds,
        **shared,
    )


def _parameters(spec: TensorSpec, kind: Kind) -> tuple[Sequence[int], str]:
    """Shape and words of what a plain actor gives."""
    if kind_of(spec) == "discrete":
        return (spec.space.n,), f"a logit for each of the {spec.space.n} actions"
    *rows, count = spec.shape
    actions = f"{count} action{'s' if count > 1 else ''}"
    if kind == "deterministic":
        return spec.shape, f"{count} number{'s' if count > 1 else ''} for {actions}"
    return (*rows, 2 * count), f"{2 * count} numbers for {actions} (mean and raw spread)"


def _log_prob_keys(actor: Any) -> list[NestedKey]:
    found = [key for key in getattr(actor, "log_prob_keys", ()) if key in actor.out_keys]
    if not found:
        raise ValueError(
            f"`actor` must write the log-probability of its action, got {told(actor)}; pass "
            "return_log_prob=True to ProbabilisticActor"
        )
    return found


def _probe_plain(
    name: str,
    network: nn.Module,
    env: EnvBase,
    entries: Sequence[NestedKey],
    gives: tuple[Sequence[int], str],
) -> None:
    """Run a plain module once, as ``_probe`` does, before a wrapper hides what it gave.

    Args:
        gives: shape of its output, and that in words.
    """
    shape, words = gives
    network = network if env.device is None else network.to(env.device)
    read = _rows(env, entries)
    kind = type(network).__name__
    try:
        given = _called(network, *(read.get(key) for key in entries))
    except Exception as error:
        listed = " and ".join(f"`{key}`" for key in entries)
        raise ValueError(
            f"`{name}` must run on the environment's entries, {_sizes(read, entries)}, got "
            f"`{kind}`, which failed: {error}; it is called with {listed}, and gives {words}"
        ) from error
    if not isinstance(given, Tensor):
        raise ValueError(f"`{name}` ({kind}) must give {words}, got a {type(given).__name__}")
    found = given.shape[1:]
    if found != torch.Size(shape):
        got = found[0] if len(found) == len(shape) == 1 else f"shape {tuple(found)}"
        raise ValueError(f"`{name}` ({kind}) must give {words}, got {got}")


def _rows(env: EnvBase, keys: Sequence[NestedKey]) -> TensorDict:
    """Two rows of zeros for the entries ``keys`` of observation and action, all actions allowed."""
    leaves = dict(env.observation_spec_unbatched.items(True, True))
    leaves |= env.full_action_spec_unbatched.items(True, True)
    data = TensorDict({key: leaf.zero((2,)) for key, leaf in leaves.items()}, [2])
    if (mask := action_mask_of(env)) is not None:
        data.set(mask, torch.ones_like(data.get(mask)))  # A law over no action does not exist.
    return data.select(*keys).to(env.device or "cpu")


def _sizes(data: TensorDictBase, keys: Sequence[NestedKey]) -> str:
    return ", ".join(f"{key} {tuple(data.get(key).shape[1:])}" for key in keys)


def _called(module: nn.Module, *inputs: Any) -> Any:
    """Output of a module in evaluation mode, which it leaves again."""
    deterministic = set_exploration_type(ExplorationType.DETERMINISTIC)
    with evaluating(module), torch.no_grad(), deterministic:
        return module(*inputs)


def _probe(
    name: str, module: TensorDictModuleBase, env: EnvBase, needs: Mapping[NestedKey, Sequence[int]]
) -> None:
    """Run the module once on two rows of zeros; name what is missing or of another shape."""
    seen = [*env.observation_spec_unbatched.keys(True, True)]
    action, _ = only_action(env, algorithm=name)
    if strange := [key for key in module.in_keys if key not in [*seen, action]]:
        raise ValueError(
            f"`{name}` must read entries of the environment's observation, which are "
            f"{[*observation_shapes(env)]}, got {told(module)}; `{strange[0]}` is not there"
        )
    read = _rows(env, module.in_keys)
    entries = _sizes(read, module.in_keys)
    try:
        written = _called(module, read)
    except Exception as error:
        raise ValueError(
            f"`{name}` must run on the environment's entries, {entries}, got {told(module)}, which "
            f"failed: {error}"
        ) from error
    for key, shape in needs.items():
        value = written.get(key, None)
        if value is None or value.shape[1:] != torch.Size(shape):
            wrong = "nothing" if value is None else f"shape {tuple(value.shape[1:])}"
            raise ValueError(
                f"`{name}` must write `{key}` of shape {tuple(shape)}, got {wrong} from "
                f"{told(module)} on {entries}"
            )
