"""Optimisers: LAMB and AdamW for many tensors at once, warm-up, gradient clipping.

Nothing here synchronises a GPU; learning rate and step counts are tensors, so that a whole update can be captured in a
CUDA graph and replayed.
"""

from collections.abc import Callable, Iterable
from typing import Any, overload

import torch
from torch import Tensor
from torch.optim import AdamW, Optimizer

from mental_accounts.config import OptimizerName


class Lamb(Optimizer):
    """LAMB (You et al., 2020): Adam's step, rescaled per tensor to the size of that tensor.

    u = m̂ / (√v̂ + ε) + weight_decay · w, and w ← w - lr · (‖w‖ / ‖u‖) · u; the ratio is 1 where either norm is 0.
    """

    def __init__(
        self,
        params: Iterable[Tensor],
        lr: float | Tensor = 1e-3,
        betas: tuple[float, float] = (0.9, 0.999),
        eps: float = 1e-8,
        weight_decay: float = 0.0,
    ) -> None:
        if not float(lr) > 0 or not eps > 0 or not weight_decay >= 0:
            raise ValueError(f"lr and eps must be positive, weight_decay 0 or more, got {lr}, {eps}, {weight_decay}")
        if not all(0.0 <= beta < 1.0 for beta in betas):
            raise ValueError(f"betas must be in [0, 1), got {betas}")
        super().__init__(params, {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay})
        self.uncompile()

    def compile(self) -> None:
        """Fuse the kernels of a step, starting with the next one."""
        self._directions: Callable[..., list[Tensor]] = torch.compile(lamb_directions, dynamic=False)
        self._move: Callable[..., None] = torch.compile(lamb_move, dynamic=False)

    def uncompile(self) -> None:
        """Return to unfused kernels."""
        self._directions, self._move = lamb_directions, lamb_move

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """One step for all parameters that have a gradient."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if params:
                self._step_group(group, params)
        return loss

    def _step_group(self, group: dict[str, Any], params: list[Tensor]) -> None:
        grads = [p.grad for p in params if p.grad is not None]
        for p in params:
            if not self.state[p]:
                self.state[p] = {"exp_avg": torch.zeros_like(p), "exp_avg_sq": torch.zeros_like(p)}
        means, squares = ([self.state[p][name] for p in params] for name in ("exp_avg", "exp_avg_sq"))
        # The step count is a tensor, since a captured graph must update it; float64, for 1 - beta2**1 = 0.001.
        step: Tensor = group.setdefault("step", torch.zeros((), dtype=torch.float64, device=params[0].device))
        step.add_(1)
        updates = self._directions(
            params, grads, means, squares, step, group["betas"], group["eps"], group["weight_decay"]
        )
        sizes, lengths = torch.stack(torch._foreach_norm(params)), torch.stack(torch._foreach_norm(updates))
        trust = torch.where((sizes > 0) & (lengths > 0), sizes / lengths, 1.0) * group["lr"]
        self._move(params, updates, list(trust.unbind()))


def lamb_directions(
    params: list[Tensor],
    grads: list[Tensor],
    means: list[Tensor],
    squares: list[Tensor],
    step: Tensor,
    betas: tuple[float, float],
    eps: float,
    weight_decay: float,
) -> list[Tensor]:
    """The directions u of step number `step`; the running means of gradients and squares are updated in place."""
    beta1, beta2 = betas
    first, second = ((1.0 - beta**step).to(params[0].dtype) for beta in (beta1, beta2))
    torch._foreach_lerp_(means, grads, 1.0 - beta1)
    torch._foreach_mul_(squares, beta2)
    torch._foreach_addcmul_(squares, grads, grads, 1.0 - beta2)
    updates = torch._foreach_sqrt(squares)
    torch._foreach_div_(updates, second.sqrt())
    torch._foreach_add_(updates, eps)
    torch._foreach_reciprocal_(updates)
    torch._foreach_mul_(updates, means)
    torch._foreach_div_(updates, first)
    if weight_decay:
        torch._foreach_add_(updates, params, alpha=weight_decay)
    return list(updates)


def lamb_move(params: list[Tensor], updates: list[Tensor], trust: list[Tensor]) -> None:
    """The step w ← w - trust · u, in place; overwrites the updates."""
    torch._foreach_mul_(updates, trust)
    torch._foreach_sub_(params, updates)


def make_optimizer(
    name: OptimizerName, params: Iterable[Tensor], lr: float, weight_decay: float, device: torch.device | str = "cpu"
) -> Optimizer:
    """LAMB or AdamW with the learning rate as a tensor on the device."""
    on_gpu = torch.device(device).type == "cuda"
    exact = torch.float32 if on_gpu and name == "adamw" else torch.float64  # AdamW's GPU kernel takes only float32
    rate = torch.tensor(lr, dtype=exact, device=device)
    if name == "lamb":
        return Lamb(params, lr=rate, weight_decay=weight_decay)
    if name == "adamw":
        return AdamW(params, lr=rate, weight_decay=weight_decay, fused=True, capturable=on_gpu)
    raise ValueError(f"optimizer must be lamb or adamw, got {name!r}")


class WarmUp:
    """Linear warm-up: the learning rate of update n (from 0) is lr · min((n + 1) / steps, 1).

    With `until` it is also multiplied by 1 - n / until, and is 0 from that update on.
    `advance` is called after every update; it works only on tensors, so that it can be part of a CUDA graph.
    """

    def __init__(self, optimizer: Optimizer, steps: int, until: int | None = None) -> None:
        if steps < 1:
            raise ValueError(f"warm-up steps must be at least 1, got {steps}")
        if until is not None and until < 1:
            raise ValueError(f"the learning rate must be positive for at least one update, got until = {until}")
        if not all(isinstance(group["lr"], Tensor) for group in optimizer.param_groups):
            raise TypeError("the optimiser's lr must be a tensor, as make_optimizer gives it")
        self.steps, self.until = steps, until
        self._optimizer = optimizer
        self._targets = [float(group["lr"]) for group in optimizer.param_groups]
        self.updates = torch.zeros((), device=optimizer.param_groups[0]["lr"].device, dtype=torch.float64)
        self._set_rates()

    @torch.no_grad()
    def advance(self) -> None:
        """Count one update."""
        self.updates.add_(1)
        self._set_rates()

    def state_dict(self) -> dict[str, Tensor]:
        """The number of updates made."""
        return {"updates": self.updates.clone()}

    def load_state_dict(self, state: dict[str, Tensor]) -> None:
        """Restore the count; call it after the optimiser's own load_state_dict."""
        self.updates.copy_(state["updates"])
        self._set_rates()

    def _set_rates(self) -> None:
        share = ((self.updates + 1) / self.steps).clamp(max=1.0)
        if self.until is not None:
            share = share * (1.0 - self.updates / self.until).clamp(min=0.0)
        for group, target in zip(self._optimizer.param_groups, self._targets, strict=True):
            group["lr"].copy_(target * share)


def clip_gradients(params: Iterable[Tensor], limit: float) -> Tensor:
    """Scale all gradients so that their global norm is at most `limit`; returns the norm before, as a tensor."""
    return torch.nn.utils.clip_grad_norm_(params, limit, foreach=True)
