"""The entry of an environment that flags junk: transitions that no action of a policy made."""

from __future__ import annotations

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.envs import EnvBase

#: Name of the entry beside the observation that says: the transition that begins here is junk.
JUNK = "junk"


def junk_of(rows: TensorDictBase) -> Tensor | None:
    """Flags `[*B]` of the rows that are junk; None where the environment flags none.

    Simulators that reset in the next step give one transition after each end that leads from the
    last observation of an episode to the first of the next. Their environment flags it with the
    entry `junk`, true where the transition begins, and hands it out as an episode of its own: one
    step without reward that is truncated. So advantages, folds, slices and states end before and
    after it like at every other end, and it only has to be left out.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> junk_of(TensorDict({"junk": torch.tensor([[False], [True]])}, [2]))
    tensor([False,  True])
    """
    flags = rows.get(JUNK, None)
    return None if flags is None else flags.reshape(rows.batch_size)


def junk_keys(source: TensorDictBase | EnvBase) -> list[str]:
    """The entry that flags junk, in a list that is empty where there is none.

    >>> from torchrl.envs import PendulumEnv
    >>> junk_keys(PendulumEnv())
    []
    """
    held = source.full_observation_spec if isinstance(source, EnvBase) else source
    if JUNK not in held.keys():  # noqa: SIM118 - specs have no other test
        return []
    if isinstance(source, EnvBase):
        shape, dtype = tuple(held[JUNK].shape[len(source.batch_size) :]), held[JUNK].dtype
        if (shape, dtype) != ((1,), torch.bool):
            raise ValueError(
                f"observation `{JUNK}` must be a flag of shape (1,), true where a transition leads "
                f"from one episode to the next, got shape {shape} of {dtype}; give it another name"
            )
    return [JUNK]
