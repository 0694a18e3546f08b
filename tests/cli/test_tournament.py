"""The command `tournament`: words in, a folder and a table out."""

from __future__ import annotations

import json
import shutil

import pytest
from tournament_toys import check_whole, rows

from torchrl_elegant.cli.main import main
from torchrl_elegant.cli.tournament import tournament_command

SMALL = (
    "env=CartPole-v1",
    "algorithm=[ppo,a2c]",
    "num_cells=8",
    "batch_size=32",
    "budget=800",
    "quantum=200",
    "population=2",
    "frames_per_batch=100",
    "eval_episodes=1",
    "final_episodes=2",
    "executor=inline",
)


def test_a_tournament_its_table_its_policy_and_its_end(tmp_path, capsys):
    folder = tmp_path / "run"
    words = [
        *SMALL,
        f"folder={folder}",
        "ppo.epochs=1",
        "gamma=0.9",
        "space.lr=log:1e-4..1e-2",
        "space.ppo.clip_epsilon=uniform:0.1..0.3",
    ]
    assert main(["tournament", *words]) == 0
    check_whole(folder)
    shown = capsys.readouterr().out
    assert shown.startswith("rank  member  pod  depth  algorithm")
    first = rows(folder, "SELECT algorithm, options FROM pod WHERE operation = 'initial'")
    assert [(name, sorted(json.loads(text))) for name, text in first] == [
        ("ppo", ["clip_epsilon", "lr"]),
        ("a2c", ["lr"]),
    ]
    assert main(["tournament", f"status={folder}"]) == 0
    assert capsys.readouterr().out == shown
    assert main(["tournament", f"resume={folder}", "executor=inline"]) == 0
    assert capsys.readouterr().out == shown
    assert main(["evaluate", str(folder / "best"), "episodes=1"]) == 0
    assert capsys.readouterr().out.startswith("1 episode: return")
    words = [f"resume={folder}", "executor=inline", "logger=none", "progress=false"]
    assert main(["tournament", *words]) == 0
    (folder / "report.html").unlink()
    capsys.readouterr()
    assert main(["tournament", f"report={folder}"]) == 0
    assert capsys.readouterr().out == f"page: {folder / 'report.html'}\n"
    assert "finished" in (folder / "report.html").read_text()


@pytest.fixture(scope="module")
def lineages(tmp_path_factory):
    """A tournament of which two lineages are left."""
    folder = tmp_path_factory.mktemp("lineages") / "run"
    words = [*SMALL, f"folder={folder}", "budget=400", "quantum=200", "finalists=2", "logger=none"]
    given = {word.partition("=")[0]: word for word in words}
    assert main(["tournament", *given.values()]) == 0
    assert (folder / "ensemble").is_dir()
    return folder


def test_the_folder_of_a_tournament_is_evaluated_and_exported(tmp_path, lineages, capsys):
    assert main(["evaluate", str(lineages), "episodes=2"]) == 0
    assert capsys.readouterr().out.startswith("2 episodes: return")
    assert (lineages / "best" / "evaluation.json").is_file()
    assert main(["evaluate", str(lineages), "episodes=2", "policy=ensemble"]) == 0
    assert (lineages / "ensemble" / "evaluation.json").is_file()
    capsys.readouterr()
    for policy, name in (("final", "best"), ("best", "best"), ("ensemble", "ensemble")):
        target = tmp_path / f"{policy}.pt2"
        assert main(["export", str(lineages), f"policy={policy}", f"to={target}"]) == 0
        told = capsys.readouterr().out
        assert told == f"exported {lineages / name / 'policy.pt'} to {target}\n"


def test_what_a_tournament_does_not_have_is_told_in_one_line(tmp_path, lineages, capsys):
    def told(*words):
        assert main(["evaluate", *words]) == 2
        message = capsys.readouterr().err
        assert message.startswith("error: ")
        assert message.count("\n") == 1
        return message

    assert "`policy` must be final or best for the run" in told(
        str(lineages / "best"), "policy=ensemble"
    )
    copy = shutil.copytree(lineages, tmp_path / "copy")
    shutil.rmtree(copy / "ensemble")
    assert "got `ensemble`: its finalists are of one lineage" in told(str(copy), "policy=ensemble")
    shutil.rmtree(copy / "best")
    assert "`run` must be a tournament that has come to its end" in told(str(copy))


def test_the_schemes_by_their_words(tmp_path, capsys):
    folder = tmp_path / "run"
    four = ("population=4", "budget=1600")
    own = [word for word in SMALL if not word.startswith(("population=", "budget="))]
    words = [*own, *four, f"folder={folder}", "scheme=generational", "fusion=true", "explore=pb2"]
    assert tournament_command(words, program="tournament") == 0
    check_whole(folder)
    assert rows(folder, "SELECT COUNT(*) FROM pod WHERE operation = 'twin'")[0][0] >= 1
    random = [*SMALL, f"folder={tmp_path / 'random'}", "selection=none"]
    assert tournament_command(random, program="tournament") == 0
    found = rows(tmp_path / "random", "SELECT DISTINCT operation FROM pod WHERE member >= 0")
    assert sorted(found) == [("continue",), ("initial",)]
    assert tournament_command([f"resume={folder}", "scheme=generational"], program="t") == 2
    assert "`scheme` must not be given when a tournament goes on" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([*SMALL, "algorithm=ppo"], "`algorithm` is given twice"),
        (["algorithm=[ppo,sacc]"], "unknown algorithm 'sacc': did you mean `sac`?"),
        ([*SMALL, "lrr=0.1"], "unknown option `lrr`: did you mean `lr`?"),
        ([*SMALL, "ppo.lrr=0.1"], "unknown option `ppo.lrr`: did you mean `lr`?"),
        ([*SMALL, "sac.lr=0.1"], "unknown option `sac.lr`"),
        ([*SMALL, "selection=best"], "`selection` must be one of truncation, tournament, softmax"),
        ([*SMALL, "keep_last=3"], "`keep_last` must not be given to a tournament"),
        (["report=nowhere"], "`report` must be the folder of a tournament"),
        (["report=a", "seed=3"], "`seed` must not be given with report, got '3'"),
        (["report=a", "status=b"], "`report` must be none with status"),
        ([*SMALL, "scheme=generations"], "`scheme` must be one of asynchronous, generational"),
        ([*SMALL, "fusion=true"], "`fusion` must stay False with scheme=asynchronous, got `True`"),
        ([*SMALL, "fusion=maybe"], "`fusion` must be true or false"),
        ([*SMALL, "explore=pb3"], "`explore` must be one of perturb, pb2 (did you mean `pb2`?)"),
        (
            [*SMALL, "explore=pb2", "space.activation=tanh,relu"],
            "`explore` must be perturb where no number is searched",
        ),
        ([*SMALL, "space=log"], "`space` must be given by name"),
        ([*SMALL, "slots=-1"], "`slots` must be an integer in [0, 10000], or none, got `-1`"),
        (["status=nowhere"], "`status` must be the folder of a tournament"),
        (["status=nowhere", "seed=3"], "`seed` must not be given with status, got '3'"),
        (["status=a", "resume=b"], "`status` must be none with resume"),
        (["resume=nowhere", "algorithm=ppo"], "`algorithm` must not be given with resume"),
        (["resume=nowhere", "gamma=0.9"], "`gamma` must not be given with resume, got '0.9'"),
        (["resume=nowhere", "budget=9"], "`budget` must not be given when a tournament goes on"),
        (["resume=nowhere"], "`resume` must be the folder of a tournament, got 'nowhere'"),
    ],
)
def test_mistakes_end_in_one_line_and_exit_with_2(tmp_path, monkeypatch, capsys, words, message):
    monkeypatch.chdir(tmp_path)
    assert tournament_command(words, program="tournament") == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert message in told
    assert told.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_the_help_page_has_all_options_that_count(capsys):
    assert tournament_command(["--help", "algorithm=[sac,dqn]"], program="tournament") == 0
    page = capsys.readouterr().out
    for word in (
        "population=8",
        "selection=truncation",
        "SACConfig",
        "DQNConfig",
        "eval_episodes",
        "status=",
        "report=",
        "logger=auto",
        "progress=true",
    ):
        assert word in page
    for word in ("target_return=", "keep_last=", "total_frames="):
        assert word not in page
