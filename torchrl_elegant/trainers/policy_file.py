"""`policy.pt`: a trained policy in one file, read without running any code from it."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tensordict.nn import TensorDictModuleBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_elegant.trainers.atomic import write_file
from torchrl_elegant.trainers.builders import BUILDERS
from torchrl_elegant.trainers.observed import Observed
from torchrl_elegant.trainers.plain_actions import PlainActions
from torchrl_elegant.trainers.values import UsageError, nearest

__all__ = ["BUILDERS", "Policy", "PolicyFileError", "load_policy", "save_policy"]

_FORMAT = "torchrl_elegant.policy"
_VERSION = 1


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
        spec: Callable[[], dict[str, Any]] = getattr(actor, "spec_dict", dict)
        shapes = spec().get("observation", {})
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
