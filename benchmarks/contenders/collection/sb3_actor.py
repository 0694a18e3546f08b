"""Stable-Baselines3's rollouts with the critic left out, so that the same nets are run by all."""

from __future__ import annotations

from collections.abc import Callable

import torch

from contenders.case import CollectionCase
from contenders.collection.sb3 import PACKAGES, build, serve

__all__ = ["PACKAGES", "make"]


def make(case: CollectionCase) -> Callable[[int], int]:
    model = build(case)
    policy = model.policy

    def act(observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        features = policy.mlp_extractor.forward_actor(policy.extract_features(observation))
        distribution = policy._get_action_dist_from_latent(features)
        action = distribution.get_actions()
        return action, zeros(observation), distribution.log_prob(action)

    def zeros(observation: torch.Tensor) -> torch.Tensor:
        return torch.zeros(len(observation), 1)

    policy.forward, policy.predict_values = act, zeros
    return serve(model)
