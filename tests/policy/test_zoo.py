"""Policies that come with the package: found by name, wherever a run's folder is understood."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch

import mental_accounts as ma
import zoo_cards
from mental_accounts import zoo
from mental_accounts.cli import main
from mental_accounts.errors import UsageError

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a short run."""
    folder = tmp_path_factory.mktemp("runs") / "made"
    ma.train(
        "CartPole-v1", preset="online", run=folder, online_iterations=1, updates_per_iteration=2, random_episodes=2,
        eval_episodes=2, hidden=16, device="cpu", method="ledger-odt",
    )  # fmt: skip
    return folder


@pytest.fixture
def small_zoo(trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A zoo with one policy, made as the real ones are; the current folder is another one."""
    monkeypatch.setattr(zoo, "ZOO", tmp_path / "zoo")
    monkeypatch.setattr(zoo_cards, "ZOO", tmp_path / "zoo")
    monkeypatch.setattr(zoo_cards, "RECIPES", {"made": "--env-id CartPole-v1 --preset online"})
    monkeypatch.setattr(zoo_cards, "EPISODES", {"robot": 6, "other": 6})
    shutil.copytree(trained, tmp_path / "runs" / "made")
    zoo_cards.make("made", tmp_path / "runs")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    return tmp_path / "zoo" / "made"


def test_a_policy_is_loaded_by_its_name(small_zoo: Path, trained: Path) -> None:
    assert zoo.zoo_names() == ["made"]
    policy, original = ma.DecisionTransformer.pretrained("made"), ma.DecisionTransformer.from_run(trained)
    for (name, value), other in zip(policy.state_dict().items(), original.state_dict().values(), strict=True):
        assert torch.equal(value, other), name
    assert ma.Run("zoo/made").config == ma.Run(trained).config


def test_its_name_stands_for_the_folder_of_a_run(small_zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    found = ma.evaluate("zoo/made", episodes=6, seed=0, device="cpu")
    assert found.return_mean == pytest.approx(zoo.read_card("made")["returns"]["mean"], abs=0.01)
    assert main(["evaluate", "zoo/made", "--episodes", "6", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["returns"] == list(found.returns)
    before = sorted(small_zoo.rglob("*"))
    assert main(["inspect", "zoo/made", "--episodes", "1", "--pictures", "0"]) == 0
    assert main(["export", "zoo/made", "--format", "torch-export"]) == 0
    assert sorted(small_zoo.rglob("*")) == before  # nothing is written into the package
    assert Path("made-inspect.html").is_file()
    assert Path("made-export").is_dir()


def test_a_folder_of_that_name_comes_first(small_zoo: Path, trained: Path) -> None:
    shutil.copytree(trained, Path("zoo") / "made")
    assert zoo.folder_of("zoo/made") == Path("zoo/made")
    assert zoo.beside("zoo/made", "export") == Path("zoo/made/export")


def test_the_zoo_is_listed_with_scores(small_zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["zoo"]) == 0
    shown = capsys.readouterr().out
    card = zoo.read_card("made")
    assert "zoo/made" in shown
    assert zoo.earned(card["returns"]) in shown
    page = (small_zoo / "README.md").read_text()
    assert 'ma.DecisionTransformer.pretrained("made")' in page
    assert "mental-accounts train --env-id CartPole-v1 --preset online --seed 0" in page


def test_the_same_configuration_can_be_trained_again(small_zoo: Path, trained: Path) -> None:
    assert main(["train", "--config", "zoo/made", "--run", "again"]) == 0
    again, before = ma.Run("again"), ma.Run(trained)
    assert again.returns == before.returns


def test_names_that_do_not_exist_are_answered(small_zoo: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(UsageError, match=r"no policy 'mad' to start from; did you mean made\? there are made"):
        ma.DecisionTransformer.pretrained("mad")
    with pytest.raises(UsageError, match="read from the Hub"):
        ma.DecisionTransformer.pretrained("somebody/hopper")
    assert main(["evaluate", "zoo/nothing"]) == 2
    assert "there is no policy 'nothing'" in capsys.readouterr().err
    (small_zoo / zoo.CARD).write_text("{}")
    assert main(["zoo"]) == 2
    assert "task is missing" in capsys.readouterr().err


def test_a_policy_that_earns_something_else_is_noticed(small_zoo: Path) -> None:
    assert zoo_cards.check("made")
    card = zoo.read_card("made")
    card["returns"] = {"mean": 400.0, "low": 390.0, "high": 410.0}
    (small_zoo / zoo.CARD).write_text(json.dumps(card))
    assert not zoo_cards.check("made")


@pytest.mark.parametrize("name", zoo.zoo_names())
def test_what_is_shipped_is_whole(name: str) -> None:
    folder, card = zoo.zoo_folder(name), zoo.read_card(name)
    page = (folder / "README.md").read_text()
    assert "| mean action | {mean} [{low}, {high}] |".format(**card["returns"]) in page
    assert card["command"] in page
    assert card["command"] == zoo_cards.command(name)
    assert card["returns"]["low"] <= card["returns"]["mean"] <= card["returns"]["high"]
    assert card["episodes"] >= 100
    policy = ma.DecisionTransformer.pretrained(name)
    assert policy.config.method == card["method"]
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 1.5e6
    for path in files:
        if path.suffix in (".json", ".md"):
            assert not re.search(r"/(tmp|home|root|work)/", path.read_text()), path


def test_the_page_lists_what_is_shipped() -> None:
    assert zoo_cards.table() in (ROOT / "docs" / "zoo.md").read_text()
