"""Starting training processes, watching them and looking at what they leave."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import torch

from torchrl_elegant.algorithms import ALGORITHMS
from torchrl_elegant.runs.config_file import from_yaml
from torchrl_elegant.runs.files import find_damage
from torchrl_elegant.runs.metrics import read_metrics

TESTS = Path(__file__).parents[1]
SCRIPTS = TESTS.parent / "scripts"
PATIENCE = 180.0  # seconds; a shared machine may be slow, a hang is for ever

SMALL = (
    "env=faults.fault_envs:point",
    "num_cells=8",
    "batch_size=8",
    "warmup=20",
    "eval_episodes=1",
    "logger=none",
    "progress=false",
)


def environment() -> dict[str, str]:
    """What child processes need to import the environments here."""
    paths = [str(TESTS), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}


def start(
    words: Sequence[str],
    *,
    script: str = "train_sac.py",
    log: Path,
    launcher: Sequence[str] = (),
) -> subprocess.Popen:
    """A script in a session of its own, so that whatever it leaves behind can be found."""
    with log.open("ab") as file:
        return subprocess.Popen(
            [sys.executable, *launcher, str(SCRIPTS / script), *words],
            stdout=file,
            stderr=file,
            env=environment(),
            start_new_session=True,
        )


def run(
    words: Sequence[str], *, script: str = "train_sac.py", cwd: Path | None = None
) -> subprocess.CompletedProcess:
    """A script from its start to its end."""
    return subprocess.run(
        [sys.executable, str(SCRIPTS / script), *words],
        capture_output=True,
        text=True,
        env=environment(),
        cwd=cwd,
        timeout=PATIENCE,
        check=False,
    )


def wait_until(condition: Callable[[], bool], process: subprocess.Popen | None = None) -> None:
    """Wait for something that a process is going to do."""
    end = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < end, "nothing happened in time"
        assert process is None or process.poll() is None, f"it ended with {process.returncode}"
        time.sleep(0.02)


def checkpoints(folder: Path) -> list[Path]:
    """Checkpoints in the order of saving."""
    found = (folder / "checkpoints").glob("checkpoint-*")
    return sorted(found, key=lambda path: path.name.rsplit("-", 1)[1])


def frames_of(checkpoint: Path) -> int:
    return int(checkpoint.name.split("-")[1])


def saved_frames(folder: Path) -> int:
    """Frames of the newest checkpoint; 0 without one."""
    found = checkpoints(folder)
    return frames_of(found[-1]) if found else 0


def saved_learner(checkpoint: Path) -> dict:
    """The learner's state in a checkpoint."""
    (file,) = (checkpoint / "components").glob("*-learner/state.pt")
    return torch.load(file, weights_only=False)


def seen_frames(folder: Path) -> int:
    """Frames of the last row of metrics; 0 without one."""
    try:
        rows = read_metrics(folder / "metrics.csv")
    except (OSError, ValueError):
        return 0
    return int(rows[-1]["frames"]) if rows else 0


def check_folder(folder: Path) -> None:
    """Nothing in a run folder is torn, whenever its process was killed."""
    for path in checkpoints(folder):
        damage = find_damage(path)
        # A run under way makes room for newer ones, and may have done so meanwhile.
        assert damage is None or path not in checkpoints(folder), damage
    from_yaml((folder / "config.yaml").read_text(), algorithms=ALGORITHMS)
    frames = [row["frames"] for row in read_metrics(folder / "metrics.csv")]
    assert frames == sorted(set(frames))
    updates = [row["updates"] for row in read_metrics(folder / "metrics.csv")]
    assert updates == sorted(updates)


def session_members(session: int) -> list[int]:
    """Living processes of a session."""
    members = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session and fields[0] != "Z":
            members.append(int(entry.name))
    return members


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def end_session(session: int) -> None:
    """Kill what a test leaves, by its ids."""
    for pid in session_members(session):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def wait_for_empty_session(session: int) -> None:
    wait_until(lambda: not session_members(session))
