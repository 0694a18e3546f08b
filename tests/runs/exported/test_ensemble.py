"""Several actors as one policy: what they decide, its file, its other formats."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tensordict import TensorDict
from tensordict.nn import TensorDictModule

from torchrl_elegant import A2CConfig, DDPGConfig, DQNConfig, Policy, PPOConfig, SACConfig, Trial
from torchrl_elegant.runs.exported.ensemble import EnsembleActor
from torchrl_elegant.runs.policy import describe, save_policy


def fixed(action: torch.Tensor) -> TensorDictModule:
    return TensorDictModule(lambda x: action, in_keys=["observation"], out_keys=["action"])


def joined(actions: list, form: str) -> list:
    members = [("Fixed", {}, fixed(torch.tensor(action))) for action in actions]
    data = TensorDict({"observation": torch.zeros(2, 3)}, [2])
    return EnsembleActor(members, form=form)(data)["action"].tolist()


def test_numbers_are_averaged_and_choices_are_voted_for():
    assert joined([[[0.0], [1.0]], [[1.0], [1.0]], [[0.5], [-0.5]]], "continuous") == [[0.5], [0.5]]
    assert joined([[2, 1], [0, 1], [0, 2]], "categorical") == [0, 1]
    # Of equals the first; several choices at once count as one.
    assert joined([[2, 1], [0, 1]], "categorical") == [2, 1]
    one = [[True, False, False, True], [False, True, True, False]]
    two = [[True, False, True, False], [False, True, True, False]]
    assert joined([one, two, two], "one_hot") == two
    assert joined([one, two], "one_hot") == one


SMALL = {"num_cells": (8,)}
CASES = [
    ("Pendulum-v1", [SACConfig(**SMALL), DDPGConfig(**SMALL, normalize_observation=True)]),
    ("CartPole-v1", [PPOConfig(**SMALL), A2CConfig(num_cells=(4,)), DQNConfig(**SMALL)]),
]


@pytest.mark.parametrize(("env", "configs"), CASES)
def test_an_ensemble_of_algorithms_is_a_policy_file_as_any_other(tmp_path, env, configs):
    members, policies = [], []
    for seed, config in enumerate(configs):
        with Trial(config, env, total_frames=20_000, seed=seed) as trial:
            about = trial.about()
            members.append(describe(trial.learner.policy, about))
            policies.append(Policy(trial.learner.policy, about))
    ensemble = EnsembleActor(members, form=about["discrete_actions"] or "continuous")
    save_policy(tmp_path / "policy.pt", ensemble, about)
    loaded = Policy.load(tmp_path / "policy.pt")
    shape = (16, 3 if env == "Pendulum-v1" else 4)
    seen = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    alone = [policy(seen) for policy in policies]
    if env == "Pendulum-v1":
        expected = np.mean(alone, axis=0)
        # Its members do not all say the same.
        assert np.abs(alone[0] - alone[1]).max() > 1e-3
    else:
        counts = np.stack([np.bincount(votes, minlength=2) for votes in np.transpose(alone)])
        expected = counts.argmax(-1)
        assert set(counts.max(-1)) == {2, 3}
    np.testing.assert_allclose(loaded(seen), expected, rtol=1e-5, atol=1e-6)
    assert loaded(seen[0]).shape == expected[0].shape
    # It exports as it is.
    path = loaded.export(tmp_path / "policy.pt2")
    program = torch.export.load(path).module()
    found = program(torch.from_numpy(seen))
    np.testing.assert_allclose(found.detach().numpy(), expected, rtol=1e-5, atol=1e-6)
