"""One Gymnasium environment, made with errors that say what to do, and always with a time limit."""

from typing import Any

import gymnasium

from mental_accounts.errors import UsageError
from mental_accounts.learning.stepping import RAISED, Environment

DEFAULT_LONGEST = 1_000


def longest_episode(env: Environment) -> int:
    """The most steps of an episode, as far as the environment says."""
    return (env.spec.max_episode_steps if env.spec is not None else None) or DEFAULT_LONGEST


def make_environment(env_id: str, **kwargs: Any) -> Environment:
    """gymnasium.make with errors that say what can be done, and a time limit where the environment has none."""
    try:
        env = gymnasium.make(env_id, **kwargs)
    except gymnasium.error.DependencyNotInstalled as error:
        hint = "for MuJoCo: pip install 'mental-accounts[mujoco]'"
        raise UsageError(f"{env_id} needs a package: {error}; {hint}") from error
    except gymnasium.error.Error as error:
        raise UsageError(f"{env_id} cannot be made: {error}") from error
    except RAISED as error:
        raise UsageError(f"{env_id} cannot be made, its constructor raised {error!r}") from error
    if env.spec is None or env.spec.max_episode_steps is None:
        return gymnasium.wrappers.TimeLimit(env, DEFAULT_LONGEST)
    return env
