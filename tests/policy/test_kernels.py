"""On a GPU: the fused kernels give what PyTorch's operations give, with gradients, and drop the same both ways."""

import math

import pytest
import torch
import torch.nn.functional as F

from mental_accounts.policy.kernels import add_norm, attend, can_add_norm, can_attend, can_linear_relu, linear_relu

pytestmark = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


def half(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, device="cuda").bfloat16().requires_grad_()


def close(got: torch.Tensor, expected: torch.Tensor) -> bool:
    got, expected = got.detach().float(), expected.detach().float()
    return float((got - expected).norm() / expected.norm()) < 1e-2


@pytest.mark.parametrize(
    ("R", "S", "D", "heads"), [(59, 59, 128, 4), (20, 59, 128, 4), (5, 14, 16, 1), (40, 119, 64, 2)]
)
@pytest.mark.parametrize("shared", [True, False])
def test_attention_equals_pytorchs(R: int, S: int, D: int, heads: int, shared: bool) -> None:
    torch.manual_seed(0)
    B = 3
    q, kv = half(B, R, heads * D), half(B, S, 2 * heads * D)
    mask = torch.randn(1 if shared else B, 1 if shared else heads, R, S, device="cuda")
    mask[:, :, :, 2] = -math.inf
    mask.requires_grad_()
    assert can_attend(q, S, heads)
    seed = torch.zeros((), device="cuda", dtype=torch.int64)
    q_bias, kv_bias = half(heads * D), half(2 * heads * D)
    got = attend(q + q_bias.detach(), kv + kv_bias.detach(), q_bias, kv_bias, mask, seed, heads, 0.0)
    g = torch.randn_like(got)
    wanted = (q, kv, q_bias, kv_bias, mask)
    ours = [got, *torch.autograd.grad(got, wanted, g)]
    queries = (q.float() + q_bias).view(B, R, heads, D).transpose(1, 2)
    k, v = (kv.float() + kv_bias).view(B, S, 2, heads, D).permute(2, 0, 3, 1, 4)
    weights = (queries @ k.transpose(-1, -2) / math.sqrt(D) + mask).softmax(-1)
    expected = (weights @ v).transpose(1, 2).reshape(B, R, heads * D)
    theirs = [expected, *torch.autograd.grad(expected, wanted, g.float())]
    for one, other in zip(ours, theirs, strict=True):
        assert close(one, other)


def test_attention_drops_the_same_forward_and_backward() -> None:
    R, S, D = 16, 16, 16
    q, kv = half(2, R, D), half(2, S, 2 * D)
    with torch.no_grad():
        kv[:, :, D:] = torch.eye(S, D, device="cuda")  # the output is then the weights themselves
    mask = torch.zeros(1, 1, R, S, device="cuda")
    zero = torch.zeros(2 * D, device="cuda")
    outputs = []
    for value in (1, 2, 1):
        seed = torch.tensor(value, device="cuda")
        out = attend(q, kv, zero[:D], zero, mask, seed, 1, 0.4)
        (grad,) = torch.autograd.grad(out, kv, torch.eye(R, D, device="cuda").bfloat16().expand(2, R, D))
        torch.testing.assert_close(grad[:, :, D:].transpose(1, 2).float(), out.float(), rtol=1e-2, atol=1e-3)
        outputs.append(out)
    assert torch.equal(outputs[0], outputs[2])
    assert not torch.equal(outputs[0], outputs[1])
    assert 0.3 < float((outputs[0] == 0).float().mean()) < 0.5


@pytest.mark.parametrize("C", [64, 512, 2048])
@pytest.mark.parametrize("full", [True, False])
def test_residual_and_norm_equal_pytorchs(C: int, full: bool) -> None:
    torch.manual_seed(0)
    x, y = torch.randn(37, 5, C, device="cuda").requires_grad_(), half(37, 5, C)
    offset, weight, bias = (torch.randn(C, device="cuda").requires_grad_() for _ in range(3))
    assert can_add_norm(y, C)
    seed = torch.zeros((), device="cuda", dtype=torch.int64)
    added, normed = add_norm(x, y, offset, weight, bias, seed, 0.0, 1e-5, full)
    assert normed.dtype == (torch.float32 if full else torch.bfloat16)
    one, other = torch.randn_like(added), torch.randn_like(normed)
    wanted = (x, y, offset, weight, bias)
    ours = torch.autograd.grad((added.float() * one).sum() + (normed.float() * other).sum(), wanted)
    plain = x + y.float() + offset
    expected = F.layer_norm(plain, (C,), weight, bias)
    theirs = torch.autograd.grad((plain * one).sum() + (expected * other).sum(), wanted)
    for got, right in zip((added, normed, *ours), (plain, expected, *theirs), strict=True):
        assert close(got, right)


def test_residual_drops_the_same_forward_and_backward() -> None:
    C = 256
    x, y = torch.zeros(8, C, device="cuda"), torch.ones(8, C, device="cuda").bfloat16().requires_grad_()
    zero = torch.zeros(C, device="cuda")
    added, _ = add_norm(x, y, zero, zero, zero, torch.tensor(5, device="cuda"), 0.25, 1e-5, False)
    (grad,) = torch.autograd.grad(added.float().sum(), y)
    torch.testing.assert_close(grad, added)
    assert 0.2 < float((added == 0).float().mean()) < 0.3


def test_masks_of_dropout_are_even_and_unlike_each_other() -> None:
    C, N = 512, 4096
    x, y = torch.zeros(N, C, device="cuda"), torch.ones(N, C, device="cuda").bfloat16()
    zero = torch.zeros(C, device="cuda")
    seeds = [0, 1, 2, 2**30, 2**31 - 2]
    masks = torch.stack(
        [add_norm(x, y, zero, zero, zero, torch.tensor(s, device="cuda"), 0.1, 1e-5, False)[0] == 0 for s in seeds]
    ).double()
    n = N * C
    assert float((masks.mean(dim=(1, 2)) - 0.1).abs().max()) < 5 * math.sqrt(0.09 / n)
    for axis in (1, 2):  # every row and every column drops its share
        spread = masks.mean(dim=axis).std(dim=-1) / math.sqrt(0.09 / masks.shape[axis])
        assert float((spread - 1).abs().max()) < 0.15
    flat = (masks.flatten(1) - 0.1) / 0.3
    for shift in (0, 1, 2, C, 2 * C):  # neither other seeds nor neighbours tell anything
        apart = flat @ flat.roll(shift, dims=1).T / n
        if shift == 0:
            apart.fill_diagonal_(0.0)
        assert float(apart.abs().max()) < 5 / math.sqrt(n)


@pytest.mark.parametrize(("N", "C", "D"), [(37, 64, 256), (3776, 512, 2048), (5, 16, 40)])
def test_linear_relu_equals_pytorchs(N: int, C: int, D: int) -> None:
    torch.manual_seed(0)
    x, weight, bias = half(3, N, C), half(D, C), half(D)
    assert can_linear_relu(x)
    got = linear_relu(x, weight, bias)
    g = torch.randn_like(got)
    wanted = (x, weight, bias)
    ours = torch.autograd.grad(got, wanted, g)
    expected = F.relu(F.linear(x.float(), weight.float(), bias.float()))
    theirs = torch.autograd.grad(expected, wanted, g.float())
    for one, other in zip((got, *ours), (expected, *theirs), strict=True):
        assert close(one, other)
