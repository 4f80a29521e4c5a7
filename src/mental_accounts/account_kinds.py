"""The kinds of codebooks and of reward transforms, by their names in a configuration.

No PyTorch here: configurations are checked by these names, and `accounts` has what they stand for.
"""

from dataclasses import dataclass
from typing import Literal

RewardKind = Literal["raw", "centred", "standardised"]


@dataclass(frozen=True)
class CodebookKind:
    """What a configuration has to know of a kind of codebook."""

    has_groups: bool = False
    """Whether an action has several codes."""
    needs_num_codes: bool = False
    """Whether `num_codes` must be given."""
    needs_coarse_bins: bool = False
    """Whether `coarse_bins` must be below `bins`."""


BOX_CODEBOOKS: dict[str, CodebookKind] = {
    "grid": CodebookKind(),
    "algorithm2": CodebookKind(needs_num_codes=True),
    "product": CodebookKind(has_groups=True),
    "hierarchical": CodebookKind(has_groups=True, needs_coarse_bins=True),
    "kmeans": CodebookKind(needs_num_codes=True),
}
"""Those for box actions. Discrete actions are their own codes."""
