"""What kinds of actions there are, and which an algorithm needs."""

from __future__ import annotations

from tensordict import NestedKey
from torchrl.data import (
    Bounded,
    Categorical,
    Composite,
    MultiCategorical,
    MultiOneHot,
    OneHot,
    TensorSpec,
)
from torchrl.envs import EnvBase

_KINDS: dict[type[TensorSpec], str] = {
    **dict.fromkeys((OneHot, Categorical), "discrete"),
    **dict.fromkeys((MultiOneHot, MultiCategorical), "multi-discrete"),
}


class ActionSpaceError(ValueError):
    """An environment whose actions, of the ``kind`` named, an algorithm cannot take."""

    def __init__(self, message: str, *, kind: str) -> None:
        super().__init__(message)
        self.kind = kind


def only_action(env: EnvBase, *, algorithm: str) -> tuple[NestedKey, TensorSpec]:
    """Key and spec of the one action that ``algorithm`` needs."""
    leaves = list(env.full_action_spec_unbatched.items(True, True))
    if len(leaves) != 1:
        raise ValueError(f"{algorithm} needs one action entry, got `{[key for key, _ in leaves]}`")
    return leaves[0]


def kind_of(spec: TensorSpec) -> str:
    """What configurations call actions of ``spec``; those that none takes by their class's name.

    >>> kind_of(OneHot(3)), kind_of(MultiOneHot((2, 3)))
    ('discrete', 'multi-discrete')
    """
    if spec.dtype.is_floating_point:
        return "continuous"
    return _KINDS.get(type(spec), type(spec).__name__)


def bounded_action(env: EnvBase, *, algorithm: str) -> tuple[NestedKey, Bounded]:
    """Key and spec of the one bounded continuous action that ``algorithm`` needs."""
    key, spec = only_action(env, algorithm=algorithm)
    if not spec.dtype.is_floating_point:
        raise ActionSpaceError(
            f"{algorithm} needs a continuous action space, got `{type(spec).__name__}` with "
            f"{_choices(spec)}; choose an algorithm for discrete actions or a continuous variant "
            "of the environment",
            kind=kind_of(spec),
        )
    if not isinstance(spec, Bounded):
        raise ValueError(
            f"{algorithm} needs a bounded action space, got `{type(spec).__name__}`; wrap the "
            "environment in gymnasium.wrappers.RescaleAction or give its Box finite bounds"
        )
    return key, spec


def _choices(spec: TensorSpec | Composite) -> str:
    return f"{spec.space.n} choices" if hasattr(spec.space, "n") else f"space `{spec.space}`"
