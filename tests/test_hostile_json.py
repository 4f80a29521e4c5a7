"""JSON files of strangers: whatever stands in them, one line that names the file, exit code 2, and no traceback."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from mental_accounts import files
from mental_accounts.cli import main
from mental_accounts.data.tasks import imported_path
from mental_accounts.errors import CheckpointError
from mental_accounts.files import parse_json, read_json
from mental_accounts.learning.checkpoint import read_checkpoint
from mental_accounts.learning.run_folder import RunFolder
from tests.learning.conftest import aim_data
from tests.report.made_studies import write_study

Captured = pytest.CaptureFixture[str]
TINY = [
    "--task", "imported/aim", "--model.hidden", "8", "--model.layers", "1", "--model.context-length", "2",
    "--updates-per-pretrain-iteration", "2", "--pretrain-iterations", "1", "--online-iterations", "1",
    "--updates-per-iteration", "2", "--eval-episodes", "2", "--batch-size", "4", "--data-steps", "None",
    "--device", "cpu",
]  # fmt: skip
WHOLE = {
    "deeply nested": b"[" * 100_000,
    "nested, and closed": b'{"config": ' + b"[" * 200 + b"]" * 200 + b"}",
    "a list": b"[1, 2]\n",
    "a number": b"3\n",
    "a text": b'"config"\n',
    "a huge number": b'{"config": ' + b"1" * 5000 + b"}\n",
    "no UTF-8": b'{"config": "\xff\xfe"}\n',
    "a field twice": b'{"config": {}, "config": {}}\n',
    "empty": b"",
    "words": b"garbage\n",
    "cut short": b'{"config": {"task"\n',
}
"""What stands in a file."""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("trained")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MENTAL_ACCOUNTS_CACHE", str(folder / "cache"))
        aim_data(20).save(imported_path("aim"))
        assert main(["train", *TINY, "--run", str(folder / "run")]) == 0
        yield folder / "run"


@pytest.fixture
def run(trained: Path, tmp_path: Path, capsys: Captured) -> Path:
    shutil.copytree(trained, tmp_path / "run")
    capsys.readouterr()
    return tmp_path / "run"


def refused(arguments: list[str], capsys: Captured, *words: str) -> None:
    """Exit code 2, and one line with these words."""
    code, err = main(arguments), capsys.readouterr().err
    assert code == 2, err
    lines = [line for line in err.splitlines() if line.startswith("error: ")]
    assert len(lines) == 1, err
    assert "Traceback" not in err
    assert len(lines[0]) < 1000
    for word in words:
        assert word in lines[0]


def spoil(path: Path, content: bytes | None) -> None:
    """This content in the file, or a folder in its place."""
    if content is None:
        path.unlink()
        path.mkdir()
    else:
        path.write_bytes(content)


FILES = {
    "policy/policy.json": ["evaluate"],
    "task.json": ["export"],
    "config.json": ["resume"],
    "metrics.jsonl": ["inspect"],
    "summary.json": ["resume"],
}


@pytest.mark.parametrize("content", [*WHOLE.values(), None], ids=[*WHOLE, "a folder"])
@pytest.mark.parametrize("name", FILES)
def test_a_file_of_a_run(name: str, content: bytes | None, run: Path, capsys: Captured) -> None:
    if name == "metrics.jsonl" and content == b"":
        pytest.skip("a run that has not logged anything yet")
    if name == "metrics.jsonl" and content is not None:
        content = content.rstrip() + b"\n"  # a last line without an end was cut short by a crash, and is left out
    spoil(run / name, content)
    before = [path.name for path in run.iterdir()]
    refused([*FILES[name], str(run)], capsys, Path(name).name)
    assert sorted(before) == sorted(path.name for path in run.iterdir())


@pytest.mark.parametrize("content", [*WHOLE.values(), None], ids=[*WHOLE, "a folder"])
def test_the_state_of_a_checkpoint(content: bytes | None, run: Path) -> None:
    for path in run.glob("checkpoint/*/state.json"):
        spoil(path, content)
    said: list[str] = []
    with pytest.raises(CheckpointError, match=r"state\.json"):
        read_checkpoint(run / "checkpoint", said.append)
    assert said


@pytest.mark.parametrize("content", [*WHOLE.values(), None], ids=[*WHOLE, "a folder"])
def test_a_config_to_start_from(content: bytes | None, tmp_path: Path, capsys: Captured) -> None:
    path = tmp_path / "config.json"
    path.write_bytes(b"")
    spoil(path, content)
    refused(["train", "--config", str(path), "--run", str(tmp_path / "new")], capsys, "config.json")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("content", [*WHOLE.values(), None], ids=[*WHOLE, "a folder"])
def test_a_study(content: bytes | None, tmp_path: Path, capsys: Captured) -> None:
    write_study(tmp_path, lambda *_: 1.0, seeds=2)
    spoil(tmp_path / "study.json", content)
    refused(["report", str(tmp_path)], capsys, "study.json")


def put(path: Path, place: tuple[Any, ...], value: Any) -> None:
    """Another value in one field of a JSON file; of every line of metrics.jsonl."""
    lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
    changed = []
    for line in lines:
        content = table = json.loads(line)
        for key in place[:-1]:
            table = table[key]
        table[place[-1]] = value
        changed.append(json.dumps(content))
    path.write_text("\n".join(changed) + "\n")


NAN, INFINITE, HUGE = float("nan"), float("inf"), 10**290


@pytest.mark.parametrize(
    ("command", "name", "place", "value", "words"),
    [
        ("evaluate", "policy/policy.json", ("format",), "1", "format must be a whole number, got '1'"),
        ("evaluate", "policy/policy.json", ("format",), HUGE, "this version reads format 1"),
        ("evaluate", "policy/policy.json", ("weights",), 5, "weights must be text, got 5"),
        ("evaluate", "policy/policy.json", ("weights",), "../../secret", "secret is missing"),
        ("evaluate", "policy/policy.json", ("sha256",), None, "sha256 must be text"),
        ("evaluate", "policy/policy.json", ("config",), [], "config must be an object"),
        ("evaluate", "policy/policy.json", ("config", "hidden"), "8", "hidden must be int, got '8'"),
        ("evaluate", "policy/policy.json", ("config", "hidden"), 8.5, "hidden must be int, got 8.5"),
        ("evaluate", "policy/policy.json", ("config", "hidden"), HUGE, "network of 10^5"),
        ("evaluate", "policy/policy.json", ("config", "layers"), HUGE, "but the weights have"),
        ("evaluate", "policy/policy.json", ("config", "accounts", "bins"), HUGE, "bins must be at most 2**53"),
        ("evaluate", "policy/policy.json", ("config", "accounts", "bins"), 2**50, "codebook of"),
        ("evaluate", "policy/policy.json", ("config", "max_timestep"), HUGE, "max_timestep must be at most 2**53"),
        ("evaluate", "policy/policy.json", ("config", "action", "start"), HUGE, "action.start must be within"),
        ("evaluate", "policy/policy.json", ("config", "gamma"), NAN, "gamma must be in"),
        ("evaluate", "policy/policy.json", ("config", "return_scale"), INFINITE, "return_scale must be"),
        ("evaluate", "policy/policy.json", ("config", "method"), 3, "method must be one of"),
        ("evaluate", "policy/policy.json", ("config", "action", "low"), "abc", "action.low must be a list"),
        ("evaluate", "policy/policy.json", ("config", "action", "low"), [NAN], "finite"),
        ("evaluate", "task.json", ("env_id",), 7, "env_id must be text, got 7"),
        ("evaluate", "task.json", ("target_return",), "much", "target_return must be a finite number or null"),
        ("evaluate", "task.json", ("target_return",), NAN, "target_return must be a finite number or null, got nan"),
        ("evaluate", "task.json", ("expert_return",), 4.0, "random_return must be a finite number"),
        ("inspect", "metrics.jsonl", ("evaluation/target_return",), "9", "target_return must be a finite number"),
        ("export", "metrics.jsonl", ("evaluation/target_return",), INFINITE, "target_return must be a finite number"),
        ("resume", "summary.json", ("last_return",), "good", "last_return must be a finite number or null"),
        ("resume", "summary.json", ("data",), 5, "data must be an object"),
        ("resume", "summary.json", ("data", "return_mean"), None, "return_mean must be a finite number, got None"),
        ("resume", "config.json", ("config",), "x", "config must be an object"),
        ("resume", "config.json", ("config", "lr"), "fast", "lr must be float, got 'fast'"),
        ("resume", "config.json", ("config", "lr"), NAN, "lr must be in"),
        ("resume", "config.json", ("config", "task"), 5, "task must be str, got 5"),
        ("resume", "config.json", ("config", "model", "accounts"), [1], "model.accounts must be a table"),
        ("resume", "config.json", ("config", "x" * 5000), 1, "TrainConfig has no field xxx"),
        ("resume", "config.json", ("config", "method"), "\x1b[31m", "method must be one of"),
    ],
)  # fmt: skip
def test_a_field(
    command: str, name: str, place: tuple[Any, ...], value: Any, words: str, run: Path, capsys: Captured
) -> None:
    put(run / name, place, value)
    refused([command, str(run)], capsys, words)


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (("state", "iteration"), "one", "iteration must be int"),
        (("state", "iteration"), -5, "iteration must be at least 0"),
        (("state", "files"), 3, "files must be a list"),
        (("state", "files"), ["../../secret"], "must be names of files"),
        (("state", "explored"), [1], "explored must be a table"),
        (("state", "colour"), 1, "has no field state.colour"),
        (("state",), "x", "state must be an object"),
        (("format",), NAN, "format must be a whole number"),
    ],
)
def test_a_field_of_a_checkpoint(
    place: tuple[str, ...], value: Any, words: str, run: Path, trained: Path, capsys: Captured
) -> None:
    (run / "summary.json").unlink()
    for path in run.glob("checkpoint/*/state.json"):
        put(path, place, value)
    refused(["resume", str(run)], capsys, words, "checkpoint")


@pytest.mark.parametrize(
    ("name", "value", "words"),
    [
        ("evaluation/return_mean_gm", "high", "return_mean_gm must be a finite number, got 'high'"),
        ("evaluation/return_mean_gm", [1], "return_mean_gm must be a finite number"),
        ("evaluation/normalised_score", "x", "normalised_score must be a finite number or null"),
    ],
)
def test_a_line_that_a_resumed_run_repeats(name: str, value: Any, words: str, run: Path, capsys: Captured) -> None:
    (run / "summary.json").unlink()
    put(run / "metrics.jsonl", (name,), value)
    refused(["resume", str(run)], capsys, words, "metrics.jsonl")


def test_a_checkpoint_that_forgot_the_best_return(run: Path, capsys: Captured) -> None:
    (run / "summary.json").unlink()
    for path in run.glob("checkpoint/*/state.json"):
        put(path, ("state", "best_return"), None)
    refused(["resume", str(run)], capsys, "best_return must be a finite number")


@pytest.mark.parametrize(
    ("name", "place", "value", "words"),
    [
        ("study.json", ("runs",), {}, "runs must be a list"),
        ("study.json", ("runs", 0), 3, "run 0 cannot be read: it holds no JSON object"),
        ("study.json", ("runs", 0, "seed"), "0", "seed must be a whole number"),
        ("study.json", ("runs", 0, "path"), 0, "path must be text"),
        ("study.json", ("tasks",), "hopper-medium", "tasks must be a list of texts"),
        ("study.json", ("methods",), [1], "methods must be a list of texts"),
        ("study.json", ("methods",), ["odt"], "methods does not list 'ewa-vq-odt'"),
        ("study.json", ("command",), [1], "command must be a list of texts"),
    ],
)
def test_a_field_of_a_study(
    name: str, place: tuple[Any, ...], value: Any, words: str, tmp_path: Path, capsys: Captured
) -> None:
    write_study(tmp_path, lambda *_: 1.0, seeds=2)
    put(tmp_path / name, place, value)
    refused(["report", str(tmp_path)], capsys, words, "study.json")


@pytest.mark.parametrize(
    ("name", "place", "value", "words"),
    [
        ("config.json", ("config", "seed"), "0", "seed must be a whole number"),
        ("config.json", ("config", "task"), None, "names neither a task nor an env_id"),
        ("config.json", ("versions",), "1", "versions must be an object"),
        ("summary.json", ("seconds",), "12", "seconds must be a finite number"),
        ("summary.json", ("data",), None, "data must be an object"),
        ("summary.json", ("last_return",), NAN, "last_return must be a finite number"),
        ("summary.json", ("normalised_score",), "x", "normalised_score must be a finite number or null"),
        ("metrics.jsonl", ("phase",), 1, "line 1 cannot be read: phase must be text"),
        ("metrics.jsonl", ("updates",), None, "updates must be a finite number"),
        ("metrics.jsonl", ("evaluation/return_mean_gm",), "high", "return_mean_gm must be a finite number"),
        ("metrics.jsonl", ("evaluation/return_mean_gm",), NAN, "return_mean_gm must be a finite number"),
        ("metrics.jsonl", ("accounts/beta",), "0.05", "accounts/beta must be a number"),
    ],
)
def test_a_run_that_a_report_cannot_use_is_left_out(
    name: str, place: tuple[str, ...], value: Any, words: str, tmp_path: Path, capsys: Captured
) -> None:
    study = write_study(tmp_path, lambda *_: 1.0, seeds=1, methods=("odt",))
    put(study.jobs[0].path / name, place, value)
    refused(["report", str(study.jobs[0].path), "--out", str(tmp_path / "out")], capsys, "left out", words, name)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ("lr=" + "[" * 100_000, "lr must be float, got '[["),
        ("batch_size=" + "1" * 5000, "batch_size must be int, got '111"),
        ("batch_size=\"8\"", "batch_size must be int, got '8'"),
        ("lr=NaN", "lr must be in"),
        ("lr=Infinity", "lr must be"),
        ("lr=", "lr must be float, got ''"),
        ("optimizer=3", "optimizer must be one of"),
        ('return_range={"a": 1, "a": 2}', "return_range must be a list"),
        ("hidden=1e400", "hidden must be int, got inf"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("flag", ["--set", "--methods"])
def test_changes_of_a_comparison(flag: str, change: str, words: str, tmp_path: Path, capsys: Captured) -> None:
    if flag == "--methods" and "," in change:
        pytest.skip("a comma ends a change there")
    given = change if flag == "--set" else f"odt:{change}"
    refused(["compare", flag, given, "--out", str(tmp_path / "out")], capsys, words)
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_bytes(b" " * 2000)
    with pytest.raises(ValueError, match=r"a\.json cannot be read: it has more than"):
        read_json(tmp_path / "a.json", most=1000)


def test_many_fields_that_are_there_twice_take_no_time() -> None:
    text = "{" + ",".join(f'"{n}": 0' for n in [*range(100_000), 99_999]) + "}"
    with pytest.raises(ValueError, match="here cannot be read: the field '99999' is there twice"):
        parse_json(text, "here")


def test_what_can_be_meant_is_read() -> None:
    nested: Any = 1
    for _ in range(files.DEEPEST):
        nested = [nested]
    assert parse_json(json.dumps(nested), "here") == nested
    assert parse_json('{"a": [1, -2, 3.5, null, true], "b": {"a": "ü"}}', "here")["b"] == {"a": "ü"}
    assert parse_json("9" * files.LONGEST_NUMBER, "here") == int("9" * files.LONGEST_NUMBER)
    with pytest.raises(ValueError, match="more than 50 deep"):
        parse_json(json.dumps([nested]), "here")


def test_a_last_line_that_was_cut_short_is_left_out(tmp_path: Path) -> None:
    (tmp_path / "metrics.jsonl").write_text('{"iteration": 1}\n{"iteration": 2}\n{"itera')
    assert [line["iteration"] for line in RunFolder(tmp_path).read_metrics()] == [1, 2]
