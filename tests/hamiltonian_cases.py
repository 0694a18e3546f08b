"""Slices of trajectories, and a chain all of whose trajectories are known."""

from __future__ import annotations

import itertools
from typing import NamedTuple

import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor

from torchrl_elegant.objectives import HamiltonianLoss, HamiltonianTerm

F64 = torch.float64
# Options that a loss and a term require; the config of algorithms has others.
LOSS = {
    "weight": 0.125,
    "gamma": 0.99,
    "form": None,
    "baseline": "mean",
    "clip_epsilon": 0.2,
    "sigma": 0.1,
}


def hamiltonian_loss(actor, **options) -> HamiltonianLoss:
    return HamiltonianLoss(actor, **{**LOSS, **options})


def hamiltonian_term_of(base, **options) -> HamiltonianTerm:
    return HamiltonianTerm.for_loss(base, **{**LOSS, "slices": 16, **options})


def grads_of(loss) -> list[bool]:
    """True for each parameter of the actor of a ``WithHamiltonian`` that has a gradient."""
    return [param.grad is not None for param in loss.hamiltonian.parameters()]


def tensor(values) -> Tensor:
    return torch.tensor(values, dtype=F64)


# ---- slices -------------------------------------------------------------------------------------


def after_steps(reward, done=None, terminated=None) -> dict[str, Tensor]:
    """What ``next`` has of slices ``[L, K]``, from nested lists."""
    reward = torch.as_tensor(reward, dtype=torch.get_default_dtype()).unsqueeze(-1)
    none = torch.zeros_like(reward, dtype=torch.bool)
    ended = none if terminated is None else torch.tensor(terminated).unsqueeze(-1)
    over = none if done is None else torch.tensor(done).unsqueeze(-1)
    return {"reward": reward, "done": over | ended, "terminated": ended}


@torch.no_grad()
def make_slices(actor: TensorDictBase, count: int = 6, steps: int = 4, size: int = 4) -> TensorDict:
    """Slices that ``actor`` acts in, some of which end in either way or are padded."""
    rows = TensorDict({"observation": torch.randn(count, steps, size)}, [count, steps])
    rows = actor(rows)
    terminated = torch.rand(count, steps, 1) < 0.15
    rows["next"] = {
        "reward": torch.randn(count, steps, 1),
        "terminated": terminated,
        "done": terminated | (torch.rand(count, steps, 1) < 0.1),
    }
    rows["mask"] = torch.arange(steps) < torch.randint(1, steps + 1, (count, 1))
    rows["mask"][0] = True
    return rows


# ---- a chain, by enumeration --------------------------------------------------------------------

GAMMA, STATES, ACTIONS, K = 0.8, 3, 2, 3
END = STATES - 1
START = tensor([0.7, 0.3, 0.0])
# P(s'|s, a), [S, A, S]; from either state the last one may come at any step.
MOVES = tensor([[[0.5, 0.2, 0.3], [0.1, 0.6, 0.3]], [[0.3, 0.6, 0.1], [0.2, 0.3, 0.5]]])
REWARDS = tensor([[1.0, -0.5], [2.0, 0.3]])  # r(s, a), [S, A]


class Every(NamedTuple):
    """All trajectories that there are, as padded slices, ``[L, K]`` each."""

    state: Tensor
    action: Tensor
    reward: Tensor
    done: Tensor
    mask: Tensor
    moves: Tensor  # probability of all that the policy does not choose, [L]


def every_trajectory() -> Every:
    rows = []
    for start in range(END):
        stack = [([], start, START[start].item())]
        while stack:
            steps, state, chance = stack.pop()
            if state == END or len(steps) == K:
                short = K - len(steps)
                mask = [True] * len(steps) + [False] * short
                padded = steps + steps[-1:] * short
                rows.append((*zip(*padded, strict=True), mask, chance))
                continue
            for action, after in itertools.product(range(ACTIONS), range(STATES)):
                step = (state, action, REWARDS[state, action].item(), after == END)
                stack.append(([*steps, step], after, chance * MOVES[state, action, after].item()))
    state, action, reward, done, mask, chance = zip(*rows, strict=True)
    whole = [torch.tensor(column) for column in (state, action, done, mask)]
    return Every(whole[0], whole[1], tensor(reward), whole[2], whole[3], tensor(chance))


def k_step_return(logits: Tensor) -> Tensor:
    """J_K by the recursion over states, ``v <- r_pi + gamma P_pi v``, the end being worth 0."""
    policy = logits.softmax(-1)
    value = torch.zeros(END, dtype=F64)
    for _ in range(K):
        value = (policy * (REWARDS + GAMMA * MOVES[..., :END] @ value)).sum(-1)
    return START[:END] @ value
