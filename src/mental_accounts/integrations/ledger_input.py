"""`ledger_input`: what the ledger tells before an action, through a linear map, added to the embeddings of tokens.

    added = W (told / unit) + b

`told` has one number per channel and code; balances are divided by the rule's unit, so that they are averages of recent
payoffs; counts and means go in as they are. The map is a submodule of the model, named `ledger_input`: its parameters
are the model's own, and are saved with it.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mental_accounts.accounts import Books
from mental_accounts.accounts.precision import FullPrecisionModule, full_precision
from mental_accounts.integrations.columns import Columns

LedgerTokens = Literal["none", "state"] | Columns
"""Which tokens are told the ledger: none; those right before actions; or a selector like that of actions."""
Weights = str | Path | Mapping[str, Tensor]
"""Where the map's weights come from: a folder or file of safetensors, a state_dict of model or map, or "new"."""

NAME = "ledger_input"
"""The name of the map in its model."""


def check_ledger_input(tokens: LedgerTokens, channels: Sequence[str], weights: Weights | None) -> bool:
    """Refuse tokens that cannot be, and settings of a map where there is none; returns whether there is one."""
    if isinstance(tokens, str) and tokens in ("none", "state"):
        if tokens == "none" and (tuple(channels) != ("balance",) or weights is not None):
            raise ValueError("channels and ledger_weights are for ledger_input: give ledger_input='state' too")
        return tokens == "state"
    if isinstance(tokens, Tensor) and (tokens.dtype != torch.bool or tokens.ndim != 1 or not bool(tokens.any())):
        raise ValueError(
            "ledger_input must select at least one token: expected bool (S,) with some True, got "
            f"{tokens.dtype} {tuple(tokens.shape)}"
        )
    if not isinstance(tokens, Tensor) and not callable(tokens):
        raise ValueError(
            "ledger_input must be 'none', 'state' (the tokens right before actions), a bool selector (S,) or "
            f"every(period, offset), got {tokens!r}"
        )
    return True


class LedgerMap(FullPrecisionModule, nn.Linear):
    """The map from what a ledger tells to a token's embedding, in full precision; PyTorch's initial weights."""

    per_unit: Tensor
    """What each number is multiplied by, (ledger_size,): 1 / unit for balances, else 1."""

    def __init__(self, books: Books, hidden: int, device: torch.device | None) -> None:
        super().__init__(books.ledger_size, hidden, device=device, dtype=torch.float32)
        units = {"balance": 1.0 / books.rule.unit}
        per_unit = torch.tensor([units.get(channel, 1.0) for channel in books.channels])
        per_unit = per_unit.repeat_interleave(books.num_codes).to(self.weight.device)
        self.register_buffer("per_unit", per_unit, persistent=False)

    def forward(self, told: Tensor) -> Tensor:
        """(..., ledger_size) -> (..., hidden), in float32, or in float64 if the model is."""
        weight, bias = full_precision(self.weight), full_precision(self.bias)
        with torch.autocast(told.device.type, enabled=False):
            return F.linear((told * self.per_unit).to(weight.dtype), weight, bias)

    def load(self, weights: Weights) -> None:
        """Take the weights that were saved with a model, whatever part of it had the map."""
        found = _map_weights(weights)
        shapes = {name: tuple(value.shape) for name, value in found.items()}
        expected = {name: tuple(value.shape) for name, value in self.state_dict().items()}
        if shapes != expected:
            raise ValueError(
                f"the saved map has shapes {shapes}, expected {expected}: attach with the codebook, channels and model "
                "that it was saved with"
            )
        self.load_state_dict(found)


class Added(NamedTuple):
    """What is added to the embeddings of a piece of sequences."""

    where: Tensor  # (P,): places in the piece
    values: Tensor  # (B, P, hidden)

    def to_tokens(self, embedded: Tensor) -> Tensor:
        """(B, S, hidden) -> (B, S, hidden), in the type of the embeddings."""
        B, _, hidden = self.values.shape
        fits = embedded.ndim == 3 and (embedded.shape[0], embedded.shape[2]) == (B, hidden)
        if not fits:
            raise ValueError(
                f"the sequence layout does not match the accounts: tokens are embedded as {tuple(embedded.shape)}, but "
                f"the ledger is told of {B} sequences, for embeddings of size {hidden}"
            )
        return embedded.index_add(1, self.where, self.values.to(embedded.dtype))


class LedgerInput:
    """A model's map, and which of its tokens are told the ledger."""

    def __init__(self, tokens: LedgerTokens, columns: Columns, ledger_map: LedgerMap) -> None:
        self.tokens, self.columns, self.map = tokens, columns, ledger_map

    def places(self, S: int, is_action: Tensor) -> tuple[Tensor, Tensor]:
        """The tokens that are told, of S with actions where (S,) is True, and the step each is told before: (P,), (P,).

        A token is told the ledger before its own step: after as many actions as there are before it. But an action
        right before another one predicts that, and is told the ledger after itself.
        """
        ahead = self.columns(S + 1)[1:] if callable(self.columns) else F.pad(is_action[1:], (0, 1))
        if isinstance(self.tokens, str):
            chosen = ahead
        else:
            chosen = self.tokens(S) if callable(self.tokens) else self.tokens
            if chosen.dtype != torch.bool or tuple(chosen.shape) != (S,):
                raise ValueError(
                    f"ledger_input does not match the sequence: it has {S} tokens, but ledger_input selects from "
                    f"{chosen.dtype} {tuple(chosen.shape)}; expected bool ({S},), or every(period, offset) for any "
                    "length"
                )
        steps = is_action.cumsum(0) - (is_action & ~ahead).long()
        where = chosen.nonzero().squeeze(-1)
        return where, steps[where]


def add_map(model: nn.Module, ledger_map: LedgerMap, weights: Weights | None) -> Callable[[], None]:
    """Make the map a part of the model, with these weights; returns how to take it away."""
    if hasattr(model, NAME):
        raise ValueError(f"{type(model).__name__} already has something named {NAME}, where the ledger's map would go")
    came_from = Path(getattr(model, "name_or_path", None) or "")
    if weights is None and came_from != Path() and came_from.is_dir() and _held(came_from):
        raise ValueError(
            f"the model was read from {came_from}, where the map of a ledger was saved with it: give "
            f"ledger_weights={str(came_from)!r} to go on with it, or ledger_weights='new' for another"
        )
    if weights is not None and weights != "new":
        ledger_map.load(weights)
    model.add_module(NAME, ledger_map)
    return lambda: delattr(model, NAME)


def _map_weights(weights: Weights) -> dict[str, Tensor]:
    """The weight and bias of the one map in a state_dict, or in files of safetensors."""
    if isinstance(weights, Mapping):
        held, place = {name: value for name, value in weights.items() if NAME in name.split(".")}, "the state_dict"
        held = held or (dict(weights) if set(weights) == {"weight", "bias"} else {})
    else:
        held, place = _held(Path(weights)), str(weights)
    found = {name.split(".")[-1]: value for name, value in held.items()}
    if set(found) != {"weight", "bias"} or len(held) != 2:
        raise ValueError(
            f"expected the weight and bias of one {NAME} in {place}, found {list(held) or 'none'}: save the model "
            "while its accounts are attached"
        )
    return found


def _held(place: Path) -> dict[str, Tensor]:
    """The tensors of maps in a file, or in the files of a folder, by their full names."""
    from safetensors import safe_open

    files = sorted(place.glob("*.safetensors")) if place.is_dir() else [place]
    if not place.is_dir() and not place.is_file():
        raise FileNotFoundError(f"ledger_weights: there is no file of safetensors at {place}")
    held: dict[str, Tensor] = {}
    for file in files:
        with safe_open(file, framework="pt") as opened:
            held |= {name: opened.get_tensor(name) for name in opened.keys() if NAME in name.split(".")}  # noqa: SIM118
    return held
