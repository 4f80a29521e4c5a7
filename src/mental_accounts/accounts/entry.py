"""The entry of a step: its codes, and the share of its payoff that each of them gets."""

from typing import NamedTuple

from torch import Tensor


class Entry(NamedTuple):
    """The accounts that a step is entered in."""

    codes: Tensor  # (..., *code_shape) int64
    weights: Tensor | None = None  # (..., *code_shape): the share of the payoff that each code gets; None: all of it


def shares(payoffs: Tensor, codes: Tensor, weights: Tensor | None) -> Tensor:
    """The amount entered under each of a step's G codes: payoffs (...), codes and weights (..., G) -> (..., G)."""
    entered = payoffs.unsqueeze(-1).expand(codes.shape)
    return entered if weights is None else entered * weights
