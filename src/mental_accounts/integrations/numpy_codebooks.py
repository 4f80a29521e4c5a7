"""Codebooks in NumPy: actions (n, dim) -> codes (n, codes per action), as the codebooks of PyTorch route them.

A codebook of your own is anything with `num_codes`, `dim` and such a `route`. It gets numbers in [-1, 1] where the
action space is a Box, and whole numbers from 0 where it is Discrete, MultiDiscrete or MultiBinary.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from mental_accounts.errors import UsageError
from mental_accounts.number_checks import check_count

Array = NDArray[Any]
Codes = NDArray[np.int64]

MOST_CODES = 2**16
"""Of one ledger: every observation carries them all."""


@runtime_checkable
class NumpyCodebook(Protocol):
    """What a codebook has to have."""

    num_codes: int
    dim: int
    """Numbers of one action: 1 for Discrete."""

    def route(self, actions: Array) -> Codes:
        """(n, dim) -> (n, codes per action), or (n,) for one."""


class DiscreteCodes:
    """One code per action; where an action has several parts, one code per value of each part."""

    def __init__(self, values: int | Sequence[int]) -> None:
        sizes = [values] if isinstance(values, int | np.integer) else list(values)
        self.values = [check_count("values", size, 1) for size in sizes]
        self.dim, self.num_codes = len(self.values), sum(self.values)
        self._begins = np.cumsum([0, *self.values[:-1]])  # (dim,)

    def route(self, actions: Array) -> Codes:
        codes: Codes = actions + self._begins
        return codes

    def spec(self) -> dict[str, object]:
        return {"kind": "values", "values": self.values}


class GridCodes:
    """A grid of `bins` points per dimension, as `GridCodebook`; one per group of dimensions, as `ProductCodebook`."""

    def __init__(self, dim: int, bins: int = 3, groups: int = 1) -> None:
        self.dim, self.bins = check_count("dim", dim, 1), check_count("bins", bins, 2)
        self.groups = check_count("groups", groups, 1)
        if groups > dim:
            raise UsageError(f"groups must be at most dim = {dim}, got {groups}")
        sizes = [dim // groups + (group < dim % groups) for group in range(groups)]
        self.num_codes = sum(bins**size for size in sizes)
        if self.num_codes > MOST_CODES:
            raise UsageError(
                f"{bins} bins in {dim} dimensions and {groups} groups make {self.num_codes} codes, over {MOST_CODES}: "
                "take more groups or fewer bins"
            )
        self.places = [(group, bins**place) for group, size in enumerate(sizes) for place in range(size)]  # dim of them
        self._weights = np.zeros((dim, groups), np.int64)  # the first dimension of a group varies fastest
        for d, (group, weight) in enumerate(self.places):
            self._weights[d, group] = weight
        self.begins = np.cumsum([0, *(bins**size for size in sizes[:-1])])  # (groups,)
        borders = (2 * np.arange(bins - 1) + 1) / (bins - 1) - 1
        self.borders = {np.dtype(kind): borders.astype(kind) for kind in (np.float32, np.float64)}

    def route(self, actions: Array) -> Codes:
        digits = self.borders[actions.dtype].searchsorted(actions)  # (n, dim); on a border: the lower cell
        codes: Codes = digits @ self._weights
        return codes if self.groups == 1 else codes + self.begins

    def spec(self) -> dict[str, object]:
        return {"kind": "product", "dim": self.dim, "groups": self.groups, "bins": self.bins}


class TableCodes:
    """A grid whose cells are mapped to codes: only some cells have one (`num_codes`, the paper's Algorithm 2)."""

    def __init__(self, dim: int, bins: int, table: Sequence[int] | Array, num_codes: int) -> None:
        self._grid = GridCodes(dim, bins)
        self._table = np.asarray(table, np.int64)  # (bins**dim,)
        self.dim, self.num_codes = dim, num_codes
        if self._table.shape != (bins**dim,) or self._table.min() < 0 or self._table.max() >= num_codes:
            raise UsageError(f"table must have a code in [0, {num_codes}) for each of {bins}**{dim} cells")

    def route(self, actions: Array) -> Codes:
        codes: Codes = self._table[self._grid.route(actions)]
        return codes

    def spec(self) -> dict[str, object]:
        table = self._table.tolist()
        return {"kind": "table", "dim": self.dim, "bins": self._grid.bins, "table": table, "num_codes": self.num_codes}


class LevelCodes:
    """Coarse and fine grids together, as `HierarchicalCodebook`."""

    def __init__(self, dim: int, levels: Sequence[int] = (2, 3)) -> None:
        self._grids = [GridCodes(dim, bins) for bins in levels]
        sizes = [grid.num_codes for grid in self._grids]
        self.dim, self.levels, self.num_codes = dim, list(levels), sum(sizes)
        self._begins = np.cumsum([0, *sizes[:-1]])

    def route(self, actions: Array) -> Codes:
        codes: Codes = np.concatenate([grid.route(actions) for grid in self._grids], axis=1) + self._begins
        return codes

    def spec(self) -> dict[str, object]:
        return {"kind": "hierarchical", "dim": self.dim, "levels": self.levels}


class NearestCodes:
    """The nearest of listed centres (num_codes, dim), as `KMeansCodebook`."""

    def __init__(self, centers: Sequence[Sequence[float]] | Array) -> None:
        self.centers = np.asarray(centers, np.float32)
        if self.centers.ndim != 2 or not self.centers.size or not np.isfinite(self.centers).all():
            raise UsageError(
                f"centers must be finite, (num_codes, dim), got shape {self.centers.shape}; fit them first"
            )
        self.num_codes, self.dim = self.centers.shape

    def route(self, actions: Array) -> Codes:
        apart = np.square(actions[:, None].clip(-1, 1) - self.centers)  # (n, num_codes, dim)
        codes: Codes = apart.sum(axis=-1).argmin(axis=1)[:, None]
        return codes

    def spec(self) -> dict[str, object]:
        return {"kind": "kmeans", "centers": self.centers.tolist()}


class CheckedCodes:
    """A codebook that others wrote: its codes are looked at before anything is entered under them."""

    def __init__(self, codebook: NumpyCodebook) -> None:
        self.codebook, self.num_codes, self.dim = codebook, codebook.num_codes, codebook.dim
        check_count("num_codes", self.num_codes, 1)

    def route(self, actions: Array) -> Codes:
        codes = np.array(self.codebook.route(actions))  # a copy: they are kept, and the codebook may reuse its array
        codes = codes[:, None] if codes.ndim == 1 else codes
        fits = codes.ndim == 2 and len(codes) == len(actions) and codes.dtype.kind in "iu"
        if not fits or codes.min() < 0 or codes.max() >= self.num_codes:
            raise UsageError(
                f"{type(self.codebook).__name__}.route must give whole numbers in [0, {self.num_codes}) of shape "
                f"({len(actions)}, codes per action), got {codes.dtype} {codes.shape}: {codes.tolist()}"
            )
        if codes.shape[1] > 1 and (np.diff(np.sort(codes, axis=1), axis=1) == 0).any():
            raise UsageError(f"the codes of one action must differ, but route gave {codes.tolist()}")
        return codes


class TorchCodes:
    """A codebook of PyTorch whose kind is not known here: it routes by itself, which takes longer."""

    def __init__(self, codebook: Any) -> None:
        self.codebook, self.num_codes, self.dim = codebook, codebook.num_codes, codebook.dim

    def route(self, actions: Array) -> Codes:
        import torch

        codes: Codes = self.codebook.route(torch.from_numpy(actions)).numpy()
        return codes


def codes_from_spec(spec: Mapping[str, Any]) -> NumpyCodebook:
    """A codebook from plain values, as the `spec()` of a codebook here or of PyTorch gives them."""
    given = {name: value for name, value in spec.items() if name != "kind"}
    kinds = {"values": DiscreteCodes, "product": GridCodes, "table": TableCodes, "hierarchical": LevelCodes}
    try:
        match spec.get("kind"):
            case "discrete":
                return DiscreteCodes(given["n"])
            case "kmeans":
                return NearestCodes(given["centers"])
            case str(kind) if kind in kinds:
                made: NumpyCodebook = kinds[kind](**given)
                return made
    except (TypeError, KeyError) as error:
        raise UsageError(f"codebook {dict(spec)} is not what a codebook's spec() gives: {error}") from error
    raise UsageError(f"codebook of kind {spec.get('kind')!r} is unknown; give the codebook itself")


def codes_of(codebook: object) -> NumpyCodebook:
    """Any codebook that a user may give, as one in NumPy."""
    if isinstance(codebook, DiscreteCodes | GridCodes | TableCodes | LevelCodes | NearestCodes):
        return codebook
    if isinstance(codebook, Mapping):
        return codes_from_spec(codebook)
    from mental_accounts.accounts import Codebook, GridCodebook  # whoever has one has PyTorch

    if isinstance(codebook, GridCodebook) and codebook.cells <= MOST_CODES:
        if type(codebook) is GridCodebook and codebook.num_codes == codebook.cells:
            return GridCodes(codebook.dim, codebook.bins)
        return TableCodes(codebook.dim, codebook.bins, _table(codebook), codebook.num_codes)
    if isinstance(codebook, Codebook):
        if codebook.kind in ("product", "hierarchical", "kmeans", "discrete", "values"):
            return codes_from_spec(codebook.spec())
        return CheckedCodes(TorchCodes(codebook))
    if isinstance(codebook, NumpyCodebook):
        return CheckedCodes(codebook)
    raise UsageError(
        "codebook must be one such as ma.GridCodebook(dim=2), or have num_codes, dim and route(actions), "
        f"got {type(codebook).__name__}"
    )


def _table(codebook: Any) -> Array:
    """The code of every cell of a grid, (cells,): the code of its grid point."""
    import torch

    cells = np.arange(codebook.cells)
    digits = cells[:, None] // codebook.bins ** np.arange(codebook.dim) % codebook.bins  # (cells, dim)
    table: Array = codebook.route(torch.from_numpy(2.0 * digits / (codebook.bins - 1) - 1.0)).numpy()
    return table
