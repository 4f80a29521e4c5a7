"""The same random windows for every peer: hidden 512, 4 layers, 4 heads, state 11, action 3, dropout 0.1."""

import torch
from torch import Tensor

STATE, ACTION, HIDDEN, LAYERS, HEADS, LONGEST = 11, 3, 512, 4, 4, 1000


def make_batch(B: int, K: int, device: str) -> dict[str, Tensor]:
    """B windows of K steps, an eighth of them padded by a quarter."""
    torch.manual_seed(1)
    batch = {
        "states": torch.randn(B, K, STATE),
        "actions": torch.rand(B, K, ACTION) * 1.8 - 0.9,
        "returns": torch.rand(B, K, 1) * 3,
        "timesteps": (torch.arange(K) + torch.randint(0, LONGEST - K + 1, (B, 1))),
        "mask": torch.ones(B, K, dtype=torch.bool),
    }
    batch["mask"][: B // 8, : K // 4] = False
    return {name: value.to(device) for name, value in batch.items()}
