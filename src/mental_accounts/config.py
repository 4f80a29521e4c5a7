"""The options of networks and runs: frozen dataclasses with a docstring per field, validated on construction."""

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
from mental_accounts.value_options import Improve, ValueConfig

Method = Literal["bc", "gru", "dt", "odt", "ewa-vq-odt", "ledger-odt"]
Likelihood = Literal["clipped", "squashed"]
RewardInput = Literal["auto", "none", "state", "advantage"]
Windows = Literal["auto", "steps", "episodes"]
OptimizerName = Literal["lamb", "adamw"]
Precision = Literal["auto", "float32", "bf16"]
Targets = Literal["task", "replay"]
MOST_STEPS = 10_000_000
"""Steps of exploration in one iteration, at most."""
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
    """Recurrent layers of gru."""
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
        _check_inputs(self.method, self)
        _check_bias(self.method, self.accounts)
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


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One run: a task, a method, and how to train it, offline and then online."""

    task: str | None = "hopper-medium"
    """Offline data and their environment, by name (see `mental-accounts data list`). None: online from scratch."""
    env_id: str | None = None
    """A Gymnasium environment; None: the task's."""
    method: Method = "ewa-vq-odt"
    """bc, gru, dt, odt, ewa-vq-odt (the paper's) or ledger-odt."""
    improve: Improve = "none"
    """none: the policy learns from the actions in its data alone. td3: it also follows the gradient of critics, who
    learn what actions are worth; for every method."""
    seed: int = 0
    """Seed of everything random: weights, windows, exploration, environments. Runs with equal seeds are paired across
    methods."""
    data_steps: int | None = None
    """Number of offline steps; None: the task's default."""
    data_seed: int = 0
    """Seed of the offline data."""
    held_out: float = 0.0
    """Share of the offline trajectories that are not learned from. The policy is measured on them after every
    pretraining iteration, and pretraining ends with the weights that were best there. 0: none."""
    patience: int | None = None
    """With held_out: pretraining ends early once so many iterations in a row were no better; None: never."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The network."""
    values: ValueConfig = field(default_factory=ValueConfig)
    """The critics; used with improve td3."""

    optimizer: OptimizerName = "lamb"
    """LAMB (as in ODT's code) or AdamW (the paper says Adam)."""
    lr: float = 1e-4
    """Learning rate after warm-up."""
    weight_decay: float = 5e-4
    """Weight decay."""
    warmup_updates: int = 10_000
    """Updates of linear learning-rate warm-up."""
    anneal: bool = False
    """Whether learning rates, those of critics too, fall linearly to 0 at the run's last update."""
    grad_clip: float = 0.25
    """Gradients are clipped to this global norm."""
    batch_size: int = 256
    """Windows per update."""
    initial_lambda: float = 0.1
    """Initial λ, the multiplier of the entropy constraint (the paper's "initial temperature")."""
    lambda_lr: float = 1e-4
    """Learning rate of λ (Adam)."""
    target_entropy: float | None = None
    """Lower bound on the entropy; None: minus the number of action dimensions, or 0.2 log n for n discrete actions."""

    pretrain_iterations: int = 1
    """Offline iterations, one line of metrics each."""
    updates_per_pretrain_iteration: int = 5_000
    """Updates per pretraining iteration."""
    pretrain_eval_every: int = 1
    """Evaluate every this many pretraining iterations, and after the last; 0: never."""
    online_iterations: int = 1_500
    """Online iterations: explore, then learn."""
    episodes_per_iteration: int = 1
    """Exploration episodes per online iteration, played in parallel."""
    steps_per_iteration: int = 0
    """Explore for at least this many steps per online iteration, in as many rounds of episodes as that takes."""
    updates_per_iteration: int = 300
    """Updates per online iteration."""
    eval_every: int = 10
    """Evaluate every this many online iterations, and after the last."""
    eval_episodes: int = 10
    """Episodes per evaluation, played in parallel with the mean action."""
    eval_sampled: bool = False
    """Whether the last evaluation of a run is played again with sampled actions, from the same beginnings."""
    replay_size: int = 1_000
    """Trajectories in the replay buffer: initially the best offline ones; first in, first out."""
    random_episodes: int = 20
    """Initial episodes of random actions, if there are no offline data."""
    targets: Targets = "task"
    """Where target returns come from that are not given here. task: those published for the task, if there are any.
    replay: the returns in the replay buffer, so that they rise with what has been reached; better where the data are
    far below what is published."""
    target_return: float | None = None
    """Target return in evaluation; None: the task's, else the return that 5% of the episodes in the replay exceed."""
    exploration_return: float | None = None
    """Target return while exploring; None: the task's, else as far above the evaluation target as that is above the
    median, but at most the best return in the replay."""

    device: str = "auto"
    """auto: a GPU if there is one."""
    precision: Precision = "auto"
    """auto: bf16 if the device has instructions for it."""
    compile: bool | None = None
    """Compile updates with torch.compile; None: on a GPU, for runs of at least 20,000 updates."""
    env_workers: int | None = None
    """Extra processes that step environments; the run's own process takes a share too. 0: none. None: as many as save
    time, given the duration of a step and the available cores. The episodes do not depend on it."""
    checkpoint_seconds: float = 60.0
    """Write a checkpoint at least this often; also at the end, and when stopped by a signal."""

    def __post_init__(self) -> None:
        settle_types(self)
        for name in ("method", "improve", "optimizer", "targets", "precision"):
            check_choice(self, name)
        if self.task is None and self.env_id is None:
            raise ValueError("give a task or an env_id: there is nothing to learn from otherwise")
        if self.method not in WITH_ACCOUNTS and self.model.accounts.ledger_input != "none":
            raise ValueError(
                f"method {self.method} keeps no accounts, so there is no ledger to read; set accounts.ledger_input to "
                "'none', or method to ledger-odt"
            )
        _check_inputs(self.method, self.model)
        _check_bias(self.method, self.model.accounts)
        if self.pays_td_errors and self.improve == "none":
            raise ValueError(
                "accounts.credit 'td' is computed by critics, and there are none; set improve to 'td3', or "
                "accounts.credit to 'reward' or 'advantage'"
            )
        for name, least in _LEAST.items():
            check_count(name, getattr(self, name), least)
        if self.steps_per_iteration > MOST_STEPS:
            raise ValueError(f"steps_per_iteration must be at most {MOST_STEPS}, got {shown(self.steps_per_iteration)}")
        for name in ("lr", "grad_clip", "initial_lambda", "lambda_lr"):
            check_positive(name, getattr(self, name))
        check_number("weight_decay", self.weight_decay, 0.0, 1e6, closed=True)
        check_number("held_out", self.held_out, 0.0, 0.9, closed=True)
        check_number("checkpoint_seconds", self.checkpoint_seconds, 0.0, math.inf, closed=True)
        for name in ("target_return", "exploration_return", "target_entropy"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), -math.inf, math.inf, closed=False)
        for name, least in (("data_steps", 1), ("env_workers", 0), ("patience", 1)):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), least)
        if self.pretrain_iterations and self.task is None:
            object.__setattr__(self, "pretrain_iterations", 0)  # nothing to learn from offline
        if self.held_out and not self.pretrain_iterations:
            raise ValueError(
                "held_out chooses among the policies of pretraining, and there is none; give a task and "
                "pretrain_iterations, or leave it out"
            )
        if self.patience is not None and not self.held_out:
            raise ValueError(
                "patience is measured on trajectories that are held out, and there are none; set held_out, say to 0.1"
            )
        if self.pretrain_iterations + self.online_iterations == 0:
            raise ValueError(
                "there is nothing to do: online_iterations is 0, and so is pretrain_iterations (as always without "
                "a task)"
            )

    @property
    def total_updates(self) -> int:
        """Total number of updates, pretraining and online."""
        pretraining = self.pretrain_iterations * self.updates_per_pretrain_iteration
        return pretraining + self.online_iterations * self.updates_per_iteration

    @property
    def pays_td_errors(self) -> bool:
        """Whether the accounts are credited with TD errors of the critics."""
        return self.method in WITH_ACCOUNTS and self.model.accounts.credit == "td"

    def for_method(self, method: Method) -> Self:
        """The same configuration for another method, without what this method does not have.

        From ledger-odt, ewa-vq-odt is the published method: the default β, and the ledger is not read.
        """
        accounts, model = self.model.accounts, self.model
        if method not in WITH_ACCOUNTS:
            accounts = replace(accounts, ledger_input="none")
        elif method == "ledger-odt":
            accounts = replace(accounts, ledger_input="state", **OF_THE_BIAS)
        elif self.method == "ledger-odt":
            accounts = replace(accounts, ledger_input="none", **OF_THE_BIAS)
        if method == "bc":
            model = replace(model, reward_input="none" if model.reward_input in REWARDS_READ else model.reward_input)
            model = replace(model, return_input=None)
        elif method == "gru":
            model = replace(model, windows="auto" if model.windows == "steps" else model.windows)
        else:
            model = replace(model, return_input=model.return_input or None)
        return replace(self, method=method, model=replace(model, accounts=accounts))

    def for_task(self, task: str) -> Self:
        """The same configuration for another task, which has an environment of its own."""
        return self if task == self.task else replace(self, task=task, env_id=None)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """The inverse of `to_dict`; errors name unknown, missing and mistyped fields."""
        return config_from_dict(cls, values)


def _check_inputs(method: Method, model: ModelConfig) -> None:
    """Refuse inputs and windows that a method does not have."""
    if method == "bc" and (model.reward_input in REWARDS_READ or model.return_input):
        name, off = ("reward_input", "'none'") if model.reward_input in REWARDS_READ else ("return_input", "None")
        raise ValueError(f"method bc reads the state alone; set {name} to {off}, or method to dt")
    if method in TRANSFORMERS and model.return_input is False:
        raise ValueError(f"method {method} always reads the return-to-go; leave return_input out, or set method to gru")
    if method == "gru" and model.windows == "steps":
        raise ValueError("method gru learns from whole episodes; set windows to 'auto' or 'episodes'")


def _check_bias(method: Method, accounts: AccountsConfig) -> None:
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


_LEAST = {
    "warmup_updates": 1,
    "batch_size": 1,
    "pretrain_iterations": 0,
    "updates_per_pretrain_iteration": 1,
    "pretrain_eval_every": 0,
    "online_iterations": 0,
    "episodes_per_iteration": 1,
    "steps_per_iteration": 0,
    "updates_per_iteration": 1,
    "eval_every": 1,
    "eval_episodes": 1,
    "replay_size": 1,
    "random_episodes": 1,
}
