"""Where a model embeds its tokens: hooks that add what the ledger tells to its embeddings."""

from typing import Any

from torch import Tensor, nn

from mental_accounts.integrations.attached import AttachedAccounts


def embedding_of(model: nn.Module) -> nn.Module:
    """The embedding of a transformers model's tokens."""
    get = getattr(model, "get_input_embeddings", None)
    embedding = None if get is None else get()
    if not isinstance(embedding, nn.Module) or getattr(getattr(embedding, "weight", None), "ndim", 0) != 2:
        raise ValueError(
            f"the hidden size of {type(model).__name__} is unknown: it has no embedding of tokens "
            "(get_input_embeddings) that a ledger could be added to; attach the accounts to the part that has"
        )
    return embedding


def add_after(embedding: nn.Module, accounts: AttachedAccounts) -> None:
    """Add what the ledger tells to the output of a module, (B, S, hidden), once in a call of the model."""

    def hook(_: nn.Module, __: object, output: Tensor) -> Tensor | None:
        return None if accounts.call is None else accounts.call.take(output)

    accounts.on_detach(embedding.register_forward_hook(hook).remove)


def add_before(norm: nn.Module, accounts: AttachedAccounts) -> None:
    """Add what the ledger tells to the input of a module, (B, S, hidden), once in a call of the model."""

    def hook(_: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...] | None:
        return None if accounts.call is None else (accounts.call.take(inputs[0]), *inputs[1:])

    accounts.on_detach(norm.register_forward_pre_hook(hook).remove)


def check_all_added(model: nn.Module, accounts: AttachedAccounts) -> None:
    """Refuse a call that never reached the embedding: the model does not have it any more."""
    if accounts.call is not None and accounts.call.added is not None:
        raise RuntimeError(
            f"{type(model).__name__} did not embed its tokens with the module that the ledger is added to: detach() "
            "the accounts and attach them again"
        )
