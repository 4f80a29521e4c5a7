"""The ledger in NumPy: for processes that step environments and have no PyTorch.

The same numbers as `rule.ledger(...)`, and two more channels. Sums and counts are kept in float64: of account j after
step t

    S_j = (1 - φ) S_j + r̃ 1{j = j_t}      what was entered, decayed
    C_j = (1 - φ) C_j + 1{j = j_t}         how often it was, decayed

and everything that is read follows from them: A_j = δ S_j (the paper's rule) or S_j / N (the canonical one).

A reward that comes d steps late is entered with the weight it would have by now: (1 - φ)^d r̃ in S_j and (1 - φ)^d in
C_j, of the action it belongs to. Foregone payoffs have a sum of their own, for the canonical balance alone,

    F_j = (1 - φ) F_j + (δ + (1 - δ) 1{j = j_t}) π_j     with π_j = r̃ for the action that was taken,

since the mean is of payoffs received. It is kept where they are.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mental_accounts.channels import UNTRIED
from mental_accounts.number_checks import check_count, check_number

Array = NDArray[Any]
Floats = NDArray[np.float64]

FORGOTTEN = 1e-60
"""An account whose decayed count is below this is untried again. (It would slow arithmetic down on its way to 0.)"""
SWEEP_EVERY = 256
"""Posts between two looks for forgotten accounts."""

# Arrays of one number: NumPy takes half the time with them that it takes with Python's numbers.
ONE, LEAST_COUNT = np.array(1.0), np.array(UNTRIED)


@dataclass(frozen=True)
class RuleNumbers:
    """The numbers of `EWA`, or of `CanonicalEWA` where rho is given."""

    phi: float = 0.05
    delta: float = 0.8
    rho: float | None = None
    initial_experience: float = 1.0

    def __post_init__(self) -> None:
        check_number("phi", self.phi, 0.0, 1.0, closed=False)
        check_number("delta", self.delta, 0.0, 1.0, closed=True)
        if self.rho is not None:
            check_number("rho", self.rho, 0.0, 1.0, closed=True)
        check_number("initial_experience", self.initial_experience, 0.0, 1e9, closed=True)

    @property
    def unit(self) -> float:
        """The largest attraction where payoffs reach 1 (`EWA.unit`)."""
        return self.delta / self.phi if self.rho is None and self.delta else 1.0

    def bound(self, channel: str, payoff_bound: float) -> tuple[float, float]:
        """The least and the largest value of a channel, where |r̃| <= payoff_bound.

        The canonical attraction is S / N with N >= Σ (1 - ρ)^k, so its bound grows by ρ / φ where ρ > φ.
        """
        if channel == "count":
            return 0.0, 1.0
        if channel == "balance" and self.rho is None and not self.delta:
            return 0.0, 0.0
        most = payoff_bound
        if channel == "balance" and self.rho is not None:
            most *= max(1.0, self.rho / self.phi)
        return -most, most


class NumpyLedger:
    """All accounts of n actors that act in parallel; starts at zero."""

    def __init__(self, num_codes: int, actors: int, rule: RuleNumbers, *, foregone: bool = False) -> None:
        self.num_codes = check_count("num_codes", num_codes, 1)
        self.actors = check_count("actors", actors, 1)
        self.rule, self._is_canonical = rule, rule.rho is not None
        self._table: Floats = np.zeros((3 if foregone else 2, actors, num_codes))  # S, C and perhaps F
        self._name_rows()
        self._begins = num_codes * np.arange(actors)[:, None]  # (actors, 1): where each actor's accounts begin
        self._experience = np.full((actors, 1), rule.initial_experience)
        self._retention = np.array(1.0 - rule.phi)
        self._averaging = np.array(rule.delta / rule.unit)  # from S to the balance, under the paper's rule
        self._posts = 0

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._name_rows()  # pickled or copied, they would be arrays of their own

    @property
    def attractions(self) -> Floats:
        """A, (actors, num_codes), as the ledger of PyTorch has them."""
        attractions: Floats = self._balanced * self._scale()
        return attractions

    def post(self, codes: Array, amounts: Array, active: Array | None = None, visits: Array | None = None) -> None:
        """Decay every account, and enter each actor's amount (actors,) under its codes (actors, codes per action).

        Where `active` (actors,) is False nothing happens. Codes of one action must differ, as a codebook's do. The
        amount is the payoff and counts as 1 visit; of one that comes late it is what is left of it by now, as `visits`
        (actors,) are: 0 where nothing is entered.
        """
        if active is None:
            self._table *= self._retention
            index = codes + self._begins  # (actors, codes per action)
            active_rows: Any = slice(None)
        else:
            active_rows = np.flatnonzero(active)
            self._table[:, active_rows] *= self._retention
            index = codes[active_rows] + self._begins[active_rows]
        self._all_sums[index] += amounts[active_rows, None]
        self._all_counts[index] += 1.0 if visits is None else visits[active_rows, None]
        self._posts += 1
        self._after_post(active_rows)

    def post_one(self, codes: Sequence[int], amount: float, visit: float = 1.0) -> None:
        """`post` for a single actor and the codes of its action: without arrays, which takes half the time."""
        np.multiply(self._table, self._retention, self._table)
        sums, counts = self._all_sums, self._all_counts
        for code in codes:
            sums[code] += amount
            counts[code] += visit
        self._posts += 1
        if self._is_canonical or self._posts % SWEEP_EVERY == 0:
            self._after_post(slice(None))

    def enter_foregone(self, codes: Array, payoffs: Array, foregone: Array, active: Array) -> None:
        """After `post`: payoffs of all codes (actors, num_codes), in a ledger that keeps them. Actions have one code.

        Those of the codes (actors, 1) that were taken are the payoffs (actors,) themselves.
        """
        entered = self.rule.delta * foregone
        np.put_along_axis(entered, codes, payoffs[:, None], axis=1)
        self._table[2, active] += entered[active]

    def enter_foregone_one(self, code: int, payoff: float, foregone: Array) -> None:
        """`enter_foregone` for a single actor: foregone (num_codes,)."""
        entered = self.rule.delta * foregone
        entered[code] = payoff
        self._table[2, 0] += entered

    def reset(self, actors: Array | None = None) -> None:
        """Empty the accounts of all actors, or of those where `actors` (actors,) is True."""
        rows: Any = slice(None) if actors is None else actors
        self._table[:, rows] = 0.0
        self._experience[rows] = self.rule.initial_experience

    def read(self, channel: str, payoff_bound: float = math.inf, out: Floats | None = None) -> Floats:
        """One channel, (actors, num_codes), in an array of the caller's own: `out`, or a new one.

        balance: A over its unit. count: 1 - 1/√(1 + C), 0 where untried: the standard error of a
        mean is what is missing to 1, so that a linear map of mean and count has UCB's shape. mean: S / C, 0 where
        untried. Rounding must not lead out of the bounds that payoffs of `payoff_bound` have.
        """
        values: Floats
        if channel == "count":
            values = np.add(self.counts, ONE, out)
            np.sqrt(values, values)
            np.reciprocal(values, values)
            np.subtract(ONE, values, values)
            return values
        if channel == "balance":
            values = np.multiply(self._balanced, self._scale() if self._is_canonical else self._averaging, out)
        else:
            values = np.maximum(self.counts, LEAST_COUNT, out=out)
            np.divide(self.sums, values, values)  # S is 0 where C is
        if payoff_bound < math.inf:
            low, high = self.rule.bound(channel, payoff_bound)
            np.maximum(values, low, out=values)
            np.minimum(values, high, out=values)
        return values

    def _name_rows(self) -> None:
        self.sums: Floats = self._table[0]
        """S, (actors, num_codes): of payoffs that were received."""
        self.counts: Floats = self._table[1]
        """C, (actors, num_codes)."""
        self._all_sums, self._all_counts = self.sums.reshape(-1), self.counts.reshape(-1)  # (actors * num_codes,)
        self._balanced: Floats = self._table[2] if len(self._table) == 3 else self.sums  # balances are of F or S

    def _after_post(self, rows: Any) -> None:
        if self.rule.rho is not None:
            self._experience[rows] *= 1.0 - self.rule.rho
            self._experience[rows] += 1.0
        if self._posts % SWEEP_EVERY == 0:
            self._table[:2, self.counts < FORGOTTEN] = 0.0
            if self._balanced is not self.sums:
                self._table[2, np.abs(self._table[2]) < FORGOTTEN] = 0.0

    def _scale(self) -> Any:
        """A over S: δ, or 1 / N of each actor, (actors, 1). N is at least 1 from the first post on, and S 0 before."""
        return self.rule.delta if self.rule.rho is None else 1.0 / np.maximum(self._experience, 1.0)
