"""What no REDQ in single precision can beat here: the matrix products of its updates, and no more.

Every product goes into a buffer that is there already. No activation, loss, optimiser, target or
batch is computed; a last layer of one column does not count.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

import torch
from torch import Tensor

from contenders.case import OffPolicyCase
from torchrl_elegant.envs import make_env

PACKAGES = ("torch",)

Product = tuple[Tensor, Tensor, Tensor]


def make(case: OffPolicyCase) -> Callable[[int], int]:
    torch.set_num_threads(case.threads)
    torch.manual_seed(case.seed)
    env = make_env(case.env, 1)
    seen, moved = env.observation_spec["observation"].shape[-1], env.action_spec.shape[-1]
    critics = (case.critics, case.batch, seen + moved, case.width)
    drawn = (case.members, *critics[1:])
    actor = [seen, case.width, case.width, 2 * moved]
    often = [
        *_forward(*drawn),
        *_forward(*critics),
        *_weights(*critics),
        *_inputs(*critics)[:1],
        *_chain(case.batch, actor, backward=False),
    ]
    # Through frozen critics to the action, and on into the actor.
    seldom = [
        *_forward(*critics),
        *_inputs(*critics),
        *_chain(case.batch, actor, backward=True),
    ]

    def updates(count: int) -> int:
        for update in range(count):
            run(often)
            if update % case.actor_period == 0:
                run(seldom)
        return count

    return updates


def run(products: Sequence[Product]) -> None:
    for left, right, out in products:
        torch.matmul(left, right, out=out)


def product(*shape: int) -> Product:
    """Factors ``[..., a, b]`` and ``[..., b, c]`` of a product, and room for it."""
    *lead, a, b, c = shape
    return torch.randn(*lead, a, b), torch.randn(*lead, b, c), torch.empty(*lead, a, c)


def _forward(members: int, batch: int, inputs: int, width: int) -> list[Product]:
    return [product(members, batch, inputs, width), product(members, batch, width, width)]


def _weights(members: int, batch: int, inputs: int, width: int) -> list[Product]:
    """The gradients of the weights of both layers."""
    return [product(members, width, batch, width), product(members, inputs, batch, width)]


def _inputs(members: int, batch: int, inputs: int, width: int) -> list[Product]:
    """The gradients of what the second layer reads, and of what the first does."""
    return [product(members, batch, width, width), product(members, batch, width, inputs)]


def _chain(batch: int, sizes: Sequence[int], *, backward: bool) -> list[Product]:
    """An actor's layers; ``backward`` adds the gradients of its weights and inner inputs."""
    pairs = list(pairwise(sizes))
    products = [product(batch, a, b) for a, b in pairs]
    if backward:
        products += [product(a, batch, b) for a, b in pairs]
        products += [product(batch, b, a) for a, b in pairs[1:]]
    return products
