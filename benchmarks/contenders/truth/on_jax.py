"""The scripted task with Brax's and Playground's interface."""

from __future__ import annotations

from typing import Any

from contenders.truth.schedule import LIMIT, ROWS, played
from torchrl_elegant.collectors import SyncCollector


def brax_rows() -> dict[str, Any]:
    """Ours and TorchRL's, over the same task of Brax."""
    import jax
    import jax.numpy as jnp
    from brax import envs
    from brax.envs.wrappers.training import EpisodeWrapper
    from torchrl.envs import BraxEnv as TheirBrax
    from torchrl.envs import BraxWrapper

    from torchrl_elegant.envs import BraxEnv

    class ScriptedBrax(envs.Env):
        observation_size, action_size, backend = 2, 1, "none"

        def reset(self, rng: Any) -> Any:
            seen = jnp.array([jax.random.uniform(rng), 0.0])
            return envs.State(None, seen, jnp.zeros(()), jnp.zeros(()))

        def step(self, state: Any, action: Any) -> Any:
            fell = (action[0] > 0.5).astype(jnp.float32)
            seen = state.obs + jnp.array([0.0, 1.0])
            return state.replace(obs=seen, reward=1 + seen[1] + 10 * fell, done=fell)

    envs.register_environment("scripted", ScriptedBrax)
    ours = BraxEnv("scripted", num_envs=ROWS, max_steps=LIMIT, seed=0)
    rows = {"ours": played(ours, collector=SyncCollector)}
    theirs: dict[str, Any] = {"batch_size": [ROWS], "cache_clear_frequency": 100_000}
    rows["torchrl"] = played(TheirBrax("scripted", **theirs))
    limited = EpisodeWrapper(ScriptedBrax(), LIMIT, 1)
    rows["torchrl over Brax's EpisodeWrapper"] = played(BraxWrapper(limited, **theirs))
    return rows


def playground_rows() -> dict[str, Any]:
    """Ours and TorchRL's, over the same task of Playground."""
    import jax
    import jax.numpy as jnp
    from mujoco_playground import MjxEnv, State
    from torchrl.envs import MujocoPlaygroundWrapper

    from torchrl_elegant.envs import JaxSimulatorEnv

    class ScriptedPlayground(MjxEnv):
        xml_path, action_size, mj_model, mjx_model = "", 1, None, None

        def __init__(self) -> None:
            pass

        def reset(self, rng: Any) -> Any:
            seen = jnp.array([jax.random.uniform(rng), 0.0])
            return State(None, seen, jnp.zeros(()), jnp.zeros(()), {}, {})

        def step(self, state: Any, action: Any) -> Any:
            fell = (action[0] > 0.5).astype(jnp.float32)
            seen = state.obs + jnp.array([0.0, 1.0])
            return state.replace(obs=seen, reward=1 + seen[1] + 10 * fell, done=fell)

    ours = JaxSimulatorEnv(ScriptedPlayground(), num_envs=ROWS, max_steps=LIMIT, seed=0)
    rows = {"ours": played(ours, collector=SyncCollector)}
    try:
        theirs = MujocoPlaygroundWrapper(ScriptedPlayground(), batch_size=[ROWS])
        rows["torchrl"] = played(theirs)
    except Exception as error:
        rows["torchrl"] = {"failed": f"{type(error).__name__}: {str(error)[:160]}"}
    return rows
