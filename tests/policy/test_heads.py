import math

import numpy as np
import pytest
import torch
from scipy import integrate, stats

from mental_accounts.policy import Categorical, ClippedGaussian, SquashedGaussian
from mental_accounts.policy.heads import MARGIN


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -1.5), (-2.0, 0.5), (0.3, -4.0)])
def test_log_prob_integrates_to_one_and_matches_the_change_of_variables(mean: float, log_std: float) -> None:
    head = SquashedGaussian(torch.tensor([[mean]], dtype=torch.float64), torch.tensor([[log_std]], dtype=torch.float64))

    def density(a: float) -> float:
        return float(head.log_prob(torch.tensor([[a]], dtype=torch.float64)).exp())

    peak = math.tanh(mean)
    spread = math.exp(log_std)
    points = sorted({math.tanh(mean + z * spread) for z in (-4, -2, -1, 0, 1, 2, 4)})
    total, _ = integrate.quad(density, -1 + 1e-6, 1 - 1e-6, points=points, limit=500)
    inside = stats.norm.cdf(np.arctanh(1 - 1e-6), mean, spread) - stats.norm.cdf(np.arctanh(-1 + 1e-6), mean, spread)
    assert total == pytest.approx(inside, abs=1e-6)
    expected = stats.norm.logpdf(math.atanh(peak), mean, spread) - math.log(1 - peak**2)
    assert math.log(density(peak)) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize(("mean", "log_std"), [(0.0, 0.0), (0.7, -1.5), (-1.0, -0.5)])
def test_entropy_agrees_with_numerical_integration(mean: float, log_std: float) -> None:
    n = 400_000
    head = SquashedGaussian(torch.full((n, 1), mean), torch.full((n, 1), log_std))
    samples = head.entropy(torch.Generator().manual_seed(0)).double()
    spread = math.exp(log_std)

    def minus_p_log_p(u: float) -> float:  # over the Gaussian before squashing
        p = stats.norm.pdf(u, mean, spread)
        return -p * (stats.norm.logpdf(u, mean, spread) - math.log(1 - math.tanh(u) ** 2))

    exact, _ = integrate.quad(minus_p_log_p, mean - 8 * spread, mean + 8 * spread, limit=300)
    assert abs(float(samples.mean()) - exact) < 4 * float(samples.std()) / math.sqrt(n)


CLIPPED = [(0.0, 0.0), (0.7, -1.5), (-2.0, 0.5), (1.0, -3.0), (-0.99, -0.5), (6.0, 1.0)]


@pytest.mark.parametrize(("mean", "log_std"), CLIPPED)
def test_a_clipped_density_and_its_two_masses_are_a_distribution(mean: float, log_std: float) -> None:
    head = ClippedGaussian(torch.tensor([[mean]], dtype=torch.float64), torch.tensor([[log_std]], dtype=torch.float64))
    normal = stats.norm(mean, math.exp(log_std))

    def probability(a: float) -> float:
        return float(head.log_prob(torch.tensor([[a]], dtype=torch.float64)).exp())

    assert probability(-1.0) == pytest.approx(normal.cdf(-1), rel=1e-9)
    assert probability(1.0) == probability(1 - MARGIN / 2) == pytest.approx(normal.sf(1), rel=1e-9)
    for a in (-0.9, 0.0, 0.5):
        assert probability(a) == pytest.approx(normal.pdf(a), rel=1e-9)


@pytest.mark.parametrize(("mean", "log_std"), CLIPPED)
def test_a_clipped_entropy_is_exact(mean: float, log_std: float) -> None:
    head = ClippedGaussian(torch.tensor([[mean]], dtype=torch.float64), torch.tensor([[log_std]], dtype=torch.float64))
    normal = stats.norm(mean, math.exp(log_std))
    inside, _ = integrate.quad(lambda a: -normal.pdf(a) * normal.logpdf(a), -1, 1, limit=500)
    masses = sum(-p * math.log(p) for p in (normal.cdf(-1), normal.sf(1)) if p > 0)
    assert float(head.entropy()) == pytest.approx(inside + masses, abs=1e-7)


def test_clipped_samples_and_mode_stay_within_the_bounds() -> None:
    head = ClippedGaussian(torch.full((20_000, 1), 0.8), torch.full((20_000, 1), -1.0))
    drawn = head.sample(torch.Generator().manual_seed(1)).double().flatten().numpy()
    normal = stats.norm(0.8, math.exp(-1.0))
    assert np.abs(drawn).max() == 1.0
    assert (drawn == 1.0).mean() == pytest.approx(normal.sf(1), abs=0.02)
    assert stats.kstest(drawn[drawn < 1], lambda x: normal.cdf(x) / normal.cdf(1)).pvalue > 1e-3
    assert float(ClippedGaussian(torch.tensor([3.0]), torch.tensor([0.0])).mode()) == 1.0


@pytest.mark.parametrize("kind", [SquashedGaussian, ClippedGaussian])
def test_dimensions_add_up(kind: type) -> None:
    mean, log_std, actions = torch.randn(4, 3), torch.randn(4, 3), torch.rand(4, 3) * 2 - 1
    parts = [kind(mean[:, d : d + 1], log_std[:, d : d + 1]).log_prob(actions[:, d : d + 1]) for d in range(3)]
    torch.testing.assert_close(kind(mean, log_std).log_prob(actions), sum(parts))


@pytest.mark.parametrize("kind", [SquashedGaussian, ClippedGaussian])
def test_actions_at_the_border_give_finite_losses_and_gradients(kind: type) -> None:
    mean = torch.tensor([[0.0, 5.0, -5.0]], requires_grad=True)
    log_std = torch.tensor([[-5.0, 2.0, -5.0]], requires_grad=True)
    for border in (-1.0, 1.0, 1.5):
        loss = -kind(mean, log_std).log_prob(torch.full((1, 3), border)).sum()
        loss = loss + kind(mean, log_std).entropy().sum()
        grads = torch.autograd.grad(loss, (mean, log_std))
        assert math.isfinite(loss.item())
        assert all(bool(torch.isfinite(g).all()) for g in grads)


def test_samples_follow_the_distribution() -> None:
    head = SquashedGaussian(torch.full((20_000, 1), 0.5), torch.full((20_000, 1), -0.7))
    drawn = torch.atanh(head.sample(torch.Generator().manual_seed(1)).double()).flatten().numpy()
    assert stats.kstest(drawn, "norm", args=(0.5, math.exp(-0.7))).pvalue > 1e-3
    logits = torch.log_softmax(torch.tensor([0.3, -1.0, 1.2, 0.0]), dim=0)
    counts = Categorical(logits.expand(20_000, 4)).sample(torch.Generator().manual_seed(1)).bincount(minlength=4)
    assert (
        stats.chisquare(counts.numpy(), (logits.double().exp() / logits.double().exp().sum() * 20_000).numpy()).pvalue
        > 1e-3
    )


def test_categorical_numbers() -> None:
    log_probs = torch.log_softmax(torch.randn(5, 4, dtype=torch.float64), dim=-1)
    head = Categorical(log_probs)
    expected = torch.distributions.Categorical(logits=log_probs)
    actions = torch.randint(4, (5,))
    torch.testing.assert_close(head.log_prob(actions), expected.log_prob(actions))
    torch.testing.assert_close(head.entropy(), expected.entropy())
    assert torch.equal(head.mode(), log_probs.argmax(-1))
