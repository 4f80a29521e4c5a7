"""The options of mental accounts: a frozen dataclass with a docstring per field, validated on construction."""

import math
from dataclasses import dataclass
from typing import Any, Literal

from mental_accounts.account_kinds import BOX_CODEBOOKS, RewardKind
from mental_accounts.action_spec import MOST
from mental_accounts.channels import MOST_DELAY, check_channels
from mental_accounts.fields import check_choice, settle_types, shown
from mental_accounts.number_checks import check_count, check_number, check_positive

AccountScope = Literal["trajectory", "window"]
"""Accounts begin empty with each trajectory, or with each window of a policy's context."""


@dataclass(frozen=True)
class AccountsConfig:
    """The mental accounts of a policy: how actions are routed and credited, and how balances are read."""

    codebook: str = "grid"
    """How box actions are routed to codes: grid, algorithm2, product, hierarchical or kmeans. Discrete actions are
    their own codes."""
    bins: int = 3
    """Grid points per dimension (grid, product)."""
    num_codes: int | None = 27
    """Number of codes, at most: the first cells of a grid (the paper's appendix), the codes requested from Algorithm 2,
    or the k-means centres. None: every cell of the grid."""
    groups: int = 2
    """Groups of dimensions, each with a grid and accounts of its own (product)."""
    coarse_bins: int = 2
    """Grid points per dimension of the coarse grid; the fine one has `bins` (hierarchical)."""
    soft_codes: int = 1
    """An action is entered under this many of the nearest codes, with weights that sum to 1. 1: the paper's routing."""
    soft_width: float = 0.5
    """The width of those weights: a Gaussian of the distance to a code's centre, in units of [-1, 1]."""
    state_codes: int = 1
    """Number of state clusters, fitted on data, each with accounts of its own: codes of state × action. 1: accounts of
    actions alone."""
    rule: Literal["ewa", "canonical"] = "ewa"
    """ewa: the paper's update. canonical: the update of Camerer and Ho (1999)."""
    phi: float = 0.05
    """φ: the share of every balance forgotten at each step."""
    delta: float = 0.8
    """δ: the weight of the reward of the action taken (ewa); of foregone payoffs (canonical)."""
    rho: float = 0.05
    """ρ: the share of experience forgotten at each step (canonical)."""
    reward_transform: RewardKind = "standardised"
    """How rewards become payoffs, using the mean and standard deviation of the offline data. The paper used raw
    rewards."""
    reward_clip: float | None = 1.0
    """R: payoffs are clipped to ±R, so that no balance exceeds δR/φ. None: no clip (the paper)."""
    credit: Literal["reward", "advantage", "td"] = "reward"
    """What is posted: the reward; the advantage, the reward minus a state baseline fitted on the data; or the TD error
    r + γV(s') - V(s), by the critics of improve td3, whose V is renewed before every iteration."""
    account_scope: AccountScope = "trajectory"
    """trajectory: balances last the whole episode. window: balances cover only the last context_length steps, starting
    from zero (the authors' code)."""
    window_steps: int | None = None
    """How many steps back accounts of scope `window` reach while acting, from the acting context to context_length.
    None: context_length, as in training. 0: the acting context."""
    read: Literal["then", "now"] = "then"
    """then: each action column carries the balance right after that action (Eq. 10). now: the balance at the row's
    time."""
    ledger_input: Literal["none", "state"] = "none"
    """state: the policy also reads all current balances, by a linear map added to the state token. none: it does not.
    ledger-odt always reads them: none becomes state. ewa-vq-odt has its bias too, unless β is 0."""
    ledger_channels: tuple[Literal["balance", "count", "mean"], ...] = ("balance",)
    """What the policy reads of each code: its balance, how often it was taken lately, and its mean payoff."""
    reward_delay: int = 0
    """Rewards come this many steps late: each is posted under the action taken so many steps before, with the weight it
    would have had by then."""
    foregone: bool = False
    """Whether the payoffs of actions not taken, which the environment reports in info["foregone"], are entered as well,
    weighted by δ (canonical, discrete actions)."""
    beta: float = 0.05
    """β: the scale of the attention bias, or its initial value if it is learned. (ledger-odt has no bias: `read` and
    the fields from here on stay at their defaults, or β at 0.)"""
    beta_learned: bool = False
    """Whether β is a learned parameter."""
    beta_per: Literal["model", "layer", "head", "layer-head", "token"] = "model"
    """One β for all, or one per layer, per head, or per layer and head; or per token, from a learned linear map of the
    token."""
    bias_clip: float | None = None
    """ε: the bias is clipped to ±ε, which bounds attention drift by tanh(ε/2). None: no clip."""

    def __post_init__(self) -> None:
        settle_types(self)
        for name in _ACCOUNT_CHOICES:
            check_choice(self, name)
        if self.codebook not in list(BOX_CODEBOOKS):  # which need not be hashable
            raise ValueError(f"codebook must be one of {list(BOX_CODEBOOKS)}, got {shown(self.codebook)}")
        for name, least in (("bins", 2), ("groups", 1), ("coarse_bins", 2), ("soft_codes", 1), ("state_codes", 1)):
            check_count(name, getattr(self, name), least)
            if getattr(self, name) > MOST:
                raise ValueError(f"{name} must be at most 2**53, got {shown(getattr(self, name))}")
        check_positive("soft_width", self.soft_width)
        kind = BOX_CODEBOOKS[self.codebook]
        if kind.needs_num_codes and self.num_codes is None:
            raise ValueError(f"num_codes must be given for codebook {self.codebook!r}, got None")
        if kind.needs_coarse_bins and self.coarse_bins >= self.bins:
            raise ValueError(f"coarse_bins must be below bins = {self.bins}, got {self.coarse_bins}")
        if self.soft_codes > 1 and kind.has_groups:
            raise ValueError(
                f"soft_codes must be 1 with codebook {self.codebook!r}, whose actions have several codes already, "
                f"got {self.soft_codes}"
            )
        if self.soft_codes > 1 and self.read == "now":
            raise ValueError("soft_codes > 1 cannot be read 'now': a row would need every code's balance; use 'then'")
        if self.beta_per == "token" and not self.beta_learned:
            raise ValueError("beta_per 'token' is a learned map of the token; set beta_learned too")
        if self.window_steps is not None:
            check_count("window_steps", self.window_steps, 0)
        object.__setattr__(self, "ledger_channels", check_channels(self.ledger_channels))
        self._check_late_and_foregone()
        if self.num_codes is not None:
            check_count("num_codes", self.num_codes, 1)
        check_number("phi", self.phi, 0.0, 1.0, closed=False)
        check_number("delta", self.delta, 0.0, 1.0, closed=True)
        check_number("rho", self.rho, 0.0, 1.0, closed=True)
        check_number("beta", self.beta, -math.inf, math.inf, closed=False)
        for name in ("reward_clip", "bias_clip"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))

    def _check_late_and_foregone(self) -> None:
        if check_count("reward_delay", self.reward_delay, 0) > MOST_DELAY:
            raise ValueError(f"reward_delay must be at most {MOST_DELAY} steps, got {shown(self.reward_delay)}")
        if (self.reward_delay or self.foregone) and self.read == "now":
            raise ValueError(
                "read 'now' needs rewards on time, of actions taken: use 'then' with reward_delay or foregone"
            )
        if self.reward_delay and self.credit != "reward":
            raise ValueError(
                f"credit {self.credit!r} compares a reward with the state that it came in: use 'reward' with "
                f"reward_delay = {self.reward_delay}"
            )
        if self.foregone and (self.rule != "canonical" or self.reward_delay or self.state_codes > 1):
            raise ValueError(
                "foregone payoffs need rule 'canonical', reward_delay 0 and state_codes 1, got "
                f"{self.rule!r}, {self.reward_delay} and {self.state_codes}"
            )
        if self.foregone and self.credit != "reward":
            raise ValueError("foregone payoffs are rewards: use credit 'reward' with them")


OF_THE_BIAS: dict[str, Any] = {
    name: AccountsConfig.__dataclass_fields__[name].default
    for name in ("beta", "beta_learned", "beta_per", "bias_clip", "read")
}
"""Fields of the bias alone, at their defaults."""
_ACCOUNT_CHOICES = ("rule", "reward_transform", "credit", "account_scope", "read", "ledger_input", "beta_per")
