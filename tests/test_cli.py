"""The commands, called as a user calls them."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import mental_accounts
from mental_accounts.cli import main
from mental_accounts.data import builtin
from mental_accounts.data.tasks import TASKS, load_task
from tests.data.slow_windows import episodes
from tests.data.test_builtin import behaviours
from tests.data.writers import d4rl_arrays, pickled_paths, write_hdf5, write_pickle

Captured = pytest.CaptureFixture[str]


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MENTAL_ACCOUNTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    return tmp_path / "cache"


def test_list_shows_what_is_here_beside_what_d4rl_published(tmp_path: Path, capsys: Captured) -> None:
    path = write_pickle(tmp_path / "mine.pkl", pickled_paths(episodes(10, obs=10, act=2)))
    assert main(["data", "import", str(path), "--env", "Reacher-v5"]) == 0
    assert capsys.readouterr().out.startswith("imported/mine: ")
    assert main(["data", "list"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == [
        "task",
        "source",
        "environment",
        "steps",
        "trajectories",
        "return",
        "max",
        "MB",
        "D4RL's",
        "return",
    ]
    assert len(lines) == 1 + len(TASKS) + 1
    hopper = next(line for line in lines if line.startswith("hopper-medium "))
    assert hopper.split() == ["hopper-medium", "builtin", "Hopper-v5", "1422", "±", "379"]
    mine = lines[-1].split()
    assert mine[:3] == ["imported/mine", "imported", "Reacher-v5"]
    assert "10" in mine
    assert all(line.isprintable() for line in lines)


def test_a_terminal_gets_a_table(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "160")
    for command in (["list"], ["info", "hopper-medium"]):
        assert main(["data", *command]) == 0
        out = capsys.readouterr().out
        assert "┃" in out
        assert "1422 ± 379" in out


def test_info(tmp_path: Path, capsys: Captured) -> None:
    assert main(["data", "info", "walker2d-medium-replay"]) == 0
    out = capsys.readouterr().out
    assert "Walker2d-v5" in out
    assert re.search(r"return asked for +5000\b", out)
    assert re.search(r"return asked for while exploring +10000\b|while exploring +1e\+04", out)
    assert "302,000" in out
    assert "not on this machine yet: mental-accounts data make walker2d-medium-replay" in out
    path = write_hdf5(tmp_path / "x.hdf5", d4rl_arrays(episodes(10)))
    main(["data", "import", str(path), "--name", "other"])
    capsys.readouterr()
    assert main(["data", "info", "imported/other"]) == 0
    out = capsys.readouterr().out
    assert "other.safetensors" in out
    assert "set by the data" in out
    path = write_hdf5(tmp_path / "aim.hdf5", d4rl_arrays(episodes(10, obs=1, act=1)))
    assert main(["data", "import", str(path), "--name", "own", "--env", "tests.learning.tiny_env:Aim"]) == 0
    capsys.readouterr()
    assert main(["data", "info", "imported/own"]) == 0
    out = capsys.readouterr().out
    assert "tests.learning.tiny_env:Aim" in out
    assert "not on this machine" not in out
    task, store = load_task("imported/own")
    assert f"{task.target_return:.4g}: exceeded by 5% of the data's episodes" in out
    assert f"{task.exploration_return:.4g}: as far above that as that is above the median" in out
    assert f"clipped to [{float(store.returns_to_go.min()):.4g}, {float(store.returns_to_go.max()):.4g}]" in out
    assert "?" not in out
    assert main(["data", "info", "minari/none/such-v0"]) == 0
    out = capsys.readouterr().out
    assert re.search(r"return asked for +depends on the data: mental-accounts data make minari/none/such-v0", out)
    assert "?" not in out


def test_what_is_imported_fits_its_environment(tmp_path: Path, cache: Path, capsys: Captured) -> None:
    path = write_pickle(tmp_path / "mine.pkl", pickled_paths(episodes(3, obs=1, act=1)))
    assert main(["data", "import", str(path), "--env", "CartPole-v1"]) == 2
    assert "do not fit CartPole-v1: observations of size 1 where the environment has 4" in capsys.readouterr().err
    for env_id, said in (
        ("tests.learning.tiny_env:Aimm", "did you mean tests.learning.tiny_env:Aim?"),
        ("nowhere:Aim", "there is no module nowhere, here or installed"),
    ):
        assert main(["data", "import", str(path), "--env", env_id]) == 2
        assert said in capsys.readouterr().err
    assert not list(cache.rglob("*.safetensors"))


def test_make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    folder = behaviours(tmp_path / "behaviours")
    manifest = folder / "manifest.json"
    manifest.write_text(manifest.read_text().replace('"robot":', '"hopper":'))
    monkeypatch.setattr(builtin, "BEHAVIOURS", folder)
    assert main(["data", "make", "hopper-medium", "--steps", "400", "--seed", "3", "--workers", "1"]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith("hopper-medium: 400 steps, 2 trajectories, return -")
    assert captured.err == ""
    main(["data", "info", "hopper-medium"])
    assert "here, seed 3" in capsys.readouterr().out
    main(["data", "list"])
    assert any(line.startswith("hopper-medium") and "seed 3" in line for line in capsys.readouterr().out.splitlines())


def test_random_data_are_listed_though_d4rls_returns_are_unknown(capsys: Captured) -> None:
    assert main(["data", "make", "hopper-random", "--steps", "300", "--workers", "1"]) == 0
    assert capsys.readouterr().out.startswith("hopper-random: 3")
    assert main(["data", "list"]) == 0
    hopper = next(line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("hopper-random "))
    assert hopper[:3] == ["hopper-random", "builtin", "Hopper-v5"]
    assert hopper.count("±") == 1
    assert main(["data", "info", "hopper-random"]) == 0
    out = capsys.readouterr().out
    assert "here, seed 0" in out
    assert "published" not in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["info", "hoper-medium"], "error: there is no task 'hoper-medium'; did you mean hopper-medium"),
        (["make", "hopper-medium", "--steps", "0"], "error: size must be at least 1 step, got 0"),
        (["import", "none.hdf5"], "error: none.hdf5: no such file"),
        (["import", "bad.pkl"], "error: bad.pkl: refused, the pickle asks for os.system"),
        (["import", "bad.h5"], "error: bad.h5: not a whole HDF5 file"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.pkl").write_bytes(b"cos\nsystem\n(S'touch executed'\ntR.")
    (tmp_path / "bad.h5").write_bytes(b"nothing")
    assert main(["data", *arguments]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(message)
    assert captured.err.count("\n") == 1
    assert captured.out == ""
    assert not (tmp_path / "executed").exists()


@pytest.mark.parametrize("arguments", [[], ["data"], ["data", "nothing"], ["data", "make"], ["nothing"]])
def test_wrong_usage_is_exit_code_2(arguments: list[str], capsys: Captured) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2


def test_version(capsys: Captured) -> None:
    for asked in ("version", "--version"):
        assert main([asked]) == 0
        assert capsys.readouterr().out == f"mental-accounts {mental_accounts.__version__}\n"


def test_as_a_module() -> None:
    command = [sys.executable, "-W", "error", "-m", "mental_accounts", "data", "info", "nothing"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr == "error: there is no task 'nothing'; `mental-accounts data list` shows all\n"
    command[-2:] = ["list"]
    listed = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    assert "hopper-medium" in listed.stdout
