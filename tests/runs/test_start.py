"""New runs that begin with a stored policy."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import torch
from faults.fault_envs import point
from quiet_runs import QUIET

from torchrl_elegant.algorithms import (
    ALGORITHMS,
    AlgorithmConfig,
    PPOConfig,
    SACConfig,
    TD3Config,
)
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.runs import Trial, resume, train
from torchrl_elegant.runs.policy import load_policy, save_policy
from torchrl_elegant.runs.start import begin_with
from torchrl_elegant.trainers.learner import Learner

SMALL = SACConfig(num_cells=(8,), batch_size=8, warmup=20)
WORDS = {"total_frames": 32, "eval_episodes": 1, "frames_per_batch": 16, **QUIET}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("runs") / "run"
    return train(SMALL, point, folder=str(where), **WORDS).folder


def first_weights(monkeypatch: pytest.MonkeyPatch, **run) -> torch.Tensor:
    """Parameters of a run's actor as its loop found them."""
    seen = []
    follow = Trial.follow

    def spy(self, watcher):
        seen.append(flat(self.learner.policy))
        return follow(self, watcher)

    monkeypatch.setattr(Trial, "follow", spy)
    train(SMALL, point, **{**WORDS, **run})
    return seen[0]


def flat(policy) -> torch.Tensor:
    return torch.cat([param.detach().reshape(-1).clone() for param in policy.parameters()])


@pytest.mark.parametrize("name", ["", "policy.pt", "policy_best.pt"])
def test_a_new_run_begins_with_the_stored_actor(folder, tmp_path, monkeypatch, name):
    source = folder / name
    stored = flat(load_policy(folder / (name or "policy.pt")))
    run = {"folder": str(tmp_path / "new"), "start_from": source, "seed": 3}
    assert torch.equal(first_weights(monkeypatch, **run), stored)
    other = {"folder": str(tmp_path / "other"), "seed": 3}
    assert not torch.equal(first_weights(monkeypatch, **other), stored)


def test_a_run_that_lost_its_checkpoints_begins_anew_elsewhere(folder, tmp_path):
    lost = tmp_path / "lost"
    shutil.copytree(folder, lost)
    shutil.rmtree(lost / "checkpoints")
    with pytest.raises(UsageError, match="start_from="):
        resume(lost, total_frames=64)
    new = train(SMALL, point, folder=str(tmp_path / "new"), start_from=lost, **WORDS)
    assert [row["frames"] for row in new.history][-1] == 32
    resume(new.folder, total_frames=48)
    assert (lost / "policy.pt").read_bytes() == (folder / "policy.pt").read_bytes()


def made(config: AlgorithmConfig, seed: int) -> Learner:
    with Trial(config, seed=seed, total_frames=5_000) as trial:
        return trial.learner


@pytest.mark.parametrize("norm", [False, True])
@pytest.mark.parametrize("name", sorted(n for n, kind in ALGORITHMS.items() if not kind.teams))
def test_every_algorithm_gets_its_actor_and_nothing_else(tmp_path, name, norm):
    config = ALGORITHMS[name](num_cells=(8,), normalize_observation=norm)
    source, learner = made(config, 1), made(config, 2)
    if norm:
        scaling = source.add_ons["scaling"]
        for key, moments in scaling._moments.items():
            moments.add(3.0 + 2.0 * torch.randn(50, *scaling.norm.shapes[key]))
        scaling._fit()
    before = {key: value.clone() for key, value in learner.loss.state_dict().items()}
    save_policy(tmp_path / "policy.pt", source.policy, {"frames": 50})
    begin_with(learner, tmp_path / "policy.pt")
    assert torch.equal(flat(learner.policy), flat(source.policy))
    actor = {param.data_ptr() for param in learner.policy.parameters()}
    for key, value in learner.loss.state_dict(keep_vars=True).items():
        is_target = key.startswith(("target_actor", "target_value_network_params"))
        if value.data_ptr() not in actor and not is_target:
            assert torch.equal(value, before[key]), key
    for key, target in learner.loss.state_dict().items():
        if key.startswith("target_") and "_params." in key:
            own = learner.loss.state_dict()[key.removeprefix("target_")]
            assert torch.equal(target, own), key
    assert learner.updates == 0
    if norm:
        for key, moments in learner.add_ons["scaling"]._moments.items():
            found = source.add_ons["scaling"]._moments[key]
            assert moments.count == 50
            torch.testing.assert_close(moments.mean, found.mean, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(moments.variance, found.variance, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(
    ("config", "told"),
    [
        (SACConfig(num_cells=(16,)), r"whose net\.layers\.0\.weight has \(8, 2\) where .* \(16, 2"),
        (SACConfig(num_cells=(8, 8)), r"net\.layers\.1\.weight has \(2, 8\) where .* \(8, 8\)"),
        (SACConfig(num_cells=(8,), normalize_observation=True), "NormalizedActor, got"),
        (PPOConfig(num_cells=(8,)), "GaussianActor, got .* with SquashedGaussianActor"),
        (TD3Config(num_cells=(8,)), "NoisyActor, got .* with SquashedGaussianActor"),
    ],
)
def test_a_policy_of_another_kind_or_size_is_refused_before_a_folder_is_made(
    folder, tmp_path, config, told
):
    with pytest.raises(UsageError, match=rf"`start_from` must hold a policy of the .*{told}"):
        train(config, point, folder=str(tmp_path / "new"), start_from=folder, total_frames=5_000)
    assert not (tmp_path / "new").exists()


def test_a_policy_of_another_environment_is_refused(folder, tmp_path):
    words = {"folder": str(tmp_path / "new"), "start_from": folder, **WORDS}
    with pytest.raises(UsageError, match=r"has \(8, 2\) where the new run has \(8, 3\)"):
        train(SMALL, "Pendulum-v1", **words)
    (tmp_path / "no").mkdir()
    with pytest.raises(UsageError, match="no policy file at"):
        train(SMALL, point, **{**words, "start_from": tmp_path / "no"})


def test_networks_of_ones_own_cannot_be_started_from(folder, tmp_path):
    own = SACConfig(batch_size=8, warmup=20, networks={"actor": torch.nn.Linear(2, 2)})
    words = {"total_frames": 5_000, "folder": str(tmp_path / "new")}
    with pytest.raises(UsageError, match=r"and the new run has such networks; load their param"):
        train(own, point, start_from=folder, **words)
    with Trial(own, point, total_frames=5_000) as trial:
        about = {"observation": {"observation": [[2], "float32"]}}
        save_policy(tmp_path / "policy.pt", trial.learner.policy, about)
    with pytest.raises(UsageError, match=r"and the policy .* has such networks; .* networks="):
        train(SMALL, point, start_from=tmp_path / "policy.pt", **words)
