import math

import pytest
import torch
from torch.nn.functional import cross_entropy

from mental_accounts.learning import Objective
from mental_accounts.policy import Categorical, ClippedGaussian, Deterministic, SquashedGaussian
from tests.policy.helpers import DISCRETE, tiny


def test_padding_has_no_part_in_any_loss() -> None:
    mask = torch.tensor([[False, True, True], [False, False, True]])
    mean, log_std = torch.randn(2, 3, 2, requires_grad=True), torch.randn(2, 3, 2, requires_grad=True)
    actions = torch.rand(2, 3, 2) * 2 - 1
    actions[~mask] = math.nan
    objective = Objective(tiny(method="odt"))
    losses = objective(SquashedGaussian(mean, log_std), actions, mask, torch.Generator().manual_seed(0))
    rows = SquashedGaussian(mean[mask], log_std[mask])
    torch.testing.assert_close(losses.nll, -rows.log_prob(actions[mask]).mean())
    everything = SquashedGaussian(mean, log_std).entropy(torch.Generator().manual_seed(0))
    torch.testing.assert_close(losses.entropy, everything[mask].mean())
    torch.testing.assert_close(losses.loss, losses.nll - 0.1 * losses.entropy)
    losses.loss.backward()
    assert bool(torch.isfinite(mean.grad).all())
    assert torch.equal(mean.grad[~mask], torch.zeros(3, 2))


def test_a_clipped_likelihood_is_weighted_by_its_variance() -> None:
    """In the mean the gradient is that of a squared error, whatever σ; in σ it is zero where the likelihood's is."""
    mask = torch.tensor([[False, True, True]])
    mean, log_std = 0.5 * torch.randn(1, 3, 2), torch.tensor([[[0.0, 0.0], [-4.0, -1.0], [0.5, -2.0]]])
    actions = 0.9 * torch.rand(1, 3, 2)
    actions[~mask] = math.nan
    mean.requires_grad_()
    losses = Objective(tiny(method="odt"), initial_lambda=1e-9)(ClippedGaussian(mean, log_std), actions, mask)
    losses.loss.backward()
    torch.testing.assert_close(mean.grad[mask], (mean.detach() - actions)[mask] / 2, rtol=1e-4, atol=1e-6)
    assert torch.equal(mean.grad[~mask], torch.zeros(1, 2))
    rows = ClippedGaussian(mean[mask], log_std[mask])
    torch.testing.assert_close(losses.nll, -rows.log_prob(actions[mask]).mean())
    torch.testing.assert_close(losses.entropy, rows.entropy().mean())

    errors, log_std = 0.2 * torch.randn(1, 500, 1), torch.zeros(1, 1, 1).requires_grad_()
    plain = torch.zeros(1, 1, 1).requires_grad_()
    for _ in range(300):  # one σ for many errors: both come to the errors' own spread
        objective = Objective(tiny(method="odt"), initial_lambda=1e-9)
        weighted = objective(ClippedGaussian(torch.zeros(1, 500, 1), log_std.expand(1, 500, 1)), errors).loss
        unweighted = -ClippedGaussian(torch.zeros(1, 500, 1), plain.expand(1, 500, 1)).log_prob(errors).mean()
        for value, loss, rate in ((log_std, weighted, 0.5), (plain, unweighted, 0.05)):
            (slope,) = torch.autograd.grad(loss, value)
            value.data.sub_(rate * slope)
    assert plain.exp().item() == pytest.approx(errors.square().mean().sqrt().item(), rel=0.02)
    assert log_std.exp().item() == pytest.approx(plain.exp().item(), rel=0.05)


def test_dt_losses() -> None:
    mask = torch.tensor([[False, True, True]])
    predicted, actions = torch.randn(1, 3, 2), torch.randn(1, 3, 2)
    losses = Objective(tiny(method="dt"))(Deterministic(predicted), actions, mask)
    torch.testing.assert_close(losses.loss, (predicted - actions)[mask].square().mean())
    logits, numbers = torch.randn(1, 3, 3), torch.tensor([[0, 2, 1]])
    discrete = Objective(tiny(method="dt", action=DISCRETE))(Categorical(torch.log_softmax(logits, -1)), numbers, mask)
    torch.testing.assert_close(discrete.loss, cross_entropy(logits[mask], numbers[mask]))
    assert torch.equal(discrete.loss, discrete.nll)


def test_lambda_rises_below_the_target_entropy_and_stays_positive() -> None:
    objective = Objective(tiny(method="odt"), initial_lambda=0.1)
    assert objective.target_entropy == -2.0
    assert objective.multiplier.item() == pytest.approx(0.1)
    optimizer = torch.optim.Adam(objective.parameters(), lr=0.1)
    for entropy, higher in [(-5.0, True), (1.0, False)]:
        before = objective.multiplier.item()
        for _ in range(30):
            optimizer.zero_grad()
            objective.lambda_loss(torch.tensor(entropy)).backward()
            optimizer.step()
        assert (objective.multiplier.item() > before) is higher
        assert objective.multiplier.item() > 0
    assert Objective(tiny(action=DISCRETE)).target_entropy == pytest.approx(0.2 * math.log(3))
    with pytest.raises(ValueError, match="initial_lambda must be positive"):
        Objective(tiny(), initial_lambda=0.0)


def test_the_entropy_term_does_not_move_lambda_and_lambda_loss_not_the_policy() -> None:
    mean = torch.zeros(1, 2, 2, requires_grad=True)
    objective = Objective(tiny(method="odt"))
    losses = objective(SquashedGaussian(mean, torch.zeros(1, 2, 2)), torch.zeros(1, 2, 2))
    losses.loss.backward(retain_graph=True)
    assert objective.log_lambda.grad is None
    mean.grad = None
    objective.lambda_loss(losses.entropy).backward()
    assert mean.grad is None
    assert objective.log_lambda.grad is not None
