"""A comparison as one file: the same values bit for bit, the same report, and strangers' files refused in one line."""

import gzip
import json
import math
import re
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mental_accounts.cli import main
from mental_accounts.errors import UsageError
from mental_accounts.report import packed
from mental_accounts.report.packed import PACKED_FILE, applied, changes, read_packed, write_packed
from mental_accounts.report.report import write_report
from mental_accounts.report.runs import read_study
from mental_accounts.report.study_files import StudyFiles, read_study_folder
from tests.report.made_studies import write_study

Captured = pytest.CaptureFixture[str]
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.floats(allow_nan=False) | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text("ab.", max_size=2), inner, max_size=3),
    max_leaves=8,
)


def returns(task: str, method: str, seed: int, metric: str, n: int) -> float:
    return 1000.0 + math.pi * (seed + 1) * (n + 1) + (50.0 if method != "odt" else 0.0)


def written(files: StudyFiles) -> str:
    """All that it holds, as text: 1 is not 1.0, and the order of fields counts."""
    runs = [(run.entry, run.read()) for run in files.runs]
    return repr((files.name, files.study, runs))


def pack(folder: Path, path: Path) -> Path:
    write_packed(read_study_folder(folder), path)
    return path


def unpacked_lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]


def repack(path: Path, lines: list[Any]) -> None:
    path.write_bytes(gzip.compress("".join(json.dumps(line) + "\n" for line in lines).encode()))


@pytest.fixture
def study(tmp_path: Path) -> Path:
    write_study(tmp_path / "study", returns, methods=("odt", "ewa-vq-odt:beta=0.1"), seeds=3)
    return tmp_path / "study"


@pytest.fixture
def file(study: Path, tmp_path: Path) -> Path:
    return pack(study, tmp_path / "some.jsonl.gz")


def test_all_values_come_back_bit_for_bit(study: Path, tmp_path: Path) -> None:
    run = next(study.glob("runs/*/odt/seed-1"))
    record = json.loads((run / "config.json").read_text())
    record["versions"] = {"torch": "9", "a.b": "1"}  # other fields, and one that is no path
    record["config"]["lr"] = 1  # no float
    (run / "config.json").write_text(json.dumps(record))
    (run / "task.json").write_text('{"target_return": 3600.0, "random_return": -0.0}')
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows[0] |= {"evaluation/returns": [0.1 + 0.2, 1e-320, 1e308], "training/nll": math.nan, "text": "𝄞\u2028"}
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert written(read_packed(pack(study, tmp_path / "one.jsonl.gz"))) == written(read_study_folder(study))


def test_the_same_study_makes_the_same_bytes(study: Path, tmp_path: Path) -> None:
    one, other = (pack(study, tmp_path / f"{name}.jsonl.gz").read_bytes() for name in "ab")
    assert one == other


def test_the_settings_are_there_once(file: Path) -> None:
    first, *runs = unpacked_lines(file)
    assert first["base"]["made"]["config"]["batch_size"] > 0
    assert [run["config"] for run in runs] == [{}] * 6  # what was planned is what was run
    assert [list(run["run"]["settings"]) for run in runs[:3]] == [
        [],
        ["made.config.method", "made.config.model.accounts.beta"],
        ["made.config.seed"],
    ]


@given(VALUES, VALUES)
def test_changes_lead_from_any_value_to_any_other(base: Any, value: Any) -> None:
    before = repr(base)
    assert repr(applied(base, json.loads(json.dumps(changes(base, value))), "here")) == repr(value)
    assert repr(base) == before
    assert changes(value, value) == {}


def test_a_report_of_the_packed_file_is_that_of_the_folder(study: Path, tmp_path: Path, capsys: Captured) -> None:
    shutil.rmtree(next(study.glob("runs/*/odt/seed-0")))
    (next(study.glob("runs/*/odt/seed-1")) / "summary.json").unlink()
    write_report(read_study(study), study)
    place = tmp_path / "packed" / PACKED_FILE
    assert main(["report", str(study), "--pack", str(place)]) == 0
    assert capsys.readouterr().out.startswith(f"packed: 5 runs in {place}, 0.0")
    for given_place, out in ((place, tmp_path / "a"), (place.parent, tmp_path / "b")):
        assert main(["report", str(given_place), "--out", str(out)]) == 0
        assert (out / "report.json").read_bytes() == (study / "report.json").read_bytes()
        whole, packed = ((place / "report.md").read_text() for place in (study, out))
        linked = re.sub(r"\[config\.json\]\([^)]*\)", "below", whole)  # a packed study has the configurations in it
        assert packed.startswith(linked.rstrip())
        assert packed[len(linked) :].count("Configuration: ") == 2
    warnings = read_study(place).warnings
    assert any("seed 0: left out, it is missing" in text for text in warnings)
    assert any("seed 1: left out, it is not finished (4 iterations so far)" in text for text in warnings)
    assert main(["report", str(place)]) == 0  # beside the file, as into a comparison's folder
    assert (place.parent / "report.html").is_file()


def test_what_cannot_be_packed_is_refused(study: Path, tmp_path: Path, capsys: Captured) -> None:
    for arguments, words in (
        ([str(study), "--pack", str(study / "study.json")], "must be called NAME.jsonl.gz"),
        ([str(study / "runs"), "--pack", str(tmp_path / "a.jsonl.gz")], "study.json is missing"),
        ([str(study), str(study)], "one comparison at a time"),
    ):
        assert main(["report", *arguments]) == 2
        assert words in capsys.readouterr().err
    (next(study.glob("runs/*/odt/seed-0")) / "summary.json").write_text("{")
    assert main(["report", str(study), "--pack", str(tmp_path / "a.jsonl.gz")]) == 2
    assert "hopper-medium odt seed 0 cannot be packed" in capsys.readouterr().err
    assert not (tmp_path / "a.jsonl.gz").exists()
    assert json.loads((study / "study.json").read_text())["runs"]


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        ((0,), [], "it is not a packed study"),
        ((0, "format"), "zip", "it is not a packed study"),
        ((0, "version"), 2, "is of format 2, and this version reads 1"),
        ((0, "name"), 1, "line 1 cannot be read: name must be text"),
        ((0, "study", "tasks"), "hopper-medium", "tasks must be a list of texts"),
        ((0, "study", "command"), [1], "command must be a list of texts"),
        ((0, "base"), [], "base must be an object"),
        ((0, "base", "made"), None, "made must be an object"),
        ((2,), 3, "line 3 cannot be read: it holds no JSON object"),
        ((1, "planned", "seed"), "0", "line 2 cannot be read: seed must be a whole number"),
        ((1, "planned", "method"), "sac", "methods does not list 'sac'"),
        ((1, "config"), {"": 3}, "config must be an object"),
        ((1, "config"), {"no.such": 1}, "it changes 'no.such', which the first line does not have"),
        ((1, "run", "settings"), {"made": 1}, "made must be an object"),
        ((1, "run", "settings"), {"made.command.x": 1}, "it changes 'made.command.x'"),
        ((1, "run", "settings"), {"": []}, "it holds no JSON object"),
        ((1, "run", "metrics"), [1], "line 2, metrics 1 cannot be read: it holds no JSON object"),
        ((1, "run", "summary"), [], "summary must be an object or null"),
    ],
)
def test_a_field_of_a_packed_study(place: tuple[Any, ...], value: Any, words: str, file: Path) -> None:
    lines: Any = unpacked_lines(file)
    table, (*parents, last) = lines, place
    for parent in parents:
        table = table[parent]
    table[last] = value
    repack(file, lines)
    with pytest.raises(UsageError) as caught:
        read_study(file)
    assert words in str(caught.value)
    assert str(file) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_run_that_a_report_cannot_use_is_left_out_as_from_a_folder(file: Path) -> None:
    lines = unpacked_lines(file)
    lines[1]["run"]["metrics"][0]["phase"] = 1
    lines[2]["run"]["settings"]["made.config.lr"] = 9.0  # not what was planned: its entry follows, so say both
    lines[2]["config"] = {"lr": 0.1}
    repack(file, lines)
    first, second, *_ = read_study(file).warnings
    assert "odt seed 0: left out, it cannot be read (metrics.jsonl, line 1 cannot be read: phase must be text" in first
    assert "seed 0: left out, it was run with other settings (lr)" in second


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda data: b"", "it is not a packed study"),
        (lambda data: b"{}", "not a packed study, or it is damaged"),
        (lambda data: data[:-20], "not a packed study, or it is damaged"),
        # What these bytes unpack to decides who notices first: the unpacking, or the reading of a line.
        (lambda data: data[:200] + b"\x00" * 50 + data[250:], "cannot be read: "),
        (lambda data: data + b"more", "not a packed study, or it is damaged"),
        (lambda data: data + gzip.compress(b"\xff\n"), "it is not ASCII"),
        (lambda data: data + gzip.compress(b"\n"), "it is empty"),
        (lambda data: data + gzip.compress(b"{"), "it is not JSON"),
        (lambda data: data + gzip.compress(b"[" * 10_000 + b"]" * 10_000), "deep in each other"),
        (lambda data: data + gzip.compress(b'{"run":1,"run":2}'), "the field 'run' is there twice"),
        (lambda data: gzip.compress(b"[]"), "it is not a packed study"),
    ],
)
def test_a_damaged_file(damage: Any, words: str, file: Path, capsys: Captured) -> None:
    file.write_bytes(damage(file.read_bytes()))
    assert main(["report", str(file)]) == 2
    said = capsys.readouterr().err
    assert words in said
    assert str(file) in said
    assert len(said.splitlines()) == 1


@pytest.mark.parametrize("kind", ["one endless line", "endless good lines"])
def test_no_more_is_unpacked_than_the_bound(kind: str, file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file may claim to be terabytes: it is read line by line, and only so far."""
    header, run, *_ = gzip.decompress(file.read_bytes()).splitlines(keepends=True)
    part = b"0" * 2**20 if kind == "one endless line" else run * (2**20 // len(run))
    file.write_bytes(gzip.compress(header) + 1000 * gzip.compress(part))  # a gigabyte, once unpacked
    monkeypatch.setattr(packed, "LARGEST_LINE", 2**14)
    monkeypatch.setattr(packed, "ALWAYS_UNPACKED", 2**16)
    monkeypatch.setattr(packed, "LARGEST_UNPACKED", 2**16)
    unpacked, read = 0, gzip.GzipFile.readline

    def counted(self: gzip.GzipFile, size: int | None = -1) -> bytes:
        nonlocal unpacked
        text = read(self, size)
        unpacked += len(text)
        return text

    monkeypatch.setattr(gzip.GzipFile, "readline", counted)
    with pytest.raises(UsageError, match="cannot be read: a run has more than"):
        list(read_packed(file).runs)
    assert unpacked <= 2**16 + 1


def test_large_files_may_unpack_to_more_but_not_to_any_size() -> None:
    assert [packed.most_unpacked(size) for size in (0, 10**5, 10**6, 10**9)] == [2**24, 2**24, 50 * 10**6, 2**28]


def test_a_study_beyond_the_bound_is_not_written(study: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(packed, "LARGEST_UNPACKED", 1000)
    with pytest.raises(UsageError, match="cannot be written: a run has more than"):
        pack(study, tmp_path / "large.jsonl.gz")
