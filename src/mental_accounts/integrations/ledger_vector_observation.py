"""`LedgerObservation` for environments that are stepped together: one ledger per environment, one set of statistics."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium.utils import RecordConstructorArgs
from gymnasium.vector import AutoresetMode, VectorEnv, VectorWrapper
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from mental_accounts.errors import UsageError
from mental_accounts.integrations.observed_ledger import ObservedLedger
from mental_accounts.integrations.step_infos import StepInfos

if TYPE_CHECKING:
    from mental_accounts.integrations.numpy_codebooks import Codes
    from mental_accounts.integrations.numpy_ledger import NumpyLedger
    from mental_accounts.integrations.observed_ledger import AnyCodebook, AnyRewards, AnyRule
    from mental_accounts.integrations.running_rewards import PayoffRule

    AnyWrapper = VectorWrapper[Any, Any, Any, Any, Any]
else:
    AnyWrapper = VectorWrapper  # takes no types before Gymnasium 1.3

Array = NDArray[Any]


class LedgerVectorObservation(AnyWrapper, RecordConstructorArgs):
    """As `LedgerObservation`, with the same arguments, around a `gymnasium.vector.VectorEnv`.

    Accounts are empty exactly where an observation is the first of an episode:

    - NEXT_STEP: the step that resets an environment posts nothing (its action was not taken, its reward is 0).
    - SAME_STEP: the step that ends an episode returns the next one's first observation, with empty accounts;
      `infos["final_obs"]` has the last observation, with the accounts as they were after the last reward.
    - DISABLED: `reset(options={"reset_mask": ...})` empties those accounts alone. A step after the end of an episode is
      refused.

    What `infos` say of steps (`action_taken`, `reward_delay`, `foregone`) is read as Gymnasium gives it: an array over
    environments with a mask such as `_reward_delay`; without a mask it is of all of them.
    """

    def __init__(
        self,
        env: VectorEnv[Any, Any, Any],
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
        if not isinstance(env, VectorEnv):
            raise UsageError(
                f"env must be a gymnasium.vector.VectorEnv, got {type(env).__name__}; LedgerObservation is for one "
                "environment"
            )
        mode = env.metadata.get("autoreset_mode")
        if mode not in set(AutoresetMode):
            raise UsageError(
                "the vector environment must say in metadata['autoreset_mode'] how episodes begin anew, one of "
                f"{[str(mode) for mode in AutoresetMode]}, got {mode!r}"
            )
        self._mode = AutoresetMode(mode)
        self._observed = ObservedLedger(
            env.single_observation_space, env.single_action_space, env.num_envs,
            codebook, rule, rewards, channels, dict_key, phi, delta, reward_delay, foregone,
        )  # fmt: skip
        RecordConstructorArgs.__init__(self, **self._observed.arguments(), across_episodes=across_episodes)
        VectorWrapper.__init__(self, env)
        self.single_observation_space = self._observed.layout.space
        self.observation_space = batch_space(self.single_observation_space, env.num_envs)
        self.across_episodes = across_episodes
        self._has_begun = False
        self._over = np.zeros(env.num_envs, np.bool_)

    @property
    def ledger(self) -> "NumpyLedger":
        """The accounts: `attractions`, `counts`, `sums`, each (num_envs, num_codes)."""
        return self._observed.ledger

    @property
    def rewards(self) -> "PayoffRule":
        """What makes payoffs of rewards; `RunningRewards` by default."""
        return self._observed.rewards

    def reset(
        self, *, seed: int | list[int | None] | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Begin episodes everywhere, or where `options["reset_mask"]` says so."""
        mask = None if options is None else options.get("reset_mask")  # the environment takes it out
        if mask is not None and not self._has_begun:
            raise UsageError("reset() with a reset_mask came before all environments were reset: call reset() first")
        # Gymnasium's own vector environments take a list of seeds too, though its base class does not say so.
        observations, infos = self.env.reset(seed=seed, options=options)  # type: ignore[arg-type]
        begun: Array = np.ones(self.num_envs, np.bool_) if mask is None else mask
        self._begin(begun)
        self._over[begun] = False
        self._has_begun = True
        return self._observed.observe(observations), infos

    def step(self, actions: Any) -> tuple[Any, Array, Array, Array, dict[str, Any]]:
        """Take a step in every environment, and post the rewards before the ledgers are read."""
        if not self._has_begun:
            raise UsageError("step() came before reset(): call reset() first")
        if self._mode == AutoresetMode.DISABLED and self._over.any():
            raise UsageError(
                f"the episodes of environments {np.flatnonzero(self._over).tolist()} are over and autoreset is "
                "disabled: call reset(options={'reset_mask': ...}) for them before the next step"
            )
        codes = self._observed.route(actions)  # (n, codes per action); refused before the environments move
        observations, rewards, terminations, truncations, infos = self.env.step(actions)
        ended = np.logical_or(terminations, truncations)
        begun = self._over if self._mode == AutoresetMode.NEXT_STEP and self._over.any() else None  # by this very step
        active = None if begun is None else ~begun  # (n,)
        told = StepInfos(infos, active=active, ended=ended if self._mode == AutoresetMode.SAME_STEP else None)
        codes = self._taken(codes, actions, told)
        self._observed.post(codes, np.asarray(rewards, np.float64), told, active)
        if begun is not None:
            self._begin(begun)
        if self._mode == AutoresetMode.SAME_STEP and ended.any():
            infos = self._with_final_ledgers(infos, ended)
            self._begin(ended)
        self._over = ended
        return self._observed.observe(observations), rewards, terminations, truncations, infos

    def clear_ledger(self, environments: Array | None = None) -> None:
        """Empty all accounts, or those of the environments where (num_envs,) is True."""
        self._observed.ledger.reset(environments)

    def get_reward_state(self) -> dict[str, float]:
        """The statistics of running rewards, as plain numbers: to be saved, or given to another environment."""
        return self._observed.get_reward_state()

    def set_reward_state(self, state: Mapping[str, float], *, frozen: bool) -> None:
        """Take statistics of `get_reward_state`; `frozen` for evaluation, not where training goes on."""
        self._observed.set_reward_state(state, frozen=frozen)

    def _begin(self, environments: Array) -> None:
        if not self.across_episodes:
            self.clear_ledger(environments)
        self._observed.begin(environments)

    def _taken(self, codes: "Codes", actions: Any, infos: StepInfos) -> "Codes":
        """Codes of the actions that were taken, where infos say so."""
        for values, said in infos.said("action_taken"):
            taken = np.array(actions)
            taken[said] = values[said]
            codes = np.where(said[:, None], self._observed.route(taken), codes)
        return codes

    def _with_final_ledgers(self, infos: dict[str, Any], ended: Array) -> dict[str, Any]:
        """Last observations are what a value function reads, so they carry the ledger, too."""
        if "final_obs" not in infos:
            return infos
        finals = infos["final_obs"]
        if not isinstance(finals, np.ndarray) or finals.dtype != object or finals.shape != ended.shape:
            raise UsageError(
                "infos['final_obs'] must be an array of one object per environment, as Gymnasium's vector environments "
                f"give it, got {type(finals).__name__}"
            )
        joined = np.full(len(finals), None, dtype=object)
        places = np.flatnonzero(ended).tolist()
        for place, final in zip(places, self._observed.observe_some(finals, places), strict=True):
            joined[place] = final
        return {**infos, "final_obs": joined}
