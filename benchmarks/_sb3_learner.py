"""One training of Stable-Baselines3 for a learning study: ``python _sb3_learner.py JOB.json``.

Writes the files of a run that a study reads: ``metrics.csv``, a row per evaluation, and at the
end ``evaluation.json``. Needs Stable-Baselines3 and nothing of this package.
"""

from __future__ import annotations

import json
import operator
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import stable_baselines3
import torch
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.noise import NormalActionNoise
from stable_baselines3.common.vec_env import VecNormalize

EVALUATIONS = 20
# Environments of our evaluation, whose episodes are to be the same.
TOGETHER = 16


def build(job: dict[str, Any]) -> Any:
    envs: Any = make_vec_env(job["env"], job["num_envs"], seed=job["seed"])
    observation, reward = job["normalize"]
    options = dict(job["options"])
    if observation or reward:
        envs = VecNormalize(envs, observation, reward, gamma=options["gamma"])
    if job["lr_end_fraction"] != 1:
        first, end = options["learning_rate"], job["lr_end_fraction"]
        options["learning_rate"] = lambda left: first * (end + (1 - end) * left)
    if job["noise_std"] is not None:
        size = envs.action_space.shape[0]
        std = job["noise_std"] * np.ones(size)
        options["action_noise"] = NormalActionNoise(np.zeros(size), std)
    activation = {"relu": torch.nn.ReLU, "tanh": torch.nn.Tanh}[job["activation"]]
    kind = getattr(stable_baselines3, job["algorithm"])
    policy = {**job["policy"], "activation_fn": activation}
    model = kind("MlpPolicy", envs, policy_kwargs=policy, seed=job["seed"], device="cpu", **options)
    set_own_rates(model, job["own_rates"])
    return model


def set_own_rates(model: Any, parts: dict[str, float]) -> None:
    """Have optimizers learn at ``parts`` of the rate that all of them are set to before each round
    of updates."""
    common = model._update_learning_rate
    own = {id(operator.attrgetter(name)(model)): part for name, part in parts.items()}

    def update(optimizers: Any) -> None:
        common(optimizers)
        for optimizer in optimizers if isinstance(optimizers, list) else [optimizers]:
            for group in optimizer.param_groups:
                group["lr"] *= own.get(id(optimizer), 1.0)

    model._update_learning_rate = update


def starts(episodes: int, seed: int) -> list[int | None]:
    """The seed that each episode begins with, as in our evaluation; None where a stream goes on."""
    count = min(episodes, TOGETHER)
    seeds = np.random.SeedSequence(seed).generate_state(count).tolist()
    played = [episodes // count + (row < episodes % count) for row in range(count)]
    return [
        own if n == 0 else None
        for own, times in zip(seeds, played, strict=True)
        for n in range(times)
    ]


def play(model: Any, env_id: str, *, episodes: int, seed: int) -> tuple[list[float], list[int]]:
    """Returns and lengths of episodes of the deterministic policy."""
    env, returns, lengths = gymnasium.make(env_id), [], []
    scaled = model.get_vec_normalize_env()
    for start in starts(episodes, seed):
        observation, _ = env.reset(seed=start)
        total, steps, over = 0.0, 0, False
        while not over:
            shown = observation if scaled is None else scaled.normalize_obs(observation)
            action, _ = model.predict(shown, deterministic=True)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, steps, over = total + float(reward), steps + 1, terminated or truncated
        returns.append(total)
        lengths.append(steps)
    env.close()
    return returns, lengths


class Watch(BaseCallback):
    """Evaluates at equal distances and writes a row each time."""

    def __init__(self, job: dict[str, Any], path: Path) -> None:
        super().__init__()
        self.job, self.path = job, path
        self.every = max(1, job["total_frames"] // EVALUATIONS)
        self.next, self.began = self.every, time.monotonic()

    def _on_step(self) -> bool:
        if self.num_timesteps >= self.next:
            self.next = (self.num_timesteps // self.every + 1) * self.every
            self.row()
        return True

    def row(self) -> None:
        returns, _ = play(self.model, self.job["env"], episodes=10, seed=50_000)
        spread = statistics.stdev(returns)
        seconds = time.monotonic() - self.began
        updates = getattr(self.model, "_n_updates", 0)
        values = (self.num_timesteps, updates, seconds, statistics.mean(returns), spread)
        with self.path.open("a") as file:
            file.write(",".join(map(str, values)) + "\n")


def main(job: dict[str, Any]) -> None:
    torch.set_num_threads(job["threads"])
    folder = Path(job["folder"])
    folder.mkdir(parents=True)
    metrics = folder / "metrics.csv"
    metrics.write_text("frames,updates,seconds,return_mean,return_std\n")
    model, watch = build(job), Watch(job, metrics)
    model.learn(job["total_frames"], callback=watch, log_interval=None)
    if int(metrics.read_text().split()[-1].split(",")[0]) < job["total_frames"]:
        watch.row()
    returns, lengths = play(model, job["env"], episodes=job["episodes"], seed=1_000)
    report = {
        "episodes": len(returns),
        "return_mean": statistics.mean(returns),
        "return_std": statistics.stdev(returns),
        "length_mean": statistics.mean(lengths),
    }
    (folder / "evaluation.json").write_text(json.dumps(report, indent=1))


if __name__ == "__main__":
    main(json.loads(Path(sys.argv[1]).read_text()))
