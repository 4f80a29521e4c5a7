"""The codes of a single action, without arrays: those of a few numbers take twice as long."""

import operator
from bisect import bisect_left
from collections.abc import Callable
from typing import Any

from numpy import ndarray

from mental_accounts.integrations.action_numbers import LIMIT, ActionNumbers, BoxActions, DiscreteActions
from mental_accounts.integrations.numpy_codebooks import DiscreteCodes, GridCodes, NumpyCodebook


def router_of_one(numbers: ActionNumbers, codebook: NumpyCodebook) -> Callable[[Any], list[int]]:
    """What routes one action as `codebook.route(numbers(action, 1))[0]` does, as a list."""
    if isinstance(numbers, BoxActions) and isinstance(codebook, GridCodes):
        return _OnGrid(numbers, codebook).route
    if isinstance(numbers, DiscreteActions) and isinstance(codebook, DiscreteCodes) and numbers.dim == 1:
        return _Discrete(numbers, codebook).route
    return _Other(numbers, codebook).route


class _Other:
    def __init__(self, numbers: ActionNumbers, codebook: NumpyCodebook) -> None:
        self._numbers, self._codebook = numbers, codebook

    def route(self, action: Any) -> list[int]:
        codes: list[int] = self._codebook.route(self._numbers(action, 1))[0].tolist()
        return codes


class _OnGrid:
    def __init__(self, numbers: BoxActions, grid: GridCodes) -> None:
        self._numbers, self._dtype = numbers, numbers.dtype
        self._usual_shape = (numbers.dim,) if numbers.is_plain else None
        self._begins: list[int] = grid.begins.tolist()
        self._borders: list[float] = grid.borders[numbers.dtype].tolist()
        self._places = grid.places

    def route(self, action: Any) -> list[int]:
        if type(action) is ndarray and action.dtype is self._dtype and action.shape == self._usual_shape:
            numbers = action.tolist()
        else:
            numbers = self._numbers.scaled(action, 1)[0].tolist()
        codes, borders = self._begins.copy(), self._borders
        for number, (group, weight) in zip(numbers, self._places):  # noqa: B905 (they are as many, and `strict` is slow)
            if not -LIMIT <= number <= LIMIT:
                raise self._numbers.outside(action)
            codes[group] += weight * bisect_left(borders, number)
        return codes


class _Discrete(_Other):
    def __init__(self, numbers: DiscreteActions, codebook: DiscreteCodes) -> None:
        super().__init__(numbers, codebook)
        self._first, self._values = numbers.first, numbers.values[0]

    def route(self, action: Any) -> list[int]:
        try:
            number = operator.index(action) - self._first
        except TypeError:
            number = -1
        if isinstance(action, ndarray) or not 0 <= number < self._values:
            return super().route(action)  # which refuses what is no action
        return [number]
