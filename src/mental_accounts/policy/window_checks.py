"""Whether a window is one that a policy can read: what accounts read is checked by those."""

import torch

from mental_accounts.checks import looking_is_free
from mental_accounts.policy.window import Window
from mental_accounts.policy_options import PolicyConfig


def check_window(config: PolicyConfig, window: Window) -> None:
    """Refuse a window whose tensors do not fit the configuration, naming the first."""
    state_dim, observations = config.state_dim, window.observations
    if observations.ndim != 3 or observations.shape[-1] != state_dim:
        raise ValueError(
            f"observations must have shape (B, K, state_dim = {state_dim}), got {tuple(observations.shape)}"
        )
    B, K = observations.shape[:2]
    if not config.is_recurrent and not 1 <= K <= config.context_length:
        raise ValueError(f"a window must have 1 to context_length = {config.context_length} steps, got {K}")
    kept = (B, config.gru_layers, config.hidden)
    if window.memory is not None and tuple(window.memory.shape) != kept:
        raise ValueError(f"memory must have shape (B, layers, hidden) = {kept}, got {tuple(window.memory.shape)}")
    shape, actions = (B, K, *config.action.shape), window.actions
    if tuple(actions.shape) != shape:
        raise ValueError(
            f"actions must have shape {shape} (action.size = {config.action.size}), got {tuple(actions.shape)}"
        )
    masks, flags = window.action_masks, (B, K, sum(config.action.choices))
    if (masks is not None) != config.action_masks or (masks is not None and tuple(masks.shape) != flags):
        got = None if masks is None else tuple(masks.shape)
        wanted = f"must be bool of shape {flags}" if config.action_masks else "must be None"
        raise ValueError(f"action_masks {wanted}, since config.action_masks is {config.action_masks}, got {got}")
    for name, value in (("returns_to_go", window.returns_to_go), ("timesteps", window.timesteps)):
        if tuple(value.shape) != (B, K):
            raise ValueError(f"{name} must have shape {(B, K)}, got {tuple(value.shape)}")
    if window.timesteps.is_floating_point():
        raise TypeError(f"timesteps must be integers, got {window.timesteps.dtype}")
    if window.mask is not None:
        mask = window.mask
        if mask.dtype != torch.bool or tuple(mask.shape) != (B, K):
            raise ValueError(f"mask must be bool of shape {(B, K)}, got {mask.dtype} {tuple(mask.shape)}")
        if looking_is_free(mask) and not bool((mask[:, 1:] >= mask[:, :-1]).all()):
            raise ValueError("mask must have its padding (False) on the left of every window")
