"""Whoever dies, and however: the others notice, say so, and nobody is left behind."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterable, Iterator
from functools import partial
from pathlib import Path

import pytest
import torch
from async_toys import NumberedEnv, versioned_policy
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer

from torchrl_elegant.collectors import AsyncCollector

PATIENCE = 60.0  # seconds; generous, because it is only ever used up by a failure


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def wait_until(condition) -> bool:
    deadline = time.monotonic() + PATIENCE
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.02)
    return condition()


def make_collector(**kwargs) -> AsyncCollector:
    arguments = {
        "create_env_fn": [partial(NumberedEnv, tag) for tag in range(2)],
        "policy": versioned_policy(),
        "replay_buffer": TensorDictReplayBuffer(storage=LazyTensorStorage(4096), batch_size=8),
        "frames_per_batch": 8,
        "auto_register_policy_transforms": False,
    }
    return AsyncCollector(**{**arguments, **kwargs})


def test_a_worker_that_raises_is_named_with_its_traceback():
    failing = [partial(NumberedEnv, 0), partial(NumberedEnv, 1, fail_at=20)]
    with make_collector(create_env_fn=failing, total_frames=2000) as collector:
        collector.start()
        with pytest.raises(RuntimeError, match=r"worker 1 \(pid \d+\)") as caught:
            collector.wait_for(2000, timeout=PATIENCE)
        assert "ArithmeticError: simulator 1 fell over" in str(caught.value)
        assert f"pid {collector.procs[1].pid}" in str(caught.value)
    assert not any(is_running(process.pid) for process in collector.procs)
    # What was collected before is in the buffer, and counted.
    assert len(collector.replay_buffer) == collector.frames > 0


def test_a_killed_worker_is_named_and_hangs_nobody():
    with make_collector(total_frames=10**6) as collector:
        collector.start()
        assert collector.wait_for(64, timeout=PATIENCE)
        victim = collector.procs[0].pid
        os.kill(victim, signal.SIGKILL)
        assert wait_until(lambda: collector.procs[0].exitcode is not None)
        with pytest.raises(RuntimeError, match=rf"worker 0 \(pid {victim}\) was killed by SIGKILL"):
            collector.check()
        assert len(collector.replay_buffer.sample()) == 8
        collector.update_policy_weights_()
        with pytest.raises(RuntimeError, match="worker 0"):
            collector.wait_for(10**6, timeout=PATIENCE)
    assert not any(is_running(process.pid) for process in collector.procs)
    rows = collector.replay_buffer[:]
    assert len(rows) == collector.frames
    ids = rows["observation"][:, :4]
    assert len(ids.unique(dim=0)) == len(ids)


class FullBuffer(TensorDictReplayBuffer):
    """Refuses rows after the first few."""

    def extend(self, tensordicts, **kwargs):
        if len(self) > 20:
            raise OSError("no space left")
        return super().extend(tensordicts, **kwargs)


def test_a_buffer_that_fails_is_reported():
    buffer = FullBuffer(storage=LazyTensorStorage(64), batch_size=8)
    with make_collector(replay_buffer=buffer, total_frames=2000) as collector:
        collector.start()
        with pytest.raises(RuntimeError, match="writing to the replay buffer failed") as caught:
            collector.wait_for(2000, timeout=PATIENCE)
        assert isinstance(caught.value.__cause__, OSError)
    assert not any(is_running(process.pid) for process in collector.procs)


def only_here() -> NumberedEnv:
    if multiprocessing.parent_process() is not None:
        raise ArithmeticError("no simulator in this process")
    return NumberedEnv(0)


def test_a_worker_that_cannot_start_is_reported_and_leaves_nobody():
    before = set(multiprocessing.active_children())
    with pytest.raises(ArithmeticError, match="no simulator in this process"):
        make_collector(create_env_fn=[partial(NumberedEnv, 1), only_here])
    assert set(multiprocessing.active_children()) <= before


SCRIPT = """
    import sys, time
    from functools import partial
    # TorchRL imports Ray where it is installed, and Ray changes the code of interrupted programs.
    sys.modules["ray"] = None
    from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
    from torchrl.envs import GymEnv
    from torchrl_elegant.collectors import AsyncCollector

    if __name__ == "__main__":
        buffer = TensorDictReplayBuffer(storage=LazyTensorStorage(100), batch_size=4)
        collector = AsyncCollector(
            [partial(GymEnv, "CartPole-v1")], replay_buffer=buffer, frames_per_batch=8
        )
        collector.start()
        collector.wait_for(32)
        print("workers:", *(process.pid for process in collector.procs), flush=True)
        if sys.argv[1] == "raises":
            raise ArithmeticError("the learner fell over")
        while True:
            collector.check()
            time.sleep(0.01)
"""


def worker_pids(lines: Iterable[str]) -> list[int]:
    # TorchRL's logger writes to the same stream.
    for line in lines:
        if line.startswith("workers:"):
            return [int(pid) for pid in line.split()[1:]]
    return []


@pytest.fixture(scope="module")
def endings(tmp_path_factory) -> Iterator[dict[str, tuple[subprocess.Popen, list[int]]]]:
    """Main processes about to end in every way, started side by side to save the wait."""
    script = tmp_path_factory.mktemp("faults") / "learner.py"
    script.write_text(textwrap.dedent(SCRIPT))
    root = str(Path(__file__).parents[2])
    env = {**os.environ, "PYTHONPATH": root}
    started = {}
    try:
        for name in ("raises", "interrupted", "killed"):
            started[name] = subprocess.Popen(
                [sys.executable, str(script), name],
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                start_new_session=True,
            )
        yield {name: (process, worker_pids(process.stdout)) for name, process in started.items()}
    finally:
        for process in started.values():
            process.kill()
            process.communicate()


@pytest.mark.parametrize(
    ("name", "send", "code"),
    [
        ("raises", None, 1),
        # As Ctrl-C does it: to the workers as well.
        ("interrupted", lambda pid: os.killpg(pid, signal.SIGINT), -signal.SIGINT),
        ("killed", lambda pid: os.kill(pid, signal.SIGKILL), -signal.SIGKILL),
    ],
)
def test_no_worker_outlives_its_parent(endings, name, send, code):
    process, workers = endings[name]
    assert len(workers) == 1, process.communicate()[1]
    if send is not None:
        assert all(is_running(pid) for pid in workers)
        send(process.pid)
    assert process.wait(timeout=PATIENCE) == code
    assert wait_until(lambda: not any(is_running(pid) for pid in workers))


def test_the_probe_tells_the_living_from_the_dead():
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    assert is_running(child.pid)
    child.kill()
    assert wait_until(lambda: not is_running(child.pid))
    child.wait()
    assert torch.get_num_threads() == 1
