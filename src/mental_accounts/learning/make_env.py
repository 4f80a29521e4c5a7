"""Making Gymnasium environments: errors say what to do, observations are flat, and there is always a time limit.

A run folder records an environment by name: Gymnasium's id (those of our own tasks may carry settings), or
`module:Class` for a user's own class that another process can import. Functions, classes in a script or a notebook and
modified specs have no such name: to resume their run, pass them again.
"""

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from mental_accounts.data.own_data import UNNAMED
from mental_accounts.environments.env_names import find, plain_id, resolved
from mental_accounts.errors import UsageError
from mental_accounts.extras import how_to_install
from mental_accounts.flattening import observation_spec_of
from mental_accounts.learning.flat_env import FlatObservation
from mental_accounts.learning.stepping import RAISED, Environment

DEFAULT_LONGEST = 1_000
EnvironmentLike = str | type[Environment] | Callable[[], Environment] | EnvSpec


class DefaultLimit(gymnasium.wrappers.TimeLimit[Any, Any]):
    """The limit of an environment that declares none."""


@dataclass(frozen=True)
class EnvironmentSource:
    """How the environments of a run are made, and the name that its folder records."""

    name: str
    """Gymnasium's id, or `module:Class`; ends in ` (own)` if only `spec` can make it."""
    spec: str | EnvSpec | None = None
    """The id or spec to make it from; None: the name is enough."""

    def __call__(self, **kwargs: Any) -> Environment:
        """One environment."""
        return make_environment(self.spec or self.name, name=self.name, **kwargs)

    def named(self, name: str) -> "EnvironmentSource":
        """The same environment under the name that a run began with."""
        return EnvironmentSource(name, self.spec or self.name)


def longest_episode(env: Environment) -> int:
    """The maximum number of steps of an episode, according to the environment."""
    return (env.spec.max_episode_steps if env.spec is not None else None) or DEFAULT_LONGEST


def declared_limit(env: Environment) -> int | None:
    """The limit of an episode's steps that the environment itself declares; None if it declares none."""
    return None if isinstance(env, DefaultLimit) or env.spec is None else env.spec.max_episode_steps


def make_environment(env: str | EnvSpec, *, name: str | None = None, **kwargs: Any) -> Environment:
    """gymnasium.make with errors that say what to do, flat observations, and a time limit if there is none.

    `name` is used in errors, if the environment's own id is not informative.
    """
    name = name or (env if isinstance(env, str) else env.id)
    try:
        made = gymnasium.make(_own_class(env) if isinstance(env, str) else env, **kwargs)
    except gymnasium.error.DependencyNotInstalled as error:
        hint = f"for MuJoCo: {how_to_install('mujoco')}"
        raise UsageError(f"{name} needs a package: {error}; {hint}") from error
    except gymnasium.error.Error as error:
        raise UsageError(f"{name} cannot be made: {error}") from error
    except UsageError:
        raise
    except RAISED as error:
        raise UsageError(f"{name} cannot be made, its constructor raised {error!r}") from error
    if observation_spec_of(made.observation_space):
        made = FlatObservation(made)
    if made.spec is None or made.spec.max_episode_steps is None:
        return DefaultLimit(made, DEFAULT_LONGEST)
    return made


def environment_source(env: EnvironmentLike) -> EnvironmentSource:
    """Anything a user may pass as an environment; other objects are refused, with what to pass."""
    if isinstance(env, str):
        return EnvironmentSource(env)
    if isinstance(env, EnvSpec):
        return _of_spec(env)
    if isinstance(env, (gymnasium.Env, gymnasium.vector.VectorEnv)):
        kind = type(env.unwrapped).__name__
        raise UsageError(
            f"env is an instance of {kind}, but a run makes several environments of its own: pass the class "
            f"(env={kind}), a function (env=lambda: {kind}(...)) or the instance's env.spec"
        )
    if not callable(env) or (isinstance(env, type) and not issubclass(env, gymnasium.Env)):
        raise UsageError(
            "env must be the id of a Gymnasium environment, a gymnasium.Env class, a function that makes one, or an "
            f"EnvSpec, got {env!r}"
        )
    return _of_callable(env)


def _of_callable(make: Callable[[], Environment]) -> EnvironmentSource:
    _check_arguments(make)
    name, module = _name_of(make), str(getattr(make, "__module__", ""))
    if isinstance(make, type) and module != "__main__" and find(module, name) is make:
        return EnvironmentSource(f"{module}:{name}")
    return EnvironmentSource(f"{name}{UNNAMED}", _spec_of(name, make))


def _of_spec(spec: EnvSpec) -> EnvironmentSource:
    """By its id, if Gymnasium makes the same environment from that."""
    known = gymnasium.registry.get(spec.id)
    if known is not None and known.entry_point == spec.entry_point and not spec.additional_wrappers:
        kwargs = {name: value for name, value in spec.kwargs.items() if name != "render_mode"}
        if (kwargs, spec.max_episode_steps) == (known.kwargs, known.max_episode_steps):
            return EnvironmentSource(spec.id)
    return EnvironmentSource(f"{spec.id}{UNNAMED}", spec)


def _own_class(env_id: str) -> str | EnvSpec:
    """What the name stands for; names that only another process knew are refused."""
    if env_id.endswith(UNNAMED):
        raise UsageError(
            f"the run's environment, {env_id}, has no name by which another process could find it: pass it again, as "
            "in ma.resume(folder, env=...) or ma.evaluate(folder, env=...)"
        )
    try:
        found = resolved(env_id)
    except ValueError as error:
        raise UsageError(f"{env_id} cannot be made: {error}") from error
    if isinstance(found, EnvSpec) and callable(found.entry_point):
        _check_arguments(found.entry_point)
    return found


def _spec_of(name: str, make: Callable[..., Any]) -> EnvSpec:
    return EnvSpec(id=plain_id(name), entry_point=make)


def _name_of(make: object) -> str:
    return str(getattr(make, "__qualname__", None) or type(make).__qualname__)


def _check_arguments(make: Callable[..., Environment]) -> None:
    """Refuse a callable with required arguments, and name them."""
    try:
        parameters: Mapping[str, inspect.Parameter] = inspect.signature(make).parameters
    except (ValueError, TypeError):  # not every callable has a signature
        return
    optional = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needed = [p.name for p in parameters.values() if p.default is p.empty and p.kind not in optional]
    if needed:
        given = ", ".join(f"{name}=..." for name in needed)
        raise UsageError(
            f"{_name_of(make)} cannot be made without its arguments ({', '.join(needed)}): pass a function that gives "
            f"them, env=lambda: {_name_of(make)}({given})"
        )
