"""The tutorials run as they are written, each in a folder of its own, and their notebooks say the same."""

import json
import runpy
from pathlib import Path

import pytest

import notebooks
from tests.fresh_process import FreshProcess

NEEDS = {
    "gpt2": ("transformers",),
    "inspect-page": (),
    "own-data": (),
    "ray": ("ray", "matplotlib"),
    "six-arms": (),
    "stable-baselines3": ("stable_baselines3",),
}
SAYS = {
    "gpt2": "held-out nats: GPT-2 alone",
    "inspect-page": "the arm with the highest balance is played in",
    "own-data": "20 episodes",
    "ray": "drifting-bandit: ledger-odt",
    "six-arms": "with the ledger:",
    "stable-baselines3": "return of 200 steps: without a ledger",
}


def test_every_tutorial_is_listed() -> None:
    assert {page.stem for page in notebooks.FOLDER.glob("*.md")} == {"index", *NEEDS} == {"index", *SAYS}


@pytest.mark.parametrize("path", notebooks.notebooks(), ids=lambda path: path.name)
def test_a_notebook_says_what_its_page_says(path: Path) -> None:
    expected = notebooks.notebooks()[path]
    assert path.read_text(encoding="utf-8") == expected, f"{path.name} is old: run `make docs`"
    cells = json.loads(expected)["cells"]
    assert len({cell["id"] for cell in cells}) == len(cells)
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    assert any("assert " in block for block in code[-2:]), "a tutorial ends with a check of what it claims"
    assert f"]({path.name})" in path.with_suffix(".md").read_text(encoding="utf-8"), "the page has no link to it"


def run(script: Path) -> None:
    runpy.run_path(str(script), run_name="__main__")


@pytest.mark.learning
@pytest.mark.parametrize("name", sorted(NEEDS))
def test_a_tutorial(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for library in NEEDS[name]:
        pytest.importorskip(library)
    cells = json.loads(notebooks.notebooks()[notebooks.FOLDER / f"{name}.ipynb"])["cells"]
    script = tmp_path / "tutorial.py"
    code = ["".join(cell["source"]) for cell in cells if cell["cell_type"] == "code"]
    script.write_text("\n\n".join(code) + "\n", encoding="utf-8")
    monkeypatch.setenv("MENTAL_ACCOUNTS_CACHE", str(tmp_path))
    monkeypatch.setenv("RAY_ADDRESS", "local")  # not the cluster of another test
    monkeypatch.chdir(tmp_path)
    done = FreshProcess(tmp_path, run, script)
    assert done.wait(500) == 0, done.stderr[-2000:]
    assert SAYS[name] in done.stdout
