import errno
import json
import struct
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import mental_accounts as ma
from mental_accounts.action_spec import ActionSpec
from mental_accounts.data import DataError, Trajectories, annotation, storage, tensor_files
from mental_accounts.errors import NoRoomError
from tests.data.slow_windows import Episode, assert_same, episodes, flat, store_of

BOX = ActionSpec("box", 2, (-1.0, -1.0), (1.0, 1.0))


def annotated(parts: list[Episode], book: ma.GridCodebook | ma.ProductCodebook, **options: object) -> Trajectories:
    store = store_of(parts, **options)
    store.annotate(book, ma.EWA(), ma.RewardTransform("standardised", 0.1, 0.7, clip=1.0))
    return store


@pytest.mark.parametrize("gamma", [1.0, 0.97])
def test_slices_are_the_trajectories_that_went_in(gamma: float, device: str) -> None:
    parts = episodes(25)
    store = store_of(parts, gamma=gamma, device=device)
    assert_same(store, parts, gamma)
    assert store.steps == sum(len(p.rewards) for p in parts)
    np.testing.assert_allclose(store.returns, [p.rewards.sum(dtype=np.float64) for p in parts])
    assert store.lengths.tolist() == [len(p.rewards) for p in parts]
    assert store.slice(-1).observations.data_ptr() == store.slice(len(store) - 1).observations.data_ptr()
    with pytest.raises(IndexError, match="25 was requested, but there are 25"):
        store.slice(25)


def test_slices_are_views() -> None:
    store = annotated(episodes(3), ma.GridCodebook(2, 3))
    store.slice(1).observations.fill_(7.0)
    store.slice(1).attractions.fill_(5.0)
    begin, T = len(store.slice(0)), len(store.slice(1))
    assert bool((store.observations[begin : begin + T] == 7.0).all())
    assert int((store.attractions == 5.0).sum()) == T
    assert "observations=(" in repr(store.slice(0))
    assert f"terminated={store.slice(0).terminated}" in repr(store.slice(0))


@given(st.lists(st.sampled_from(["append", "evict", "append", "evict 2"]), min_size=1, max_size=30), st.integers(0, 99))
def test_first_in_first_out(moves: list[str], seed: int) -> None:
    fresh = iter(episodes(64, seed, longest=9))
    kept = [next(fresh) for _ in range(3)]
    store = annotated(kept, ma.GridCodebook(2, 3), capacity=60)
    for move in moves:
        if move == "append":
            kept.append(next(fresh))
            part = kept[-1]
            store.append(
                part.observations,
                part.actions,
                part.rewards,
                terminated=part.terminated,
                truncated=part.truncated,
            )
        else:
            n = min(len(kept), 2 if move == "evict 2" else 1)
            del kept[:n]
            store.evict(n)
    assert store.storage.live.tolist() == [store.storage.first, store.steps]
    if kept:
        assert_same(store, kept)
        again = annotated(kept, ma.GridCodebook(2, 3))
        assert torch.equal(store.codes, again.codes)
        assert torch.equal(store.attractions, again.attractions)  # to the bit, though traced one by one


def test_addresses_stay_and_a_pinned_store_does_not_grow(device: str) -> None:
    parts = episodes(12, longest=10, shortest=10)
    store = annotated(parts[:3], ma.GridCodebook(2, 3), capacity=45, device=device)
    store.pin_addresses()
    before = {name: column.data_ptr() for name, column in store.storage.columns.items()}
    for i, part in enumerate(parts[3:], 3):
        store.append(
            part.observations, part.actions, part.rewards, terminated=part.terminated, truncated=not part.terminated
        )
        store.evict(1)
        assert_same(store, parts[i - 2 : i + 1])
        assert all(not bool(column[store.storage.blank].any()) for column in store.storage.columns.values())
    assert before == {name: column.data_ptr() for name, column in store.storage.columns.items()}
    too_long = episodes(1, shortest=16, longest=16)[0]
    with pytest.raises(DataError, match="room for 46 steps was needed, but the store holds at most 45"):
        store.append(too_long.observations, too_long.actions, too_long.rewards, terminated=True)
    with pytest.raises(DataError, match="addresses are pinned"):
        store.annotate(ma.ProductCodebook(2, 2, 3), ma.EWA())
    assert_same(store, parts[-3:])


def test_growth_is_amortised() -> None:
    part = episodes(1, shortest=10, longest=10)[0]
    store = store_of([part])
    addresses = set()
    for _ in range(300):
        store.append(part.observations, part.actions, part.rewards, terminated=False, truncated=True)
        addresses.add(store.storage.capacity)
    assert len(addresses) < 20
    store.reserve(10_000)
    assert store.storage.capacity == 10_000
    assert len(store) == 301


@pytest.mark.parametrize(
    "book",
    [ma.GridCodebook(2, 3), ma.ProductCodebook(2, 2, 3), ma.GridCodebook(2, 2000)],
    ids=["grid", "product", "huge"],
)
def test_annotation_is_the_trace_of_each_trajectory(book: ma.GridCodebook, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(annotation, "GROUP_STEPS", 300)  # many groups
    parts = episodes(30, longest=130)
    store = annotated(parts, book)
    transform = ma.RewardTransform("standardised", 0.1, 0.7, clip=1.0)
    for got, part in zip(store, parts, strict=True):
        codes = book.route(torch.from_numpy(part.actions))
        assert torch.equal(got.codes.long(), codes)
        expected = ma.EWA().trace(codes, transform(torch.from_numpy(part.rewards)))
        torch.testing.assert_close(got.attractions, expected)
    assert store.codes.dtype == (torch.int32 if book.num_codes > 32767 else torch.int16)


def test_annotation_reads_actions_in_the_environments_units() -> None:
    parts = episodes(4)
    wide = [Episode(p.observations, p.actions * 2 + 1, p.rewards, p.terminated, p.truncated) for p in parts]
    spec = ActionSpec("box", 2, (-1.0, -1.0), (3.0, 3.0))
    narrow, scaled = annotated(parts, ma.GridCodebook(2, 5)), annotated(wide, ma.GridCodebook(2, 5), action_spec=spec)
    assert torch.equal(narrow.codes, scaled.codes)
    by_hand = store_of(wide)
    by_hand.annotate(ma.GridCodebook(2, 5), ma.EWA(), to_unit=lambda actions: (actions - 1) / 2)
    assert torch.equal(narrow.codes, by_hand.codes)
    with pytest.raises(DataError, match=r"outside of the action bounds \[-1, 1\]; give the store its action_spec, or"):
        store_of(wide).annotate(ma.GridCodebook(2, 5), ma.EWA())


def test_discrete_actions() -> None:
    spec = ActionSpec("discrete", 3, start=1)
    arrays = {"observations": np.zeros((5, 1)), "actions": np.array([1, 2, 3, 1, 1]), "rewards": np.arange(5.0)}
    ends = {"lengths": [2, 3], "terminated": [True, False], "truncated": [False, True]}
    store = Trajectories.from_steps(**arrays, **ends, action_spec=spec)
    assert store.discrete
    assert store.actions.dtype == torch.int64
    store.annotate(ma.DiscreteCodebook(3), ma.EWA())
    assert store.codes.tolist() == [0, 1, 2, 0, 0]
    arrays["actions"][3] = 4
    with pytest.raises(DataError, match=r"actions\[3\] is 4, outside of the action bounds \[1, 3\]"):
        Trajectories.from_steps(**arrays, **ends, action_spec=spec)


def test_best_selects_whole_trajectories(device: str) -> None:
    parts = episodes(20)
    store = annotated(parts, ma.GridCodebook(2, 3), device=device)
    totals = [float(p.rewards.sum(dtype=np.float64)) for p in parts]
    order = sorted(range(20), key=lambda i: totals[i])
    assert store.best(6).tolist() == order[-6:]
    assert store.best(99).tolist() == order
    chosen = store.select(store.best(6), capacity=500)
    assert chosen.storage.capacity == 500
    assert_same(chosen, [parts[i] for i in order[-6:]])
    assert torch.equal(chosen.slice(0).attractions, store.slice(order[-6]).attractions)
    chosen.append(parts[0].observations, parts[0].actions, parts[0].rewards, terminated=True)
    chosen.evict(6)
    torch.testing.assert_close(chosen.slice(0).attractions, store.slice(0).attractions)


def test_statistics_are_odts(device: str) -> None:
    parts = episodes(9)
    for part in parts:
        part.observations[:, 3] = 2.0  # a constant state
    got = store_of(parts, device=device).statistics()
    states = np.concatenate([p.observations for p in parts]).astype(np.float64)
    totals = np.array([p.rewards.sum(dtype=np.float64) for p in parts])
    assert (got.steps, got.trajectories) == (len(states), 9)
    assert got.return_mean == pytest.approx(totals.mean())
    assert got.return_std == pytest.approx(totals.std())
    assert (got.return_min, got.return_max) == (pytest.approx(totals.min()), pytest.approx(totals.max()))
    assert got.length_mean == pytest.approx(len(states) / 9)


def test_what_is_saved_is_loaded(tmp_path: Path, device: str) -> None:
    parts = episodes(9)
    store = store_of(parts, action_spec=BOX, gamma=0.9, info={"name": "nine", "seed": 3}, device=device)
    store.evict(2)
    store.save(tmp_path / "deep" / "nine.safetensors")
    again = Trajectories.load(tmp_path / "deep" / "nine.safetensors", device=device)
    assert_same(again, parts[2:], 0.9)
    assert (again.gamma, again.info, again.action_spec) == (0.9, {"name": "nine", "seed": 3}, BOX)
    assert_same(Trajectories.load(tmp_path / "deep" / "nine.safetensors", gamma=1.0), parts[2:], 1.0)
    assert [file.name for file in (tmp_path / "deep").iterdir()] == ["nine.safetensors"]


def test_a_million_hopper_steps(tmp_path: Path) -> None:
    N, M = 1_000_000, 2_000
    generator = torch.Generator().manual_seed(0)
    Trajectories.from_steps(
        torch.randn(N, 11, generator=generator),
        torch.rand(N, 3, generator=generator) * 2 - 1,
        torch.rand(N, generator=generator),
        lengths=torch.full((M,), N // M),
        terminated=torch.ones(M),
        truncated=torch.zeros(M),
    ).save(tmp_path / "million.safetensors")
    began = time.perf_counter()
    store = Trajectories.load(tmp_path / "million.safetensors")
    loaded = time.perf_counter()
    store.annotate(ma.GridCodebook(3, 3), ma.EWA(), ma.RewardTransform.fit(store.rewards))
    traced = time.perf_counter() - loaded
    print(f"loaded in {loaded - began:.2f} s, annotated in {traced:.2f} s, {store.nbytes / 1e6:.0f} MB")
    assert loaded - began < 5.0
    assert store.nbytes < 150e6


def damaged(kind: str, data: bytes) -> bytes:
    (size,) = struct.unpack("<Q", data[:8])
    if kind == "cut short":
        return data[: len(data) - 40]
    if kind == "cut in the header":
        return data[: size // 2]
    if kind == "empty":
        return b""
    if kind == "one bit changed":
        return data[:-30] + bytes([data[-30] ^ 1]) + data[-29:]
    header = json.loads(data[8 : 8 + size])
    if kind == "facts changed":
        header["__metadata__"]["facts"] = header["__metadata__"]["facts"].replace("0.9", "0.8")
    elif kind == "something else":
        header["__metadata__"]["format"] = "pt"
    else:
        del header["__metadata__"]
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data[8 + size :]


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        ("cut short", "not a whole safetensors file"),
        ("cut in the header", "not a whole safetensors file"),
        ("empty", "not a whole safetensors file"),
        ("one bit changed", "checksum differs"),
        ("facts changed", "checksum differs"),
        ("something else", "expected a file of format 'mental-accounts trajectories 2', got 'pt'"),
        ("no metadata", "got None"),
    ],
)
def test_damaged_files_are_refused(tmp_path: Path, kind: str, message: str) -> None:
    path = tmp_path / "x.safetensors"
    store_of(episodes(3), gamma=0.9).save(path)
    path.write_bytes(damaged(kind, path.read_bytes()))
    with pytest.raises(DataError, match=f"x.safetensors: .*{message}"):
        Trajectories.load(path)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.safetensors: no such file"):
        Trajectories.load(tmp_path / "none.safetensors")


def test_a_full_disk_leaves_nothing_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.safetensors"
    store = store_of(episodes(3))
    store.save(path)
    before = path.read_bytes()

    def full(_tensors: object, temporary: Path, metadata: object) -> None:
        temporary.write_bytes(b"half")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(tensor_files, "save_file", full)
    with pytest.raises(OSError, match="No space left"):
        store.save(path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["x.safetensors"]


def broken(parts: list[Episode], **changed: object) -> dict[str, object]:
    return {**flat(parts), **changed}


def with_value(array: np.ndarray, index: object, value: float) -> np.ndarray:
    changed = array.copy()
    changed[index] = value
    return changed


BAD = flat(episodes(3, shortest=5, longest=5))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"rewards": with_value(BAD["rewards"], 7, np.nan)},
            r"file.h5: rewards must be finite, but rewards\[7\] is nan",
        ),
        ({"observations": with_value(BAD["observations"], (2, 3), np.inf)}, r"observations\[2, 3\] is inf"),
        ({"actions": with_value(BAD["actions"], (14, 0), np.nan)}, r"actions\[14, 0\] is nan"),
        ({"actions": with_value(BAD["actions"], (3, 1), 1.5)}, r"actions\[3, 1\] is 1.5, outside of the .* \[-1, 1\]"),
        ({"observations": BAD["observations"].astype(np.float64) * 1e300}, "must be finite"),
        ({"observations": BAD["observations"][:-1]}, "same number of steps, got 14, 15 and 15"),
        ({"rewards": BAD["rewards"][:-1]}, "same number of steps, got 15, 15 and 14"),
        ({"rewards": BAD["rewards"].reshape(5, 3)}, r"rewards must have shape \(steps,\), got \(5, 3\)"),
        ({"lengths": [5, 0, 10]}, "trajectory 1 has 0 steps"),
        ({"lengths": [5, 5, 6]}, "add up to 16, but there are 15 steps"),
        ({"lengths": []}, "at least one trajectory"),
        ({"terminated": [True]}, r"terminated must have one flag per trajectory, shape \(3,\), got \(1,\)"),
        ({"observations": np.array(["a"] * 15)}, "observations must be numbers"),
        ({"observations": np.array([[None]] * 15)}, "observations must be numbers, got an array of object"),
        ({"actions": BAD["actions"][:, :1]}, r"actions must have shape \(steps, 2\), got \(15, 1\)"),
        ({"actions": BAD["actions"][:, 0]}, "must be whole numbers"),
        ({"observations": BAD["observations"][:, 0]}, "observations must have shape"),
    ],
)
def test_bad_data_are_refused_where_they_enter(changed: dict[str, object], message: str) -> None:
    with pytest.raises(DataError, match=message):
        Trajectories.from_steps(**{**BAD, **changed}, action_spec=BOX, where="file.h5")


def test_bad_trajectories_are_not_appended() -> None:
    parts = episodes(2, shortest=5, longest=5)
    store = store_of(parts, action_spec=BOX)
    good = parts[0]
    for arguments, message in [
        (
            (good.observations[:, :3], good.actions, good.rewards),
            r"observations must be torch.float32 .* got .*\(5, 3\)",
        ),
        ((good.observations[:0], good.actions[:0], good.rewards[:0]), "trajectory 0 has 0 steps"),
        ((good.observations, good.actions * np.nan, good.rewards), r"appended trajectory: .*actions\[0, 0\] is nan"),
    ]:
        with pytest.raises(DataError, match=message):
            store.append(*arguments, terminated=True)
    assert_same(store, parts)
    with pytest.raises(DataError, match="cannot evict 3 of 2"):
        store.evict(3)


def test_a_store_too_large_says_so_before_it_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = store_of(episodes(3))
    store.save(tmp_path / "x.safetensors")
    monkeypatch.setattr(storage, "_free_memory", lambda device: 1000)
    message = r"the data need \d+\.\d\d GB on cpu, but only 0.00 GB are free there"
    for start in (
        lambda: Trajectories.load(tmp_path / "x.safetensors"),
        lambda: store.reserve(10_000_000),
        lambda: store.select(store.best(2)),
        lambda: Trajectories(4, 2, capacity=10_000_000),
    ):
        with pytest.raises(NoRoomError, match=message):
            start()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_moving_to_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = episodes(12)
    store = annotated(parts, ma.GridCodebook(2, 3))
    there = store.to("cuda")
    assert there.to("cuda") is there
    assert_same(there, parts)
    assert torch.equal(there.attractions.cpu(), store.attractions)
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (1000, 2000))
    monkeypatch.setattr(torch.cuda, "memory_reserved", torch.cuda.memory_allocated)
    with pytest.raises(NoRoomError, match=r"on cuda:0, but only 0\.00 GB are free there"):
        store.to("cuda")


def test_an_empty_store_says_so() -> None:
    store = Trajectories(4, 2, capacity=10)
    with pytest.raises(DataError, match="holds no trajectory yet"):
        store.statistics()
    with pytest.raises(DataError, match=r"gamma must be in \(0, 1\], got 0"):
        Trajectories(4, 2, capacity=10, gamma=0)
    with pytest.raises(DataError, match="capacity must be at least 1"):
        Trajectories(4, 2, capacity=0)
