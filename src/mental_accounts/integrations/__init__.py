"""Accounts and ledgers in other people's models and environments.

`hugging_face_accounts`, `torch_accounts` and `torchrl_accounts` give a model of that library accounts: the same three
arguments everywhere (codebook, rule, beta), and `ledger_input` to tell it the ledger. `LedgerObservation` and
`LedgerVectorObservation` put a ledger into the observations of a Gymnasium environment; they need no PyTorch.
`PerCodePolicy` is a policy for Stable-Baselines3 that reads all codes of such a ledger by the same network. No library
is imported before it is asked for.
"""

from typing import TYPE_CHECKING

from mental_accounts.lazy_names import on_first_use

if TYPE_CHECKING:
    from mental_accounts.integrations.attached import AttachedAccounts
    from mental_accounts.integrations.columns import every
    from mental_accounts.integrations.hugging_face import hugging_face_accounts
    from mental_accounts.integrations.ledger_observation import LedgerObservation
    from mental_accounts.integrations.ledger_vector_observation import LedgerVectorObservation
    from mental_accounts.integrations.per_code_policy import PerCodePolicy
    from mental_accounts.integrations.running_rewards import RunningRewards
    from mental_accounts.integrations.torch_modules import torch_accounts
    from mental_accounts.integrations.torchrl_actors import ledger_transform, torchrl_accounts

__all__ = [
    "AttachedAccounts",
    "LedgerObservation",
    "LedgerVectorObservation",
    "PerCodePolicy",
    "RunningRewards",
    "every",
    "hugging_face_accounts",
    "ledger_transform",
    "torch_accounts",
    "torchrl_accounts",
]

_HOMES = {
    "AttachedAccounts": "attached",
    "LedgerObservation": "ledger_observation",
    "LedgerVectorObservation": "ledger_vector_observation",
    "PerCodePolicy": "per_code_policy",
    "RunningRewards": "running_rewards",
    "every": "columns",
    "hugging_face_accounts": "hugging_face",
    "ledger_transform": "torchrl_actors",
    "torch_accounts": "torch_modules",
    "torchrl_accounts": "torchrl_actors",
}
"""Names -> the modules that have them."""

__getattr__ = on_first_use(__name__, _HOMES)  # an environment's process need not wait for PyTorch


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
