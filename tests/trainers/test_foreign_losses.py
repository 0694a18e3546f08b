"""Algorithms from outside over TorchRL's own losses, whose keys and terms are more than ours."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from quiet_runs import short_run
from torchrl import objectives
from torchrl.objectives import SoftUpdate

from torchrl_elegant.algorithms import ALGORITHMS, OffPolicyConfig
from torchrl_elegant.algorithms.base import Parts, option
from torchrl_elegant.modules import build_actor, build_critic, build_deterministic_actor
from torchrl_elegant.trainers.learner import Learner


@dataclass(frozen=True, kw_only=True)
class Foreign(OffPolicyConfig):
    """Our networks, trained by a loss of TorchRL's."""

    name = "foreign"
    kind: str = option("SACLoss", "class of the loss")

    def build(self, env):
        mean = self.kind in ("DDPGLoss", "TD3Loss")
        actor = (build_deterministic_actor if mean else build_actor)(env, num_cells=self.num_cells)
        critic = build_critic(env, num_critics=1, num_cells=self.num_cells)
        bounds = {} if self.kind == "DDPGLoss" else {"action_spec": env.action_spec_unbatched}
        loss = getattr(objectives, self.kind)(actor, critic, **bounds)
        loss.make_value_estimator(gamma=self.gamma)
        return Parts(
            policy=actor,
            loss=loss,
            optimizer=torch.optim.Adam(loss.parameters(), lr=1e-2),
            target_updater=SoftUpdate(loss, tau=0.01),
        )


@pytest.mark.parametrize(
    "options",
    [{}, {"priority_alpha": 0.6, "n_steps": 3, "normalize_observation": True}],
    ids=["plain", "with options"],
)
@pytest.mark.parametrize("kind", ["DDPGLoss", "TD3Loss", "SACLoss", "REDQLoss", "CQLLoss"])
def test_a_loss_of_torchrl_trains(kind, options, monkeypatch, tmp_path):
    monkeypatch.setitem(ALGORITHMS, "foreign", Foreign)
    updates = []
    update = Learner.update

    def seen(self, batch, *args):
        terms = update(self, batch, *args)
        updates.append({name: value for name, value in terms.items() if name.startswith("loss")})
        return terms

    monkeypatch.setattr(Learner, "update", seen)
    config = Foreign(kind=kind, num_cells=(8,), batch_size=8, warmup=20, **options)
    result = short_run(config, "Pendulum-v1", tmp_path / "run", 60)
    assert result.history[-1]["updates"] == len(updates) >= 35
    for terms in updates:
        assert len(terms) >= 2
        assert all(value.ndim == 0 and value.isfinite() for value in terms.values())
    stored = result.folder / "metrics.csv"
    assert set(updates[0]) <= set(stored.read_text().splitlines()[0].split(","))
