"""The size of a policy from its configuration alone, without allocating it."""

from mental_accounts.policy.policy_accounts import codebook_kind
from mental_accounts.policy_options import PolicyConfig

MOST_DIMENSIONS = 64
"""With this many dimensions or more, a grid has more cells than can be numbered; there is no need to count them."""


def count_parameters(config: PolicyConfig) -> int:
    """The number of learned parameters, without β and encoders of images."""
    h, state, action = config.hidden, config.state_features, config.action.size
    doubled = config.is_constrained and not config.action.is_discrete  # mean and spread
    head = (2 if doubled else 1) * action * (h + 1)
    inner = config.inner or 4 * h
    if config.method == "bc":
        return inner * (state + 1) + inner * (inner + 1) + h * (inner + 1) + head
    if config.is_recurrent:
        inputs = h * (state + 1) + h * action + h * config.reads_returns + h * config.reads_rewards
        return inputs + count_recurrent(config) + head
    block = 4 * h * (h + 1) + inner * (h + 1) + h * (inner + 1) + 4 * h
    tokens = 2 * h + h * (state + 1) + h * (action if config.action.is_discrete else action + 1) + 2 * h
    places = h * config.max_timestep * config.timestep_embedding + h * config.context_length * config.order_embedding
    ledger = h * (count_told(config) + 1) if config.reads_ledger else 0
    return tokens + places + config.layers * block + 2 * h + head + ledger + h * config.reads_rewards


def count_recurrent(config: PolicyConfig) -> int:
    """The number of parameters of all layers of a GRU."""
    return config.gru_layers * 6 * config.hidden * (config.hidden + 1)


def telling_shapes(config: PolicyConfig) -> dict[str, tuple[int, ...]]:
    """The shapes of some weights by name, which tell whether all fit the configuration."""
    h, state = config.hidden, config.state_features
    found: dict[str, tuple[int, ...]] = {"state_mean": (config.state_dim,)}
    if config.is_recurrent:
        return found | {"recurrent.embed_state.weight": (h, state)}
    if not config.is_transformer:
        return found | {"state_map.layers.0.weight": (config.inner or 4 * h, state)}
    found["embedding.embed_return.weight"] = (h, 1)
    return found | ({"embedding.embed_timestep.weight": (config.max_timestep, h)} if config.timestep_embedding else {})


def count_codes(config: PolicyConfig) -> int:
    """The number of codes with accounts; 0 without accounts."""
    return _codes_of_actions(config) * config.accounts.state_codes if config.has_accounts else 0


def count_told(config: PolicyConfig) -> int:
    """How many numbers the ledger tells the policy; 0 if it does not read it."""
    return count_codes(config) * len(config.accounts.ledger_channels) if config.reads_ledger else 0


def account_bytes(config: PolicyConfig) -> int:
    """Memory of the codebook and of the clusters of states."""
    if not config.has_accounts:
        return 0
    accounts, action = config.accounts, config.action
    book = codebook_kind(accounts, action).memory(_codes_of_actions(config), action.size, accounts)
    return book + 4 * accounts.state_codes * config.state_dim


def _codes_of_actions(config: PolicyConfig) -> int:
    dim = config.action.size if config.action.is_discrete else min(config.action.size, MOST_DIMENSIONS)
    return codebook_kind(config.accounts, config.action).count(dim, config.accounts)
