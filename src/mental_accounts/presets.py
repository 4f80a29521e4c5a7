"""Starting points for a run or a comparison: whole configurations by name; any field can be overridden."""

import difflib
from dataclasses import replace
from typing import Literal

from mental_accounts.account_options import AccountsConfig
from mental_accounts.config import TrainConfig
from mental_accounts.errors import UsageError
from mental_accounts.policy_options import ModelConfig
from mental_accounts.value_options import ValueConfig

PresetName = Literal["quick", "paper", "odt", "converged", "hidden", "td3", "online", "demo"]

PRESETS: dict[PresetName, TrainConfig] = {
    "quick": TrainConfig(
        data_steps=100_000,
        model=ModelConfig(hidden=128, layers=3, heads=1, dropout=0.0),
        optimizer="adamw",
        lr=1e-3,
        warmup_updates=100,
        batch_size=64,
        pretrain_iterations=4,
        updates_per_pretrain_iteration=250,
        pretrain_eval_every=4,
        online_iterations=4,
        updates_per_iteration=50,
        eval_every=4,
        eval_episodes=10,
    ),
    "paper": TrainConfig(
        model=ModelConfig(
            likelihood="squashed",
            accounts=AccountsConfig(reward_transform="raw", reward_clip=None, account_scope="window"),
        ),
        optimizer="adamw",
        batch_size=64,
        online_iterations=10,
        updates_per_iteration=30,
        eval_every=2,
    ),
    "odt": TrainConfig(model=ModelConfig(likelihood="squashed"), online_iterations=220),
    "converged": TrainConfig(
        lr=1e-3,
        warmup_updates=500,
        batch_size=256,
        pretrain_iterations=12,
        updates_per_pretrain_iteration=1_000,
        pretrain_eval_every=2,
        online_iterations=10,
        updates_per_iteration=100,
        eval_every=5,
    ),
    "hidden": TrainConfig(
        task="hidden-arm",
        method="ledger-odt",
        model=ModelConfig(
            hidden=64,
            layers=3,
            heads=4,
            context_length=5,
            dropout=0.0,
            likelihood="squashed",
            accounts=AccountsConfig(phi=0.3, reward_transform="raw", reward_clip=None, ledger_input="state"),
        ),
        optimizer="adamw",
        lr=1e-3,
        warmup_updates=200,
        batch_size=64,
        pretrain_iterations=4,
        updates_per_pretrain_iteration=1_000,
        pretrain_eval_every=4,
        online_iterations=0,
        eval_episodes=300,
        eval_sampled=True,
        compile=False,
    ),
    "td3": TrainConfig(method="dt", improve="td3", online_iterations=220),
    "online": TrainConfig(
        task=None,
        env_id="CartPole-v1",
        method="odt",
        improve="td3",
        model=ModelConfig(hidden=64, layers=2, heads=1, context_length=5, dropout=0.0, likelihood="squashed"),
        values=ValueConfig(
            alpha=1.0,
            normalised=True,
            imitate="never",
            discount=0.99,
            tau=0.05,
            critic_hidden=128,
            reward_scale=None,
        ),
        optimizer="adamw",
        lr=1e-3,
        weight_decay=0.0,
        warmup_updates=100,
        anneal=True,
        grad_clip=1.0,
        batch_size=64,
        lambda_lr=3e-3,
        online_iterations=40,
        episodes_per_iteration=2,
        updates_per_iteration=200,
        eval_every=10,
        eval_episodes=20,
        random_episodes=10,
        compile=False,
    ),
}
PRESETS["demo"] = replace(
    PRESETS["hidden"],
    task="drifting-bandit",
    data_steps=100_000,
    warmup_updates=50,
    pretrain_iterations=2,
    updates_per_pretrain_iteration=500,
    pretrain_eval_every=2,
    eval_episodes=20,
)
"""Starting points. quick: small, the default. paper: the paper's quick-run protocol. odt: ODT's full protocol.
converged: offline until returns level off on the paper's tasks. hidden: for tasks with a hidden context,
offline; method ledger-odt: the policy reads its ledger, and there is no bias (docs/hidden.md says why). td3: TD3+ODT's
protocol. online: from scratch, by values alone, in any environment (docs/online.md). demo: where memory decides and
where it does not, in minutes on two CPU cores."""


def preset_of(preset: PresetName | TrainConfig) -> TrainConfig:
    """The configuration to start from."""
    if isinstance(preset, TrainConfig):
        return preset
    if preset not in PRESETS:
        close = difflib.get_close_matches(str(preset), list(PRESETS), n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        raise UsageError(f"there is no preset {preset!r}; {hint}there are {', '.join(PRESETS)}")
    return PRESETS[preset]


def usual_comparison(preset: PresetName) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Tasks and methods of a comparison that names none: the preset's task, and its method among the usual ones."""
    start = preset_of(preset)
    if preset == "demo":
        return ("drifting-bandit", "hopper-medium"), ("odt", "ewa-vq-odt", "ledger-odt")
    return (start.task or "hopper-medium",), ("odt", *dict.fromkeys(("ewa-vq-odt", start.method)), "bc")
