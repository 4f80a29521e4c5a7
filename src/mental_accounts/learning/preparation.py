"""What a run starts from: the environment, the offline data (or random episodes), the policy's configuration."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from mental_accounts.action_spec import ActionSpec
from mental_accounts.config import TrainConfig
from mental_accounts.data.asked import describe_range, is_far_outside, return_range, return_scale
from mental_accounts.data.data_checks import check_actions, check_masks
from mental_accounts.data.own_data import UNNAMED, load_own
from mental_accounts.data.tasks import Task, load_task
from mental_accounts.data.tensor_files import checksum
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.errors import UsageError
from mental_accounts.learning.data_fit import check_fit
from mental_accounts.learning.env_spaces import EnvSpaces, spaces_of
from mental_accounts.learning.episodes import as_trajectories
from mental_accounts.learning.events import Message
from mental_accounts.learning.footprint import check_data_steps, check_run
from mental_accounts.learning.held_out import split
from mental_accounts.learning.make_env import EnvironmentSource, declared_limit, longest_episode
from mental_accounts.learning.parallel_envs import Environments
from mental_accounts.learning.rollout import play_randomly
from mental_accounts.learning.run_ending import Ending
from mental_accounts.learning.seeds import derive
from mental_accounts.learning.values import reward_size
from mental_accounts.machine import choose_device
from mental_accounts.policy_options import WITH_ACCOUNTS, ModelConfig, PolicyConfig
from mental_accounts.value_options import ValueConfig

SMALLEST_REWARDS, LARGEST_REWARDS = 1e-2, 1e2
"""Root mean squares of rewards between which critics learn without being told their scale."""


@dataclass(frozen=True)
class Preparation:
    """All that training needs to begin."""

    env: EnvironmentSource
    policy: PolicyConfig
    data: Trajectories
    """Offline trajectories, or the random episodes that stand in for them."""
    task: Task | None
    longest: int
    """The most steps of an episode."""
    held_out: Trajectories | None = None
    """Offline trajectories that are not learned from."""

    @property
    def env_id(self) -> str:
        """The environment's name."""
        return self.env.name

    def fingerprint(self) -> str:
        """Of the data: another one is another run."""
        data = self.data
        held = {"observations": data.observations, "actions": data.actions, "rewards": data.rewards}
        if (seen := data.seen_after) is not None and len(seen.rows):
            held["final_observations"] = seen.observations
        return checksum({name: value.cpu() for name, value in held.items()}, str(data.lengths.tolist()))

    def describe(self, config: TrainConfig) -> list[Message]:
        """What a person wants to know before it begins."""
        found, critics = self.data.statistics(), "" if config.improve == "none" else f" with {config.improve}"
        what = "random play" if self.task is None else "data"
        offline = f"{config.pretrain_iterations} × {config.updates_per_pretrain_iteration} updates offline"
        online = f"{config.online_iterations} × {config.updates_per_iteration} updates online"
        phases = (
            offline if config.pretrain_iterations else "no offline phase",
            online if config.online_iterations else "no online phase",
        )
        lines = [
            f"{what}: {found.steps:,} steps, {found.trajectories:,} trajectories, return {found.return_mean:.0f} ± "
            f"{found.return_std:.0f}, best {found.return_max:.0f}",
            f"{config.method}{critics}: {', '.join(phases)}",
        ]
        return [*(Message("note", text) for text in lines), *(Message("warning", t) for t in self._doubts(config))]

    def _doubts(self, config: TrainConfig) -> list[str]:
        """Settings that change nothing on these data, or that these data do not support."""
        rewards, accounts, lines = self.data.rewards, self.policy.accounts, []
        if self.policy.has_accounts and accounts.reward_transform != "raw" and bool((rewards == rewards[0]).all()):
            lines.append(
                f"all rewards of the data are {float(rewards[0]):g}; {accounts.reward_transform} they are 0, and "
                "the accounts stay empty: --model.accounts.reward-transform raw fills them"
            )
        if self.policy.reads_rewards and bool((rewards == rewards[0]).all()):
            lines.append(
                f"all rewards of the data are {float(rewards[0]):g}, so --model.reward-input tells the policy "
                "nothing until other rewards come"
            )
        for flag, asked in (("target", config.target_return), ("exploration", config.exploration_return)):
            if asked is not None and self.policy.is_recurrent and not self.policy.reads_returns:
                lines.append(f"--{flag}-return changes nothing: gru reads the return with --model.return-input True")
            elif asked is not None and is_far_outside(asked, self.data.first_returns_to_go):
                lines.append(
                    f"--{flag}-return asks for {asked:g}, far outside the data, whose returns are "
                    f"{describe_range(self.data.first_returns_to_go)}"
                )
        if config.method == "ledger-odt" and config.model.accounts.ledger_input == "none":
            lines.append(
                "--model.accounts.ledger-input none changes nothing: ledger-odt always reads its ledger; --method "
                "ewa-vq-odt has the paper's bias instead, and --method odt no accounts"
            )
        if self.policy.encoder is not None and not self.policy.has_images:
            lines.append("--model.encoder changes nothing: there are no images in the environment's observations")
        lines += self._doubts_about_critics(config)
        if config.improve == "none" and config.values != ValueConfig():
            lines.append("--values.… changes nothing without critics: give --improve td3")
        is_biased = accounts.beta != 0 or accounts.beta_learned
        if self.policy.has_accounts and not is_biased and not self.policy.reads_ledger:
            lines.append(
                "β is 0 and the ledger is not read, so the accounts change nothing: give "
                "--model.accounts.beta 0.05, or --method ledger-odt"
            )
        return lines

    def _doubts_about_critics(self, config: TrainConfig) -> list[str]:
        """Rewards of a size that critics cannot learn, and critics that never pull."""
        if config.improve == "none":
            return []
        lines, size = [], reward_size(self.data.rewards)
        scale = size if config.values.reward_scale is None else config.values.reward_scale
        if not SMALLEST_REWARDS <= size / scale <= LARGEST_REWARDS:
            lines.append(
                f"rewards have a root mean square of {size:.3g}, which critics hardly learn as they are: "
                "--values.reward-scale None divides them by it"
            )
        raw = self.policy.reads_ledger and self.policy.accounts.reward_transform != "standardised"
        if raw and self.policy.accounts.reward_clip is None and not SMALLEST_REWARDS <= size <= LARGEST_REWARDS:
            lines.append(
                f"critics read balances of rewards with a root mean square of {size:.3g} as they are: "
                "--model.accounts.reward-transform standardised gives them a size that is learned"
            )
        pulls = config.online_iterations > 0 and config.values.alpha > 0
        if not pulls and config.values.pretrain_alpha == 0 and config.values.imitate != "never":
            lines.append(
                "the critics' weight α is 0 throughout, so they learn but change nothing: --values.pretrain-alpha"
            )
        return lines

    def warning_about(self, last: float | None, sampled: float | None = None) -> str | None:
        """What to say of returns, with usual and with sampled actions, far below the offline data; else None."""
        if last is None or self.task is None:  # random episodes are nothing to live up to
            return None
        found = self.data.statistics()
        return Ending(last, found.return_mean, sampled).warning(found, self.policy)


def prepare(
    config: TrainConfig,
    start: Path | None = None,
    *,
    offline: Path | None = None,
    env: EnvironmentSource | None = None,
) -> Preparation:
    """Load or make everything that the configuration names.

    Random episodes are kept in the file `start`, where one is given, and read from there another time: an environment
    need not play the same ones twice. Data that no task names lie in the file `offline`. `env` makes environments that
    the configuration cannot name.
    """
    task, data = None, None
    if config.task is not None:
        check_data_steps(config.data_steps)
        if config.task.endswith(UNNAMED):
            task, data = load_own(config.task, offline, config.data_steps, config.data_seed)
        else:
            task, data = load_task(config.task, config.data_steps, config.data_seed)
        data = data if data.gamma == config.model.gamma else _remade(data, config.model.gamma)
        is_other = task.return_scale is None and data.gamma < 1  # its targets are undiscounted returns of the data
        if is_other or config.targets == "replay":
            task = replace(task, target_return=None, exploration_return=None)
    env_id = config.env_id or (None if task is None else task.env_id)
    if env is not None:
        source = env.named(config.env_id or env.name)
    elif env_id is not None:
        source = EnvironmentSource(env_id)
    else:
        raise UsageError(
            f"the data of {config.task} do not say which environment they belong to; give --env-id (in Python: env=)"
        )
    example = source()
    spaces = spaces_of(example)
    longest, declared = longest_episode(example), declared_limit(example)
    example.close()
    check_run(config, _policy_config(config, config.model, spaces), choose_device(config.device))
    if data is None:
        data = _random_data(config, source, spaces, start)
    check_fit(data, spaces, config.task, source.name, "; to train without data: --task None (in Python: data=None)")
    if spaces.action.kind == "multi-discrete" and data.actions.is_floating_point():
        data = _remade(data, data.gamma, spaces.action)
    data.action_spec = spaces.action
    if not bool(torch.isfinite(data.returns_to_go).all()):
        raise UsageError(
            f"the data of {config.task or source.name} have returns that are too large for float32 (rewards up to "
            f"{float(data.rewards.abs().max()):g}); scale their rewards down"
        )
    check_actions(data.actions, spaces.action, f"the data of {config.task or source.name}")
    data = _masked_as_needed(data, spaces, f"the data of {config.task or source.name}")
    if config.improve != "none":
        _check_transitions(data, config.task or source.name)
    policy = _policy_config(config, resolve_model(config.model, task, data, declared), spaces)
    if not policy.enters_foregone:
        data = data.without("foregone")
    learned, held_out = split(data, config)
    return Preparation(source, policy, learned, task, longest, held_out)


def _masked_as_needed(data: Trajectories, spaces: EnvSpaces, where: str) -> Trajectories:
    """Data with action masks if the environment gives them, and only then; data that have none allow every action."""
    if not spaces.action_masks:
        return data.without("action_masks")
    if data.action_masks is not None:
        check_masks(data.action_masks, data.actions, spaces.action, where)
    return data.allowing_all(sum(spaces.action.choices))


def check_settings(config: TrainConfig, flag: Callable[[str], str]) -> None:
    """Refuse numbers that no environment makes possible here, however small it is: before anything is started."""
    action = ActionSpec("discrete", 1) if config.model.accounts.foregone else ActionSpec("box", 1, (-1.0,), (1.0,))
    smallest = _policy_config(config, config.model, EnvSpaces(1, action))
    check_run(config, smallest, choose_device(config.device), flag)
    check_data_steps(config.data_steps, flag("data_steps"))


def _policy_config(config: TrainConfig, model: ModelConfig, spaces: EnvSpaces) -> PolicyConfig:
    """The network for these spaces; fields that still follow the task are left at their defaults."""
    shared = {name: getattr(model, name) for name in model.__dataclass_fields__}
    known = {name: value for name, value in shared.items() if value is not None}
    return PolicyConfig(**known, **spaces.fields(), method=config.method)


def _check_transitions(data: Trajectories, name: str) -> None:
    """Refuse data from which critics can learn nothing."""
    if not bool((data.terminated | data.has_final | (data.lengths > 1)).any()):
        raise UsageError(
            f"critics learn from what follows a step, and the data of {name} never say: every episode is cut off after "
            "one step; give what was seen after it (Trajectories.from_steps(..., final_observations=...)), mark them "
            "as terminated, or leave out --improve"
        )


def _random_data(config: TrainConfig, env: EnvironmentSource, spaces: EnvSpaces, start: Path | None) -> Trajectories:
    if start is not None and start.exists():
        return Trajectories.load(start, gamma=config.model.gamma)
    foregone = config.method in WITH_ACCOUNTS and config.model.accounts.foregone
    envs = Environments(env, config.random_episodes, foregone=foregone, masks=spaces.action_masks)
    played = play_randomly(envs, derive(config.seed, "random"))
    data = as_trajectories(played, config.model.gamma, spaces.action)
    envs.close()
    if start is not None:
        data.save(start)
    return data


def resolve_model(model: ModelConfig, task: Task | None, data: Trajectories, declared: int | None) -> ModelConfig:
    """Fill in the fields that follow the task; `declared` is the environment's own limit of an episode's steps."""
    scale, bounds = None if task is None else task.return_scale, None
    if scale is None:  # no table says how returns are to be read
        scale, bounds = return_scale(data.returns_to_go), return_range(data.returns_to_go)
    if task is None:  # random episodes are short where a policy fails early; later ones may be as long as they can be
        longest = declared or int(data.lengths.max())
        steps = longest if data.gamma == 1 else (1 - data.gamma**longest) / (1 - data.gamma)
        scale = min(scale, return_scale(steps * data.rewards.abs().mean().reshape(1)))
    context = model.context_length  # of windows that begin with an episode; others may have one for acting
    if task is not None and model.windows != "episodes":
        context = min(task.eval_context_length, context)
    embedding = False if task is None else task.timestep_embedding
    return replace(
        model,
        return_scale=scale if model.return_scale is None else model.return_scale,
        return_range=bounds if model.return_range is None else model.return_range,
        eval_context_length=context if model.eval_context_length is None else model.eval_context_length,
        timestep_embedding=embedding if model.timestep_embedding is None else model.timestep_embedding,
    )


def _remade(data: Trajectories, gamma: float, action: ActionSpec | None = None) -> Trajectories:
    """The same trajectories with returns-to-go discounted by gamma, and actions as those of a space."""
    return Trajectories.from_steps(
        data.observations,
        data.actions,
        data.rewards,
        lengths=data.lengths,
        terminated=data.terminated,
        truncated=data.truncated,
        gamma=gamma,
        action_spec=data.action_spec if action is None else action,
        info=data.info,
        foregone=data.foregone,
        action_masks=data.action_masks,
        final_observations=data.final_observations,
        final_masks=data.final_masks,
    )
