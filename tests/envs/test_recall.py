"""`RecallEnv`: what it shows, asks and rewards, for one agent and for a team."""

from __future__ import annotations

import pytest
import torch
from no_sync import NoSync
from torchrl.envs.utils import check_env_specs

from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.envs import RecallEnv, make_env
from torchrl_elegant.modules import build_stochastic_actor

TEAM = {"agents": 3}
KINDS = [{}, {"discrete": True}, {"discrete": True, "discrete_actions": "categorical"}]


@pytest.mark.parametrize("kind", KINDS, ids=["continuous", "one_hot", "categorical"])
@pytest.mark.parametrize("team", [{}, TEAM], ids=["alone", "team"])
def test_it_keeps_its_specs(kind: dict, team: dict) -> None:
    check_env_specs(RecallEnv(num_envs=2, delay=2, **kind, **team))


@pytest.mark.parametrize("team", [{}, TEAM], ids=["alone", "team"])
def test_the_sign_is_shown_once_and_asked_for_later(team: dict) -> None:
    env = RecallEnv(num_envs=50, delay=3, seed=0, **team)
    rows = env.rollout(4)
    place = ("agents",) if team else ()
    seen, action = rows[(*place, "observation")], rows[(*place, "action")]
    sign, question = seen[..., :1], seen[..., 1:]
    assert sign[:, 0].abs().eq(1).all()
    assert sign[:, 0].unique().numel() == 2
    assert not sign[:, 1:].any()
    assert not question[:, :3].any()
    assert question[:, 3].eq(1).all()
    reward = rows[("next", *place, "reward")]
    assert not reward[:, :3].any()
    torch.testing.assert_close(reward[:, 3], sign[:, 0] * action[:, 3].clamp(-1, 1))
    torch.testing.assert_close(rows[("next", *place, "episode_reward")][:, 3], reward[:, 3])
    assert rows["next", "terminated"].squeeze(-1).tolist() == [[False] * 3 + [True]] * 50
    assert not rows["next", "truncated"].any()


@pytest.mark.parametrize("form", ["one_hot", "categorical"])
def test_choices_are_signs(form: str) -> None:
    env = RecallEnv(num_envs=40, delay=1, discrete=True, discrete_actions=form, seed=1)
    rows = env.rollout(2)
    action = rows["action"][:, 1]
    choice = action.argmax(-1) if form == "one_hot" else action
    expected = rows["observation"][:, 0, 0] * (choice * 2 - 1)
    torch.testing.assert_close(rows["next", "reward"][:, 1, 0], expected)


def test_only_masked_rows_begin_anew() -> None:
    env = RecallEnv(num_envs=3, delay=5, seed=0)
    data = env.reset()
    stepped = env.step_and_maybe_reset(env.rand_action(data))[1]
    stepped["_reset"] = torch.tensor([[True], [False], [False]])
    after = env.reset(stepped)
    assert after["step_count"].flatten().tolist() == [0, 1, 1]
    assert after["observation"][:, 0].abs().tolist() == [1.0, 0.0, 0.0]


def test_seeds_decide_and_nothing_waits_for_a_device() -> None:
    first, second = (make_env("elegant/recall", 6, seed=3).rollout(9) for _ in range(2))
    assert (first["observation"] == second["observation"]).all()
    env = make_env("elegant/recall", 4, env_kwargs={"delay": 2})
    actor = build_stochastic_actor(env, num_cells=(8,))
    collector = SyncCollector(env, actor, frames_per_batch=24, total_frames=-1)
    assert collector.is_lean
    with NoSync():
        collector._fast.collect(collector)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"delay": 0}, "`delay` must be at least 1, got `0`"),
        ({"agents": 0}, "`agents` must be at least 1, got `0`"),
        ({"discrete_actions": "x"}, "`discrete_actions` must be 'one_hot' or 'categorical'"),
    ],
)
def test_impossible_options_are_refused(options: dict, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        RecallEnv(**options)


def test_another_device_is_refused() -> None:
    with pytest.raises(ValueError, match="`device` must be the cpu of this environment"):
        RecallEnv().to("meta")
