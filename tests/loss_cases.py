"""A loss of each algorithm over this package's networks, and rows for it."""

from __future__ import annotations

from functools import partial

from deterministic_cases import lean_ddpg, lean_td3
from ppo_cases import lean_nets
from sac_cases import lean_loss, make_batch
from value_cases import categorical_actor, q_network
from value_cases import make_batch as make_choices

from torchrl_elegant.objectives import A2CLoss, ClipPPOLoss, DiscreteSACLoss, DQNLoss, REDQLoss

# Rows that an actor has to make first are None.
CASES = {
    "ddpg": (partial(lean_ddpg, delay_actor=True), make_batch),
    "td3": (lean_td3, make_batch),
    "sac": (partial(lean_loss, 3), make_batch),
    "redq": (partial(lean_loss, 5, loss=REDQLoss), make_batch),
    "dqn": (lambda: DQNLoss(q_network()), make_choices),
    "discrete_sac": (
        lambda: DiscreteSACLoss(categorical_actor(), q_network(num_members=2)),
        make_choices,
    ),
    "ppo": (lambda: ClipPPOLoss(*lean_nets()), None),
    "a2c": (lambda: A2CLoss(*lean_nets()), None),
}
