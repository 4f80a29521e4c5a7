"""What was seen after episodes that were cut off: kept with its trajectory, in memory of its own, and in files."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch import Tensor

from mental_accounts.data import DataError, Trajectories
from mental_accounts.data.tensor_files import FORMAT, checksum
from tests.data.slow_windows import Episode, append, assert_same, episodes, flat, store_of, with_endings


def cut_off(count: int, seed: int = 0, length: int = 3) -> list[Episode]:
    """Episodes that were all cut off; of every other one it is known what was seen after it."""
    parts = episodes(count, seed, shortest=length, longest=length)
    for part in parts:
        part.terminated, part.truncated = False, True
    return with_endings(parts, seed)


def masked(parts: list[Episode], **changes: object) -> Trajectories:
    """With discrete actions, of which some are allowed."""
    N, M, rng = sum(len(p.rewards) for p in parts), len(parts), np.random.default_rng(0)
    masks, after = (rng.random((n, 3)) < 0.5 for n in (N, M))
    masks[:, 0] = after[:, 1] = True
    given = flat(parts) | {"actions": np.zeros(N, int), "action_masks": masks, "final_masks": after}
    return Trajectories.from_steps(**given | changes)


def test_they_come_out_as_they_went_in(device: str) -> None:
    parts = with_endings(episodes(25))
    store = store_of(parts, device=device)
    assert_same(store, parts)
    assert store.has_final.tolist() == [p.final is not None for p in parts]
    assert 2 < int(store.has_final.sum()) < int(store.truncated.sum())
    rows = store.final_observations.cpu().numpy()
    assert np.isnan(rows[~store.has_final.numpy()]).all()
    assert np.array_equal(rows[store.has_final.numpy()], [p.final for p in parts if p.final is not None])
    assert store.slice(0).final_mask is None
    assert store.final_masks is None


def test_nothing_follows_a_terminal_step() -> None:
    parts = episodes(20)
    for part in parts:
        part.final = np.full(4, 7.0, np.float32)
    store = store_of(parts)
    assert torch.equal(store.has_final, ~store.terminated)


def test_without_any_nothing_is_kept_for_them() -> None:
    parts = episodes(9)
    unknown = store_of(parts, final_observations=np.full((9, 4), np.nan))
    for store in (store_of(parts), unknown):
        assert store.endings is None
        assert "ending" not in store.storage.columns
        assert not store.has_final.any()
        assert store.final_observations is None
    store = store_of(with_endings(parts))
    rows = int(store.has_final.sum()) + 1
    assert store.nbytes == unknown.nbytes + 4 * (store.steps + 1) + 16 * rows  # a number a step, a row an ending


@given(st.lists(st.sampled_from(["append", "evict", "append", "evict 2"]), min_size=1, max_size=30), st.integers(0, 99))
def test_first_in_first_out(moves: list[str], seed: int) -> None:
    fresh = iter(with_endings(episodes(64, seed, longest=9), seed))
    kept = [next(fresh) for _ in range(3)]
    store, most = store_of(kept, capacity=60), 3
    for move in moves:
        if move == "append":
            kept.append(next(fresh))
            append(store, kept[-1])
        else:
            n = min(len(kept), 2 if move == "evict 2" else 1)
            del kept[:n]
            store.evict(n)
        most = max(most, len(kept))
    assert_same(store, kept)
    assert store.endings is None or store.endings.room <= max(1.5 * most, 2)  # rows are used again
    marked = torch.zeros(store.steps, dtype=torch.bool) if store.endings is None else store.storage.rows("ending") > 0
    ends = np.cumsum([len(p.rewards) for p in kept]) - 1
    assert marked.nonzero().flatten().tolist() == [e for e, p in zip(ends, kept, strict=True) if p.final is not None]


def test_copies(device: str) -> None:
    parts = with_endings(episodes(12))
    store = store_of(parts)
    store.evict(3)
    parts = parts[3:]
    chosen = [5, 1, 1, 8, 0]
    assert_same(store.select(torch.tensor(chosen)), [parts[i] for i in chosen])
    moved = store.to(device)
    assert_same(moved, parts)
    store.reserve(10_000)
    assert_same(store, parts)
    copied = store.select(torch.tensor([1, 0]), capacity=500)
    append(copied, parts[-1])
    assert_same(copied, [parts[1], parts[0], parts[-1]])
    assert_same(store, parts)


def test_masks_are_of_the_same_moment() -> None:
    parts = with_endings(episodes(12))
    store = masked(parts)
    known = store.has_final
    assert store.final_masks[known][:, 1].all()
    assert not store.final_masks[~known].any()
    last = store.select(known.nonzero().flatten()[-1:])
    assert torch.equal(last.slice(0).final_mask, store.final_masks[known][-1])
    plain = store.without("action_masks")
    assert plain.slice(int(known.nonzero()[0])).final_mask is None
    again = plain.allowing_all(5)
    assert torch.equal(again.final_masks, known.unsqueeze(-1).expand(-1, 5))
    store.append(np.zeros((2, 4)), [0, 0], [0.0, 0.0], terminated=False, action_masks=np.ones((2, 3)),
                 final_observation=np.ones(4), final_mask=[1, 0, 1])  # fmt: skip
    assert store.slice(-1).final_mask.tolist() == [True, False, True]
    plain.append(np.zeros((2, 4)), [0, 0], [0.0, 0.0], terminated=False, final_observation=np.ones(4))
    assert plain.slice(-1).final_observation.tolist() == [1.0] * 4


def test_addresses_stay_and_pinned_ones_do_not_grow(device: str) -> None:
    parts = cut_off(20)
    store = store_of(parts[:3], capacity=12, device=device)
    store.keep_endings(4)
    store.pin_addresses()
    before = store.endings.observations.data_ptr()
    for i, part in enumerate(parts[3:], 3):
        append(store, part)
        store.evict(1)
        assert_same(store, parts[i - 2 : i + 1])
    assert store.endings.observations.data_ptr() == before
    assert not store.endings.observations[0].any()
    with pytest.raises(DataError, match=r"room for 5 final .* at most 4 .*keep_endings"):
        store.keep_endings(5)
    bare = store_of(episodes(2), capacity=200, device=device)
    bare.pin_addresses()
    append(bare, episodes(1)[0])
    steps = bare.steps
    with pytest.raises(DataError, match=r"no room for any .*keep_endings"):
        append(bare, parts[0])
    assert (bare.steps, len(bare)) == (steps, 3)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"final_observations": np.zeros((3, 4))}, r"final_observations must have shape \(4, 4\), one for each"),
        ({"final_observations": np.zeros(4)}, r"final_observations must have shape \(4, 4\)"),
        ({"final_observations": np.full((4, 4), np.inf)}, "final_observations of trajectory 0 must be finite"),
        ({"final_observations": [[1, 2, 3, np.nan]] * 4}, "or NaN throughout where they are not known, got nan at 3"),
        ({"final_observations": [["a"] * 4] * 4}, "final_observations must be numbers"),
        ({"final_masks": None}, "final_masks are missing"),
        ({"final_masks": np.ones((4, 2))}, "final_masks: an action mask must be"),
        ({"final_masks": np.ones((3, 3))}, "final_masks must have shape"),
        ({"final_masks": np.zeros((4, 3))}, "final_masks: the action mask at .* forbids all actions"),
        ({"final_masks": np.full((4, 3), 2)}, "final_masks: an action mask must be"),
    ],
)
def test_what_cannot_be_is_refused(changed: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        masked(cut_off(4), **changed)


# Files.


def rewrite(path: Path, tensors: dict[str, Tensor]) -> None:
    """Write the file with other tensors, and a checksum that fits them."""
    facts = json.dumps({"gamma": 0.9})
    save_file(tensors, path, metadata={"format": FORMAT, "facts": facts, "checksum": checksum(tensors, facts)})


@pytest.mark.parametrize("gamma", [0.9, 0.5])
def test_what_is_saved_is_loaded(gamma: float, tmp_path: Path, device: str) -> None:
    path, parts = tmp_path / "x.safetensors", with_endings(episodes(12))
    store = store_of(parts, gamma=0.9, device=device)
    store.evict(2)
    store.save(path)
    assert_same(Trajectories.load(path, device, gamma), parts[2:], gamma)
    assert load_file(path)["final.observations"].shape == (int(store.has_final.sum()), 4)
    store = masked(parts)
    store.save(path)
    again = Trajectories.load(path)
    assert torch.equal(again.final_masks, store.final_masks)
    assert torch.equal(again.final_observations[again.has_final], store.final_observations[store.has_final])


def test_files_without_them_are_as_they_were(tmp_path: Path) -> None:
    path, parts = tmp_path / "x.safetensors", episodes(6)
    store_of(parts, gamma=0.9).save(path)
    tensors = load_file(path)
    assert not [name for name in tensors if name.startswith("final")]
    assert_same(Trajectories.load(path), parts, 0.9)
    with_endings(parts)
    store_of(parts, gamma=0.9).save(path)
    named = {name: value for name, value in load_file(path).items() if not name.startswith("final")}
    assert named.keys() == tensors.keys()
    assert all(value.equal(tensors[name]) for name, value in named.items())


BAD: list[tuple[dict[str, Tensor | None], str]] = [
    ({"trajectories": None}, r"has no \['final.trajectories'\]"),
    ({"observations": None}, r"has no \['final.observations'\]"),
    ({"trajectories": torch.tensor([0.0, 1.0])}, "final.trajectories must be whole numbers"),
    ({"trajectories": torch.tensor([True, True])}, "final.trajectories must be whole numbers"),
    ({"trajectories": torch.tensor(1)}, "final.trajectories must be whole numbers"),
    ({"trajectories": torch.tensor([0, 0])}, "final.trajectories must ascend from 0 to 3"),
    ({"trajectories": torch.tensor([2, 0])}, "final.trajectories must ascend"),
    ({"trajectories": torch.tensor([-1, 2])}, "final.trajectories must ascend"),
    ({"trajectories": torch.tensor([0, 4])}, "final.trajectories must ascend"),
    ({"trajectories": torch.tensor([0, 2**62])}, "final.trajectories must ascend"),
    ({"terminated": torch.ones(4, dtype=torch.bool)}, "must be trajectories that were cut off"),
    ({"trajectories": torch.tensor([0, 1, 2])}, r"final.observations must have shape \(3, 4\)"),
    ({"observations": torch.zeros(2, 5)}, r"final.observations must have shape \(2, 4\)"),
    ({"observations": torch.zeros(0, 2**40)}, "final.observations must have shape"),
    ({"observations": torch.full((2, 4), torch.nan)}, "must be finite"),
    ({"action_masks": torch.ones(2, 3)}, "final.action_masks must be there where the steps have"),
]


@pytest.mark.parametrize(("changed", "message"), BAD)
def test_tensors_that_are_wrong(tmp_path: Path, changed: dict[str, Tensor | None], message: str) -> None:
    path = tmp_path / "x.safetensors"
    store_of(cut_off(4)).save(path)
    tensors = load_file(path)
    for short, value in changed.items():
        name = short if short in tensors else f"final.{short}"
        tensors.pop(name, None)
        tensors |= {} if value is None else {name: value}
    rewrite(path, tensors)
    with pytest.raises(DataError, match=rf"x\.safetensors: .*{message}"):
        Trajectories.load(path)


def test_masks_that_are_wrong(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    masked(cut_off(4)).save(path)
    tensors = {name: value.clone() for name, value in load_file(path).items()}  # it may be mapped, and is overwritten
    for masks in (None, torch.zeros(2, 3), torch.ones(2, 2), torch.ones(3, 3), torch.full((2, 3), 0.5)):
        changed = {name: value for name, value in tensors.items() if name != "final.action_masks"}
        rewrite(path, changed if masks is None else changed | {"final.action_masks": masks.to(torch.bfloat16)})
        with pytest.raises(DataError, match=r"x\.safetensors: final[._](action_)?masks"):
            Trajectories.load(path)
