"""Settings with which algorithms that learn from rollouts are to learn known environments."""

from __future__ import annotations

from collections.abc import Mapping

from torchrl_elegant.algorithms.tuned_shared import FAR, Settings, each_walker

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
_PPO_WALKER = {**_SCALED, "num_envs": 8, "lr_end": 0.0, "total_frames": 1_000_000}
_PPO: dict[str, Settings] = {
    "Pendulum-v1": {
        "num_envs": 4,
        "frames_per_batch": 1_024,
        "gamma": 0.9,
        "lr": 1e-3,
        "lr_end": 0.0,
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
_A2C: dict[str, Settings] = {
    "Pendulum-v1": {
        **_SCALED,
        "num_envs": 8,
        "gamma": 0.9,
        "lmbda": 0.9,
        "lr_end": 0.0,
        "log_std": -0.5,
        "optimizer": "rmsprop",
        "total_frames": 1_000_000,
    },
    # At a rate that stays, or with 0.99, what has been learnt is lost again now and then.
    "CartPole-v1": {
        "num_envs": 8,
        "gamma": 0.98,
        "lr": 1e-3,
        "lr_end": 0.0,
        "total_frames": 200_000,
    },
    "Acrobot-v1": {"num_envs": 16, "total_frames": 300_000},
    "LunarLander-v3": {"num_envs": 8, "lr_end": 0.0, "total_frames": 500_000},
    "LunarLanderContinuous-v3": {**_SCALED, "num_envs": 16, "total_frames": 1_000_000},
    "BipedalWalker-v3": {**_PPO_WALKER, "num_envs": 16, "total_frames": 3_000_000},
    "Swimmer-v5": {**_PPO_WALKER, **FAR},
    **each_walker(_PPO_WALKER),
}

ON_POLICY: Mapping[str, Mapping[str, Settings]] = {"a2c": _A2C, "ppo": _PPO}
