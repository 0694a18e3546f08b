"""Our nodes in TorchRL's Hydra groups."""

from __future__ import annotations

import pytest
from hydra import compose, initialize
from hydra.utils import instantiate

from torchrl_elegant.algorithms import ModSACConfig
from torchrl_elegant.collectors import SyncCollector
from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import build_actor, build_critic
from torchrl_elegant.objectives import ModSACLoss, SACLoss
from torchrl_elegant.trainers.hydra import register_groups


@pytest.fixture(autouse=True)
def _groups():
    register_groups()


def composed(*overrides):
    with initialize(version_base=None, config_path=None):
        return compose(overrides=list(overrides))


@pytest.mark.parametrize(("name", "kind"), [("elegant_sac", SACLoss), ("modsac", ModSACLoss)])
def test_losses_are_built_with_the_fields_that_were_overridden(name, kind):
    cfg = composed(f"+loss={name}", "loss.target_members=1", "loss.gamma=0.9")
    env = make_env("Pendulum-v1")
    networks = {
        "actor_network": build_actor(env, num_cells=(8,)),
        "qvalue_network": build_critic(env, num_cells=(8,)),
    }
    loss = instantiate(cfg.loss, **networks)
    assert type(loss) is kind
    assert loss.target_members == 1
    assert loss.value_estimator.gamma.item() == pytest.approx(0.9)


def test_the_default_of_a_subclass_wins_over_its_parents():
    assert composed("+loss=elegant_sac").loss.actor_value == "min"
    assert composed("+loss=modsac").loss.actor_value == "mean"


def test_a_collector_collects():
    cfg = composed("+collector=elegant_sync")
    collector = instantiate(
        cfg.collector, create_env_fn=make_env("Pendulum-v1"), frames_per_batch=4, total_frames=8
    )
    assert isinstance(collector, SyncCollector)
    assert [batch.numel() for batch in collector] == [4, 4]


def test_a_trainer_trains(tmp_path):
    cfg = composed(
        "+trainer=elegant_modsac",
        "trainer.total_frames=20",
        "trainer.warmup=10",
        "trainer.batch_size=4",
        "trainer.num_cells=[8]",
        "trainer.eval_episodes=1",
        "trainer.progress=false",
        f"trainer.folder={tmp_path / 'run'}",
    )
    trainer = instantiate(cfg.trainer)
    assert trainer.config == ModSACConfig(warmup=10, batch_size=4, num_cells=(8,))
    assert trainer.train().history[-1]["frames"] == 20


def test_an_unknown_field_is_refused():
    with pytest.raises(Exception, match="learning_rate"):
        composed("+trainer=elegant_sac", "trainer.learning_rate=1")
