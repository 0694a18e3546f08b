"""Tasks and arms of the study of a tournament's value, and what a seed of an arm leaves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

POPULATION, QUANTA, HELD_OUT = 8, 10, 100
#: What all arms of all tasks have in common.
SHARED = (
    "algorithm=[ppo]",
    f"population={POPULATION}",
    "space.lr=log:1e-5..1e-2",
    "eval_episodes=10",
    "final_episodes=50",
    "finalists=3",
)
ARMS: Mapping[str, tuple[str, ...]] = {
    "random": ("selection=none",),
    "generational": ("scheme=generational",),
    "fusion": ("scheme=generational", "fusion=true"),
    "tournament": ("scheme=asynchronous",),
    "pb2": ("scheme=asynchronous", "explore=pb2"),
    "tune": (),
}
TITLES = {
    "random": "random search",
    "generational": "generational",
    "fusion": "generational with fusion",
    "tournament": "tournament",
    "pb2": "tournament with PB2",
    "tune": "Ray Tune's PBT",
}


@dataclass(frozen=True, kw_only=True)
class Task:
    """An environment, the quantum of a pod, and the return that counts as learned."""

    env: str
    quantum: int
    threshold: float
    words: tuple[str, ...]

    @property
    def budget(self) -> int:
        return self.quantum * QUANTA * POPULATION


TASKS: Mapping[str, Task] = {
    "cartpole": Task(
        env="CartPole-v1",
        quantum=2_048,
        threshold=475,
        words=("num_envs=8", "frames_per_batch=1024", "epochs=4"),
    ),
    "pendulum": Task(
        env="Pendulum-v1",
        quantum=5_120,
        threshold=-200,
        words=("num_envs=4", "frames_per_batch=1024", "gamma=0.9", "activation=relu"),
    ),
    "lunarlander": Task(
        env="LunarLanderContinuous-v3",
        quantum=6_144,
        threshold=100,
        words=(
            *("num_envs=8", "frames_per_batch=2048", "gamma=0.999", "lmbda=0.98", "epochs=4"),
            "entropy_coeff=0.01",
        ),
    ),
    "chasing": Task(
        env="elegant/chasing",
        quantum=24_576,
        threshold=0.6,
        words=(
            *("num_envs=256", "frames_per_batch=8192", "batch_size=1024", "epochs=2"),
            *("normalize_observation=true", "normalize_value=true"),
            # Of 1024 steps, or one episode after another, an evaluation would take longer than a
            # pod's training.
            *("env_kwargs.max_steps=128", "evaluation_env=shared"),
        ),
    ),
}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """One seed of an arm: the winner on other episodes, and the best return so far after each pod.

    Args:
        task, arm, seed: of which.
        settings: digest of all words that it was trained with.
        held_out: return of the winner.
        frames, seconds: to the threshold; infinite where it was not reached.
        whole: seconds in all. Seconds are NaN where they tell nothing.
        curve: rows of total frames and return; a few seeds have none.
    """

    task: str
    arm: str
    seed: int
    settings: str
    held_out: float
    frames: float
    seconds: float = math.nan
    whole: float = math.nan
    curve: tuple[tuple[float, float], ...] = ()


def reached(task: str, rows: Sequence[Sequence[float]], column: int) -> float:
    """A column of the first row whose last one is not below the threshold.

    >>> reached("pendulum", [(1, 0.5, -300.0), (2, 0.7, -150.0)], 1)
    0.7
    """
    threshold = TASKS[task].threshold
    return next((row[column] for row in rows if row[-1] >= threshold), math.inf)


def words_of(task: str, arm: str, slots: int) -> tuple[str, ...]:
    of = TASKS[task]
    plan = (f"env={of.env}", f"budget={of.budget}", f"quantum={of.quantum}", f"slots={slots}")
    return (*plan, *SHARED, *of.words, *ARMS[arm])
