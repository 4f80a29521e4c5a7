"""What a codebook is: a fixed set of codes (kinds of action), and the map from actions to them.

Actions are in [-1, 1] per dimension; values outside are clamped to the border cell. `route` costs O(dim) by direct
lookup where a table fits, never synchronises a GPU and can be captured in a CUDA graph. Ties go to the lowest code.

A new kind is one subclass, one line in codebooks.py and one in account_kinds.py, which says what a configuration must
give it. Everything a policy, a report or an export needs to know about a kind is in the methods below.
"""

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Protocol, Self

import torch
from torch import Tensor

from mental_accounts.accounts.precision import FullPrecisionModule, full_precision
from mental_accounts.checks import check_finite, looking_is_free


class CodebookOptions(Protocol):
    """The options of codebooks in a configuration; each kind reads its own."""

    @property
    def bins(self) -> int: ...
    @property
    def num_codes(self) -> int | None: ...
    @property
    def groups(self) -> int: ...
    @property
    def coarse_bins(self) -> int: ...


class Codebook(FullPrecisionModule, ABC):
    """A fixed set of codes and the map from actions to them."""

    kind: ClassVar[str]
    dim: int
    num_codes: int
    code_shape: tuple[int, ...] = ()
    """The shape of one action's codes: (), or (groups,) if it has several."""
    centers: Tensor | None
    """The action that each code stands for, (num_codes, dim); None if there are too many to list."""

    @abstractmethod
    def route(self, actions: Tensor) -> Tensor:
        """The code of each action: (..., dim) -> (...) int64."""

    @abstractmethod
    def spec(self) -> dict[str, object]:
        """What `codebook_from_spec` needs to build the same codebook again; plain JSON values."""

    # From a configuration.

    @classmethod
    @abstractmethod
    def from_options(cls, dim: int, options: CodebookOptions) -> Self:
        """The codebook of a configuration; parts fitted on data are filled in by `refit` or from a saved file."""

    @classmethod
    def from_spec(cls, **arguments: Any) -> Self:
        """Back from `spec`."""
        return cls(**arguments)

    @classmethod
    @abstractmethod
    def count(cls, dim: int, options: CodebookOptions) -> int:
        """How many codes that codebook would have, without allocating it."""

    @classmethod
    def memory(cls, codes: int, dim: int, options: CodebookOptions) -> int:
        """Bytes it would take with this many codes."""
        return 4 * codes * dim

    def refit(self, actions: Tensor, seed: int = 0) -> None:
        """Fit to actions (N, dim); most kinds have nothing to fit."""

    # What codes stand for.

    def center_of(self, codes: Tensor) -> Tensor:
        """The action that each code stands for: (...) -> (..., dim)."""
        assert self.centers is not None
        return self.centers[codes]

    def stands_for(self, codes: Tensor) -> Tensor:
        """The action that one step's codes stand for together: (..., *code_shape) -> (..., dim)."""
        return self.center_of(codes)

    def routing_error(self, actions: Tensor, stands_for: Tensor) -> Tensor:
        """How far actions are from what their codes stand for: (..., dim), (..., dim) -> (...)."""
        distance: Tensor = torch.linalg.vector_norm(actions - stands_for, dim=-1)
        return distance

    def determines(self, codes: Tensor) -> Tensor:
        """Which dimensions of an action a code determines: (...) -> (..., dim) bool."""
        return torch.ones(*codes.shape, self.dim, dtype=torch.bool, device=codes.device)

    def digits(self, codes: Tensor) -> Tensor | None:
        """The grid coordinates of codes, (...) -> (..., dim) integers; None if there is no grid."""
        return None

    def forward(self, actions: Tensor) -> Tensor:
        """The same as `route`."""
        return self.route(actions)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.spec().items() if name not in ("kind", "centers"))

    def _checked(self, actions: Tensor) -> Tensor:
        """Actions as a floating-point tensor with the right trailing dimension."""
        if not isinstance(actions, Tensor) or not actions.is_floating_point():
            got = actions.dtype if isinstance(actions, Tensor) else type(actions).__name__
            raise TypeError(f"actions must be a floating-point tensor of shape (..., {self.dim}), got {got}")
        if actions.ndim == 0 or actions.shape[-1] != self.dim:
            raise ValueError(f"actions must have shape (..., {self.dim}), got {tuple(actions.shape)}")
        if looking_is_free(actions):
            check_finite("actions", actions)
        return full_precision(actions.detach())


def check_codebook(codebook: Codebook) -> None:
    """Refuse anything but a codebook with all the attributes that a codebook must set."""
    if not isinstance(codebook, Codebook):
        raise TypeError(f"codebook must be a codebook such as GridCodebook(dim=3), got {type(codebook).__name__}")
    missing = [name for name in ("dim", "num_codes", "centers") if not hasattr(codebook, name)]
    if missing:
        raise TypeError(
            f"{type(codebook).__name__} must set {', '.join(missing)} in its __init__ (centers may be None)"
        )
