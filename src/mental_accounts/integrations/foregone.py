"""Foregone payoffs: what `info["foregone"]` says that every code would have paid at this step, checked."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mental_accounts.errors import UsageError
from mental_accounts.integrations.numpy_ledger import RuleNumbers
from mental_accounts.integrations.step_infos import StepInfos

Floats = NDArray[np.float64]

NAME = "foregone"


def check_foregone(rule: RuleNumbers, codes_per_action: int) -> None:
    """Refuse them where a ledger cannot enter them."""
    if rule.rho is None:
        raise UsageError(
            "foregone=True needs rule=ma.CanonicalEWA(phi=..., rho=..., delta=...), whose delta weighs the payoffs of "
            "actions that were not taken; the paper's rule (EWA, or phi and delta alone) has no place for them"
        )
    if codes_per_action > 1:
        raise UsageError(
            f"foregone=True needs one code per action, but this codebook gives {codes_per_action}, which are paid "
            "together; give a codebook of one code per action"
        )


def refuse_late(delay: int) -> None:
    """Refuse a delay of rewards together with foregone payoffs."""
    if delay:
        raise UsageError(
            f"a reward_delay (of {delay}) and foregone=True do not go together: nothing says whether info['foregone'] "
            "is of the step it comes with or of the one that the reward belongs to; use one of them"
        )


def read_one(info: Mapping[str, Any], num_codes: int) -> Floats:
    """What one environment reports, in rewards: (num_codes,)."""
    if NAME not in info:
        raise _not_reported("")
    return _checked(info[NAME], (num_codes,))


def read_all(infos: StepInfos, active: NDArray[np.bool_], num_codes: int) -> Floats:
    """What n environments report, (n, num_codes); 0 where they are not `active` (n,)."""
    found, missing = np.zeros((len(active), num_codes)), active.copy()
    for values, said in infos.said(NAME):
        told = values[said].tolist() if values.dtype == object else values[said]  # object: lists were reported
        found[said] = _checked(told, (int(said.sum()), num_codes))
        missing &= ~said
    if missing.any():
        raise _not_reported(f" of environments {np.flatnonzero(missing).tolist()}")
    return found


def _checked(told: Any, shape: tuple[int, ...]) -> Floats:
    try:
        values = np.asarray(told, np.float64)
    except (TypeError, ValueError):
        values = np.zeros(())
    if values.shape != shape or not np.isfinite(values).all():
        raise UsageError(
            f"info['foregone'] must have the finite payoff of each of the {shape[-1]} codes, got {told!r}; fix the "
            "environment, or leave foregone=False"
        )
    return values


def _not_reported(whose: str) -> UsageError:
    return UsageError(
        f"foregone=True needs info['foregone']{whose} at every step, the payoffs of all codes, and it was not "
        "reported; leave foregone=False"
    )
