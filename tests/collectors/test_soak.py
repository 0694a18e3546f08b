"""The soak of benchmarks/soak.py, for seconds, and what it would notice."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tensordict import TensorDict

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path.insert(0, str(BENCHMARKS))
from _soak_count import BASE, CountingBuffer, Numbered, numbers_of  # noqa: E402
from _soak_watch import Trend, trend  # noqa: E402
from soak import Soak  # noqa: E402


def test_a_short_soak(tmp_path):
    command = [sys.executable, BENCHMARKS / "soak.py", "--minutes", "0.2", "--folder", tmp_path]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    report = (tmp_path / "soak.md").read_text()
    assert "**All is well.**" in report
    assert "0 processes and 0 segments of shared memory left" in report
    assert (tmp_path / "soak.png").stat().st_size > 1000


def rows(count, *, name=3, steps=400):
    """What a collector would write of one environment, step by step."""
    env, made = Numbered(name), []
    observation, _ = env.reset()
    for _ in range(steps):
        before = torch.from_numpy(observation)
        observation, reward, terminated, truncated, _ = env.step(None)
        done = terminated or truncated
        after = {"observation": torch.from_numpy(observation), "reward": torch.tensor([reward])}
        made.append(
            TensorDict({"observation": before, "next": {**after, "done": torch.tensor([done])}})
        )
        if done:
            observation, _ = env.reset()
    assert sum(row["next", "done"].item() for row in made) > 2
    return torch.stack(made[:count])


def count(*parts):
    buffer = CountingBuffer(capacity=1000, batch_size=4)
    for part in parts:
        buffer.extend(part)
    return buffer


def test_whole_streams_are_counted():
    one, two = rows(400), rows(400, name=4)
    buffer = count(one[:100], two, torch.cat([one[100:150], one[150:]]))
    assert buffer.frames == {3: 400, 4: 400}
    assert buffer.write_count == 800


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda r: (r[:50], r[51:]), "row 50 of environment 3 must begin at step 50, got 51"),
        (lambda r: (r[:50], r[49:]), "row 50 of environment 3 must begin at step 50, got 49"),
        (lambda r: (r[50:], r[:50]), "row 0 of environment 3 must begin at step 0, got 50"),
        (lambda r: (torch.cat([r[:9], r[10:]]),), "row 9 of environment 3 must begin at step 9"),
        (lambda r: (r.flip(0),), "row 0 of environment 3 must begin at step 0, got 399"),
    ],
    ids=["lost", "doubled", "swapped", "lost within", "reversed"],
)
def test_a_stream_that_is_not_whole_is_noticed(spoil, message):
    with pytest.raises(AssertionError, match=message):
        count(*spoil(rows(400)))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (("next", "observation"), 5.0, "must lead to step"),
        (("next", "reward"), 1000.0, "reward of environment 3 must be that of its step"),
        (("next", "done"), False, "episode of environment 3 must begin where one ended"),
    ],
)
def test_a_row_that_is_wrong_is_noticed(key, value, message):
    spoilt = rows(400)
    spoilt[key][40:] = value
    with pytest.raises(AssertionError, match=message):
        count(spoilt)


def test_numbers_beyond_single_precision():
    env = Numbered(1)
    env.steps = 3 * BASE + 2**25
    seen = torch.from_numpy(env._observe()).unsqueeze(0)
    env.steps += 1
    assert numbers_of(torch.from_numpy(env._observe()).unsqueeze(0)) == numbers_of(seen) + 1


FLAT = Trend(start=100.0, growth=0.1, peak=0.2, slope=0.0)
WELL = Soak(
    minutes=1.0,
    frames=80,
    episodes=1,
    episodes_told=1,
    updates=1,
    counted={100 * worker + env: 10 for worker in range(2) for env in range(4)},
    written=80,
    trends={"parent": FLAT},
    descriptors=(30, 30),
    processes_left=[],
    segments_seen=3,
    segments_left=[],
)


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"trends": {"parent": replace(FLAT, growth=9.0)}}, "parent grew by 9.0 MiB"),
        ({"frames": 81}, "frames were counted as 80 by their numbers, 81 by the collector"),
        ({"written": 79}, "79 by the buffer"),
        ({"counted": {0: 80}}, "rows came from environments [0] only"),
        ({"episodes_told": 2}, "1 episodes ended, 2 were told of"),
        ({"descriptors": (30, 40)}, "open files went from 30 to 40"),
        ({"processes_left": ["worker"]}, "process left: worker"),
        ({"segments_left": ["/dev/shm/a"]}, "shared memory left: /dev/shm/a"),
    ],
)
def test_what_is_wrong_is_said(change, fault):
    assert WELL.faults() == []
    assert any(fault in said for said in replace(WELL, **change).faults())


def test_a_leak_shows_in_the_trend():
    times = list(range(100))
    leak = trend(times, [50 + 0.5 * t for t in times], warm_up=20)
    assert leak.slope == pytest.approx(1800)
    assert leak.growth == pytest.approx(32, abs=1)
    start_up = trend(times, [50 + 10 * (t > 10) for t in times], warm_up=20)
    assert (start_up.start, start_up.growth, start_up.slope) == (60, 0, 0)
    with pytest.raises(ValueError, match="`warm_up` must leave 5 samples, got 0"):
        trend(times, [0.0] * 100, warm_up=1000)
