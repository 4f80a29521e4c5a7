"""On a GPU: the losses of a Gaussian policy in one kernel, and their gradients, are those of float64."""

import math
import subprocess

import pytest
import torch
from torch import Tensor

from mental_accounts.learning import Objective, fused_losses
from mental_accounts.learning.fused_losses import can_fuse
from mental_accounts.policy import ClippedGaussian, SquashedGaussian, heads
from tests.policy.helpers import tiny

Gaussian = type[ClippedGaussian] | type[SquashedGaussian]


def losses_and_gradients(
    kind: Gaussian, mean: Tensor, log_std: Tensor, actions: Tensor, mask: Tensor | None
) -> list[Tensor]:
    """All four losses, and the gradients of a weighted sum of them."""
    mean, log_std = mean.clone().requires_grad_(), log_std.clone().requires_grad_()
    objective = Objective(tiny(method="odt"), initial_lambda=0.3).to(mean)
    generator = torch.Generator(mean.device).manual_seed(7)
    found = objective(kind(mean, log_std), actions, mask, generator)
    losses = torch.stack([found.loss, found.nll, found.entropy, found.constraint])
    weights = torch.tensor([1.0, 0.5, -0.7, 0.3]).to(losses)
    return [losses.detach(), *torch.autograd.grad((losses * weights).sum(), (mean, log_std))]


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("shape", [(3, 5, 3), (64, 20, 6), (7, 1, 1), (2, 3, 300)])
@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("kind", [ClippedGaussian, SquashedGaussian])
def test_losses_and_gradients_are_those_of_float64(
    kind: Gaussian, shape: tuple[int, int, int], padded: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch.manual_seed(0)
    mean, log_std = 0.8 * torch.randn(shape, device="cuda"), (torch.randn(shape, device="cuda") - 1.5).clamp(-5, 2)
    actions = torch.randn(shape, device="cuda").clamp(-1, 1)  # a third are on a bound
    if kind is SquashedGaussian:  # float64 would keep another distance from it
        actions = actions.clamp(heads.BORDER - 1, 1 - heads.BORDER)
    noise = torch.randn(shape, device="cuda", generator=torch.Generator("cuda").manual_seed(7))
    monkeypatch.setattr(heads, "_noise", lambda like, generator: noise.to(like))
    mask = None
    if padded:
        mask = torch.rand(shape[:2], device="cuda") < 0.7
        mask[0, 0], mask[-1, 0] = True, False
        actions[~mask] = math.nan
    assert can_fuse(kind(mean, log_std))
    fused = losses_and_gradients(kind, mean, log_std, actions, mask)
    exact = losses_and_gradients(kind, mean.double(), log_std.double(), actions.double(), mask)
    for got, expected in zip(fused, exact, strict=True):
        assert got.dtype == torch.float32
        assert float((got - expected).norm() / expected.norm()) < 1e-5
    if mask is not None:
        assert not fused[1][~mask].any()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("kind", [ClippedGaussian, SquashedGaussian])
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_nothing_but_padding_costs_nothing_and_nothing_synchronises(kind: Gaussian) -> None:
    mean, log_std = torch.randn(4, 2, 3, device="cuda"), torch.zeros(4, 2, 3, device="cuda")
    actions, mask = torch.zeros_like(mean), torch.zeros(4, 2, device="cuda", dtype=torch.bool)
    losses_and_gradients(kind, mean, log_std, actions, mask)  # kernels are compiled by the first call
    objective = Objective(tiny(method="odt")).to("cuda")
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = objective(kind(mean.requires_grad_(), log_std), actions, mask)
        found.loss.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert found.loss.item() == found.nll.item() == found.entropy.item() == 0.0
    assert mean.grad is not None
    assert not mean.grad.any()


@pytest.mark.parametrize("kind", [ClippedGaussian, SquashedGaussian])
def test_on_a_cpu_the_losses_are_pytorchs(kind: Gaussian) -> None:
    assert not can_fuse(kind(torch.zeros(2, 1, 3), torch.zeros(2, 1, 3)))


def test_without_a_c_compiler_the_losses_are_pytorchs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Kernels:
        """Triton where there is no compiler."""

        def __init__(self, error: Exception) -> None:
            self.error, self.nothing_kernel = error, {(1,): self.launch}

        def launch(self, out: Tensor) -> None:
            raise self.error

    here = torch.device("cpu")
    for error in (RuntimeError("Failed to find C compiler"), subprocess.CalledProcessError(1, "gcc"), OSError("gone")):
        monkeypatch.setattr(fused_losses, "compiled", Kernels(error))
        fused_losses._can_build.cache_clear()
        assert not fused_losses._can_build(here)
    monkeypatch.setattr(fused_losses, "compiled", Kernels(torch.OutOfMemoryError("full")))
    fused_losses._can_build.cache_clear()
    with pytest.raises(torch.OutOfMemoryError):
        fused_losses._can_build(here)
