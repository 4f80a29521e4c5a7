"""The table of codebooks. A new kind is a class, one line here, and one in account_kinds.py."""

from typing import Any

from mental_accounts.accounts.codebook import Codebook
from mental_accounts.accounts.grids import Algorithm2Codebook, GridCodebook, HierarchicalCodebook, ProductCodebook
from mental_accounts.accounts.listed import DiscreteCodebook, KMeansCodebook, ValuesCodebook

CODEBOOKS: dict[str, type[Codebook]] = {
    "grid": GridCodebook,
    "algorithm2": Algorithm2Codebook,
    "product": ProductCodebook,
    "hierarchical": HierarchicalCodebook,
    "kmeans": KMeansCodebook,
    "discrete": DiscreteCodebook,
    "values": ValuesCodebook,
}
"""By their name in a configuration."""


def codebook_from_spec(spec: dict[str, Any]) -> Codebook:
    """Build the codebook that `spec()` described."""
    kind = spec.get("kind")
    if kind not in CODEBOOKS:
        raise ValueError(f"codebook kind must be one of {list(CODEBOOKS)}, got {kind!r}")
    return CODEBOOKS[kind].from_spec(**{name: value for name, value in spec.items() if name != "kind"})
