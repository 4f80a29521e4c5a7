"""Action -> code: the codebooks that sort actions into kinds.

Actions live in [-1, 1] per dimension; what lies outside is clamped to the border cell. `route` costs O(dim) by direct
lookup where a table fits, never synchronises a GPU and can be captured in a CUDA graph. Ties go to the lowest code.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import ClassVar, Self

import torch
from torch import Tensor, nn

from mental_accounts.accounts.precision import FullPrecisionModule, full_precision
from mental_accounts.checks import check_codes, check_count, check_finite, looking_is_free

TABLE_CELLS = 2**22
"""The largest grid for which a cell -> code table (and the list of all centres) is kept."""

_SEARCH_ELEMENTS = 2**22
"""Distances held at a time by a nearest-code search: bounds its memory to a few dozen megabytes."""


class Codebook(FullPrecisionModule, ABC):
    """A fixed set of codes (kinds of action) and the map from actions to them."""

    kind: ClassVar[str]
    dim: int
    num_codes: int
    code_shape: tuple[int, ...] = ()
    """The shape of one action's codes: (), or (groups,) for a product codebook."""
    centers: Tensor | None
    """The action that each code stands for, (num_codes, dim); None for a grid of more than 2**22 cells."""

    @abstractmethod
    def route(self, actions: Tensor) -> Tensor:
        """The code of each action: (..., dim) -> (...) int64."""

    @abstractmethod
    def spec(self) -> dict[str, object]:
        """What `codebook_from_spec` needs to build the same codebook again; plain JSON values."""

    def forward(self, actions: Tensor) -> Tensor:
        """The same as `route`."""
        return self.route(actions)

    def extra_repr(self) -> str:
        return ", ".join(f"{name}={value}" for name, value in self.spec().items() if name not in ("kind", "centers"))

    def _checked(self, actions: Tensor) -> Tensor:
        """Actions as a floating-point tensor with the right trailing dimension."""
        if not isinstance(actions, Tensor) or not actions.is_floating_point():
            came = actions.dtype if isinstance(actions, Tensor) else type(actions).__name__
            raise TypeError(f"actions must be a floating-point tensor of shape (..., {self.dim}), got {came}")
        if actions.ndim == 0 or actions.shape[-1] != self.dim:
            raise ValueError(f"actions must have shape (..., {self.dim}), got {tuple(actions.shape)}")
        if looking_is_free(actions):
            check_finite("actions", actions)
        return full_precision(actions.detach())


def check_codebook(codebook: Codebook) -> None:
    """Refuse what is no codebook, or one that does not say what a codebook must."""
    if not isinstance(codebook, Codebook):
        raise TypeError(f"codebook must be a codebook such as GridCodebook(dim=3), got {type(codebook).__name__}")
    missing = [name for name in ("dim", "num_codes", "centers") if not hasattr(codebook, name)]
    if missing:
        raise TypeError(
            f"{type(codebook).__name__} must set {', '.join(missing)} in its __init__ (centers may be None)"
        )


class GridCodebook(Codebook):
    """An axis-aligned grid with `bins` points per dimension, c[d] = 2 g[d] / (bins - 1) - 1 (Algorithm 2).

    Code i has the base-`bins` digits g of i, dimension 1 varying fastest. Without `num_codes` every cell is a code.
    With it only the first `num_codes` cells are, and another cell belongs to the code nearest to its own grid point:
    the paper's appendix takes 27 of 3**6 cells, which differ in the first three dimensions only, so that routing
    ignores the other three (see `ProductCodebook` and `KMeansCodebook` for codes that do not).
    """

    kind = "grid"

    def __init__(self, dim: int, bins: int = 3, num_codes: int | None = None) -> None:
        check_count("dim", dim, 1)
        check_count("bins", bins, 2)
        cells = bins**dim
        if num_codes is not None:
            check_count("num_codes", num_codes, 1)
            if num_codes > cells:
                raise ValueError(
                    f"num_codes must be at most bins**dim = {bins}**{dim} = {cells} cells, got {num_codes}; "
                    "raise bins, or lower num_codes"
                )
        elif cells > 2**62:
            raise ValueError(
                f"a full grid of {bins}**{dim} cells has more codes than an int64 can number; "
                f"give num_codes, or use ProductCodebook(dim={dim}, groups=..., bins={bins})"
            )
        super().__init__()
        self._build(dim, bins, cells if num_codes is None else num_codes)

    @classmethod
    def algorithm2(cls, dim: int, num_codes: int) -> Self:
        """The paper's Algorithm 2: bins and codes chosen from the number of codes requested.

        b = min(8, max(2, ⌊num_codes^(1/dim)⌋)), lowered while b**dim > num_codes and b > 2; then N = min(b**dim, 128)
        where dim >= 6 and b**dim > num_codes, else N = num_codes. Where N exceeds b**dim (as for dim=2, num_codes=27:
        5 bins, 25 cells) the codes beyond the last cell repeat the first ones and are never routed to.
        """
        check_count("dim", dim, 1)
        check_count("num_codes", num_codes, 1)
        bins = min(8, max(2, _integer_root(num_codes, dim)))
        while bins**dim > num_codes and bins > 2:
            bins -= 1
        codes = min(bins**dim, 128) if dim >= 6 and bins**dim > num_codes else num_codes
        book = cls.__new__(cls)
        nn.Module.__init__(book)
        book._build(dim, bins, codes)
        book._requested = num_codes
        return book

    def _build(self, dim: int, bins: int, num_codes: int) -> None:
        self.dim, self.bins, self.num_codes = dim, bins, num_codes
        self.cells = bins**dim
        self._requested: int | None = None
        digits = torch.arange(bins - 1, dtype=torch.float64)
        # An action on the border between two cells belongs to the lower one; comparing keeps that exact.
        self._borders: Tensor
        self.register_buffer("_borders", (2 * digits + 1) / (bins - 1) - 1, persistent=False)
        listed = num_codes <= TABLE_CELLS
        self.register_buffer("centers", self._grid_points(torch.arange(num_codes)) if listed else None)
        self._table: Tensor | None
        tabled = num_codes < self.cells <= TABLE_CELLS
        self.register_buffer("_table", _grid_table(dim, bins, num_codes) if tabled else None, persistent=False)

    def route(self, actions: Tensor) -> Tensor:
        """The code of each action's cell, that of the nearest grid point: (..., dim) -> (...) int64."""
        actions = self._checked(actions)
        borders = self._borders.to(actions.dtype)
        if self.num_codes < self.cells and self._table is None:
            points = torch.bucketize(actions.contiguous(), borders, out_int32=True)
            codes = torch.arange(self.num_codes, device=actions.device)
            return nearest_center(points.float(), _digits(codes, self.dim, self.bins))
        cell = torch.bucketize(actions[..., -1].contiguous(), borders)  # (...)
        for d in range(self.dim - 2, -1, -1):
            cell = cell * self.bins + torch.bucketize(actions[..., d].contiguous(), borders)
        return cell if self._table is None else self._table[cell]

    def center_of(self, codes: Tensor) -> Tensor:
        """The actions that codes stand for, (...) -> (..., dim): by arithmetic, so for grids of any size."""
        if looking_is_free(codes):
            check_codes(codes, self.num_codes)
        return self._grid_points(codes)

    def spec(self) -> dict[str, object]:
        if self._requested is not None:
            return {"kind": "algorithm2", "dim": self.dim, "num_codes": self._requested}
        return {"kind": self.kind, "dim": self.dim, "bins": self.bins, "num_codes": self.num_codes}

    def _grid_points(self, codes: Tensor) -> Tensor:
        return 2 * _digits(codes, self.dim, self.bins) / (self.bins - 1) - 1


class ProductCodebook(Codebook):
    """One small full grid per group of dimensions: an action has one code, and one account, in every group.

    `dim` dimensions are split into `groups` runs of (nearly) equal length. Codes are numbered through, group after
    group, so that all accounts fit one ledger of `num_codes`. A centre has zeros outside of its group: the centres
    of an action's codes add up to the quantised action.
    """

    kind = "product"

    def __init__(self, dim: int, groups: int, bins: int = 3) -> None:
        check_count("dim", dim, 1)
        check_count("groups", groups, 1)
        if groups > dim:
            raise ValueError(f"groups must be at most dim = {dim}, got {groups}")
        super().__init__()
        self.dim, self.groups, self.bins = dim, groups, bins
        self._sizes = sizes = [dim // groups + (group < dim % groups) for group in range(groups)]
        grids = [GridCodebook(size, bins) for size in sizes]
        self.grids = nn.ModuleList(grids)
        self.code_shape = (groups,)
        starts = [sum(sizes[:group]) for group in range(groups)]
        counts = [bins**size for size in sizes]
        self._offsets = [sum(counts[:group]) for group in range(groups)]
        self.num_codes = sum(counts)
        if self.num_codes > TABLE_CELLS:
            raise ValueError(
                f"{groups} groups of {bins} bins make {self.num_codes} codes, over {TABLE_CELLS}: more groups"
            )
        centers = torch.zeros(self.num_codes, dim)
        for grid, start, offset in zip(grids, starts, self._offsets, strict=True):
            centers[offset : offset + grid.num_codes, start : start + grid.dim] = grid._grid_points(
                torch.arange(grid.num_codes)
            )
        self.register_buffer("centers", centers)

    def route(self, actions: Tensor) -> Tensor:
        """The codes of each action, one per group: (..., dim) -> (..., groups) int64."""
        actions = self._checked(actions)
        parts = actions.split(self._sizes, dim=-1)
        codes = [grid(part) + offset for grid, part, offset in zip(self.grids, parts, self._offsets, strict=True)]
        return torch.stack(codes, dim=-1)

    def spec(self) -> dict[str, object]:
        return {"kind": self.kind, "dim": self.dim, "groups": self.groups, "bins": self.bins}


class HierarchicalCodebook(Codebook):
    """Coarse and fine grids together: an action has one code in each, and an account under each.

    `levels` are the points per dimension of every grid, the coarsest first. Coarse accounts learn fast, fine ones tell
    actions apart. Codes of level l begin after those of the levels before it.
    """

    kind = "hierarchical"

    def __init__(self, dim: int, levels: Sequence[int] = (2, 3)) -> None:
        super().__init__()
        if len(levels) < 2 or list(levels) != sorted(set(levels)):
            raise ValueError(f"levels must be two or more rising numbers of bins, got {tuple(levels)}")
        self.dim, self.levels = dim, tuple(levels)
        self.grids = nn.ModuleList(GridCodebook(dim, bins) for bins in levels)
        sizes = [bins**dim for bins in levels]
        self.num_codes, self.code_shape = sum(sizes), (len(levels),)
        centers = [grid.centers for grid in self.grids if isinstance(grid, GridCodebook)]
        known = [part for part in centers if part is not None]
        self.register_buffer("centers", torch.cat(known) if len(known) == len(levels) else None)
        self.begins = [sum(sizes[:level]) for level in range(len(levels))]

    def route(self, actions: Tensor) -> Tensor:
        """The code of every level: (..., dim) -> (..., levels) int64."""
        return torch.stack([grid(actions) + begin for grid, begin in zip(self.grids, self.begins, strict=True)], dim=-1)

    def spec(self) -> dict[str, object]:
        return {"kind": self.kind, "dim": self.dim, "levels": list(self.levels)}


class KMeansCodebook(Codebook):
    """Codes placed where the data are: an action belongs to the nearest centre."""

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
        """A codebook whose centres are still to come (by `load_state_dict`); routing with it is refused."""
        book = cls(torch.zeros(check_count("num_codes", num_codes, 1), check_count("dim", dim, 1)))
        assert book.centers is not None
        book.centers.fill_(math.nan)
        return book

    @classmethod
    def fit(cls, actions: Tensor, num_codes: int, seed: int = 0, restarts: int = 4) -> Self:
        """Fit on actions (..., dim) by Lloyd's algorithm from k-means++ starts; the best of `restarts`, by seed."""
        check_count("num_codes", num_codes, 1)
        check_count("restarts", restarts, 1)
        if not isinstance(actions, Tensor) or not actions.is_floating_point() or actions.ndim < 2:
            raise ValueError(f"actions must be a floating-point tensor (..., dim), got {_shape(actions)}")
        check_finite("actions", actions)
        points = actions.detach().reshape(-1, actions.shape[-1]).clamp(-1, 1)
        return cls(fit_centers(points, num_codes, seed, "actions", restarts))

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

    def route(self, actions: Tensor) -> Tensor:
        """Action numbers (...), or one-hot actions (..., n), to codes (...) int64."""
        if isinstance(actions, Tensor) and not actions.is_floating_point() and actions.dtype != torch.bool:
            codes = actions.long()
            if looking_is_free(codes):
                check_codes(codes, self.num_codes)
            return codes
        return self._checked(actions).argmax(dim=-1)

    def spec(self) -> dict[str, object]:
        return {"kind": self.kind, "n": self.num_codes}


def codebook_from_spec(spec: dict[str, object]) -> Codebook:
    """Build the codebook that `spec()` described."""
    arguments = {name: value for name, value in spec.items() if name != "kind"}
    if spec.get("kind") == KMeansCodebook.kind:
        return KMeansCodebook(torch.tensor(arguments["centers"]))
    makers: dict[object, Callable[..., Codebook]] = {
        "grid": GridCodebook,
        "algorithm2": GridCodebook.algorithm2,
        "product": ProductCodebook,
        "hierarchical": HierarchicalCodebook,
        "discrete": DiscreteCodebook,
    }
    if spec.get("kind") not in makers:
        raise ValueError(f"codebook kind must be one of {[*makers, 'kmeans']}, got {spec.get('kind')!r}")
    return makers[spec["kind"]](**arguments)


def _integer_root(number: int, degree: int) -> int:
    """The largest integer r with r**degree <= number; floats get this wrong (int(64 ** (1/3)) == 3)."""
    root: int = round(number ** (1 / degree))
    while root**degree > number:
        root -= 1
    while (root + 1) ** degree <= number:
        root += 1
    return root


def _digits(codes: Tensor, dim: int, bins: int) -> Tensor:
    """Base-`bins` digits, the first varying fastest: (...) -> (..., dim) as float32, which is exact for them."""
    digits = []
    for _ in range(dim):
        digits.append(codes % bins)
        codes = codes // bins
    return torch.stack(digits, dim=-1).float()


@lru_cache(maxsize=64)
def _grid_table(dim: int, bins: int, num_codes: int) -> Tensor:
    """Algorithm 2's T: the code nearest to each cell's grid point, (bins**dim,). Built once, and shared."""
    points = _digits(torch.arange(bins**dim), dim, bins)
    return nearest_center(points, points[:num_codes])


def fit_centers(points: Tensor, count: int, seed: int, what: str, restarts: int = 4) -> Tensor:
    """Lloyd's algorithm from k-means++ starts, the best of `restarts`: (n, dim) -> (count, dim) float64 on the CPU."""
    from scipy.cluster.vq import ClusterError, kmeans2, vq  # slow to import, and few need it

    points = points.detach().double().cpu()
    distinct = torch.unique(points, dim=0)
    if len(distinct) < count:
        raise ValueError(f"num_codes must be at most the number of distinct {what}, {len(distinct)}, got {count}")
    best, least = distinct[:count].numpy(), math.inf
    if len(distinct) > count:
        for restart in range(restarts):
            try:
                fitted, _ = kmeans2(points.numpy(), count, iter=50, minit="++", missing="raise", rng=seed + restart)
            except ClusterError:  # a centre lost all its points: another start
                continue
            error = float((vq(points.numpy(), fitted)[1] ** 2).mean())
            if error < least:
                best, least = fitted, error
    return torch.from_numpy(best)


def nearest_center(points: Tensor, centers: Tensor) -> Tensor:
    """Index of the nearest centre, the lowest on a tie: (..., dim), (codes, dim) -> (...); memory bounded by chunks."""
    flat = points.reshape(-1, points.shape[-1])  # (n, dim)
    chunk = max(1, _SEARCH_ELEMENTS // len(centers))
    nearest = []
    for part in flat.split(chunk):
        distance = (part[:, :1] - centers[:, 0]).square()  # (chunk, codes)
        for d in range(1, flat.shape[1]):
            difference = part[:, d : d + 1] - centers[:, d]
            distance.addcmul_(difference, difference)
        nearest.append(distance.argmin(dim=1))
    return torch.cat(nearest).reshape(points.shape[:-1])


def _shape(value: object) -> str:
    return f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
