"""Accounts in TorchRL's decision-transformer actors: DecisionTransformer, DTActor, OnlineDTActor, and what wraps them.

Their tokens are (return, state, action), and their backbone is Hugging Face's GPT-2. They do not take rewards; so
rewards are computed from the returns-to-go, unless `enter` or `begin` provided them. In a rollout, `ledger_transform`
keeps live accounts from the environment's own rewards.
"""

import inspect
from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mental_accounts.accounts import BiasScale, Codebook, RewardTransform, UpdateRule
from mental_accounts.extras import check_library
from mental_accounts.integrations.attached import AttachedAccounts
from mental_accounts.integrations.embeddings import add_before
from mental_accounts.integrations.ledger_input import LedgerTokens, Weights
from mental_accounts.integrations.masks import bias_attention
from mental_accounts.integrations.refusals import check_arguments, mark


def torchrl_accounts(
    model: nn.Module,
    codebook: Codebook,
    rule: UpdateRule,
    beta: float | Tensor | BiasScale | None = None,
    *,
    transform: RewardTransform | None = None,
    clip: float | None = None,
    return_scale: float = 1.0,
    ledger_input: LedgerTokens = "none",
    channels: Sequence[str] = ("balance",),
    reward_delay: int = 0,
    ledger_weights: Weights | None = None,
) -> AttachedAccounts:
    """Attach accounts to the one DecisionTransformer inside a TorchRL actor or policy (not a loss: give it the actor).

    Rewards are differences of `return_to_go` divided by `return_scale` (the factor that returns were multiplied by),
    undiscounted; the last step of a window has none yet. `accounts.enter` and `accounts.begin` take precedence.
    `ledger_input="state"` adds what the ledger tells (`channels`) to the tokens of states; see `hugging_face_accounts`.
    """
    check_library("transformers", "torchrl_accounts")
    check_library("torchrl", "torchrl_accounts")
    check_arguments(model, codebook, rule, beta)
    backbone = _decision_transformer(model)
    accounts = AttachedAccounts(
        codebook, rule, beta, transform=transform, clip=clip, columns=None, ledger_input=ledger_input,
        channels=channels, reward_delay=reward_delay, ledger_weights=ledger_weights,
    )  # fmt: skip
    with accounts.attaching():
        if beta is not None:
            bias_attention(backbone.transformer, accounts)
        if accounts.tells:
            accounts.map_into(backbone, backbone.hidden_size, backbone.embed_ln.weight.device)
            add_before(backbone.embed_ln, accounts)
    reader = _ReturnReader(backbone, accounts, return_scale)
    accounts.on_detach(backbone.register_forward_pre_hook(reader.before, with_kwargs=True).remove)
    accounts.on_detach(backbone.register_forward_hook(reader.after, always_call=True).remove)
    mark(backbone, accounts)
    return accounts


def ledger_transform(accounts: AttachedAccounts, action_key: str = "action", reward_key: str = "reward") -> Any:
    """A TorchRL transform that posts every step of an environment to live accounts: `env.append_transform(...)`.

    Accounts start when the environment is reset, and restart with every new episode. Append it before transforms that
    stack actions (CatFrames), so that it gets single actions.
    """
    check_library("torchrl", "ledger_transform")
    from torchrl.envs import Transform  # type: ignore[import-untyped,unused-ignore]

    class LedgerTransform(Transform):  # type: ignore[misc,unused-ignore]
        """Posts actions and rewards, and restarts with every episode."""

        def _step(self, tensordict: Any, next_tensordict: Any) -> Any:
            actions, rewards = tensordict.get(action_key), next_tensordict.get(reward_key)
            n = rewards.numel()
            if accounts.ledger is None:
                accounts.begin(n)
            done = next_tensordict.get("done", None)
            ended = None if done is None else done.reshape(n)
            accounts.post(actions.reshape(n, -1), rewards.reshape(n), ended)
            return next_tensordict

        def _reset(self, tensordict: Any, tensordict_reset: Any) -> Any:
            which = tensordict.get("_reset", None) if tensordict is not None else None
            done = tensordict_reset.get("done")
            if accounts.ledger is None or which is None or accounts.ledger.batch_shape != (done.numel(),):
                accounts.begin(done.numel())
            else:
                accounts.restart(which.reshape(-1))
            return tensordict_reset

    return LedgerTransform()


def _decision_transformer(model: nn.Module) -> Any:
    """The DecisionTransformer inside."""
    from torchrl.modules import DecisionTransformer  # type: ignore[import-untyped,unused-ignore]

    found = [part for part in model.modules() if isinstance(part, DecisionTransformer)]
    if len(found) != 1:
        raise ValueError(
            f"the attention of {type(model).__name__} cannot take a bias: expected one torchrl DecisionTransformer "
            f"inside (as in DTActor and OnlineDTActor), found {len(found)}"
        )
    return found[0]


class _ReturnReader:
    """Reads actions and returns-to-go from the call of a DecisionTransformer."""

    def __init__(self, backbone: nn.Module, accounts: AttachedAccounts, return_scale: float) -> None:
        self.accounts, self.return_scale = accounts, return_scale
        self.names = list(inspect.signature(backbone.forward).parameters)

    def before(self, _: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Compute the bias of this forward, and what the ledger adds to its tokens."""
        found = {name: kwargs.pop(name, None) for name in ("attractions", "ledger")}
        call = self.accounts.open()
        if self.accounts.are_silent:
            return args, kwargs
        given = {**dict(zip(self.names, args, strict=False)), **kwargs}
        actions, returns = given["action"], given["return_to_go"]
        K = actions.shape[-2]
        flat = actions.reshape(-1, K, actions.shape[-1])  # (B, K, dim), as in the model itself
        if not self.accounts.are_live and not self.accounts.were_entered:
            found |= {"actions": flat, "rewards": rewards_of(returns.reshape(-1, K)) / self.return_scale}
        self.accounts.prepare(call, 3 * K, actions.device, found)
        return args, kwargs

    def after(self, *_: Any) -> None:
        """End the call."""
        self.accounts.close()


def rewards_of(returns_to_go: Tensor) -> Tensor:
    """(B, K) -> (B, K): the decrease of the return-to-go at each step; 0 for the last, whose reward is unknown yet."""
    return F.pad(returns_to_go[:, :-1] - returns_to_go[:, 1:], (0, 1)).to(torch.float32)
