"""The idea: action -> code -> attraction -> attention bias. Pure PyTorch; imports nothing else of the project."""

from mental_accounts.accounts.attraction import EWA, CanonicalEWA, UpdateRule
from mental_accounts.accounts.bias import (
    BiasScale,
    attention_drift,
    column_bias,
    drift_bound,
    now_bias,
    paper_drift_bound,
    range_drift_bound,
    spread_columns,
)
from mental_accounts.accounts.bookkeeping import Bookkeeping, Entry, StateBaseline, StateCodes
from mental_accounts.accounts.codebooks import (
    Codebook,
    DiscreteCodebook,
    GridCodebook,
    HierarchicalCodebook,
    KMeansCodebook,
    ProductCodebook,
    codebook_from_spec,
)
from mental_accounts.accounts.ledger import CanonicalLedger, Ledger
from mental_accounts.accounts.rewards import RewardTransform
from mental_accounts.checks import check_codes, check_finite

__all__ = [
    "EWA",
    "BiasScale",
    "Bookkeeping",
    "CanonicalEWA",
    "CanonicalLedger",
    "Codebook",
    "DiscreteCodebook",
    "Entry",
    "GridCodebook",
    "HierarchicalCodebook",
    "KMeansCodebook",
    "Ledger",
    "ProductCodebook",
    "RewardTransform",
    "StateBaseline",
    "StateCodes",
    "UpdateRule",
    "attention_drift",
    "check_codes",
    "check_finite",
    "codebook_from_spec",
    "column_bias",
    "drift_bound",
    "now_bias",
    "paper_drift_bound",
    "range_drift_bound",
    "spread_columns",
]
