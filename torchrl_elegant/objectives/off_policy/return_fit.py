"""ElegantRL's cumulative-return fit, for any loss with values of states and actions."""

from __future__ import annotations

from tensordict import TensorDictBase
from torch import Tensor

from torchrl_elegant.data import AHEAD
from torchrl_elegant.objectives.common.value_target import BootstrappedLoss


class ReturnFit:
    r"""Draws the batch mean of each critic to the batch mean of longer returns.

    .. math::

        L = \lambda \sum_i \Big( \frac{1}{B} \sum_b Q_i(s_b, a_b) - \frac{1}{B} \sum_b y_b \Big)^2,
        \quad y_b = \sum_{k<m} \gamma^k r_{b,k} + \gamma^m (1 - d_b) \bar V(s_{b,m})

    ElegantRL's ``lambda_fit_cum_r``. Means, and not rows, are drawn together: a bias that all
    values share is seen by it, the noise of a single return is not. There the return runs to the
    end of what one round collected; here to the end of the entry ``ahead``, which a
    ``MultiStepFold`` with ``ahead_steps`` writes. With an entropy bonus the value at its end has
    one, the rewards on the way have none.

    Args:
        loss: whose critics, targets and discount are meant.
        weight: lambda.
    """

    name = "loss_return_fit"

    def __init__(self, loss: BootstrappedLoss, *, weight: float) -> None:
        if not isinstance(loss, BootstrappedLoss):
            raise TypeError(
                f"`loss` must be a BootstrappedLoss, got `{type(loss).__name__}`; a return fit "
                "needs values of states and actions"
            )
        if weight <= 0:
            raise ValueError(f"`weight` must be positive, got `{weight}`")
        self.loss, self.weight = loss, weight

    def __call__(self, batch: TensorDictBase) -> Tensor:
        loss, ahead = self.loss, batch.get(AHEAD, None)
        if ahead is None:
            raise KeyError(
                f"rows must have an entry {AHEAD!r} for a return fit, got none; store them through "
                "a MultiStepFold with ahead_steps"
            )
        far = batch.copy().set("next", ahead)
        far.set("steps_to_next_obs", ahead.get("steps_to_next_obs"))
        target = loss._target_value(far).mean()
        value = loss._stored_values(batch)  # [N, *B]
        return self.weight * (value.flatten(1).mean(1) - target).square().sum()
