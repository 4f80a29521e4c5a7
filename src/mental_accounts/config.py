"""The options of a run: a frozen dataclass with a docstring per field, validated on construction."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Self

from mental_accounts.account_options import OF_THE_BIAS
from mental_accounts.fields import check_choice, config_from_dict, settle_types, shown
from mental_accounts.number_checks import check_count, check_number, check_positive
from mental_accounts.policy_options import (
    REWARDS_READ,
    WITH_ACCOUNTS,
    Method,
    ModelConfig,
    Precision,
    check_bias,
    check_inputs,
)
from mental_accounts.value_options import Improve, ValueConfig

OptimizerName = Literal["lamb", "adamw"]
Targets = Literal["task", "replay"]
MOST_STEPS = 10_000_000
"""Steps of exploration in one iteration, at most."""


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
        check_inputs(self.method, self.model)
        check_bias(self.method, self.model.accounts)
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

        From ledger-odt, ewa-vq-odt is the published method: the default β, and the ledger is not read. φ stays.
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
