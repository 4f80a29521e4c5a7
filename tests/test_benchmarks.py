"""The benchmarks name what is there: peers have modules, cases have configurations."""

import runpy
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def test_every_peer_has_its_module() -> None:
    peers = runpy.run_path(str(BENCHMARKS / "bench_peers.py"))["PEERS"]
    modules = {file.stem for file in (BENCHMARKS / "peers").glob("*.py")} - {"__init__", "batch", "serve"}
    assert set(peers) == modules


@pytest.mark.parametrize("name", ["bench_update", "bench_peers", "study"])
def test_a_benchmark_explains_itself(
    name: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", [f"{name}.py", "--help"])
    with pytest.raises(SystemExit, match="0"):
        runpy.run_path(str(BENCHMARKS / f"{name}.py"), run_name="__main__")
    assert "--json" in capsys.readouterr().out
