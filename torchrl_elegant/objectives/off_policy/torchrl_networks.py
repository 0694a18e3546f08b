"""TorchRL's usual networks, run as this package's own: no vmap, no TensorDict, no distribution.

A network is read once: an ``MLP``, alone or as the body of a ``ValueOperator``, ``QValueActor`` or
``ProbabilisticActor``. Its layers then run as batched matrix products over the tensors of the
loss's parameters. Hooks, dropout, normalization, lazy or noisy layers, subclasses and arguments
that are not known here lead to ``foreign_networks``, which runs every network.

Types of TorchRL are compared here because a subclass may override what is left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from tensordict import NestedKey, TensorDictBase
from tensordict.nn import (
    AddStateIndependentNormalScale,
    NormalParamExtractor,
    ProbabilisticTensorDictModule,
    ProbabilisticTensorDictSequential,
    TensorDictModule,
    TensorDictSequential,
)
from tensordict.nn.utils import mappings
from torch import Tensor, is_grad_enabled, nn
from torch.distributions import Categorical
from torchrl import modules as torchrl_modules
from torchrl.objectives import LossModule

from torchrl_elegant.functional import chosen, squashed_sample
from torchrl_elegant.objectives.common.bound_networks import leaves_of
from torchrl_elegant.objectives.off_policy.perceptron_bodies import (
    Body,
    Lookup,
    Path,
    body_from,
    body_of,
    modules_in_turn,
)

# Arguments of TanhNormal; bounds may differ, and without ``tanh_loc`` nothing reads ``upscale``.
_USUAL: dict[str, Any] = {
    "low": -1.0,
    "high": 1.0,
    "upscale": 5.0,
    "event_dims": 1,
    "tanh_loc": False,
    "safe_tanh": True,
}

_PLAIN_MODULES = (TensorDictModule, torchrl_modules.SafeModule)
_CRITICS = (*_PLAIN_MODULES, torchrl_modules.ValueOperator)
_ACTORS = (*_PLAIN_MODULES, torchrl_modules.Actor)
_SEQUENCES = (TensorDictSequential, torchrl_modules.SafeSequential)
_STOCHASTIC = (
    torchrl_modules.ProbabilisticActor,
    torchrl_modules.SafeProbabilisticTensorDictSequential,
    ProbabilisticTensorDictSequential,
)
_DRAWS = (torchrl_modules.SafeProbabilisticModule, ProbabilisticTensorDictModule)
_CATEGORIES = (Categorical, torchrl_modules.OneHotCategorical)


def _body_inside(network: Any, kinds: tuple[type, ...], path: Path) -> Body | None:
    """Body of a module of one of these ``kinds`` that writes what its perceptron gives."""
    if type(network) not in kinds or not is_plain_call(network) or len(network.out_keys) != 1:
        return None
    joins = type(network.module) is torchrl_modules.MLP
    return body_of(network.module, path) if joins or len(network.in_keys) == 1 else None


def is_plain_call(module: TensorDictModule) -> bool:
    """True if ``module`` calls what it wraps with its entries in order, and with nothing else."""
    return module.method is None and not module.method_kwargs and module._kwargs is None


def _is_usual_tanh_normal(draw: ProbabilisticTensorDictModule) -> bool:
    options = {**_USUAL, **draw.distribution_kwargs}
    low, high, _ = (options.pop(name) for name in ("low", "high", "upscale"))
    usual = all(options[name] == value for name, value in _USUAL.items() if name in options)
    vectors = all(not isinstance(x, Tensor) or x.ndim <= 1 for x in (low, high))
    known = options.keys() <= _USUAL.keys() and vectors
    return draw.distribution_class is torchrl_modules.TanhNormal and known and usual


class _Lean:
    """Calls of one network, or those of ``plain`` while it has hooks."""

    stacked = False

    def __init__(self, plain: Any, body: Body, more: Sequence[Path] = ()) -> None:
        self.plain, self.body, self._paths = plain, body, [*body.paths, *more]
        self.loss, self.name, self.network = plain.loss, plain.name, plain.network
        modules = list(self.network.modules())
        self._hooks = [
            hooks
            for module in modules
            for hooks in (
                module._forward_hooks,
                module._forward_pre_hooks,
                module._backward_hooks,
                module._backward_pre_hooks,
            )
        ]
        self._keys = list(self.network.in_keys)

    def bind(self, loss: LossModule) -> None:
        """Look up the tensors anew, after a cast, a move or an assignment."""
        self.plain.bind(loss)
        online = loss._modules[f"{self.name}_params"]
        # Without a delay the targets are the online parameters.
        target = loss._modules.get(f"target_{self.name}_params", online)
        self._online = Lookup(online, self._paths, detached=False)
        self._target = Lookup(target, self._paths, detached=target is online)

    def memories(self) -> dict[NestedKey, Any]:
        """None: a network of TorchRL keeps its states to itself."""
        return {}

    delayed_memories = memories

    @property
    def _is_lean(self) -> bool:
        return not any(self._hooks)

    def _run(self, tensors: Sequence[Tensor], parts: Sequence[Tensor]) -> Tensor:
        x = parts[0] if len(parts) == 1 else torch.cat(tuple(parts), -1)
        return self.body.run(tensors, x, stacked=self.stacked)

    def _seen(self, tensordict: TensorDictBase) -> list[Tensor]:
        return [tensordict.get(key) for key in self._keys]


class LeanCritic(_Lean):
    """``ValueOperator`` over an ``MLP``: Q(s, a) of one network or of stacked ones, ``[N, *B]``."""

    def __init__(self, plain: Any, body: Body, *, stacked: bool) -> None:
        super().__init__(plain, body)
        self.stacked = stacked

    def online(self, tensordict: TensorDictBase, action: Tensor) -> Tensor:
        if not self._is_lean:
            return self.plain.online(tensordict, action)
        data = tensordict if self.stacked else tensordict.select(*self._keys, strict=False).detach()
        return self._values(self._online(), data, action)

    def frozen(
        self, tensordict: TensorDictBase, action: Tensor, first: int | None = None
    ) -> Tensor:
        if not self._is_lean:
            return self.plain.frozen(tensordict, action, first)
        tensors = [x.detach() for x in self._online()]
        tensors = tensors if first is None else [x[:first] for x in tensors]
        return self._values(tensors, tensordict, action)

    def target(
        self, tensordict: TensorDictBase, action: Tensor, members: Tensor | None = None
    ) -> Tensor:
        if not self._is_lean:
            return self.plain.target(tensordict, action, members)
        tensors = self._target()
        if members is not None:
            tensors = [x.index_select(0, members) for x in tensors]
        return self._values(tensors, tensordict, action)

    @property
    def _is_lean(self) -> bool:
        keys = self.loss.tensor_keys
        known = keys.action in self._keys and keys.state_action_value == self.network.out_keys[0]
        return known and super()._is_lean

    def _values(
        self, tensors: Sequence[Tensor], tensordict: TensorDictBase, action: Tensor
    ) -> Tensor:
        name = self.loss.tensor_keys.action
        out = self._run(
            tensors, [action if key == name else tensordict.get(key) for key in self._keys]
        ).squeeze(-1)
        return out if self.stacked else out.unsqueeze(0)


class LeanQNetwork(_Lean):
    """Q(s, .) of an ``MLP``: of one network, as ``QValueActor`` has it, or of stacked ones."""

    def __init__(self, plain: Any, body: Body, *, stacked: bool) -> None:
        super().__init__(plain, body)
        self.stacked = stacked

    def online(self, tensordict: TensorDictBase) -> Tensor:
        if not self._is_lean:
            return self.plain.online(tensordict)
        tensors = self._online()
        tensors = tensors if is_grad_enabled() else [x.detach() for x in tensors]
        return self._values(tensors, tensordict)

    def online_and_next(self, tensordict: TensorDictBase) -> tuple[Tensor, TensorDictBase]:
        if not self._is_lean:
            return self.plain.online_and_next(tensordict)
        return self.online(tensordict), tensordict.get("next")

    def target(self, tensordict: TensorDictBase) -> Tensor:
        if not self._is_lean:
            return self.plain.target(tensordict)
        return self._values(self._target(), tensordict)

    def best(self, tensordict: TensorDictBase) -> Tensor:
        """Value that the targets give their own greedy action, ``[*B]``."""
        if not self._is_lean:
            return self.plain.best(tensordict)
        return self._values(self._target(), tensordict)[0].amax(-1)

    def best_of_online(self, tensordict: TensorDictBase) -> Tensor:
        """Value that the targets give the greedy action of the online network, ``[*B]``."""
        if not self._is_lean:
            return self.plain.best_of_online(tensordict)
        index = self._values(self._online(), tensordict)[0].argmax(-1)
        return chosen(self._values(self._target(), tensordict)[0], index, "categorical")

    @property
    def _is_lean(self) -> bool:
        return self.loss.tensor_keys.action_value in self.network.out_keys and super()._is_lean

    def _values(self, tensors: Sequence[Tensor], tensordict: TensorDictBase) -> Tensor:
        out = self._run(tensors, self._seen(tensordict))
        return out if self.stacked else out.unsqueeze(0)


class LeanActor(_Lean):
    """Deterministic actor: an ``MLP``, by itself or before a ``TanhModule``."""

    def __init__(self, plain: Any, body: Body, bounds: Sequence[Path]) -> None:
        super().__init__(plain, body, bounds)
        self._bounded = bool(bounds)

    def online(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, Tensor]:
        if not self._is_lean:
            return self.plain.online(tensordict)
        return tensordict, self._act(self._online(), tensordict)

    def target(self, tensordict: TensorDictBase) -> tuple[TensorDictBase, Tensor]:
        if not self._is_lean:
            return self.plain.target(tensordict)
        return tensordict, self._act(self._target(), tensordict)

    @property
    def _is_lean(self) -> bool:
        loss, own = self.loss, self.network.out_keys
        judged = getattr(loss, loss.critic_name).in_keys
        beside = [key for key in own if key != loss.tensor_keys.action and key in judged]
        return own[-1] == loss.tensor_keys.action and not beside and super()._is_lean

    def _act(self, tensors: Sequence[Tensor], tensordict: TensorDictBase) -> Tensor:
        out = self._run(tensors, self._seen(tensordict))
        if not self._bounded:
            return out
        low, high = tensors[-2:]
        return low + (high - low) * (out.tanh() + 1) / 2


class LeanSampler(_Lean):
    """``ProbabilisticActor`` with a ``TanhNormal`` around an ``MLP``."""

    def __init__(
        self, plain: Any, body: Body, scale: nn.Module, more: Sequence[Path], kwargs: Mapping
    ) -> None:
        super().__init__(plain, body, more)
        self._scale, self._kwargs = scale, kwargs
        self._shown = self.network.module[0].out_keys

    def bind(self, loss: LossModule) -> None:
        super().bind(loss)
        like = leaves_of(loss._modules[f"{self.name}_params"])[0]
        low, high = (
            torch.as_tensor(self._kwargs.get(name, default)).to(like)
            for name, default in (("low", -1.0), ("high", 1.0))
        )
        self._is_unit = bool((low == -1.0).all() and (high == 1.0).all())
        self._middle, self._half = (high + low) / 2, (high - low) / 2

    def sample(self, tensordict: TensorDictBase, *, shows: bool = False) -> tuple[Tensor, Tensor]:
        """Reparameterized action and its log-density; writes mean and spread if ``shows``."""
        if not self._is_lean:
            return self.plain.sample(tensordict, shows=shows)
        tensors = self._online()
        loc, scale = self._split(self._run(tensors, self._seen(tensordict)), tensors)
        if shows:
            for key, value in zip(self._shown, (loc, scale), strict=True):
                tensordict.set(key, value)
        action, log_prob = squashed_sample(loc, scale.log(), torch.randn_like(loc))
        if self._is_unit:
            return action, log_prob
        stretch = self._half.log().expand(loc.shape[-1:]).sum()
        return self._middle + self._half * action, log_prob - stretch

    def _split(self, out: Tensor, tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        if len(tensors) == len(self.body.paths):
            return self._scale(out)
        scale = mappings(self._scale.scale_mapping)(tensors[-1].expand_as(out))
        return out, scale.clamp_min(self._scale.scale_lb)


class LeanLogits(_Lean):
    """``ProbabilisticActor`` over categories around an ``MLP``."""

    def log_probs(self, tensordict: TensorDictBase) -> Tensor:
        """log pi of every action, ``[*B, n]``."""
        if not self._is_lean:
            return self.plain.log_probs(tensordict)
        return self._run(self._online(), self._seen(tensordict)).log_softmax(-1)


def lean_critic(plain: Any, *, stacked: bool) -> Any:
    """``plain``, or lean calls of its critic of states and actions where that is known."""
    network = plain.network
    body = _body_inside(network, _CRITICS, ("module",))
    return plain if body is None else LeanCritic(plain, body, stacked=stacked)


def lean_q_network(plain: Any, *, stacked: bool) -> Any:
    """``plain``, or lean calls of its network of action values where that is known."""
    network = plain.network
    if stacked:
        body = _body_inside(network, _CRITICS, ("module",))
    elif type(network) is torchrl_modules.QValueActor:
        values, choice = network.module
        known = (
            type(choice) is torchrl_modules.QValueModule
            and choice.action_space in ("one_hot", "categorical")
            and choice.action_mask_key is None
        )
        body = _body_inside(values, _PLAIN_MODULES, ("module", "0", "module")) if known else None
    else:
        body = None
    return plain if body is None else LeanQNetwork(plain, body, stacked=stacked)


def lean_actor(plain: Any) -> Any:
    """``plain``, or lean calls of its actor where that is known."""
    network = plain.network
    if type(network) in _STOCHASTIC:
        return _stochastic(plain)
    if type(network) in _ACTORS:
        body = _body_inside(network, _ACTORS, ("module",))
        return plain if body is None else LeanActor(plain, body, [])
    if type(network) not in _SEQUENCES or len(network.module) != 2:
        return plain
    first, last = network.module
    body = _body_inside(first, _PLAIN_MODULES, ("module", "0", "module"))
    if body is None or type(last) is not torchrl_modules.TanhModule or last.clamp:
        return plain
    if list(last.in_keys) != list(first.out_keys) or len(last.out_keys) != 1:
        return plain
    bounds = [("module", "1", name) for name in last._buffers]  # low, then high
    return LeanActor(plain, body, bounds)


def _stochastic(plain: Any) -> Any:
    network = plain.network
    if len(network.module) != 2:
        return plain
    first, draw = network.module
    drawn_alone = type(draw) in _DRAWS and draw.num_samples is None
    if not drawn_alone or draw._generator is not None or draw._generator_key is not None:
        return plain
    if type(first) not in _PLAIN_MODULES or not is_plain_call(first):
        return plain
    if list(first.out_keys) != list(draw.in_keys):
        return plain
    path: Path = ("module", "0", "module")
    names = [key if isinstance(key, str) else key[-1] for key in draw.dist_keys]
    if draw.distribution_class in _CATEGORIES:
        body = _body_inside(first, _PLAIN_MODULES, path)
        known = names == ["logits"] and not draw.distribution_kwargs
        return LeanLogits(plain, body) if body is not None and known else plain
    if names != ["loc", "scale"] or not _is_usual_tanh_normal(draw):
        return plain
    *layers, (at, scale) = modules_in_turn(first.module, path) or [(path, first.module)]
    if type(scale) not in (NormalParamExtractor, AddStateIndependentNormalScale) or not layers:
        return plain
    body = body_from(layers) if len(first.in_keys) == 1 else None
    if body is None:
        return plain
    learned = type(scale) is AddStateIndependentNormalScale
    more = [(*at, "state_independent_scale")] if learned else []
    return LeanSampler(plain, body, scale, more, draw.distribution_kwargs)
