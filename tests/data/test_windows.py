from collections import Counter
from typing import Any

import numpy as np
import pytest
import torch
from scipy import stats
from torch.utils._python_dispatch import TorchDispatchMode

import mental_accounts as ma
from mental_accounts.data import DataError, Trajectories, WindowSampler
from tests.data.slow_windows import Episode, episodes, padded_window, sample_first_steps, store_of

K = 7


def annotated(parts: list[Episode], device: str = "cpu", **options: object) -> Trajectories:
    store = store_of(parts, device=device, **options)
    store.annotate(ma.GridCodebook(2, 3), ma.EWA(), ma.RewardTransform("standardised", 0.1, 0.7, clip=1.0))
    return store


class CountedKernels(TorchDispatchMode):
    """How many kernels are launched."""

    number = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.number += 1
        return func(*args, **(kwargs or {}))


def sampler_of(store: Trajectories, batch: int = 64, scope: str = "trajectory", seed: int = 0) -> WindowSampler:
    generator = torch.Generator(store.device).manual_seed(seed)
    return WindowSampler(store, batch, K, generator, scope, previous_rewards=True, previous_observations=True)


def first_steps(windows: object, parts: list[Episode]) -> list[tuple[int, int]]:
    """Which trajectory and step each window begins with, found by its first observation."""
    places = {p.observations[t].tobytes(): (i, t) for i, p in enumerate(parts) for t in range(len(p.rewards))}
    found = []
    for observations, mask in zip(windows.observations.cpu(), windows.mask.cpu(), strict=True):
        found.append(places[observations[int(mask.long().argmax())].numpy().tobytes()])
    return found


@pytest.mark.parametrize("scope", ["trajectory", "window"])
def test_every_window_is_the_slice_of_its_trajectory(scope: str, device: str) -> None:
    parts = episodes(15, longest=30)
    store = annotated(parts, device)
    store.evict(2)
    parts = parts[2:]
    transform = ma.RewardTransform("standardised", 0.1, 0.7, clip=1.0)
    sampler = sampler_of(store, scope=scope)
    for _ in range(5):
        windows = sampler()
        for b, (i, t) in enumerate(first_steps(windows, parts)):
            part, whole = parts[i], store.slice(i)
            length = min(K, len(part.rewards) - t)
            assert windows.mask[b].tolist() == [False] * (K - length) + [True] * length
            for name, values in {
                "observations": part.observations,
                "actions": part.actions,
                "rewards": part.rewards,
                "previous_rewards": np.concatenate([np.zeros(1, part.rewards.dtype), part.rewards[:-1]]),
                "previous_observations": np.concatenate([np.zeros_like(part.observations[:1]), part.observations[:-1]]),
                "returns_to_go": whole.returns_to_go.cpu().numpy(),
                "timesteps": np.arange(len(part.rewards)),
                "codes": whole.codes.cpu().long().numpy(),
            }.items():
                got = getattr(windows, name)[b].cpu()
                assert torch.equal(got, padded_window(values, t, K)), f"{name} of window {b}"
            if scope == "trajectory":
                expected = padded_window(whole.attractions.cpu().numpy(), t, K)
            else:
                codes = whole.codes[t : t + length].cpu().long()
                anew = ma.EWA().trace(codes, transform(torch.from_numpy(part.rewards[t : t + length])))
                expected = torch.cat([torch.zeros(K - length), anew])
            torch.testing.assert_close(windows.attractions[b].cpu(), expected)


def test_the_distribution_is_the_reference_samplers() -> None:
    """Chi-square over all first steps: against the exact distribution, and as two samples against the reference."""
    parts = episodes(8, longest=25)
    steps = [(i, t) for i, p in enumerate(parts) for t in range(len(p.rewards))]
    sampler = sampler_of(store_of(parts), batch=1000)
    draws = 60 * 1000
    ours = Counter(place for _ in range(60) for place in first_steps(sampler(), parts))
    theirs = Counter(sample_first_steps(parts, draws, seed=5))
    observed = np.array([[counter[place] for place in steps] for counter in (ours, theirs)])
    assert observed.sum(axis=1).tolist() == [draws, draws]
    assert stats.chisquare(observed[0]).pvalue > 1e-3
    assert stats.chi2_contingency(observed).pvalue > 1e-3


def test_the_same_seed_draws_the_same_windows(device: str) -> None:
    store = annotated(episodes(9), device)
    one, two, other = (sampler_of(store, seed=seed)() for seed in (1, 1, 2))
    assert torch.equal(one.observations, two.observations)
    assert not torch.equal(one.observations, other.observations)


def test_appended_trajectories_are_drawn_and_evicted_ones_are_not(device: str) -> None:
    old, new = episodes(2, seed=1), episodes(3, seed=2)
    store = annotated(old, device, capacity=2000)
    sampler = sampler_of(store)
    sampler()
    for part in new:
        store.append(
            part.observations, part.actions, part.rewards, terminated=part.terminated, truncated=part.truncated
        )
    store.evict(2)
    drawn = {place for _ in range(30) for place in first_steps(sampler(), new)}
    assert drawn == {(i, t) for i, p in enumerate(new) for t in range(len(p.rewards))}


def test_windows_of_an_unannotated_store_have_no_accounts() -> None:
    windows = sampler_of(store_of(episodes(3)), batch=5)()
    assert windows.codes is None
    assert windows.attractions is None
    assert repr(windows).startswith("Window(observations=(5, 7, 4), actions=(5, 7, 2), returns_to_go=(5, 7)")


def test_product_codebooks_give_one_account_per_group() -> None:
    store = store_of(episodes(5))
    store.annotate(ma.ProductCodebook(2, 2, 3), ma.EWA())
    for scope in ("trajectory", "window"):
        windows = sampler_of(store, batch=5, scope=scope)()
        assert windows.codes.shape == windows.attractions.shape == (5, K, 2)
        assert not bool(windows.attractions[~windows.mask].any())


@pytest.mark.parametrize("scope", ["trajectory", "window"])
def test_a_batch_takes_few_kernels_whatever_its_size(scope: str) -> None:
    """No work by window or by step in Python: 2,000 batches of 64 × 20 take under 2 s on two cores."""
    store = store_of(episodes(30, obs=11, act=3, shortest=20, longest=100))
    store.annotate(ma.GridCodebook(3, 3), ma.EWA(), ma.RewardTransform.fit(store.rewards))
    counts = []
    for batch, K in ((1, 5), (64, 20), (512, 20)):
        sampler = WindowSampler(store, batch, K, torch.Generator().manual_seed(0), scope)
        with CountedKernels() as counted:
            sampler()
        counts.append(counted.number)
    assert counts[0] == counts[1] == counts[2] < (40 if scope == "trajectory" else 120), counts


def test_bad_choices_are_refused() -> None:
    store = store_of(episodes(2))
    generator = torch.Generator()
    with pytest.raises(DataError, match="batch_size and context_length must be at least 1, got 0 and 5"):
        WindowSampler(store, 0, 5, generator)
    with pytest.raises(DataError, match=r"account_scope must be one of \['trajectory', 'window'\], got 'all'"):
        WindowSampler(store, 1, 5, generator, "all")
    with pytest.raises(DataError, match="empty store"):
        WindowSampler(Trajectories(4, 2, 10), 1, 5, generator)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("scope", ["trajectory", "window"])
def test_capture_in_a_cuda_graph(scope: str) -> None:
    old, new = episodes(6, seed=1, longest=30), episodes(4, seed=2, longest=30)
    store = annotated(old, "cuda", capacity=2000)
    store.pin_addresses()
    sampler = sampler_of(store, scope=scope)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        sampler()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.set_sync_debug_mode("error")
    try:
        sampler()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(sampler.generator)
    with torch.cuda.graph(graph):
        windows = sampler()
    drawn = []
    for _ in range(2):
        graph.replay()
        drawn.append(first_steps(windows, old))
    assert drawn[0] != drawn[1]  # the generator moves on from replay to replay
    for part in new:
        store.append(
            part.observations, part.actions, part.rewards, terminated=part.terminated, truncated=part.truncated
        )
    store.evict(6)
    seen = set()
    for _ in range(40):
        graph.replay()
        seen |= set(first_steps(windows, new))  # a KeyError if an evicted step were drawn
        for b, (i, t) in enumerate(first_steps(windows, new)):
            assert torch.equal(windows.actions[b].cpu(), padded_window(new[i].actions, t, K))
    assert seen == {(i, t) for i, p in enumerate(new) for t in range(len(p.rewards))}


@pytest.mark.parametrize("scope", ["trajectory", "window"])
def test_transitions_are_windows_and_the_windows_one_step_later(scope: str, device: str) -> None:
    parts = episodes(15, longest=12)
    store = annotated(parts, device)
    store.annotate_by(store.annotation.books, balances=True)
    sampler, plain = (sampler_of(store, scope=scope) for _ in range(2))
    later = sampler_of(store, scope=scope)
    seen = {"terminal": 0, "cut off": 0, "followed": 0}
    for _ in range(5):
        pairs, now = sampler.transitions(), plain()
        for name, values in now.tensors().items():
            assert torch.equal(getattr(pairs.now, name), values), name  # the same draws
        for b, (i, t) in enumerate(first_steps(now, parts)):
            begin, T = store.rows_of(i)[0] + t, len(parts[i].rewards)
            behind = later.at(torch.tensor([begin + 1], device=store.device)) if t + 1 < T else None
            for k in range(K):
                step = t + k - (K - int(now.mask[b].sum()))
                real = bool(now.mask[b, k])
                last = real and step == T - 1
                assert bool(pairs.terminal[b, k]) == (last and parts[i].terminated)
                assert bool(pairs.known[b, k]) == (real and (not last or parts[i].terminated))
                seen["terminal" if pairs.terminal[b, k] else "cut off" if last else "followed"] += real
                if not real or last:
                    continue
                assert behind is not None
                place = int((behind.timesteps[0] == step + 1).nonzero()[0])  # shorter windows stand further right
                for name, values in behind.tensors().items():
                    ours = getattr(pairs.following, name)[b, k]
                    assert torch.allclose(ours.double(), values[0, place].double(), atol=1e-5), name
    assert min(seen.values()) > 5


def test_an_episode_of_one_step_has_a_transition_only_if_it_was_terminal() -> None:
    for terminated in (True, False):
        store = store_of([Episode(np.ones((1, 2)), np.zeros((1, 1)), np.ones(1), terminated, not terminated)] * 3)
        pairs = WindowSampler(store, 8, 3, torch.Generator()).transitions()
        assert pairs.known.sum() == (8 if terminated else 0)
        assert torch.equal(pairs.known, pairs.terminal)
        assert not pairs.following.observations.any()
