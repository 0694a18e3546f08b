"""Names of options in other libraries, and ours for the same."""

from __future__ import annotations

from collections.abc import Collection

# Stable-Baselines3, TorchRL's examples, CleanRL and ElegantRL, by what the option is for. Where
# several of ours are named, those count that the algorithm has.
_OURS = {
    # budget and environment
    "env_id": ("env",),
    "env_name": ("env",),
    "env_kwarg": ("env_kwargs",),
    "n_envs": ("num_envs",),
    "env_num": ("num_envs",),
    "num_steps": ("frames_per_batch",),
    "total_timesteps": ("total_frames",),
    "timesteps": ("total_frames",),
    "break_step": ("total_frames",),
    "random_seed": ("seed",),
    "cuda": ("device",),
    "gpu_id": ("device",),
    "max_episode_steps": ("env_kwargs.max_episode_steps",),
    # networks
    "net_arch": ("num_cells",),
    "net_dims": ("num_cells",),
    "hidden_sizes": ("num_cells",),
    "policy_kwargs": ("num_cells", "activation"),
    "activation_fn": ("activation",),
    "n_critics": ("num_critics",),
    "num_qvalue_nets": ("num_critics",),
    "log_std_init": ("log_std",),
    # memory
    "use_lstm": ("recurrent",),
    "use_rnn": ("recurrent",),
    "use_recurrent_policy": ("recurrent",),
    "lstm_hidden_size": ("hidden_size",),
    "rnn_hidden_dim": ("hidden_size",),
    "data_chunk_length": ("sequence_length",),
    "burn_in_length": ("burn_in",),
    # rates
    "learning_rate": ("lr", "actor_lr", "critic_lr"),
    "policy_lr": ("actor_lr",),
    "pi_lr": ("actor_lr",),
    "q_lr": ("critic_lr",),
    "vf_lr": ("critic_lr",),
    "discount": ("gamma",),
    "polyak": ("tau",),
    "soft_update_tau": ("tau",),
    "clip_grad_norm": ("max_grad_norm",),
    # replay
    "replay_buffer_size": ("buffer_size",),
    "buffer_capacity": ("buffer_size",),
    "learning_starts": ("warmup",),
    "init_random_frames": ("warmup",),
    "buffer_init_size": ("warmup",),
    "train_freq": ("frames_per_batch", "updates_per_frame"),
    "gradient_steps": ("updates_per_frame",),
    "utd_ratio": ("updates_per_frame",),
    "repeat_times": ("updates_per_frame", "epochs"),
    "target_update_interval": ("target_period",),
    "n_step": ("n_steps",),
    # rollouts
    "n_steps": ("frames_per_batch",),
    "horizon_len": ("frames_per_batch",),
    "n_epochs": ("epochs",),
    "update_epochs": ("epochs",),
    "ppo_epochs": ("epochs",),
    "minibatch_size": ("batch_size",),
    "num_minibatches": ("batch_size",),
    "mini_batch_size": ("batch_size",),
    "sub_batch_size": ("batch_size",),
    "clip_range": ("clip_epsilon",),
    "clip_coef": ("clip_epsilon",),
    "ratio_clip": ("clip_epsilon",),
    "clip_range_vf": ("clip_value",),
    "gae_lambda": ("lmbda",),
    "lambda_gae_adv": ("lmbda",),
    "vf_coef": ("critic_coeff",),
    "ent_coef": ("entropy_coeff", "alpha"),
    "entropy_coef": ("entropy_coeff", "alpha"),
    "lambda_entropy": ("entropy_coeff", "alpha"),
    "norm_adv": ("normalize_advantage",),
    "autotune": ("temperature",),
    # exploration
    "exploration_initial_eps": ("epsilon",),
    "exploration_final_eps": ("epsilon",),
    "eps_init": ("epsilon",),
    "eps_end": ("epsilon",),
    "policy_delay": ("actor_period",),
    "policy_frequency": ("actor_period",),
    "target_policy_noise": ("policy_noise",),
    "target_noise_clip": ("noise_clip",),
    # evaluation and output
    "n_eval_episodes": ("eval_episodes",),
    "eval_freq": ("eval_interval",),
    "record_interval": ("eval_interval",),
    "tensorboard_log": ("logger",),
    "exp_name": ("folder",),
    "cwd": ("folder",),
    "verbose": ("progress",),
    "progress_bar": ("progress",),
}


def our_names(name: str, known: Collection[str]) -> list[str]:
    """The options among ``known`` that do what ``name`` does elsewhere.

    >>> our_names("learning_rate", ["actor_lr", "critic_lr", "seed"])
    ['actor_lr', 'critic_lr']
    """
    prefixes = {word.partition(".")[0] for word in known}
    return [word for word in _OURS.get(name, ()) if word.partition(".")[0] in prefixes]
