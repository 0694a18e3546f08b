"""Our learner and our losses inside TorchRL's own trainers."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from tensordict import TensorDict
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, TensorDictReplayBuffer
from torchrl.envs.utils import exploration_type, set_exploration_type
from torchrl.objectives import SoftUpdate
from torchrl.trainers import ReplayBufferTrainer, Trainer
from torchrl.trainers.algorithms.sac import SACTrainer

from torchrl_elegant.algorithms import DDPGConfig, EveryUpdate, HTermConfig, ModSACConfig, SACConfig
from torchrl_elegant.envs import make_env
from torchrl_elegant.modules import build_actor, build_critic
from torchrl_elegant.objectives import SACLoss
from torchrl_elegant.trainers.learner import Learner
from torchrl_elegant.trainers.learner_stepper import LearnerStepper

pytestmark = pytest.mark.filterwarnings("ignore")


def env():
    return make_env("Pendulum-v1", 2, seed=0)


def buffer():
    return TensorDictReplayBuffer(storage=LazyTensorStorage(500), batch_size=16)


def make_trainer(config, frames=160, kind=Trainer, compile=False, **options):
    torch.manual_seed(0)
    learner = Learner(config(num_cells=(8,)).assemble(env()), compile=compile)
    trainer = kind(
        collector=Collector(env(), learner.policy, frames_per_batch=32, total_frames=frames),
        total_frames=frames,
        frame_skip=1,
        loss_module=learner.loss,
        optimization_stepper=LearnerStepper(learner),
        optim_steps_per_batch=4,
        progress_bar=False,
        **options,
    )
    memory = ReplayBufferTrainer(buffer(), batch_size=16, flatten_tensordicts=True)
    memory.register(trainer)
    return trainer, learner


def values(module):
    return {k: v.clone() for k, v in module.state_dict().items() if torch.is_tensor(v)}


@pytest.mark.parametrize("config", [SACConfig, ModSACConfig])
def test_trainer_trains(config):
    trainer, learner = make_trainer(config)
    before = values(learner.loss)
    trainer.train()
    assert learner.updates == 5 * 4
    after = values(learner.loss)
    moved = {name for name in before if not torch.equal(before[name], after[name])}
    for part in ("actor_network", "qvalue_network", "target_qvalue_network"):
        assert any(name.startswith(f"{part}_params.") for name in moved)


def test_checkpoint_round_trip(tmp_path):
    file = tmp_path / "trainer.pt"
    trainer, learner = make_trainer(ModSACConfig, save_trainer_file=file)
    trainer.register_op("post_steps", lambda: trainer.save_trainer(force_save=True))
    trainer.train()
    other_trainer, other = make_trainer(ModSACConfig, save_trainer_file=file)
    assert other.updates == 0
    other_trainer.load_from_file(file, weights_only=False)
    assert other.updates == learner.updates == 20
    torch.testing.assert_close(values(other.loss), values(learner.loss), atol=0.0, rtol=0.0)
    torch.testing.assert_close(other.schedule.state_dict(), learner.schedule.state_dict())
    batch = make_env("Pendulum-v1", 4).rollout(5).reshape(-1)
    metrics = []
    for each in (learner, other):
        torch.manual_seed(0)
        metrics.append(each.update(batch.clone()))
    torch.testing.assert_close(*metrics, atol=0.0, rtol=0.0)


def test_stepper_updates_priorities():
    trainer, learner = make_trainer(SACConfig)
    told = []

    class Recorder:
        def update_tensordict_priority(self, data):
            told.append(data["td_error"].clone())

    trainer.replay_buffer = Recorder()
    batch = env().rollout(8).reshape(-1)
    metrics = LearnerStepper(learner).step(trainer, batch)
    assert isinstance(metrics, TensorDict)
    assert told[0].shape == (16,)


def test_every_step_reports_the_same_names():
    trainer, learner = make_trainer(SACConfig)
    learner.schedule = EveryUpdate(period=3)
    stepper, found = LearnerStepper(learner), []
    for _ in range(4):
        found.append(stepper.step(trainer, env().rollout(8).reshape(-1)).to_dict())
    assert all(metrics.keys() == found[0].keys() for metrics in found)
    assert [metrics["loss_actor"].isnan().item() for metrics in found] == [True, True, False, False]
    assert found[3]["loss_actor"] == found[2]["loss_actor"]
    assert found[3]["loss_qvalue"] != found[2]["loss_qvalue"]


def test_what_is_collected_is_shown_to_a_learner_that_wants_to_see_it():
    term = HTermConfig(horizon=4, period=1)
    config = partial(SACConfig, hterm=term, normalize_observation=True)
    trainer, learner = make_trainer(config)
    joined = []
    step = trainer.optimization_stepper.step

    def counted(*args):
        found = step(*args)
        joined.append("loss_hamiltonian" in found.keys())  # noqa: SIM118
        return found

    trainer.optimization_stepper.step = counted
    trainer.train()
    assert joined == [True] * 20
    assert len(learner.add_ons["hterm"].term.store) == 160 / 4
    assert learner.add_ons["scaling"].state_dict()["observations"]["observation"]["count"] == 160


def test_what_moves_over_a_run_moves_with_the_trainers_frames():
    rates = {"actor_lr": (1e-3, 0.0), "critic_lr": (1e-3, 0.0)}
    config = partial(DDPGConfig, noise_std=(0.4, 0.2), **rates)
    trainer, learner = make_trainer(config)
    assert learner.policy.noise.scale == pytest.approx(0.4)
    trainer.train()
    assert learner.policy.noise.scale == pytest.approx(0.2)
    assert [group["lr"] for group in learner.optimizer.param_groups] == [0.0, 0.0]


def test_a_fit_to_longer_returns_says_what_rows_lack():
    trainer, _ = make_trainer(partial(SACConfig, long_return_weight=0.1))
    with pytest.raises(KeyError, match="rows must have an entry 'ahead'"):
        trainer.train()


def test_updates_without_having_seen_anything_are_refused():
    term = HTermConfig(horizon=4, period=1)
    trainer, learner = make_trainer(partial(SACConfig, hterm=term))
    with pytest.raises(RuntimeError, match="must be shown all that is collected"):
        LearnerStepper(learner).step(trainer, env().rollout(8).reshape(-1))


@pytest.mark.parametrize(
    ("config", "recordings"), [(SACConfig, 1), (partial(DDPGConfig, actor_period=2), 2)]
)
def test_a_learner_that_compiles_does_so_inside_a_trainer(config, recordings, graphs):
    moved = []
    for compile in (False, True):
        trainer, learner = make_trainer(config, compile=compile)
        trainer.train()
        assert learner.updates == 20
        moved.append(values(learner.loss))
        assert len(graphs) == compile * recordings
    torch.testing.assert_close(*moved, rtol=1e-4, atol=1e-5)


class Halving(Trainer):
    """A trainer that computes losses in a way of its own."""

    def compute_loss(self, sub_batch, method=None):
        terms = super().compute_loss(sub_batch, method)
        return {name: 0.5 * value for name, value in terms.items()}


def test_a_trainer_that_computes_losses_its_own_way_goes_on_to(graphs, caplog):
    batch, found = env().rollout(8).reshape(-1), []
    for kind, compile in ((Halving, False), (Halving, True), (Trainer, False)):
        trainer, learner = make_trainer(SACConfig, kind=kind, compile=compile)
        stepper = LearnerStepper(learner)
        torch.manual_seed(1)
        found.append([stepper.step(trainer, batch.clone())["loss_qvalue"] for _ in range(2)])
    torch.testing.assert_close(found[1], found[0], rtol=0.0, atol=0.0)
    torch.testing.assert_close(2.0 * found[0][0], found[2][0])
    assert not graphs
    told = "not compiled, and slower for it: Halving computes losses in a way of its own"
    assert [record.message for record in caplog.records].count(told) == 1


def test_another_loss_is_refused():
    trainer, _ = make_trainer(SACConfig)
    stranger = Learner(SACConfig(num_cells=(8,)).build(env()))
    with pytest.raises(ValueError, match=r"pass learner\.loss to the Trainer"):
        LearnerStepper(stranger).step(trainer, env().rollout(2).reshape(-1))


def sac_trainer(**options):
    torch.manual_seed(0)
    actor = build_actor(env(), num_cells=(8,))
    loss = SACLoss(actor, build_critic(env(), num_critics=3, num_cells=(8,)))
    loss.make_value_estimator(gamma=0.99)
    memory = buffer()
    shared = {"replay_buffer": memory} if options.get("async_collection") else {}
    trainer = SACTrainer(
        collector=Collector(
            env(), actor, frames_per_batch=32, total_frames=-1 if shared else 160, **shared
        ),
        total_frames=160,
        frame_skip=1,
        optim_steps_per_batch=4,
        loss_module=loss,
        optimizer=torch.optim.Adam(loss.parameters(), lr=1e-3),
        target_net_updater=SoftUpdate(loss, tau=0.01),
        replay_buffer=memory,
        progress_bar=False,
        episode_reward_key="episode_reward",
        **options,
    )
    return trainer, loss


def test_torchrls_sac_trainer_takes_our_loss(tmp_path):
    file = tmp_path / "trainer.pt"
    trainer, loss = sac_trainer(save_trainer_file=file)
    trainer.register_op("post_steps", lambda: trainer.save_trainer(force_save=True))
    before = values(loss)
    trainer.train()
    moved = {name for name, value in values(loss).items() if not torch.equal(before[name], value)}
    assert any(name.startswith("target_qvalue_network_params") for name in moved)
    assert "log_alpha" in moved
    other_trainer, other = sac_trainer(save_trainer_file=file)
    other_trainer.load_from_file(file, weights_only=False)
    torch.testing.assert_close(values(other), values(loss), atol=0.0, rtol=0.0)


def test_asynchronous_collection():
    trainer, loss = sac_trainer(async_collection=True)
    before = values(loss)
    # The collector's thread and the loss set one mode for the whole process, each in its turn, and
    # which of them is the last to put it back is chance.
    with set_exploration_type(exploration_type()):
        trainer.train()
    moved = {name for name, value in values(loss).items() if not torch.equal(before[name], value)}
    assert "log_alpha" in moved
