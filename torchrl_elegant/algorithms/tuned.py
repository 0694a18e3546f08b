"""Tuned settings for known environments."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torchrl_elegant.algorithms.registry import ALGORITHMS

#: Options of algorithms and of runs.
Settings = Mapping[str, Any]

_WALKERS = ("Ant-v5", "HalfCheetah-v5", "Hopper-v5", "Humanoid-v5", "Walker2d-v5")


def each_walker(settings: Settings) -> dict[str, Settings]:
    """The same settings for every environment that walks or runs."""
    return dict.fromkeys(_WALKERS, settings)


# A stroke of Swimmer pays off only as a whole: a discount of 0.99 ends too early.
FAR = {"gamma": 0.9999}


_SMALL = {"num_cells": (64, 64), "batch_size": 128}
_MEDIUM = {"num_cells": (128, 128), "batch_size": 128}

_SAC_RATES = {"actor_lr": 1e-3, "critic_lr": 1e-3, "alpha_lr": 1e-3}
_FALLING = dict.fromkeys(_SAC_RATES, (1e-3, 0.0))
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
# Few updates a frame: accounts side by side see the same days.
_TRADING_OFF_POLICY = {
    "num_envs": 64,
    "frames_per_batch": 256,
    "num_cells": (64, 64),
    "batch_size": 256,
    "warmup": 10_240,
    "updates_per_frame": 0.05,
    "normalize_observation": True,
    "eval_interval": 25_600,
    "total_frames": 102_400,
}
_SAC: dict[str, Settings] = {
    "elegant/stock": _TRADING_OFF_POLICY,
    # The buffer holds the whole run: thousands of rows go through the same phases together.
    "elegant/chasing": {
        **_FALLING,
        "num_envs": 4_096,
        "frames_per_batch": 16_384,
        "num_cells": (64, 64),
        "batch_size": 2_048,
        "buffer_size": 4_194_304,
        "warmup": 65_536,
        "updates_per_frame": 0.002,
        "gamma": 0.9,
        "tau": 0.01,
        "alpha": 0.1,
        "loss_function": "smooth_l1",
        "reward_scale": 20.0,
        "normalize_observation": True,
        "total_frames": 4_194_304,
    },
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
        "actor_lr": (5e-4, 0.0),
        "critic_lr": (1e-3, 0.0),
        "alpha_lr": (5e-4, 0.0),
        "total_frames": 100_000,
    },
    **each_walker({"warmup": 5_000, "total_frames": 125_000}),
}
_DDPG: dict[str, Settings] = {
    "elegant/stock": _TRADING_OFF_POLICY,
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
        "lr": (2e-3, 0.0),
        "updates_per_frame": 1.0,
        "total_frames": 50_000,
    },
    "Acrobot-v1": {**_SMALL, "lr": (1e-3, 0.0), "total_frames": 50_000},
    "LunarLander-v3": {**_MEDIUM, "lr": (1e-3, 0.0), "warmup": 5_000, "total_frames": 200_000},
}
# With a discount of 0.99 one seed in five or six loses at the end what it had learned.
_DUELING = {**_DQN, "CartPole-v1": {**_DQN["CartPole-v1"], "gamma": 0.98}}
_DISCRETE_SAC: dict[str, Settings] = {
    "CartPole-v1": {**_SMALL, **_FALLING, "updates_per_frame": 1.0, "total_frames": 50_000},
    "Acrobot-v1": {**_SMALL, **_FALLING, "total_frames": 50_000},
    "LunarLander-v3": {**_MEDIUM, **_FALLING, "warmup": 5_000, "total_frames": 200_000},
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


_SCALED = {"normalize_observation": True, "normalize_value": True}
_PPO_LANDER = {
    "num_envs": 16,
    "frames_per_batch": 16_384,
    "gamma": 0.999,
    "lmbda": 0.98,
    "epochs": 4,
    "entropy_coeff": 0.01,
    "total_frames": 1_000_000,
}
_PPO_WALKER = {**_SCALED, "num_envs": 8, "lr": (3e-4, 0.0), "total_frames": 1_000_000}
# Trades cost: little noise at the start, so that not all is lost before anything is learned.
_TRADING = {
    **_SCALED,
    "num_envs": 256,
    "frames_per_batch": 16_384,
    "batch_size": 2_048,
    "epochs": 4,
    "lr": (1e-3, 0.0),
    "log_std": -1.0,
    # An evaluation plays whole years.
    "eval_interval": 65_536,
    "total_frames": 262_144,
}
_PPO: dict[str, Settings] = {
    "elegant/stock": _TRADING,
    "elegant/chasing": {
        **_SCALED,
        "num_envs": 4_096,
        "frames_per_batch": 65_536,
        "batch_size": 4_096,
        "epochs": 2,
        "lr": (1e-3, 0.0),
        "total_frames": 12_582_912,
    },
    "Pendulum-v1": {
        "num_envs": 4,
        "frames_per_batch": 1_024,
        "gamma": 0.9,
        "lr": (1e-3, 0.0),
        "activation": "relu",
        "total_frames": 100_000,
    },
    "CartPole-v1": {"num_envs": 8, "total_frames": 50_000},
    "Acrobot-v1": {"num_envs": 8, "total_frames": 100_000},
    "LunarLander-v3": _PPO_LANDER,
    "LunarLanderContinuous-v3": _PPO_LANDER,
    "BipedalWalker-v3": {**_PPO_WALKER, "gamma": 0.999, "total_frames": 3_000_000},
    "Swimmer-v5": {**_PPO_WALKER, **FAR},
    **each_walker(_PPO_WALKER),
    "Humanoid-v5": {**_PPO_WALKER, "total_frames": 5_000_000},
}
_A2C_WALKER = {**_PPO_WALKER, "lr": (7e-4, 0.0)}
_A2C: dict[str, Settings] = {
    "elegant/stock": {**_TRADING, "frames_per_batch": 4_096},
    "Pendulum-v1": {
        **_SCALED,
        "num_envs": 8,
        "gamma": 0.9,
        "lmbda": 0.9,
        "lr": (7e-4, 0.0),
        "log_std": -0.5,
        "optimizer": "rmsprop",
        "total_frames": 1_000_000,
    },
    # At a rate that stays, or with 0.99, what has been learned is lost again now and then.
    "CartPole-v1": {
        "num_envs": 8,
        "gamma": 0.98,
        "lr": (1e-3, 0.0),
        "total_frames": 200_000,
    },
    "Acrobot-v1": {"num_envs": 16, "total_frames": 300_000},
    "LunarLander-v3": {"num_envs": 8, "lr": (7e-4, 0.0), "total_frames": 500_000},
    "LunarLanderContinuous-v3": {**_SCALED, "num_envs": 16, "total_frames": 1_000_000},
    "BipedalWalker-v3": {**_A2C_WALKER, "num_envs": 16, "total_frames": 3_000_000},
    "Swimmer-v5": {**_A2C_WALKER, **FAR},
    **each_walker(_A2C_WALKER),
}

ON_POLICY: Mapping[str, Mapping[str, Settings]] = {"a2c": _A2C, "ppo": _PPO}


# All scenarios of VMAS: their steps cost the same for one copy as for a hundred.
_TEAM = {"num_envs": 60, "total_frames": 300_000}

TEAMS: Mapping[str, Mapping[str, Settings]] = {
    "maddpg": {"vmas/*": _TEAM},
    "mappo": {"vmas/*": {**_TEAM, "num_envs": 120, "frames_per_batch": 12_000}},
    "masac": {"vmas/*": {**_TEAM, "alpha": 0.01}},
    "matd3": {"vmas/*": _TEAM},
    "vdn": {"vmas/*": _TEAM},
}

# Two updates of a large batch for each step of all environments.
_AT_SCALE = {
    **_SCALED,
    "num_envs": 1_024,
    "updates_per_frame": 2 / 1_024,
    "warmup": 10_240,
    "actor_period": 2,
    "atoms": 101,
    "v_min": -10.0,
    "v_max": 10.0,
    "total_frames": 20_480_000,
}
#: Settings for simulators of thousands of environments, by algorithm: FastTD3 (Seo et al. 2025,
#: arXiv:2505.22642), FlashSAC (Kim et al. 2026, arXiv:2604.04539) and PPO as in rsl_rl (Rudin et
#: al. 2021, arXiv:2109.11978). Rewards are scaled, so that one range of values suits many tasks.
SIMULATOR: Mapping[str, Settings] = {
    "ppo": {
        **_SCALED,
        "num_envs": 4_096,
        "frames_per_batch": 4_096 * 24,
        "batch_size": 4_096 * 6,
        "epochs": 5,
        "lr": 1e-3,
        "lr_kl": 0.01,
        "max_grad_norm": 1.0,
        "critic_coeff": 1.0,
        "clip_value": 0.2,
        "entropy_coeff": 0.005,
        "num_cells": (512, 256, 128),
        "activation": "elu",
        "total_frames": 98_304_000,
    },
    "sac": {
        **_AT_SCALE,
        "batch_size": 2_048,
        "num_cells": (256, 256, 256),
        "layer_norm": "all",
        "actor_lr": (3e-4, 1.5e-4, "cosine"),
        "critic_lr": (3e-4, 1.5e-4, "cosine"),
        "alpha": 0.01,
        "tau": 0.01,
    },
    "td3": {
        **_AT_SCALE,
        "batch_size": 32_768,
        "num_cells": (512, 256, 128),
        "layer_norm": "critics",
        "actor_lr": 3e-4,
        "critic_lr": 3e-4,
        "tau": 0.1,
        "actor_q": "min",
        "policy_noise": 0.001,
        "noise": "mixed",
        "noise_std": 0.4,
        "noise_least": 0.001,
    },
}


#: Settings by algorithm and environment; an algorithm without a table takes its parent's. The name
#: ``prefix/*`` stands for all environments of that prefix that have no settings of their own.
TUNED: dict[str, Mapping[str, Settings]] = {**OFF_POLICY, **ON_POLICY, **TEAMS}


def is_tuned(algorithm: str, env: str) -> bool:
    """True for environments with many copies in one, if a table of ``algorithm`` has them.

    >>> is_tuned("ppo", "elegant/chasing"), is_tuned("qmix", "vmas/balance")
    (True, True)
    >>> is_tuned("ppo", "CartPole-v1")
    False
    """
    if not env.startswith(("elegant/", "vmas/")):
        return False
    return any(_found(table, env) is not None for table in _tables(algorithm))


def tuned_settings(algorithm: str, env: str) -> dict[str, Any]:
    """Options of the run and of the algorithm for an environment in the table.

    The name ``simulator`` stands for simulators of any kind, stepped by the thousand.

    >>> tuned_settings("modsac", "Pendulum-v1")["num_cells"]
    (64, 64)
    >>> tuned_settings("td3", "simulator")["atoms"]
    101
    """
    if env == "simulator":
        if algorithm not in SIMULATOR:
            raise ValueError(
                f"`tuned` must not be simulator with {algorithm}; there are such settings for "
                f"{', '.join(SIMULATOR)}"
            )
        return dict(SIMULATOR[algorithm])
    for table in _tables(algorithm):
        found = _found(table, env)
        if found is not None:
            return dict(found)
        raise ValueError(
            f"`tuned` must be false for {algorithm} on `{env}`, which is in no table; there are "
            f"settings for {', '.join(sorted(table))}"
        )
    raise ValueError(f"`tuned` must be false for {algorithm}, which has no table of settings")


def _tables(algorithm: str) -> list[Mapping[str, Settings]]:
    """The table that counts for an algorithm: its own, or that of the nearest parent."""
    names = [vars(kind).get("name", "") for kind in ALGORITHMS[algorithm].__mro__]
    return [TUNED[name] for name in names if name in TUNED][:1]


def _found(table: Mapping[str, Settings], env: str) -> Settings | None:
    return table.get(env) or table.get(f"{env.partition('/')[0]}/*")
