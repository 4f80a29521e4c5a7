"""The idea: action -> code -> attraction -> attention bias. Pure PyTorch; knows nothing of reinforcement learning."""

from mental_accounts.accounts.attraction import EWA, CanonicalEWA, UpdateRule, check_rule
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
from mental_accounts.accounts.books import Books
from mental_accounts.accounts.codebook import Codebook, check_codebook
from mental_accounts.accounts.codebooks import CODEBOOKS, codebook_from_spec
from mental_accounts.accounts.entry import Entry
from mental_accounts.accounts.grids import Algorithm2Codebook, GridCodebook, HierarchicalCodebook, ProductCodebook
from mental_accounts.accounts.ledger import CanonicalLedger, Ledger
from mental_accounts.accounts.listed import DiscreteCodebook, KMeansCodebook, ValuesCodebook
from mental_accounts.accounts.rewards import RewardTransform
from mental_accounts.accounts.state_models import StateBaseline, StateCodes, StateValue

__all__ = [
    "CODEBOOKS",
    "EWA",
    "Algorithm2Codebook",
    "BiasScale",
    "Books",
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
    "StateValue",
    "UpdateRule",
    "ValuesCodebook",
    "attention_drift",
    "check_codebook",
    "check_rule",
    "codebook_from_spec",
    "column_bias",
    "drift_bound",
    "now_bias",
    "paper_drift_bound",
    "range_drift_bound",
    "spread_columns",
]
