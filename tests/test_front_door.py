"""ma.train, resume, evaluate and compare, called as a Python user calls them."""

import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import mental_accounts as ma
from mental_accounts.data.tasks import imported_path
from mental_accounts.front_door import train as train_module
from mental_accounts.presets import PRESETS
from tests.data.slow_windows import episodes as made_episodes
from tests.data.writers import d4rl_arrays, write_hdf5
from tests.fresh_process import FreshProcess
from tests.learning.conftest import aim_data
from tests.learning.tiny_env import ENV_ID, Aim

Captured = pytest.CaptureFixture[str]
ROOT = str(Path(__file__).parents[1])
SMALL: dict[str, Any] = {
    "model": {"hidden": 16, "layers": 1, "context_length": 4}, "updates_per_pretrain_iteration": 5, "batch_size": 8,
    "pretrain_iterations": 1, "online_iterations": 2, "updates_per_iteration": 3, "eval_episodes": 2, "eval_every": 1,
    "random_episodes": 4, "device": "cpu", "precision": "float32",
}  # fmt: skip


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MENTAL_ACCOUNTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    aim_data(20).save(imported_path("aim"))


def own_class() -> type[gymnasium.Env[Any, Any]]:
    class Own(Aim):
        """As one of a script or a notebook: nobody can import it."""

    return Own


def rows(run: ma.Run) -> list[dict[str, Any]]:
    return [{k: v for k, v in row.items() if not k.startswith("time/")} for row in run.metrics]


def same(one: ma.Run, other: ma.Run) -> None:
    assert rows(one) == rows(other)
    for (name, a), b in zip(one.policy.state_dict().items(), other.policy.state_dict().values(), strict=True):
        assert torch.equal(a, b), name


def stop_at(iteration: int) -> Callable[[ma.Event], object]:
    def stop(event: ma.Event) -> object:
        return ma.STOP if isinstance(event, ma.IterationEnded) and event.iteration == iteration else None

    return stop


def test_a_run_of_an_own_class_is_stopped_resumed_and_evaluated(capsys: Captured) -> None:
    Own = own_class()
    whole = ma.train(env=Own, run="whole", **SMALL)
    assert whole.is_finished
    assert isinstance(whole.policy, ma.DecisionTransformer)
    assert whole.summary is not None
    assert whole.returns == [row["evaluation/return_mean_gm"] for row in whole.metrics]
    assert whole.returns[-1] == whole.summary["last_return"]
    assert (whole.folder, whole.config.task, whole.config.env_id) == (
        Path("whole"),
        None,
        "own_class.<locals>.Own (own)",
    )
    assert "finished, 2 iterations" in repr(whole)

    run = ma.train(env=Own, run="cut", callbacks=stop_at(1), **SMALL)
    assert not run.is_finished
    assert run.summary is None
    assert len(run.metrics) == 1
    assert run.evaluate(episodes=2).returns == ma.evaluate(run, episodes=2).returns
    same(ma.resume(run), whole)
    with pytest.raises(ma.UsageError, match=r"pass it again, as in ma\.resume\(folder, env=\.\.\.\)"):
        ma.evaluate("whole")
    found = ma.evaluate("whole", env=Own, episodes=3, seed=1)
    assert found == whole.evaluate(episodes=3, seed=1)
    assert len(found.returns) == 3
    assert found.return_mean == pytest.approx(np.mean(found.returns))
    json.dumps(found.to_dict())
    policy = ma.DecisionTransformer.from_run("whole")
    assert ma.evaluate(policy, env=Own, episodes=3, seed=1, target_return=found.target_return) == found
    printed = capsys.readouterr()
    assert printed.out == "", "quiet outside of a terminal"


def resume_with_own_class() -> None:
    ma.resume("cut", env=own_class())


def test_another_process_resumes_by_passing_the_class_again(tmp_path: Path) -> None:
    ma.train(env=own_class(), run="cut", callbacks=stop_at(1), **SMALL)
    whole = ma.train(env=own_class(), run="whole", **SMALL)
    with pytest.raises(ma.UsageError, match="pass it again"):
        ma.resume("cut")
    process = FreshProcess(tmp_path, resume_with_own_class)
    assert process.wait() == 0, process.stderr
    same(ma.Run("cut"), whole)


@pytest.mark.parametrize(
    "env", [ENV_ID, Aim, lambda: Aim(fault=""), gymnasium.make(ENV_ID).spec], ids=["id", "class", "function", "spec"]
)
def test_every_kind_of_environment_trains_the_same(env: Any) -> None:
    run = ma.train(env, run="one", env_workers=1, **SMALL)
    same(run, ma.train(ENV_ID, run="two", **SMALL))
    if env is Aim:
        assert run.config.env_id == "tests.learning.tiny_env:Aim"
        same(ma.resume("one"), run)  # found by its name
        assert ma.evaluate("one", episodes=2).env_id == run.config.env_id


def test_every_kind_of_data(tmp_path: Path) -> None:
    by_task = ma.train(data="imported/aim", run="task", data_steps=None, **SMALL)
    assert (by_task.config.task, by_task.config.env_id) == ("imported/aim", None)
    store = aim_data(20)
    before = repr(store)
    by_store = ma.train(data=store, run="store", **SMALL)
    assert by_store.config.task == "trajectories (own)"
    assert repr(store) == before, "the caller's data are as they were"
    same(by_store, by_task)
    store.save("mine.safetensors")
    by_file = ma.train(data=Path("mine.safetensors"), run="file", **SMALL)
    assert by_file.config.task == "mine (own)"
    same(by_file, by_task)

    cut = ma.train(ENV_ID, store, run="cut", callbacks=stop_at(1), **SMALL)
    store.evict(3)  # what happens to the caller's data later changes nothing
    whole = ma.train(ENV_ID, aim_data(20), run="whole", **SMALL)
    same(ma.resume(cut), whole)
    part = ma.train(data=aim_data(20), run="part", data_steps=50, **SMALL)
    assert part.summary is not None
    assert part.summary["data"]["steps"] == 50

    write_hdf5(tmp_path / "x.hdf5", d4rl_arrays(made_episodes(10)))
    with pytest.raises(ma.UsageError, match="do not say which environment they belong to: give env= too"):
        ma.train(data="x.hdf5", **SMALL)
    task, trajectories = ma.load_task("imported/aim")
    assert task.env_id == ENV_ID
    assert len(trajectories) == 20


def test_presets_methods_and_changes() -> None:
    run = ma.train(ENV_ID, preset="paper", method="odt", run="one", **SMALL | {"lr": 0.5})
    assert (run.config.optimizer, run.config.method, run.config.lr) == ("adamw", "odt", 0.5)
    assert run.config.model.hidden == 16
    again = ma.train(ENV_ID, preset=run.config, run="two")
    same(again, run)
    hidden = ma.train(ENV_ID, preset="hidden", method="odt", run="three", **SMALL)
    assert hidden.config.model.accounts.ledger_input == "none"
    ledger = ma.train(ENV_ID, method="ledger-odt", run="four", **SMALL)
    assert ledger.config.model.accounts.ledger_input == "state"
    assert ledger.policy.config.method == "ledger-odt"
    assert not any("scale" in name for name in ledger.policy.state_dict())


def test_runs_without_a_name_get_folders_of_their_own() -> None:
    found = [ma.train(own_class(), preset="quick", **SMALL).folder for _ in range(2)]
    assert found[0] != found[1]
    assert all(path.parent == Path("runs") and path.name.startswith("own_class.-locals-.Own-ewa") for path in found)


class Sized(Aim):
    def __init__(self, size: int) -> None:
        super().__init__()


def no_trajectory() -> ma.Trajectories:
    return ma.Trajectories(1, 1, 10)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"env": Aim()}, r"pass the class \(env=Aim\), a function \(env=lambda: Aim\(\.\.\.\)\)"),
        ({"env": Sized}, r"without its arguments \(size\).*env=lambda: Sized\(size=\.\.\.\)"),
        ({"env": 3}, "env must be the id of a Gymnasium environment"),
        ({"env": "NoSuchThing-v0"}, "NoSuchThing-v0 cannot be made"),
        (
            {"env": "CartPole-v1", "data": "imported/aim"},
            "do not fit CartPole-v1: observations of size 1 where",
        ),
        ({"env": "CartPole-v1", "data": "imported/aim"}, r"actions of size 1 where it has 2 discrete ones.*data=None"),
        ({"env": "Pendulum-v1", "data": "imported/aim"}, "do not fit Pendulum-v1"),
        ({"env": ENV_ID, "data": "hoper-medium"}, "did you mean hopper-medium"),
        ({"env": ENV_ID, "data": "none.hdf5"}, "none.hdf5: no such file"),
        ({"env": ENV_ID, "data": np.zeros(3)}, r"data must be .*got ndarray; ma\.Trajectories\.from_steps"),
        ({"env": ENV_ID, "data": no_trajectory()}, "holds no trajectory"),
        ({"env": ENV_ID, "preset": "quik"}, "no preset 'quik'; did you mean quick. there are quick, paper, odt"),
        ({"env": ENV_ID, "method": "ewa"}, "no method 'ewa'; did you mean ewa-vq-odt"),
        ({"env": ENV_ID, "hiden": 3}, "no field 'hiden' to set; did you mean hidden"),
        ({"env": ENV_ID, "lr": "fast"}, "lr must be float, got 'fast'"),
        ({"env": ENV_ID, "env_id": "x"}, "env_id is not a change: give it as env="),
        ({"env": ENV_ID, "callbacks": ["print"]}, "a callback must be a function of an event"),
        ({"env": ENV_ID, "callbacks": 3}, "callbacks must be functions of an event"),
        ({"env": ENV_ID, "run": "file"}, "run must be a folder, but file is a file"),
    ],
)
def test_bad_input_is_refused_and_leaves_nothing_behind(given: dict[str, Any], message: str) -> None:
    Path("file").write_text("x")
    before = sorted(Path().rglob("*"))
    with pytest.raises(ma.UsageError, match=message):
        ma.train(**SMALL | given)
    assert [path for path in sorted(Path().rglob("*")) if path not in before and path != Path("runs")] == []


def test_data_outside_of_the_bounds_are_refused() -> None:
    data = aim_data(5)
    data.actions[7] = 1.5
    with pytest.raises(ma.UsageError, match=r"actions\[7, 0\] is 1.5, outside of the action bounds"):
        ma.train(ENV_ID, data, run="x", **SMALL)
    assert not Path("x").exists()


def test_a_folder_that_was_there_is_left_as_it_was() -> None:
    Path("mine").mkdir()
    Path("mine/notes.txt").write_text("mine")
    with pytest.raises(ma.UsageError):
        ma.train("NoSuchThing-v0", run="mine", **SMALL)
    with pytest.raises(ma.CallbackError, match="callback fail raised ZeroDivisionError at RunBegan"):
        ma.train(ENV_ID, aim_data(5), run="mine", callbacks=fail, **SMALL)
    assert [path.name for path in Path("mine").iterdir()] == ["notes.txt"]


def fail(event: ma.Event) -> None:
    if isinstance(event, ma.RunBegan):
        1 / 0  # noqa: B018


def test_a_callback_that_raises_leaves_a_whole_run() -> None:
    def wrong(event: ma.Event) -> None:
        if isinstance(event, ma.EvaluationEnded):
            raise KeyError("loss")

    words = (
        r"callback .*wrong raised KeyError at EvaluationEnded of iteration 1.*continue with ma\.resume\('cut', callb"
    )
    with pytest.raises(ma.CallbackError, match=words):
        ma.train(ENV_ID, run="cut", callbacks=[wrong], **SMALL)
    same(ma.resume("cut"), ma.train(ENV_ID, run="whole", **SMALL))


def test_a_folder_with_a_run_is_not_used_for_another() -> None:
    ma.train(ENV_ID, run="one", **SMALL)
    with pytest.raises(ma.UsageError, match=r"one already holds a run; continue it with ma\.resume\('one'\)"):
        ma.train(ENV_ID, run="one", **SMALL)
    with pytest.raises(ma.UsageError, match=r"another configuration \(different: lr\); choose another folder"):
        ma.train(ENV_ID, run="one", **SMALL | {"lr": 0.5})
    with pytest.raises(ma.UsageError, match=r"nowhere holds no run: config\.json is missing"):
        ma.resume("nowhere")
    with pytest.raises(ma.UsageError, match="nowhere does not exist"):
        ma.evaluate("nowhere")
    with pytest.raises(ma.UsageError, match="give env= too"):
        ma.evaluate(ma.Run("one").policy)
    with pytest.raises(ma.UsageError, match="the policy does not fit CartPole-v1"):
        ma.evaluate("one", env="CartPole-v1")


def test_progress_is_shown_where_it_is_asked_for(capsys: Captured) -> None:
    ma.train(ENV_ID, run="one", progress=True, **SMALL)
    out = capsys.readouterr().out
    assert "run folder: one" in out
    assert "online      2" in out
    ma.train(ENV_ID, run="two", target_return=1e6, **SMALL)
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("warning: --target-return asks for 1e+06, far outside the data")
    ma.train(ENV_ID, run="three", target_return=1e6, progress=False, **SMALL)
    assert capsys.readouterr() == ("", "")


def test_ctrl_c_is_a_keyboard_interrupt_after_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    def press(event: ma.Event) -> None:
        if isinstance(event, ma.UpdateDone) and event.update == 4:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt) as stopped:
        ma.train(ENV_ID, run="cut", callbacks=press, **SMALL)
    assert "continue with ma.resume" in stopped.value.__notes__[0]
    same(ma.resume("cut"), ma.train(ENV_ID, run="whole", **SMALL))


def test_without_anything_the_task_of_the_preset_is_trained(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[ma.TrainConfig] = []
    monkeypatch.setattr(train_module, "train_folder", lambda folder, config, *_: asked.append(config))
    ma.train(run="one")
    assert asked == [PRESETS["quick"]]


@pytest.mark.learning
def test_compare_runs_what_is_missing_and_says_what_came_out(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    found_by = [ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(found_by))
    asked = SMALL | {"data_steps": None, "target_return": 1e6}
    found = ma.compare("imported/aim", ["odt", "bc", "gru"], seeds=2, out="out", workers=2, **asked)
    assert found.problems == {}
    assert found.headlines[0].startswith("imported/aim: bc")
    assert [(row["task"], row["method"], row["seeds"]) for row in found.rows] == [
        ("imported/aim", "odt", 2), ("imported/aim", "bc", 2), ("imported/aim", "gru", 2),
    ]  # fmt: skip
    assert found.rows[0]["difference"] is None
    assert found.rows[1]["difference_low"] <= found.rows[1]["difference"] <= found.rows[1]["difference_high"]
    assert found.report == Path("out/report.html")
    assert found.report.is_file()
    far, unread = (warning for warning in found.warnings if "--target-return" in warning.text)
    assert unread.text == "--target-return changes nothing: gru reads the return with --model.return-input True"
    assert len(far.runs) == 4
    said = capsys.readouterr()
    assert said.out == ""
    assert "warning: 4 runs, first imported/aim bc seed 0: --target-return asks for 1e+06" in said.err
    again = ma.compare("imported/aim", ["odt", "bc", "gru"], seeds=(0, 1), out="out", **asked)
    assert again.rows == found.rows
    with pytest.raises(ma.UsageError, match="no finished run to report on; imported/aim bc seed 0: UsageError: No"):
        ma.compare("imported/aim", ["bc"], seeds=1, out="broken", **asked | {"env_id": "NoSuchThing-v0"})
    with pytest.raises(ma.UsageError, match="seed is not a change"):
        ma.compare("imported/aim", seed=3)
    with pytest.raises(ma.UsageError, match="no field 'bta' to set; did you mean beta"):
        ma.compare("imported/aim", bta=3)


def test_an_evaluation_shows_what_matters_in_a_line() -> None:
    found = ma.Evaluation("Aim-v0", 9.0, (1.0, 2.0), 1.5, 0.5, 10.0, 0.0)
    assert repr(found) == "Evaluation(Aim-v0: return 1.5 ± 0.5 over 2 episodes, length 10.0)"
