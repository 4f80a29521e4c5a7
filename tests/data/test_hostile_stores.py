"""Saved stores that were damaged, or that lie: whoever writes a header can write its checksum too."""

import json
import random
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import _SIZE, save_file
from torch import Tensor

from mental_accounts.action_spec import ActionSpec
from mental_accounts.cli import main
from mental_accounts.data import DataError, Trajectories
from mental_accounts.data.tasks import imported_path
from mental_accounts.data.tensor_files import FORMAT, checksum, read_facts
from tests.data.limits import assert_success_or_one_line
from tests.data.slow_windows import episodes, store_of
from tests.fuzz.mutations import mutated_bytes, mutated_json

PARTS = episodes(3, shortest=5, longest=5)
SPEC = ActionSpec("box", 2, (-1.0, -1.0), (1.0, 1.0))


def tensors() -> dict[str, Tensor]:
    store = store_of(PARTS)
    names = ("observations", "actions", "rewards", "lengths", "terminated", "truncated")
    return {name: getattr(store, name).clone() for name in names}


def write_lie(path: Path, text: str, held: dict[str, Tensor] | None = None) -> Path:
    """A file whose checksum is right, whatever it says."""
    held = tensors() if held is None else held
    save_file(held, path, metadata={"format": FORMAT, "facts": text, "checksum": checksum(held, text)})
    return path


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "facts in its header are no JSON object"),
        ("{", "facts in its header are no JSON object"),
        ("[1]", "facts in its header are no JSON object"),
        ("[" * 100_000, "facts in its header are no JSON object"),
        ('{"gamma": ' + "9" * 5000 + "}", "facts in its header are no JSON object"),
        ('{"info": 3}', "info in its header has fields of wrong kinds"),
        ('{"info": {"env_id": 3}}', "info in its header has fields of wrong kinds"),
        ('{"info": {"seed": "x"}}', "info in its header has fields of wrong kinds"),
        ('{"summary": []}', "summary in its header has fields of wrong kinds"),
        ('{"summary": {"steps": "many"}}', "summary in its header has fields of wrong kinds"),
        ('{"summary": {"return_max": 1' + "0" * 400 + "}}", "summary in its header has fields of wrong kinds"),
        ('{"gamma": "1"}', r"gamma must be a number in \(0, 1\]"),
        ('{"gamma": true}', r"gamma must be a number in \(0, 1\]"),
        ('{"gamma": NaN}', r"gamma must be a number in \(0, 1\]"),
        ('{"gamma": null}', r"gamma must be a number in \(0, 1\]"),
        ('{"action_spec": 3}', "its header is wrong"),
        ('{"action_spec": {}}', "its header is wrong"),
        ('{"action_spec": {"kind": "box", "size": "2"}}', "its header is wrong .*size"),
        ('{"action_spec": {"kind": "box", "size": 1, "low": [1e400], "high": [1]}}', "its header is wrong"),
        (
            '{"action_spec": {"kind": "discrete", "size": 1' + "0" * 40 + "}}",
            "(actions must have shape|its header is wrong)",
        ),
    ],
)
def test_facts_that_are_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str], text: str, message: str) -> None:
    path = imported_path("lie")
    path.parent.mkdir(parents=True)
    write_lie(path, text)
    with pytest.raises(DataError, match=rf"lie\.safetensors: .*{message}") as caught:
        Trajectories.load(path)
    assert len(str(caught.value)) < 600
    assert isinstance(read_facts(path), dict)
    assert main(["data", "list"]) == 0
    assert main(["data", "make", "imported/lie"]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1


def test_bounds_beyond_every_number(tmp_path: Path) -> None:
    wide = {"kind": "box", "size": 2, "low": [1e299, -1e308], "high": [1e300, 1e308]}
    with pytest.raises(DataError, match=r"actions\[0, 0\] is .*outside of the action bounds"):
        Trajectories.load(write_lie(tmp_path / "x.safetensors", json.dumps({"action_spec": wide})))


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        (
            {"lengths": torch.tensor([2**62, 2**62, 2**62, 2**62 + 15])},
            "up to 4611686018427387919 steps, but there are",
        ),
        ({"lengths": torch.tensor([5.0, 5.0, 5.0])}, "lengths must be whole numbers, got torch.float32"),
        ({"lengths": torch.tensor([5, 5, -5])}, "trajectory 2 has -5 steps"),
        ({"lengths": torch.tensor(15)}, "expected at least one trajectory"),
        pytest.param(
            {"rewards": torch.zeros(15, dtype=torch.complex64)},
            "rewards must be real numbers, got torch.complex64",
            marks=pytest.mark.skipif(torch.complex64 not in _SIZE, reason="safetensors writes these since 0.7"),
        ),
        ({"rewards": torch.tensor(1.0)}, r"rewards must have shape \(steps,\)"),
        ({"rewards": torch.zeros(14)}, "must have the same number of steps"),
        ({"observations": torch.zeros(0, 2**40)}, "must have the same number of steps"),
        ({"observations": torch.zeros(15)}, r"observations must have shape \(steps, obs\)"),
        ({"actions": torch.zeros(15, 2, 2)}, r"actions \(steps, act\)"),
        ({"terminated": torch.zeros(3, 2)}, "terminated must have one flag per trajectory"),
        ({"truncated": torch.zeros(2)}, "truncated must have one flag per trajectory"),
    ],
)
def test_tensors_that_are_wrong(tmp_path: Path, changed: dict[str, Tensor], message: str) -> None:
    with pytest.raises(DataError, match=rf"x\.safetensors: .*{message}"):
        Trajectories.load(write_lie(tmp_path / "x.safetensors", "{}", tensors() | changed))


def reheaded(path: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The file with its header changed, the bytes behind it as they were."""
    data = path.read_bytes()
    (count,) = struct.unpack("<Q", data[:8])
    header = json.loads(data[8 : 8 + count])
    change(header)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + count :])
    return path


@pytest.mark.parametrize(
    "change",
    [
        lambda header: header["padded.observations"].update(shape=[2**40, 4]),
        lambda header: header["padded.observations"].update(shape=[2**63, 2**63]),
        lambda header: header["padded.observations"].update(shape=[-15, 4]),
        lambda header: header["padded.observations"].update(dtype="F64"),
        lambda header: header["padded.observations"].update(dtype="X9"),
        lambda header: header["padded.observations"].update(dtype="F4"),
        lambda header: header["padded.observations"].update(data_offsets=[0, 2**60]),
        lambda header: header.update({"padded.observations": 3}),
        lambda header: header.update(__metadata__=[]),
        lambda header: header["__metadata__"].update(facts=3),
        lambda header: header["__metadata__"].pop("facts"),
        lambda header: header["__metadata__"].pop("checksum"),
    ],
)
def test_headers_that_lie(tmp_path: Path, change: Callable[[dict[str, Any]], object]) -> None:
    store_of(PARTS, action_spec=SPEC).save(tmp_path / "x.safetensors")
    with pytest.raises(DataError, match=r"x\.safetensors: ") as caught:
        Trajectories.load(reheaded(tmp_path / "x.safetensors", change))
    assert len(str(caught.value).splitlines()) == 1


def test_damaged_at_random(tmp_path: Path) -> None:
    path, rng = tmp_path / "x.safetensors", random.Random(0)
    store_of(PARTS, action_spec=SPEC).save(path)
    good = path.read_bytes()
    for _ in range(300):
        path.write_bytes(mutated_bytes(good, rng))
        assert_success_or_one_line(Trajectories.load, path)
        assert isinstance(read_facts(path), dict)


def test_facts_changed_at_random(tmp_path: Path) -> None:
    path, rng = tmp_path / "x.safetensors", random.Random(0)
    store_of(PARTS, action_spec=SPEC, info={"env_id": "Hopper-v5", "seed": 3}).save(path)
    good = json.dumps(read_facts(path)).encode()
    for _ in range(300):
        write_lie(path, mutated_json(good, rng).decode(errors="replace"))
        assert_success_or_one_line(Trajectories.load, path)
        assert isinstance(read_facts(path), dict)
