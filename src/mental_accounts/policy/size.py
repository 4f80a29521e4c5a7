"""How large a policy is, by its configuration alone: before memory is taken for it."""

from mental_accounts.accounts.codebooks import TABLE_CELLS
from mental_accounts.config import PolicyConfig

MOST_DIMENSIONS = 64
"""From so many on a grid has more cells than can be numbered: the rest need not be counted."""


def count_parameters(config: PolicyConfig) -> int:
    """Numbers that are learned; those of β aside."""
    h, state, action = config.hidden, config.state_dim, config.action.size
    doubled = config.is_constrained and not config.action.is_discrete  # mean and spread
    head = (2 if doubled else 1) * action * (h + 1)
    inner = config.inner or 4 * h
    if not config.is_sequence_model:
        return inner * (state + 1) + inner * (inner + 1) + h * (inner + 1) + head
    block = 4 * h * (h + 1) + inner * (h + 1) + h * (inner + 1) + 4 * h
    tokens = 2 * h + h * (state + 1) + h * (action if config.action.is_discrete else action + 1) + 2 * h
    places = h * config.max_timestep * config.timestep_embedding + h * config.context_length * config.order_embedding
    ledger = h * (count_codes(config) + 1) if config.reads_ledger else 0
    return tokens + places + config.layers * block + 2 * h + head + ledger + h * config.reads_rewards


def count_codes(config: PolicyConfig) -> int:
    """Codes that accounts are kept of; 0 without accounts."""
    accounts, dim = config.accounts, min(config.action.size, MOST_DIMENSIONS)
    if not config.has_accounts:
        return 0
    if config.action.is_discrete:
        codes = config.action.size
    elif accounts.codebook == "product":
        groups = min(accounts.groups, dim)
        codes = sum(accounts.bins ** (dim // groups + (group < dim % groups)) for group in range(groups))
    elif accounts.codebook == "hierarchical":
        codes = accounts.coarse_bins**dim + accounts.bins**dim
    elif accounts.codebook in ("kmeans", "algorithm2"):
        codes = accounts.num_codes or 0
    else:
        codes = accounts.bins**dim if accounts.num_codes is None else min(accounts.num_codes, accounts.bins**dim)
    return codes * accounts.state_codes


def account_bytes(config: PolicyConfig) -> int:
    """Memory of the codebook: its centres, and the borders of its bins."""
    if not config.has_accounts:
        return 0
    codes = count_codes(config) // config.accounts.state_codes
    if config.action.is_discrete:
        return 4 * codes**2  # each is as far from every other
    listed = codes if config.accounts.codebook == "kmeans" else min(codes, TABLE_CELLS)
    clusters = config.accounts.state_codes * config.state_dim
    return 4 * (listed * config.action.size + clusters) + 8 * config.accounts.bins
