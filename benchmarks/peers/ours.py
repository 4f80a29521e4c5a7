"""Ours: likelihood and entropy on windows sampled from a store, AdamW, clipping, the multiplier's own step."""

from collections.abc import Callable

import torch
from batch import ACTION, HEADS, HIDDEN, LAYERS, STATE

from mental_accounts import __version__
from mental_accounts.account_options import AccountsConfig
from mental_accounts.action_spec import ActionSpec
from mental_accounts.config import TrainConfig
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.data.windows import WindowSampler
from mental_accounts.learning.capture import RepeatedUpdate
from mental_accounts.learning.freed_memory import keep_freed_memory
from mental_accounts.learning.update import Updater
from mental_accounts.policy import Actor, DecisionTransformer
from mental_accounts.policy_options import PolicyConfig


def version() -> str:
    return f"mental-accounts {__version__}, torch {torch.__version__}"


def make_store(trajectories: int = 200, steps: int = 1000) -> Trajectories:
    torch.manual_seed(1)
    N = trajectories * steps
    return Trajectories.from_steps(
        torch.randn(N, STATE), torch.rand(N, ACTION) * 1.8 - 0.9, torch.rand(N) * 3,
        lengths=torch.full((trajectories,), steps), terminated=torch.ones(trajectories, dtype=torch.bool),
        truncated=torch.zeros(trajectories, dtype=torch.bool),
    )  # fmt: skip


def make(case: dict, device: str) -> Callable[[], object]:
    """A whole update including sampling windows; on a GPU compiled and captured, as in long runs of `train`."""
    keep_freed_memory()
    accounts = AccountsConfig(
        account_scope=case.get("scope", "trajectory"),
        ledger_input=case.get("ledger", "none"),
        beta_learned=case.get("beta_learned", False),
    )
    policy_config = PolicyConfig(
        state_dim=STATE, action=ActionSpec("box", ACTION, (-1.0,) * ACTION, (1.0,) * ACTION), method=case["method"],
        hidden=HIDDEN, layers=LAYERS, heads=HEADS, context_length=case["context"], accounts=accounts,
    )  # fmt: skip
    policy, store = DecisionTransformer(policy_config), make_store()
    policy.fit_normalisation(store.observations, store.actions, store.rewards)
    policy.to(device)
    if case["what"] == "act":
        actor = Actor(policy, case["batch"], sample=False, precision=case["precision"])
        actor.begin(3600.0, 0)
        states = torch.randn(case["batch"], STATE).numpy()
        rewards, ended = torch.rand(case["batch"]).numpy(), torch.zeros(case["batch"], dtype=torch.bool).numpy()

        def act() -> None:
            actor.act(states)
            actor.record(rewards, ended)

        for _ in range(case["context"]):
            act()
        return act
    config = TrainConfig(
        method=case["method"], optimizer=case.get("optimizer", "adamw"), batch_size=case["batch"], device=device,
        precision=case["precision"], improve=case.get("improve", "none"),
    )  # fmt: skip
    held = store.to(device)
    if policy.accounts is not None:
        held.annotate_by(policy.accounts.books, policy.action_scale.to_unit, balances=policy_config.reads_ledger)
    updater = Updater(policy, config)
    if updater.values is not None:
        updater.values.begin("online", 3.0)
    if device == "cuda" and case.get("compiled", True):
        updater.compile()
    generator = torch.Generator(device).manual_seed(1)
    sampler = WindowSampler(held, case["batch"], case["context"], generator, accounts.account_scope)
    repeated = RepeatedUpdate(updater, sampler, print)
    for _ in range(4 if device == "cuda" else 0):
        repeated.step()
    return repeated.step
