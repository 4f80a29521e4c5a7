"""Parts of one comparison: put together they are what one comparison would have been, and strangers are refused."""

import json
import math
import shutil
from pathlib import Path

import numpy as np
import pytest

from mental_accounts.cli import main
from mental_accounts.report.packed import read_packed
from mental_accounts.report.runs import read_study
from tests.report.made_studies import write_study

Captured = pytest.CaptureFixture[str]


def returns(task: str, method: str, seed: int, metric: str, n: int) -> float:
    return 1000.0 + math.pi * (seed + 1) * (n + 1) + (50.0 if method != "odt" else 0.0) + len(task)


def part(folder: Path, seeds: range, *, tasks: tuple[str, ...] = ("hopper-medium",)) -> Path:
    """A comparison of some of the seeds: written whole, then without the others."""
    write_study(folder, returns, tasks=tasks, seeds=seeds.stop)
    study = json.loads((folder / "study.json").read_text())
    kept = [run for run in study["runs"] if run["seed"] in seeds]
    for run in study["runs"]:
        if run["seed"] not in seeds:
            shutil.rmtree(folder / run["path"])
    (folder / "study.json").write_text(json.dumps(study | {"runs": kept, "seeds": list(seeds)}))
    return folder


def pack(parts: list[Path], out: Path) -> int:
    return main(["report", *map(str, parts), "--pack", str(out)])


def last_returns(place: Path) -> dict[tuple[str, str, int], float]:
    runs = read_study(place).runs
    return {(run.task, run.method, run.seed): run.summary["last_return"] for run in runs}


def test_seeds_of_two_sessions_are_one_comparison(tmp_path: Path) -> None:
    whole, out = part(tmp_path / "whole", range(5)), tmp_path / "all.jsonl.gz"
    assert pack([part(tmp_path / "later", range(3, 5)), part(tmp_path / "first", range(3))], out) == 0
    assert last_returns(out) == last_returns(whole)
    files = read_packed(out)
    assert files.study["seeds"] == [0, 1, 2, 3, 4]
    assert [run.entry["seed"] for run in files.runs] == 2 * [0, 1, 2, 3, 4]
    assert len(files.study["parts"]) == 2
    assert main(["report", str(out), "--out", str(tmp_path / "report")]) == 0
    row = (tmp_path / "report" / "report.md").read_text()
    mean = np.mean([value for (_, method, _), value in last_returns(whole).items() if method == "odt"])
    assert f"{mean:.1f}"[:4] in row


def test_a_packed_file_grows(tmp_path: Path) -> None:
    """What an earlier session has packed, and the runs of this one."""
    out = tmp_path / "all.jsonl.gz"
    assert pack([part(tmp_path / "first", range(2))], out) == 0
    assert pack([out, part(tmp_path / "second", range(2, 3)), part(tmp_path / "same", range(2))], out) == 0
    assert {seed for _, _, seed in last_returns(out)} == {0, 1, 2}
    assert pack([out, part(tmp_path / "third", range(3, 4))], out) == 0
    assert {seed for _, _, seed in last_returns(out)} == {0, 1, 2, 3}
    assert len(read_packed(out).study["parts"]) == 4


def test_tasks_may_differ(tmp_path: Path) -> None:
    out = tmp_path / "all.jsonl.gz"
    parts = [part(tmp_path / task, range(2), tasks=(task,)) for task in ("hopper-medium", "walker2d-medium")]
    assert pack(parts, out) == 0
    assert {task for task, _, _ in last_returns(out)} == {"hopper-medium", "walker2d-medium"}
    assert read_packed(out).study["tasks"] == ["hopper-medium", "walker2d-medium"]


def test_a_finished_run_is_preferred(tmp_path: Path) -> None:
    first, second, out = part(tmp_path / "a", range(2)), part(tmp_path / "b", range(2)), tmp_path / "all.jsonl.gz"
    for name in ("odt", "ewa-vq-odt"):
        (first / f"runs/hopper-medium/{name}/seed-0/summary.json").unlink()
    shutil.rmtree(second / "runs/hopper-medium/odt/seed-1")
    for parts in ([first, second], [second, first]):
        assert pack(parts, out) == 0
        assert len(last_returns(out)) == 4


def test_a_run_that_two_parts_have_may_have_taken_another_time(tmp_path: Path) -> None:
    first, second, out = part(tmp_path / "a", range(2)), part(tmp_path / "b", range(2)), tmp_path / "all.jsonl.gz"
    for path in second.rglob("metrics.jsonl"):
        lines = [json.loads(text) | {"time/total": 7.0} for text in path.read_text().splitlines()]
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert pack([first, second], out) == 0
    assert len(last_returns(out)) == 4


def test_strangers_are_refused(tmp_path: Path, capsys: Captured) -> None:
    first, out = part(tmp_path / "a", range(2)), tmp_path / "all.jsonl.gz"
    write_study(tmp_path / "b", returns, methods=("odt", "bc"))
    write_study(tmp_path / "c", returns, iterations=3, seeds=4)
    write_study(tmp_path / "d", lambda *place: 1.0 + returns(*place), seeds=2)
    for other, words in (
        ("b", "not parts of one comparison: methods is"),
        ("c", "was not run with the same settings in all parts: online_iterations differ"),
        ("d", "hopper-medium odt 0 was run twice, with different results"),
    ):
        assert pack([first, tmp_path / other], out) == 2
        assert words in capsys.readouterr().err
    assert not out.exists()


def test_a_part_may_be_older_than_a_setting(tmp_path: Path) -> None:
    first, second, out = part(tmp_path / "a", range(2)), part(tmp_path / "b", range(2, 3)), tmp_path / "all.jsonl.gz"
    study = json.loads((first / "study.json").read_text())
    for run in study["runs"]:
        assert run["config"].pop("held_out") == 0.0
        assert run["config"]["model"].pop("reward_input") == "auto"
    (first / "study.json").write_text(json.dumps(study))
    assert pack([first, second], out) == 0
    assert {seed for _, _, seed in last_returns(out)} == {0, 1, 2}
