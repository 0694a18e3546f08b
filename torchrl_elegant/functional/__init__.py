"""Pure tensor equations; nothing here holds state or knows a TensorDict."""

from torchrl_elegant.functional.advantage import discounted_sum, gae, standardised
from torchrl_elegant.functional.bellman import bellman_target, soft_value
from torchrl_elegant.functional.categorical import (
    categorical_entropy,
    categorical_sample,
    categorical_slope,
)
from torchrl_elegant.functional.choices import choose, chosen, dueling_values
from torchrl_elegant.functional.ensembles import draw_members, reduce_members
from torchrl_elegant.functional.gaussian import (
    normal_entropy,
    normal_log_density,
    normal_log_prob,
    normal_score,
    normal_slopes,
)
from torchrl_elegant.functional.gradients import norm_of
from torchrl_elegant.functional.hamiltonian import (
    Form,
    Steps,
    hamiltonian,
    hamiltonian_slope,
    steps_of,
)
from torchrl_elegant.functional.multi_step import Spans, spans
from torchrl_elegant.functional.perceptron import SLOPES, perceptron, perceptron_gradient
from torchrl_elegant.functional.pictures import (
    LUMA,
    area_weights,
    has_channels_last,
    is_image,
)
from torchrl_elegant.functional.squash import squashed_log_prob, squashed_mode, squashed_sample
from torchrl_elegant.functional.surrogate import (
    clipped_surrogate,
    clipped_surrogate_slope,
    kl_estimate,
    ratio_statistics,
)
from torchrl_elegant.functional.trust import actor_ratio, critic_trust
from torchrl_elegant.functional.value_fit import (
    clipped_value_loss,
    explained_variance,
    value_loss,
    value_slope,
)
from torchrl_elegant.functional.vtrace import VTraceEstimate, vtrace

__all__ = [
    "LUMA",
    "SLOPES",
    "Form",
    "Spans",
    "Steps",
    "VTraceEstimate",
    "actor_ratio",
    "area_weights",
    "bellman_target",
    "categorical_entropy",
    "categorical_sample",
    "categorical_slope",
    "choose",
    "chosen",
    "clipped_surrogate",
    "clipped_surrogate_slope",
    "clipped_value_loss",
    "critic_trust",
    "discounted_sum",
    "draw_members",
    "dueling_values",
    "explained_variance",
    "gae",
    "hamiltonian",
    "hamiltonian_slope",
    "has_channels_last",
    "is_image",
    "kl_estimate",
    "norm_of",
    "normal_entropy",
    "normal_log_density",
    "normal_log_prob",
    "normal_score",
    "normal_slopes",
    "perceptron",
    "perceptron_gradient",
    "ratio_statistics",
    "reduce_members",
    "soft_value",
    "spans",
    "squashed_log_prob",
    "squashed_mode",
    "squashed_sample",
    "standardised",
    "steps_of",
    "value_loss",
    "value_slope",
    "vtrace",
]
