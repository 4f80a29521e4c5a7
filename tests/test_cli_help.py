"""Help, the version and mistyped flags do not wait for PyTorch: nothing heavy is imported for them."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from mental_accounts.cli import main
from mental_accounts.presets import PRESETS

HEAVY = ("torch", "scipy", "gymnasium", "matplotlib")
SCRIPT = """
import contextlib, io, json, sys
from mental_accounts.cli import main
for arguments in json.loads(sys.argv[1]):
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        try:
            code = main(arguments)
        except SystemExit as stop:
            code = stop.code
    print(json.dumps([code, out.getvalue(), err.getvalue(), sorted(set(json.loads(sys.argv[2])) & set(sys.modules))]))
"""


def call(*commands: list[str]) -> list[tuple[int, str, str, list[str]]]:
    """Exit code, output, errors and heavy modules of commands, called one after the other by a fresh Python."""
    given = [json.dumps(commands), json.dumps(HEAVY)]
    done = subprocess.run([sys.executable, "-c", SCRIPT, *given], capture_output=True, text=True, check=True)
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def below(*command: str, capsys: pytest.CaptureFixture[str]) -> list[list[str]]:
    """The subcommands of a command, from its usage line: `usage: mental-accounts data [-h] {list,info}`."""
    with pytest.raises(SystemExit):
        main([*command, "--help"])
    usage = capsys.readouterr().out.splitlines()[0]
    return [[*command, name] for name in usage.partition("{")[2].removesuffix("}").split(",")]


def test_the_help_of_every_command(capsys: pytest.CaptureFixture[str]) -> None:
    commands = [*below(capsys=capsys), *below("data", capsys=capsys)]
    assert ["train"] in commands
    assert ["data", "import"] in commands
    assert len(commands) >= 14
    for command, (code, out, err, heavy) in zip(commands, call(*([*c, "--help"] for c in commands)), strict=True):
        assert (code, err, heavy) == (0, "", []), command
        assert out.startswith(f"usage: mental-accounts {' '.join(command)} "), command


def test_the_help_of_presets_and_configurations(tmp_path: Path) -> None:
    """They set the defaults that the help shows."""
    path = tmp_path / "config.json"
    path.write_text(json.dumps({"config": {**PRESETS["odt"].to_dict(), "batch_size": 77}}))
    starts = [*(["--preset", name] for name in PRESETS), ["--config", str(path)]]
    found = call(*(["train", *start, "--help"] for start in starts))
    for start, settings, (code, out, _, heavy) in zip(starts, [*PRESETS.values(), None], found, strict=True):
        assert (code, heavy) == (0, []), start
        assert f"(default: {77 if settings is None else settings.batch_size})" in " ".join(out.split()), start


def test_the_version_and_mistyped_flags() -> None:
    version, again, flag, choice, value, methods = call(
        ["--version"],
        ["version"],
        ["train", "--batch-sise", "3"],
        ["export", "runs/one", "--format", "tflite"],
        ["train", "--model.accounts.codebook", "hexagons"],
        ["compare", "--methods="],
    )
    near, far, data = call(["train", "--pretest", "online"], ["trian"], ["data", "import", "x.pkl", "--enf", "A-v0"])
    assert near[2].splitlines()[-1] == "Did you mean --preset? All options: mental-accounts train --help"
    assert far[2].splitlines()[-1] == "All commands: mental-accounts --help"
    assert data[2].splitlines()[-1] == "Did you mean --env? All options: mental-accounts data import --help"
    assert [(code, heavy) for code, _, _, heavy in (near, far, data)] == [(2, [])] * 3
    assert version == again
    assert version[1].startswith("mental-accounts ")
    assert version[0::2] == (0, "")
    assert version[3] == []
    for code, _, err, heavy in (flag, choice, value, methods):
        assert (code, heavy) == (2, [])
        assert err
    assert "--batch-size" in flag[2]
    assert "hexagons" in value[2]
