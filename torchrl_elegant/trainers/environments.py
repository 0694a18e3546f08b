"""Environments of one run: each is made once, and one may serve for everything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import torch
from torchrl.data import Categorical, MultiCategorical, MultiOneHot, OneHot
from torchrl.envs import EnvBase

from torchrl_elegant.config.blame import is_users_own, place
from torchrl_elegant.config.text import UsageError
from torchrl_elegant.envs import GymnasiumEnv, PettingZooTeams, RecallEnv, VmasTeams, make_env
from torchrl_elegant.trainers.random_streams import streams_kept
from torchrl_elegant.trainers.run_config import RunConfig

EnvFactory = Callable[..., EnvBase]

# Streams of one seed that must not meet: SeedSequence keys.
TRAIN, EVALUATE, LEARN = range(3)
#: Simulators that share one call of the evaluated policy: more save little and cost their memory.
TOGETHER = 16


def seed_of(run: RunConfig, stream: int, *more: int) -> int:
    """Give a 31-bit seed for one use of the run's seed.

    >>> seed_of(RunConfig(seed=1), 0) != seed_of(RunConfig(seed=1), 1)
    True
    """
    return int(np.random.SeedSequence((run.seed, stream, *more)).generate_state(1)[0] >> 1)


class Environments:
    """Environments of one run, made when they are first asked for.

    The training environment also tells the specs that networks are built from. Gymnasium
    simulators are stepped on the CPU; any other environment lives on the learner's device. With
    ``evaluation_env="shared"`` one environment serves training and evaluation by turns.

    Args:
        run: names the environment, how many there are, the seed.
        env: a factory in place of the name in ``run``.
        device: where the learner is.
        rank: which of several processes this is.
        workers: whether other processes collect, each with environments of its own.
    """

    def __init__(
        self,
        run: RunConfig,
        env: str | Callable[..., Any] | None = None,
        *,
        device: torch.device | None = None,
        rank: int = 0,
        workers: bool = False,
    ) -> None:
        self.run, self.device = run, device or torch.device("cpu")
        self._rank, self._workers = rank, workers
        #: Name or factory.
        self.env = run.env if env is None else env
        self.make: EnvFactory = partial(
            make_env, self.env, env_kwargs=run.env_kwargs, pixels=run.pixels
        )
        self._made: list[EnvBase] = []
        self._training: EnvBase | None = None
        self._specs: EnvBase | None = None
        self._evaluation: EnvBase | None = None

    def specs(self) -> EnvBase:
        """An environment on the learner's device, to build networks from."""
        if self._specs is None:
            seed = seed_of(self.run, TRAIN, self._rank, 0)
            if self.run.env_backend == "parallel":
                self._specs = self._make(1, seed, self.device)
                return self._specs
            self._specs = made = self._make(self.run.num_envs, seed, self.device)
            # Simulators in host memory are not stepped through the device of their learner.
            elsewhere = isinstance(made, GymnasiumEnv) and self.device.type != "cpu"
            if not self._workers and not elsewhere:
                self._training = made
        return self._specs

    def training(self, frames: int = 0) -> EnvBase:
        """The environment to collect from, seeded for a run that has ``frames`` already."""
        specs = self.specs()
        seed = seed_of(self.run, TRAIN, self._rank, frames)
        if self._training is None:
            device = "cpu" if isinstance(specs, GymnasiumEnv) else self.device
            self._training = self._make(self.run.num_envs, seed, device, self.run.env_backend)
        elif frames:
            with streams_kept():
                self._training.set_seed(seed)
        return self._training

    def evaluation(self, episodes: int, frames: int = 0) -> EnvBase:
        """The environment to evaluate in, of its own seed unless it is shared."""
        if self.is_shared:
            return self._training or self.training(frames)
        if self._evaluation is None:
            count = _together(self.specs(), episodes)
            self._evaluation = self._make(count, seed_of(self.run, EVALUATE, frames), self.device)
        return self._evaluation

    def alone(self, episodes: int, seed: int) -> EnvBase:
        """The environment to evaluate in where there is no training."""
        env = self._make(None, seed, self.device)
        count = _together(env, episodes)
        return env if count in (None, 1) else self._make(count, seed, self.device)

    @property
    def is_shared(self) -> bool:
        """True if evaluation takes place in the training environment."""
        return self.run.evaluation_env == "shared"

    def for_workers(self) -> EnvFactory:
        """A factory that each worker process calls for its own environments."""
        return partial(self.make, self.run.num_envs, backend=self.run.env_backend)

    def about(self) -> dict[str, Any]:
        """Facts about the environment that a policy file has to tell."""
        env = self.specs()
        found: dict[str, Any] = {"action_low": env.action_low, "action_high": env.action_high}
        found["discrete_actions"] = _discrete_form(env)
        found["observation"] = {
            key: [list(leaf.shape), str(leaf.dtype).removeprefix("torch.")]
            for key, leaf in env.observation_spec_unbatched.items(True, True)
        }
        if isinstance(env, GymnasiumEnv):
            codec = env.simulators.codec
            found |= {"action_start": codec.start, "action_sizes": codec.sizes}
        return found

    def rest(self) -> None:
        """Close the environment that was made for its specs alone. Its specs stay readable."""
        if self._specs is not None and self._specs is not self._training:
            self._made.remove(self._specs)
            self._specs.close(raise_if_closed=False)

    def close(self) -> None:
        """Close all that were made; may be called twice."""
        while self._made:
            # Not asked whether it is closed: environments of TorchRL's users say so from the start.
            self._made.pop().close(raise_if_closed=False)

    def _make(
        self, num_envs: int | None, seed: int, device: torch.device | str, backend: str = "vector"
    ) -> EnvBase:
        # TorchRL's environments seed the global stream of torch, which is the learner's.
        with streams_kept(), their_mistake(self.run):
            made = self.make(num_envs, seed=seed, device=device, backend=backend)
        self._made.append(made)
        return made


@contextmanager
def their_mistake(run: RunConfig) -> Iterator[None]:
    """Tell in one line what an installed package raises while it makes an environment.

    What code that somebody is writing raises keeps its type and its traceback.
    """
    try:
        yield
    except (ValueError, ImportError):
        raise
    except Exception as error:
        if is_users_own(error):
            raise
        raise UsageError(
            f"`env` must make an environment, got {type(error).__name__} from {run.env!r}: {error} "
            f"({place(error)})"
        ) from error


def _together(env: EnvBase, episodes: int) -> int | None:
    """Copies of ``env`` to evaluate in; None for a factory of batches that decides itself."""
    if isinstance(env, VmasTeams | RecallEnv):
        return episodes
    of_copies = isinstance(env, GymnasiumEnv | PettingZooTeams)
    return min(episodes, TOGETHER) if of_copies else None


def _discrete_form(env: EnvBase) -> str | None:
    forms = {OneHot: "one_hot", MultiOneHot: "one_hot"}
    forms |= {Categorical: "categorical", MultiCategorical: "categorical"}
    specs = env.full_action_spec_unbatched.values(True, True)
    return next((forms[type(spec)] for spec in specs if type(spec) in forms), None)
