"""ElegantRL's stock environment, stepped on demand by an interpreter of its own.

Reads a name and seconds from each line, and answers with account-steps a second of the
wall and of the processor. Needs elegantrl,
torch, numpy and pandas, and the prices as ./elegantrl/envs/China_A_shares.numpy.npz.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable

import numpy as np
import torch
from elegantrl.envs.StockTradingEnv import StockTradingEnv, StockTradingVecEnv
from elegantrl.train.config import VecEnv

DAYS, ACCOUNTS = 1113, 4096


def one_account() -> Callable[[], int]:
    env, rng = StockTradingEnv(end_idx=DAYS), np.random.default_rng(0)
    actions = rng.uniform(-1, 1, (64, env.action_dim)).astype(np.float32)
    env.reset()

    def call() -> int:
        for action in actions:
            if env.step(action)[2]:
                env.reset()
        return len(actions)

    return call


def in_processes(count: int) -> Callable[[], int]:
    one = StockTradingEnv(end_idx=DAYS)
    about = {
        "env_name": one.env_name,
        "max_step": one.max_step,
        "state_dim": one.state_dim,
        "action_dim": one.action_dim,
        "if_discrete": False,
        "end_idx": DAYS,
    }
    env = VecEnv(StockTradingEnv, about, count)
    actions = 2 * torch.rand(count, one.action_dim) - 1
    env.reset()

    def call() -> int:
        env.step(actions)
        return count

    return call


def by_vmap() -> Callable[[], int]:
    env = StockTradingVecEnv(num_envs=ACCOUNTS, end_idx=DAYS, gpu_id=-1)
    actions = 2 * torch.rand(ACCOUNTS, env.action_dim) - 1
    env.reset()

    def call() -> int:
        env.step(actions)
        return ACCOUNTS

    return call


WAYS: dict[str, Callable[[], Callable[[], int]]] = {
    "StockTradingEnv": one_account,
    "VecEnv of 8": lambda: in_processes(8),
    "VecEnv of 64": lambda: in_processes(64),
    "StockTradingVecEnv": by_vmap,
}


def main() -> None:
    torch.set_num_threads(1)
    ready: dict[str, Callable[[], int]] = {}
    for line in sys.stdin:
        name, seconds = line.rsplit(" ", 1)
        if name not in ready:
            try:
                ready[name] = WAYS[name]()
                ready[name]()
            except Exception as error:
                last = str(error).strip().splitlines()[-1:] or [type(error).__name__]
                print(f"cannot run: {last[0]}", flush=True)
                continue
        count, start, busy = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - start < float(seconds):
            count += ready[name]()
        wall, busy = time.perf_counter() - start, time.process_time() - busy
        print(count / wall, count / busy, flush=True)


if __name__ == "__main__":
    main()
