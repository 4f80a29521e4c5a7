"""What a policy has to know of an environment: its spaces."""

from dataclasses import dataclass
from typing import Any

from mental_accounts.action_masks import mask_of
from mental_accounts.action_spec import ActionSpec
from mental_accounts.learning.stepping import RAISED, Environment
from mental_accounts.observation_spec import ObservationPart
from mental_accounts.spaces import action_spec_of, state_dim_of


@dataclass(frozen=True)
class EnvSpaces:
    """The spaces of an environment, as fields of a `PolicyConfig`."""

    state_dim: int
    action: ActionSpec
    observation: tuple[ObservationPart, ...] = ()
    action_masks: bool = False

    def fields(self) -> dict[str, Any]:
        """By their names there."""
        return dict(vars(self))


def spaces_of(env: Environment) -> EnvSpaces:
    """The spaces of an environment that `make_environment` made; those that no policy can act in are refused.

    One with discrete actions is reset, to see whether it gives action masks.
    """
    parts = env.get_wrapper_attr("observation_parts") if env.has_wrapper_attr("observation_parts") else ()
    action = action_spec_of(env.action_space)
    return EnvSpaces(state_dim_of(env.observation_space), action, parts, action.is_discrete and _gives_masks(env))


def _gives_masks(env: Environment) -> bool:
    try:
        _, info = env.reset(seed=0)
        return mask_of(env, info) is not None
    except RAISED:  # reported when it is played
        return False
