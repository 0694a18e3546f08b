"""Memory and cores: every limit around the process counts, and what does not fit is named."""

from __future__ import annotations

import resource

import pytest

from torchrl_elegant.config import machine
from torchrl_elegant.config.text import UsageError

GIB = 1 << 30


@pytest.fixture
def system(tmp_path, monkeypatch):
    """A machine of 8 GiB without a container, as files."""
    own, groups = tmp_path / "self", tmp_path / "cgroup"
    own.mkdir()
    groups.mkdir()
    (tmp_path / "meminfo").write_text(f"MemTotal: 1 kB\nMemAvailable:  {8 << 20} kB\n")
    monkeypatch.setattr(machine, "_MEMORY", tmp_path / "meminfo")
    monkeypatch.setattr(machine, "_OWN", own)
    monkeypatch.setattr(machine, "_CGROUPS", groups)
    return tmp_path


def group(folder, **files):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(f"{text}\n")


def test_a_machine_without_limits_has_what_the_kernel_says(system):
    (system / "self" / "cgroup").write_text("4:memory:/jobs\n0::/\n")
    group(system / "cgroup", memory__max="max", memory__current=str(GIB))
    assert machine.available_memory() == 8 * GIB


def test_without_files_it_is_the_memory_that_is_built_in(system):
    (system / "meminfo").unlink()
    assert machine.available_memory() > 0


@pytest.mark.parametrize("inside", ["", "jobs", "jobs/one"])
def test_every_group_around_a_process_limits_it(system, inside):
    (system / "self" / "cgroup").write_text("0::/jobs/one\n")
    files = {"memory__max": str(2 * GIB), "memory__current": str(GIB)}
    group(system / "cgroup" / inside, **files)
    assert machine.available_memory() == GIB


def test_files_that_a_group_has_read_give_way(system):
    (system / "self" / "cgroup").write_text("0::/\n")
    stat = f"anon 5\ninactive_file {GIB // 2}\nactive_file {GIB // 4}"
    group(
        system / "cgroup",
        memory__max=str(2 * GIB),
        memory__current=str(GIB),
        memory__stat=stat,
    )
    assert machine.available_memory() == GIB + GIB * 3 // 4


def test_groups_of_the_first_version_count(system):
    (system / "self" / "cgroup").write_text("9:cpu,cpuacct:/x\n4:memory:/x\n")
    group(
        system / "cgroup" / "memory" / "x",
        memory__limit_in_bytes=str(3 * GIB),
        memory__usage_in_bytes=str(GIB),
    )
    assert machine.available_memory() == 2 * GIB


def test_a_limit_of_the_shell_counts(system, monkeypatch):
    pages = GIB // machine.os.sysconf("SC_PAGE_SIZE")
    (system / "self" / "statm").write_text(f"{pages} 1 1 1 0 1 0\n")
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (3 * GIB, 3 * GIB))
    assert machine.available_memory() == 2 * GIB


def test_what_does_not_fit_is_named_with_both_sizes(system):
    machine.require_memory("buffer_size", 8 * GIB, "8 rows")
    with pytest.raises(UsageError) as error:
        machine.require_memory("buffer_size", 80 * GIB, "80 rows", "set buffer_size=8")
    assert str(error.value) == (
        "`buffer_size` must fit into memory, got 80 rows, which take 80.0 GiB of 8.0 GiB "
        "that there are; set buffer_size=8"
    )


def test_cores_bound_threads(monkeypatch):
    monkeypatch.setattr(machine, "cores", lambda: 4)
    machine.require_cores("threads", 128, "128 threads")
    with pytest.raises(UsageError, match=r"`threads` must be at most 128 on this machine of 4"):
        machine.require_cores("threads", 129, "129 threads")


@pytest.mark.parametrize(
    ("line", "files", "cores"),
    [
        ("0::/jobs/one", {"jobs/cpu__max": "250000 100000"}, 2),
        ("0::/jobs/one", {"jobs/one/cpu__max": "50000 100000", "jobs/cpu__max": "max 100000"}, 1),
        ("0::/jobs/one", {"cpu__max": "900000 100000"}, 4),
        ("3:cpu,cpuacct:/x", {"cpu/x/cpu__cfs_quota_us": 3e5, "cpu/x/cpu__cfs_period_us": 1e5}, 3),
        ("3:cpu,cpuacct:/x", {"cpu/x/cpu__cfs_quota_us": -1, "cpu/x/cpu__cfs_period_us": 1e5}, 4),
    ],
)
def test_a_quota_of_a_group_bounds_the_cores(system, monkeypatch, line, files, cores):
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: {0, 1, 2, 5})
    assert machine.cores() == 4
    (system / "self" / "cgroup").write_text(f"{line}\n")
    for name, text in files.items():
        folder, _, file = name.rpartition("/")
        group(system / "cgroup" / folder, **{file: text if isinstance(text, str) else int(text)})
    assert machine.cores() == cores


def test_parts_are_judged_by_those_that_are_made(monkeypatch):
    made, sizes = [], iter([0, 64 * GIB])
    monkeypatch.setattr(machine, "own_memory", lambda: next(sizes))
    monkeypatch.setattr(machine, "available_memory", lambda: 8 * GIB)
    with pytest.raises(UsageError) as error:
        made.extend(map(str, machine.within_memory("num_envs", range(1000))))
    told = "`num_envs` must fit into memory, got 1000 of about 1.4e+03 MiB each, which take"
    assert str(error.value).startswith(told)
    assert next(sizes, None) is None


def test_a_long_wait_is_told(monkeypatch, caplog):
    clock = iter(range(0, 10**6, 2))
    monkeypatch.setattr(machine, "perf_counter", lambda: next(clock))
    with caplog.at_level("WARNING"):
        assert list(machine.within_memory("num_envs", range(10))) == [*range(10)]
    told = [record.getMessage() for record in caplog.records]
    assert told
    assert all("num_envs: " in one and " of 10 made, about " in one for one in told)
