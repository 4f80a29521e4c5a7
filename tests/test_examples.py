"""The examples run as they are, each in under two minutes."""

import runpy
from pathlib import Path

import pytest

from tests.fresh_process import FreshProcess

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


def run(path: Path) -> None:
    runpy.run_path(str(path), run_name="__main__")


@pytest.mark.learning
@pytest.mark.parametrize("name", sorted(NEEDS))
def test_an_example(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in NEEDS[name]:
        pytest.importorskip(library)
    monkeypatch.setenv("MENTAL_ACCOUNTS_CACHE", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    done = FreshProcess(tmp_path, run, EXAMPLES / name)
    assert done.wait(300) == 0, done.stderr[-2000:]
    assert SAYS[name] in done.stdout
