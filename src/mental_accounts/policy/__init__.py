"""The transformer that reads the accounts. Knows nothing about environments except their spaces."""

from mental_accounts.flattening import observation_spec_of
from mental_accounts.policy.acting import Actor
from mental_accounts.policy.context import Context
from mental_accounts.policy.decision_transformer import DecisionTransformer
from mental_accounts.policy.encoders import register_encoder
from mental_accounts.policy.half_precision import autocast, resolve_precision
from mental_accounts.policy.heads import (
    ActionDistribution,
    Categorical,
    ClippedGaussian,
    Deterministic,
    MultiCategorical,
    SquashedGaussian,
    disturbed,
    from_step,
)
from mental_accounts.policy.policy_accounts import PolicyAccounts
from mental_accounts.policy.window import Window
from mental_accounts.spaces import action_spec_of, state_dim_of

__all__ = [
    "ActionDistribution",
    "Actor",
    "Categorical",
    "ClippedGaussian",
    "Context",
    "DecisionTransformer",
    "Deterministic",
    "MultiCategorical",
    "PolicyAccounts",
    "SquashedGaussian",
    "Window",
    "action_spec_of",
    "autocast",
    "disturbed",
    "from_step",
    "observation_spec_of",
    "register_encoder",
    "resolve_precision",
    "state_dim_of",
]
