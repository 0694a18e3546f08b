"""The page of a tournament: whole, alone, safe, readable at any size, never in the way."""

from __future__ import annotations

import errno
import re
import threading
import time
import xml.etree.ElementTree as ET
from dataclasses import asdict
from html.parser import HTMLParser

import pytest
from tournament_toys import Toy, play

from torchrl_elegant.algorithms import A2CConfig
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.config_file import to_yaml
from torchrl_elegant.tournament import PodsFailedError, TournamentConfig, lineage, report
from torchrl_elegant.tournament.leaderboard import FILE, Leaderboard
from torchrl_elegant.tournament.store import Store
from torchrl_elegant.tournament.views import report as module
from torchrl_elegant.tournament.views.lineage import MOST
from torchrl_elegant.tournament.views.page import report_page
from torchrl_elegant.tournament.views.report import REPORT, ReportWriter
from torchrl_elegant.tournament.views.standings import Standings
from torchrl_elegant.trainers.run_config import RunConfig

EVIL = "<script>alert('1')</script> & \"more\""
SVG = "{http://www.w3.org/2000/svg}"


class Evil(Toy):
    def __call__(self, order, link):
        if order.pod % 9 == 4:
            raise ValueError(EVIL)
        return super().__call__(order, link)


def toys(folder, *, members=4, depth=5, env="CartPole-v1", space=None, work=None):
    """A finished tournament of toys, with all that a real one stores."""
    folder.mkdir(exist_ok=True)
    units = {"budget": 100 * members * depth, "quantum": 100, "population": members}
    config = TournamentConfig(**units, space=space or {})
    texts = [to_yaml("a2c", RunConfig(env=env), A2CConfig())]
    meta = {"config": asdict(config), "runs": texts}
    Leaderboard.create(folder / FILE, meta, population=members).close()
    for name in ("checkpoints", "results"):
        (folder / name).mkdir()
    play(folder, work=(work or Evil)(Store(folder / "checkpoints")), **units)
    return folder


def pictures(page):
    """The pictures of a page; each is well-formed XML."""
    return [ET.fromstring(text) for text in re.findall(r"<svg.*?</svg>", page, re.DOTALL)]


class Balanced(HTMLParser):
    """Reader that finds elements without an end, or in one another's way."""

    def __init__(self):
        super().__init__()
        self.open, self.tags, self.told = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.told += [f"{name}={value}" for name, value in attrs]
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("page") / "run"
    return toys(made, env=f"{EVIL}-v1", space={"lr": "log:1e-5..1e-1"})


def test_the_page_stands_alone_and_shows_texts_as_texts(folder):
    page = report(folder).read_text()
    found = Balanced()
    found.feed(page)
    assert found.open == []
    assert "script" not in found.tags
    assert not [told for told in found.told if told.startswith(("src=", "href=", "onload="))]
    assert set(re.findall(r"https?://[^\"']*", page)) <= {"http://www.w3.org/2000/svg"}
    assert "@import" not in page
    assert "url(#" in page
    assert page.count("&lt;script&gt;") >= 3  # title, heading, failures
    assert "prefers-color-scheme: dark" in page
    for part in ("Leaderboard", "Scores", "Lineage", "Options", "Failures", "Winner"):
        assert part in page
    assert "finished" in page
    assert "2,000 of 2,000 frames used (100 %)" in page


def test_a_browser_loads_it_again_only_while_the_tournament_runs(folder):
    standings = Standings(folder)
    standings.look()
    assert 'http-equiv="refresh"' in report_page(standings, is_running=True)
    assert 'http-equiv="refresh"' not in report_page(standings, is_running=False)
    standings.close()


def test_what_is_searched_by_its_logarithm_is_drawn_by_it(folder, tmp_path):
    def ticks(folder):
        standings = Standings(folder)
        standings.look()
        picture = pictures(report_page(standings, is_running=False))[-1]
        standings.close()
        return [node.text for node in picture.iter(f"{SVG}text")]

    # The toys' rates go from 1e-5 to 1e-1.
    assert {"1e-4", "0.001"} & set(ticks(folder))
    even = toys(tmp_path / "even", space={"lr": "uniform:0..0.1"}, members=8, depth=2)
    assert not {"1e-4", "1e-5"} & set(ticks(even))


@pytest.mark.parametrize(("members", "depth"), [(1, 1), (1, 40), (8, 4), (80, 2)])
def test_labels_never_lie_upon_one_another(tmp_path, members, depth):
    made = toys(tmp_path / "run", members=members, depth=depth, space={"lr": "log:1e-5..1e-1"})
    page = report(made).read_text()
    for picture in pictures(page):
        placed = []
        for node in picture.iter(f"{SVG}text"):
            width = 6.2 * len(node.text)
            x, y = float(node.get("x")), float(node.get("y"))
            x -= {"end": width, "middle": width / 2}.get(node.get("text-anchor"), 0.0)
            if node.text in ("winner", "leads"):
                continue  # It stands among the lines.
            for left, right, other, text in placed:
                apart = x >= right or x + width <= left or abs(y - other) >= 10
                assert apart, (node.text, text)
            placed.append((x, x + width, y, node.text))
            assert x > -2
            assert x + width < float(picture.get("width")) + 12
    shown = min(members, MOST)
    assert page.count(">member ") == shown
    assert ("members are shown" in page) == (members > MOST)


def test_the_lineage_leads_to_the_winner(folder):
    picture = ET.fromstring(lineage(folder))
    texts = [node.text for node in picture.iter(f"{SVG}text")]
    assert texts.count("winner") == 1
    standings = Standings(folder)
    standings.look()
    path = standings.ancestry(standings.leader())
    trained = [row for row in standings.pods.values() if row.member is not None]
    drawn = [node.text for node in picture.iter(f"{SVG}title")]
    standings.close()
    assert len(drawn) == len(trained)
    assert [row.depth for row in path] == list(range(len(path), 0, -1))
    wide = [node for node in picture.iter(f"{SVG}path") if node.get("stroke-opacity")]
    assert len(wide) == 1
    assert wide[0].get("d").count("M") == len(path) - 1


def test_a_pod_of_two_parents_stands_behind_them_with_a_line_from_each(tmp_path):
    meta = {"config": {"budget": 10, "unit": "frames"}}
    same = {"state": "done", "lineage": 1, "entry": 0, "algorithm": "ppo", "architecture": "a"}
    same |= {"options": {"lr": 0.1}, "seed": 0, "budget": 1, "score": 1.0, "frames": 5}
    pods = [
        {"id": 1, "operation": "initial", "member": 0, "depth": 1, "parents": []},
        {"id": 2, "operation": "initial", "member": 1, "depth": 1, "parents": []},
        {"id": 3, "operation": "fuse", "member": 0, "depth": 1, "parents": [1, 2]},
        {"id": 4, "operation": "continue", "member": 1, "depth": 2, "parents": [3]},
    ]
    with Leaderboard.create(tmp_path / FILE, meta, population=2) as board, board.transaction():
        for pod in pods:
            board.add_pod({**same, **pod})
    picture = ET.fromstring(lineage(tmp_path))
    dots = [node for node in picture.iter(f"{SVG}circle") if node.find(f"{SVG}title") is not None]
    (fused, child) = ((float(node.get("cx")), float(node.get("cy"))) for node in dots)
    (start, *_) = (float(node.get("x")) for node in picture.iter(f"{SVG}rect"))
    assert start + 20 < fused[0] < child[0] - 20
    assert "fuse of 1 and 2" in "".join(picture.itertext())
    lines = [node.get("d") for node in picture.iter(f"{SVG}path") if node.get("stroke-width")]
    assert max(line.count("M") for line in lines) == 3
    assert "fuse of 1 and 2" in report(tmp_path).read_text()


def test_a_page_of_nothing_and_of_failures_alone(tmp_path):
    Leaderboard.create(
        tmp_path / FILE, {"config": {"budget": 10, "unit": "frames"}}, population=2
    ).close()
    assert "no pod has ended yet" in report(tmp_path).read_text()

    class Broken(Toy):
        def __call__(self, order, link):
            raise ValueError(EVIL)

    with pytest.raises(PodsFailedError):
        toys(tmp_path / "failed", work=Broken)
    page = report(tmp_path / "failed").read_text()
    assert "Failures" in page
    assert "Scores" not in page
    assert "not finished" in page


def test_a_folder_without_a_tournament_is_refused(tmp_path):
    with pytest.raises(UsageError, match=r"`report` must be the folder of a tournament, got"):
        report(tmp_path)
    with pytest.raises(UsageError, match=r"`folder` must be the folder of a tournament, got"):
        lineage(tmp_path)


def test_the_page_is_written_beside_the_tournament_and_not_too_often(tmp_path, monkeypatch):
    threads = []

    def slow(standings, *, is_running):
        threads.append(threading.current_thread())
        time.sleep(0.05)
        return f"page {len(threads)} {is_running}"

    monkeypatch.setattr(module, "report_page", slow)
    play(tmp_path)
    writer = ReportWriter(tmp_path, seconds=0.0)
    start = time.perf_counter()
    for _ in range(200):
        writer.look(1)
    spent = time.perf_counter() - start
    writer._thread.join()
    writer.look(1)
    writer.close()
    # One page, in a thread: the next would be due after fifty times as long as this one took.
    assert len(threads) == 2
    assert threads[0] is not threading.main_thread()
    assert spent < 0.05
    assert (tmp_path / REPORT).read_text() == "page 2 False"


def test_a_reader_never_sees_half_a_page(tmp_path):
    toys(tmp_path / "run")
    path = report(tmp_path / "run")
    stop = threading.Event()
    seen = set()

    def read():
        while not stop.is_set():
            seen.add(path.read_text().rstrip().endswith("</html>"))

    reader = threading.Thread(target=read)
    reader.start()
    for _ in range(10):
        report(tmp_path / "run")
    stop.set()
    reader.join()
    assert seen == {True}


def test_a_full_disk_costs_the_page_alone(tmp_path, monkeypatch, caplog):
    def full(path, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "write_file", full)
    play(tmp_path)
    writer = ReportWriter(tmp_path)
    writer.look(1)
    writer.close()
    assert "report.html could not be written: [Errno 28] No space left on device" in caplog.text
