"""Half precision on hardware that supports it: bf16 autocast, with float32 as the reference."""

from typing import Literal

import torch
from torch import Tensor

from mental_accounts.policy_options import Precision


def autocast(device: torch.device | str, precision: Precision = "auto") -> torch.autocast:
    """The context to run a policy in: bf16 on CUDA and on CPUs with bf16 instructions (auto), float32 elsewhere.

    Weights stay float32; token embeddings, accounts, heads and log-probabilities are computed in float32. Blocks are
    computed in bf16, and the account bias is added in the precision of their attention.
    """
    resolved = resolve_precision(device, precision)
    return torch.autocast(torch.device(device).type, dtype=torch.bfloat16, enabled=resolved == "bf16")


def as_autocast(x: Tensor) -> Tensor:
    """A tensor in autocast's precision: cast once, instead of once in every matrix product."""
    kind = x.device.type
    return x.to(torch.get_autocast_dtype(kind)) if torch.is_autocast_enabled(kind) else x


def resolve_precision(device: torch.device | str, precision: Precision) -> Literal["float32", "bf16"]:
    """The precision that `auto` stands for on this device."""
    if precision not in ("auto", "float32", "bf16"):
        raise ValueError(f"precision must be auto, float32 or bf16, got {precision!r}")
    if precision == "auto":
        return "bf16" if has_native_bf16(torch.device(device).type) else "float32"
    return precision


def has_native_bf16(device_type: str) -> bool:
    """Whether there are native instructions for bf16 matrix products."""
    if device_type == "cuda":
        return torch.cuda.is_available() and torch.cuda.is_bf16_supported(including_emulation=False)
    if device_type == "cpu":
        capabilities: dict[str, bool] = getattr(torch.cpu, "get_capabilities", dict)()  # missing in older PyTorch
        return any(capabilities.get(name) for name in ("avx512_bf16", "amx_bf16", "bf16"))
    return False
