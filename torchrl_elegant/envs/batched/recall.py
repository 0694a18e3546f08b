"""`RecallEnv`: a sign is shown once and asked for later, many at once, in tensors alone."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tensordict import TensorDict, TensorDictBase
from torch import Tensor
from torchrl.data import Bounded, Categorical, Composite, OneHot, Unbounded

from torchrl_elegant.envs.spaces import DiscreteActions
from torchrl_elegant.envs.wrap import GeneratorEnv


class RecallEnv(GeneratorEnv):
    r"""Agents remember a sign that they see at the first step alone.

    At the first step of an episode each agent sees a sign :math:`c \in \{-1, 1\}` of its own, and
    at the step `delay` steps later a question. Its answer :math:`a \in [-1, 1]` to that is rewarded
    with :math:`c\,a`, and the episode terminates. All other steps show zeros and are rewarded
    with 0. Without a memory no policy returns more than 0 on average; with one, 1.

    The policy sees the sign and the question, side by side.

    Every operation is one of tensors on `device`, and none waits for it. Random numbers come from a
    generator of the environment's own.

    Args:
        num_envs: rows.
        delay: steps from the sign to the question.
        agents: number of agents of a team, whose entries lie under `"agents"`; None for a single
            agent.
        discrete: whether an answer is one of two choices, -1 and 1.
        discrete_actions: how a choice is written, `"one_hot"` or `"categorical"` (an index).
        device: where it lives.
        seed: of its random numbers; None takes one from the operating system.

    >>> env = RecallEnv(num_envs=2, delay=3, seed=0)
    >>> rows = env.rollout(10)
    >>> rows["observation"][0].tolist()
    [[1.0, 0.0], [0.0, 0.0], [0.0, 0.0], [0.0, 1.0]]
    >>> RecallEnv(agents=3).full_reward_spec["agents", "reward"].shape
    torch.Size([1, 3, 1])
    """

    #: Resets exactly the rows of a mask, without looking at it on the host.
    resets_by_mask = True

    def __init__(
        self,
        *,
        num_envs: int = 1,
        delay: int = 8,
        agents: int | None = None,
        discrete: bool = False,
        discrete_actions: DiscreteActions = "one_hot",
        device: torch.device | str = "cpu",
        seed: int | None = None,
    ) -> None:
        for name, size in {"num_envs": num_envs, "delay": delay, "agents": agents}.items():
            if size is not None and size < 1:
                raise ValueError(f"`{name}` must be at least 1, got `{size}`")
        if discrete_actions not in ("one_hot", "categorical"):
            raise ValueError(
                f"`discrete_actions` must be 'one_hot' or 'categorical', got `{discrete_actions}`"
            )
        super().__init__(device=device, batch_size=[num_envs])
        self.num_envs, self.delay, self.agents, self.discrete = num_envs, delay, agents, discrete
        self.action_low = None if discrete else np.full(1, -1.0, np.float32)
        self.action_high = None if discrete else np.full(1, 1.0, np.float32)
        self._one_hot = discrete_actions == "one_hot"
        self._rows = (num_envs,) if agents is None else (num_envs, agents)
        self._make_specs()
        self._generator = torch.Generator(self.device)
        self._set_seed(seed)
        self._sign = torch.zeros(*self._rows, 1, device=self.device)
        self._step_count = torch.zeros(num_envs, 1, dtype=torch.int64, device=self.device)
        self._episode_reward = torch.zeros_like(self._sign)

    def _make_specs(self) -> None:
        rows = self._rows

        def composite(**specs: Any) -> Composite:
            return Composite(specs, shape=(self.num_envs,)).to(self.device)

        def each(**specs: Any) -> dict[str, Any]:
            return specs if self.agents is None else {"agents": Composite(specs, shape=rows)}

        largest = torch.iinfo(torch.int64).max
        action: Any = Bounded(-1.0, 1.0, (*rows, 1), dtype=torch.float32)
        if self.discrete:
            one_hot = OneHot(2, (*rows, 2), dtype=torch.int64)
            action = one_hot if self._one_hot else Categorical(2, rows)
        self.observation_spec = composite(
            **each(observation=Unbounded((*rows, 2)), episode_reward=Unbounded((*rows, 1))),
            step_count=Bounded(0, largest, (self.num_envs, 1), dtype=torch.int64),
        )
        self.action_spec = composite(**each(action=action))
        self.reward_spec = composite(**each(reward=Unbounded((*rows, 1))))
        names = ("done", "terminated", "truncated")
        self.done_spec = composite(
            **{name: Categorical(2, (self.num_envs, 1), dtype=torch.bool) for name in names}
        )

    def _reset(self, tensordict: TensorDictBase | None = None, **kwargs: Any) -> TensorDict:
        drawn = torch.rand(self._sign.shape, generator=self._generator, device=self.device)
        mask = None if tensordict is None else tensordict.get("_reset", None)
        if mask is None:
            mask = torch.ones_like(self._step_count, dtype=torch.bool)
        rows = mask if self.agents is None else mask.unsqueeze(-1)
        self._sign = torch.where(rows, (drawn < 0.5) * 2.0 - 1.0, self._sign)
        self._step_count = self._step_count.masked_fill(mask, 0)
        self._episode_reward = self._episode_reward.masked_fill(rows, 0.0)
        return self._outcome(torch.zeros_like(mask))

    def _step(self, tensordict: TensorDictBase) -> TensorDict:
        place = "action" if self.agents is None else ("agents", "action")
        asked = self._step_count == self.delay
        answer = self._answer(tensordict.get(place).detach())
        reward = self._sign * answer * (asked if self.agents is None else asked.unsqueeze(-1))
        self._step_count = self._step_count + 1
        self._episode_reward = self._episode_reward + reward
        out = self._outcome(asked)
        return out.set("reward" if self.agents is None else ("agents", "reward"), reward)

    def _answer(self, action: Tensor) -> Tensor:
        """Answers `[*rows, 1]` between -1 and 1."""
        if not self.discrete:
            return action.clamp(-1.0, 1.0)
        index = action.to(torch.int64).argmax(-1) if self._one_hot else action
        return (index * 2.0 - 1.0).unsqueeze(-1)

    def _outcome(self, terminated: Tensor) -> TensorDict:
        first, last = self._step_count == 0, self._step_count == self.delay
        if self.agents is not None:
            first, last = (flag.unsqueeze(-1).expand_as(self._sign) for flag in (first, last))
        seen = torch.cat([self._sign * first, last.to(self._sign.dtype)], -1)
        each = {"observation": seen, "episode_reward": self._episode_reward}
        values = {
            **(each if self.agents is None else {"agents": TensorDict(each, self._rows)}),
            "step_count": self._step_count,
            "done": terminated,
            "terminated": terminated.clone(),
            "truncated": torch.zeros_like(terminated),
        }
        return TensorDict(values, self.batch_size, device=self.device)
