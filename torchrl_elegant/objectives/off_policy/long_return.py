"""ElegantRL's fit of values to longer returns, for any off-policy loss."""

from __future__ import annotations

from tensordict import TensorDictBase
from torch import Tensor

from torchrl_elegant.data import AHEAD
from torchrl_elegant.objectives.off_policy.base import OffPolicyLoss


class LongReturnFit:
    r"""Pulls the batch mean of each critic to the batch mean of longer returns.

    .. math::

        y_b &= \sum_{k<m} \gamma^k r_{b,k} + \gamma^m (1 - d_b) \bar V(s_{b,m})                 \\
        L &= \lambda \sum_i \Big( \frac{1}{B} \sum_b Q_i(s_b, a_b) - \frac{1}{B} \sum_b y_b \Big)^2

    ElegantRL's ``lambda_fit_cum_r``. It pulls means together, and not rows: so it sees a bias that
    all values share, and not the noise of a single return. ElegantRL's return runs to the end of a
    round of collection; this one to the end of the entry ``ahead``, which a ``MultiStepFold`` with
    ``ahead_steps`` writes. With an entropy bonus, the value at its end includes the bonus and the
    rewards before it do not.

    Args:
        loss: loss whose critics, targets and discount are used.
        weight: lambda, the weight of the pull.
    """

    name = "loss_long_return"

    def __init__(self, loss: OffPolicyLoss, *, weight: float) -> None:
        if not isinstance(loss, OffPolicyLoss):
            raise TypeError(
                f"`loss` must be an OffPolicyLoss, got `{type(loss).__name__}`; a fit to longer "
                "returns needs values of states and actions"
            )
        if weight <= 0:
            raise ValueError(f"`weight` must be positive, got `{weight}`")
        self.loss, self.weight = loss, weight

    def __call__(self, batch: TensorDictBase) -> Tensor:
        loss, ahead = self.loss, batch.get(AHEAD, None)
        if ahead is None:
            raise KeyError(
                f"rows must have an entry {AHEAD!r} for a fit to longer returns, got none; store "
                "them through a MultiStepFold with ahead_steps"
            )
        far = batch.copy().set("next", ahead)
        far.set("steps_to_next_obs", ahead.get("steps_to_next_obs"))
        target = loss._target_value(far).mean()
        value = loss._stored_values(batch)  # [N, *B]
        return self.weight * (value.flatten(1).mean(1) - target).square().sum()
