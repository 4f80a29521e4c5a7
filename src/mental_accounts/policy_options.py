"""The options of a network and of a policy: frozen dataclasses with a docstring per field, validated when made."""

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

from mental_accounts.account_options import OF_THE_BIAS, AccountsConfig
from mental_accounts.action_spec import MOST, ActionSpec
from mental_accounts.fields import check_choice, config_from_dict, settle_types, shown
from mental_accounts.number_checks import check_count, check_number, check_positive
from mental_accounts.observation_spec import ObservationPart, check_observation

Method = Literal["bc", "gru", "dt", "odt", "ewa-vq-odt", "ledger-odt"]
Likelihood = Literal["clipped", "squashed"]
RewardInput = Literal["auto", "none", "state", "advantage"]
Windows = Literal["auto", "steps", "episodes"]
Precision = Literal["auto", "float32", "bf16"]
WITH_ACCOUNTS: tuple[Method, ...] = ("ewa-vq-odt", "ledger-odt")
"""The methods that keep mental accounts."""
TRANSFORMERS: tuple[Method, ...] = ("dt", "odt", *WITH_ACCOUNTS)
"""The methods whose network is a transformer."""
REWARDS_READ: tuple[RewardInput, ...] = ("state", "advantage")
"""Values of `reward_input` with which the previous reward is read, whatever the method."""


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The network: one transformer for all methods but bc, an MLP, and gru, a recurrent network.

    bc uses only `hidden` and `inner`; gru has `gru_layers` and `episode_length` in place of `layers` and
    `context_length`. Fields that are None are set by the task.
    """

    hidden: int = 512
    """Width of the token embeddings, and of a recurrent state."""
    layers: int = 4
    """Transformer blocks."""
    heads: int = 4
    """Attention heads per block."""
    inner: int | None = None
    """Width of the hidden layer in a block's MLP, and of both layers of bc; None: 4 × hidden."""
    gru_layers: int = 1
    """Recurrent layers of gru, and of its critics."""
    dropout: float = 0.1
    """Dropout of embeddings, attention weights and residual branches (gru: of embeddings and between layers) while
    training."""
    context_length: int = 20
    """K: steps in the policy's context."""
    eval_context_length: int | None = None
    """Steps in the context while acting; None: the task's (ODT acts with 5 on walker2d) if windows begin at any step,
    else context_length."""
    windows: Windows = "auto"
    """Where windows of training begin. steps: at any step, each equally likely, as in ODT. episodes: at an episode's
    first step; longer episodes are learned from in pieces, each equally likely. auto: episodes for gru, else steps."""
    episode_length: int = 1000
    """gru learns from up to so many steps of an episode at a time, with gradients through all of them. Pieces of longer
    episodes are read from as many steps before them on, so that they do not begin with an empty state."""
    timestep_embedding: bool | None = None
    """Whether tokens carry an embedding of the absolute timestep; None: the task's setting (ODT: hopper yes, walker2d
    no), else no."""
    max_timestep: int = 1000
    """Number of timestep embeddings; later timesteps share the last one."""
    order_embedding: bool = False
    """Whether tokens carry an embedding of their position in the context."""
    return_scale: float | None = None
    """Returns-to-go are multiplied by this; None: 0.001 for tasks with published settings (as ODT), else 1 over the
    largest absolute return-to-go of the data."""
    return_range: tuple[float, float] | None = None
    """While acting, returns-to-go are clipped to these bounds, widened to include the target return; None: the range in
    the data, or no bounds for tasks with published settings (as ODT)."""
    reward_input: RewardInput = "auto"
    """state: the policy also reads the previous reward, standardised on the data, by a linear map added to the state
    token. advantage: the same, with the reward minus what the state that it came in lets expect, by a ridge regression
    fitted on the data (as accounts.credit advantage has it). none: it does not. auto: state for gru, none for the
    others."""
    return_input: bool | None = None
    """Whether gru reads the return-to-go; None: no. Transformers always do, bc never does."""
    gamma: float = 1.0
    """γ: discount factor of returns-to-go."""
    likelihood: Likelihood = "clipped"
    """The distribution of box actions (not of dt and bc). clipped: a Gaussian clipped to the bounds, its log-likelihood
    weighted by σ² at each step. squashed: a Gaussian squashed by tanh, unweighted, as in ODT."""
    encoder: str | None = None
    """The network that makes vectors of images in observations: conv, or the name of one that was registered. None:
    there are no images."""
    accounts: AccountsConfig = field(default_factory=AccountsConfig)
    """The mental accounts; used by methods ewa-vq-odt and ledger-odt."""

    def __post_init__(self) -> None:
        settle_types(self)
        for name in ("hidden", "layers", "heads", "gru_layers", "context_length", "episode_length", "max_timestep"):
            object.__setattr__(self, name, check_count(name, getattr(self, name), 1))
        if self.max_timestep > MOST:
            raise ValueError(f"max_timestep must be at most 2**53, got {shown(self.max_timestep)}")
        if self.inner is not None:
            check_count("inner", self.inner, 1)
        if self.encoder is not None and not (isinstance(self.encoder, str) and self.encoder):
            raise TypeError(
                f"encoder must be the name of an encoder, such as 'conv', or None, got {shown(self.encoder)}"
            )
        if self.hidden % self.heads:
            raise ValueError(f"hidden must be a multiple of heads = {self.heads}, got {self.hidden}")
        for name in ("reward_input", "windows", "likelihood"):
            check_choice(self, name)
        check_number("dropout", self.dropout, 0.0, 0.999, closed=True)
        check_number("gamma", self.gamma, 1e-6, 1.0, closed=True)
        if self.return_scale is not None:
            check_positive("return_scale", self.return_scale)
        if self.return_range is not None:
            object.__setattr__(self, "return_range", _checked_range("return_range", self.return_range))
        if self.eval_context_length is not None:
            check_count("eval_context_length", self.eval_context_length, 1)
            if self.eval_context_length > self.context_length:
                raise ValueError(
                    f"eval_context_length must be at most context_length = {self.context_length}, "
                    f"got {self.eval_context_length}"
                )


@dataclass(frozen=True, kw_only=True)
class PolicyConfig(ModelConfig):
    """A transformer policy for one environment: the network, the spaces, and the method."""

    state_dim: int
    """Size of a (flat) observation."""
    action: ActionSpec
    """The action space."""
    observation: tuple[ObservationPart, ...] = ()
    """What the environment's own observations are made of, where they are no flat vectors: `policy.act` flattens
    them."""
    action_masks: bool = False
    """Whether the environment says at every step which of its discrete actions are allowed: others are never taken."""
    method: Method = "ewa-vq-odt"
    """dt: supervised learning only, with deterministic actions (categorical if actions are discrete). odt: a
    distribution over actions with an entropy constraint. ewa-vq-odt: odt with mental accounts that bias its attention,
    as published. ledger-odt: odt that reads the balances of all its accounts, without a bias. gru: as odt, with a
    recurrent network over whole episodes that reads the state, the previous action and the previous reward. bc:
    behaviour cloning with an MLP on the state alone, the baseline of all the others."""
    timestep_embedding: bool = True
    """Whether tokens carry an embedding of the absolute timestep."""
    return_scale: float = 0.001
    """Returns-to-go are multiplied by this."""

    def __post_init__(self) -> None:
        check_choice(self, "method")
        check_count("state_dim", self.state_dim, 1)
        check_observation(self.observation, self.state_dim, encoder=self.encoder)
        super().__post_init__()
        check_inputs(self.method, self)
        check_bias(self.method, self.accounts)
        if self.method == "ledger-odt":  # the name says it
            object.__setattr__(self, "accounts", replace(self.accounts, ledger_input="state"))
        if self.enters_foregone and self.action.kind != "discrete":
            raise ValueError("accounts.foregone needs discrete actions, whose payoffs info['foregone'] can list")
        if self.reads_advantages and self.has_images:
            raise ValueError(
                "reward_input 'advantage' compares rewards by a regression on the numbers of a state, and images have "
                "too many; set it to 'state'"
            )
        if self.action_masks and not self.action.is_discrete:
            raise ValueError("action_masks need discrete actions: each has a flag that says whether it is allowed")
        if self.accounts.window_steps and not self.acting_context <= self.accounts.window_steps <= self.context_length:
            raise ValueError(
                f"accounts.window_steps must be 0, or from the acting context of {self.acting_context} steps to "
                f"context_length = {self.context_length}, got {self.accounts.window_steps}"
            )

    @property
    def has_accounts(self) -> bool:
        """Whether the policy keeps mental accounts."""
        return self.method in WITH_ACCOUNTS

    @property
    def has_bias(self) -> bool:
        """Whether the accounts bias the attention."""
        return self.method == "ewa-vq-odt"

    @property
    def has_images(self) -> bool:
        """Whether there are images in its observations, which the encoder reads."""
        return any(part.is_image for part in self.observation)

    @property
    def state_features(self) -> int:
        """Numbers of a state as the network reads it: those of the observation, with `hidden` for each image."""
        parts = self.observation if self.has_images else ()
        return sum(self.hidden if part.is_image else part.size for part in parts) or self.state_dim

    @property
    def is_transformer(self) -> bool:
        """Whether the policy is a transformer over windows."""
        return self.method in TRANSFORMERS

    @property
    def is_recurrent(self) -> bool:
        """Whether the policy carries a state from step to step."""
        return self.method == "gru"

    @property
    def is_constrained(self) -> bool:
        """Whether it maximises likelihood under an entropy constraint; dt and bc fit a regression."""
        return self.method not in ("bc", "dt")

    @property
    def reads_rewards(self) -> bool:
        """Whether the previous reward is an input."""
        return self.reward_input in REWARDS_READ or (self.reward_input == "auto" and self.is_recurrent)

    @property
    def reads_advantages(self) -> bool:
        """Whether that reward is compared with what its state lets expect."""
        return self.reward_input == "advantage"

    @property
    def reads_returns(self) -> bool:
        """Whether the return-to-go is an input."""
        return self.is_transformer or bool(self.return_input)

    @property
    def learns_episodes(self) -> bool:
        """Whether windows of training begin at an episode's first step."""
        return self.windows == "episodes" or (self.windows == "auto" and self.is_recurrent)

    @property
    def reads_ledger(self) -> bool:
        """Whether the balances of all accounts are an input."""
        return self.has_accounts and self.accounts.ledger_input != "none"

    @property
    def enters_foregone(self) -> bool:
        """Whether the accounts enter the payoffs of actions not taken."""
        return self.has_accounts and self.accounts.foregone

    @property
    def acting_context(self) -> int:
        """Steps in the context while acting; a recurrent policy holds the steps before the last one in its state."""
        return 1 if self.is_recurrent else self.eval_context_length or self.context_length

    @property
    def account_window(self) -> int:
        """How many steps back accounts of scope `window` reach while acting."""
        steps = self.accounts.window_steps
        return self.context_length if steps is None else steps or self.acting_context

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`; errors name unknown, missing and mistyped fields."""
        return config_from_dict(cls, values)


def check_inputs(method: Method, model: ModelConfig) -> None:
    """Refuse inputs and windows that a method does not have."""
    if method == "bc" and (model.reward_input in REWARDS_READ or model.return_input):
        name, off = ("reward_input", "'none'") if model.reward_input in REWARDS_READ else ("return_input", "None")
        raise ValueError(f"method bc reads the state alone; set {name} to {off}, or method to dt")
    if method in TRANSFORMERS and model.return_input is False:
        raise ValueError(f"method {method} always reads the return-to-go; leave return_input out, or set method to gru")
    if method == "gru" and model.windows == "steps":
        raise ValueError("method gru learns from whole episodes; set windows to 'auto' or 'episodes'")


def check_bias(method: Method, accounts: AccountsConfig) -> None:
    """Refuse options of the bias where there is none; a β of 0 says the same as no bias."""
    for name, unused in OF_THE_BIAS.items():
        value = getattr(accounts, name)
        if method == "ledger-odt" and value != unused and not (name == "beta" and value == 0):
            raise ValueError(
                f"method ledger-odt has no attention bias, so accounts.{name} {value!r} has no effect; leave it at "
                f"{unused!r}, or set method to ewa-vq-odt (with accounts.ledger_input 'state' it reads its ledger too)"
            )


def _checked_range(name: str, bounds: Sequence[float]) -> tuple[float, float]:
    """Two finite numbers in order, as plain floats; anything else is refused."""
    numbers_ = [bound for bound in bounds if isinstance(bound, numbers.Real) and math.isfinite(bound)]
    if len(bounds) != 2 or len(numbers_) != 2 or bounds[0] > bounds[1]:
        raise ValueError(f"{name} must be two finite numbers, the lower first, got {tuple(bounds)}")
    return float(bounds[0]), float(bounds[1])
