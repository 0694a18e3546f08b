"""Slots follow cores, memory and GPUs as they come and go; a full disk holds new pods back."""

from __future__ import annotations

import os
import time

import pytest
from tournament_toys import Toy, check_whole, rows, toy_tournament

from torchrl_elegant.tournament import TournamentConfig, resources
from torchrl_elegant.tournament.executors import cores_of_pod
from torchrl_elegant.tournament.pod import Result
from torchrl_elegant.tournament.resources import (
    Machine,
    Room,
    SlotsFile,
    memory_below,
    visible_gpus,
)
from torchrl_elegant.tournament.store import Store
from torchrl_elegant.trainers import RunConfig

MB = 1_000_000


@pytest.fixture(autouse=True)
def at_every_look(monkeypatch):
    monkeypatch.setattr(resources, "_LOOK", 0.0)


class Readings:
    """A machine whose numbers a test changes."""

    cores, memory, held, total, free = 4, 100 * MB, 0, 10_000 * MB, 5_000 * MB

    def room(self, folder, **options) -> Room:
        machine = Machine(
            cores=lambda: self.cores,
            memory=lambda: self.memory,
            held=lambda: self.held,
            disk=lambda path: (self.total, self.free),
        )
        return Room(folder, machine=machine, **options)


def took(memory: int = 0, size: int = 0) -> list[Result]:
    return [Result(pod=1, attempt=1, kind="done", memory=memory, size=size)]


@pytest.mark.parametrize(
    ("cpus", "slots"), [(1.0, [4, 1, 16, 1]), (0.5, [8, 2, 32, 1]), (3.0, [1, 1, 5, 1])]
)
def test_slots_follow_the_cores(tmp_path, cpus, slots):
    now = Readings()
    room, found = now.room(tmp_path, cpus=cpus), []
    for now.cores in (4, 1, 16, 0):
        found.append(room.slots())
    assert found == slots


def test_slots_follow_the_memory_once_it_is_known_what_a_pod_takes(tmp_path, caplog):
    now = Readings()
    room, found = now.room(tmp_path), []
    assert room.slots() == 4
    room.note(took(30 * MB))
    room.note(took(20 * MB))
    with caplog.at_level("INFO"):
        # Nothing runs; two run and have all that they take; others take what is left; all is free.
        for now.memory, now.held in ((100 * MB, 0), (40 * MB, 60 * MB), (0, 60 * MB), (0, 0)):
            found.append(room.slots())
        now.memory = 1_000 * MB
        found.append(room.slots())
    assert found == [3, 3, 2, 1, 4]
    told = [record.getMessage() for record in caplog.records]
    assert told == [
        "3 slots of 4: a pod takes up to 28 MiB, 95 are free",
        "memory has room for all 4 slots again",
    ]


def test_what_pods_took_before_a_restart_counts(tmp_path):
    class Heavy(Toy):
        def __call__(self, order, link):
            return Result(**{**vars(super().__call__(order, link)), "memory": 7, "size": 9})

    made = toy_tournament(tmp_path, work=Heavy(Store(tmp_path / "checkpoints")), budget=400)
    with made.board:
        made.run()
        assert made.board.peaks() == (7, 9)
    again = toy_tournament(tmp_path)
    with again.board:
        assert (again.room._memory, again.room._size) == (7, 9)


def test_slots_of_none_follow_the_machine_and_those_that_are_set_do_not(tmp_path):
    now, found = Readings(), []
    for name, slots in (("machine", None), ("set", 3)):
        made = toy_tournament(tmp_path / name)
        made.executor.most = None
        made.config = TournamentConfig(budget=100, slots=slots)
        made.room = now.room(tmp_path)
        for now.cores in (2, 1, 4):
            found.append(made._slots())
        (made.folder / "slots").write_text("0")
        found.append(made._slots())
        made.board.close()
    assert found == [2, 1, 4, 0, 3, 3, 3, 0]


def test_no_pod_starts_while_the_disk_is_nearly_full(tmp_path, caplog):
    now, begun, waits = Readings(), [], []

    class Filling(Toy):
        def __call__(self, order, link):
            begun.append(order.pod)
            if order.pod in (3, 7):
                now.free = 100 * MB
            return super().__call__(order, link)

    made = toy_tournament(tmp_path, work=Filling(Store(tmp_path / "checkpoints")))
    made.room = now.room(tmp_path)
    real = made.executor.wait

    def wait(seconds, hear):
        if made.executor._waiting is None:
            waits.append((len(begun), len(rows(tmp_path, "SELECT id FROM pod"))))
            if len(waits) % 3 == 0:
                now.free = 5_000 * MB
            return
        real(seconds, hear)

    made.executor.wait = wait
    with made.board, caplog.at_level("WARNING"):
        made.run()
    check_whole(tmp_path)
    # Three looks each, in which nothing was decided and nothing began.
    assert len(waits) == 6
    assert len(set(waits[:3])) == len(set(waits[3:])) == 1
    assert waits[0][0] < waits[3][0]
    assert rows(tmp_path, "SELECT SUM(amount) FROM pod") == [(2_000.0,)]
    told = [record.getMessage() for record in caplog.records]
    assert (
        told
        == [
            f"no new pods: the disk of {tmp_path} has 100 MB, and 100 must be free; remove files, "
            "or set store_mb lower"
        ]
        * 2
    )


@pytest.mark.parametrize(
    ("total", "size", "free", "has"),
    [
        (10_000, 0, 101, True),
        (10_000, 0, 99, False),
        # A checkpoint for each slot.
        (10_000, 50, 299, False),
        (10_000, 50, 301, True),
        # A small disk.
        (1_000, 0, 51, True),
        (1_000, 0, 49, False),
    ],
)
def test_what_must_be_free_on_a_disk(tmp_path, total, size, free, has):
    now = Readings()
    now.total, now.free = total * MB, free * MB
    room = now.room(tmp_path)
    room.note(took(size=size * MB))
    assert room.has_disk() is has


def test_memory_of_all_that_a_process_has_started(tmp_path):
    for pid, parent, pages in ((5, 1, 100), (6, 5, 10), (7, 6, 3), (8, 1, 50), (9, 5, 1)):
        (tmp_path / str(pid)).mkdir()
        words = [str(pid), "(a) b)", "S", str(parent), *["0"] * 19, str(pages), "0"]
        (tmp_path / str(pid) / "stat").write_text(" ".join(words))
    (tmp_path / "10").mkdir()
    page = os.sysconf("SC_PAGE_SIZE")
    assert memory_below(5, tmp_path) == 14 * page
    assert memory_below(7, tmp_path) == 0


def test_memory_of_real_children():
    child = os.fork()
    if child == 0:
        time.sleep(60)
        os._exit(0)
    try:
        assert memory_below(os.getpid()) > 1 << 20
    finally:
        os.kill(child, 9)
        os.waitpid(child, 0)


@pytest.mark.parametrize(
    ("names", "chosen", "visible"),
    [
        (["null"], None, ()),
        (["nvidia0", "nvidia3", "nvidiactl", "nvidia-uvm"], None, ("0", "1")),
        (["nvidia0", "nvidia1"], "1", ("1",)),
        (["nvidia0", "nvidia1"], "1, 0,7", ("1", "0")),
        (["nvidia0"], "", ()),
        (["nvidia0"], "-1", ()),
        (["nvidia0"], "GPU-1a2b", ("GPU-1a2b",)),
        ([], "GPU-1a2b", ()),
    ],
)
def test_gpus_are_counted_without_the_driver(tmp_path, monkeypatch, names, chosen, visible):
    for name in names:
        (tmp_path / name).touch()
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    if chosen is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", chosen)
    assert visible_gpus(tmp_path) == visible


@pytest.mark.parametrize(
    ("words", "cores"),
    [
        ({}, 1.0),
        ({"collector": "async", "num_workers": 3}, 4.0),
        ({"env_backend": "parallel", "num_envs": 4}, 5.0),
        ({"collector": "async", "num_workers": 2, "env_backend": "parallel", "num_envs": 4}, 11.0),
    ],
)
def test_a_pod_is_given_a_core_for_each_of_its_processes(words, cores):
    assert cores_of_pod(TournamentConfig(), RunConfig(**words)) == cores
    assert cores_of_pod(TournamentConfig(cpus=0.25), RunConfig(**words)) == 0.25


def test_a_slots_file_without_a_number_is_told_once_and_changes_nothing(tmp_path, caplog):
    file = SlotsFile(tmp_path / "slots")
    texts = ["many", "many", "3\n", "", "-1", "2.5", "0", None]
    counts = []
    for text in texts:
        if text is None:
            (tmp_path / "slots").unlink()
        else:
            (tmp_path / "slots").write_text(text)
        counts.append(file.read())
    assert counts == [None, None, 3, 3, 3, 3, 0, None]
    told = [record.getMessage() for record in caplog.records]
    assert [text.partition("got ")[2] for text in told] == [
        "'many': nothing changes",
        "'-1': it stays 3",
        "'2.5': it stays 3",
    ]
