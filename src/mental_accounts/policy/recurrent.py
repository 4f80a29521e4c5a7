"""The recurrent network of method gru, and of its critics: it reads an episode step by step, and carries a state.

At each step it reads the standardised state, the previous action and, where configured, the previous reward and the
return-to-go: each by a linear map, and their sum by ReLU. At an episode's first step there is no previous action and no
previous reward, and their maps add nothing.

States are computed in full precision even under autocast: rounding errors would add up over an episode, and the time
goes into the sequence of steps rather than into products. (Gradients are cuDNN's, whose products may be in TF32.)
"""

from collections.abc import Sequence
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from mental_accounts.checks import looking_is_free
from mental_accounts.policy.action_embedding import embed_actions
from mental_accounts.policy.dropout import drop
from mental_accounts.policy_options import PolicyConfig


class Recurrent(nn.Module):
    """K steps -> the state at each of them, and the memory after the last: the states of all layers."""

    def __init__(self, config: PolicyConfig, inputs: int | None = None) -> None:
        """`inputs` is the size of what it reads of each step beside actions and returns; None: the state's."""
        super().__init__()
        self.embed_state = nn.Linear(config.state_features if inputs is None else inputs, config.hidden)
        self.embed_action = embed_actions(config, bias=False)
        self.embed_return = nn.Linear(1, config.hidden, bias=False) if config.reads_returns else None
        self.layers = nn.ModuleList(nn.GRU(config.hidden, config.hidden) for _ in range(config.gru_layers))
        self.dropout = config.dropout

    def train(self, mode: bool = True) -> Self:
        """As for any module; but layers, which have no dropout of their own, stay in the mode with cuDNN gradients."""
        super().train(mode)
        for layer in self._grus:
            layer.train()
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        for layer in self._grus:
            layer.flatten_parameters()  # a copy's weights are no longer in one piece, which cuDNN wants

    def forward(
        self,
        states: Tensor,
        previous_actions: Tensor,
        returns: Tensor,
        timesteps: Tensor,
        mask: Tensor | None,
        rewards: Tensor | None = None,
        memory: Tensor | None = None,
    ) -> tuple[Tensor, Tensor]:
        """(B, K, inputs), (B, K, action) or (B, K), (B, K), (B, K), (B, K) -> (B, K, hidden), (B, layers, hidden).

        rewards (B, K, hidden) are already embedded. memory (B, layers, hidden) is that before the first step; None:
        zeros, as at the beginning of an episode.
        """
        with torch.autocast(states.device.type, enabled=False):
            embedded = self.embed_state(states) + self.embed_action(previous_actions) * (timesteps > 0).unsqueeze(-1)
            if rewards is not None:
                embedded = embedded + rewards
            if self.embed_return is not None:
                embedded = embedded + self.embed_return(returns.unsqueeze(-1))
            x = self._drop(F.relu(embedded))
            if memory is None:
                memory = x.new_zeros(len(x), len(self.layers), x.shape[-1])
            before = memory.unbind(dim=1)
            return self._one_step(x, before) if x.shape[1] == 1 else self._many_steps(x, mask, before)

    def _many_steps(self, x: Tensor, mask: Tensor | None, before: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """Padding is moved behind the real steps, where no state follows from it, and back again."""
        B, K, _ = x.shape
        if mask is None or (looking_is_free(mask) and bool(mask.all())):
            padding, steps = None, torch.full((B,), K, device=x.device)
        else:
            steps = mask.sum(dim=1)  # (B,)
            padding = (K - steps).unsqueeze(-1)  # (B, 1)
        places, after = torch.arange(K, device=x.device), []
        if padding is not None:
            x = _gather(x, (places + padding) % K)
        for number, (layer, state) in enumerate(zip(self._grus, before, strict=True)):
            x = self._drop(x) if number else x
            x = _through(layer, x.transpose(0, 1), state.unsqueeze(0).contiguous()).transpose(0, 1)
            after.append(_gather(x, (steps - 1).clamp(min=0).unsqueeze(-1)))  # (B, 1, hidden)
        return x if padding is None else _gather(x, (places - padding) % K), torch.cat(after, dim=1)

    def _one_step(self, x: Tensor, before: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
        """As `_many_steps`, for acting and export: PyTorch's ONNX exporter has converted nn.GRU to another network."""
        step, after = x[:, 0], []
        for number, (layer, state) in enumerate(zip(self._grus, before, strict=True)):
            step = torch.gru_cell(self._drop(step) if number else step, state, *layer.all_weights[0])
            after.append(step)
        return step.unsqueeze(1), torch.stack(after, dim=1)

    def _drop(self, x: Tensor) -> Tensor:
        return drop(x, self.dropout if self.training else 0.0)

    @property
    def _grus(self) -> list[nn.GRU]:
        return [layer for layer in self.layers if isinstance(layer, nn.GRU)]


def _through(layer: nn.GRU, x: Tensor, state: Tensor) -> Tensor:
    """(K, B, hidden), (1, B, hidden) -> (K, B, hidden), without the TF32 that cuDNN uses unless told."""
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        found: Tensor = layer(x, state)[0]
    return found


def _gather(x: Tensor, places: Tensor) -> Tensor:
    """(B, K, hidden) at places (B, n) -> (B, n, hidden)."""
    return x.gather(1, places.unsqueeze(-1).expand(-1, -1, x.shape[-1]))
