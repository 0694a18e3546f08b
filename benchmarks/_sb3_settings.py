"""What Stable-Baselines3 is told, so that it trains what a configuration of ours says."""

from __future__ import annotations

from typing import Any

from torchrl_elegant import RunConfig
from torchrl_elegant.algorithms import (
    A2CConfig,
    AlgorithmConfig,
    DDPGConfig,
    DQNConfig,
    OffPolicyConfig,
    OnPolicyConfig,
    PPOConfig,
    SACConfig,
    TD3Config,
)
from torchrl_elegant.config.options import options_of
from torchrl_elegant.config.rates import ends_of, first_of, shape_of

#: Our names of the algorithms that it has, and its own.
NAMES = {"a2c": "A2C", "ddpg": "DDPG", "dqn": "DQN", "ppo": "PPO", "sac": "SAC", "td3": "TD3"}


def settings_of(config: AlgorithmConfig, run: RunConfig) -> dict[str, Any]:
    """Plain data: the constructor's arguments, and what belongs around it."""
    options: dict[str, Any] = {"gamma": config.gamma}
    if isinstance(config, OnPolicyConfig):
        options |= _on_policy(config, run)
    elif isinstance(config, OffPolicyConfig):
        options |= _off_policy(config)
    return {
        "algorithm": NAMES[config.name],
        "options": options,
        "policy": _policy(config),
        "activation": config.activation,
        "normalize": [config.normalize_observation, config.normalize_value],
        # Exploration is an object there.
        "noise_std": config.noise_std if isinstance(config, DDPGConfig) else None,
        # A rate that changes is a function there, and one for all networks.
        "lr_end_fraction": _lr_end_fraction(config),
        "own_rates": _own_rates(config),
    }


def _policy(config: AlgorithmConfig) -> dict[str, Any]:
    own = {"log_std_init": config.log_std} if isinstance(config, OnPolicyConfig) else {}
    return {"net_arch": list(config.num_cells), **own}


def _own_rates(config: AlgorithmConfig) -> dict[str, float]:
    """Parts of the common rate, the critic's, that other optimizers have, by their names there."""
    if not isinstance(config, (SACConfig, DDPGConfig)):
        return {}
    rates = {"actor.optimizer": config.actor_lr}
    if isinstance(config, SACConfig):
        rates["ent_coef_optimizer"] = config.alpha_lr
    return {name: first_of(rate) / first_of(config.critic_lr) for name, rate in rates.items()}


def _lr_end_fraction(config: AlgorithmConfig) -> float:
    """The part of the learning rates that is left at the end."""
    values = {name: getattr(config, name) for name in options_of(type(config))}
    falls = {
        (ends_of(rate)[1] / first_of(rate), shape_of(rate))
        for name, rate in values.items()
        if name in ("lr", "actor_lr", "critic_lr", "alpha_lr")
    }
    others = [values.get(name, 0.0) for name in ("entropy_coeff", "clip_epsilon", "noise_std")]
    (part, shape), *more = falls
    if more or shape != "linear" or any(isinstance(rate, tuple) for rate in others):
        raise ValueError(
            f"`config` must leave Stable-Baselines3 one linear learning rate, got {config}; "
            "let all learning rates fall alike, and all else stay"
        )
    return part


def _off_policy(config: OffPolicyConfig) -> dict[str, Any]:
    ratio = config.updates_per_frame
    options: dict[str, Any] = {
        "batch_size": config.batch_size,
        "buffer_size": config.buffer_size,
        "learning_starts": config.warmup,
        "tau": config.tau,
        "train_freq": max(1, round(1 / ratio)),
        "gradient_steps": max(1, round(ratio)),
        "n_steps": config.n_steps,
    }
    if isinstance(config, DQNConfig):
        return options | {
            "learning_rate": first_of(config.lr),
            "exploration_fraction": config.exploration_fraction,
            "exploration_initial_eps": ends_of(config.epsilon)[0],
            "exploration_final_eps": ends_of(config.epsilon)[1],
            "target_update_interval": config.target_period or options["train_freq"],
            "tau": 1.0 if config.target_period else config.tau,
            "max_grad_norm": config.max_grad_norm,
        }
    assert isinstance(config, (SACConfig, DDPGConfig))
    options["learning_rate"] = first_of(config.critic_lr)
    if isinstance(config, TD3Config):
        options["policy_delay"] = config.actor_period
        options["target_policy_noise"] = config.policy_noise
        options["target_noise_clip"] = config.noise_clip
    if isinstance(config, SACConfig) and config.target_entropy is not None:
        options["target_entropy"] = config.target_entropy
    return options


def _on_policy(config: OnPolicyConfig, run: RunConfig) -> dict[str, Any]:
    frames = run.frames_per_batch or config.frames_per_batch(
        total_frames=run.total_frames, num_envs=run.num_envs
    )
    options: dict[str, Any] = {
        "learning_rate": first_of(config.lr),
        "n_steps": frames // run.num_envs,
        "gae_lambda": config.lmbda,
        "ent_coef": config.entropy_coeff,
        "vf_coef": config.critic_coeff,
        "max_grad_norm": config.max_grad_norm,
        "normalize_advantage": config.normalize_advantage,
    }
    if isinstance(config, PPOConfig):
        options |= {"batch_size": config.batch_size, "n_epochs": config.epochs}
        options["clip_range"] = config.clip_epsilon
    if isinstance(config, A2CConfig):
        options["use_rms_prop"] = config.optimizer == "rmsprop"
    return options
