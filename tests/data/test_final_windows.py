"""Steps that were cut off have a successor where it is known what was seen after them, and are left out where not.

The slow version has that as a real step: each trajectory with an ending is one step longer, with the last action
again and no reward. Windows of it that begin one step later are what follows.
"""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import Tensor

import mental_accounts as ma
from mental_accounts.accounts import StateValue
from mental_accounts.data import Trajectories, WindowSampler
from mental_accounts.data.annotation import SNAPSHOT_STEPS
from mental_accounts.data.episode_windows import EpisodeSampler
from tests.data.slow_windows import Episode, append, flat, store_of, with_endings
from tests.data.test_ledgers import make_books

READ = {"previous_rewards": True, "previous_actions": True, "previous_observations": True}
OF_THE_ACTION = {"codes", "weights", "attractions"}
"""What a step has of its own action; nobody has acted after the last one."""


def cut_parts(lengths: list[int], seed: int = 0) -> list[Episode]:
    """Episodes of these lengths, two of three cut off, and every other of these with a known ending."""
    rng, parts = np.random.default_rng(seed), []
    for number, T in enumerate(lengths):
        seen, paid = (rng.standard_normal(shape).astype(np.float32) for shape in ((T, 2), T))
        acted = rng.uniform(-1, 1, (T, 2)).astype(np.float32)
        parts.append(Episode(seen, acted, paid, number % 3 == 0, number % 3 != 0))
    return with_endings(parts, seed)


def lengthened(parts: list[Episode]) -> list[Episode]:
    """The slow version."""
    longer = []
    for part in parts:
        if part.final is None:
            longer.append(part)
            continue
        seen = np.concatenate([part.observations, part.final[None]])
        acted, paid = np.concatenate([part.actions, part.actions[-1:]]), np.append(part.rewards, np.float32(0))
        longer.append(Episode(seen, acted, paid, part.terminated, part.truncated))
    return longer


def annotated(parts: list[Episode], kind: str | None, **options: object) -> Trajectories:
    store = store_of(parts, **options)
    if kind is not None:
        store.annotate_by(make_books(kind), balances=True)
    return store


@pytest.mark.parametrize("K", [1, 2, 7])
@pytest.mark.parametrize("scope", ["trajectory", "window"])
@pytest.mark.parametrize("kind", [None, "plain", "late", "soft", "states"])
def test_the_window_one_step_later_has_what_was_seen(kind: str | None, scope: str, K: int, device: str) -> None:
    parts = cut_parts([1, 1, 1, 15, 16, 17, 4, 31, 32, 33, 8, 2 * SNAPSHOT_STEPS, 1, 1, 5], seed=K)
    store, slow = (annotated(p, kind, gamma=0.9, device=device) for p in (parts, lengthened(parts)))
    fast, later = (WindowSampler(s, 1, K, torch.Generator(device), scope, **READ) for s in (store, slow))
    closed = 0
    for i, part in enumerate(parts):
        first, T = store.rows_of(i)
        pairs = fast.transitions_at(torch.arange(first, first + T, device=device))
        plain = fast.at(torch.arange(first, first + T, device=device))
        for name, values in plain.tensors().items():
            assert torch.equal(getattr(pairs.now, name), values), name
        for t in range(T):
            for k in range(K):
                step = t + k - (K - int(plain.mask[t].sum()))
                real, last = step >= t, step == T - 1
                assert bool(pairs.terminal[t, k]) == (real and last and part.terminated)
                assert bool(pairs.known[t, k]) == (real and (not last or part.terminated or part.final is not None))
                if not real or (last and part.final is None):
                    continue
                closes = last
                window = later.at(torch.tensor([slow.rows_of(i)[0] + t + 1], device=device))
                place = int((window.timesteps[0] == step + 1).nonzero()[-1])
                for name, values in window.tensors().items():
                    if closes and name in OF_THE_ACTION:
                        continue
                    ours = getattr(pairs.following, name)[t, k]
                    torch.testing.assert_close(ours, values[0, place], rtol=1e-4, atol=1e-5, msg=f"{name} {i} {t} {k}")
                closed += closes
                if closes:
                    assert np.array_equal(pairs.following.observations[t, k].cpu(), part.final)
                    assert int(pairs.following.timesteps[t, k]) == T
                    assert float(pairs.following.returns_to_go[t, k]) == 0
    assert closed >= sum(min(len(p.rewards), K) for p in parts if p.final is not None)


@pytest.mark.parametrize("carried", [0, 7, 2])
def test_a_recurrent_policy_is_led_up_to_it(carried: int, device: str) -> None:
    parts = cut_parts([1, 1, 1, 6, 7, 8, 13, 14, 15, 20])
    store = store_of(parts, device=device)
    sampler = EpisodeSampler(store, 64, 7, torch.Generator(device), carried=carried, lead=True, **READ)
    places = {p.observations[t].tobytes(): (i, t) for i, p in enumerate(parts) for t in range(len(p.rewards))}
    seen = {"closed": 0, "unknown": 0}
    for _ in range(4):
        pairs = sampler.transitions()
        assert torch.equal(pairs.known[:, :-1] & ~pairs.terminal[:, :-1], pairs.now.counted[:, :-1])
        for b in range(64):
            i, t = places[pairs.now.observations[b, -1].cpu().numpy().tobytes()]
            part = parts[i]
            if t < len(part.rewards) - 1 or part.terminated:
                assert bool(pairs.known[b, -1])
                continue
            assert bool(pairs.known[b, -1]) == (part.final is not None)
            seen["unknown" if part.final is None else "closed"] += 1
            if part.final is not None:
                following = {name: values[b, -1].cpu().numpy() for name, values in pairs.following.tensors().items()}
                assert np.array_equal(following["observations"], part.final)
                assert int(following["timesteps"]) == t + 1
                assert np.array_equal(following["previous_actions"], part.actions[t])
                assert np.array_equal(following["previous_observations"], part.observations[t])
                assert float(following["previous_rewards"]) == part.rewards[t]
                assert bool(following["mask"])
    assert min(seen.values()) > 10


def test_whole_episodes_of_a_transformer() -> None:
    parts = cut_parts([1, 4, 5, 7, 3, 6, 14])
    store = annotated(parts, "plain")
    sampler = EpisodeSampler(store, 32, 7, torch.Generator().manual_seed(0), **READ)
    plain = WindowSampler(store, 32, 7, torch.Generator(), **READ)
    sampler.refresh()
    rows = sampler._rows(torch.rand(32, dtype=torch.float64))
    ours, theirs = sampler.transitions_at(rows), plain.transitions_at(rows)
    K = ours.known.shape[1]
    assert torch.equal(ours.known, theirs.known[:, -K:])
    for name, values in theirs.following.tensors().items():
        assert torch.equal(getattr(ours.following, name), values[:, -K:]), name


def test_the_actions_allowed_then() -> None:
    parts = cut_parts([1, 1, 1, 6, 3, 4])
    N, rng = sum(len(p.rewards) for p in parts), np.random.default_rng(0)
    masks, after = (rng.random((n, 3)) < 0.5 for n in (N, len(parts)))
    masks[:, 0] = after[:, 1] = True
    told = {"actions": np.zeros(N, int), "action_masks": masks, "final_masks": after}
    store = Trajectories.from_steps(**flat(parts) | told)
    sampler = WindowSampler(store, 1, 4, torch.Generator())
    ends = store.first_rows + store.lengths - 1
    pairs = sampler.transitions_at(ends)
    known = store.has_final
    assert torch.equal(pairs.following.action_masks[known, -1], torch.from_numpy(after)[known])
    assert not pairs.following.action_masks[~known, -1].any()
    assert torch.equal(pairs.known[:, -1], known | store.terminated)


def test_episodes_that_are_appended_and_evicted_bring_theirs() -> None:
    parts = cut_parts([3, 1, 4, 2, 5, 1, 1, 3, 2, 4, 1, 2] * 3)
    store = store_of(parts[:3], capacity=14)
    sampler = WindowSampler(store, 1, 3, torch.Generator())
    for number, part in enumerate(parts[3:], 3):
        append(store, part)
        store.evict(1)
        pairs = sampler.transitions_at(store.first_rows + store.lengths - 1)
        for b, kept in enumerate(parts[number - 2 : number + 1]):
            assert bool(pairs.known[b, -1]) == (kept.terminated or kept.final is not None)
            wanted = np.zeros(2, np.float32) if kept.final is None else kept.final
            assert np.array_equal(pairs.following.observations[b, -1], wanted)


def test_what_follows_pays_the_last_step() -> None:
    """Accounts paid by r + γ V(s') - V(s): stored at once, appended one by one, and annotated again."""
    parts = cut_parts([4, 1, 3, 1, 5, 2, 2])
    torch.manual_seed(0)
    value = StateValue(2)
    sizes = [(64, 2), (64, 64), (1, 64)]
    value.copy_from([torch.randn(size) / 5 for size in sizes], [torch.randn(size[0]) for size in sizes], 0.9, 2.0)
    books = replace_baseline(value)
    wanted: list[Tensor] = []
    for part in parts:
        states = torch.from_numpy(part.observations)
        after = states[-1] if part.final is None else torch.from_numpy(part.final)
        ahead = torch.cat([states[1:], after[None]])
        wanted.append(torch.from_numpy(part.rewards) + 0.9 * value(ahead) - value(states))
    whole, grown = store_of(parts), store_of(parts[:1], capacity=100)
    for store in (whole, grown):
        store.annotate_by(books, balances=True)
    for part in parts[1:]:
        append(grown, part)
    for store in (whole, grown, whole.select(torch.arange(len(parts)))):
        torch.testing.assert_close(store.storage.rows("payoffs"), torch.cat(wanted))
    grown.annotate_by(books, balances=True)
    torch.testing.assert_close(grown.storage.rows("payoffs"), torch.cat(wanted))


def replace_baseline(value: StateValue) -> ma.accounts.Books:
    return ma.accounts.Books(ma.GridCodebook(2, 3), ma.EWA(0.1, 0.7), baseline=value)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.filterwarnings("ignore:Synchronization debug mode")
@pytest.mark.parametrize("recurrent", [False, True])
def test_capture_in_a_cuda_graph(recurrent: bool) -> None:
    parts = cut_parts([3, 5, 4, 6, 2, 7, 1, 1, 4, 3, 5, 6])
    old, new = [replace(p, final=None) for p in parts[:4]], parts[4:]
    store = annotated(old, None if recurrent else "plain", device="cuda", capacity=500)
    store.keep_endings(20)
    store.pin_addresses()
    generator = torch.Generator("cuda")
    sampler = WindowSampler(store, 64, 7, generator, **READ)
    if recurrent:
        sampler = EpisodeSampler(store, 64, 7, generator, carried=0, lead=True, **READ)
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
    graph.register_generator_state(generator)
    with torch.cuda.graph(graph):
        pairs = sampler.transitions()
    for part in new:
        append(store, part)
    store.evict(4)
    sampler.refresh()
    places = {p.observations[-1].tobytes(): i for i, p in enumerate(new)}
    seen = set()
    for _ in range(10):
        graph.replay()
        for b in range(64):
            i = places.get(pairs.now.observations[b, -1].cpu().numpy().tobytes())
            if i is not None:
                assert bool(pairs.known[b, -1]) == (new[i].terminated or new[i].final is not None)
                if new[i].final is not None:
                    assert np.array_equal(pairs.following.observations[b, -1].cpu(), new[i].final)
                    seen.add(i)
    assert seen == {i for i, p in enumerate(new) if p.final is not None}
