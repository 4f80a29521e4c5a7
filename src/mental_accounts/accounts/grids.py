"""Codebooks on grids: one grid, the paper's Algorithm 2, one grid per group of dimensions, coarse and fine grids."""

from collections.abc import Sequence
from functools import lru_cache
from typing import Self

import torch
from torch import Tensor, nn

from mental_accounts.accounts.codebook import Codebook, CodebookOptions
from mental_accounts.accounts.nearest import nearest_center
from mental_accounts.checks import check_codes, check_count, looking_is_free

TABLE_CELLS = 2**22
"""The largest grid for which a cell -> code table (and the list of all centres) is kept."""


class GridCodebook(Codebook):
    """An axis-aligned grid with `bins` points per dimension, c[d] = 2 g[d] / (bins - 1) - 1 (Algorithm 2).

    Code i has the base-`bins` digits g of i, dimension 1 varying fastest. Without `num_codes` every cell is a code.
    With it only the first `num_codes` cells are, and any other cell belongs to the code nearest to its own grid point.
    The paper's appendix takes 27 of 3**6 cells. These differ in the first three dimensions only, so routing ignores the
    other three (`ProductCodebook` and `KMeansCodebook` use all of them).
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

    @staticmethod
    def algorithm2(dim: int, num_codes: int) -> "Algorithm2Codebook":
        """The paper's Algorithm 2: bins and codes chosen from the number of codes requested."""
        return Algorithm2Codebook(dim, num_codes)

    @classmethod
    def from_options(cls, dim: int, options: CodebookOptions) -> Self:
        wanted = options.num_codes
        return cls(dim, options.bins, wanted if wanted is not None and wanted < options.bins**dim else None)

    @classmethod
    def count(cls, dim: int, options: CodebookOptions) -> int:
        cells: int = options.bins**dim
        return cells if options.num_codes is None else min(options.num_codes, cells)

    @classmethod
    def memory(cls, codes: int, dim: int, options: CodebookOptions) -> int:
        return grid_memory(codes, dim, options)

    def _build(self, dim: int, bins: int, num_codes: int) -> None:
        self.dim, self.bins, self.num_codes = dim, bins, num_codes
        self.cells = bins**dim
        digits = torch.arange(bins - 1, dtype=torch.float64)
        # An action on the border between two cells belongs to the lower one; comparisons keep that exact.
        self._borders: Tensor
        self.register_buffer("_borders", (2 * digits + 1) / (bins - 1) - 1, persistent=False)
        listed = num_codes <= TABLE_CELLS
        self.register_buffer("centers", _grid_points(torch.arange(num_codes), dim, bins) if listed else None)
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
        """The actions that codes stand for, (...) -> (..., dim): computed, not looked up, so for grids of any size."""
        if looking_is_free(codes):
            check_codes(codes, self.num_codes)
        return _grid_points(codes, self.dim, self.bins)

    def digits(self, codes: Tensor) -> Tensor | None:
        return _digits(codes, self.dim, self.bins).long()

    def spec(self) -> dict[str, object]:
        return {"kind": self.kind, "dim": self.dim, "bins": self.bins, "num_codes": self.num_codes}


class Algorithm2Codebook(GridCodebook):
    """The paper's Algorithm 2: a grid whose bins and codes follow from the number of codes requested.

    b = min(8, max(2, ⌊num_codes^(1/dim)⌋)), lowered while b**dim > num_codes and b > 2; then N = min(b**dim, 128) where
    dim >= 6 and b**dim > num_codes, else N = num_codes. Where N exceeds b**dim (as for dim=2, num_codes=27: 5 bins, 25
    cells) the codes beyond the last cell repeat the first ones and are never routed to.
    """

    kind = "algorithm2"

    def __init__(self, dim: int, num_codes: int) -> None:
        check_count("dim", dim, 1)
        check_count("num_codes", num_codes, 1)
        bins = min(8, max(2, _integer_root(num_codes, dim)))
        while bins**dim > num_codes and bins > 2:
            bins -= 1
        codes = min(bins**dim, 128) if dim >= 6 and bins**dim > num_codes else num_codes
        nn.Module.__init__(self)
        self._build(dim, bins, codes)
        self.requested = num_codes

    @classmethod
    def from_options(cls, dim: int, options: CodebookOptions) -> Self:
        assert options.num_codes is not None  # needs_num_codes
        return cls(dim, options.num_codes)

    @classmethod
    def count(cls, dim: int, options: CodebookOptions) -> int:
        return options.num_codes or 0

    def spec(self) -> dict[str, object]:
        return {"kind": self.kind, "dim": self.dim, "num_codes": self.requested}


class ProductCodebook(Codebook):
    """One small full grid per group of dimensions: an action has one code, and one account, in every group.

    `dim` dimensions are split into `groups` runs of (nearly) equal length. Codes are numbered consecutively, group by
    group, so that all accounts fit one ledger of `num_codes`. A centre is zero outside its group: the centres of an
    action's codes add up to the quantised action.
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
            centers[offset : offset + grid.num_codes, start : start + grid.dim] = _grid_points(
                torch.arange(grid.num_codes), grid.dim, bins
            )
        self.register_buffer("centers", centers)

    @classmethod
    def from_options(cls, dim: int, options: CodebookOptions) -> Self:
        return cls(dim, min(options.groups, dim), options.bins)

    @classmethod
    def count(cls, dim: int, options: CodebookOptions) -> int:
        groups = min(options.groups, dim)
        return sum(options.bins ** (dim // groups + (group < dim % groups)) for group in range(groups))

    @classmethod
    def memory(cls, codes: int, dim: int, options: CodebookOptions) -> int:
        return grid_memory(codes, dim, options)

    def route(self, actions: Tensor) -> Tensor:
        """The codes of each action, one per group: (..., dim) -> (..., groups) int64."""
        actions = self._checked(actions)
        parts = actions.split(self._sizes, dim=-1)
        codes = [grid(part) + offset for grid, part, offset in zip(self.grids, parts, self._offsets, strict=True)]
        return torch.stack(codes, dim=-1)

    def stands_for(self, codes: Tensor) -> Tensor:
        return self.center_of(codes).sum(dim=-2)  # (..., groups, dim): zeros outside each group

    def determines(self, codes: Tensor) -> Tensor:
        group = torch.bucketize(codes.contiguous(), torch.tensor(self._offsets[1:], device=codes.device), right=True)
        of_dimension = torch.repeat_interleave(torch.tensor(self._sizes, device=codes.device))  # (dim,)
        return group.unsqueeze(-1) == of_dimension

    def spec(self) -> dict[str, object]:
        return {"kind": self.kind, "dim": self.dim, "groups": self.groups, "bins": self.bins}


class HierarchicalCodebook(Codebook):
    """Coarse and fine grids together: an action has one code in each, and an account under each.

    `levels` are the points per dimension of every grid, the coarsest first. Coarse accounts learn fast, fine ones
    distinguish actions. Codes of level l are numbered after those of the levels before it.
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

    @classmethod
    def from_options(cls, dim: int, options: CodebookOptions) -> Self:
        return cls(dim, (options.coarse_bins, options.bins))

    @classmethod
    def count(cls, dim: int, options: CodebookOptions) -> int:
        codes: int = options.coarse_bins**dim + options.bins**dim
        return codes

    @classmethod
    def memory(cls, codes: int, dim: int, options: CodebookOptions) -> int:
        return grid_memory(codes, dim, options)

    def route(self, actions: Tensor) -> Tensor:
        """The code of every level: (..., dim) -> (..., levels) int64."""
        return torch.stack([grid(actions) + begin for grid, begin in zip(self.grids, self.begins, strict=True)], dim=-1)

    def center_of(self, codes: Tensor) -> Tensor:
        level = torch.bucketize(codes.contiguous(), torch.tensor(self.begins[1:], device=codes.device), right=True)
        found = codes.new_zeros(*codes.shape, self.dim, dtype=torch.float32)
        for place, (bins, begin) in enumerate(zip(self.levels, self.begins, strict=True)):
            points = _grid_points((codes - begin).clamp(0, bins**self.dim - 1), self.dim, bins)
            found = torch.where((level == place).unsqueeze(-1), points, found)
        return found

    def stands_for(self, codes: Tensor) -> Tensor:
        return self.center_of(codes[..., -1])  # of the finest grid

    def spec(self) -> dict[str, object]:
        return {"kind": self.kind, "dim": self.dim, "levels": list(self.levels)}


def grid_memory(codes: int, dim: int, options: CodebookOptions) -> int:
    """Bytes of the listed centres and of the bin borders."""
    return 4 * min(codes, TABLE_CELLS) * dim + 8 * options.bins


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


def _grid_points(codes: Tensor, dim: int, bins: int) -> Tensor:
    """c[d] = 2 g[d] / (bins - 1) - 1 of each code's digits g: (...) -> (..., dim)."""
    return 2 * _digits(codes, dim, bins) / (bins - 1) - 1


@lru_cache(maxsize=64)
def _grid_table(dim: int, bins: int, num_codes: int) -> Tensor:
    """Algorithm 2's T: the code nearest to each cell's grid point, (bins**dim,). Built once, and shared."""
    points = _digits(torch.arange(bins**dim), dim, bins)
    return nearest_center(points, points[:num_codes])
