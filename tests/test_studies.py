"""The scripts of our evidence: the same data from the same seed, and tables that follow from the runs that are kept."""

import importlib.util
import json
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch

NUMBER = r"-?\d+(?:\.\d+)?"
ROOT = Path(__file__).parents[1]


def study(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "studies" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def plain(text: str) -> str:
    return text.replace("−", "-").replace("**", "")


@pytest.mark.parametrize("name", ["pendulum", "cartpole", "mountain-car"])
def test_scripted_data_follow_from_their_seed(name: str) -> None:
    small_data = study("small_data")
    one, again, other = (small_data.make_data(name, seed, episodes=3) for seed in (1, 1, 2))
    assert torch.equal(one.actions, again.actions)
    assert torch.equal(one.rewards, again.rewards)
    assert not torch.equal(one.observations[:50], other.observations[:50])
    assert len(one) == 3


def test_the_scripts_are_as_described() -> None:
    small_data = study("small_data")
    pendulum = small_data.make_data("pendulum", 0)
    at_bound = float((pendulum.actions.abs() >= 2).float().mean())
    assert 0.05 < at_bound < 0.07
    assert float(pendulum.returns.mean()) == pytest.approx(-152.3, abs=1)
    car = small_data.make_data("mountain-car", 0, episodes=5)
    assert float(car.rewards.min()) < 0 < float(car.rewards.max())


def test_the_table_of_small_data_is_paired_by_data_seed() -> None:
    small_data = study("small_data")
    runs = [
        {"task": "pendulum", "method": method, "seed": seed, "return": value + 10 * seed, "data_return": -150.0}
        for method, value in (("bc", -200.0), ("odt", -160.0))
        for seed in range(6)
    ]
    data, bc, odt = small_data.table(runs)
    assert (data["mean"], data["low"], data["high"]) == (-150.0, -150.0, -150.0)
    assert bc["mean"] == pytest.approx(-175.0)
    assert odt["against bc"]["mean"] == pytest.approx(40.0)
    assert odt["against bc"]["low"] == pytest.approx(40.0)  # every pair differs by as much
    assert "| pendulum | odt | −135.0 [" in small_data.markdown([data, bc, odt])


@pytest.mark.parametrize(("name", "folder"), [("learner", "learner"), ("small_data", "small-data")])
def test_the_results_say_what_the_runs_say(name: str, folder: str) -> None:
    """Every row of the script's table stands in the README beside the runs."""
    module = study(name)
    runs = json.loads((ROOT / "results" / folder / "runs.json").read_text())["runs"]
    made = module.offline_table(runs) if name == "learner" else module.markdown(module.table(runs))
    text = plain((ROOT / "results" / folder / "README.md").read_text())
    rows = plain(made).splitlines()[2:]
    assert len(rows) > 7
    for row in rows:
        found = re.search(rf"{NUMBER} \[{NUMBER}, {NUMBER}\]", row)
        assert found is not None, row
        assert found[0] in text, row
        for difference in re.findall(rf"[+-]{NUMBER} \[[+-]{NUMBER}, [+-]{NUMBER}\]", row):
            assert difference in text, row


def test_the_curves_of_the_learner_are_means_over_seeds() -> None:
    learner = study("learner")
    runs = [
        {"task": "t", "form": "f", "seed": seed, "metrics": [
            {"updates": 10, learner.NLL: 1.0}, {"updates": 20, learner.NLL: 0.5, learner.RETURN: 100.0 * seed},
        ]}
        for seed in (1, 2)
    ]  # fmt: skip
    assert learner.curve_table(runs).splitlines()[-1] == "| t | f | 20 | 150 | 0.50 |"
    assert learner.last_returns(runs, "t", "f") == {1: 100.0, 2: 200.0}
