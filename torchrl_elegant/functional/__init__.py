"""Pure tensor equations, and the rule by which an action mask is found; nothing holds state."""

from torchrl_elegant.functional.action_masks import ACTION_MASK, action_mask_of
from torchrl_elegant.functional.advantage import (
    VTraceEstimate,
    discounted_sum,
    gae,
    standardized,
    vtrace,
)
from torchrl_elegant.functional.bellman import Spans, bellman_target, soft_value, spans
from torchrl_elegant.functional.categorical import (
    allowed_choices,
    categorical_entropy,
    categorical_sample,
    categorical_slope,
    choose,
    chosen,
    dueling_values,
    uniform_sample,
)
from torchrl_elegant.functional.distributional import (
    categorical_projection,
    cross_entropy,
    of_smallest_mean,
)
from torchrl_elegant.functional.ensembles import (
    actor_ratio,
    critic_trust,
    draw_members,
    reduce_members,
)
from torchrl_elegant.functional.gaussian import (
    normal_entropy,
    normal_log_density,
    normal_log_prob,
    normal_score,
    normal_slopes,
    squashed_log_prob,
    squashed_mode,
    squashed_sample,
)
from torchrl_elegant.functional.gradients import norm_of
from torchrl_elegant.functional.gru import gru_states
from torchrl_elegant.functional.hamiltonian import (
    Form,
    Steps,
    hamiltonian,
    hamiltonian_slope,
    steps_of,
)
from torchrl_elegant.functional.images import LUMA, area_weights, has_channels_last, is_image
from torchrl_elegant.functional.junk import JUNK, junk_keys, junk_of
from torchrl_elegant.functional.nested_keys import path_of
from torchrl_elegant.functional.perceptron import (
    SLOPES,
    perceptron,
    perceptron_gradient,
    perceptrons,
)
from torchrl_elegant.functional.surrogate import (
    clipped_surrogate,
    clipped_surrogate_slope,
    kl_estimate,
    ratio_statistics,
)
from torchrl_elegant.functional.value_loss import (
    clipped_value_loss,
    explained_variance,
    value_loss,
    value_slope,
)

__all__ = [
    "ACTION_MASK",
    "JUNK",
    "LUMA",
    "SLOPES",
    "Form",
    "Spans",
    "Steps",
    "VTraceEstimate",
    "action_mask_of",
    "actor_ratio",
    "allowed_choices",
    "area_weights",
    "bellman_target",
    "categorical_entropy",
    "categorical_projection",
    "categorical_sample",
    "categorical_slope",
    "choose",
    "chosen",
    "clipped_surrogate",
    "clipped_surrogate_slope",
    "clipped_value_loss",
    "critic_trust",
    "cross_entropy",
    "discounted_sum",
    "draw_members",
    "dueling_values",
    "explained_variance",
    "gae",
    "gru_states",
    "hamiltonian",
    "hamiltonian_slope",
    "has_channels_last",
    "is_image",
    "junk_keys",
    "junk_of",
    "kl_estimate",
    "norm_of",
    "normal_entropy",
    "normal_log_density",
    "normal_log_prob",
    "normal_score",
    "normal_slopes",
    "of_smallest_mean",
    "path_of",
    "perceptron",
    "perceptron_gradient",
    "perceptrons",
    "ratio_statistics",
    "reduce_members",
    "soft_value",
    "spans",
    "squashed_log_prob",
    "squashed_mode",
    "squashed_sample",
    "standardized",
    "steps_of",
    "uniform_sample",
    "value_loss",
    "value_slope",
    "vtrace",
]
