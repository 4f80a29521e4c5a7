"""Accounts inside other people's transformers.

`hugging_face_accounts`, `torch_accounts` and `torchrl_accounts` attach accounts to a model of that library; all take
the same three arguments (codebook, rule, beta). Each library is imported on first use.
"""

from mental_accounts.integrations.attached import AttachedAccounts, every
from mental_accounts.integrations.hugging_face import hugging_face_accounts
from mental_accounts.integrations.torch_modules import torch_accounts
from mental_accounts.integrations.torchrl_actors import ledger_transform, torchrl_accounts

__all__ = [
    "AttachedAccounts",
    "every",
    "hugging_face_accounts",
    "ledger_transform",
    "torch_accounts",
    "torchrl_accounts",
]
