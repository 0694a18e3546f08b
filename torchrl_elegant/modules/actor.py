"""The squashed Gaussian actor of SAC."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from tensordict import TensorDictBase
from torch import Tensor
from torchrl.envs.utils import ExplorationType, exploration_type
from torchrl.modules import TanhNormal

from torchrl_elegant.functional import squashed_mode, squashed_sample
from torchrl_elegant.modules.bounds import BoundedActor

LOG_STD_MIN, LOG_STD_MAX = -20.0, 2.0


class SquashedGaussianActor(BoundedActor):
    """Policy ``a = low + (high - low) (tanh(u) + 1) / 2``, ``u ~ N(mu(s), sigma(s)^2)``.

    It stands wherever TorchRL takes a ``ProbabilisticActor``: collectors read its action, TorchRL's
    losses its ``get_dist``. Calling it builds no distribution object, which makes collection about
    half as expensive again. Under ``ExplorationType.RANDOM``, or with none set, it samples; under
    any other it returns the mode.

    The arguments are those of ``BoundedActor``.

    >>> import torch
    >>> from tensordict import TensorDict
    >>> actor = SquashedGaussianActor(observation={"observation": (3,)}, low=[-1.0], high=[1.0])
    >>> actor(TensorDict({"observation": torch.zeros(5, 3)}, [5]))["action"].shape
    torch.Size([5, 1])
    """

    outputs_per_dimension = 2  # mean and logarithm of the spread

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.log_prob_keys, self.dist_sample_keys = ["action_log_prob"], list(self.out_keys)

    def act(self, *observation: Tensor) -> Tensor:
        loc, log_std = self.parameters_of(observation)
        if exploration_type() in (None, ExplorationType.RANDOM):
            loc = torch.addcmul(loc, log_std.exp(), torch.randn_like(loc))
        return self._scale(squashed_mode(loc))

    def sample(self, observation: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Reparameterised action ``[*B, *A]`` and its log-density ``[*B]``."""
        loc, log_std = self.parameters_of(observation)
        action, log_prob = squashed_sample(loc, log_std, torch.randn_like(loc))
        if not self._unit_bounds:
            log_prob = log_prob - ((self.high - self.low) * 0.5).log().sum()
        return self._scale(action), log_prob

    def parameters_of(self, observation: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Mean and log standard deviation before the squashing, each ``[*B, |A|]``."""
        loc, log_std = self.net(self.inputs.join(observation)).chunk(2, -1)
        return loc, log_std.clamp(LOG_STD_MIN, LOG_STD_MAX)

    def get_dist(self, tensordict: TensorDictBase) -> TanhNormal:
        """TorchRL's distribution with the same density, for losses that ask for one."""
        return self.build_dist_from_params(self.get_dist_params(tensordict))

    def get_dist_params(self, tensordict: TensorDictBase) -> TensorDictBase:
        """What that distribution is made of, for losses that map over parameters first."""
        loc, log_std = self.parameters_of([tensordict.get(key) for key in self.in_keys])
        return tensordict.empty().set("loc", loc).set("scale", log_std.exp())

    def build_dist_from_params(self, tensordict: TensorDictBase) -> TanhNormal:
        """The distribution of what ``get_dist_params`` gave."""
        loc, scale = tensordict.get("loc"), tensordict.get("scale")
        return TanhNormal(loc, scale, low=self.low.flatten(), high=self.high.flatten())
