"""A population of PPO in JAX, the way of PureJaxRL: one member as a function, vmapped and compiled.

    python benchmarks/contenders/population_jax.py members num_envs frames_per_batch rounds

Prints frames a second of all members: the best of the rounds, in the processor's time. The
environment is ``ChasingEnv`` in JAX, the networks, Adam and settings are those of ``PPOConfig()``.
"""

from __future__ import annotations

import os
import sys
import time

os.environ["XLA_FLAGS"] = (
    "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1 "
    "--xla_force_host_platform_device_count=1"
)

import jax
import jax.numpy as jnp
import optax

EPOCHS, BATCH, GAMMA, LAMBDA, CLIP = 10, 64, 0.99, 0.95, 0.2
OPTIMIZER = optax.chain(optax.clip_by_global_norm(0.5), optax.adam(3e-4))


def network(key, sizes, last):
    scales = [5 / 3] * (len(sizes) - 2) + [last]
    keys = jax.random.split(key, len(scales))
    make = jax.nn.initializers.orthogonal
    pairs = zip(keys, scales, sizes, sizes[1:])  # noqa: B905
    return [(make(scale)(k, (a, b)), jnp.zeros(b)) for k, scale, a, b in pairs]


def output(layers, x):
    for weight, bias in layers[:-1]:
        x = jnp.tanh(x @ weight + bias)
    return x @ layers[-1][0] + layers[-1][1]


def log_prob(params, seen, action):
    z = (action - output(params["actor"], seen)) * jnp.exp(-params["log_std"])
    return (-0.5 * z * z - params["log_std"] - 0.9189385).sum(-1)


# ChasingEnv: positions and velocities [2, envs, 2], the target's first.


def begin(key, envs):
    places = jax.random.normal(key, (2, envs, 2)) + jnp.array([0.0, -8.0])[:, None, None]
    return places, jnp.zeros((2, envs, 2)), jnp.zeros(envs, jnp.int32), jnp.zeros(envs)


def observed(state):
    places, speeds = state[:2]
    return jnp.concatenate([(places[0] - places[1]) / 8.0, speeds[0], speeds[1] / 4.0], -1)


def step(key, state, action):
    places, speeds, steps, total = state
    wander, anew = jax.random.split(key)
    before = jnp.linalg.norm(places[0] - places[1], axis=-1)
    push = jnp.stack([jax.random.uniform(wander, action.shape), action.clip(-1.0, 1.0)])
    size = jnp.linalg.norm(push, axis=-1)
    push = push / jnp.maximum(size, 1.0)[..., None]
    speeds = push + speeds * jnp.array([0.5, 0.75])[:, None, None]
    places = places + 0.01 * speeds
    after = jnp.linalg.norm(places[0] - places[1], axis=-1)
    caught = after < 1.0
    reward = before - after - 0.02 * jnp.minimum(size[1], 1.0) + 8.0 * caught
    steps, total = steps + 1, total + reward
    last = observed((places, speeds))
    done = caught | (steps >= 1024)
    fresh = begin(anew, len(done))
    rows = done[None, :, None]
    state = (
        jnp.where(rows, fresh[0], places),
        jnp.where(rows, fresh[1], speeds),
        jnp.where(done, fresh[2], steps),
        jnp.where(done, fresh[3], total),
    )
    return state, (reward, last, done, caught)


def collect(key, params, state, steps):
    def act(state, key):
        noisy, moved = jax.random.split(key)
        seen = observed(state)
        mean, spread = output(params["actor"], seen), jnp.exp(params["log_std"])
        action = mean + spread * jax.random.normal(noisy, mean.shape)
        chance = log_prob(params, seen, action)
        state, outcome = step(moved, state, action)
        return state, (seen, action, chance, *outcome)

    return jax.lax.scan(act, state, jax.random.split(key, steps))


def advantages(params, seen, reward, last, done, terminated):
    value = output(params["critic"], seen)[..., 0]
    ahead = output(params["critic"], last)[..., 0]
    delta = reward + GAMMA * ahead * (1 - terminated) - value

    def add(total, row):
        total = row[0] + GAMMA * LAMBDA * (1 - row[1]) * total
        return total, total

    _, found = jax.lax.scan(add, jnp.zeros(value.shape[1]), (delta, done), reverse=True)
    return found, found + value


def loss(params, seen, action, chance, advantage, target):
    advantage = (advantage - advantage.mean()) / (advantage.std(ddof=1) + 1e-6)
    ratio = jnp.exp(log_prob(params, seen, action) - chance)
    gain = jnp.minimum(ratio * advantage, ratio.clip(1 - CLIP, 1 + CLIP) * advantage)
    error = output(params["critic"], seen)[..., 0] - target
    return -gain.mean() + 0.5 * jnp.square(error).mean()


def learn(carried, batch):
    params, moments = carried
    grads = jax.grad(loss)(params, *batch)
    moves, moments = OPTIMIZER.update(grads, moments)
    return (optax.apply_updates(params, moves), moments), None


def make_member(envs, frames):
    def start(key):
        first, second, third = jax.random.split(key, 3)
        params = {
            "actor": network(first, (6, 64, 64, 2), 0.01),
            "critic": network(second, (6, 64, 64, 1), 1.0),
            "log_std": jnp.zeros(2),
        }
        return params, OPTIMIZER.init(params), begin(third, envs), key

    def round_(member):
        params, moments, state, key = member
        key, acting, *shuffles = jax.random.split(key, 2 + EPOCHS)
        state, rows = collect(acting, params, state, frames // envs)
        seen, action, chance, reward, last, done, terminated = rows
        found, target = advantages(params, seen, reward, last, done, terminated)
        rows = [x.reshape(frames, *x.shape[2:]) for x in (seen, action, chance, found, target)]

        def epoch(carried, shuffle):
            order = jax.random.permutation(shuffle, frames)
            batches = [x[order].reshape(frames // BATCH, BATCH, *x.shape[1:]) for x in rows]
            return jax.lax.scan(learn, carried, batches)

        (params, moments), _ = jax.lax.scan(epoch, (params, moments), jnp.stack(shuffles))
        return params, moments, state, key

    return start, round_


def main(members, envs, frames, rounds):
    start, round_ = make_member(envs, frames)
    population = jax.vmap(start)(jax.random.split(jax.random.key(0), members))
    turn = jax.jit(jax.vmap(round_), donate_argnums=0)
    least = float("inf")
    population = jax.block_until_ready(turn(population))
    for _ in range(rounds):
        begun = time.process_time()
        population = jax.block_until_ready(turn(population))
        least = min(least, time.process_time() - begun)
    print(f"{members * frames / least:.0f}")


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
