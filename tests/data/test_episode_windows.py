"""Windows that begin with their episodes: what is in them, how often each step is, and what is carried into pieces."""

from collections import Counter

import numpy as np
import pytest
import torch
from scipy import stats

import mental_accounts as ma
from mental_accounts.data.episode_windows import EpisodeSampler, sampler_for
from mental_accounts.data.windows import WindowSampler
from mental_accounts.policy import Window
from tests.data.slow_windows import Episode, episodes, store_of
from tests.data.test_windows import CountedKernels
from tests.policy.helpers import tiny

L = 7


def sampler_of(
    store: ma.Trajectories, batch: int = 64, length: int = L, carried: int = 0, lead: bool = True, seed: int = 0
) -> EpisodeSampler:
    generator = torch.Generator(store.device).manual_seed(seed)
    before = {"previous_rewards": True, "previous_actions": True, "previous_observations": True}
    return EpisodeSampler(store, batch, length, generator, carried=carried, lead=lead, **before)


def places_of(parts: list[Episode]) -> dict[bytes, tuple[int, int]]:
    """The episode and the number of every step, by its observation."""
    return {p.observations[t].tobytes(): (i, t) for i, p in enumerate(parts) for t in range(len(p.rewards))}


def steps_in(window: Window, parts: list[Episode]) -> list[list[tuple[int, int]]]:
    """The real steps of each window in order, as (episode, number)."""
    known, found = places_of(parts), []
    for observations, mask in zip(window.observations.cpu(), window.mask.cpu(), strict=True):
        found.append([known[step.numpy().tobytes()] for step in observations[mask]])
    return found


def learned_in(window: Window, parts: list[Episode]) -> list[tuple[int, int]]:
    known = places_of(parts)
    return [known[step.numpy().tobytes()] for step in window.observations.cpu()[window.counted.cpu()]]


@pytest.mark.parametrize(("longest", "length", "carried"), [(12, 12, 0), (30, L, 0), (30, L, L), (30, L, 3)])
def test_a_window_is_an_episode_or_a_piece_with_what_comes_before(
    longest: int, length: int, carried: int, device: str
) -> None:
    parts = episodes(15, longest=longest)
    store = store_of(parts, device=device)
    store.evict(2)
    parts = parts[2:]
    sampler, seen = sampler_of(store, length=length, carried=carried), set()
    for _ in range(6):
        window = sampler()
        for b, steps in enumerate(steps_in(window, parts)):
            i, first = steps[0]
            T = len(parts[i].rewards)
            assert steps == [(i, first + k) for k in range(len(steps))]
            begin = first + int(window.mask[b].sum() - window.counted[b].sum())  # of the piece
            assert begin % length == 0
            assert first == max(0, begin - carried)
            assert steps[-1][1] == min(begin + length, T) - 1
            assert bool((window.mask[b].long().diff() >= 0).all())
            assert bool((window.counted[b].long().diff() >= 0).all())
            part = slice(first, first + len(steps))
            before = {"previous_rewards": parts[i].rewards, "previous_actions": parts[i].actions}
            before["previous_observations"] = parts[i].observations
            for name, values in {"rewards": parts[i].rewards, "actions": parts[i].actions, **before}.items():
                wanted = values[part]
                if name in before:
                    wanted = np.concatenate([np.zeros_like(values[:1]), values[:-1]])[part]
                assert np.array_equal(getattr(window, name)[b].cpu()[window.mask[b].cpu()].numpy(), wanted), name
            seen.add((i, begin))
    assert seen == {(i, begin) for i, p in enumerate(parts) for begin in range(0, len(p.rewards), length)}
    if not carried:
        assert window.learned is None


@pytest.mark.parametrize(("longest", "carried"), [(L, 0), (40, L)])
def test_every_step_is_equally_likely_to_be_learned_from(longest: int, carried: int) -> None:
    """Chi-square over pieces: each of them, long or short, is drawn equally often, and with it each of its steps."""
    parts = episodes(12, seed=3, longest=longest)
    sampler, draws = sampler_of(store_of(parts), batch=1000, carried=carried), 40
    found = Counter(place for _ in range(draws) for place in learned_in(sampler(), parts))
    steps = [(i, t) for i, p in enumerate(parts) for t in range(len(p.rewards))]
    assert set(found) == set(steps)
    pieces = [(i, begin) for i, begin in steps if begin % L == 0]
    counts = [found[piece] for piece in pieces]
    assert sum(counts) == draws * 1000
    assert stats.chisquare(counts).pvalue > 1e-3
    assert all(found[i, t] == found[i, t - t % L] for i, t in steps)


def test_what_is_appended_is_drawn_and_what_is_evicted_is_not(device: str) -> None:
    """Also after the store has moved, with as many steps as before at the same rows."""
    parts = [Episode(np.full((T, 2), T + 0.1 * np.arange(T)[:, None], np.float32), np.zeros((T, 1), np.float32),
                     np.zeros(T, np.float32), True, False) for T in (3, 5, 4)]  # fmt: skip
    store = store_of(parts, device=device, capacity=14)
    sampler = sampler_of(store, length=10)
    assert {steps[0] for steps in steps_in(sampler(), parts)} == {(0, 0), (1, 0), (2, 0)}
    for T in (3, 5, 4, 3, 5):
        store.evict(1)
        part = Episode(
            np.random.default_rng(T).normal(size=(T, 2)).astype("f4"), *([np.zeros(T, "f4")] * 2), True, False
        )
        store.append(part.observations, np.zeros((T, 1), "f4"), part.rewards, terminated=True)
        parts = [*parts[1:], part]
        drawn = steps_in(sampler(), parts)
        assert {steps[0] for steps in drawn} == {(0, 0), (1, 0), (2, 0)}
        assert all(len(steps) == len(parts[steps[0][0]].rewards) for steps in drawn)


@pytest.mark.parametrize("carried", [0, L, 2])
def test_successors_come_with_the_steps_that_lead_to_them(carried: int, device: str) -> None:
    parts = episodes(15, longest=20)
    store = store_of(parts, device=device)
    known, plain, sampler = places_of(parts), sampler_of(store, carried=carried), sampler_of(store, carried=carried)
    seen = {"terminal": 0, "cut off": 0, "followed": 0}
    for _ in range(4):
        pairs, now = sampler.transitions(), plain()
        assert pairs.lead == 1
        for name, values in now.tensors().items():
            assert torch.equal(getattr(pairs.now, name), values), name  # the same draws
        assert pairs.following.mask.shape[1] == now.mask.shape[1] + 1
        for b in range(len(now.mask)):
            for k in range(now.mask.shape[1]):
                if not now.mask[b, k]:
                    assert not pairs.known[b, k]
                    continue
                i, t = known[now.observations[b, k].cpu().numpy().tobytes()]
                last, counts = t == len(parts[i].rewards) - 1, bool(now.counted[b, k])
                assert bool(pairs.terminal[b, k]) == (last and parts[i].terminated and counts)
                assert bool(pairs.known[b, k]) == (counts and (not last or parts[i].terminated))
                seen["terminal" if pairs.terminal[b, k] else "cut off" if last else "followed"] += 1
                if not last:
                    assert known[pairs.following.observations[b, k + 1].cpu().numpy().tobytes()] == (i, t + 1)
                    assert float(pairs.following.previous_rewards[b, k + 1]) == parts[i].rewards[t]
                    assert np.array_equal(pairs.following.previous_actions[b, k + 1].cpu(), parts[i].actions[t])
            first = int(now.mask[b].long().argmax())  # its own first step is there, too
            assert bool(pairs.following.mask[b, first])
            assert torch.equal(pairs.following.observations[b, first], now.observations[b, first])
    assert min(seen.values()) > 5


def test_transformers_learn_from_whole_episodes_with_their_accounts() -> None:
    """The windows of a plain sampler at the same rows; successors in windows that begin one step later."""
    parts = episodes(10, longest=2 * L)
    store = store_of(parts)
    store.annotate(ma.GridCodebook(2, 3), ma.EWA())
    store.annotate_by(store.annotation.books, balances=True)
    for scope in ("trajectory", "window"):
        sampler = EpisodeSampler(store, 32, L, torch.Generator().manual_seed(0), scope, previous_rewards=True)
        plain = WindowSampler(store, 32, L, torch.Generator(), scope, previous_rewards=True)
        sampler.refresh()
        rows = sampler._rows(torch.rand(32, dtype=torch.float64))
        later = sampler.transitions_at(rows).following, plain.transitions_at(rows).following
        for ours, theirs in ((sampler.at(rows), plain.at(rows)), later):
            K = ours.mask.shape[1]
            for name, values in theirs.tensors().items():
                assert torch.equal(getattr(ours, name), values[:, -K:]), name


def test_no_more_columns_than_the_longest_episode_of_a_batch_needs() -> None:
    short = store_of(episodes(5, longest=4))
    assert sampler_of(short, length=100)().mask.shape[1] == int(short.lengths.max())
    counts = []
    for batch in (1, 64, 512):
        sampler = sampler_of(short, batch=batch, length=100)
        sampler()
        with CountedKernels() as counted:
            sampler()
        counts.append(counted.number)
    assert counts[0] == counts[1] == counts[2] < 50


def test_what_each_method_learns_from() -> None:
    store = store_of(episodes(6, obs=3, shortest=30, longest=30))

    def made(longest: int = 0, **changes: object) -> WindowSampler:
        return sampler_for(tiny(**changes), store, 4, torch.Generator(), longest)

    plain = made(method="odt")
    assert not isinstance(plain, EpisodeSampler)
    assert (plain.context_length, plain.previous_rewards, plain.previous_actions) == (6, False, False)
    whole = made(method="odt", windows="episodes", context_length=50, reward_input="state")
    assert isinstance(whole, EpisodeSampler)
    assert (whole.context_length, whole.stride, whole.lead, whole.previous_rewards) == (30, 30, False, True)
    recurrent = made(method="gru")
    assert isinstance(recurrent, EpisodeSampler)
    assert (recurrent.context_length, recurrent.carried, recurrent.lead) == (30, 0, True)
    assert (recurrent.previous_rewards, recurrent.previous_actions) == (True, True)
    cut = made(method="gru", episode_length=20, reward_input="none")
    assert (cut.context_length, cut.stride, cut.carried, cut.previous_rewards) == (40, 20, 20, False)
    for changes in ({"method": "odt"}, {"method": "odt", "windows": "episodes"}, {"method": "gru"}):
        compared = made(reward_input="advantage", **changes)
        assert (compared.previous_rewards, compared.previous_observations) == (True, True)
        assert not made(reward_input="state", **changes).previous_observations
    later = made(method="gru", longest=80)
    assert (later.context_length, later.carried) == (80, 0)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
def test_episodes_are_drawn_in_a_cuda_graph() -> None:
    old, new = episodes(6, seed=1, longest=30), episodes(4, seed=2, longest=30)
    store = store_of(old, device="cuda", capacity=2000)
    store.pin_addresses()
    sampler = sampler_of(store, carried=L)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        sampler.transitions()
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.set_sync_debug_mode("error")
    try:
        sampler.transitions()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(sampler.generator)
    with torch.cuda.graph(graph):
        pairs = sampler.transitions()
    drawn = []
    for _ in range(2):
        graph.replay()
        drawn.append(steps_in(pairs.now, old))
    assert drawn[0] != drawn[1]  # the generator moves on from replay to replay
    for part in new:
        store.append(
            part.observations, part.actions, part.rewards, terminated=part.terminated, truncated=part.truncated
        )
    store.evict(6)
    sampler.refresh()
    seen = set()
    for _ in range(40):
        graph.replay()
        seen |= set(learned_in(pairs.now, new))  # a KeyError if an evicted step were drawn
    assert seen == {(i, t) for i, p in enumerate(new) for t in range(len(p.rewards))}
