"""The command line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from torchrl_elegant.algorithms.base import option
from torchrl_elegant.cli.command_line import HelpRequest, UsageError, parse, run_main
from torchrl_elegant.envs import Pixels
from torchrl_elegant.trainers.run_config import RunConfig


@dataclass(frozen=True, kw_only=True)
class Toy:
    learning_rate: float = option(1e-3, "step size")
    widths: tuple[int, ...] = option((64, 64), "hidden layers")
    gamma: float = option(0.99, "discount factor")
    plan: Mapping[str, Any] = field(default_factory=dict, metadata={"help": "anything"})

    def __post_init__(self):
        if not 0 <= self.gamma < 1:
            raise ValueError(f"`gamma` must be in [0, 1), got {self.gamma!r}")


@dataclass(frozen=True, kw_only=True)
class Other:
    clip: float = option(0.2, "ratio clip")


@dataclass(frozen=True, kw_only=True)
class Extra:
    resume: str | None = option(None, "run folder to continue")
    video: bool = option(False, "record a video at the end")


def read(*words, **kwargs):
    algorithms = {"toy": Toy, "other": Other}
    return parse(words, algorithms=algorithms, default="toy", extra=Extra, **kwargs)


def test_words_reach_their_config():
    found = read("seed=3", "total_frames=1e5", "learning_rate=3e-4", "widths=8,8", "video=true")
    assert found.algorithm == "toy"
    assert found.run == RunConfig(seed=3, total_frames=100_000)
    assert found.config == Toy(learning_rate=3e-4, widths=(8, 8))
    assert found.extra == Extra(video=True)


def test_algorithm_chooses_the_config():
    assert read("algorithm=other", "clip=0.1").config == Other(clip=0.1)
    with pytest.raises(UsageError, match="unknown option `clip`"):
        read("clip=0.1")


def test_dotted_keys_fill_mappings():
    found = read("env_kwargs.gravity=9.8", "env_kwargs.map.size=4", "plan.mode=hard", "seed=1")
    assert found.run.env_kwargs == {"gravity": 9.8, "map": {"size": 4}}
    assert found.config.plan == {"mode": "hard"}


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["sed=3"], "unknown option `sed`: did you mean `seed`?"),
        (["learningrate=3"], "did you mean `learning_rate`?"),
        (["resum=x"], "did you mean `resume`?"),
        (["algoritm=toy"], "did you mean `algorithm`?"),
        (["qqqqqq=3"], "see --help"),
        (["seed.x=3"], "unknown option `seed.x`"),
        (["clip=0.1"], "unknown option `clip`: an option of other, not of toy"),
        (["algorithm="], "`algorithm` must be a name or package.module:name, got nothing"),
        (["algorithm=tou"], "unknown algorithm 'tou': did you mean `toy`?"),
        (["seed=abc"], "`seed` must be an integer of 0 or more, got 'abc'"),
        (["seed="], "`seed` must be an integer of 0 or more, got ''"),
        (["seed=-1"], "`seed` must be an integer of 0 or more, got `-1`"),
        (["gamma=2"], r"`gamma` must be in [0, 1), got 2.0"),
        (["collector=asinc"], "did you mean `async`?"),
        (["--seed=3"], "write seed=3"),
        (["--seed", "3"], "write seed=value"),
        (["--total-frames=3"], "write total_frames=3"),
        (["-x"], "write x=value"),
        (["train"], "write train=value"),
        (["=3"], "write key=3"),
        (["seed=1", "seed=2"], "`seed` is given twice: '1' and '2'"),
        (["env_kwargs=3"], "env_kwargs.<name>=3"),
        (["env_kwargs.=3"], "env_kwargs.<name>=3"),
        (["frame_stack=4"], "unknown option `frame_stack`: did you mean `pixels.frame_stack`?"),
        (["resize=84"], "unknown option `resize`: did you mean `pixels.resize`?"),
        (["pixels=render"], "set its options by name, as pixels.source=observed"),
        (["pixels.frame_stack=0"], "`pixels.frame_stack` must be an integer of 1 or more, got `0`"),
    ],
)
def test_mistakes_are_one_line_and_exit_2(words, expected, capsys):
    assert run_main(lambda argv: read(*argv) and 0, words) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("error: ")
    assert err.count("\n") == 1
    assert expected in err


def test_values_may_hold_equal_signs_and_code():
    found = read("env=pkg:make", "plan.text=a=b", "plan.code=__import__('os').abort()")
    assert found.config.plan == {"text": "a=b", "code": "__import__('os').abort()"}


@pytest.mark.parametrize(("first", "second"), [("a=1", "a.b=2"), ("a.b=2", "a=1")])
def test_a_name_is_a_value_or_a_group(first, second):
    with pytest.raises(UsageError, match=r"a\.b` must not go below env_kwargs\.a, which is given"):
        read(f"env_kwargs.{first}", f"env_kwargs.{second}")


@pytest.mark.parametrize("word", ["--help", "-h"])
def test_help_shows_every_field(word, capsys):
    assert run_main(lambda argv: read(*argv) and 0, [word]) == 0
    page = capsys.readouterr().out
    for name in ("learning_rate=0.001", "widths=64,64", "resume=none", "video=false"):
        assert name in page
    for cls, heading in ((RunConfig, "RunConfig: environment"), (Toy, "Toy"), (Extra, "Extra")):
        assert f"\n{heading}\n" in page
        for name, item in cls.__dataclass_fields__.items():
            assert f"  {name}=" in page
            assert item.metadata["help"].split()[0] in page
    assert "(an integer of 1 or more, or none)" in " ".join(page.split())
    assert "toy" in page
    assert "clip=" not in page
    assert max(map(len, page.splitlines())) <= 79


def test_help_of_the_chosen_algorithm():
    with pytest.raises(HelpRequest, match=r"clip=0\.2"):
        read("algorithm=other", "--help")


def test_stored_configs_are_the_base():
    before = ("other", RunConfig(num_envs=4, env_kwargs={"a": 1, "b": 2}), Other(clip=0.3))

    def stored(extra):
        return before if extra.resume == "runs/x" else None

    found = read("resume=runs/x", "total_frames=9", "env_kwargs.a=5", stored=stored)
    assert found.algorithm == "other"
    assert found.config == Other(clip=0.3)
    assert (found.run.num_envs, found.run.total_frames) == (4, 9)
    assert found.run.env_kwargs == {"a": 5, "b": 2}
    assert read("seed=1", stored=stored).algorithm == "toy"
    with pytest.raises(UsageError, match="stored run trains algorithm=other, got algorithm=toy"):
        read("resume=runs/x", "algorithm=toy", stored=stored)


def test_other_errors_are_not_swallowed():
    def broken(argv):
        raise ValueError("a bug")

    with pytest.raises(ValueError, match="a bug"):
        run_main(broken, [])


def test_exit_code_of_main():
    assert run_main(lambda argv: 3, []) == 3
    assert run_main(lambda argv: None, []) == 0


def test_pictures_are_a_group_of_the_run():
    words = ["source=render", "frame_stack=4", "grayscale=true", "resize=84"]
    found = read(*(f"pixels.{word}" for word in words))
    assert found.run.pixels == Pixels(source="render", frame_stack=4, grayscale=True, resize=84)
    assert read().run.pixels is None
    assert read("pixels=true", "evaluation_env=shared").run.pixels == Pixels()


def test_help_has_a_heading_for_each_topic_and_the_bounds(capsys):
    assert run_main(lambda argv: read(*argv) and 0, ["--help"]) == 0
    rows = capsys.readouterr().out.splitlines()
    headings = [row for row in rows if row.startswith("RunConfig: ")]
    assert headings == [
        f"RunConfig: {topic}"
        for topic in ("environment", "machine", "collection", "evaluation", "output")
    ]
    place = {row.partition("=")[0].strip(): number for number, row in enumerate(rows)}
    assert place["env"] < place["pixels.resize"] < place["seed"] < place["collector"]
