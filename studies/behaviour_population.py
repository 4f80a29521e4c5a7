"""Several SAC learners of one shape, updated together: sbx's networks and update rules under `jax.vmap`.

One SAC update is a hundred tiny kernels, so a GPU spends it waiting for launches; stacking the learners along a new
leading axis makes the second, third and fourth learner almost free. Each learner has its own weights, optimizers,
entropy coefficient, replay memory and random keys: no number of one learner depends on another's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import gymnasium as gym
import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray
from sbx import SAC

from behaviour_actor import LAYERS, Actor

BATCH, GAMMA, TAU = 256, 0.99, 0.005
"""sbx's defaults for SAC, as are Adam at 3e-4, 256x256 ReLU networks and target entropy -|A|."""


class Learner(NamedTuple):
    """The TrainStates of actor, critics and entropy coefficient, and the key; every leaf has a leading learner axis."""

    actor: Any
    critic: Any
    entropy: Any
    key: jax.Array  # (learners, 2)


class Memory(NamedTuple):
    """A ring of transitions on the accelerator; a row is [s, a, s', r, terminated]."""

    rows: jax.Array  # (learners, capacity, 2 * obs + act + 2)
    written: jax.Array  # () int32: rows written so far, to each learner's ring


def update(learner: Learner, batch: jax.Array, obs: int, act: int) -> Learner:
    """One SAC update of one learner; batch: (256, row)."""
    s, a, s_next, r, terminated = jnp.split(batch, [obs, obs + act, 2 * obs + act, 2 * obs + act + 1], axis=-1)
    discount = jnp.full((batch.shape[0],), GAMMA)
    critic, _, key = SAC.update_critic(
        learner.actor, learner.critic, learner.entropy, s, a, s_next, r[:, 0], terminated[:, 0], discount, learner.key
    )
    critic = SAC.soft_update(TAU, critic)
    actor, critic, entropy, _, _, key = SAC.update_actor_and_temperature(
        learner.actor, critic, learner.entropy, s, -float(act), key
    )
    return Learner(actor, critic, entropy, key)


def _learn(
    learners: Learner, memory: Memory, rows: jax.Array, *, updates: int, obs: int, act: int
) -> tuple[Learner, Memory]:
    """Store rows (learners, n, row), then make updates of each learner on batches drawn from its own ring."""
    capacity = memory.rows.shape[1]
    stored = jax.lax.dynamic_update_slice_in_dim(memory.rows, rows, memory.written % capacity, axis=1)
    written = memory.written + rows.shape[1]
    if updates == 0:
        return learners, Memory(stored, written)

    def one(learner: Learner, ring: jax.Array) -> Learner:
        key, draw = jax.random.split(learner.key)
        chosen = jax.random.randint(draw, (updates, BATCH), 0, jnp.minimum(written, capacity))
        batches = ring[chosen]  # (updates, 256, row)
        learned: Learner
        learned, _ = jax.lax.scan(lambda x, b: (update(x, b, obs, act), None), learner._replace(key=key), batches)
        return learned

    return jax.vmap(one)(learners, stored), Memory(stored, written)


def _sample(actor: Any, observations: jax.Array, key: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Sampled actions, (learners, envs, act), for observations (learners, envs, obs); and the next key."""
    keys = jax.random.split(key, 1 + observations.shape[0])

    def one(state: Any, s: jax.Array, k: jax.Array) -> Any:
        return state.apply_fn(state.params, s).sample(seed=k)

    return jax.vmap(one)(actor, observations, keys[1:]), keys[0]


def _mode(actor: Any, observations: jax.Array) -> jax.Array:
    """The squashed mean actions, of the same shapes."""
    actions: jax.Array = jax.vmap(lambda state, s: state.apply_fn(state.params, s).mode())(actor, observations)
    return actions


# Not as decorators: without JAX, which is rarely installed, these would leave the functions untyped.
learn = jax.jit(_learn, static_argnames=("updates", "obs", "act"), donate_argnums=(0, 1))
sample, mode = jax.jit(_sample), jax.jit(_mode)


class Population:
    """The learners of one process; agents are (env id, seed) pairs whose spaces have the same shapes."""

    def __init__(self, agents: list[tuple[str, int]], capacity: int) -> None:
        models = [SAC("MlpPolicy", gym.make(env_id), buffer_size=1, seed=seed) for env_id, seed in agents]
        shapes = {(m.observation_space.shape, m.action_space.shape) for m in models}
        if len(shapes) != 1:
            raise ValueError(f"agents of one process need spaces of one shape, got {shapes}: train them separately")
        self.obs, self.act = (int(np.prod(shape or ())) for shape in shapes.pop())
        parts = [(m.policy.actor_state, m.policy.qf_state, m.ent_coef_state, m.key) for m in models]
        # The states' functions differ in identity only: the first learner's stand for all.
        leaves = [jnp.stack(each) for each in zip(*(jax.tree.leaves(p) for p in parts), strict=True)]
        self.learners = Learner(*jax.tree.unflatten(jax.tree.structure(parts[0]), leaves))
        width = 2 * self.obs + self.act + 2
        self.memory = Memory(jnp.zeros((len(agents), capacity, width)), jnp.zeros((), jnp.int32))
        self.key = jax.random.key(sum(seed for _, seed in agents))

    @property
    def updates(self) -> int:
        """Updates done by each learner; waits for the accelerator."""
        return int(self.learners.actor.step[0])

    def actions(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        drawn, self.key = sample(self.learners.actor, jnp.asarray(observations, jnp.float32), self.key)
        actions: NDArray[np.float32] = np.clip(np.asarray(drawn), -1.0, 1.0)
        return actions

    def learn(self, rows: NDArray[np.float32], updates: int) -> None:
        """Returns at once; the accelerator works while the environments step."""
        self.learners, self.memory = learn(
            self.learners, self.memory, jnp.asarray(rows), updates=updates, obs=self.obs, act=self.act
        )

    def actors(self) -> list[Actor]:
        """The learners' actors as plain arrays in torch's layout."""
        dense = jax.device_get(self.learners.actor.params)["params"]
        stacks = {}
        for i, layer in enumerate(LAYERS):
            stacks[f"{layer}.weight"] = np.swapaxes(dense[f"Dense_{i}"]["kernel"], -1, -2)
            stacks[f"{layer}.bias"] = dense[f"Dense_{i}"]["bias"]
        return [Actor({k: v[i] for k, v in stacks.items()}) for i in range(len(self.learners.key))]

    def modes(self, observations: NDArray[Any]) -> NDArray[np.float32]:
        """Sbx's own deterministic actions, to check the plain arrays against."""
        return np.asarray(mode(self.learners.actor, jnp.asarray(observations, jnp.float32)))

    def save(self, path: Path) -> None:
        """The whole state, memory included, as one npz file under a temporary name, then renamed."""
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(self.learners)]
        filled = min(int(self.memory.written), self.memory.rows.shape[1])
        temporary = path.with_name(f".{path.name}")
        with temporary.open("wb") as file:
            np.savez(
                file,
                *leaves,
                rows=np.asarray(self.memory.rows[:, :filled]),
                written=np.asarray(self.memory.written),
                key=np.asarray(jax.random.key_data(self.key)),
            )
        temporary.replace(path)

    def load(self, path: Path) -> int:
        """Continue from a saved state; returns the steps each learner has taken."""
        with np.load(path) as file:
            leaves, structure = jax.tree.flatten(self.learners)
            saved = [jnp.asarray(file[f"arr_{i}"]) for i in range(len(leaves))]
            self.learners = jax.tree.unflatten(structure, saved)
            rows = jax.lax.dynamic_update_slice_in_dim(self.memory.rows, jnp.asarray(file["rows"]), 0, axis=1)
            self.memory = Memory(rows, jnp.asarray(file["written"]))
            self.key = jax.random.wrap_key_data(jnp.asarray(file["key"]))
            return int(file["written"])
