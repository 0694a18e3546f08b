"""TorchRL's own parts in the manner of its PPO example: Collector, GAE, buffer, ClipPPOLoss.

Cheaper than the example where settings allow: fused Adam, advantages once a batch and not once an
epoch, no entropy and no explained variance, which nobody reads here.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from tensordict import TensorDict
from torch import Tensor, nn
from torchrl.collectors import Collector
from torchrl.data import LazyTensorStorage, SamplerWithoutReplacement, TensorDictReplayBuffer
from torchrl.envs import ExplorationType
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value.advantages import GAE

from contenders.case import PPOCase
from contenders.torchrl_parts import actor, critic, gym_envs

PACKAGES = ("torchrl", "tensordict", "torch", "gymnasium")


def make(case: PPOCase) -> Callable[[int], int]:
    torch.set_num_threads(case.threads)
    torch.manual_seed(case.seed)
    env = gym_envs(case.env, case.envs, threads=case.threads)
    policy, value = actor(env), critic(env)
    collector = Collector(
        env,
        policy,
        frames_per_batch=case.frames,
        total_frames=-1,
        exploration_type=ExplorationType.RANDOM,
        auto_register_policy_transforms=False,
    )
    torch.set_num_threads(case.threads)
    advantage = GAE(gamma=case.gamma, lmbda=case.lmbda, value_network=value, average_gae=False)
    buffer = TensorDictReplayBuffer(
        storage=LazyTensorStorage(case.frames),
        sampler=SamplerWithoutReplacement(),
        batch_size=case.minibatch,
    )
    update = updater(case, policy, value)
    batches = iter(collector)

    def frames(count: int) -> int:
        done = 0
        while done < count:
            batch = next(batches)
            with torch.no_grad():
                advantage(batch)
            rows = batch.reshape(-1)
            for _ in range(case.epochs):
                buffer.extend(rows)
                for minibatch in buffer:
                    update(minibatch)
            collector.update_policy_weights_()
            done += rows.numel()
        return done

    return frames


def updater(case: PPOCase, policy: nn.Module, value: nn.Module) -> Callable[[TensorDict], None]:
    loss = ClipPPOLoss(
        policy,
        value,
        clip_epsilon=case.clip,
        entropy_bonus=False,
        critic_coeff=case.value,
        loss_critic_type="l2",
        normalize_advantage=True,
        log_explained_variance=False,
    )
    parameters = list(loss.parameters())
    optimizer = torch.optim.Adam(parameters, lr=case.learning_rate, eps=1e-5, fused=True)

    def total(minibatch: TensorDict) -> Tensor:
        terms = loss(minibatch)
        return terms["loss_objective"] + terms["loss_critic"]

    if case.compiled:
        total = torch.compile(total)

    def update(minibatch: TensorDict) -> None:
        total(minibatch).backward()
        nn.utils.clip_grad_norm_(parameters, case.max_grad_norm)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return update
