"""What a ledger can tell of a code: its balance, how often it was taken lately, and what it paid on average.

From decayed sums over the steps of an episode, of payoffs S_j and of visits C_j:

    balance    the attraction A_j
    count      1 - 1/√(1 + C_j): 0 where untried; what is missing to 1 goes as the standard error of the mean
    mean       S_j / C_j, 0 where untried

No PyTorch here: the ledger in NumPy and the one in PyTorch share these names.
"""

from collections.abc import Sequence

from mental_accounts.errors import UsageError

CHANNELS = ("balance", "count", "mean")
MOST_DELAY = 1024
"""Steps that a reward may be late: the codes of so many are kept while acting."""
UNTRIED = 1e-30
"""Decayed counts below this fade to untried: a mean is S / max(C, this)."""


def check_channels(channels: Sequence[str]) -> tuple[str, ...]:
    """Refuse channels that are unknown, given twice, or none."""
    if isinstance(channels, str) or not isinstance(channels, Sequence) or not channels:
        raise UsageError(f"channels must be one or more of {CHANNELS}, such as channels=('balance',), got {channels!r}")
    unknown = [channel for channel in channels if channel not in CHANNELS]
    if unknown or len(set(channels)) < len(channels):
        raise UsageError(f"channels must be of {CHANNELS}, each at most once, got {tuple(channels)}")
    return tuple(channels)
