"""Runs of REDQ: the ratio of updates, resuming, collecting beside, the policy file, Hydra."""

from __future__ import annotations

import numpy as np
import pytest
from hydra import compose, initialize
from hydra.utils import instantiate

from torchrl_elegant.algorithms import REDQConfig
from torchrl_elegant.cli.hydra import register_groups
from torchrl_elegant.cli.training import train_command
from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import build_actor, build_critic
from torchrl_elegant.objectives import REDQLoss
from torchrl_elegant.runs import Policy, resume, train


def run(folder, frames=120, *, updates=3, **options):
    config = REDQConfig(
        num_cells=(8,), num_critics=4, batch_size=8, warmup=20, updates_per_frame=updates
    )
    return train(
        config,
        "Pendulum-v1",
        total_frames=frames,
        eval_interval=frames,
        eval_episodes=2,
        folder=str(folder),
        logger="none",
        progress=False,
        threads=1,
        **options,
    )


@pytest.mark.parametrize("options", [{}, {"frames_per_batch": 10}, {"num_envs": 4}])
def test_the_ratio_is_exact(tmp_path, options):
    row = run(tmp_path / "run", **options).history[-1]
    assert (row["frames"], row["updates"]) == (120, 300)
    assert {"loss_qvalue", "loss_actor", "alpha"} <= row.keys()
    assert not any("state_value" in name for name in row)


def test_a_resumed_run_goes_on(tmp_path):
    run(tmp_path / "run", frames=60)
    row = resume(str(tmp_path / "run"), total_frames=120, progress=False).history[-1]
    assert (row["frames"], row["updates"]) == (120, 300)


def test_collecting_beside(tmp_path):
    row = run(tmp_path / "run", collector="async", num_workers=1).history[-1]
    assert (row["frames"], row["updates"]) == (120, 300)


def test_the_policy_file(tmp_path):
    run(tmp_path / "run", frames=40)
    policy = Policy.load(tmp_path / "run" / "policy.pt")
    action = policy(np.zeros(3, np.float32))
    assert action.shape == (1,)
    assert abs(action[0]) <= 2.0


def test_hydra_node():
    register_groups()
    with initialize(version_base=None, config_path=None):
        cfg = compose(overrides=["+loss=elegant_redq", "loss.sub_sample_len=3", "loss.gamma=0.9"])
    assert (cfg.loss.num_qvalue_nets, cfg.loss.min_alpha, "target_members" in cfg.loss) == (
        10,
        0.1,
        False,
    )
    env = make_env("Pendulum-v1")
    loss = instantiate(
        cfg.loss,
        actor_network=build_actor(env, num_cells=(8,)),
        qvalue_network=build_critic(env, num_critics=4, num_cells=(8,)),
    )
    assert type(loss) is REDQLoss
    assert loss.sub_sample_len == 3
    assert loss.value_estimator.gamma.item() == pytest.approx(0.9)


def test_the_command_lists_its_options(capsys):
    words = ["algorithm=redq", "--help"]
    assert train_command(words, program="train_sac.py", default="sac") == 0
    shown = capsys.readouterr().out
    assert "updates_per_frame" in shown
    assert "(one of subset, weighted)" in " ".join(shown.split())
