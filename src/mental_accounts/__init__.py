"""Mental accounts for transformer policies (EWA-VQ-ODT).

A transformer policy keeps an account of each kind of action (how it paid off lately) and lets the balances tilt its
attention. The whole data flow, one call a line:

    book = ma.GridCodebook(dim=3, bins=3)                   # 27 kinds of action
    codes = book.route(actions)                             # action -> code
    rewards = ma.RewardTransform.fit(rewards)(rewards)      # reward -> payoff in [-1, 1]
    rule = ma.EWA(phi=0.05, delta=0.8)
    A = rule.trace(codes, rewards)                          # offline: the attraction of each step's own code
    ledger = rule.ledger(book.num_codes, batch_shape=(8,))  # online: the accounts of 8 actors
    a = ledger.post(codes[:, 0], rewards[:, 0])             #   ... the same numbers, step by step
    bias = ma.column_bias(A[:, -20:], beta=0.05)            # (B, 1, 1, 3K), added to the attention logits
"""

from mental_accounts.accounts import (
    EWA,
    BiasScale,
    CanonicalEWA,
    CanonicalLedger,
    DiscreteCodebook,
    GridCodebook,
    HierarchicalCodebook,
    KMeansCodebook,
    Ledger,
    ProductCodebook,
    RewardTransform,
    attention_drift,
    column_bias,
    drift_bound,
    now_bias,
    paper_drift_bound,
    range_drift_bound,
)
from mental_accounts.config import AccountsConfig, ActionSpec, PolicyConfig
from mental_accounts.policy import DecisionTransformer

__version__ = "0.2.0.dev0"

__all__ = [
    "EWA",
    "AccountsConfig",
    "ActionSpec",
    "BiasScale",
    "CanonicalEWA",
    "CanonicalLedger",
    "DecisionTransformer",
    "DiscreteCodebook",
    "GridCodebook",
    "HierarchicalCodebook",
    "KMeansCodebook",
    "Ledger",
    "PolicyConfig",
    "ProductCodebook",
    "RewardTransform",
    "__version__",
    "attention_drift",
    "column_bias",
    "drift_bound",
    "now_bias",
    "paper_drift_bound",
    "range_drift_bound",
]
