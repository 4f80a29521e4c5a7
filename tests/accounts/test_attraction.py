import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import mental_accounts as ma
from mental_accounts.accounts import scan

from . import slow_accounts

phis = st.floats(0.01, 0.99)
unit = st.floats(0.0, 1.0)
lengths_around_chunks = st.sampled_from([1, 2, 7, 31, 32, 33, 64, 65, 100])


def trajectories(B: int, T: int, M: int, dtype: torch.dtype = torch.float64) -> tuple[torch.Tensor, torch.Tensor]:
    return torch.randint(M, (B, T)), torch.randn(B, T, dtype=dtype)


def relative_error(got: torch.Tensor, expected: torch.Tensor) -> float:
    return float((got.double() - expected.double()).abs().max() / expected.double().abs().max().clamp(min=1e-30))


@given(
    phi=phis, delta=unit, T=lengths_around_chunks, M=st.integers(1, 9), started=st.booleans(), seed=st.integers(0, 99)
)
def test_trace_is_posting_is_the_closed_form_is_algorithm_1(
    phi: float, delta: float, T: int, M: int, started: bool, seed: int
) -> None:
    torch.manual_seed(seed)
    rule = ma.EWA(phi, delta)
    codes, rewards = trajectories(3, T, M)
    start = torch.randn(3, M, dtype=torch.float64) if started else None
    literal = [
        slow_accounts.ewa(c, r, phi, delta, M, None if start is None else start[i].tolist())
        for i, (c, r) in enumerate(zip(codes.tolist(), rewards.tolist(), strict=True))
    ]
    expected = torch.tensor([trace for trace, _ in literal], dtype=torch.float64)
    final = torch.tensor([history[-1] for _, history in literal], dtype=torch.float64)

    ledger = rule.ledger(M, (3,), dtype=torch.float64)
    if start is not None:
        ledger.attractions.copy_(start)
    posted = torch.stack([ledger.post(codes[:, t], rewards[:, t]) for t in range(T)], dim=-1)

    torch.testing.assert_close(rule.trace(codes, rewards, start=start), expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(rule.trace(codes, rewards, start=start, num_codes=M), expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(posted, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(rule.closed_form(codes, rewards, M, start=start), final, rtol=0, atol=1e-10)
    torch.testing.assert_close(ledger.attractions, final, rtol=0, atol=1e-10)
    if delta > 1e-3 or started:
        single = rule.trace(codes, rewards.float(), start=None if start is None else start.float())
        assert single.dtype == torch.float32
        assert relative_error(single, expected) < 1e-5


@given(
    phi=phis,
    rho=unit,
    delta=unit,
    n0=st.sampled_from([0.0, 1.0, 2.5]),
    T=st.sampled_from([1, 5, 33, 70]),
    known=st.booleans(),
)
def test_the_canonical_rule_three_ways(phi: float, rho: float, delta: float, n0: float, T: int, known: bool) -> None:
    M = 4
    rule = ma.CanonicalEWA(phi=phi, rho=rho, delta=delta, initial_experience=n0)
    codes, rewards = trajectories(2, T, M)
    foregone = torch.randn(2, T, M, dtype=torch.float64) if known else None
    literal = [
        slow_accounts.canonical_ewa(
            codes[i].tolist(), rewards[i].tolist(), foregone[i].tolist() if known else None, phi, rho, delta, M, n0
        )
        for i in range(2)
    ]
    expected = torch.tensor([trace for trace, _ in literal], dtype=torch.float64)
    final = torch.tensor([history[-1] for _, history in literal], dtype=torch.float64)
    ledger = rule.ledger(M, (2,), dtype=torch.float64)
    posted = torch.stack(
        [
            ledger.post(codes[:, t], rewards[:, t], foregone=None if foregone is None else foregone[:, t])
            for t in range(T)
        ],
        dim=-1,
    )
    torch.testing.assert_close(posted, expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(rule.trace(codes, rewards, foregone=foregone), expected, rtol=0, atol=1e-10)
    torch.testing.assert_close(rule.closed_form(codes, rewards, M, foregone=foregone), final, rtol=0, atol=1e-10)
    torch.testing.assert_close(ledger.attractions, final, rtol=0, atol=1e-10)


def test_the_canonical_rule_continues_from_a_ledger() -> None:
    rule = ma.CanonicalEWA(phi=0.1, rho=0.2, delta=0.6)
    codes, rewards = trajectories(2, 60, 5)
    foregone = torch.randn(2, 60, 5, dtype=torch.float64)
    whole = rule.trace(codes, rewards, foregone=foregone)
    ledger = rule.ledger(5, (2,), dtype=torch.float64)
    for t in range(25):
        ledger.post(codes[:, t], rewards[:, t], foregone=foregone[:, t])
    rest = rule.trace(codes[:, 25:], rewards[:, 25:], foregone=foregone[:, 25:], start=ledger)
    torch.testing.assert_close(rest, whole[:, 25:], rtol=0, atol=1e-10)


def test_special_cases_of_the_canonical_rule() -> None:
    codes, rewards = trajectories(3, 50, 4)
    # ρ = 1: N stays 1, and without foregone payoffs the paper's rule with δ = 1 is left.
    cumulative = ma.CanonicalEWA(phi=0.1, rho=1.0, delta=0.3).trace(codes, rewards)
    torch.testing.assert_close(cumulative, ma.EWA(phi=0.1, delta=1.0).trace(codes, rewards))
    # δ = 1, ρ = φ: belief learning. Constant payoffs of every action are learned whatever is chosen.
    payoffs = torch.tensor([1.0, -2.0, 0.5, 3.0], dtype=torch.float64)
    belief = ma.CanonicalEWA(phi=0.2, rho=0.2, delta=1.0, initial_experience=0.0)
    balances = belief.closed_form(codes, payoffs[codes], 4, foregone=payoffs.expand(3, 50, 4))
    torch.testing.assert_close(balances, payoffs.expand(3, 4))


@given(phi=phis, delta=unit, R=st.floats(0.1, 10.0), T=st.integers(1, 200))
def test_proposition_1_bound(phi: float, delta: float, R: float, T: int) -> None:
    rule = ma.EWA(phi, delta)
    codes = torch.randint(3, (4, T))
    rewards = (torch.rand(4, T, dtype=torch.float64) * 2 - 1) * R
    rewards[0] = R  # the worst case: one code, always the largest reward
    codes[0] = 0
    trace = rule.trace(codes, rewards)
    assert trace.abs().max() <= rule.bound(R) * (1 + 1e-12)
    assert math.isclose(trace[0, -1], rule.bound(R) * (1 - (1 - phi) ** T), rel_tol=1e-9, abs_tol=1e-12)


@pytest.mark.parametrize(("phi", "delta", "p", "mu"), [(0.05, 0.8, 0.5, 0.4), (0.2, 1.0, 0.25, -0.3)])
def test_proposition_1_steady_state(phi: float, delta: float, p: float, mu: float) -> None:
    rule = ma.EWA(phi, delta)
    B, T = 20_000, 150
    codes = (torch.rand(B, T) >= p).long()  # code 0 with probability p
    rewards = torch.where(codes == 0, mu, 0.0).double() + torch.rand(B, T, dtype=torch.float64) * 0.2 - 0.1
    balance = rule.closed_form(codes, rewards, 2)[:, 0]
    standard_error = float(balance.std()) / math.sqrt(B)
    assert abs(float(balance.mean()) - rule.steady_state(p, mu)) < 4 * standard_error


@given(phi=phis, T=st.integers(2, 60))
def test_unchosen_accounts_decay_and_unseen_ones_stay_zero(phi: float, T: int) -> None:
    ledger = ma.EWA(phi, 0.8).ledger(num_codes=6, batch_shape=(2,), dtype=torch.float64)
    for _ in range(T):
        before = ledger.attractions.clone()
        codes = torch.randint(4, (2,))
        ledger.post(codes, torch.randn(2, dtype=torch.float64))
        unchosen = torch.ones(2, 6, dtype=torch.bool).scatter_(1, codes.unsqueeze(-1), False)
        assert torch.equal(ledger.attractions[unchosen], (before * (1 - phi))[unchosen])
        assert torch.equal(ledger.attractions[:, 4:], torch.zeros(2, 2, dtype=torch.float64))


@given(
    left=st.integers(0, 40),
    right=st.integers(0, 40),
    T=st.integers(1, 50),
    started=st.booleans(),
    canonical=st.booleans(),
    rho=st.sampled_from([0.0, 0.3, 1.0]),
    n0=st.sampled_from([0.0, 1.0]),
)
def test_padding_is_inert(left: int, right: int, T: int, started: bool, canonical: bool, rho: float, n0: float) -> None:
    rule = ma.CanonicalEWA(0.1, rho, 0.5, initial_experience=n0) if canonical else ma.EWA(0.1, 0.5)
    codes, rewards = trajectories(2, T, 5)
    start = torch.randn(2, 5, dtype=torch.float64) if started else None
    padded_codes = torch.nn.functional.pad(codes, (left, right), value=99)
    padded_rewards = torch.nn.functional.pad(rewards, (left, right), value=math.nan)
    mask = torch.nn.functional.pad(torch.ones(2, T, dtype=torch.bool), (left, right), value=False)
    plain = rule.trace(codes, rewards, start=start)
    padded = rule.trace(padded_codes, padded_rewards, mask=mask, start=start)
    torch.testing.assert_close(padded[:, left : left + T], plain, rtol=0, atol=1e-12)
    assert torch.equal(padded[~mask], torch.zeros_like(padded[~mask]))
    torch.testing.assert_close(
        rule.closed_form(padded_codes, padded_rewards, 5, mask=mask, start=start),
        rule.closed_form(codes, rewards, 5, start=start),
    )
    if left == 0:
        by_lengths = rule.trace(padded_codes, padded_rewards, lengths=torch.full((2,), T), start=start)
        assert torch.equal(by_lengths, padded)


def test_a_window_continues_its_trajectory_from_a_ledger() -> None:
    rule = ma.EWA()
    codes, rewards = trajectories(4, 90, 7)
    whole = rule.trace(codes, rewards)
    before = rule.closed_form(codes[:, :50], rewards[:, :50], 7)
    torch.testing.assert_close(
        rule.trace(codes[:, 50:], rewards[:, 50:], start=before), whole[:, 50:], rtol=0, atol=1e-10
    )


def test_batch_order_and_shape_do_not_matter() -> None:
    rule = ma.EWA()
    codes, rewards = trajectories(6, 40, 5)
    order = torch.randperm(6)
    trace = rule.trace(codes, rewards)
    assert torch.equal(rule.trace(codes[order], rewards[order]), trace[order])
    assert torch.equal(rule.trace(codes.view(2, 3, 40), rewards.view(2, 3, 40)).view(6, 40), trace)
    assert torch.equal(rule.trace(codes[0], rewards[0]), trace[0])


@given(T=st.sampled_from([1, 20, 40]), G=st.integers(2, 3), canonical=st.booleans())
def test_several_codes_per_action_are_all_entered(T: int, G: int, canonical: bool) -> None:
    """Also where an action has the same account twice, and where slots share accounts over time."""
    rule = ma.CanonicalEWA(0.1, 0.3, 0.7) if canonical else ma.EWA(0.1, 0.7)
    codes = torch.randint(4, (3, T, G))
    rewards = torch.randn(3, T, dtype=torch.float64)
    ledger = rule.ledger(4, (3,), dtype=torch.float64)
    posted = torch.stack([ledger.post(codes[:, t], rewards[:, t]) for t in range(T)], dim=1)
    torch.testing.assert_close(rule.trace(codes, rewards), posted, rtol=0, atol=1e-12)
    torch.testing.assert_close(rule.closed_form(codes, rewards, 4), ledger.attractions, rtol=0, atol=1e-12)


@given(K=st.integers(1, 25), canonical=st.booleans())
def test_reading_now_agrees_with_the_ledger_at_the_rows_time(K: int, canonical: bool) -> None:
    rule = ma.CanonicalEWA(0.1, 0.3, 0.0) if canonical else ma.EWA(0.1, 0.5)
    codes, rewards = trajectories(2, K + 10, 4)
    trace = rule.trace(codes, rewards)
    window = codes[:, 10:]
    now = rule.read_now(window, trace[:, 10:], first_step=10) if canonical else rule.read_now(window, trace[:, 10:])
    ledger = rule.ledger(4, (2,), dtype=torch.float64)
    for t in range(K + 10):
        ledger.post(codes[:, t], rewards[:, t])
        if t >= 10:
            row = t - 10
            expected = ledger.attractions.gather(1, window)
            expected[:, row + 1 :] = 0
            torch.testing.assert_close(now[:, row], expected, rtol=0, atol=1e-12)


def test_ledger_resets_some_actors_and_leaves_inactive_ones_alone() -> None:
    for rule in (ma.EWA(0.1, 0.5), ma.CanonicalEWA(0.1, 0.3, 0.5)):
        ledger = rule.ledger(3, (2, 2))
        ledger.post(torch.tensor([[0, 1], [2, 0]]), torch.ones(2, 2))
        before = ledger.attractions.clone()
        active = torch.tensor([[True, False], [True, True]])
        rewards = torch.tensor([[1.0, math.nan], [1.0, 1.0]])  # whatever a finished environment returned
        posted = ledger.post(torch.zeros(2, 2, dtype=torch.int64), rewards, active=active)
        assert torch.equal(posted == 0, ~active)
        assert torch.equal(ledger.attractions[0, 1], before[0, 1])
        assert not torch.equal(ledger.attractions[0, 0], before[0, 0])
        kept = ledger.attractions[1, 1].clone()
        ledger.reset(torch.tensor([[True, True], [True, False]]))
        assert torch.equal(ledger.attractions[0], torch.zeros(2, 3))
        assert torch.equal(ledger.attractions[1, 1], kept)
        twin = rule.ledger(3, (2, 2))
        twin.load_state_dict(ledger.state_dict())
        codes, rewards = torch.ones(2, 2, dtype=torch.int64), torch.randn(2, 2)
        assert torch.equal(twin.post(codes, rewards), ledger.post(codes, rewards))
        ledger.reset()
        assert torch.equal(ledger.attractions, torch.zeros(2, 2, 3))
        assert torch.equal(ledger.post(codes, rewards), rule.ledger(3, (2, 2)).post(codes, rewards))


def test_gradients_reach_the_rewards() -> None:
    codes, rewards = trajectories(2, 70, 3)
    rewards = rewards.requires_grad_()
    ma.EWA(0.1, 0.5).trace(codes, rewards)[:, -1].sum().backward()
    same = codes == codes[:, -1:]
    age = torch.arange(69, -1, -1)
    torch.testing.assert_close(rewards.grad, torch.where(same, 0.5 * 0.9**age, 0.0).double())


def test_low_precision_rewards_and_autocast_do_not_round_the_accounts() -> None:
    rule = ma.EWA()
    codes, rewards = trajectories(2, 64, 5, torch.float32)
    plain = rule.trace(codes, rewards)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(rule.trace(codes, rewards), plain)
        foregone = torch.randn(2, 64, 5)
        canonical = ma.CanonicalEWA(0.1, 0.2, 0.5)
        inside = canonical.trace(codes, rewards, foregone=foregone)
    assert torch.equal(inside, canonical.trace(codes, rewards, foregone=foregone))
    assert rule.trace(codes, rewards.bfloat16()).dtype == torch.float32
    assert rule.trace(codes, torch.ones(2, 64, dtype=torch.int64)).dtype == torch.float32
    ledger = rule.ledger(5, (2,))
    assert ledger.to(torch.bfloat16).attractions.dtype == torch.float32


def test_renaming_codes_for_a_gpu_changes_no_account() -> None:
    codes = torch.randint(10**9, (3, 40))[:, torch.randint(40, (100,))]
    renamed = scan._renumbered(codes)
    assert int(renamed.max()) < 100
    for before, after in zip(codes, renamed, strict=True):
        assert torch.equal(before[:, None] == before, after[:, None] == after)


def test_memory_of_a_trace_does_not_grow_with_the_codes() -> None:
    codes, rewards = trajectories(50, 1_000, 20_000, torch.float32)
    with torch.profiler.profile(profile_memory=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        ma.EWA().trace(codes, rewards, num_codes=20_000)
    largest = max(event.cpu_memory_usage for event in profile.events())
    assert largest <= 4 * 50 * 1_000 * 8  # a few numbers a step; a ledger a step would be 4 GB, one a trajectory 4 MB
    huge = torch.full((1, 40), 10**12)
    assert torch.equal(ma.EWA().trace(huge, torch.ones(1, 40)), ma.EWA().trace(huge * 0, torch.ones(1, 40)))


def test_an_empty_batch_has_an_empty_trace() -> None:
    for T in (5, 50):
        empty = ma.EWA().trace(torch.zeros(0, T, dtype=torch.int64), torch.zeros(0, T))
        assert empty.shape == (0, T)


def test_bad_input_says_what_was_expected_what_came_and_where() -> None:
    rule = ma.EWA()
    zeros = torch.zeros(2, 5, dtype=torch.int64)
    ones = torch.ones(2, 5)
    nan, inf = ones.clone(), ones.clone()
    nan[1, 3] = math.nan
    inf[0, 2] = math.inf
    outside = zeros.clone()
    outside[1, 4] = 27
    holes = torch.tensor([[True] * 5, [True, False, True, True, False]])
    ledger = rule.ledger(27, (2,))
    cases = [
        (lambda: ma.EWA(phi=0.0), ValueError, r"phi must be in \(0, 1\), got 0.0"),
        (lambda: ma.EWA(phi=1), ValueError, r"phi must be in \(0, 1\), got 1"),
        (lambda: ma.EWA(phi=math.nan), ValueError, "phi must be in"),
        (lambda: ma.EWA(phi="0.1"), TypeError, "phi must be a number, got '0.1'"),
        (lambda: ma.EWA(delta=1.5), ValueError, r"delta must be in \[0, 1\], got 1.5"),
        (lambda: ma.EWA(delta=-0.1), ValueError, "delta must be in"),
        (lambda: ma.CanonicalEWA(phi=0.1, rho=-1, delta=0.5), ValueError, "rho must be in"),
        (lambda: rule.trace(zeros, nan), ValueError, r"rewards\[1, 3\] is nan"),
        (lambda: rule.trace(zeros, inf), ValueError, r"rewards\[0, 2\] is inf"),
        (
            lambda: rule.trace(outside, ones, num_codes=27),
            ValueError,
            r"codes must be in \[0, 27\), but codes\[1, 4\] is 27",
        ),
        (lambda: rule.trace(zeros - 1, ones), ValueError, r"codes\[0, 0\] is -1"),
        (lambda: rule.trace(outside, ones, start=torch.zeros(2, 27)), ValueError, "codes must be in"),
        (lambda: rule.trace(zeros, ones, start=torch.zeros(3, 27)), ValueError, "one ledger per trajectory, 2, got 3"),
        (lambda: rule.trace(zeros[:, :0], ones[:, :0]), ValueError, "at least one step"),
        (lambda: rule.trace(zeros, ones[:, :4]), ValueError, r"got \(2, 5\) and \(2, 4\)"),
        (lambda: rule.trace(ones, ones), TypeError, "route the actions first"),
        (lambda: rule.trace([0, 1], ones), TypeError, "got list"),
        (lambda: rule.trace(zeros, [1.0]), TypeError, "rewards must be a tensor"),
        (lambda: rule.trace(zeros, ones, start=torch.full((2, 27), math.nan)), ValueError, r"start\[0, 0\] is nan"),
        (lambda: rule.closed_form(zeros, ones, 5, start=torch.zeros(2, 3)), ValueError, "num_codes = 5 balances"),
        (lambda: rule.trace(zeros, ones, mask=holes), ValueError, "trajectory 1 has 2"),
        (lambda: rule.trace(zeros, ones, mask=holes.float()), ValueError, "mask must be bool"),
        (lambda: rule.trace(zeros, ones, lengths=torch.tensor([0, 5])), ValueError, "between 1 and T = 5"),
        (lambda: rule.trace(zeros, ones, lengths=torch.tensor([5])), ValueError, r"lengths must have shape \(2,\)"),
        (lambda: rule.trace(zeros, ones, mask=holes, lengths=torch.tensor([5, 5])), ValueError, "not both"),
        (lambda: ledger.post(zeros[:, 0], nan[:, 3]), ValueError, r"rewards\[1\] is nan"),
        (lambda: ledger.post(outside[:, 4], ones[:, 0]), ValueError, r"codes\[1, 0\] is 27"),
        (lambda: ledger.post(zeros[:, 0], ones), ValueError, r"batch shape \(2,\), got \(2, 5\)"),
        (lambda: ledger.post(zeros[:1, 0], ones[:, 0]), ValueError, r"batch shape \(2,\)"),
        (lambda: ledger.post(ones[:, 0], ones[:, 0]), TypeError, "codes must be integers"),
        (lambda: ledger.reset(torch.ones(2)), ValueError, "actors must be bool"),
        (lambda: rule.ledger(0), ValueError, "num_codes must be at least 1"),
        (lambda: rule.ledger(3, dtype=torch.float16), ValueError, "dtype must be"),
        (
            lambda: ma.CanonicalEWA(0.1, 0.1, 0.5).trace(zeros, ones, foregone=torch.ones(2, 4, 3)),
            ValueError,
            r"foregone must have the payoff of every code, shape \(2, 5, 3\), got \(2, 4, 3\)",
        ),
    ]
    for call, error, message in cases:
        with pytest.raises(error, match=message):
            call()


def test_a_rule_of_ones_own_enters_the_same_live_and_over_a_trajectory() -> None:
    class Doubled(ma.EWA):
        def entered(self, payoffs: torch.Tensor) -> torch.Tensor:
            return 2 * super().entered(payoffs)

    class Losses(ma.CanonicalEWA):
        def entered(self, payoffs: torch.Tensor) -> torch.Tensor:
            return payoffs.clamp(max=0.0)

    codes, rewards = torch.randint(0, 4, (3, 9)), torch.randn(3, 9)
    for rule, plain in ((Doubled(), ma.EWA()), (Losses(0.1, 0.2, 0.5), ma.CanonicalEWA(0.1, 0.2, 0.5))):
        ledger = rule.ledger(4, (3,))
        posted = torch.stack([ledger.post(codes[:, t], rewards[:, t]) for t in range(9)], dim=1)
        torch.testing.assert_close(posted, rule.trace(codes, rewards))
        torch.testing.assert_close(ledger.attractions, rule.closed_form(codes, rewards, 4))
        assert not torch.allclose(posted, plain.trace(codes, rewards))
