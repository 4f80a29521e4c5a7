"""The critics of a run on disk, beside its policy: their weights, and in the header what their values mean."""

from dataclasses import dataclass
from pathlib import Path

import torch

from mental_accounts.checks import check_finite
from mental_accounts.data.data_checks import shown_names
from mental_accounts.data.tensor_files import read_tensors, write_tensors
from mental_accounts.errors import DataError
from mental_accounts.fields import check_fields
from mental_accounts.learning.critics import Critics, critics_of
from mental_accounts.policy import DecisionTransformer
from mental_accounts.value_options import ValueConfig

FILE = "critics.safetensors"
FORMAT = "mental-accounts critics 1"
FACTS = {"layer_norm": "true or false", "discount": "a finite number", "reward_scale": "a finite number"}
FIRST = "weights.0"


@dataclass(frozen=True)
class PolicyCritics:
    """The critics of a policy, and the units of their values."""

    critics: Critics
    discount: float
    """γ."""
    reward_scale: float
    """What rewards were divided by: a value times this is in the environment's units of reward."""


def write_critics(run: Path, held: PolicyCritics) -> None:
    """Write the critics of a run; an existing file is replaced atomically."""
    facts = {"layer_norm": held.critics.layer_norm, "discount": held.discount, "reward_scale": held.reward_scale}
    write_tensors(run / FILE, held.critics.state_dict(), facts, FORMAT)


def read_critics(run: Path, policy: DecisionTransformer) -> PolicyCritics | None:
    """The critics of a run's policy, on its device; None if there are none to read. What does not fit is refused.

    Critics of a recurrent policy are in its checkpoints alone: nothing shows their values.
    """
    path = run / FILE
    if policy.config.is_recurrent or not path.exists():
        return None
    try:
        return _read(path, policy)
    except (ValueError, TypeError, RuntimeError) as error:
        raise DataError(f"{error} (a run without {FILE} has no values to show)") from error


def _read(path: Path, policy: DecisionTransformer) -> PolicyCritics:
    tensors, header = read_tensors(path, [FIRST], FORMAT)
    facts = check_fields(header, FACTS, str(path))
    options = ValueConfig(**{name: facts[name] for name in FACTS})  # checks the numbers
    hidden = max([1, *tensors[FIRST].shape[-1:]])
    with torch.device("meta"):  # nothing is allocated before the shapes are known to be right
        critics = critics_of(policy, hidden, layer_norm=options.layer_norm)
    expected = critics.state_dict()
    if set(tensors) != set(expected):
        raise ValueError(f"{path}: expected the tensors {sorted(expected)}, got {shown_names(sorted(tensors))}")
    for name, value in expected.items():
        found = tensors[name]
        if found.shape != value.shape or found.dtype != value.dtype:
            wanted, got = (f"{tuple(each.shape)} of {each.dtype}" for each in (value, found))
            raise ValueError(f"{path}: {name} must have shape {wanted}, got {got}; it belongs to another policy")
        check_finite(f"{path}: {name}", found)
    critics.load_state_dict(tensors, assign=True)
    critics.requires_grad_(False).to(policy.device)
    assert options.reward_scale is not None
    return PolicyCritics(critics, options.discount, options.reward_scale)
