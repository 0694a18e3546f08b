"""Trials: where their actions come from, and whether a policy can be stored."""

from __future__ import annotations

import pytest
import torch
from tensordict.nn import TensorDictModule

from torchrl_elegant.algorithms import SACConfig
from torchrl_elegant.config.text import UsageError
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


@pytest.mark.parametrize("with_spec", [False, True])
def test_a_policy_that_could_not_be_stored_is_refused_at_once(monkeypatch, tmp_path, with_spec):
    class Mine(TensorDictModule):
        pass

    if with_spec:
        Mine.spec_dict = lambda self: {}
    build = SACConfig.build

    def other(self, env):
        parts = build(self, env)
        parts.policy = Mine(torch.nn.Linear(2, 1), in_keys=["observation"], out_keys=["action"])
        return parts

    monkeypatch.setattr(SACConfig, "build", other)
    with pytest.raises(UsageError, match=r"policy\.BUILDERS.*spec_dict.*got Mine"):
        train(SMALL, POINT, folder=str(tmp_path / "run"))
    assert not (tmp_path / "run").exists()
