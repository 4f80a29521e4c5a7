"""What players that do not learn earn, on the very episodes that `evaluate` plays with a policy."""

from contextlib import closing

import numpy as np
from numpy.typing import NDArray

from mental_accounts.data.hidden_data import Maker
from mental_accounts.data.tasks import find_task
from mental_accounts.environments.roster import Family, players
from mental_accounts.errors import UsageError
from mental_accounts.learning.evaluation import environment_seed
from mental_accounts.learning.make_env import make_environment
from mental_accounts.spaces import action_spec_of


def play_player(task: str, player: str | Maker, episodes: int, seed: int = 0) -> NDArray[np.float64]:
    """The returns of episodes, (episodes,), in a task's environment, of a player or that of a name.

    Episode i has the environment of episode i of `evaluate` with the same seed. Names: random, thompson, ucb,
    epsilon-greedy, highest-account, highest-account-0.2, bayes, oracle.
    """
    if episodes < 1:
        raise UsageError(f"episodes must be at least 1, got {episodes}")
    env_id = find_task(task).env_id
    if env_id is None:
        raise UsageError(f"{task} does not say which environment its players would act in")
    with closing(make_environment(env_id)) as env:
        if isinstance(player, str):
            family: Family = "discrete" if action_spec_of(env.action_space).is_discrete else "box"
            known = players(family)
            if player not in known:
                raise UsageError(f"there is no player {player!r}; there are {', '.join(known)}")
            player = known[player]
        seeds = [environment_seed(seed, place) for place in range(episodes)]
        return np.array([player.play(env, each).rewards.sum(dtype=np.float64) for each in seeds])
