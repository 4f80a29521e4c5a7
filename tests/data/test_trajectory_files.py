"""Files of trajectories are mapped: runs share one copy of their data, and none can change another's."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from mental_accounts.data import DataError, Trajectories
from mental_accounts.data.step_columns import NAMES
from mental_accounts.data.tensor_files import FORMAT, OLD_FORMAT, checksum
from tests.data.slow_windows import episodes, store_of


def saved(path: Path, gamma: float = 0.9) -> Trajectories:
    store = store_of(episodes(4), gamma=gamma)
    store.save(path)
    return store


def rewrite(path: Path, tensors: dict[str, Tensor], file_format: str = FORMAT) -> None:
    """Write the file with other tensors, and a checksum that fits them."""
    facts = json.dumps({"gamma": 0.9})
    save_file(tensors, path, metadata={"format": file_format, "facts": facts, "checksum": checksum(tensors, facts)})


def is_mapped(tensor: Tensor, path: Path) -> bool:
    """Whether the tensor's memory is that of the file."""
    begin, end = tensor.data_ptr(), tensor.data_ptr() + tensor.nbytes
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith(str(path)):
            low, high = (int(text, 16) for text in line.split()[0].split("-"))
            if low <= begin and end <= high:
                return True
    return False


def assert_same(one: Trajectories, other: Trajectories) -> None:
    assert one.lengths.equal(other.lengths)
    assert one.returns.equal(other.returns)
    assert one.terminated.equal(other.terminated)
    for name in one.storage.columns:
        assert one.storage.rows(name).equal(other.storage.rows(name)), name
        assert not other.storage.columns[name][other.storage.blank].any(), name


@pytest.mark.skipif(not Path("/proc/self/maps").exists(), reason="only Linux says what is mapped")
def test_every_column_is_the_files_own_memory(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    store = saved(path)
    loaded = Trajectories.load(path)
    assert set(loaded.storage.columns) == set(NAMES) - {"foregone", "action_masks"}
    assert all(is_mapped(column, path) for column in loaded.storage.columns.values())
    assert_same(store, loaded)
    assert_same(store, Trajectories.load(path, gamma=0.9))
    assert not any(is_mapped(column, path) for column in Trajectories.load(path, gamma=1.0).storage.columns.values())


def test_what_one_changes_stays_its_own(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    store = saved(path)
    one, other = Trajectories.load(path), Trajectories.load(path)
    one.rewards.fill_(7.0)
    one.append(
        *(torch.zeros(3, *rows.shape[1:]) for rows in (one.observations, one.actions, one.rewards)), terminated=True
    )
    one.evict(2)
    assert_same(store, other)
    assert_same(store, Trajectories.load(path))


def test_a_file_that_is_replaced_is_still_read_as_it_was(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    store = saved(path)
    loaded = Trajectories.load(path)
    store_of(episodes(2)).save(path)
    assert_same(store, loaded)


def test_another_discount(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    saved(path)
    assert_same(store_of(episodes(4), gamma=0.5), Trajectories.load(path, gamma=0.5))


def test_files_of_version_0_1(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    store = store_of(episodes(4), gamma=0.9)
    names = ("observations", "actions", "rewards", "lengths", "terminated", "truncated")
    rewrite(path, {name: getattr(store, name).clone() for name in names}, OLD_FORMAT)
    assert_same(store, Trajectories.load(path))


@pytest.mark.parametrize("name", ["returns_to_go", "timesteps", "remaining", "terminal"])
@pytest.mark.parametrize("how", ["wrong", "missing", "of another type", "without zeros at its end"])
def test_what_follows_from_other_columns_is_not_believed(tmp_path: Path, name: str, how: str) -> None:
    path = tmp_path / "x.safetensors"
    store = saved(path)
    tensors = load_file(path)
    column = tensors.pop(f"padded.{name}")
    if how == "wrong":
        column[2] = ~column[2] if column.dtype == torch.bool else column[2] + 1
    elif how == "of another type":
        column = column.double()
    elif how == "without zeros at its end":
        column[-1] = 1
    rewrite(path, tensors if how == "missing" else tensors | {f"padded.{name}": column})
    assert_same(store, Trajectories.load(path))


def test_observations_without_zeros_at_their_end(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    store = saved(path)
    tensors = load_file(path)
    tensors["padded.observations"][-1] = 5.0
    rewrite(path, tensors)
    assert_same(store, Trajectories.load(path))


def test_a_discount_that_is_none(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    saved(path)
    with pytest.raises(DataError, match="gamma must be in"):
        Trajectories.load(path, gamma=2.0)
