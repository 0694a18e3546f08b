"""Speed of `StockTradingEnv` beside ElegantRL's stock environment, over the same prices.

    python -m venv elegantrl-env
    elegantrl-env/bin/pip install torch numpy pandas gym matplotlib
    elegantrl-env/bin/pip install --no-deps elegantrl
    python benchmarks/stock.py --elegantrl elegantrl-env/bin/python

All take turns, one at a time. Writes ``benchmarks/results/stock.md``.
"""

from __future__ import annotations

import os
import signal
import subprocess
import tempfile
import time
from importlib.metadata import version
from pathlib import Path
from statistics import median

import numpy as np
import torch
from _report import markdown, number, processor, results_parser, write_page
from tensordict import TensorDict

from torchrl_elegant.cli.training import keep_freed_blocks
from torchrl_elegant.envs import Market, StockTradingEnv, synthetic_market

DAYS, ASSETS, ACCOUNTS = 1113, 15, 4096
OURS = "this package"
THEIRS = ("StockTradingEnv", "VecEnv of 8", "VecEnv of 64", "StockTradingVecEnv")
HERE = Path(__file__).resolve().parent


class Ours:
    """Steps with random actions, and resets under the mask of rows that are done at every step."""

    def __init__(self, market: Market) -> None:
        self.env = StockTradingEnv(num_envs=ACCOUNTS, market=market, seed=0)
        size = (ACCOUNTS, len(market.tickers))
        actions = [2 * torch.rand(size) - 1 for _ in range(8)]
        self.actions = [TensorDict({"action": action}, [ACCOUNTS]) for action in actions]
        self.env.reset()
        self.rate(0.2)

    def rate(self, seconds: float) -> tuple[float, float]:
        """Account-steps a second of the wall, and a second of the processor."""
        count, start, busy = 0, time.perf_counter(), time.process_time()
        while time.perf_counter() - start < seconds:
            done = self.env._step(self.actions[count % 8])["done"]
            self.env._reset(TensorDict({"_reset": done}, [ACCOUNTS]))
            count += 1
        steps = ACCOUNTS * count
        return steps / (time.perf_counter() - start), steps / (time.process_time() - busy)


class Theirs:
    """ElegantRL's interpreter, asked line by line."""

    def __init__(self, python: str, market: Market, folder: Path) -> None:
        place = folder / "elegantrl" / "envs"
        place.mkdir(parents=True)
        techs = market.features.reshape(DAYS, -1)
        techs = np.concatenate([techs, market.features[..., 0]], 1)  # Eight a share, as theirs.
        np.savez(place / "China_A_shares.numpy.npz", close_ary=market.close, tech_ary=techs)
        told = "import importlib.metadata as m; print(m.version('elegantrl'), m.version('torch'))"
        self.versions = subprocess.check_output([python, "-c", told], text=True).split()
        environment = {**os.environ, "PYTHONPATH": ""}
        self.process = subprocess.Popen(
            [python, str(HERE / "contenders" / "elegantrl_stock.py")],
            cwd=folder,
            env=environment,
            text=True,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            start_new_session=True,
        )

    def end(self) -> None:
        """Ends it and the processes of its `VecEnv`, which outlive it otherwise."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def rate(self, name: str, seconds: float) -> tuple[float, float] | str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{name} {seconds}\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline().strip()
        if answer.startswith("cannot"):
            return answer
        wall, busy = map(float, answer.split())
        return wall, busy


def measured(python: str, rounds: int, seconds: float) -> tuple[dict[str, list], list[str]]:
    market = synthetic_market(days=DAYS, assets=ASSETS)
    found: dict[str, list] = {}
    with tempfile.TemporaryDirectory() as folder:
        theirs = Theirs(python, market, Path(folder))
        try:
            ours = Ours(market)
            for _ in range(rounds):
                found.setdefault(OURS, []).append(ours.rate(seconds))
                for name in THEIRS:
                    found.setdefault(name, []).append(theirs.rate(name, seconds))
        finally:
            theirs.end()
        return found, theirs.versions


def main() -> None:
    parser = results_parser(__doc__)
    parser.add_argument("--elegantrl", required=True, help="Python with elegantrl")
    parser.add_argument("--rounds", type=int, default=9, help="rounds of each (default: 9)")
    parser.add_argument("--seconds", type=float, default=1.0, help="of a round (default: 1)")
    arguments = parser.parse_args()
    keep_freed_blocks()
    torch.set_num_threads(1)
    load = os.getloadavg()[0]
    python = os.path.abspath(arguments.elegantrl)
    found, versions = measured(python, arguments.rounds, arguments.seconds)
    rows = []
    for name, rates in found.items():
        whose = name if name == OURS else f"ElegantRL's {name}"
        if isinstance(rates[0], str):
            rows.append([whose, rates[0], "-", "-"])
            continue
        mine = median(each[0] for each in found[OURS])
        wall, busy = (median(each[place] for each in rates) for place in (0, 1))
        # The processes of a VecEnv count their time themselves.
        alone = "-" if name.startswith("VecEnv") else number(busy)
        rows.append([whose, number(wall), alone, f"{mine / wall:.1f}"])
    head = ["", "account-steps/s", "a second of the processor", "ours / this"]
    about = (
        f"`python benchmarks/stock.py`: {processor()}, {os.cpu_count()} cores, elegantrl "
        f"{versions[0]} with torch {versions[1]}, torch {version('torch')} here. {ACCOUNTS} "
        f"accounts, {ASSETS} assets, {DAYS} days, 8 numbers a share there and 7 here, random "
        f"actions, 1 thread, medians of {arguments.rounds} rounds by turns; ratios by the wall. "
        f"Load of the machine before the run: {load:.1f}. Ours resets under the mask of rows that "
        "are done at every step."
    )
    notes = (
        "ElegantRL's `VecEnv` runs one account in each process, at most 64. `StockTradingVecEnv` "
        "keeps all accounts on one day and puts ones in the place of every action. Both pay for "
        "shares without asking whether the cost is covered too, so that cash may be negative."
    )
    title = "# Speed of the stock environment"
    write_page(arguments.results, "stock", title, about, markdown(head, rows), notes)


if __name__ == "__main__":
    main()
