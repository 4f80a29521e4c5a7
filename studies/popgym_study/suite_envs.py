"""POPGym's environments, many at a time: one-hot observations with the previous action, as the suite's own script has.

The environments are stepped in a loop; all else (one-hots, previous rewards, ledgers, stacks) is done for all of them
together, which takes a quarter of the time of one wrapper per environment.
"""

from collections.abc import Iterable
from typing import Any

import gymnasium
import numpy as np
import popgym  # noqa: F401  (registers the environments)
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray
from popgym.wrappers import DiscreteAction
from stable_baselines3.common.vec_env.base_vec_env import VecEnv

from mental_accounts.integrations import RunningRewards

Array = NDArray[Any]


def make_env(name: str) -> gymnasium.Env[Any, Any]:
    """One environment of the suite, such as "MultiarmedBanditEasy", with Discrete actions."""
    env = gymnasium.make(f"popgym-{name}-v0", disable_env_checker=True).unwrapped
    wrapped: gymnasium.Env[Any, Any] = DiscreteAction(env)
    return wrapped


class SuiteEnvs(VectorEnv[Any, Any, Any]):
    """n environments whose observations are (suite's observation, previous reward, previous action).

    Discrete observations and actions are one-hot; before the first action there is none, and its numbers are 0 (the
    suite's script has a flag for that). The previous reward is standardised by `rewards`, and left out where that is
    None. An environment whose episode ends is reset in the same step.
    """

    def __init__(self, name: str, n: int, rewards: RunningRewards | None) -> None:
        self._envs = [make_env(name) for _ in range(n)]
        self.num_envs, self._rewards = n, rewards
        observed, action = self._envs[0].observation_space, self._envs[0].action_space
        assert isinstance(action, spaces.Discrete)
        self.actions = int(action.n)
        self._parts = _one_hot_parts(observed)
        self._observed = int(self._parts.sum()) if self._parts is not None else int(np.prod(observed.shape or ()))
        self._begins = None if self._parts is None else np.cumsum([0, *self._parts[:-1]])  # (parts,)
        self._size = self._observed + (rewards is not None) + self.actions
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (self._size,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, n)
        self.single_action_space, self.action_space = action, batch_space(action, n)
        self.metadata = {"autoreset_mode": AutoresetMode.SAME_STEP}
        self._rows = np.arange(n)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        """Begin episodes everywhere; environment i has the seed `seed + i`."""
        seen = [env.reset(seed=None if seed is None else seed + i)[0] for i, env in enumerate(self._envs)]
        return self._join(seen, np.zeros(self.num_envs), np.zeros(self.num_envs, np.int64), np.ones(self.num_envs)), {}

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """One step of each; all ends are terminations, since none of these tasks goes on after its last step."""
        seen, rewards, ends = [], np.empty(self.num_envs), np.zeros(self.num_envs, np.bool_)
        for i, (env, action) in enumerate(zip(self._envs, actions.tolist(), strict=True)):
            observation, reward, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                ends[i] = True
                observation, _ = env.reset()
            rewards[i] = reward
            seen.append(observation)
        payoffs = rewards if self._rewards is None else self._rewards.payoffs(rewards)
        return self._join(seen, payoffs, actions, ends), rewards, ends, np.zeros_like(ends), {}

    def _join(self, seen: list[Any], payoffs: Array, actions: Array, begun: Array) -> Array:
        """(n, size); where an episode has just begun there is no previous action or reward."""
        size = self._observed
        joined = np.zeros((self.num_envs, self._size), np.float32)
        if self._begins is None:
            joined[:, :size] = seen
        else:
            values = np.array(seen).reshape(self.num_envs, -1)  # (n, parts)
            joined[self._rows[:, None], self._begins + values] = 1.0
        if self._rewards is not None:
            joined[:, size] = payoffs * (1 - begun)
            size += 1
        joined[self._rows, size + actions] = 1 - begun
        return joined


def _one_hot_parts(space: spaces.Space[Any]) -> Array | None:
    """The numbers of values of each part of a discrete observation; None for a Box."""
    if isinstance(space, spaces.Box):
        return None
    if isinstance(space, spaces.Discrete):
        return np.array([space.n])
    if isinstance(space, spaces.MultiDiscrete):
        return np.asarray(space.nvec).reshape(-1)
    assert isinstance(space, spaces.Tuple), space
    inner: Iterable[Array | None] = (_one_hot_parts(part) for part in space.spaces)
    return np.concatenate([part for part in inner if part is not None])


class StackedSteps(VectorWrapper[Any, Any, Any, Any, Any]):
    """The last k observations of the episode, newest first, zeros before its beginning."""

    def __init__(self, env: VectorEnv[Any, Any, Any], k: int) -> None:
        super().__init__(env)
        (self._size,) = env.single_observation_space.shape or ()
        self.single_observation_space = spaces.Box(-np.inf, np.inf, (k * self._size,), np.float32)
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self._stack = np.zeros((env.num_envs, k * self._size), np.float32)

    def reset(self, *, seed: Any = None, options: Any = None) -> tuple[Array, dict[str, Any]]:
        """Begin episodes everywhere."""
        seen, infos = self.env.reset(seed=seed, options=options)
        return self._push(seen, np.ones(self.num_envs, np.bool_)), infos

    def step(self, actions: Array) -> tuple[Array, Array, Array, Array, dict[str, Any]]:
        """One step of each."""
        seen, rewards, ends, cuts, infos = self.env.step(actions)
        return self._push(seen, ends | cuts), rewards, ends, cuts, infos

    def _push(self, seen: Array, begun: Array) -> Array:
        moved = np.empty_like(self._stack)
        moved[:, self._size :] = self._stack[:, : -self._size]
        moved[begun] = 0.0
        moved[:, : self._size] = seen
        self._stack = moved
        return moved


class LearnerEnvs(VecEnv):
    """A Gymnasium vector environment (reset in the same step) as Stable-Baselines3 takes it.

    `finished` has the returns of the episodes that ended so far, in order; the caller may empty it.
    """

    def __init__(self, envs: VectorEnv[Any, Any, Any]) -> None:
        super().__init__(envs.num_envs, envs.single_observation_space, envs.single_action_space)
        self.envs, self.finished = envs, list[float]()
        self._returns = np.zeros(envs.num_envs)
        self._infos: list[dict[str, Any]] = [{} for _ in range(envs.num_envs)]
        self._first_seed: int | None = None

    def seed(self, seed: int | None = None) -> list[int | None]:
        """For the next reset."""
        self._first_seed = seed
        return [None if seed is None else seed + i for i in range(self.num_envs)]

    def reset(self) -> Any:
        """Begin episodes everywhere."""
        self._returns[:] = 0.0
        observations, _ = self.envs.reset(seed=self._first_seed)
        self._first_seed = None
        return observations

    def step_async(self, actions: Array) -> None:
        """Keep the actions for `step_wait`."""
        self._actions = actions

    def step_wait(self) -> Any:
        """One step of each."""
        observations, rewards, ends, cuts, _ = self.envs.step(self._actions)
        done = ends | cuts
        self._returns += rewards
        if done.any():
            self.finished += self._returns[done].tolist()
            self._returns[done] = 0.0
        return observations, rewards.astype(np.float32), done, self._infos

    def close(self) -> None:
        """Nothing is open."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        """Environments are not rendered; there is nothing else to tell."""
        return [None for _ in self._get_indices(indices)]

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        """Refused: Stable-Baselines3 asks for it only where environments are rendered or changed."""
        raise NotImplementedError("the study's environments are stepped and reset, and nothing else")

    def env_method(self, method_name: str, *args: Any, indices: Any = None, **kwargs: Any) -> list[Any]:
        """Refused: Stable-Baselines3 asks for it only where environments are rendered or changed."""
        raise NotImplementedError("the study's environments are stepped and reset, and nothing else")

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        """By nothing that Stable-Baselines3 knows."""
        return [False for _ in self._get_indices(indices)]
