"""Behaviour cloning: an MLP on the state in place of the transformer."""

from torch import Tensor, nn

from mental_accounts.policy_options import PolicyConfig


class StateMap(nn.Module):
    """Two layers as wide as the MLP of a block, with ReLU, the same at every step: (B, K, state) -> (B, K, hidden)."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        inner = config.inner or 4 * config.hidden
        self.layers = nn.Sequential(
            nn.Linear(config.state_features, inner),
            nn.ReLU(),
            nn.Linear(inner, inner),
            nn.ReLU(),
            nn.Linear(inner, config.hidden),
        )

    def forward(self, states: Tensor) -> Tensor:
        mapped: Tensor = self.layers(states)
        return mapped
