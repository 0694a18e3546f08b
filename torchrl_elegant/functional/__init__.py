"""Pure tensor equations; nothing here holds state or knows a TensorDict."""

from torchrl_elegant.functional.advantage import discounted_sum, gae, standardised
from torchrl_elegant.functional.bellman import bellman_target, soft_value
from torchrl_elegant.functional.categorical import categorical_entropy, categorical_sample
from torchrl_elegant.functional.choices import choose, chosen, dueling_values
from torchrl_elegant.functional.ensembles import draw_members, reduce_members
from torchrl_elegant.functional.gaussian import normal_entropy, normal_log_prob
from torchrl_elegant.functional.pictures import (
    LUMA,
    area_weights,
    has_channels_last,
    is_image,
)
from torchrl_elegant.functional.squash import squashed_mode, squashed_sample
from torchrl_elegant.functional.surrogate import clipped_surrogate, ratio_statistics
from torchrl_elegant.functional.trust import actor_ratio, critic_trust
from torchrl_elegant.functional.value_fit import (
    clipped_value_loss,
    explained_variance,
    value_loss,
)

__all__ = [
    "LUMA",
    "actor_ratio",
    "area_weights",
    "bellman_target",
    "categorical_entropy",
    "categorical_sample",
    "choose",
    "chosen",
    "clipped_surrogate",
    "clipped_value_loss",
    "critic_trust",
    "discounted_sum",
    "draw_members",
    "dueling_values",
    "explained_variance",
    "gae",
    "has_channels_last",
    "is_image",
    "normal_entropy",
    "normal_log_prob",
    "ratio_statistics",
    "reduce_members",
    "soft_value",
    "squashed_mode",
    "squashed_sample",
    "standardised",
    "value_loss",
]
