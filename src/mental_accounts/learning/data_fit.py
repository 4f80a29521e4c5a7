"""Whether data belong to an environment: the sizes of observations and actions, and the actions themselves."""

import gymnasium

from mental_accounts.data.data_checks import check_actions
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.errors import UsageError
from mental_accounts.learning.env_spaces import EnvSpaces, spaces_of
from mental_accounts.learning.make_env import EnvironmentSource


def check_fit(data: Trajectories, spaces: EnvSpaces, name: str | None, env_id: str, hint: str = "") -> None:
    """Refuse data of another environment; the hint ends the message."""
    state_dim, action = spaces.state_dim, spaces.action
    size = data.actions.shape[1] if data.actions.ndim == 2 else None
    if data.observations.shape[1] != state_dim or tuple(data.actions.shape[1:]) != action.shape:
        acted = "discrete actions" if size is None else f"actions of size {size}"
        wanted = f"{action.size} discrete ones" if not action.shape else f"{action.shape[0]} ({action.kind})"
        raise UsageError(
            f"the data of {name} do not fit {env_id}: observations of size {data.observations.shape[1]} where "
            f"the environment has {state_dim}, {acted} where it has {wanted}{hint}"
        )


def check_for(env_id: str, data: Trajectories, name: str) -> str | None:
    """Refuse data that no run could use in this environment; the reason if it cannot be made here to see that."""
    try:
        example = EnvironmentSource(env_id)()
    except UsageError as error:
        if isinstance(error.__cause__, gymnasium.error.DependencyNotInstalled):
            return str(error)
        raise
    spaces = spaces_of(example)
    example.close()
    check_fit(data, spaces, name, env_id)
    if not (spaces.action.kind == "multi-discrete" and data.actions.is_floating_point()):  # made whole by a run
        check_actions(data.actions, spaces.action, f"the data of {name}")
    return None
