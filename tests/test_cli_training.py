"""train, resume and evaluate, called as a user calls them."""

import importlib.util
import json
import re
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from mental_accounts.cli import main
from mental_accounts.commands.training import starting_point
from mental_accounts.data.tasks import imported_path
from mental_accounts.front_door.compare import plan_study
from mental_accounts.front_door.given import asked_for
from mental_accounts.learning import parallel_envs
from mental_accounts.learning.evaluation import play_subject, read_subject
from mental_accounts.learning.events import Event, StageBegan, StepDone
from mental_accounts.learning.run_folder import RunFolder
from mental_accounts.learning.run_view import SilentView
from tests.fresh_process import FreshProcess, command
from tests.learning.conftest import aim_data
from tests.learning.tiny_env import ENV_ID

Captured = pytest.CaptureFixture[str]
SMALL = [
    "--task", "imported/aim", "--model.hidden", "16", "--model.layers", "1", "--model.context-length", "4",
    "--updates-per-pretrain-iteration", "5", "--pretrain-iterations", "1", "--online-iterations", "2",
    "--updates-per-iteration", "3", "--eval-episodes", "2", "--batch-size", "8", "--data-steps", "None",
    "--device", "cpu",
]  # fmt: skip


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MENTAL_ACCOUNTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    aim_data(20).save(imported_path("aim"))


def test_evaluate_tells_how_far_it_is_and_what_it_does_without(
    monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    assert main(["train", *SMALL, "--run", "one"]) == 0
    capsys.readouterr()
    monkeypatch.setattr(parallel_envs, "useful_workers", lambda *_: 1)
    monkeypatch.setattr(parallel_envs, "usable_cores", lambda: 2)
    monkeypatch.setattr(parallel_envs.torch, "get_num_threads", lambda: 2)
    monkeypatch.setattr(parallel_envs.cloudpickle, "dumps", lambda spec: (_ for _ in ()).throw(TypeError("a lock")))
    assert main(["evaluate", "one", "--episodes", "3", "--json"]) == 0
    said = capsys.readouterr()
    assert "a lock" in said.err
    assert "stepped in this one" in said.err
    assert len(json.loads(said.out)["returns"]) == 3

    view = CountingView()
    subject = read_subject(Path("one"), None, None, "cpu")
    played = play_subject(subject, 2, view=view)
    assert view.advanced == max(map(len, played)) <= view.total


class CountingView(SilentView):
    total = advanced = 0
    follows_steps = True

    def __call__(self, event: Event) -> None:
        if isinstance(event, StageBegan):
            assert event.stage == "playing"
            self.total = event.total
        self.advanced += isinstance(event, StepDone)


def test_train_evaluate_and_a_second_run_from_its_config(tmp_path: Path, capsys: Captured) -> None:
    assert main(["train", *SMALL, "--run", "one", "--method", "odt", "--seed", "3"]) == 0
    out = capsys.readouterr().out
    assert "pretrain    1" in out
    assert "last return" in out
    assert f"policy: {Path('one') / 'policy'}" in out
    assert "the data: " in out
    assert list((tmp_path / "one" / "tensorboard").glob("events*"))
    config = RunFolder("one").read_config()
    assert (config.method, config.seed, config.batch_size) == ("odt", 3, 8)

    assert main(["evaluate", "one", "--episodes", "3", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert len(result["returns"]) == 3
    assert main(["evaluate", "one/policy", "--env-id", ENV_ID, "--target-return", "9", "--sample"]) == 0
    assert "asking for 9" in capsys.readouterr().out

    for arguments in (["evaluate", "."], ["resume", "."], ["export", "."], ["inspect", "."]):
        assert main(arguments) == 2
        assert "error: . is not a run, but holds 1 run: give one" in capsys.readouterr().err
    assert main(["train", "--config", "one/config.json", "--run", "two", "--seed", "4"]) == 0
    assert RunFolder("two").read_config() == replace(config, seed=4)
    capsys.readouterr()
    assert main(["resume", "two"]) == 0
    assert "finished already" in capsys.readouterr().out


def test_presets_are_starting_points(capsys: Captured) -> None:
    assert main(["train", *SMALL, "--preset", "paper", "--run", "paper", "--lr", "0.5"]) == 0
    config = RunFolder("paper").read_config()
    assert config.optimizer == "adamw"
    assert config.lr == 0.5
    assert config.model.accounts.account_scope == "window"
    assert config.model.hidden == 16


def test_a_given_task_has_an_environment_of_its_own() -> None:
    assert starting_point(["--preset", "online"]).settings.env_id == "CartPole-v1"
    for arguments, env_id in (
        (["--task", "imported/aim"], None),
        (["--task=imported/aim", "--env-id=Pendulum-v1"], "CartPole-v1"),  # to be replaced by what is given
        (["--task", "None"], "CartPole-v1"),
    ):
        assert starting_point(["train", "--preset", "online", *arguments]).settings.env_id == env_id
    study = plan_study(("imported/aim",), ("odt",), (0,), "online", {})
    assert (study.base.task, study.base.env_id) == ("imported/aim", None)
    assert plan_study(("imported/aim",), ("odt",), (0,), "online", {"env_id": ENV_ID}).base.env_id == ENV_ID
    assert asked_for(None, "imported/aim", "online", None, {}).config.env_id is None


def test_what_a_run_says_before_it_begins(capsys: Captured) -> None:
    assert main(["train", *SMALL, "--env-id", "CartPole-v1", "--run", "x"]) == 2
    assert "run folder" not in capsys.readouterr().out, "there is none"
    assert main(["train", *SMALL, "--run", "one"]) == 0
    out = capsys.readouterr().out
    assert "run folder: one" in out
    assert "1 × 5 updates offline, 2 × 3 updates online" in out
    scratch = ["--task", "None", "--env-id", ENV_ID, "--pretrain-iterations", "0", "--random-episodes", "4"]
    assert main(["train", *SMALL[2:], *scratch, "--run", "two"]) == 0
    out = capsys.readouterr().out
    assert "no offline phase, 2 × 3 updates online" in out
    assert len(re.findall("^random play: ", out, re.MULTILINE)) == 2
    assert "data: " not in out


def test_a_method_without_accounts_does_not_read_the_ledger_of_a_preset() -> None:
    for method, reads in (("odt", "none"), ("ewa-vq-odt", "none"), ("ledger-odt", "state")):
        point = starting_point(["--preset", "hidden", f"--method={method}"])
        assert (point.settings.method, point.settings.model.accounts.ledger_input) == (method, reads)
        assert point.settings.model.accounts.beta == 0.05
    assert starting_point(["--preset", "hidden", "--method", "nonsense"]).settings.method == "ledger-odt"
    assert main(["train", *SMALL, "--preset", "hidden", "--method", "odt", "--run", "odt"]) == 0
    assert RunFolder("odt").read_config().model.accounts.ledger_input == "none"


def test_accounts_without_effect_are_told(capsys: Captured) -> None:
    said = "change nothing"
    assert main(["train", *SMALL, "--preset", "hidden", "--run", "one"]) == 0
    assert said not in capsys.readouterr().out
    assert main(["train", *SMALL, "--method", "ewa-vq-odt", "--model.accounts.beta", "0", "--run", "two"]) == 0
    assert "the accounts change nothing" in capsys.readouterr().out
    assert main(["train", *SMALL, "--preset", "hidden", "--model.accounts.ledger-input", "none", "--run", "three"]) == 0
    assert "ledger-odt always reads its ledger" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "--task", "hoper-medium", "--run", "x"], "did you mean hopper-medium"),
        (["train", *SMALL, "--env-id", "CartPole-v1", "--run", "x"], "do not fit CartPole-v1"),
        (["train", "--method", "ledger-odt", "--model.accounts.beta", "0.2"], "ledger-odt has no attention bias"),
        (["train", "--preset", "hidden", "--model.accounts.beta-learned"], "accounts.beta_learned True has no effect"),
        (["train", *SMALL, "--device", "cuda", "--run", "x"], "there is none; use --device cpu"),
        (["train", "--config", "nowhere/config.json"], "holds no run"),
        (["train", "--config", "one/config.json", "--preset", "paper"], "give --preset or --config, not both"),
        (["train", *SMALL, "--device", "cpu:x", "--run", "x"], "as in cuda:1, got 'cpu:x'"),
        (["train", *SMALL, "--config", "list.json", "--run", "x"], "list.json cannot be read: it holds no JSON object"),
        (["resume", "nowhere"], "holds no run"),
        (["evaluate", "nowhere"], "nowhere does not exist"),
        (["evaluate", "cache"], "give --env-id"),
        (["evaluate", "cache", "--env-id", ENV_ID, "--target-return", "1"], "holds no policy"),
        (["train", *SMALL, "--tracker", "trackio", "--run", "x"], "pip install 'mental-accounts[trackio]'"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    arguments: list[str], message: str, capsys: Captured, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    Path("list.json").write_text("[1]")
    assert main(arguments) == 2
    err = capsys.readouterr().err
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert not Path("x").exists()  # a run that never began leaves nothing behind


def test_damaged_files_of_a_run_are_named(capsys: Captured) -> None:
    assert main(["train", *SMALL, "--run", "one"]) == 0
    for name, text, message in (
        ("summary.json", "{}", "summary.json cannot be read: last_return is missing"),
        ("task.json", "{}", "task.json cannot be read: env_id is missing"),
        ("task.json", "garbage", "task.json cannot be read: Expecting value"),
    ):
        (Path("one") / name).write_text(text)
        capsys.readouterr()
        assert main(["resume" if name == "summary.json" else "evaluate", "one"]) == 2
        assert message in capsys.readouterr().err


def test_an_environment_with_other_bounds_is_refused(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    assert main(["train", *SMALL, "--run", "one"]) == 0
    monkeypatch.setattr("tests.learning.tiny_env.LIMIT", 2.0)
    assert main(["evaluate", "one"]) == 2
    assert "the policy does not fit" in capsys.readouterr().err


def test_the_environment_may_lie_in_a_module_here(capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("my_module.py").write_text("import gymnasium\nfrom tests.learning.tiny_env import Aim\n"
                                    "gymnasium.register('Mine-v0', entry_point=Aim)\n")  # fmt: skip
    monkeypatch.setattr(sys, "path", [place for place in sys.path if place != ""])  # as an installed command begins
    assert main(["train", *SMALL, "--env-id", "my_module:Mine-v0", "--run", "one"]) == 0


def test_a_run_is_not_started_over_another(capsys: Captured) -> None:
    assert main(["train", *SMALL, "--run", "one"]) == 0
    assert main(["train", *SMALL, "--run", "one"]) == 2
    err = capsys.readouterr().err
    assert "go on with" in err
    assert "resume one" in err


def test_a_tracker_gets_the_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, object]] = []
    fake = SimpleNamespace(
        init=lambda **kw: calls.append(("init", kw)),
        log=lambda metrics, step: calls.append(("log", (step, metrics))),
        finish=lambda: calls.append(("finish", None)),
        __spec__=SimpleNamespace(),
    )
    monkeypatch.setitem(sys.modules, "trackio", fake)
    assert main(["train", *SMALL, "--run", "one", "--tracker", "trackio"]) == 0
    assert [name for name, _ in calls] == ["init", "log", "log", "log", "finish"]
    step, metrics = calls[1][1]
    assert step == 1
    assert "training/nll" in metrics


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_signals_end_a_command_with_their_code_and_say_how_to_go_on(
    number: signal.Signals, code: int, tmp_path: Path
) -> None:
    arguments = ["train", *SMALL, "--run", "run", "--updates-per-pretrain-iteration", "100000"]
    process = FreshProcess(tmp_path, command, *arguments)
    deadline = time.monotonic() + 200
    while not (tmp_path / "run" / "metrics.jsonl").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.5)
    process.send_signal(number)
    assert process.wait(200) == code
    assert "resume run" in process.stderr
    assert list((tmp_path / "run").glob("checkpoint/*/state.json"))


def test_a_video_of_the_first_episode(tmp_path: Path, capsys: Captured, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    assert main(["train", *SMALL, "--run", "one"]) == 0
    assert main(["evaluate", "one", "--episodes", "1", "--video", "film.avi"]) == 2
    assert "must be an .mp4 or a .gif file" in capsys.readouterr().err
    found = importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None if name == "imageio_ffmpeg" else found(name))
    assert main(["evaluate", "one", "--episodes", "1", "--video", "film.mp4"]) == 2
    said = capsys.readouterr()
    assert "an .mp4 video needs imageio-ffmpeg: pip install 'mental-accounts[video]'" in said.err
    assert "return" not in said.out  # nothing was played
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    assert main(["evaluate", "one", "--episodes", "1", "--video", "film.gif"]) == 0
    assert (tmp_path / "film.gif").read_bytes().startswith(b"GIF89a")


def test_a_video_as_mp4(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("imageio_ffmpeg")
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")
    assert main(["train", *SMALL, "--run", "one"]) == 0
    assert main(["evaluate", "one", "--episodes", "1", "--video", "film.mp4"]) == 0
    assert (tmp_path / "film.mp4").read_bytes()[4:8] == b"ftyp"
