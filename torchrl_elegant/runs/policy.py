"""Exported policies: one file in, NumPy actions out."""

from __future__ import annotations

import io
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from tensordict import NestedKey, TensorDict
from tensordict.nn import TensorDictModuleBase
from torch.nn.functional import one_hot
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_elegant.config.text import UsageError, nearest
from torchrl_elegant.functional import is_image
from torchrl_elegant.modules import (
    CategoricalActor,
    DeterministicActor,
    EpsilonGreedyActor,
    GaussianActor,
    MultiCategoricalActor,
    NoisyActor,
    NormalizedActor,
    SquashedGaussianActor,
)
from torchrl_elegant.runs.files import write_file

#: Name in the file -> callable that takes its ``spec_dict``; add your own to load your actors.
BUILDERS: dict[str, Callable[..., TensorDictModuleBase]] = {
    "CategoricalActor": CategoricalActor,
    "DeterministicActor": DeterministicActor,
    "EpsilonGreedyActor": EpsilonGreedyActor.from_spec,
    "GaussianActor": GaussianActor,
    "MultiCategoricalActor": MultiCategoricalActor,
    "NoisyActor": NoisyActor.from_spec,
    "SquashedGaussianActor": SquashedGaussianActor,
}
# It names another one.
BUILDERS["NormalizedActor"] = partial(NormalizedActor.from_spec, BUILDERS)


class Observed:
    """Turns arrays, or mappings of arrays, into an actor's TensorDict.

    Args:
        keys: what the actor reads.
        shapes: the shape of each entry, where it is known.
        device: where the actor is.

    >>> observed = Observed(["room"], {"room": (3,)}, torch.device("cpu"))
    >>> observed({"room": 1, "clock": 0.5})["room"].tolist()
    [0.0, 1.0, 0.0]
    """

    def __init__(
        self,
        keys: Sequence[NestedKey],
        shapes: Mapping[NestedKey, Sequence[int]],
        device: torch.device,
    ) -> None:
        self._keys, self._device = list(keys), device
        self._shapes = {key: tuple(shape) for key, shape in shapes.items()}

    def __call__(self, observation: Any) -> TensorDict:
        if not isinstance(observation, Mapping):
            (key,) = self._keys
            return TensorDict({key: self._tensor(key, observation)})
        data = TensorDict()
        for key in self._keys:
            value = observation
            for name in (key,) if isinstance(key, str) else key:
                value = value[name]
            data.set(key, self._tensor(key, value))
        return data

    def _tensor(self, key: NestedKey, value: Any) -> torch.Tensor:
        tensor = torch.as_tensor(np.asarray(value), device=self._device)
        shape = self._shapes.get(key, ())
        size = math.prod(shape)
        if tensor.ndim == 0:
            # Environments hand on a single number as a vector, a choice among many as one-hot.
            tensor = one_hot(tensor, size) if size > 1 else tensor.reshape(1)
        # The bytes of a picture are for its encoder to scale.
        whole = not tensor.is_floating_point() and (size == 1 or is_image(shape))
        return tensor if whole else tensor.float()


class PlainActions:
    """Actions in an environment's own units, as the metadata of a policy file describes them.

    >>> actions = PlainActions({"discrete_actions": "one_hot", "action_start": 5})
    >>> actions(np.array([0, 1, 0])).item()
    6
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        low, high = metadata.get("action_low"), metadata.get("action_high")
        if (low is None) != (high is None):
            raise UsageError(f"`action_low`, `action_high` must come together, got {low}, {high}")
        self._low, self._high = (None if x is None else np.asarray(x) for x in (low, high))
        self._form = metadata.get("discrete_actions")
        if self._form not in (None, "one_hot", "categorical"):
            raise UsageError(f"`discrete_actions` must be one_hot, categorical, got {self._form!r}")
        self._start = np.asarray(metadata.get("action_start", 0))
        self._sizes = metadata.get("action_sizes")

    def __call__(self, action: np.ndarray) -> np.ndarray:
        if self._form is not None:
            return self._chosen(action)
        if self._low is None or self._high is None:
            return action
        # Exact at both ends, unlike center + scale, so that rounding never leaves the bounds.
        part = (np.clip(action, -1.0, 1.0) + 1) / 2
        return (self._low * (1 - part) + self._high * part).astype(self._low.dtype)

    def _chosen(self, action: np.ndarray) -> np.ndarray:
        if self._sizes is None:
            return (action.argmax(-1) if self._form == "one_hot" else action) + self._start
        if self._form == "one_hot":
            blocks = np.split(action, np.cumsum(self._sizes)[:-1], axis=-1)
            action = np.stack([block.argmax(-1) for block in blocks], -1)
        return action.reshape(*action.shape[:-1], *self._start.shape) + self._start


_FORMAT = "torchrl_elegant.policy"
_VERSION = 1


@runtime_checkable
class Describable(Protocol):
    """Actor that can be built again from plain data."""

    def spec_dict(self) -> dict[str, Any]:
        """Give the keyword arguments of the actor's builder in ``BUILDERS``."""


class PolicyFileError(UsageError):
    """A policy file that cannot be read."""


def save_policy(
    path: str | Path,
    policy: TensorDictModuleBase,
    metadata: Mapping[str, Any],
    *,
    builder: str | None = None,
) -> None:
    """Write `policy` to `path` in one step.

    Args:
        path: the file.
        policy: the actor; its `spec_dict()` returns the builder's keyword arguments.
        metadata: plain data and arrays about the policy. `Policy` reads `action_low` and
            `action_high` (the environment's own bounds, to which the actor's -1 to 1 is
            stretched; None where the actor acts in the environment's units) and
            `discrete_actions` (`"one_hot"`, `"categorical"` or None), to whose choices it adds
            `action_start`; `action_sizes` are those of several choices at once; the training loop
            adds `env`, `frames`, `return_mean`, and `pixels`, with which
            `Pixels(**pixels).wrap(env)` shows what the policy was trained on.
        builder: the name in `BUILDERS` that makes such an actor; None: its class's name.

    >>> import tempfile
    >>> from torchrl_elegant.modules import SquashedGaussianActor
    >>> actor = SquashedGaussianActor(observation={"observation": (3,)}, low=[-1.0], high=[1.0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_policy(f"{folder}/policy.pt", actor, {"env": "Pendulum-v1"})
    ...     type(load_policy(f"{folder}/policy.pt")).__name__
    'SquashedGaussianActor'
    """
    builder = builder or type(policy).__name__
    if builder not in BUILDERS:
        raise UsageError(
            f"`builder` must be in BUILDERS, got {builder!r}; {nearest(builder, BUILDERS)}"
        )
    state = {
        key: value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value
        for key, value in policy.state_dict().items()
    }
    page = {
        "format": _FORMAT,
        "version": _VERSION,
        "builder": builder,
        "spec": _storable(policy.spec_dict(), "spec_dict()"),
        "state": state,
        "metadata": _storable(metadata, "metadata"),
    }
    data = io.BytesIO()
    torch.save(page, data)
    write_file(path, data.getvalue())


def load_policy(path: str | Path, device: torch.device | str = "cpu") -> TensorDictModuleBase:
    """The actor in a policy file, for a TorchRL collector or evaluator."""
    return _build(_read(path), device)


class Policy:
    """A trained policy for a plain Gymnasium loop: `action = policy(observation)`.

    Observations are arrays, or mappings of arrays where the environment's are; a leading batch
    dimension passes through. Actions are deterministic and in the environment's own units.

    Args:
        actor: the actor, with `in_keys` among the observations and an `action` to write.
        metadata: what the policy file holds about it; see `save_policy`.

    >>> from tensordict.nn import TensorDictModule
    >>> actor = TensorDictModule(torch.nn.Tanh(), in_keys=["observation"], out_keys=["action"])
    >>> policy = Policy(actor, {"action_low": [-2.0], "action_high": [2.0]})
    >>> policy(np.zeros(1))
    array([0.])
    """

    def __init__(self, actor: TensorDictModuleBase, metadata: Mapping[str, Any]) -> None:
        self.actor = actor
        self.metadata = dict(metadata)
        self._action_key = "action" if "action" in actor.out_keys else actor.out_keys[0]
        self._in_own_units = PlainActions(metadata)
        spec = actor.spec_dict() if isinstance(actor, Describable) else {}
        shapes = spec.get("observation", {})
        device = next((p.device for p in actor.parameters()), torch.device("cpu"))
        self._observed = Observed(actor.in_keys, shapes, device)

    @classmethod
    def load(cls, path: str | Path, device: torch.device | str = "cpu") -> Policy:
        """Read a policy file."""
        page = _read(path)
        return cls(_build(page, device), page["metadata"])

    def __call__(self, observation: Any) -> np.ndarray:
        data = self._observed(observation)
        with torch.no_grad(), set_exploration_type(ExplorationType.DETERMINISTIC):
            action = self.actor(data).get(self._action_key).cpu().numpy()
        return self._in_own_units(action)


def _read(path: str | Path) -> dict[str, Any]:
    path = Path(path)
    if not path.is_file():
        raise PolicyFileError(f"no policy file at {str(path)!r}")
    try:
        page = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:
        raise PolicyFileError(f"{str(path)!r} is not a readable policy file: {error}") from error
    if not isinstance(page, dict) or page.get("format") != _FORMAT:
        raise PolicyFileError(f"{str(path)!r} is a torch file, but not a policy file")
    if (found := page["version"]) != _VERSION:
        raise PolicyFileError(f"{str(path)!r} has format version {found}, not {_VERSION}")
    return page


def _build(page: Mapping[str, Any], device: torch.device | str) -> TensorDictModuleBase:
    name = page["builder"]
    if name not in BUILDERS:
        raise PolicyFileError(f"the policy needs the builder {name!r}: add it to BUILDERS")
    actor = BUILDERS[name](**page["spec"])
    actor.load_state_dict(page["state"])
    return actor.to(device).eval()


def _storable(value: Any, name: str) -> Any:
    """Plain data as it is, arrays as tensors; anything else could not be read back safely."""
    if isinstance(value, Mapping):
        return {key: _storable(item, f"{name}[{key!r}]") for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_storable(item, name) for item in value)
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, torch.Tensor):
        return value.detach().cpu().clone()
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    raise UsageError(f"`{name}` must be plain data or arrays, got {type(value).__name__}")
