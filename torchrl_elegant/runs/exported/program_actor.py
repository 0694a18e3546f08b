"""Actors of any class in the form in which a policy file can hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import torch
from tensordict import NestedKey, TensorDict, TensorDictBase
from tensordict.nn import ProbabilisticTensorDictSequential, TensorDictModuleBase
from torch import Tensor, nn
from torch.nn.functional import one_hot
from torchrl.envs.utils import ExplorationType, exploration_type, set_exploration_type
from torchrl.modules import Delta, IndependentNormal, OneHotCategorical, TanhDelta, TanhNormal

from torchrl_elegant.config.text import UsageError
from torchrl_elegant.modules import ForeignActor, NoisyActor, NormalizedActor, evaluating
from torchrl_elegant.runs.exported.program import Captured, Program


class Law(nn.Module):
    """Actions by the parameters of a distribution of TorchRL's.

    Args:
        name: a key of ``LAWS``.
        names: names of the parameters, in the order in which they are given.
        low, high: bounds of a squashed action.

    >>> law = Law(name="TanhNormal", names=["loc", "scale"], low=-2.0, high=2.0)
    >>> law.best([torch.zeros(1), torch.ones(1)])
    tensor([0.])
    """

    low: Tensor
    high: Tensor

    def __init__(
        self, *, name: str, names: Sequence[str], low: Any = -1.0, high: Any = 1.0
    ) -> None:
        super().__init__()
        if name not in LAWS or tuple(names) not in LAWS[name]:
            raise ValueError(f"`law` must be in LAWS, got {name} of {tuple(names)}")
        self.name, self.names = name, list(names)
        for bound, value in (("low", low), ("high", high)):
            tensor = torch.as_tensor(value, dtype=torch.get_default_dtype())
            self.register_buffer(bound, tensor.detach().clone())

    def best(self, values: Sequence[Tensor]) -> Tensor:
        """The action of a deterministic policy."""
        if self.name in ("Categorical", "OneHotCategorical"):
            return self._choice(values[0].argmax(-1), values[0])
        return self._squashed(values[0])

    def sample(self, values: Sequence[Tensor]) -> Tensor:
        """An action that is drawn."""
        first = values[0]
        if self.name in ("Categorical", "OneHotCategorical"):
            weights = first.softmax(-1) if self.names == ["logits"] else first
            drawn = torch.multinomial(weights.reshape(-1, weights.shape[-1]), 1)
            return self._choice(drawn.reshape(weights.shape[:-1]), first)
        if len(values) == 1:
            return self._squashed(first)
        return self._squashed(torch.addcmul(first, values[1], torch.randn_like(first)))

    def _choice(self, index: Tensor, of: Tensor) -> Tensor:
        return index if self.name == "Categorical" else one_hot(index, of.shape[-1])

    def _squashed(self, value: Tensor) -> Tensor:
        if not self.name.startswith("Tanh"):
            return value
        if self.name == "TanhDelta":
            # TorchRL counts its parameter from the middle of the bounds.
            value = value + (self.high + self.low) / 2
        part = (torch.tanh(value) + 1) / 2
        return self.low * (1 - part) + self.high * part


#: Distributions whose actions can be drawn by a stored policy, with the names of their parameters.
LAWS: dict[str, tuple[tuple[str, ...], ...]] = {
    "Categorical": (("logits",), ("probs",)),
    "Delta": (("param",),),
    "IndependentNormal": (("loc", "scale"),),
    "Normal": (("loc", "scale"),),
    "OneHotCategorical": (("logits",), ("probs",)),
    "TanhDelta": (("param",),),
    "TanhNormal": (("loc", "scale"),),
}
# A user's class may have such a name, too.
_CLASSES = (
    *(torch.distributions.Categorical, torch.distributions.Normal),
    *(Delta, IndependentNormal, OneHotCategorical, TanhDelta, TanhNormal),
)


class ProgramActor(TensorDictModuleBase):
    """Actor that runs a captured program; any actor becomes one in a policy file.

    Args:
        reads: shape of each observation entry, by key.
        action_key: entry of the action.
        program: arguments of ``Program``.
        law: arguments of ``Law``, for a program that gives the parameters of a distribution; None
            for one that gives the action.
        draws: False for an actor that drew actions from a distribution that is not in ``LAWS``.

    >>> from tensordict.nn import TensorDictModule
    >>> actor = TensorDictModule(nn.Linear(3, 1), in_keys=["observation"], out_keys=["action"])
    >>> stored = program_actor(actor, {"observation": torch.zeros(2, 3)})
    >>> stored(TensorDict({"observation": torch.zeros(5, 3)}, [5]))["action"].shape
    torch.Size([5, 1])
    """

    def __init__(
        self,
        *,
        reads: Mapping[NestedKey, Sequence[int]],
        action_key: NestedKey,
        program: Mapping[str, Any],
        law: Mapping[str, Any] | None,
        draws: bool,
    ) -> None:
        super().__init__()
        self.shapes = {key: tuple(shape) for key, shape in reads.items()}
        self.in_keys, self.out_keys = list(self.shapes), [action_key]
        self.program = Program(**program)
        self.law = None if law is None else Law(**law)
        self._draws = draws
        self._spec = {
            "reads": {key: list(shape) for key, shape in self.shapes.items()},
            "action_key": action_key,
            "program": program,
            "law": law,
            "draws": draws,
        }

    def forward(self, tensordict: TensorDictBase) -> TensorDictBase:
        action = self.act(*(tensordict.get(key) for key in self.in_keys))
        return tensordict.set(self.out_keys[0], action)

    def act(self, *observation: Tensor) -> Tensor:
        """The action at observations given in the order of ``in_keys``."""
        first, shape = observation[0], self.shapes[self.in_keys[0]]
        batch = first.shape[: first.ndim - len(shape)]
        rows = [
            x.reshape(-1, *self.shapes[key])
            for key, x in zip(self.in_keys, observation, strict=True)
        ]
        values = self.program(*rows)
        action = self._action(values)
        return action.reshape(*batch, *action.shape[1:])

    def _action(self, values: Sequence[Tensor]) -> Tensor:
        drawn = exploration_type() in (None, ExplorationType.RANDOM)
        if self.law is not None:
            return self.law.sample(values) if drawn else self.law.best(values)
        if drawn and not self._draws:
            raise UsageError(
                "this policy can act by its best action alone: it was stored without its "
                f"distribution, which is not one of {', '.join(LAWS)}"
            )
        return values[0]

    def spec_dict(self) -> dict[str, Any]:
        """Plain data from which the same actor can be built."""
        return self._spec


class _Outputs(nn.Module):
    """Parameters of an actor's distribution where it is in ``LAWS``, else its best action."""

    def __init__(self, policy: nn.Module, law: bool) -> None:
        super().__init__()
        self.policy, self._law = policy, law

    def forward(self, *observation: Tensor) -> tuple[Tensor, ...]:
        policy: Any = self.policy
        data = dict(zip(policy.in_keys, observation, strict=True))
        batch = [observation[0].shape[0]]
        if self._law:
            network, data = _inner(policy, data)
            found = network.get_dist_params(TensorDict(data, batch))
            return tuple(found.get(key) for key in network[-1].in_keys)
        with set_exploration_type(ExplorationType.DETERMINISTIC):
            return (policy(TensorDict(data, batch)).get(_action_key(policy)),)


def _inner(policy: Any, data: dict[NestedKey, Any]) -> tuple[Any, dict[NestedKey, Any]]:
    """The network that has the distribution, and what it reads."""
    while isinstance(policy, (ForeignActor, NormalizedActor, NoisyActor)):
        if isinstance(policy, NormalizedActor):
            data = {key: policy.norm(key, value) for key, value in data.items()}
        policy = policy.network if isinstance(policy, ForeignActor) else policy.actor
    return policy, data


def _law_of(policy: nn.Module) -> dict[str, Any] | None:
    network, _ = _inner(policy, {})
    if not isinstance(network, ProbabilisticTensorDictSequential):
        return None
    last = network[-1]
    if last.distribution_class not in _CLASSES:
        return None
    name, names = last.distribution_class.__name__, tuple(last.dist_keys)
    options = dict(last.distribution_kwargs)
    bounds = {"low", "high"} if name.startswith("Tanh") else set()
    if names not in LAWS[name] or not options.keys() <= bounds:
        return None
    return {"name": name, "names": list(names), **options}


def _action_key(policy: Any) -> NestedKey:
    return "action" if "action" in policy.out_keys else policy.out_keys[0]


def program_actor(
    policy: TensorDictModuleBase, example: Mapping[NestedKey, Tensor]
) -> ProgramActor:
    """A stored form of any actor; UsageError where it cannot be captured.

    Args:
        policy: the actor.
        example: rows of each observation entry that it reads.
    """
    reads = {key: list(example[key].shape[1:]) for key in policy.in_keys}
    law = _law_of(policy)
    drawn = isinstance(_inner(policy, {})[0], ProbabilisticTensorDictSequential)
    outputs, device = _Outputs(policy, law is not None), next(iter(example.values())).device
    with evaluating(policy):
        is_new = policy not in _CAPTURED
        if is_new:
            try:
                inputs = [example[key] for key in policy.in_keys]
                _CAPTURED[policy] = Captured(outputs, inputs)
            except Exception as error:
                raise _refusal(policy, str(error)) from error
        actor = ProgramActor(
            reads=reads,
            action_key=_action_key(policy),
            program=_CAPTURED[policy].page,
            law=law,
            draws=law is not None or not drawn,
        )
        actor.program.load_state_dict(_CAPTURED[policy].state(outputs))
        actor = actor.to(device).eval()
        if is_new:
            _compare(actor, policy, example)
    return actor


# A program is captured once; its weights are read whenever it is stored.
_CAPTURED: WeakKeyDictionary[nn.Module, Captured] = WeakKeyDictionary()


def _compare(actor: ProgramActor, policy: Any, example: Mapping[NestedKey, Tensor]) -> None:
    """Refuse a program that does not act as its policy on other numbers of rows."""
    draw = torch.Generator().manual_seed(0)
    for rows in (1, 6):
        data = TensorDict({}, [rows])
        for key in policy.in_keys:
            value = torch.randn((rows, *example[key].shape[1:]), generator=draw)
            data.set(
                key,
                value.to(example[key])
                if example[key].is_floating_point()
                else example[key][:1].expand(rows, *example[key].shape[1:]),
            )
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            ours, theirs = (each(data.copy()).get(actor.out_keys[0]) for each in (actor, policy))
        if ours.shape != theirs.shape or not torch.allclose(
            ours.double(), theirs.double(), rtol=1e-4, atol=1e-4
        ):
            raise _refusal(policy, f"its program acts differently on {rows} rows")


def _refusal(policy: Any, reason: str) -> UsageError:
    first = reason.strip().splitlines()[0] if reason.strip() else "no reason was given"
    return UsageError(
        f"`actor` must be a network that torch.export can capture, got {type(policy).__name__}: "
        f"{first}; without that no policy file could be written"
    )
