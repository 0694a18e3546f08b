"""Settings with which algorithms with a replay buffer are to learn known environments."""

from __future__ import annotations

from collections.abc import Mapping

from torchrl_elegant.algorithms.tuned_shared import FAR, Settings, each_walker

_SMALL = {"num_cells": (64, 64), "batch_size": 128}
_MEDIUM = {"num_cells": (128, 128), "batch_size": 128}

_SAC_RATES = {"actor_lr": 1e-3, "critic_lr": 1e-3, "alpha_lr": 1e-3}
# More entropy than minus the two dimensions: a calm policy learns to hover and never lands.
_SAC_LANDER = {
    **_MEDIUM,
    "actor_lr": 5e-4,
    "critic_lr": 1e-3,
    "alpha_lr": 5e-4,
    "target_entropy": -0.5,
    "warmup": 5_000,
    "total_frames": 150_000,
}
_SAC: dict[str, Settings] = {
    "Pendulum-v1": {**_SMALL, **_SAC_RATES, "total_frames": 15_000},
    "LunarLanderContinuous-v3": _SAC_LANDER,
    "BipedalWalker-v3": {"warmup": 10_000, "gamma": 0.98, "tau": 0.02, "total_frames": 500_000},
    "Swimmer-v5": {**FAR, "warmup": 10_000, "total_frames": 500_000},
    **each_walker({"warmup": 5_000, "total_frames": 1_000_000}),
}
# The smallest of eight critics sees so little good in the ground that it hovers, too.
_MODSAC: dict[str, Settings] = {
    **_SAC,
    "LunarLanderContinuous-v3": {**_SAC_LANDER, "num_critics": 4, "target_members": 2},
}
_REDQ: dict[str, Settings] = {
    **_SAC,
    "Pendulum-v1": {
        **_SMALL,
        **_SAC_RATES,
        "batch_size": 64,
        "warmup": 500,
        "total_frames": 4_000,
    },
    # Returns of five steps: with one, half of the seeds hover for good.
    "LunarLanderContinuous-v3": {
        **_SAC_LANDER,
        "batch_size": 64,
        "n_steps": 5,
        "num_critics": 5,
        "target": "weighted",
        "target_members": None,
        "updates_per_frame": 1.0,
        "lr_part": 0.0,
        "total_frames": 100_000,
    },
    **each_walker({"warmup": 5_000, "total_frames": 125_000}),
}
_DDPG: dict[str, Settings] = {
    "Pendulum-v1": {**_SMALL, "total_frames": 15_000},
    "LunarLanderContinuous-v3": {**_MEDIUM, "warmup": 5_000, "total_frames": 200_000},
    "BipedalWalker-v3": {"warmup": 10_000, "gamma": 0.98, "total_frames": 1_000_000},
    "Swimmer-v5": {**FAR, "warmup": 10_000, "total_frames": 500_000},
    **each_walker({"warmup": 10_000, "total_frames": 1_000_000}),
}
# Values that still move at the end make a policy that has been good play badly by chance.
_DQN: dict[str, Settings] = {
    "CartPole-v1": {
        **_SMALL,
        "lr": 2e-3,
        "lr_part": 0.0,
        "updates_per_frame": 1.0,
        "total_frames": 50_000,
    },
    "Acrobot-v1": {**_SMALL, "lr_part": 0.0, "total_frames": 50_000},
    "LunarLander-v3": {**_MEDIUM, "lr_part": 0.0, "warmup": 5_000, "total_frames": 200_000},
}
# With a discount of 0.99 one seed in five or six loses at the end what it had learnt.
_DUELING = {**_DQN, "CartPole-v1": {**_DQN["CartPole-v1"], "gamma": 0.98}}
_DISCRETE_SAC: dict[str, Settings] = {
    **_DQN,
    "CartPole-v1": {**_SMALL, "lr_part": 0.0, "updates_per_frame": 1.0, "total_frames": 50_000},
}

OFF_POLICY: Mapping[str, Mapping[str, Settings]] = {
    "ddpg": _DDPG,
    "discrete_sac": _DISCRETE_SAC,
    "dqn": _DQN,
    "dueling_dqn": _DUELING,
    "modsac": _MODSAC,
    "redq": _REDQ,
    "sac": _SAC,
}
