"""Pure tensor equations; nothing here holds state or knows a TensorDict."""

from torchrl_elegant.functional.bellman import bellman_target, soft_value
from torchrl_elegant.functional.ensembles import pick_members, reduce_members
from torchrl_elegant.functional.squash import squashed_mode, squashed_sample
from torchrl_elegant.functional.trust import actor_ratio, critic_trust

__all__ = [
    "actor_ratio",
    "bellman_target",
    "critic_trust",
    "pick_members",
    "reduce_members",
    "soft_value",
    "squashed_mode",
    "squashed_sample",
]
