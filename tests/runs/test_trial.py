"""Trials: where their actions come from, and whether a policy can be stored."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from quiet_runs import QUIET
from tensordict.nn import TensorDictModule

from torchrl_elegant.algorithms import SACConfig
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs.policy import Policy
from torchrl_elegant.runs.train import train
from torchrl_elegant.runs.trial import Trial

POINT = "faults.fault_envs:point"
SMALL = SACConfig(num_cells=(8,), batch_size=8, warmup=22)


@pytest.mark.parametrize(("frames", "random"), [(0, 24), (10, 12), (21, 4), (22, 0), (60, 0)])
def test_random_actions_end_with_the_warmup_of_the_whole_run(frames, random):
    # The policy gives no numbers: what is a number was drawn.
    with Trial(SMALL, POINT, frames_per_batch=4, total_frames=100) as trial:
        trial.learner.loss.actor_network_params.apply_(lambda weight: weight.data.fill_(torch.nan))
        trial.ledger.frames = frames
        with pytest.raises(FloatingPointError, match=f"at frame {frames + random + 1};"):
            for _ in trial.source:
                pass
        assert len(trial.store) == random


class Wavering(torch.nn.Linear):
    def forward(self, x):
        # A program of tensor operations cannot hold what depends on their values.
        return super().forward(x) if x.sum() > 0 else super().forward(-x)


def test_a_policy_that_could_not_be_stored_is_refused_at_once(tmp_path):
    config = replace(SMALL, networks={"actor": Wavering(2, 2)})
    with pytest.raises(UsageError, match=r"`actor` must be a network that torch\.export can"):
        train(config, POINT, folder=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()


def test_a_policy_of_any_class_can_be_stored(monkeypatch, tmp_path):
    build = SACConfig.build

    def other(self, env):
        parts = build(self, env)
        parts.policy = TensorDictModule(
            torch.nn.Linear(2, 1), in_keys=["observation"], out_keys=["action"]
        )
        return parts

    monkeypatch.setattr(SACConfig, "build", other)
    config = {"folder": str(tmp_path / "run"), "total_frames": 24, "eval_episodes": 1, **QUIET}
    result = train(SMALL, POINT, **config)
    seen = torch.randn(3, 2)
    with torch.no_grad():
        expected = result.policy.module(seen).clamp(-1, 1)
    policy = Policy.load(result.folder / "policy.pt")
    torch.testing.assert_close(torch.from_numpy(policy(seen.numpy())), expected)
