"""Pods in Ray actors: on two nodes, of which one dies and another comes, and without a cluster."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby
from pathlib import Path
from types import SimpleNamespace

import pytest
import ray
from faults.runs import wait_until
from ray.cluster_utils import Cluster
from tournament_toys import Toy, check_whole, rows, toy_tournament

from torchrl_elegant import PPOConfig
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.tournament import tournament
from torchrl_elegant.tournament.executors import (
    InlineExecutor,
    ProcessExecutor,
    RayExecutor,
    ray_actors,
)
from torchrl_elegant.tournament.executors.ray_actors import PROOF
from torchrl_elegant.tournament.pod import Order, Result
from torchrl_elegant.tournament.store import Store

STORE = 80 << 20


def processes_of(folder: str) -> list[int]:
    """Processes that name a cluster's folder among their arguments."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if folder.encode() in path.read_bytes():
                found.append(int(path.parent.name))
        except OSError:
            continue
    return found


@pytest.fixture(scope="module")
def cluster():
    """A head without cores and one node of one core; nothing of it is left behind."""
    # Short: the names of sockets lie below it.
    folder = tempfile.mkdtemp(prefix="ray-", dir="/tmp")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        # Ray would look for a token of the user's, which another program may make meanwhile.
        patch.setenv("RAY_AUTH_MODE", "disabled")
        head = {"num_cpus": 0, "include_dashboard": False, "temp_dir": folder}
        made = Cluster(initialize_head=True, head_node_args={**head, "object_store_memory": STORE})
        try:
            made.add_node(num_cpus=1, object_store_memory=STORE)
            patch.setenv("RAY_ADDRESS", made.address)
            yield made
        finally:
            made.shutdown()
            wait_until(lambda: not processes_of(folder))
            shutil.rmtree(folder, ignore_errors=True)


def gated(folder: Path) -> Toy:
    """Toy whose later pods wait until the file ``grown`` is there."""

    class Gated(Toy):
        def __call__(self, order, link):
            result = super().__call__(order, link)
            while order.pod > 4 and not (self.diary.parent / "grown").exists():
                link.beat()
                time.sleep(0.05)
            return result

    (folder / "diary").mkdir()
    return Gated(Store(folder / "checkpoints"), diary=folder / "diary")


def test_a_node_that_dies_and_one_that_comes_lose_no_pod(tmp_path, cluster):
    second = cluster.add_node(num_cpus=1, object_store_memory=STORE)
    work, most = gated(tmp_path), []

    def run() -> None:
        made = toy_tournament(tmp_path, work=work, executor=RayExecutor, retries=5)
        real = made.executor.wait

        def wait(seconds, hear):
            most.append(made.executor.most)
            real(seconds, hear)

        made.executor.wait = wait
        with made.board:
            made.run()

    def used() -> int:
        return len(list((tmp_path / "diary").iterdir()))

    # Nodes are made in the main thread alone.
    with ThreadPoolExecutor(1) as threads:
        running = threads.submit(run)
        wait_until(lambda: used() == 2 or running.done())
        cluster.remove_node(second, allow_graceful=False)
        wait_until(lambda: most[-1] == 2 or running.done())
        cluster.add_node(num_cpus=1, object_store_memory=STORE)
        wait_until(lambda: used() == 3 or running.done())
        (tmp_path / "grown").touch()
        running.result()
    check_whole(tmp_path)
    # One more than there are cores waits for a node.
    assert [count for count, _ in groupby(most)] == [3, 2, 3]
    assert rows(tmp_path, "SELECT SUM(amount) FROM pod") == [(2_000.0,)]
    assert rows(tmp_path, "SELECT DISTINCT state FROM pod") == [("done",)]
    # What the dead node had was begun again.
    assert rows(tmp_path, "SELECT SUM(crashes) FROM pod") == [(1,)]
    assert not (tmp_path / PROOF).exists()
    assert not ray.is_initialized()


def order(pod: int) -> str:
    made = Order(
        pod=pod,
        attempt=1,
        operation="initial",
        entry=0,
        options={},
        parent=None,
        start=None,
        amount=0.0,
        budget=100,
        unit="frames",
        rungs=(),
        seed=0,
        episodes=1,
    )
    return made.to_json()


def acting(folder: Path):
    """Work that differs by the number of the pod."""

    def work(order, link):
        if order.pod == 1:
            link.report(0, 2.5, 7)
        (folder / f"began-{order.pod}").touch()
        while order.pod in (2, 3):
            if link.beat() is not None:
                return Result(pod=order.pod, attempt=order.attempt, kind="partial")
            time.sleep(0.02)
        if order.pod == 4:
            os._exit(3)
        return Result(pod=order.pod, attempt=order.attempt, kind="done", score=1.0)

    return work


@pytest.mark.parametrize("kind", [InlineExecutor, ProcessExecutor, RayExecutor])
def test_all_executors_tell_the_same(tmp_path, request, kind):
    if kind is RayExecutor:
        request.getfixturevalue("cluster")
    (tmp_path / "results").mkdir()
    executor, events = kind(acting(tmp_path), tmp_path / "results"), []

    def result_of(pod: int) -> Result | None:
        executor.wait(0.1, events.append)
        found = [one.result for one in events if one.pod == pod and one.result is not None]
        return found[0] if found else None

    try:
        executor.start(order(1))
        wait_until(lambda: result_of(1))
        executor.start(order(2))
        executor.stop(2, "preempted")
        # One that is over does not matter.
        executor.stop(1, "preempted")
        wait_until(lambda: result_of(2))
        if kind is not InlineExecutor:
            executor.start(order(3))
            wait_until(lambda: result_of(3) or (tmp_path / "began-3").exists())
            executor.kill(3)
            executor.start(order(4))
            wait_until(lambda: result_of(4))
    finally:
        executor.close()
    reports = [(one.pod, one.rung, one.score, one.frames) for one in events if one.rung is not None]
    assert reports == [(1, 0, 2.5, 7)]
    ends = {one.pod: one.result.kind for one in events if one.result is not None}
    assert len(ends) == sum(one.result is not None for one in events)
    lost = {} if kind is InlineExecutor else {4: "lost"}
    assert ends == {1: "done", 2: "partial", **lost}
    # What has ended is in a file as well, and what was killed is not.
    assert sorted(path.name for path in (tmp_path / "results").iterdir()) == [
        "1-1.json",
        "2-1.json",
    ]


def test_a_real_tournament_runs_on_a_cluster(tmp_path, cluster, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small = {"budget": 200, "quantum": 100, "frames_per_batch": 100, "eval_episodes": 1}
    result = tournament(
        PPOConfig(num_cells=(8,), batch_size=32, epochs=1),
        "CartPole-v1",
        executor="ray",
        cpus=0.5,
        population=2,
        final_episodes=1,
        folder="here",
        **small,
    )
    check_whole(tmp_path / "here")
    assert len(result.leaders) == 2
    assert result.policy()([0.0, 0.0, 0.0, 0.0]) in (0, 1)


def test_a_folder_that_a_node_does_not_see_is_told(tmp_path, cluster):
    made = toy_tournament(tmp_path, executor=RayExecutor)
    (tmp_path / PROOF).write_text("of another tournament")
    told = f"`folder` must be on a disk that all nodes of the cluster share, got '{tmp_path}'"
    with made.board, pytest.raises(UsageError, match=told):
        made.run()
    assert rows(tmp_path, "SELECT COUNT(*) FROM pod WHERE state = 'done'") == [(0,)]


def test_what_a_node_cannot_load_is_told(tmp_path, cluster):
    class Unloadable:
        def __reduce__(self):
            return (int, ("no number",))

    made = toy_tournament(tmp_path, work=Unloadable(), executor=RayExecutor)
    told = "`executor` must be able to begin on all nodes, got one that cannot: ValueError: invalid"
    with made.board, pytest.raises(UsageError, match=told):
        made.run()


def test_actors_that_never_come_up_are_told(tmp_path, cluster, monkeypatch):
    class Broken:
        def __init__(self, setting, paths):
            raise ModuleNotFoundError("No module named 'torchrl_elegant'")

        def greet(self):
            pass

    monkeypatch.setattr(ray_actors, "_Serving", Broken)
    made = toy_tournament(tmp_path, executor=RayExecutor)
    told = r"got one that cannot: ActorDiedError: .*No module named 'torchrl_elegant'\); give all"
    with made.board, pytest.raises(UsageError, match=told):
        made.run()


def test_the_extra_is_named_where_ray_is_missing(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"pip install torchrl_elegant\[ray\]"):
        RayExecutor(os.getpid, tmp_path)


class Handle:
    """An actor of a cluster that has no room."""

    def __init__(self, cluster: NoCluster) -> None:
        self.greet = SimpleNamespace(remote=object)
        cluster.actors.append(self)


class NoCluster:
    """In Ray's place: nodes as they are told, and actors that never come up."""

    exceptions = ray.exceptions

    def __init__(self) -> None:
        self.actors: list[Handle] = []
        self.listed = [{"Alive": True, "Resources": {}}]

    def is_initialized(self):
        return True

    def put(self, value):
        return value

    def nodes(self):
        return self.listed

    def remote(self, **options):
        made = SimpleNamespace(remote=lambda *given: Handle(self))
        return lambda cls: SimpleNamespace(options=lambda **more: made)

    def wait(self, lines, timeout, num_returns=1):
        return [], lines

    def kill(self, handle):
        self.actors.remove(handle)


@pytest.fixture
def alone(tmp_path, monkeypatch):
    """Makes executors without a cluster; the moments are those of ``clock``."""
    (tmp_path / "results").mkdir()
    cluster, clock = NoCluster(), [0.0]
    monkeypatch.setattr(ray_actors, "_ray", lambda: cluster)
    monkeypatch.setattr(ray_actors, "monotonic", lambda: clock[0])

    def make(**options):
        return RayExecutor(os.getpid, tmp_path / "results", **options), cluster, clock

    return make


def node(cores: float, gpus: float = 0.0, alive: bool = True) -> dict:
    return {"Alive": alive, "Resources": {"CPU": cores, "GPU": gpus}}


@pytest.mark.parametrize(
    ("nodes", "options", "most"),
    [
        ([], {}, 1),
        ([node(16), node(16)], {}, 40),
        # A pod lies on one node as a whole.
        ([node(3), node(3)], {"cpus": 2.0}, 3),
        ([node(8), node(8, alive=False)], {"cpus": 0.5}, 20),
        ([node(8, 1), node(8, 2)], {"gpus": 0.3}, 11),
    ],
)
def test_pods_are_as_many_as_the_nodes_have_room_for_and_a_quarter_more(
    alone, nodes, options, most
):
    executor, cluster, clock = alone(**options)
    # The first has no cores, as a head.
    cluster.listed += nodes
    assert executor.most == most
    cluster.listed.append(node(64, 64))
    assert executor.most == most
    clock[0] += 2
    assert executor.most > most


def test_orders_that_wait_for_a_node_live_and_can_be_taken_back(alone):
    executor, cluster, clock = alone()
    events = []
    for pod in (1, 2, 3):
        executor.start(order(pod))
    assert len(cluster.actors) == 3
    clock[0] += 1
    executor.wait(0.0, events.append)
    assert [(event.pod, event.result) for event in events] == [(1, None), (2, None), (3, None)]
    events.clear()
    executor.stop(2, "preempted")
    executor.kill(3)
    executor.wait(5.0, events.append)
    ((two, result),) = [(event.pod, event.result) for event in events]
    assert (two, result.kind, result.checkpoint) == (2, "partial", None)
    # What nobody needs asks the cluster for nothing, after a while.
    assert len(cluster.actors) == 3
    clock[0] += 60
    executor.wait(0.0, events.append)
    assert len(cluster.actors) == 1
    began = time.monotonic()
    executor.close()
    assert cluster.actors == []
    assert time.monotonic() - began < 1
