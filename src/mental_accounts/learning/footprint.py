"""How much memory a run needs, at least, and whether this machine has it: said before any is taken.

The estimates are low ones, so that nothing is refused that would fit. They are for numbers that cannot be meant.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from mental_accounts.account_options import AccountsConfig
from mental_accounts.accounts.bias import TOKENS_PER_STEP
from mental_accounts.action_spec import ActionSpec
from mental_accounts.config import TrainConfig
from mental_accounts.errors import NoRoomError, UsageError
from mental_accounts.machine import available_memory, in_words
from mental_accounts.policy.size import account_bytes, count_codes, count_parameters, count_recurrent, count_told
from mental_accounts.policy_options import PolicyConfig

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


def as_flag(path: str) -> str:
    """A field of the configuration as `train` has it on its command line."""
    return f"--{path.replace('_', '-')}"


def check_run(
    config: TrainConfig, policy: PolicyConfig, device: torch.device, flag: Callable[[str], str] = as_flag
) -> None:
    """Refuse a run that this machine has no memory for; what to lower is named, as `flag` writes fields."""
    need = needed(config, policy, device)
    there = {"this machine": available_memory()}
    asked = {"this machine": need.total}
    if device.type == "cuda":
        there[str(device)] = torch.cuda.mem_get_info(device)[0]
        asked = {"this machine": need.environments, str(device): need.network + need.batch}
    for place, count in asked.items():
        if count > there[place]:
            raise NoRoomError(
                f"this run needs at least {in_words(count)} of memory (network and optimiser {in_words(need.network)}, "
                f"a batch {in_words(need.batch)}, environments {in_words(need.environments)}), but "
                f"{in_words(there[place])} are free on {place}; {_what_to_lower(config, policy, device, flag)}"
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
    critics = 0
    if config.improve != "none":  # two square layers at least, and the averages of policy and critics
        critics = 2 * (PARAMETER_BYTES + 4) * config.values.critic_hidden**2 + 4 * count_parameters(policy)
        if policy.is_recurrent:  # a network like the policy's, its average, and the one that the policy follows
            critics += (PARAMETER_BYTES + 2 * 4) * count_recurrent(policy)
    return Need(
        critics + PARAMETER_BYTES * count_parameters(policy) + LAYER_BYTES * _layers(policy) + account_bytes(policy),
        _batch_bytes(config.batch_size, policy, device),
        players * _episode_bytes(policy) + WORKER_BYTES * (config.env_workers or 0),
    )


def _batch_bytes(B: int, policy: PolicyConfig, device: torch.device) -> int:
    """The windows of a batch and what an update keeps of them for its gradients."""
    h, inner = policy.hidden, policy.inner or 4 * policy.hidden
    K = min(policy.episode_length, USUAL_STEPS) if policy.is_recurrent else policy.context_length
    width = 2 if device.type == "cuda" else 4
    step = policy.state_dim + _action_width(policy) + 6 + count_told(policy)
    windows = 4 * B * K * (step + policy.action.size)
    if policy.is_recurrent:
        return windows + 4 * B * K * h * (1 + 5 * policy.gru_layers)
    if not policy.is_transformer:
        return windows + B * K * (2 * inner + h) * width
    S = TOKENS_PER_STEP * K - 1
    activations = B * S * policy.layers * (6 * h + inner) * width
    attention = 0
    if device.type == "cpu":  # a GPU's kernels do not keep it
        attention = 4 * B * S**2 * (1 + (policy.layers * policy.heads if policy.dropout > 0 else 0))
    return windows + activations + attention


def _episode_bytes(policy: PolicyConfig) -> int:
    """An environment, what is logged of it, and the window, ledger and memory of its actor."""
    steps = policy.acting_context + USUAL_STEPS
    if policy.has_accounts and policy.accounts.account_scope == "window":
        steps += policy.account_window
    memory = policy.gru_layers * policy.hidden if policy.is_recurrent else 0
    held = steps * (policy.state_dim + _action_width(policy) + 2) + count_codes(policy) + memory
    return ENVIRONMENT_BYTES + 4 * held


def _layers(policy: PolicyConfig) -> int:
    return policy.gru_layers if policy.is_recurrent else policy.layers


def _action_width(policy: PolicyConfig) -> int:
    return math.prod(policy.action.shape)


def _what_to_lower(config: TrainConfig, policy: PolicyConfig, device: torch.device, flag: Callable[[str], str]) -> str:
    """The number that saves the most where it is brought down to a usual one."""

    def with_config(lower: TrainConfig) -> int:
        return needed(lower, policy, device).total

    def with_policy(lower: PolicyConfig) -> int:
        return needed(config, lower, device).total

    def with_accounts(lower: AccountsConfig) -> int:
        return with_policy(replace(policy, accounts=lower))

    accounts, short = policy.accounts, min(policy.context_length, 20)
    few = ActionSpec("discrete", 2) if policy.action.is_discrete else ActionSpec("box", 1, (0.0,), (1.0,))
    lowered = {
        "batch_size": with_config(replace(config, batch_size=min(config.batch_size, 64))),
        "eval_episodes": with_config(replace(config, eval_episodes=min(config.eval_episodes, 10))),
        "episodes_per_iteration": with_config(replace(config, episodes_per_iteration=1)),
        "random_episodes": with_config(replace(config, random_episodes=min(config.random_episodes, 20))),
        "env_workers": with_config(replace(config, env_workers=0)),
        "values.critic_hidden": with_config(
            replace(config, values=replace(config.values, critic_hidden=min(config.values.critic_hidden, 256)))
        ),
        "model.hidden": with_policy(replace(policy, hidden=min(policy.hidden, 128), heads=1)),
        "model.inner": with_policy(replace(policy, inner=min(policy.inner or 512, 512))),
        "model.layers": with_policy(replace(policy, layers=min(policy.layers, 4))),
        "model.gru_layers": with_policy(replace(policy, gru_layers=min(policy.gru_layers, 2))),
        "model.context_length": with_policy(
            replace(
                policy,
                context_length=short,
                eval_context_length=None,
                accounts=replace(accounts, window_steps=None),
            )
        ),
        "model.max_timestep": with_policy(replace(policy, max_timestep=min(policy.max_timestep, 1000))),
        "model.accounts.bins": with_accounts(replace(accounts, bins=3, coarse_bins=2)),
        "model.accounts.coarse_bins": with_accounts(replace(accounts, coarse_bins=2)),
        "model.accounts.num_codes": with_accounts(replace(accounts, num_codes=min(accounts.num_codes or 27, 27))),
        "model.accounts.state_codes": with_accounts(replace(accounts, state_codes=1)),
    }
    options = {f"lower {flag(path)}, now {_value_of(config, policy, path)}": total for path, total in lowered.items()}
    options |= {
        f"the environment's observations have {policy.state_dim:,} numbers, make them smaller": with_policy(
            replace(policy, state_dim=min(policy.state_dim, 100))
        ),
        f"the environment's actions are {policy.action.size:,}, make them fewer": with_policy(
            replace(policy, action=few)
        ),
    }
    return min(options, key=options.__getitem__)


def _value_of(config: TrainConfig, policy: PolicyConfig, path: str) -> object:
    """What stands in a field of the configuration; those of the network as they were resolved."""
    value: object = policy if path.startswith("model.") else config
    for name in path.removeprefix("model.").split("."):
        value = getattr(value, name)
    return value
