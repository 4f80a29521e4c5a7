import math

import pytest
import torch

from mental_accounts.learning import Lamb, WarmUp, clip_gradients, make_optimizer


def lamb_by_hand(w, grads, lr, decay, betas=(0.9, 0.999), eps=1e-8):
    """LAMB for one tensor, one number at a time."""
    m, v = [0.0] * len(w), [0.0] * len(w)
    for t, grad in enumerate(grads, start=1):
        update = []
        for i, g in enumerate(grad):
            m[i] = betas[0] * m[i] + (1 - betas[0]) * g
            v[i] = betas[1] * v[i] + (1 - betas[1]) * g * g
            m_hat, v_hat = m[i] / (1 - betas[0] ** t), v[i] / (1 - betas[1] ** t)
            update.append(m_hat / (math.sqrt(v_hat) + eps) + decay * w[i])
        size, length = math.sqrt(sum(x * x for x in w)), math.sqrt(sum(u * u for u in update))
        trust = size / length if size > 0 and length > 0 else 1.0
        w = [x - lr * trust * u for x, u in zip(w, update, strict=True)]
    return w


@pytest.mark.parametrize("decay", [0.0, 0.01])
def test_lamb_against_arithmetic_by_hand(decay: float) -> None:
    start = [
        torch.randn(4, dtype=torch.float64),
        torch.zeros(3, dtype=torch.float64),
        torch.randn(1, dtype=torch.float64),
    ]
    params = [value.clone().requires_grad_() for value in start]
    optimizer = Lamb(params, lr=0.05, weight_decay=decay)
    history: list[list[torch.Tensor]] = [[] for _ in params]
    for _ in range(7):
        for i, p in enumerate(params):
            p.grad = torch.randn_like(p)
            history[i].append(p.grad.clone())
        optimizer.step()
    for value, p, grads in zip(start, params, history, strict=True):
        expected = lamb_by_hand(value.tolist(), [g.tolist() for g in grads], 0.05, decay)
        torch.testing.assert_close(p.detach(), torch.tensor(expected, dtype=torch.float64), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("name", ["lamb", "adamw"])
def test_a_resumed_optimizer_goes_on_bit_for_bit(name: str) -> None:
    def problem() -> tuple[torch.nn.Linear, torch.optim.Optimizer, WarmUp]:
        torch.manual_seed(1)
        model = torch.nn.Linear(5, 3)
        optimizer = make_optimizer(name, model.parameters(), lr=1e-2, weight_decay=1e-3)
        return model, optimizer, WarmUp(optimizer, 10)

    def train(model: torch.nn.Linear, optimizer: torch.optim.Optimizer, warm_up: WarmUp, steps: range) -> None:
        for step in steps:
            generator = torch.Generator().manual_seed(step)
            x = torch.randn(8, 5, generator=generator)
            optimizer.zero_grad()
            (model(x) - x[:, :3]).square().mean().backward()
            optimizer.step()
            warm_up.advance()

    one, other = problem(), problem()
    train(*one, range(12))
    train(*other, range(6))
    states = [part.state_dict() for part in other]
    third = problem()
    for part, state in zip(third, states, strict=True):
        part.load_state_dict(state)
    train(*third, range(6, 12))
    assert torch.equal(one[0].weight, third[0].weight)


def test_warm_up_is_linear_then_flat() -> None:
    p = torch.nn.Parameter(torch.zeros(2))
    optimizer = make_optimizer("lamb", [p], lr=0.4, weight_decay=0.0)
    warm_up = WarmUp(optimizer, 4)
    rates = []
    for _ in range(6):
        rates.append(optimizer.param_groups[0]["lr"].item())
        warm_up.advance()
    assert rates == pytest.approx([0.1, 0.2, 0.3, 0.4, 0.4, 0.4])
    with pytest.raises(ValueError, match="at least 1"):
        WarmUp(optimizer, 0)
    with pytest.raises(ValueError, match="lamb or adamw"):
        make_optimizer("sgd", [p], 0.1, 0.0)
    with pytest.raises(ValueError, match="betas must be in"):
        Lamb([p], betas=(1.0, 0.9))


def test_rates_are_annealed_to_zero() -> None:
    optimizer = make_optimizer("adamw", [torch.nn.Parameter(torch.zeros(1))], 0.1, 0.0, torch.device("cpu"))
    warm_up, seen = WarmUp(optimizer, 2, until=8), []
    for _ in range(10):
        seen.append(float(optimizer.param_groups[0]["lr"]) / 0.1)
        warm_up.advance()
    assert seen == pytest.approx([0.5, 7 / 8, 6 / 8, 5 / 8, 4 / 8, 3 / 8, 2 / 8, 1 / 8, 0, 0])
    with pytest.raises(ValueError, match="at least one update"):
        WarmUp(optimizer, 2, until=0)


def test_clipping_returns_the_norm_before() -> None:
    params = [torch.nn.Parameter(torch.zeros(3)), torch.nn.Parameter(torch.zeros(4))]
    params[0].grad, params[1].grad = torch.full((3,), 2.0), torch.zeros(4)
    assert clip_gradients(params, 0.25).item() == pytest.approx(math.sqrt(12))
    assert params[0].grad.norm().item() == pytest.approx(0.25, rel=1e-4)
