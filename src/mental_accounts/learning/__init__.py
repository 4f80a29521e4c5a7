"""Training one policy."""

from mental_accounts.learning.objective import Losses, Objective
from mental_accounts.learning.optimizers import Lamb, WarmUp, clip_gradients, make_optimizer

__all__ = ["Lamb", "Losses", "Objective", "WarmUp", "clip_gradients", "make_optimizer"]
