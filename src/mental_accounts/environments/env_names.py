"""Names of environments: Gymnasium's ids, our own with settings, and `module:Class` for a user's own class.

(A name in a file never calls a function: files may come from strangers.)
"""

import difflib
import importlib
import re
from types import ModuleType
from typing import Any

import gymnasium
from gymnasium.envs.registration import EnvSpec

from mental_accounts.environments.variants import variant_spec

DOTTED = re.compile(r"(?P<module>[A-Za-z_]\w*(?:[./][A-Za-z_]\w*)*)\.(?P<name>[A-Za-z_]\w*)")


def resolved(env_id: str) -> str | EnvSpec:
    """What `gymnasium.make` takes: an id as it is, anything else as a specification; modules are imported.

    A name of which nothing can be made raises a ValueError that says what to write instead.
    """
    variant = variant_spec(env_id)
    if variant is not None:
        return variant
    module, colon, name = env_id.rpartition(":")
    if not colon:
        _check_dots(env_id)
        return env_id
    imported = _imported(module, name)
    if name in gymnasium.registry:
        return env_id
    found = find(module, name)
    if isinstance(found, type) and issubclass(found, gymnasium.Env):
        make: Any = found  # called without arguments, though the type of Env() does not say so
        return EnvSpec(id=plain_id(env_id), entry_point=make)
    raise ValueError(f"{module} neither registers nor defines an environment {name}{_near(imported, name)}")


def plain_id(name: str) -> str:
    """A name that Gymnasium accepts as an id."""
    return re.sub(r"[^\w.:-]", "", name) or "own"


def find(module: str, qualname: str) -> object:
    """The object of that name in a module, or None."""
    try:
        found: object = importlib.import_module(module)
        for part in qualname.split("."):
            found = getattr(found, part)
    except Exception:  # the user's module may raise anything
        return None
    return found


def _check_dots(env_id: str) -> None:
    """Refuse `module.Class` and `module.py`, which are no ids."""
    found = DOTTED.fullmatch(env_id)
    if found is None or env_id in gymnasium.registry:
        return
    module, name = found["module"].replace("/", "."), found["name"]
    if name == "py":
        raise ValueError(f"write {module}:Class, with the name of the environment's class")
    raise ValueError(f"did you mean {module}:{name}?")


def _imported(module: str, name: str) -> ModuleType:
    if module.endswith(".py"):
        raise ValueError(f"write {module.removesuffix('.py').strip('./').replace('/', '.')}:{name}")
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and f"{module}.".startswith(f"{error.name}."):
            raise ValueError(f"there is no module {error.name}, here or installed") from None
        raise ValueError(f"importing {module} failed: {error}") from error
    except (Exception, SystemExit) as error:  # the user's module may raise anything
        raise ValueError(f"importing {module} raised {error!r}") from error


def _near(module: ModuleType, name: str) -> str:
    """What may have been meant: classes of the module."""
    values = vars(module).items()
    there = [key for key, value in values if isinstance(value, type) and issubclass(value, gymnasium.Env)]
    close = difflib.get_close_matches(name, there, n=1)
    return f"; did you mean {module.__name__}:{close[0]}?" if close else ""
