"""The entry of an environment that says which discrete actions are allowed."""

from __future__ import annotations

from tensordict import NestedKey, unravel_key
from torchrl.data import Categorical, MultiCategorical, MultiOneHot, OneHot
from torchrl.envs import EnvBase

from torchrl_elegant.functional.nested_keys import path_of

#: Name of the entry that says which discrete actions are allowed, as in TorchRL.
ACTION_MASK = "action_mask"


def action_mask_of(env: EnvBase) -> NestedKey | None:
    """Finds the entry ``action_mask`` of an environment with discrete actions, at any depth.

    Of several it is the one beside the action. None without, and where there are several actions.

    >>> from torchrl.envs import GymEnv
    >>> action_mask_of(GymEnv("CartPole-v1"))
    """
    leaves = dict(env.observation_spec_unbatched.items(True, True))
    found = [key for key in leaves if path_of(key)[-1] == ACTION_MASK]
    actions = list(env.full_action_spec_unbatched.items(True, True)) if found else []
    if len(actions) != 1:
        return None
    key, spec = actions[0]
    # The exact types: a Binary is a Categorical, too.
    if type(spec) not in (OneHot, Categorical, MultiOneHot, MultiCategorical):
        return None
    beside = unravel_key((*path_of(key)[:-1], ACTION_MASK))
    if beside not in found and len(found) > 1:
        raise ValueError(
            f"`env` must have one action mask, or one beside its action {key!r}, got {found}; give "
            "the others another name"
        )
    mask = beside if beside in found else found[0]
    single = type(spec) in (OneHot, Categorical)
    count = spec.space.n if single else sum(map(int, spec.nvec))
    rows = spec.shape if type(spec) is Categorical else spec.shape[:-1]
    if leaves[mask].shape != (*rows, count):
        raise ValueError(
            f"observation `{mask}` must have one number for each of the {count} actions, got shape "
            f"`{tuple(leaves[mask].shape)}`; give it shape {(*rows, count)}, or another name"
        )
    return mask
