"""Opponents: groups with algorithms of their own, games against earlier selves, ratings."""

from __future__ import annotations

import pytest
import torch
from tensordict import TensorDict
from torchrl.data import Bounded, Composite, Unbounded
from torchrl.envs import EnvBase
from torchrl.envs.utils import ExplorationType, set_exploration_type

from torchrl_elegant import Trial
from torchrl_elegant.algorithms import MADDPGConfig, MATD3Config
from torchrl_elegant.cli.commands import evaluate_command
from torchrl_elegant.cli.training import train_command
from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import DeterministicActor
from torchrl_elegant.modules.multiagent.selfplay import SelfPlayActors
from torchrl_elegant.reports.ratings import rate, ratings_of
from torchrl_elegant.runs.policy import BUILDERS
from torchrl_elegant.trainers.learner import Learner

SMALL = {"num_cells": (8,), "batch_size": 8, "warmup": 8}
SHORT = {"max_steps": 5}
NAMES = ("red", "blue")


class Game(EnvBase):
    """One step, in which each agent earns its action."""

    def __init__(self):
        super().__init__(batch_size=[4])
        shape = (4, 2, 1)

        def each(spec):
            return Composite({name: Composite(spec(), shape=(4, 2)) for name in NAMES}, shape=(4,))

        self.observation_spec = each(lambda: {"observation": Unbounded((4, 2, 3))})
        self.action_spec = each(lambda: {"action": Bounded(-1.0, 1.0, shape)})
        self.reward_spec = each(lambda: {"reward": Unbounded(shape)})

    def _reset(self, tensordict=None, **kwargs):
        seen = {name: TensorDict({"observation": torch.zeros(4, 2, 3)}, [4, 2]) for name in NAMES}
        return TensorDict({**seen, "done": torch.zeros(4, 1, dtype=torch.bool)}, [4])

    def _step(self, tensordict):
        after = self._reset()
        for name in NAMES:
            after[name, "reward"] = tensordict[name, "action"]
        return after.set("done", torch.ones(4, 1, dtype=torch.bool))

    def _set_seed(self, seed):
        """Nothing is drawn."""


def constant(value, name):
    """An actor that always does ``value``."""
    actor = DeterministicActor(
        observation={(name, "observation"): (3,)},
        low=[-1.0],
        high=[1.0],
        num_cells=(),
        action_key=(name, "action"),
    )
    set_to(actor, value)
    return actor


def set_to(actor, value):
    layer = actor.net.layers[-1]
    torch.nn.init.zeros_(layer.weight)
    torch.nn.init.constant_(layer.bias, float(torch.tensor(value).atanh()))


def two(share=0.5):
    actors = {name: constant(0.25, name) for name in NAMES}
    return SelfPlayActors(actors, share=share, snapshots=2)


def acted(policy, mode, rows=8):
    seen = {name: {"observation": torch.randn(rows, 2, 3)} for name in NAMES}
    with torch.no_grad(), set_exploration_type(mode):
        data = policy(TensorDict(seen, [rows]))
    values = {name: data[name, "action"] for name in NAMES}
    return {name: [round(x, 2) for x in value[:, 0, 0].tolist()] for name, value in values.items()}


def test_one_group_after_the_other_is_its_earlier_self_in_the_first_rows():
    policy = two()
    policy.keep()
    for name, value in (("red", 0.5), ("blue", 0.75)):
        set_to(policy.actors[name], value)
    now = acted(policy, ExplorationType.RANDOM)
    assert now["red"] == [0.25, 0.5, 0.25, 0.5, 0.5, 0.5, 0.5, 0.5]
    assert now["blue"] == [0.75, 0.25, 0.75, 0.25, 0.75, 0.75, 0.75, 0.75]
    best = acted(policy, ExplorationType.DETERMINISTIC)
    assert best == {"red": [0.5] * 8, "blue": [0.75] * 8}
    policy.cast = {"blue": 0}
    assert acted(policy, ExplorationType.DETERMINISTIC)["blue"] == [0.25] * 8


def test_a_game_is_played_to_its_end_against_the_same_self():
    policy = two(share=1.0)
    for value in (0.1, 0.2):
        set_to(policy.actors["red"], value)
        policy.keep()
    set_to(policy.actors["red"], 0.9)
    first = acted(policy, ExplorationType.RANDOM, rows=64)["red"]
    assert set(first) == {0.1, 0.2, 0.9}
    assert acted(policy, ExplorationType.RANDOM, rows=64)["red"] == first
    policy.restart(torch.arange(64) < 32)
    second = acted(policy, ExplorationType.RANDOM, rows=64)["red"]
    assert second[:32] != first[:32]
    assert second[32:] == first[32:]


def test_a_policy_from_a_file_plays_itself():
    policy = two(share=1.0)
    policy.keep()
    set_to(policy.actors["red"], 0.5)
    loaded = BUILDERS["SelfPlayActors"](**policy.spec_dict())
    loaded.load_state_dict(policy.state_dict())
    assert acted(loaded, ExplorationType.RANDOM)["red"] == [0.5] * 8
    assert loaded.kept == 1


def test_the_first_selves_are_kept_and_learn_nothing():
    policy = two()
    for value in (0.1, 0.2, 0.3):
        set_to(policy.actors["red"], value)
        policy.keep()
    assert policy.kept == 2
    for index, value in enumerate((0.1, 0.2)):
        policy.cast = {"red": index}
        assert acted(policy, ExplorationType.DETERMINISTIC)["red"] == [value] * 8
    assert not any(param.requires_grad for param in policy.earlier.parameters())


def config(**options):
    return MADDPGConfig(**SMALL, selfplay=0.5, selfplay_snapshots=4, **options)


def test_snapshots_come_evenly_and_go_on_with_a_run():
    run = {"total_frames": 400, "num_envs": 8, "env_kwargs": SHORT, "frames_per_batch": 40}
    with Trial(config(), "vmas/simple_tag", **run) as trial:
        trial.train(frames=200)
        assert trial.learner.policy.kept == 3
        first = [param.clone() for param in trial.learner.policy.earlier[0].parameters()]
        state = trial.state_dict()
    with Trial(config(), "vmas/simple_tag", **run) as again:
        again.load_state_dict(state)
        kept = list(again.learner.policy.earlier[0].parameters())
        assert all(torch.equal(a, b) for a, b in zip(kept, first, strict=True))
        again.train()
        assert again.learner.policy.kept == 4


def test_groups_have_algorithms_of_their_own():
    env = make_env("vmas/simple_tag", 4, seed=0, env_kwargs=SHORT)
    learner = Learner(
        MADDPGConfig(**SMALL, gamma=0.5, actor_period=2, groups={"agent": "matd3"}).assemble(env)
    )
    losses = {name: type(loss).__name__ for name, loss in learner.loss.losses.items()}
    assert losses == {"adversary": "MADDPGLoss", "agent": "MATD3Loss"}
    assert learner.loss.losses["agent"].value_estimator.gamma.item() == 0.5


@pytest.mark.parametrize(
    ("options", "env", "told"),
    [
        ({"groups": {"red": "matd3"}}, "vmas/simple_tag", "`groups` must name some of adversary"),
        ({"groups": {"agent": "mappo"}}, "vmas/simple_tag", "algorithms that learn as maddpg does"),
        ({"groups": {"agent": "matd4"}}, "vmas/simple_tag", "got `matd4`"),
        ({"selfplay": 0.5}, "vmas/balance", "`selfplay` must be 0 with one group of agents"),
        (
            {"selfplay": 0.5},
            "vmas/simple_tag",
            "`selfplay` must give each of 2 groups one of the 2",
        ),
        ({"groups": {"agent": "matd3"}}, "vmas/simple_tag", "`actor_period` must be the same"),
        ({"priority_alpha": 0.6}, "vmas/simple_tag", "`priority_alpha` must be none with 2 groups"),
    ],
)
def test_what_does_not_fit_is_told(options, env, told):
    with pytest.raises(ValueError, match=told):
        MADDPGConfig(**options).assemble(make_env(env, 2))


def test_snapshots_without_self_play_are_refused():
    with pytest.raises(ValueError, match="`selfplay_snapshots` must stay 10 with selfplay=0"):
        MATD3Config(selfplay_snapshots=3)


def test_ratings_are_those_of_a_table_worked_out_by_hand():
    """Three games of four are 400 log10(3) points; the added draw makes it 3.5 of 5."""
    first, second = ratings_of([[0.0, 3.0], [1.0, 0.0]])
    assert first - second == pytest.approx(400 * torch.tensor(3.5 / 1.5).log10().item(), abs=1e-3)
    best, middle, last = ratings_of([[0, 9, 9], [1, 0, 9], [1, 1, 0]])
    assert best > middle > last


def test_a_run_is_rated_from_its_own_file(tmp_path, capsys):
    words = ["algorithm=maddpg", "env=vmas/simple_tag", "env_kwargs.max_steps=5", "num_envs=8"]
    words += ["total_frames=320", "num_cells=8", "batch_size=8", "warmup=8", "selfplay=0.5"]
    words += ["selfplay_snapshots=2", "eval_interval=320", "logger=none", "progress=false"]
    assert train_command([*words, f"folder={tmp_path / 'run'}"], program="x", default="sac") == 0
    rating = [str(tmp_path / "run"), "episodes=2", "ratings=true"]
    assert evaluate_command(rating, program="x") == 0
    lines = (tmp_path / "run" / "ratings.csv").read_text().splitlines()
    assert [line.rsplit(",", 2)[0] for line in lines[1:]] == [
        f"{group},{of}" for group in ("adversary", "agent") for of in ("0", "1", "now")
    ]
    assert "adversary now: rating" in capsys.readouterr().out


def test_a_better_self_is_rated_higher():
    policy = two()
    policy.keep()
    set_to(policy.actors["red"], 0.9)
    found = {(one.group, one.snapshot): one for one in rate(policy, Game(), episodes=4)}
    assert found["red", None].rating > found["red", 0].rating
    assert found["red", None].mean_return == pytest.approx(0.9, abs=1e-5)
    assert found["blue", None].rating == pytest.approx(found["blue", 0].rating)
    assert policy.cast == {}
