"""The ledger that observations carry, for one environment or for n in parallel: what both wrappers share."""

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import numpy as np
from gymnasium import Space
from numpy.typing import NDArray

from mental_accounts.channels import check_channels
from mental_accounts.errors import UsageError
from mental_accounts.integrations.action_numbers import codebook_for, numbers_of
from mental_accounts.integrations.foregone import check_foregone, read_all, read_one, refuse_late
from mental_accounts.integrations.ledger_layout import LedgerLayout
from mental_accounts.integrations.ledger_page import LedgerPage
from mental_accounts.integrations.numpy_codebooks import Codes, NumpyCodebook
from mental_accounts.integrations.numpy_ledger import NumpyLedger, RuleNumbers
from mental_accounts.integrations.one_action import router_of_one
from mental_accounts.integrations.past_codes import PastCodes
from mental_accounts.integrations.running_rewards import RunningRewards, payoffs_of
from mental_accounts.integrations.step_infos import StepInfos

if TYPE_CHECKING:
    from mental_accounts.accounts import Codebook, RewardTransform, UpdateRule

    AnyCodebook = Codebook | NumpyCodebook | Mapping[str, Any] | None
    AnyRule = UpdateRule | RuleNumbers | Mapping[str, Any] | None
    AnyRewards = str | RewardTransform | RunningRewards | Mapping[str, Any]

Array = NDArray[Any]


class ObservedLedger:
    """Codebook, rule, rewards and layout together with the accounts of n actors."""

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        n: int,
        codebook: "AnyCodebook",
        rule: "AnyRule",
        rewards: "AnyRewards",
        channels: Sequence[str],
        dict_key: str | None,
        phi: float | None,
        delta: float | None,
        reward_delay: int = 0,
        foregone: bool = False,
    ) -> None:
        self.n, self.channels, self.dict_key = n, check_channels(channels), dict_key
        self.rule = rule_numbers(rule, phi, delta)
        self.rewards = payoffs_of(rewards)
        self._numbers = numbers_of(action_space)
        self.codebook = codebook_for(action_space, self._numbers, codebook)
        self.route_one = router_of_one(self._numbers, self.codebook)
        self._past, self._foregone = PastCodes(n, reward_delay), foregone
        if not isinstance(foregone, bool):
            raise UsageError(f"foregone must be True or False: info['foregone'] has the payoffs, got {foregone!r}")
        if foregone:
            action = copy.deepcopy(action_space).sample()  # the space's own random numbers stay where they are
            check_foregone(self.rule, self.codebook.route(self._numbers(action, 1)).shape[1])
            refuse_late(reward_delay)
        self._is_usual = not foregone and not reward_delay
        self.ledger = NumpyLedger(self.codebook.num_codes, n, self.rule, foregone=foregone)
        bounds = [self.rule.bound(channel, self.rewards.bound) for channel in self.channels]
        low, high = np.repeat(np.array(bounds), self.codebook.num_codes, axis=0).T  # (size,), (size,)
        self.layout = LedgerLayout(observation_space, low, high, dict_key)
        self._page = LedgerPage(n, self.layout.size, self.channels, self.codebook.num_codes, self.layout.dtype)
        rounds_out = self.layout.dtype == np.float64 or self.rule.phi < 1e-6  # the last bits of a float64, over φ
        self._held = self.rewards.bound if rounds_out else math.inf

    def arguments(self) -> dict[str, Any]:
        """What makes the same wrapper again, in plain values: for `env.spec`, which is written as JSON."""
        spec = getattr(self.codebook, "spec", None)
        return {
            "codebook": self.codebook if spec is None else spec(),
            "rule": asdict(self.rule),
            "rewards": self.rewards.spec(),
            "channels": list(self.channels),
            "dict_key": self.dict_key,
            "reward_delay": self._past.delay,
            "foregone": self._foregone,
        }

    def route(self, actions: Any) -> Codes:
        """Actions of the n environments -> (n, codes per action)."""
        return self.codebook.route(self._numbers(actions, self.n))

    def begin(self, environments: Array | None = None) -> None:
        """Episodes begin, everywhere or where (n,) is True: no reward belongs to an action before."""
        self._past.begin(environments)

    def post_one(self, codes: list[int], reward: float, info: Mapping[str, Any]) -> None:
        """Enter one step of a single environment."""
        if not math.isfinite(reward):
            raise _not_finite(reward)
        self._past.kept.append(codes)
        if self._is_usual and "reward_delay" not in info:
            self.ledger.post_one(codes, self.rewards.payoff(reward))
            return
        found = self._past.find_one(info)
        if found is None:
            self.ledger.post_one((), 0.0)  # nobody's: all accounts decay
            return
        codes, delay = found
        if self._foregone:
            refuse_late(delay)
            others = read_one(info, self.codebook.num_codes)
            payoff = self.rewards.payoff(reward)  # first: statistics learn from what was received
            self.ledger.post_one(codes, payoff)
            self.ledger.enter_foregone_one(codes[0], payoff, self.rewards.payoffs_now(others))
        else:
            left = (1.0 - self.rule.phi) ** delay
            self.ledger.post_one(codes, self.rewards.payoff(reward) * left, left)

    def post(self, codes: Codes, rewards: Array, infos: StepInfos, active: Array | None = None) -> None:
        """Enter one step: rewards (n,) float64. Where `active` (n,) is False nothing happens."""
        if not np.isfinite(rewards if active is None else rewards[active]).all():
            raise _not_finite(rewards)
        self._past.append(codes)
        if self._is_usual and "reward_delay" not in infos:
            self.ledger.post(codes, self._payoffs(rewards, active), active)
            return
        codes, delays, known = self._past.find(infos.said("reward_delay"))
        if active is None:
            active = np.ones(self.n, np.bool_)
        if self._foregone:
            refuse_late(delays.max())
            others = read_all(infos, active, self.codebook.num_codes)
            payoffs = self._payoffs(rewards, active)
            self.ledger.post(codes, payoffs, active)
            self.ledger.enter_foregone(codes, payoffs, self.rewards.payoffs_now(others), active)
        else:
            left = np.where(known, (1.0 - self.rule.phi) ** delays, 0.0)
            self.ledger.post(codes, self._payoffs(rewards, known & active) * left, active, visits=left)

    def observe(self, observations: Any) -> Any:
        """The observations of n environments, with their ledgers."""
        self._read()
        return self.layout.join_batch(observations, self._page)

    def observe_one(self, observation: Any) -> Any:
        """The observation of a single environment, with its ledger."""
        self._read()
        return self.layout.join(observation, self._page, 0)

    def observe_some(self, observations: Any, environments: Iterable[int]) -> list[Any]:
        """The observations of some of n environments, one by one, with their ledgers."""
        self._read()
        return [self.layout.join(observations[place], self._page, place) for place in environments]

    def get_reward_state(self) -> dict[str, float]:
        """The statistics of running rewards."""
        return self._running().state()

    def set_reward_state(self, state: Mapping[str, float], *, frozen: bool) -> None:
        """Take statistics from elsewhere."""
        running = self._running()
        running.load_state(state)
        running.frozen = frozen

    def _read(self) -> None:
        read, held = self.ledger.read, self._held
        for channel, out in self._page.channels:
            read(channel, held, out)

    def _payoffs(self, rewards: Array, earned: Array | None) -> Array:
        """Payoffs (n,) of rewards (n,); 0 where they were not earned (n,), and nothing is learned from those."""
        if earned is None:
            return self.rewards.payoffs(rewards)
        payoffs = np.zeros(self.n)
        payoffs[earned] = self.rewards.payoffs(rewards[earned])
        return payoffs

    def _running(self) -> RunningRewards:
        if not isinstance(self.rewards, RunningRewards):
            raise UsageError("only rewards='running' have statistics that change, and these rewards are fixed")
        return self.rewards


def _not_finite(rewards: object) -> UsageError:
    return UsageError(
        f"rewards must be finite, got {rewards}; fix the environment, or put gymnasium.wrappers.TransformReward "
        "between it and LedgerObservation"
    )


def rule_numbers(rule: "AnyRule", phi: float | None, delta: float | None) -> RuleNumbers:
    """The numbers of a rule, however it is given."""
    if rule is None:
        return RuleNumbers(
            RuleNumbers.phi if phi is None else phi,
            RuleNumbers.delta if delta is None else delta,
        )
    if phi is not None or delta is not None:
        raise UsageError(f"give a rule or its numbers phi and delta, not both; got rule={rule!r}")
    if isinstance(rule, RuleNumbers):
        return rule
    if isinstance(rule, Mapping):
        try:
            return RuleNumbers(**rule)
        except TypeError as error:
            raise UsageError(f"rule as a dict has phi, delta and perhaps rho, got {dict(rule)}: {error}") from error
    from mental_accounts.accounts import EWA, CanonicalEWA  # whoever has one has PyTorch

    if isinstance(rule, EWA):
        return RuleNumbers(rule.phi, rule.delta)
    if isinstance(rule, CanonicalEWA):
        return RuleNumbers(rule.phi, rule.delta, rule.rho, rule.initial_experience)
    raise UsageError(f"rule must be ma.EWA(...) or ma.CanonicalEWA(...), or give phi=0.05, got {rule!r}")
