"""A Gymnasium wrapper: observations carry the actor's ledger, so that any policy can read what paid off lately.

    env = gymnasium.make("mental_accounts.environments:DriftingBandit-v0")
    env = LedgerObservation(env, channels=("mean", "count"))
    model = stable_baselines3.PPO("MlpPolicy", env)

NumPy inside: neither importing nor using it loads PyTorch. docs/ledger.md says which channel is for which problem.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, SupportsFloat

import gymnasium
from gymnasium.utils import RecordConstructorArgs

from mental_accounts.errors import UsageError
from mental_accounts.integrations.observed_ledger import ObservedLedger

if TYPE_CHECKING:
    from mental_accounts.integrations.numpy_ledger import NumpyLedger
    from mental_accounts.integrations.observed_ledger import AnyCodebook, AnyRewards, AnyRule
    from mental_accounts.integrations.running_rewards import PayoffRule


class LedgerObservation(gymnasium.Wrapper[Any, Any, Any, Any], RecordConstructorArgs):
    """Observations with the ledger of the episode so far: at each step, what every kind of action paid.

    Args:
        env: actions Discrete, MultiDiscrete, MultiBinary or a bounded Box; any observations.
        codebook: kinds of action; by default one code per discrete action, 3 bins per dimension of a Box of up to 4
            dimensions, and a product of such grids beyond. One of PyTorch (`ma.GridCodebook(...)`) or NumPy.
        rule: `ma.EWA(...)` or `ma.CanonicalEWA(...)`; or give the numbers `phi` and `delta` of the first.
        rewards: "running" (standardised by running statistics), "raw", a fitted `ma.RewardTransform`, or
            `RunningRewards(...)`, which environments of one process may share.
        channels: of "balance" (the attraction over its unit: an average of recent payoffs), "count" (1 - 1/√(1 + C)
            of the decayed number of visits C) and "mean" (of a code's payoffs, 0 where untried). They come in your
            order, `num_codes` numbers each.
        dict_key: the ledger as this entry of a Dict. Without: appended to flat observations, `ledger` in a Dict.
        across_episodes: keep the accounts when an episode ends; `clear_ledger()` empties them.
        phi: the share that is forgotten at every step.
        delta: the weight of new payoffs. `balance` is in units of δ/φ, so it does not depend on it.
        reward_delay: how many steps late rewards come: that of step t belongs to the action of step t - reward_delay.
            `info["reward_delay"]` says it of its own step. A late payoff is entered with the weight it would have by
            now, amount · (1 - φ)^delay, and its visit counts then too.
        foregone: enter `info["foregone"]`, what each code would have paid at this step, with the weight δ of
            `ma.CanonicalEWA`. The environment must report it at every step.

    A reward is posted under the action that was taken: `info["action_taken"]` where the environment says so, else the
    action that was asked for. The first `reward_delay` rewards of an episode belong to no action and are not posted;
    neither are those that have not come when it ends, even if the accounts last across episodes.
    """

    def __init__(
        self,
        env: gymnasium.Env[Any, Any],
        codebook: "AnyCodebook" = None,
        rule: "AnyRule" = None,
        rewards: "AnyRewards" = "running",
        channels: Sequence[str] = ("balance",),
        *,
        dict_key: str | None = None,
        across_episodes: bool = False,
        phi: float | None = None,
        delta: float | None = None,
        reward_delay: int = 0,
        foregone: bool = False,
    ) -> None:
        if not isinstance(env, gymnasium.Env):
            raise UsageError(
                f"env must be a gymnasium.Env, got {type(env).__name__}; LedgerVectorObservation is for "
                "gymnasium.vector environments"
            )
        self._observed = ObservedLedger(
            env.observation_space, env.action_space, 1,
            codebook, rule, rewards, channels, dict_key, phi, delta, reward_delay, foregone,
        )  # fmt: skip
        RecordConstructorArgs.__init__(self, **self._observed.arguments(), across_episodes=across_episodes)
        gymnasium.Wrapper.__init__(self, env)
        self.observation_space = self._observed.layout.space
        self.across_episodes = across_episodes
        self._is_playing = False

    @property
    def ledger(self) -> "NumpyLedger":
        """The accounts: `attractions`, `counts`, `sums`, each (1, num_codes)."""
        return self._observed.ledger

    @property
    def rewards(self) -> "PayoffRule":
        """What makes payoffs of rewards; `RunningRewards` by default."""
        return self._observed.rewards

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode, with empty accounts unless they last across episodes."""
        observation, info = self.env.reset(seed=seed, options=options)
        if not self.across_episodes:
            self.clear_ledger()
        self._observed.begin()
        self._is_playing = True
        return self._observed.observe_one(observation), info

    def step(self, action: Any) -> tuple[Any, SupportsFloat, bool, bool, dict[str, Any]]:
        """Take a step, and post the reward that came before the ledger is read."""
        if not self._is_playing:
            raise UsageError("step() came before an episode began: call reset() first, and again when an episode ends")
        observed = self._observed
        codes = observed.route_one(action)  # refused before the environment moves
        observation, reward, terminated, truncated, info = self.env.step(action)
        if "action_taken" in info:
            codes = observed.route_one(info["action_taken"])
        observed.post_one(codes, float(reward), info)
        self._is_playing = not (terminated or truncated)
        return observed.observe_one(observation), reward, terminated, truncated, info

    def clear_ledger(self) -> None:
        """Empty all accounts. Within an episode, late rewards of steps before are still entered when they come."""
        self._observed.ledger.reset()

    def get_reward_state(self) -> dict[str, float]:
        """The statistics of running rewards, as plain numbers: to be saved, or given to another environment."""
        return self._observed.get_reward_state()

    def set_reward_state(self, state: Mapping[str, float], *, frozen: bool) -> None:
        """Take statistics of `get_reward_state`; `frozen` for evaluation, not where training goes on."""
        self._observed.set_reward_state(state, frozen=frozen)
