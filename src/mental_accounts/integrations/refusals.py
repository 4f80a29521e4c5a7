"""Models and arguments that accounts cannot be attached to: refused, with the reason."""

from typing import TYPE_CHECKING, NoReturn
from weakref import WeakSet

import torch
from torch import Tensor, nn

from mental_accounts.accounts import BiasScale, Codebook, UpdateRule, check_codebook, check_rule

if TYPE_CHECKING:
    from mental_accounts.integrations.attached import AttachedAccounts

_TAKEN: WeakSet[nn.Module] = WeakSet()
"""Modules that have accounts."""

CHECKPOINTING = "gradient checkpointing recomputes attention after the accounts have changed: switch it off"


def check_arguments(
    model: nn.Module, codebook: Codebook, rule: UpdateRule, beta: float | Tensor | BiasScale | None
) -> None:
    """Refuse arguments of the wrong type, and a model that already has accounts."""
    if not isinstance(model, nn.Module):
        raise TypeError(f"model must be a torch.nn.Module, got {type(model).__name__}")
    check_codebook(codebook)
    check_rule(rule)
    if not isinstance(beta, (int, float, Tensor, BiasScale, type(None))) or isinstance(beta, bool):
        raise TypeError(f"beta must be a number, a tensor, a BiasScale or None, got {type(beta).__name__}")
    if any(part in _TAKEN for part in model.modules()):
        raise ValueError("the model, or a part of it, already has accounts: detach them first")


def mark(model: nn.Module, accounts: "AttachedAccounts") -> None:
    """Note that the model and its parts have accounts, until these are detached."""
    parts = list(model.modules())
    _TAKEN.update(parts)
    accounts.on_detach(lambda: _TAKEN.difference_update(parts))


def check_scale(beta: float | Tensor | BiasScale | None, layers: int, heads: int | None) -> None:
    """Refuse a β whose shape does not fit the model's attention; `heads` is None if unknown."""
    value = beta() if isinstance(beta, BiasScale) else beta
    if not isinstance(value, Tensor) or value.ndim == 0:
        return
    fits = value.ndim <= 2 and (heads is None or value.shape[-1] in (1, heads))
    if not fits or (value.ndim == 2 and value.shape[0] not in (1, layers)):
        size = "heads" if heads is None else heads
        raise ValueError(
            f"beta must be a number or have shape ({size},) or ({layers}, {size}): the model has {layers} layers"
            f"{'' if heads is None else f' of {heads} heads'}; got {tuple(value.shape)}"
        )


def check_no_backward() -> None:
    """Refuse to recompute attention in a backward pass, when the accounts may have changed."""
    if not torch.compiler.is_compiling() and torch._C._current_graph_task_id() != -1:
        raise RuntimeError(CHECKPOINTING)


def refuse_outside(module: nn.Module) -> NoReturn:
    """Refuse to run a part of a model past the model's own call."""
    check_no_backward()
    raise RuntimeError(
        f"{type(module).__name__} runs outside the call of the model that the accounts are attached to, so they cannot "
        "read its tokens: call that model, attach them to the part that you call, or detach()"
    )
