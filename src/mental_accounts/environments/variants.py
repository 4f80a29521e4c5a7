"""The same environments with other settings, as ids: `mental_accounts.environments:HiddenArm-v0:dim=4,steps=400`.

An id of this kind works wherever a run, its evaluation or its data name an environment. (With Gymnasium alone:
`gymnasium.make("HiddenArm-v0", dim=4, steps=400, max_episode_steps=400)`.)
"""

import copy
import inspect
import math
from collections.abc import Mapping

import gymnasium
from gymnasium.envs.registration import EnvSpec

from mental_accounts.environments.bandit import DriftingBandit
from mental_accounts.environments.hidden_arm import HiddenArm

MODULE = "mental_accounts.environments"
CLASSES = {"HiddenArm-v0": HiddenArm, "DriftingBandit-v0": DriftingBandit}
"""The environments that have settings, all of them numbers."""
Settings = dict[str, float]


def defaults_of(name: str) -> Settings:
    """The settings of an environment, by name, with their defaults."""
    parameters = inspect.signature(CLASSES[name]).parameters
    return {key: found.default for key, found in parameters.items() if isinstance(found.default, (int, float))}


def parse_settings(name: str, text: str) -> Settings:
    """`dim=4,steps=400` as numbers; what `name` does not have is an error that says what there is."""
    known, settings = defaults_of(name), {}
    for item in text.split(","):
        key, given, number = item.partition("=")
        if key not in known or not given:
            there = ", ".join(f"{known_key}={default:g}" for known_key, default in known.items())
            raise ValueError(f"{item!r} is no setting of {name}; settings and their defaults are {there}")
        kind = type(known[key])
        try:
            settings[key] = kind(number)
        except ValueError:
            raise ValueError(
                f"{key} must be {'a whole number' if kind is int else 'a number'}, got {number!r}"
            ) from None
        if not math.isfinite(settings[key]):
            raise ValueError(f"{key} must be finite, got {number!r}")
    return settings


def settings_text(name: str, settings: Mapping[str, float]) -> str:
    """Settings as text, in the environment's order and without defaults: the same settings, the same text."""
    known = defaults_of(name)
    changed = {key: settings[key] for key in known if key in settings and settings[key] != known[key]}
    return ",".join(f"{key}={_shown(value)}" for key, value in changed.items())


def variant_id(name: str, settings: Mapping[str, float]) -> str:
    """The id of an environment with these settings."""
    text = settings_text(name, settings)
    return f"{MODULE}:{name}" + (f":{text}" if text else "")


def variant_spec(env_id: str) -> EnvSpec | None:
    """How to make the environment of such an id; None if it is of another kind."""
    if not env_id.startswith(f"{MODULE}:"):
        return None
    name, colon, text = env_id.removeprefix(f"{MODULE}:").partition(":")
    if name not in CLASSES or not colon:
        return None
    spec, settings = copy.deepcopy(gymnasium.spec(name)), parse_settings(name, text)
    CLASSES[name](**settings)  # type: ignore[arg-type]  # refuses what does not go together
    spec.kwargs |= settings
    spec.max_episode_steps = int(settings.get("steps", defaults_of(name)["steps"]))
    return spec


def _shown(value: float) -> str:
    short = f"{value:g}"
    return short if isinstance(value, float) and float(short) == value else repr(value)
