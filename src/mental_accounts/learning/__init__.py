"""Training one policy."""

from typing import TYPE_CHECKING

from mental_accounts.lazy_names import on_first_use

if TYPE_CHECKING:
    from mental_accounts.learning.objective import Losses, Objective
    from mental_accounts.learning.optimizers import Lamb, WarmUp, clip_gradients, make_optimizer

__all__ = ["Lamb", "Losses", "Objective", "WarmUp", "clip_gradients", "make_optimizer"]

_HOMES = {
    "Lamb": "optimizers",
    "Losses": "objective",
    "Objective": "objective",
    "WarmUp": "optimizers",
    "clip_gradients": "optimizers",
    "make_optimizer": "optimizers",
}
"""Names -> the modules that have them."""

__getattr__ = on_first_use(__name__, _HOMES)  # the command line reads run folders without PyTorch


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
