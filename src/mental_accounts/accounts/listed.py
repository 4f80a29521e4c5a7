"""Codebooks whose codes are listed one by one: centres fitted to data, and the actions of discrete spaces."""

import math
from collections.abc import Sequence
from typing import Any, Self

import torch
from torch import Tensor

from mental_accounts.accounts.codebook import Codebook, CodebookOptions
from mental_accounts.accounts.nearest import fit_centers, nearest_center
from mental_accounts.checks import check_codes, check_count, check_finite, looking_is_free


class KMeansCodebook(Codebook):
    """Codes fitted to data: an action belongs to the nearest centre."""

    kind = "kmeans"

    def __init__(self, centers: Tensor) -> None:
        if not isinstance(centers, Tensor) or not centers.is_floating_point() or centers.ndim != 2 or not len(centers):
            raise ValueError(f"centers must be a floating-point tensor (num_codes, dim), got {_shape(centers)}")
        check_finite("centers", centers)
        super().__init__()
        self.num_codes, self.dim = centers.shape
        self.register_buffer("centers", centers.detach().clone().float())

    @classmethod
    def unfitted(cls, num_codes: int, dim: int) -> Self:
        """A codebook without centres yet (`load_state_dict` sets them); until then it refuses to route."""
        book = cls(torch.zeros(check_count("num_codes", num_codes, 1), check_count("dim", dim, 1)))
        assert book.centers is not None
        book.centers.fill_(math.nan)
        return book

    @classmethod
    def fit(cls, actions: Tensor, num_codes: int, seed: int = 0, restarts: int = 4) -> Self:
        """Fit on actions (..., dim) by Lloyd's algorithm with k-means++ starts; the best of `restarts`."""
        check_count("num_codes", num_codes, 1)
        check_count("restarts", restarts, 1)
        if not isinstance(actions, Tensor) or not actions.is_floating_point() or actions.ndim < 2:
            raise ValueError(f"actions must be a floating-point tensor (..., dim), got {_shape(actions)}")
        check_finite("actions", actions)
        points = actions.detach().reshape(-1, actions.shape[-1]).clamp(-1, 1)
        return cls(fit_centers(points, num_codes, seed, "actions", restarts))

    @classmethod
    def from_options(cls, dim: int, options: CodebookOptions) -> Self:
        assert options.num_codes is not None  # needs_num_codes
        return cls.unfitted(options.num_codes, dim)

    @classmethod
    def from_spec(cls, **arguments: Any) -> Self:
        return cls(torch.tensor(arguments["centers"]))

    @classmethod
    def count(cls, dim: int, options: CodebookOptions) -> int:
        return options.num_codes or 0

    def refit(self, actions: Tensor, seed: int = 0) -> None:
        self.load_state_dict(self.fit(actions, self.num_codes, seed).state_dict())

    def route(self, actions: Tensor) -> Tensor:
        """The nearest centre's code: (..., dim) -> (...) int64."""
        assert self.centers is not None
        if looking_is_free(self.centers) and not bool(torch.isfinite(self.centers[0, 0])):
            raise ValueError("this k-means codebook has no centres yet: fit it on data first")
        actions = self._checked(actions).clamp(-1, 1)
        return nearest_center(actions, self.centers.to(actions.dtype))

    def spec(self) -> dict[str, object]:
        assert self.centers is not None
        return {"kind": self.kind, "centers": self.centers.tolist()}


class DiscreteCodebook(Codebook):
    """One code per action of a discrete action space."""

    kind = "discrete"

    def __init__(self, n: int) -> None:
        check_count("n", n, 1)
        super().__init__()
        self.dim = self.num_codes = n
        self.register_buffer("centers", torch.eye(n))

    @classmethod
    def from_options(cls, dim: int, options: CodebookOptions) -> Self:
        return cls(dim)

    @classmethod
    def count(cls, dim: int, options: CodebookOptions) -> int:
        return dim

    def route(self, actions: Tensor) -> Tensor:
        """Action numbers (...), or one-hot actions (..., n), to codes (...) int64."""
        if isinstance(actions, Tensor) and not actions.is_floating_point() and actions.dtype != torch.bool:
            codes = actions.long()
            if looking_is_free(codes):
                check_codes(codes, self.num_codes)
            return codes
        return self._checked(actions).argmax(dim=-1)

    def routing_error(self, actions: Tensor, stands_for: Tensor) -> Tensor:
        """Every action is its own code."""
        return torch.zeros(stands_for.shape[:-1], device=stands_for.device)

    def spec(self) -> dict[str, object]:
        return {"kind": self.kind, "n": self.num_codes}


class ValuesCodebook(Codebook):
    """Actions of several discrete numbers: a code, and an account, for every value of each of them.

    Codes are numbered consecutively, number by number: value a of number d is code a + Σ_{e < d} values_e. A centre is
    one-hot; the centres of an action's codes add up to the action, one-hot in every number.
    """

    kind = "values"
    _offsets: Tensor

    def __init__(self, values: Sequence[int]) -> None:
        for count in values:
            check_count("values", count, 1)
        super().__init__()
        self.values, self.code_shape = tuple(values), (len(values),)
        self.dim = self.num_codes = sum(values)
        self.register_buffer("centers", torch.eye(self.num_codes))
        self.register_buffer("_offsets", torch.tensor((0, *values[:-1])).cumsum(0), persistent=False)

    @classmethod
    def from_options(cls, dim: int, options: CodebookOptions) -> Self:
        """A single number of `dim` values: a configuration does not list those of several."""
        return cls((dim,))

    @classmethod
    def count(cls, dim: int, options: CodebookOptions) -> int:
        return dim

    def route(self, actions: Tensor) -> Tensor:
        """Whole numbers from 0, (..., numbers) -> codes (..., numbers) int64."""
        if not isinstance(actions, Tensor) or actions.is_floating_point() or actions.shape[-1:] != self.code_shape:
            raise ValueError(f"actions must be whole numbers of shape (..., {len(self.values)}), got {_shape(actions)}")
        numbers = actions.long()
        if looking_is_free(numbers):
            for count, number in zip(self.values, numbers.unbind(-1), strict=True):
                check_codes(number, count)
        return numbers + self._offsets

    def stands_for(self, codes: Tensor) -> Tensor:
        return self.center_of(codes).sum(dim=-2)

    def routing_error(self, actions: Tensor, stands_for: Tensor) -> Tensor:
        """Every value is its own code."""
        return torch.zeros(stands_for.shape[:-1], device=stands_for.device)

    def spec(self) -> dict[str, object]:
        return {"kind": self.kind, "values": list(self.values)}


def _shape(value: object) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
