"""The examples run as they are, each in under two minutes."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parent.parent / "examples"
NEEDS = {
    "accounts_in_hugging_face.py": ("transformers", "mujoco"),
    "game_with_the_canonical_rule.py": (),
    "ledger_in_gpt2.py": ("transformers",),
    "ledger_with_stable_baselines3.py": ("stable_baselines3",),
    "own_data_in_minari.py": ("minari",),
    "own_environment.py": (),
    "reading_a_ledger.py": (),
}
SAYS = {
    "accounts_in_hugging_face.py": "of 27 accounts in use",
    "game_with_the_canonical_rule.py": "ledger = closed form to",
    "ledger_in_gpt2.py": "attached again",
    "ledger_with_stable_baselines3.py": "with a ledger",
    "own_data_in_minari.py": "20 trajectories, 4000 steps",
    "own_environment.py": "; random actions",
    "reading_a_ledger.py": "attention moves by up to",
}


def test_every_example_is_listed() -> None:
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(NEEDS) == set(SAYS)


@pytest.mark.learning
@pytest.mark.parametrize("name", sorted(NEEDS))
def test_an_example(name: str, tmp_path: Path) -> None:
    for library in NEEDS[name]:
        pytest.importorskip(library)
    environment = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "MENTAL_ACCOUNTS_CACHE": str(tmp_path),
        "TMPDIR": str(tmp_path),
    }
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / name)],
        env=environment,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert SAYS[name] in done.stdout
