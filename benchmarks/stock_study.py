"""PPO trades 20 stocks of the S&P 500: trained on 1990-2015, tested on the years after, five seeds.

    python benchmarks/stock_study.py

Needs torchrl_elegant[finance]. A seed whose report is there is not trained again, and one
that was killed goes on. Writes
``benchmarks/results/stock_study.md`` and ``.png``.
"""

from __future__ import annotations

import csv
import json
from importlib.metadata import version
from pathlib import Path
from statistics import mean

import numpy as np
from _report import markdown, processor, results_parser, write_page
from matplotlib.figure import Figure

from torchrl_elegant.cli.stock import stock_command
from torchrl_elegant.envs.markets import sp500_market
from torchrl_elegant.reports.trading import WARNING

SEEDS, SPLIT = 5, "2016-01-01"
WORDS = ["algorithm=ppo", "market=sp500", f"split={SPLIT}", f"trials={SEEDS}", "progress=false"]
SHARES = ("cumulative_return", "annual_return", "volatility", "max_drawdown")


def cells(measures: dict[str, float | None]) -> list[str]:
    form = {True: "{:.1%}", False: "{:.2f}"}
    return [
        "-" if value is None else form[name in SHARES].format(value)
        for name, value in measures.items()
    ]


def train(folder: Path, seeds: int) -> list[Path]:
    folders = [folder / f"seed-{seed}" for seed in range(seeds)]
    for seed, place in enumerate(folders):
        if not (place / "report.json").exists():
            where = "resume" if (place / "config.yaml").exists() else "folder"
            words = [*WORDS, f"seed={seed}", f"{where}={place}", "logger=none"]
            code = stock_command(words, program="stock_study")
            if code:
                raise SystemExit(code)
    return folders


def picture(folders: list[Path], path: Path) -> None:
    figure = Figure(figsize=(9.6, 4.6), layout="constrained")
    axes = figure.subplots()
    for seed, folder in enumerate(folders):
        with (folder / "equity.csv").open() as file:
            rows = list(csv.DictReader(file))
        days = np.array([row["date"] for row in rows], "datetime64[ms]")
        for name in rows[0]:
            if name == "date" or (seed and name != "policy"):
                continue
            total = np.array([float(row[name]) for row in rows])
            style = {"color": "#3b7dd8", "linewidth": 1.0} if name == "policy" else {}
            label = f"PPO, {len(folders)} seeds" if name == "policy" else name
            axes.plot(days, total / total[0], label=None if seed else label, **style)
    axes.set_yscale("log")
    for axis in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        axis("{x:g}")
    axes.set_ylabel("value, first day = 1")
    axes.grid(alpha=0.22)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=110)


def main() -> None:
    parser = results_parser(__doc__)
    parser.add_argument("--runs", type=Path, default=Path("runs/stock-study"), help="run folders")
    parser.add_argument("--seeds", type=int, default=SEEDS, help=f"default: {SEEDS}")
    arguments = parser.parse_args()
    seeds = arguments.seeds
    folders = train(arguments.runs, seeds)
    reports = [json.loads((folder / "report.json").read_text()) for folder in folders]
    policies = [report["policy"] for report in reports]
    average = {name: mean(each[name] for each in policies) for name in policies[0]}
    rows = [[f"PPO, seed {seed}", *cells(each)] for seed, each in enumerate(policies)]
    rows.append([f"PPO, mean of {seeds}", *cells(average)])
    rows += [[name, *cells(each)] for name, each in reports[0].items() if name != "policy"]
    head = ["", *(name.replace("_", " ") for name in policies[0])]
    ahead = sum(each["sharpe"] > reports[0]["equal weight"]["sharpe"] for each in policies)
    about = (
        f"`python benchmarks/stock_study.py`: `train_stock.py {' '.join(WORDS[:4])}` with the "
        f"settings of the package's table for seeds 0 to {seeds - 1}, and nothing chosen by the "
        f"days that are tested. skfolio {version('skfolio')}, {processor()}."
    )
    found = (
        f"{ahead} of {seeds} seeds have a higher Sharpe ratio than equal weight. The 20 stocks are "
        "those that were large in 2022: buying them at all, as every row but the index does, uses "
        f"knowledge that nobody had in 2016. {sp500_market().index_note}"
    )
    parts = ["# PPO on 20 stocks of the S&P 500", WARNING, about, markdown(head, rows), found]
    write_page(arguments.results, "stock_study", *parts, "![values](stock_study.png)")
    picture(folders, arguments.results / "stock_study.png")


if __name__ == "__main__":
    main()
