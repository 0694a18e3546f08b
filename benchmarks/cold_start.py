"""Time from the command to a return of -150 on Pendulum-v1: SAC plain and compiled.

    python benchmarks/cold_start.py

Each run is `scripts/train_sac.py env=Pendulum-v1 tuned=true target_return=-150` in a process of its
own, on one thread; the arms take turns. *Cold* begins with an empty cache, as the first run on a
machine; *warm* with what the cold run has left. Writes ``benchmarks/results/cold_start.md``.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from _report import markdown, processor, results_parser, write_page

HERE = Path(__file__).resolve().parent
SCRIPT = HERE.parent / "scripts" / "train_sac.py"
WORDS = ("env=Pendulum-v1", "tuned=true", "target_return=-150", "eval_interval=500", "threads=1")
ARMS = {
    "default: plain, for so few updates": "compile=auto",
    "plain": "compile=false",
    "compiled, cold": "compile=true",
    "compiled, warm": "compile=true",
}


def seconds_of(arm: str, seed: int, folder: Path) -> float:
    """Seconds of a run to its end, which is the target."""
    words = (*WORDS, ARMS[arm], f"seed={seed}", f"folder={folder / str(list(ARMS).index(arm))}")
    caches = {"XDG_CACHE_HOME": folder / "cache", "TORCHINDUCTOR_CACHE_DIR": folder / "inductor"}
    start = time.perf_counter()
    subprocess.run(
        [sys.executable, str(SCRIPT), *words, "progress=false", "logger=none"],
        check=True,
        capture_output=True,
        env=os.environ | {name: str(path) for name, path in caches.items()},
    )
    return time.perf_counter() - start


def main() -> None:
    parser = results_parser(__doc__)
    parser.add_argument("--seeds", type=int, default=5, help="runs of each arm (default: 5)")
    arguments = parser.parse_args()
    found: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for seed in range(arguments.seeds):
        with tempfile.TemporaryDirectory() as folder:
            for arm in ARMS:
                found[arm].append(seconds_of(arm, seed, Path(folder)))
                print(f"seed {seed}, {arm}: {found[arm][-1]:.1f} s", flush=True)
    head = ["", "seconds, median", "lowest", "highest"]
    lines = []
    for arm, seconds in found.items():
        figures = (statistics.median(seconds), min(seconds), max(seconds))
        lines.append([arm, *(f"{each:.1f}" for each in figures)])
    about = (
        f"`python benchmarks/cold_start.py --seeds {arguments.seeds}`\n\n{processor()}, "
        f"{os.cpu_count()} cores. `{' '.join(WORDS)}`: from the command to the end of the run, "
        f"imports and evaluations included, over {arguments.seeds} seeds."
    )
    title = "# Time to -150 on Pendulum-v1"
    write_page(arguments.results, "cold_start", title, about, markdown(head, lines))


if __name__ == "__main__":
    main()
