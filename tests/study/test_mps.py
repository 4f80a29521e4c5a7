"""NVIDIA's service is started, used and ended where it works, and left alone where it does not."""

import os
from pathlib import Path

import pytest

from mental_accounts.study import mps
from mental_accounts.study.mps import CONTROL, LOGS, PIPES, multi_process_service

WORKS, FAILS = "import sys; sys.exit(0)", "import sys; sys.exit(3)"


@pytest.fixture
def told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A stand-in for the control program; what it was told is in this file."""
    said, program = tmp_path / "said", tmp_path / "bin" / CONTROL
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\necho "$@ ${PIPES}" >> {said}\n[ "$1" = -d ] || cat >> {said}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{program.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.delenv(PIPES, raising=False)
    monkeypatch.setattr(mps, "USUAL_PIPES", tmp_path / "none")
    monkeypatch.setattr(mps, "PROBE", WORKS)
    return said


def test_it_is_started_and_ended(told: Path) -> None:
    with multi_process_service() as environ:
        assert environ.keys() == {PIPES, LOGS}
        assert all(Path(folder).is_dir() for folder in environ.values())
        assert told.read_text() == f"-d {environ[PIPES]}\n"
        assert PIPES not in os.environ
    assert told.read_text().splitlines()[1:] == [f" {environ[PIPES]}", "quit -t 10"]
    assert not Path(environ[PIPES]).exists()


def test_it_is_ended_when_the_study_is_interrupted(told: Path) -> None:
    with pytest.raises(KeyboardInterrupt), multi_process_service():
        raise KeyboardInterrupt
    assert "quit" in told.read_text()


def test_a_service_that_does_not_answer_is_not_used(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mps, "PROBE", FAILS)
    with multi_process_service() as environ:
        assert environ == {}
    assert "quit" in told.read_text()


def test_one_that_cannot_be_started(told: Path, tmp_path: Path) -> None:
    (tmp_path / "bin" / CONTROL).write_text("#!/bin/sh\nexit 1\n")
    with multi_process_service() as environ:
        assert environ == {}


def test_one_that_is_not_wanted(told: Path) -> None:
    with multi_process_service(wanted=False) as environ:
        assert environ == {}
    assert not told.exists()


def test_one_that_somebody_else_runs_is_left_alone(told: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PIPES, "/somewhere")
    with multi_process_service() as environ:
        assert environ == {}
    assert not told.exists()


def test_no_service(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with multi_process_service() as environ:
        assert environ == {}
