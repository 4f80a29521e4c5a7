"""How much memory a run needs, at least, and whether this machine has it: said before any is taken.

The estimates are low ones, so that nothing is refused that would fit. They are for numbers that cannot be meant.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from mental_accounts.accounts.bias import TOKENS_PER_STEP
from mental_accounts.config import ActionSpec, PolicyConfig, TrainConfig
from mental_accounts.errors import UsageError
from mental_accounts.machine import available_memory, in_words
from mental_accounts.policy.size import account_bytes, count_codes, count_parameters

PARAMETER_BYTES = 16
"""A weight, its gradient and the optimiser's two moments."""
LAYER_BYTES = 20_000
"""What PyTorch keeps of a block, however small."""
ENVIRONMENT_BYTES = 20_000
"""A small environment, with its wrappers."""
WORKER_BYTES = 60_000_000
"""A process that steps environments."""
STEP_BYTES = 24
"""A step of the smallest data: observation, action, reward, return-to-go, timestep, end."""
USUAL_STEPS = 100
"""Steps of an episode that is played, at least."""


@dataclass(frozen=True)
class Need:
    """Bytes, by where they are."""

    network: int
    batch: int
    environments: int

    @property
    def total(self) -> int:
        return self.network + self.batch + self.environments


def check_run(config: TrainConfig, policy: PolicyConfig, device: torch.device) -> None:
    """Refuse a run that this machine has no memory for; what to lower is named."""
    need = needed(config, policy, device)
    there = {"this machine": available_memory()}
    asked = {"this machine": need.total}
    if device.type == "cuda":
        there[str(device)] = torch.cuda.mem_get_info(device)[0]
        asked = {"this machine": need.environments, str(device): need.network + need.batch}
    for place, count in asked.items():
        if count > there[place]:
            raise UsageError(
                f"this run needs at least {in_words(count)} of memory (network and optimiser {in_words(need.network)}, "
                f"a batch {in_words(need.batch)}, environments {in_words(need.environments)}), but "
                f"{in_words(there[place])} are free on {place}; {_what_to_lower(config, policy, device)}"
            )


def check_episodes(policy: PolicyConfig, episodes: int, flag: str) -> None:
    """Refuse more episodes at a time than there is memory for."""
    count, there = episodes * _episode_bytes(policy), available_memory()
    if count > there:
        raise UsageError(
            f"{flag} {episodes} needs at least {in_words(count)} of memory, since all are played together, but "
            f"{in_words(there)} are free on this machine; lower {flag}"
        )


def check_data_steps(steps: int | None, flag: str = "--data-steps") -> None:
    """Refuse more steps of data than there is memory for."""
    there = available_memory()
    if steps is not None and steps * STEP_BYTES > there:
        raise UsageError(
            f"{flag} {steps} needs at least {in_words(steps * STEP_BYTES)} of memory, but {in_words(there)} are free "
            f"on this machine; lower {flag}"
        )


def needed(config: TrainConfig, policy: PolicyConfig, device: torch.device) -> Need:
    """A low estimate of what a run takes."""
    players = config.eval_episodes + (config.episodes_per_iteration if config.online_iterations else 0)
    if config.task is None:
        players = max(players, config.random_episodes)
    return Need(
        PARAMETER_BYTES * count_parameters(policy) + LAYER_BYTES * policy.layers + account_bytes(policy),
        _batch_bytes(config.batch_size, policy, device),
        players * _episode_bytes(policy) + WORKER_BYTES * (config.env_workers or 0),
    )


def _batch_bytes(B: int, policy: PolicyConfig, device: torch.device) -> int:
    """The windows of a batch and what an update keeps of them for its gradients."""
    K, h, inner = policy.context_length, policy.hidden, policy.inner or 4 * policy.hidden
    width = 2 if device.type == "cuda" else 4
    step = policy.state_dim + _action_width(policy) + 6 + count_codes(policy) * policy.reads_ledger
    windows = 4 * B * K * (step + policy.action.size)
    if not policy.is_sequence_model:
        return windows + B * K * (2 * inner + h) * width
    S = TOKENS_PER_STEP * K - 1
    activations = B * S * policy.layers * (6 * h + inner) * width
    attention = 0
    if device.type == "cpu":  # a GPU's kernels do not keep it
        attention = 4 * B * S**2 * (1 + (policy.layers * policy.heads if policy.dropout > 0 else 0))
    return windows + activations + attention


def _episode_bytes(policy: PolicyConfig) -> int:
    """An environment, what is logged of it, and the window and ledger of its actor."""
    steps = policy.acting_context + USUAL_STEPS
    if policy.has_accounts and policy.accounts.account_scope == "window":
        steps += policy.account_window
    return ENVIRONMENT_BYTES + 4 * steps * (policy.state_dim + _action_width(policy) + 2) + 4 * count_codes(policy)


def _action_width(policy: PolicyConfig) -> int:
    return 1 if policy.action.is_discrete else policy.action.size


def _what_to_lower(config: TrainConfig, policy: PolicyConfig, device: torch.device) -> str:
    """The number that saves the most where it is brought down to a usual one."""

    def with_policy(**fields: object) -> Callable[[], Need]:
        return lambda: needed(config, replace(policy, **fields), device)  # type: ignore[arg-type]

    def with_config(**fields: int) -> Callable[[], Need]:
        return lambda: needed(replace(config, **fields), policy, device)  # type: ignore[arg-type]

    def with_accounts(**fields: int) -> Callable[[], Need]:
        return with_policy(accounts=replace(policy.accounts, **fields))  # type: ignore[arg-type]

    accounts, small = policy.accounts, min(policy.context_length, 20)
    few = ActionSpec("discrete", 2) if policy.action.is_discrete else ActionSpec("box", 1, (0.0,), (1.0,))
    options = {
        f"lower --batch-size, now {config.batch_size}": with_config(batch_size=min(config.batch_size, 64)),
        f"lower --eval-episodes, now {config.eval_episodes}": with_config(eval_episodes=min(config.eval_episodes, 10)),
        f"lower --episodes-per-iteration, now {config.episodes_per_iteration}": with_config(episodes_per_iteration=1),
        f"lower --random-episodes, now {config.random_episodes}": with_config(
            random_episodes=min(config.random_episodes, 20)
        ),
        f"lower --env-workers, now {config.env_workers}": with_config(env_workers=0),
        f"lower --model.hidden, now {policy.hidden}": with_policy(hidden=min(policy.hidden, 128), heads=1),
        f"lower --model.inner, now {policy.inner}": with_policy(inner=min(policy.inner or 512, 512)),
        f"lower --model.layers, now {policy.layers}": with_policy(layers=min(policy.layers, 4)),
        f"lower --model.context-length, now {policy.context_length}": with_policy(
            context_length=small, eval_context_length=None, accounts=replace(accounts, window_steps=None)
        ),
        f"lower --model.max-timestep, now {policy.max_timestep}": with_policy(
            max_timestep=min(policy.max_timestep, 1000)
        ),
        f"lower --model.accounts.bins, now {accounts.bins}": with_accounts(bins=3, coarse_bins=2),
        f"lower --model.accounts.coarse-bins, now {accounts.coarse_bins}": with_accounts(coarse_bins=2),
        f"lower --model.accounts.num-codes, now {accounts.num_codes}": with_accounts(
            num_codes=min(accounts.num_codes or 27, 27)
        ),
        f"lower --model.accounts.state-codes, now {accounts.state_codes}": with_accounts(state_codes=1),
        f"the environment's observations have {policy.state_dim:,} numbers, make them smaller": with_policy(
            state_dim=min(policy.state_dim, 100)
        ),
        f"the environment's actions are {policy.action.size:,}, make them fewer": with_policy(action=few),
    }
    return min(options, key=lambda words: options[words]().total)
