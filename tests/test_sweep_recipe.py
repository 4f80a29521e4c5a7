"""The recipe of a sweep in docs/python.md runs: with Optuna where it is installed, else with a stand-in."""

import importlib.util
import re
import sys
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import mental_accounts as ma

PAGE = Path(__file__).parents[1] / "docs" / "python.md"
SMALL = {"data_steps": 2_000, "pretrain_iterations": 2, "updates_per_pretrain_iteration": 2, "pretrain_eval_every": 1,
         "eval_episodes": 2, "device": "cpu", "warmup_updates": 1}  # fmt: skip


class TrialPruned(Exception):  # noqa: N818
    """As Optuna's."""


class Trial:
    """As much of a trial as the recipe uses; the second one is pruned at its first evaluation."""

    def __init__(self, number: int) -> None:
        self.number, self.reported, self.asked = number, [], {}

    def suggest_float(self, name: str, low: float, high: float, *, log: bool) -> float:
        assert log
        assert 0 < low < high
        return self.asked.setdefault(name, low)

    def suggest_categorical(self, name: str, choices: list[Any]) -> Any:
        return self.asked.setdefault(name, choices[0])

    def report(self, value: float, step: int) -> None:
        self.reported.append((step, value))

    def should_prune(self) -> bool:
        return self.number == 1


class Study:
    """Two trials."""

    def optimize(self, objective: Any, n_trials: int) -> None:
        self.trials, self.values = [Trial(number) for number in range(n_trials)], []
        for trial in self.trials:
            try:
                self.values.append(objective(trial))
            except TrialPruned:
                self.values.append(None)
        best = max(range(n_trials), key=lambda number: self.values[number] or -1e9)
        self.best_value, self.best_params = self.values[best], self.trials[best].asked


def test_the_recipe_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    is_there = importlib.util.find_spec("optuna") is not None
    if not is_there:
        stand_in = SimpleNamespace(Trial=Trial, TrialPruned=TrialPruned, create_study=lambda **_: Study())
        monkeypatch.setitem(sys.modules, "optuna", stand_in)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(ma, "train", partial(ma.train, **SMALL))
    [recipe] = re.findall(r"^```python no-run\n(import optuna\n.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    found: dict[str, Any] = {"__name__": "recipe"}
    exec(compile(recipe.replace("n_trials=20", "n_trials=2"), str(PAGE), "exec"), found)
    study = found["study"]
    assert isinstance(study.best_value, float)
    assert set(study.best_params) == {"lr", "hidden", "phi"}
    runs = sorted((tmp_path / "runs").iterdir())
    assert len(runs) == 2
    assert {ma.Run(run).config.model.accounts.phi for run in runs} >= {study.best_params["phi"]}
    if not is_there:
        assert study.values[1] is None  # it was pruned, and stopped
        assert [step for step, _ in study.trials[0].reported] == [1, 2]
        assert sorted(ma.Run(run).is_finished for run in runs) == [False, True]


def test_the_recipe_for_weights_and_biases_is_python() -> None:
    [recipe] = re.findall(r"^```python no-run\n(import wandb\n.*?)^```$", PAGE.read_text(), re.DOTALL | re.MULTILINE)
    compile(recipe, str(PAGE), "exec")
