import gymnasium
import matplotlib.pyplot as plt
import numpy as np
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import EvalCallback
from stable_baselines3.common.monitor import Monitor

for lr in (3e-4, 1e-3):
    curves = []
    for seed in range(3):
        path = f"runs/sb3_lr{lr}/seed-{seed}"
        env = Monitor(gymnasium.make("CartPole-v1"))
        callback = EvalCallback(env, eval_freq=1_000, n_eval_episodes=10, log_path=path)
        PPO("MlpPolicy", "CartPole-v1", learning_rate=lr, seed=seed).learn(10_000, callback)
        data = np.load(f"{path}/evaluations.npz")
        curves.append(data["results"].mean(1))
    mean, std = np.mean(curves, 0), np.std(curves, 0)
    plt.plot(data["timesteps"], mean, label=f"lr={lr}")
    plt.fill_between(data["timesteps"], mean - std, mean + std, alpha=0.3)
plt.legend()
plt.savefig("sb3_comparison.png")
