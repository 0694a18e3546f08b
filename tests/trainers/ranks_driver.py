"""What each rank does in `test_distributed.py`: `torchrun ranks_driver.py <task> <folder>`.

With a number after that it is its own launcher: so many ranks share one start of the interpreter,
which takes longer than what they do.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import traceback
from pathlib import Path

import torch
from tensordict import TensorDict

from torchrl_elegant.algorithms import HTermConfig, ModSACConfig, PPOConfig, SACConfig
from torchrl_elegant.envs import make_env
from torchrl_elegant.runs.monitor import Follower, Monitor
from torchrl_elegant.runs.train import resume, train
from torchrl_elegant.trainers import off_policy
from torchrl_elegant.trainers import on_policy as on_policy_family
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.ranks import Ranks

NORMALISED = {"normalize_observation": True, "normalize_value": True}
POINT = "faults.fault_envs:point"
TERM = HTermConfig(horizon=4, slices=8, period=2, capacity=32, max_age=80)


def fixed_batch() -> TensorDict:
    """Eight transitions, the same in every process."""
    random = torch.Generator().manual_seed(1)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=random)

    ended = torch.arange(8).reshape(8, 1) % 4 == 0
    following = {
        "observation": normal(8, 2),
        "reward": normal(8, 1),
        "done": ended,
        "terminated": ended,
    }
    page = {"observation": normal(8, 2), "action": normal(8, 1).tanh(), "next": following}
    return TensorDict(page, batch_size=[8])


def new_learner(ranks: Ranks | None) -> Learner:
    """A learner with the same weights in every process, before anything is shared."""
    torch.manual_seed(0)
    env = make_env(POINT, 1)
    config = SACConfig(num_cells=(8,), batch_size=8, temperature="fixed", alpha=0.2)
    learner = Learner(config.build(env), ranks=ranks)
    env.close()
    return learner


def gradients(folder: Path) -> None:
    """One update, of this rank's half of the batch."""
    with Ranks() as ranks:
        learner = new_learner(ranks if ranks.count > 1 else None)
        # The halves and the whole must draw the same actions: the mean.
        torch.randn_like = torch.zeros_like
        half = fixed_batch().split(8 // ranks.count)[ranks.rank]
        seen: list[torch.Tensor] = []
        step = learner.optimizer.step

        def spy() -> None:
            seen.extend(parameter.grad.clone() for parameter in learner._params)
            step()

        learner.optimizer.step = spy
        learner.update(half)
        torch.save(seen, folder / f"gradients-{ranks.count}-{ranks.rank}.pt")


def run_here(folder: Path, hterm: HTermConfig | None = None, **run) -> None:
    """A whole run; what each rank is left with goes to a file."""
    kept = {}
    loop = off_policy.train_off_policy

    def keep(source, buffer, learner, watcher, **kwargs):
        loop(source, buffer, learner, watcher, **kwargs)
        kept.update(learner=learner.state_dict(), frames=learner.ledger.frames, rows=len(buffer))
        kept.update(watches=isinstance(watcher, Monitor), actions=buffer[:]["action"].flatten())

    off_policy.train_off_policy = keep
    config = ModSACConfig(num_cells=(8,), batch_size=16, warmup=40, hterm=hterm, **NORMALISED)
    settings = {
        "frames_per_batch": 4,
        "num_envs": 2,
        "eval_episodes": 1,
        "eval_interval": 80,
        "logger": "none",
        "progress": False,
    }
    if (folder / "run" / "config.yaml").exists():
        result = resume(folder / "run", trust=True, **run)
    else:
        result = train(config, POINT, folder=str(folder / "run"), **{**settings, **run})
    page = {**kept, "history": len(result.history), "stopped_by": result.stopped_by}
    torch.save(page, folder / f"rank-{Ranks().rank}.pt")


def one_is_interrupted(folder: Path) -> None:
    """A run without an end, until the rank that is not the first gets a signal."""

    def interrupted(self, terms) -> None:
        os.kill(os.getpid(), signal.SIGINT)
        Follower.note = note

    note, Follower.note = Follower.note, interrupted
    run_here(folder, total_frames=10_000_000)


def on_policy(folder: Path, hterm: HTermConfig | None = None) -> None:
    """A whole run of PPO; what each rank is left with goes to a file."""
    kept: dict = {"rows": [], "first": []}
    loop = on_policy_family.train_on_policy

    def watch(source, learner, watcher, **kwargs):
        rows = learner.rows

        def keep(rollout):
            kept["rows"].append(rollout.numel())
            kept["first"].append(rollout["observation"].flatten()[0].item())
            return rows(rollout)

        learner.rows = keep
        loop(source, learner, watcher, **kwargs)
        kept.update(frames=learner.ledger.frames, learner=learner.state_dict())
        kept["watches"] = isinstance(watcher, Monitor)

    on_policy_family.train_on_policy = watch
    config = PPOConfig(num_cells=(8,), batch_size=16, epochs=2, hterm=hterm, **NORMALISED)
    settings = {"num_envs": 2, "frames_per_batch": 40, "eval_episodes": 1, "eval_interval": 80}
    settings |= {"logger": "none", "progress": False, "folder": str(folder / "run")}
    train(config, POINT, total_frames=108, **settings)
    torch.save(kept, folder / f"rank-{Ranks().rank}.pt")


TASKS = {
    "on_policy": on_policy,
    "on_policy_hterm": lambda folder: on_policy(folder, TERM),
    "hterm": lambda folder: run_here(folder, TERM, total_frames=200),
    "hterm_goes_on": lambda folder: run_here(folder, total_frames=440),
    "gradients": gradients,
    "train": lambda folder: run_here(folder, total_frames=200),
    "uneven": lambda folder: run_here(folder, total_frames=100, frames_per_batch=16),
    "goal": lambda folder: run_here(folder, total_frames=10_000_000, target_return=-1_000.0),
    "one": one_is_interrupted,
    "endless": lambda folder: run_here(folder, total_frames=10_000_000),
}


def fork_ranks(count: int, task: str, folder: Path) -> int:
    """Run a task in ``count`` processes with the variables that torchrun sets; how many failed."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    found = {"WORLD_SIZE": count, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    children = []
    for rank in range(count):
        children.append(os.fork())
        if not children[-1]:
            os.environ.update({name: str(value) for name, value in found.items()}, RANK=str(rank))
            os._exit(finished(task, folder))
    return sum(os.waitpid(child, 0)[1] != 0 for child in children)


def finished(task: str, folder: Path) -> int:
    try:
        TASKS[task](folder)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


if __name__ == "__main__":
    torch.set_num_threads(1)
    name, where, *ranks = sys.argv[1:]
    if ranks:
        # Each task has processes of its own.
        sys.exit(sum(fork_ranks(int(ranks[0]), task, Path(where)) for task in name.split(",")))
    TASKS[name](Path(where))
