"""Trajectories -> tokens: (return-to-go, state, action) per step, each with its own embedding."""

import torch
from torch import Tensor, nn

from mental_accounts.policy.action_embedding import embed_actions
from mental_accounts.policy.dropout import drop
from mental_accounts.policy_options import PolicyConfig

PLACE_STD = 1.0
"""Standard deviation of the initial timestep and order embeddings, as in ODT: about that of the other embeddings."""


class TokenEmbedding(nn.Module):
    """K steps -> 3K - 1 tokens of width `hidden`: the last action is never read, so it gets no token.

    The linear maps keep PyTorch's initial weights and biases, as in ODT. With a zero bias, a return token would be
    LN(g · w), the same for every g > 0, since LayerNorm divides by the norm of its input. With a bias, the direction of
    a token changes with its value.

    Computed in full precision even under autocast: in half precision, returns-to-go would be hard to distinguish.
    """

    def __init__(self, config: PolicyConfig) -> None:
        super().__init__()
        self.embed_return = nn.Linear(1, config.hidden)
        self.embed_state = nn.Linear(config.state_features, config.hidden)
        self.embed_action = embed_actions(config, bias=True)
        self.embed_timestep = nn.Embedding(config.max_timestep, config.hidden) if config.timestep_embedding else None
        self.embed_order = nn.Embedding(config.context_length, config.hidden) if config.order_embedding else None
        self.norm = nn.LayerNorm(config.hidden)
        self.dropout = config.dropout
        for places in (self.embed_timestep, self.embed_order):
            if places is not None:
                nn.init.normal_(places.weight, std=PLACE_STD)

    def forward(
        self,
        returns: Tensor,
        states: Tensor,
        actions: Tensor,
        timesteps: Tensor,
        mask: Tensor | None,
        balances: Tensor | None = None,
        rewards: Tensor | None = None,
    ) -> Tensor:
        """(B, K), (B, K, state), (B, K, action) or (B, K), (B, K), (B, K) -> (B, 3K - 1, hidden).

        balances and rewards (B, K, hidden) are already embedded, and are added to the state. The position in the
        context counts real steps, so that padding on the left changes nothing.
        """
        with torch.autocast(states.device.type, enabled=False):
            state = self.embed_state(states)
            if rewards is not None:
                state = state + rewards
            if balances is not None:
                state = state + balances
            parts = [self.embed_return(returns.unsqueeze(-1)), state, self.embed_action(actions)]
            tokens = torch.stack(parts, dim=2)  # (B, K, 3, hidden)
            if self.embed_timestep is not None:
                latest = self.embed_timestep.num_embeddings - 1
                tokens = tokens + self.embed_timestep(timesteps.clamp(0, latest)).unsqueeze(2)
            if self.embed_order is not None:
                present = torch.ones_like(timesteps, dtype=torch.bool) if mask is None else mask
                tokens = tokens + self.embed_order((present.cumsum(dim=1) - 1).clamp(min=0)).unsqueeze(2)
            normed = self.norm(tokens.flatten(1, 2)[:, :-1])  # (B, 3K - 1, hidden)
            return drop(normed, self.dropout if self.training else 0.0)
