"""Exported policies: one file in, NumPy actions out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from tensordict import NestedKey, TensorDict
from tensordict.nn import TensorDictModuleBase
from torch import nn
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_elegant.config.text import UsageError, nearest
from torchrl_elegant.functional import path_of
from torchrl_elegant.modules import (
    CategoricalActor,
    DeterministicActor,
    EpsilonGreedyActor,
    GaussianActor,
    MultiCategoricalActor,
    NoisyActor,
    NormalizedActor,
    NoSpecification,
    RecurrentActor,
    SquashedGaussianActor,
    own_state,
)
from torchrl_elegant.modules.multiagent.actors import GroupActors
from torchrl_elegant.modules.multiagent.selfplay import SelfPlayActors
from torchrl_elegant.runs.exported.actions import Observed, PlainActions
from torchrl_elegant.runs.exported.ensemble import EnsembleActor
from torchrl_elegant.runs.exported.policy_file import PolicyFileError, read_page, write_page
from torchrl_elegant.runs.exported.program_actor import ProgramActor, program_actor

#: Name in the file -> callable that takes its ``spec_dict``; add your own to load your actors.
BUILDERS: dict[str, Callable[..., TensorDictModuleBase]] = {
    "CategoricalActor": CategoricalActor,
    "DeterministicActor": DeterministicActor,
    "EpsilonGreedyActor": EpsilonGreedyActor.from_spec,
    "GaussianActor": GaussianActor,
    "MultiCategoricalActor": MultiCategoricalActor,
    "NoisyActor": NoisyActor.from_spec,
    "ProgramActor": ProgramActor,
    "SquashedGaussianActor": SquashedGaussianActor,
}
# They name others.
BUILDERS["NormalizedActor"] = partial(NormalizedActor.from_spec, BUILDERS)
BUILDERS["SelfPlayActors"] = partial(SelfPlayActors.from_spec, BUILDERS)
BUILDERS["GroupActors"] = partial(GroupActors.from_spec, BUILDERS)
BUILDERS["RecurrentActor"] = partial(RecurrentActor.from_spec, BUILDERS)
BUILDERS["EnsembleActor"] = partial(EnsembleActor.from_spec, BUILDERS)


@runtime_checkable
class Describable(Protocol):
    """Actor that can be built again from plain data."""

    def spec_dict(self) -> dict[str, Any]:
        """Give the keyword arguments of the actor's builder in ``BUILDERS``."""


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
            `action_start`; `action_sizes` are those of several choices at once; `observation`
            maps entries to `[shape, dtype]`; the training loop adds `env`, `frames`, `return_mean`,
            and `pixels`: `Pixels(**pixels).wrap(env)` shows what the policy was trained on.
        builder: the name in `BUILDERS` that makes such an actor; None: its class's name. An actor
            of another class is stored as a program of tensor operations (`runs.exported.program`).

    >>> import tempfile
    >>> from torchrl_elegant.modules import SquashedGaussianActor
    >>> actor = SquashedGaussianActor(observation={"observation": (3,)}, low=[-1.0], high=[1.0])
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     save_policy(f"{folder}/policy.pt", actor, {"env": "Pendulum-v1"})
    ...     type(load_policy(f"{folder}/policy.pt")).__name__
    'SquashedGaussianActor'
    """
    if builder is not None and builder not in BUILDERS:
        raise UsageError(
            f"`builder` must be in BUILDERS, got {builder!r}; {nearest(builder, BUILDERS)}"
        )
    builder, spec, policy = describe(policy, metadata, builder)
    state = {
        key: value.detach().cpu().clone() if isinstance(value, torch.Tensor) else value
        for key, value in policy.state_dict().items()
    }
    page = {
        "builder": builder,
        "spec": _storable(spec, "spec_dict()"),
        "state": state,
        "metadata": _storable(metadata, "metadata"),
    }
    write_page(path, page)


def describe(
    policy: TensorDictModuleBase, metadata: Mapping[str, Any], builder: str | None = None
) -> tuple[str, dict[str, Any], TensorDictModuleBase]:
    """Builder's name, its keyword arguments, and the actor in the form that they build.

    UsageError for an actor that can be stored in no form.
    """
    name = builder or type(policy).__name__
    if name in BUILDERS and isinstance(policy, Describable):
        try:
            return name, policy.spec_dict(), policy
        except NoSpecification:
            pass
    observed = Observed.of(policy.in_keys, metadata, _shapes(policy))
    stored = program_actor(policy, observed.example(3, device_of(policy)))
    return "ProgramActor", stored.spec_dict(), stored


def _shapes(actor: TensorDictModuleBase) -> Mapping[NestedKey, Sequence[int]]:
    """Shapes of observations that an actor itself tells."""
    try:
        return actor.spec_dict().get("observation", {}) if isinstance(actor, Describable) else {}
    except NoSpecification:
        return {}


def device_of(policy: nn.Module) -> torch.device:
    """Device of the parameters and buffers."""
    tensors = (*policy.parameters(), *policy.buffers())
    return tensors[0].device if tensors else torch.device("cpu")


def load_policy(path: str | Path, device: torch.device | str = "cpu") -> TensorDictModuleBase:
    """The actor in a policy file, for a TorchRL collector or evaluator."""
    return _build(read_page(path), path, device)


class Policy:
    """A trained policy for a plain Gymnasium loop: `action = policy(observation)`.

    Observations are arrays, or mappings of arrays where the environment's are; rows in front pass
    through. Actions are in the environment's own units; those of several groups of agents come as
    a mapping, by their keys. A call gives the best action, `sample` one that is drawn as in
    training. A policy with a memory goes on from its last call: call `reset` at the beginning of
    each episode.

    Args:
        actor: the actor, with `in_keys` among the observations and an `action` to write.
        metadata: what the policy file holds about it; see `save_policy`.

    >>> from tensordict.nn import TensorDictModule
    >>> actor = TensorDictModule(torch.nn.Tanh(), in_keys=["observation"], out_keys=["action"])
    >>> policy = Policy(actor, {"action_low": [-2.0], "action_high": [2.0]})
    >>> policy(np.zeros(1)), policy(np.zeros((5, 1))).shape
    (array([0.]), (5, 1))
    """

    def __init__(self, actor: TensorDictModuleBase, metadata: Mapping[str, Any]) -> None:
        self.actor = actor
        self.metadata = dict(metadata)
        self.reset()
        acted = [key for key in actor.out_keys if path_of(key)[-1] == "action"]
        self.action_keys = acted or actor.out_keys[:1]
        self.in_own_units = PlainActions(metadata).to(device_of(actor))
        self.observed = Observed.of(actor.in_keys, metadata, _shapes(actor))

    @classmethod
    def load(cls, path: str | Path, device: torch.device | str = "cpu") -> Policy:
        """Read a policy file. It is data: nothing in it is run, whoever wrote it."""
        page = read_page(path)
        return cls(_build(page, path, device), page["metadata"])

    def __call__(self, observation: Any) -> Any:
        return self._act(observation, ExplorationType.DETERMINISTIC)

    def sample(self, observation: Any) -> Any:
        """An action drawn from the policy's distribution, or with the exploration of training.

        A deterministic actor of a class that is not this package's is stored without noise: it
        gives its best action here as well.
        """
        return self._act(observation, ExplorationType.RANDOM)

    def reset(self) -> None:
        """Begin new episodes: a policy with a memory forgets the old ones; any other has none."""
        self.acting = own_state(self.actor)

    @property
    def device(self) -> torch.device:
        """Device on which actions are worked out."""
        return device_of(self.actor)

    def to(self, device: torch.device | str) -> Policy:
        """Move to a device; gives the policy itself."""
        self.actor.to(device)
        self.in_own_units.to(device)
        return self

    def save(self, path: str | Path) -> Path:
        """Write a policy file, which must be new."""
        path = new_file(path)
        save_policy(path, self.actor, self.metadata)
        return path

    def export(self, path: str | Path) -> Path:
        """Write the policy for other programs: `.onnx`, or `.pt2` for `torch.export.load`.

        See `runs.exported.formats.export_policy`. ONNX needs torchrl_elegant[export].
        """
        from torchrl_elegant.runs.exported.formats import export_policy

        return export_policy(self, path)

    def action(self, data: TensorDict) -> torch.Tensor:
        """The action in the environment's units, at observations of the actor's own form."""
        return self.in_own_units(self.acting(data).get(self.action_keys[0]))

    def _act(self, observation: Any, mode: ExplorationType) -> Any:
        data = self.observed(observation, self.device)
        with torch.no_grad(), set_exploration_type(mode):
            self.acting(data)
        # A single action is a scalar, as simulators want it, and not an array without axes.
        each = {key: self.in_own_units(data.get(key)).cpu().numpy()[()] for key in self.action_keys}
        return each if len(each) > 1 else each[self.action_keys[0]]


def new_file(path: str | Path, *, option: str = "path") -> Path:
    """The path of a file to write; UsageError where there is one, which is never overwritten.

    ``option`` is the name under which the user gave it.
    """
    path = Path(path)
    if path.exists():
        raise UsageError(f"`{option}` must be a new file, got {str(path)!r}, which exists already")
    if not path.parent.is_dir():
        raise UsageError(
            f"`{option}` must lie in a folder that exists, got {str(path)!r}; make "
            f"{str(path.parent)!r} first"
        )
    return path


def _build(
    page: Mapping[str, Any], path: str | Path, device: torch.device | str
) -> TensorDictModuleBase:
    name = page["builder"]
    if name not in BUILDERS:
        raise PolicyFileError(
            f"{str(path)!r} needs the builder {name!r}: add it to BUILDERS, or name the file that "
            "adds it, as module=my_file"
        )
    try:
        actor = BUILDERS[name](**page["spec"])
        actor.load_state_dict(page["state"])
    except Exception as error:
        # A stranger's file may hold anything.
        reason = "".join(str(error).strip().splitlines()[-1:])
        raise PolicyFileError(
            f"{str(path)!r} must hold what its builder {name!r} takes, got entries that do not "
            f"fit: {reason}; load it with the builder that it was saved with"
        ) from error
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
