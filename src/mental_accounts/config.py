"""What can be chosen: frozen dataclasses, each field documented, validated once when made."""

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

from mental_accounts.accounts.codebooks import BOX_CODEBOOKS, CODEBOOKS
from mental_accounts.accounts.rewards import RewardKind
from mental_accounts.checks import check_count, check_number, check_positive
from mental_accounts.fields import check_choice, config_from_dict, settle_types, shown

Method = Literal["bc", "dt", "odt", "ewa-vq-odt"]
Likelihood = Literal["clipped", "squashed"]
AccountScope = Literal["trajectory", "window"]
OptimizerName = Literal["lamb", "adamw"]
Precision = Literal["auto", "float32", "bf16"]
MOST = 2**53
"""Whole numbers beyond it are no floats any more."""


@dataclass(frozen=True)
class ActionSpec:
    """The action space of an environment: a box with finite bounds, or a number of discrete actions."""

    kind: Literal["box", "discrete"]
    """box: real vectors; discrete: whole numbers."""
    size: int
    """Dimensions of a box; number of discrete actions."""
    low: tuple[float, ...] = ()
    """Lower bounds of a box; actions are rescaled to [-1, 1] on the way in and back on the way out."""
    high: tuple[float, ...] = ()
    """Upper bounds of a box."""
    start: int = 0
    """The smallest discrete action."""

    def __post_init__(self) -> None:
        check_choice(self, "kind")
        check_count("action.size", self.size, 1)
        if isinstance(self.start, bool) or not isinstance(self.start, numbers.Integral):
            raise TypeError(f"action.start must be a whole number, got {self.start!r}")
        if not -MOST <= self.start <= MOST:
            raise ValueError(f"action.start must be within ±2**53, got {shown(self.start)}")
        if self.kind == "box":
            if len(self.low) != self.size or len(self.high) != self.size:
                raise ValueError(
                    f"action.low and action.high must have {self.size} bounds each, "
                    f"got {len(self.low)} and {len(self.high)}"
                )
            for d, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
                if not (math.isfinite(low) and math.isfinite(high) and low < high):
                    raise ValueError(
                        f"action bounds must be finite with low < high, got [{low}, {high}] in dimension {d}"
                    )
            for name in ("low", "high"):  # plain numbers, whatever came: they are saved as JSON
                object.__setattr__(self, name, tuple(float(bound) for bound in getattr(self, name)))

    @property
    def is_discrete(self) -> bool:
        """Whether actions are whole numbers."""
        return self.kind == "discrete"


@dataclass(frozen=True)
class AccountsConfig:
    """The mental accounts of a policy: how actions are sorted, credited and read."""

    codebook: str = "grid"
    """How box actions are routed to codes: grid, algorithm2, product, hierarchical or kmeans. Discrete actions are
    their own codes."""
    bins: int = 3
    """Grid points per dimension (grid, product)."""
    num_codes: int | None = 27
    """At most this many codes: the first cells of a grid (the paper's appendix), Algorithm 2's request, the number of
    k-means centres. None: every cell of the grid."""
    groups: int = 2
    """Groups of dimensions, each with a grid and accounts of its own (product)."""
    coarse_bins: int = 2
    """Grid points per dimension of the coarse grid, beside the fine one of `bins` (hierarchical)."""
    soft_codes: int = 1
    """An action is entered under so many of the nearest codes, by weights that add up to 1. 1: the paper's routing."""
    soft_width: float = 0.5
    """The width of those weights: a Gaussian of the distance to a code's centre, in units of [-1, 1]."""
    state_codes: int = 1
    """Accounts for each of so many clusters of states, fitted on data: codes of state × action. 1: of actions alone."""
    rule: Literal["ewa", "canonical"] = "ewa"
    """The paper's update, or the one of Camerer and Ho (1999)."""
    phi: float = 0.05
    """φ: the share of every balance that is forgotten at each step."""
    delta: float = 0.8
    """δ: the weight of the reward of the action taken (ewa); of foregone payoffs (canonical)."""
    rho: float = 0.05
    """ρ: the share of experience forgotten at each step (canonical)."""
    reward_transform: RewardKind = "standardised"
    """How rewards become payoffs, by the offline data's mean and standard deviation. The paper ran raw rewards."""
    reward_clip: float | None = 1.0
    """R: payoffs are clipped to ±R, so that no balance exceeds δR/φ. None: no clip (the paper)."""
    credit: Literal["reward", "advantage"] = "reward"
    """What is posted: the reward, or what it is more than a baseline, learned on the data, expects in that state."""
    account_scope: AccountScope = "trajectory"
    """trajectory: balances last the whole episode. window: of the last context_length steps alone, at zero before them
    (the authors' code)."""
    window_steps: int | None = None
    """Steps that accounts of scope `window` reach back while acting, between those that are seen and context_length;
    None: context_length, as in training. 0: those that are seen."""
    read: Literal["then", "now"] = "then"
    """then: a column shows the balance right after its action (Eq. 10). now: the balance at the row's own time."""
    ledger_input: Literal["none", "state"] = "none"
    """Whether the policy reads all balances as they stand before it acts, by a linear map added to the state token. The
    bias is there as well, unless β is 0."""
    beta: float = 0.05
    """β: the scale of the attention bias, or its initial value where it is learned."""
    beta_learned: bool = False
    """Whether β is a parameter."""
    beta_per: Literal["model", "layer", "head", "layer-head", "token"] = "model"
    """One β for all, or one per layer, per head, per layer and head; or per token, by a learned linear map of it."""
    bias_clip: float | None = None
    """ε: the bias is clipped to ±ε, which bounds the drift of attention by tanh(ε/2). None: no clip."""

    def __post_init__(self) -> None:
        settle_types(self)
        for name in _ACCOUNT_CHOICES:
            check_choice(self, name)
        if self.codebook not in BOX_CODEBOOKS:
            raise ValueError(f"codebook must be one of {list(BOX_CODEBOOKS)}, got {shown(self.codebook)}")
        for name, least in (("bins", 2), ("groups", 1), ("coarse_bins", 2), ("soft_codes", 1), ("state_codes", 1)):
            check_count(name, getattr(self, name), least)
            if getattr(self, name) > MOST:
                raise ValueError(f"{name} must be at most 2**53, got {shown(getattr(self, name))}")
        check_positive("soft_width", self.soft_width)
        kind = CODEBOOKS[self.codebook]
        kind.check_options(self)
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
        if self.num_codes is not None:
            check_count("num_codes", self.num_codes, 1)
        check_number("phi", self.phi, 0.0, 1.0, closed=False)
        check_number("delta", self.delta, 0.0, 1.0, closed=True)
        check_number("rho", self.rho, 0.0, 1.0, closed=True)
        check_number("beta", self.beta, -math.inf, math.inf, closed=False)
        for name in ("reward_clip", "bias_clip"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))


_ACCOUNT_CHOICES = ("rule", "reward_transform", "credit", "account_scope", "read", "ledger_input", "beta_per")


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """The network: one transformer for dt, odt and ewa-vq-odt; of bc only `hidden` and `inner` are asked for.

    Fields that are None follow the task.
    """

    hidden: int = 512
    """Width of a token."""
    layers: int = 4
    """Transformer blocks."""
    heads: int = 4
    """Attention heads per block."""
    inner: int | None = None
    """Width inside the MLP of a block, and of both layers of bc; None: 4 × hidden."""
    dropout: float = 0.1
    """Dropout of embeddings, attention weights and residual branches while training."""
    context_length: int = 20
    """K: the most steps the policy sees at once."""
    eval_context_length: int | None = None
    """Steps seen while acting; None: the task's (ODT acts with 5 on walker2d), else context_length."""
    timestep_embedding: bool | None = None
    """Whether tokens carry an embedding of the absolute timestep; None: the task's (ODT: hopper yes, walker2d no), else
    no."""
    max_timestep: int = 1000
    """Timesteps with an embedding of their own; later ones share the last."""
    order_embedding: bool = False
    """Whether tokens carry an embedding of their place in the context."""
    return_scale: float | None = None
    """Returns-to-go are multiplied by this; None: 0.001 for tasks with a table (as ODT), else one over the largest
    return-to-go of the data, by absolute value."""
    return_range: tuple[float, float] | None = None
    """While acting, returns-to-go are kept within these bounds, widened to the return that was asked for; None: those
    of the data, and no bounds for tasks with a table (as ODT)."""
    reward_input: Literal["none", "state"] = "none"
    """Whether the policy reads the reward of the step before, standardised by the data: by a linear map added to the
    state token."""
    gamma: float = 1.0
    """γ: discount of returns-to-go."""
    likelihood: Likelihood = "clipped"
    """The distribution of box actions (odt, ewa-vq-odt): a Gaussian clipped to the bounds, each step of its likelihood
    weighted by σ²; or squashed into them by tanh, not weighted, as in ODT."""
    accounts: AccountsConfig = field(default_factory=AccountsConfig)
    """The mental accounts; they are there for method ewa-vq-odt only."""

    def __post_init__(self) -> None:
        settle_types(self)
        for name in ("hidden", "layers", "heads", "context_length", "max_timestep"):
            object.__setattr__(self, name, check_count(name, getattr(self, name), 1))
        if self.max_timestep > MOST:
            raise ValueError(f"max_timestep must be at most 2**53, got {shown(self.max_timestep)}")
        if self.inner is not None:
            check_count("inner", self.inner, 1)
        if self.hidden % self.heads:
            raise ValueError(f"hidden must be a multiple of heads = {self.heads}, got {self.hidden}")
        for name in ("reward_input", "likelihood"):
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
    method: Method = "ewa-vq-odt"
    """dt: supervised learning alone, of deterministic actions (or categorical ones, where actions are discrete).
    odt: a distribution over actions with an entropy constraint. ewa-vq-odt: odt with mental accounts. bc: behaviour
    cloning, an MLP that sees the state alone; the baseline of all of them."""
    timestep_embedding: bool = True
    """Whether tokens carry an embedding of the absolute timestep."""
    return_scale: float = 0.001
    """Returns-to-go are multiplied by this."""

    def __post_init__(self) -> None:
        check_choice(self, "method")
        check_count("state_dim", self.state_dim, 1)
        super().__post_init__()
        _check_reward_input(self.method, self)
        if self.accounts.window_steps and not self.acting_context <= self.accounts.window_steps <= self.context_length:
            raise ValueError(
                f"accounts.window_steps must be 0, or from the {self.acting_context} steps that are seen while acting "
                f"to context_length = {self.context_length}, got {self.accounts.window_steps}"
            )

    @property
    def has_accounts(self) -> bool:
        """Whether the policy keeps mental accounts."""
        return self.method == "ewa-vq-odt"

    @property
    def is_sequence_model(self) -> bool:
        """Whether the policy is a transformer over trajectories; behaviour cloning sees the state alone."""
        return self.method != "bc"

    @property
    def is_constrained(self) -> bool:
        """Whether it learns a likelihood under an entropy constraint; dt and bc learn a regression."""
        return self.method not in ("bc", "dt")

    @property
    def reads_rewards(self) -> bool:
        """Whether the reward of the step before is an input."""
        return self.reward_input != "none"

    @property
    def reads_ledger(self) -> bool:
        """Whether all balances are an input."""
        return self.has_accounts and self.accounts.ledger_input != "none"

    @property
    def acting_context(self) -> int:
        """Steps seen while acting."""
        return self.eval_context_length or self.context_length

    @property
    def account_window(self) -> int:
        """Steps that accounts of scope `window` reach back while acting."""
        steps = self.accounts.window_steps
        return self.context_length if steps is None else steps or self.acting_context

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Back from `to_dict`; unknown, missing and mistyped fields are named."""
        return config_from_dict(cls, values)


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """One run: a task, a method, and how it is trained, offline and then online."""

    task: str | None = "hopper-medium"
    """Offline data and their environment, by name (`mental-accounts data list`). None: online from scratch."""
    env_id: str | None = None
    """A Gymnasium environment; None: the task's."""
    method: Method = "ewa-vq-odt"
    """bc, dt, odt or ewa-vq-odt."""
    seed: int = 0
    """Of everything random: weights, windows, exploration, environments. Equal seeds are paired between methods."""
    data_steps: int | None = None
    """Offline steps; None: the task's own size."""
    data_seed: int = 0
    """Of the offline data."""
    model: ModelConfig = field(default_factory=ModelConfig)
    """The network."""

    optimizer: OptimizerName = "lamb"
    """LAMB (as ODT's code) or AdamW (the paper says Adam)."""
    lr: float = 1e-4
    """Learning rate after warm-up."""
    weight_decay: float = 5e-4
    """Weight decay."""
    warmup_updates: int = 10_000
    """Updates over which the learning rate rises linearly."""
    grad_clip: float = 0.25
    """Largest joint norm of the gradients."""
    batch_size: int = 256
    """Windows per update."""
    initial_lambda: float = 0.1
    """λ at the start: the multiplier of the entropy constraint (the paper's "initial temperature")."""
    lambda_lr: float = 1e-4
    """Learning rate of λ (Adam)."""
    target_entropy: float | None = None
    """Least entropy; None: minus the action dimensions, or a fifth of log n for n discrete actions."""

    pretrain_iterations: int = 1
    """Lines in the log before going online."""
    updates_per_pretrain_iteration: int = 5_000
    """Updates per pretraining iteration."""
    pretrain_eval_every: int = 1
    """Evaluate after every so many pretraining iterations, and after the last; 0: not at all."""
    online_iterations: int = 1_500
    """Iterations of exploring and learning."""
    episodes_per_iteration: int = 1
    """Exploration episodes per online iteration, played in parallel."""
    updates_per_iteration: int = 300
    """Updates per online iteration."""
    eval_every: int = 10
    """Evaluate after every so many online iterations, and after the last."""
    eval_episodes: int = 10
    """Episodes per evaluation, played in parallel with the mean action."""
    replay_size: int = 1_000
    """Trajectories kept for online learning: at first the best offline ones; first in, first out."""
    random_episodes: int = 20
    """Episodes of random actions to begin with where there are no offline data."""
    target_return: float | None = None
    """Return asked for in evaluation; None: the task's, else the one that 5% of the episodes in the replay exceed."""
    exploration_return: float | None = None
    """Return asked for while exploring; None: the task's, else as far above the former as that is above the median, at
    most the best of the replay."""

    device: str = "auto"
    """auto: a GPU where there is one."""
    precision: Precision = "auto"
    """auto: bf16 where the device has instructions for it."""
    compile: bool | None = None
    """Fuse the kernels of an update with torch.compile; None: on a GPU, for runs of at least 20,000 updates."""
    env_workers: int | None = None
    """Processes that step environments beside the run's own, which takes a share too; 0: none. None: as many as pay, by
    the time that a step takes and the cores of the run. The episodes are the same."""
    checkpoint_seconds: float = 60.0
    """Write a checkpoint at least this often; also at the end, and when stopped by a signal."""

    def __post_init__(self) -> None:
        settle_types(self)
        for name in ("method", "optimizer", "precision"):
            check_choice(self, name)
        if self.task is None and self.env_id is None:
            raise ValueError("give a task or an env_id: there is nothing to learn from otherwise")
        if self.method != "ewa-vq-odt" and self.model.accounts.ledger_input != "none":
            raise ValueError(
                f"method {self.method} keeps no accounts, so there is no ledger to read; set accounts.ledger_input to "
                "'none', or method to ewa-vq-odt"
            )
        _check_reward_input(self.method, self.model)
        for name, least in _LEAST.items():
            check_count(name, getattr(self, name), least)
        for name in ("lr", "grad_clip", "initial_lambda", "lambda_lr"):
            check_positive(name, getattr(self, name))
        check_number("weight_decay", self.weight_decay, 0.0, 1e6, closed=True)
        check_number("checkpoint_seconds", self.checkpoint_seconds, 0.0, math.inf, closed=True)
        for name in ("target_return", "exploration_return", "target_entropy"):
            if getattr(self, name) is not None:
                check_number(name, getattr(self, name), -math.inf, math.inf, closed=False)
        for name, least in (("data_steps", 1), ("env_workers", 0)):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), least)
        if self.pretrain_iterations and self.task is None:
            object.__setattr__(self, "pretrain_iterations", 0)  # nothing to learn from offline
        if self.pretrain_iterations + self.online_iterations == 0:
            raise ValueError(
                "there is nothing to do: online_iterations is 0, and so is pretrain_iterations (as ever without a task)"
            )

    @property
    def total_updates(self) -> int:
        """Updates of pretraining and online learning together."""
        pretraining = self.pretrain_iterations * self.updates_per_pretrain_iteration
        return pretraining + self.online_iterations * self.updates_per_iteration

    def for_method(self, method: Method) -> Self:
        """The same with this method. One that keeps no accounts has no ledger to read, and bc reads the state alone."""
        model = self.model
        if method != "ewa-vq-odt":
            model = replace(model, accounts=replace(model.accounts, ledger_input="none"))
        if method == "bc":
            model = replace(model, reward_input="none")
        return replace(self, method=method, model=model)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Back from `to_dict`; unknown, missing and mistyped fields are named."""
        return config_from_dict(cls, values)


def _check_reward_input(method: Method, model: ModelConfig) -> None:
    if method == "bc" and model.reward_input != "none":
        raise ValueError("method bc reads the state alone; set reward_input to 'none', or method to dt")


def _checked_range(name: str, bounds: Sequence[float]) -> tuple[float, float]:
    """Two finite numbers in order, as plain ones; anything else is refused."""
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
    "updates_per_iteration": 1,
    "eval_every": 1,
    "eval_episodes": 1,
    "replay_size": 1,
    "random_episodes": 1,
}
