"""Our nodes in TorchRL's Hydra groups."""

from __future__ import annotations

import functools
import inspect
from dataclasses import dataclass
from functools import partial

import pytest
from hydra import compose, initialize
from hydra.utils import instantiate
from torchrl.collectors import Collector
from torchrl.envs.utils import ExplorationType

from torchrl_elegant.algorithms import ALGORITHMS, ModSACConfig, SACConfig, register
from torchrl_elegant.algorithms.base import option
from torchrl_elegant.cli.hydra import register_groups
from torchrl_elegant.collectors import AsyncCollector, SyncCollector
from torchrl_elegant.data import make_buffer
from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import build_actor, build_critic, build_stochastic_actor, build_value
from torchrl_elegant.objectives import A2CLoss, ClipPPOLoss, ModSACLoss, SACLoss

pendulum = partial(make_env, "Pendulum-v1")


@pytest.fixture(autouse=True)
def _groups():
    register_groups()


def composed(*overrides):
    with initialize(version_base=None, config_path=None):
        return compose(overrides=list(overrides))


@pytest.mark.parametrize(
    ("name", "kind"),
    [("elegant_sac", SACLoss), ("modsac", ModSACLoss), ("elegant_modsac", ModSACLoss)],
)
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


@pytest.mark.parametrize(("name", "kind"), [("elegant_ppo", ClipPPOLoss), ("elegant_a2c", A2CLoss)])
def test_on_policy_losses_too(name, kind):
    cfg = composed(f"+loss={name}", "loss.entropy_coeff=0.5", "loss.gamma=0.9")
    env = make_env("CartPole-v1")
    networks = {
        "actor_network": build_stochastic_actor(env, num_cells=(8,)),
        "critic_network": build_value(env, num_cells=(8,)),
    }
    loss = instantiate(cfg.loss, **networks)
    assert type(loss) is kind
    assert loss.entropy_coeff.item() == 0.5
    assert loss.value_estimator.gamma.item() == pytest.approx(0.9)


def test_the_default_of_a_subclass_wins_over_its_parents():
    assert composed("+loss=elegant_sac").loss.actor_q == "min"
    assert composed("+loss=modsac").loss.actor_q == "mean"


def test_a_collector_collects():
    cfg = composed(
        "+collector=elegant_sync",
        "collector.frames_per_batch=4",
        "collector.total_frames=8",
        "collector.init_random_frames=4",
        "collector.track_traj_ids=false",
        "collector.exploration_type=MEAN",
    )
    collector = instantiate(cfg.collector, create_env_fn=make_env("Pendulum-v1"))
    assert type(collector) is SyncCollector
    assert collector.init_random_frames == 4
    assert collector.exploration_type is ExplorationType.MEAN
    batches = list(collector)
    assert [batch.numel() for batch in batches] == [4, 4]
    assert ("collector", "traj_ids") not in batches[0].keys(True)


@pytest.mark.parametrize(
    ("name", "takers"),
    [("elegant_sync", (Collector, SyncCollector)), ("elegant_async", (AsyncCollector,))],
)
def test_a_collector_node_takes_what_its_collector_takes(name, takers):
    fields = set(composed(f"+collector={name}").collector)
    for taker in takers:
        names = set(inspect.signature(taker.__init__).parameters) - {"self", "kwargs"}
        assert {"create_env_fn", "policy"} < names <= fields
    assert {"device", "storing_device", "exploration_type", "set_truncated"} <= fields


def test_a_collector_is_told_only_what_was_set(monkeypatch):
    told = {}

    @functools.wraps(AsyncCollector.__init__)
    def remember(self, **arguments):
        self._shutdown_complete = True
        told.update(arguments)

    monkeypatch.setattr(AsyncCollector, "__init__", remember)
    cfg = composed(
        "+collector=elegant_async",
        "collector.frames_per_batch=16",
        "collector.total_frames=-1",
        "collector.num_workers=2",
        "collector.max_frames_per_traj=5",
        "+collector.compile_policy.mode=default",
    )
    buffer = make_buffer(size=8)
    instantiate(cfg.collector, create_env_fn=pendulum, replay_buffer=buffer)
    assert told == {
        "create_env_fn": pendulum,
        "replay_buffer": buffer,
        "frames_per_batch": 16,
        "num_workers": 2,
        "max_frames_per_traj": 5,
        "compile_policy": {"mode": "default"},
    }
    assert type(told["compile_policy"]) is dict


def test_an_asynchronous_collector_is_built():
    cfg = composed(
        "+collector=elegant_async",
        "collector.num_workers=1",
        "collector.frames_per_batch=4",
        "collector.total_frames=8",
        "collector.set_truncated=true",
    )
    buffer = make_buffer(size=8)
    with instantiate(cfg.collector, create_env_fn=pendulum, replay_buffer=lambda: buffer) as made:
        assert type(made) is AsyncCollector
        made.start()
        made.wait_for(8)
    assert len(buffer) == 8
    assert buffer[:]["next", "truncated"].sum() == 2


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


def test_arguments_of_the_environment_need_no_plus_and_stay_as_they_are():
    cfg = composed(
        "+trainer=elegant_sac",
        "trainer.env_kwargs.g=9.8",
        "trainer.env_kwargs.sizes=[1,[2,3]]",
        "trainer.env_kwargs.map.name=hills",
        "trainer.num_cells=[8,8]",
    )
    trainer = instantiate(cfg.trainer)
    assert trainer.run.env_kwargs == {"g": 9.8, "sizes": [1, [2, 3]], "map": {"name": "hills"}}
    assert type(trainer.run.env_kwargs["map"]) is dict
    assert trainer.config.num_cells == (8, 8)
    # Each composition has mappings of its own.
    assert composed("+trainer=elegant_sac").trainer.env_kwargs == {}


def test_an_algorithm_registered_later_is_there_after_another_call(monkeypatch):
    @dataclass(frozen=True, kw_only=True)
    class Later(SACConfig):
        extra: float = option(1.0, "anything")

    monkeypatch.setitem(ALGORITHMS, "later", Later)
    register("later")(Later)
    with pytest.raises(Exception, match="elegant_later"):
        composed("+trainer=elegant_later")
    register_groups()
    trainer = instantiate(composed("+trainer=elegant_later", "trainer.extra=2").trainer)
    assert trainer.config == Later(extra=2)


def test_an_unknown_field_is_refused():
    with pytest.raises(Exception, match="learning_rate"):
        composed("+trainer=elegant_sac", "trainer.learning_rate=1")
