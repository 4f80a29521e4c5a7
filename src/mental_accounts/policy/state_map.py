"""Behaviour cloning in place of the transformer: what an MLP makes of the state alone."""

from torch import Tensor, nn

from mental_accounts.config import PolicyConfig


class StateMap(nn.Module):
    """Two layers of width `hidden` with ReLU, the same at every step: (B, K, state) -> (B, K, hidden)."""

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(config.state_dim, config.hidden),
            nn.ReLU(),
            nn.Linear(config.hidden, config.hidden),
            nn.ReLU(),
        )

    def forward(self, states: Tensor) -> Tensor:
        mapped: Tensor = self.layers(states)
        return mapped
