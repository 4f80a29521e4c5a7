"""Numbers that cannot be meant, and environments too large for any machine: refused in one line."""

import errno
import os
import signal
import subprocess
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import gymnasium
import numpy as np
import pytest
import torch

from mental_accounts import machine
from mental_accounts.account_options import AccountsConfig
from mental_accounts.action_spec import ActionSpec
from mental_accounts.cli import main
from mental_accounts.config import TrainConfig
from mental_accounts.data.tasks import imported_path
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.learning import footprint
from mental_accounts.learning.footprint import check_run, needed
from mental_accounts.learning.run_folder import RunFolder
from mental_accounts.learning.signals import PATIENCE_S
from mental_accounts.machine import available_memory, in_words, roughly, usable_cores
from mental_accounts.policy import DecisionTransformer
from mental_accounts.policy.size import count_codes, count_parameters
from mental_accounts.policy_options import Method, PolicyConfig
from mental_accounts.presets import PRESETS
from tests.fresh_process import FreshProcess, command
from tests.learning.conftest import aim_data
from tests.learning.fault_env import ENV_ID as FAULT_ID
from tests.test_hostile_json import TINY, refused

Captured = pytest.CaptureFixture[str]
HUGE = str(10**30)
CPU = torch.device("cpu")
BOX = ActionSpec("box", 3, (-1.0,) * 3, (1.0,) * 3)


@pytest.fixture(autouse=True)
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MENTAL_ACCOUNTS_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    aim_data(20).save(imported_path("aim"))


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--batch-size", HUGE], "lower --batch-size"),
        (["--model.hidden", HUGE], "lower --model.hidden"),
        (["--model.inner", HUGE], "lower --model.inner"),
        (["--model.layers", HUGE], "lower --model.layers"),
        (["--model.hidden", HUGE, "--model.heads", HUGE], "lower --model.hidden"),
        (["--model.context-length", HUGE], "lower --model.context-length"),
        (["--eval-episodes", HUGE], "lower --eval-episodes"),
        (["--episodes-per-iteration", HUGE], "lower --episodes-per-iteration"),
        (["--env-workers", HUGE], "lower --env-workers"),
        (["--model.timestep-embedding", "True", "--model.max-timestep", str(2**50)], "lower --model.max-timestep"),
        (["--model.accounts.bins", str(2**50)], "lower --model.accounts.bins"),
        (["--model.accounts.codebook", "kmeans", "--model.accounts.num-codes", HUGE], "lower --model.accounts.num-c"),
        (["--model.accounts.state-codes", str(2**50)], "lower --model.accounts.state-codes"),
    ],
    ids=lambda value: value[-2] if isinstance(value, list) else "",
)  # fmt: skip
def test_a_run_without_memory_for_it(flags: list[str], words: str, tmp_path: Path, capsys: Captured) -> None:
    refused(["train", *TINY, *flags, "--run", "one"], capsys, "needs at least", "are free on this machine", words)
    assert not Path("one").exists()


@pytest.mark.parametrize(
    ("flags", "words"),
    [
        (["--model.heads", HUGE], "hidden must be a multiple of heads"),
        (["--model.max-timestep", HUGE], "max_timestep must be at most"),
        (["--model.accounts.bins", HUGE], "bins must be at most"),
        (["--data-steps", HUGE], "lower --data-steps"),
    ],
)
def test_numbers_that_are_refused_by_themselves(flags: list[str], words: str, capsys: Captured) -> None:
    code = 0
    try:
        code = main(["train", *TINY, *flags, "--run", "one"])
    except SystemExit as stop:  # tyro's own way to refuse a flag
        code = int(str(stop.code))
    told = capsys.readouterr()
    assert code == 2
    assert words in " ".join((told.err + told.out).replace("│", " ").split())
    assert "Traceback" not in told.err
    assert not Path("one").exists()


def test_numbers_of_other_commands(capsys: Captured) -> None:
    refused(["data", "make", "hopper-medium", "--steps", HUGE], capsys, "lower --steps")
    refused(["compare", "--seeds", HUGE], capsys, "--seeds must be at most")
    refused(["compare", "--task", "hopper-medium", "--set", f"data_steps={HUGE}"], capsys, "lower --set data_steps")
    assert main(["train", *TINY, "--run", "one"]) == 0
    capsys.readouterr()
    refused(["evaluate", "one", "--episodes", HUGE], capsys, "lower --episodes")
    refused(["inspect", "one", "--episodes", HUGE], capsys, "lower --episodes")
    refused(["export", "one", "--num-envs", HUGE], capsys, "lower --num-envs")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (f"batch_size={HUGE}", "lower --set batch_size, now 1000"),
        (f"hidden={HUGE}", "lower --set model.hidden"),
        (f"layers={HUGE}", "lower --set model.layers"),
        (f"context_length={HUGE}", "lower --set model.context_length"),
        (f"eval_episodes={HUGE}", "lower --set eval_episodes"),
        (f"env_workers={HUGE}", "lower --set env_workers"),
        (f"data_steps={HUGE}", "lower --set data_steps"),
    ],
)
@pytest.mark.parametrize("flag", ["--set", "--methods"])
def test_a_comparison_without_memory_for_it(
    flag: str, change: str, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    """Refused before data are made, folders are written and processes are started."""
    monkeypatch.setattr(subprocess, "Popen", None)
    given = ["--set", change] if flag == "--set" else ["--methods", "odt", f"ewa-vq-odt:{change}"]
    refused(["compare", "--task", "hopper-medium", *given, "--out", "out"], capsys, words)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache"]


def test_memory_of_a_container(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "CONTAINER", tmp_path)
    (tmp_path / "memory.max").write_text("10000000\n")
    (tmp_path / "memory.current").write_text("9000000\n")
    (tmp_path / "memory.stat").write_text("anon 1000000\nactive_file 3000000\ninactive_file 4000000\n")
    assert available_memory() == 8_000_000  # what is kept of files is given back
    (tmp_path / "memory.max").write_text("max\n")
    assert available_memory() > 8_000_000


@pytest.mark.parametrize("given", [["--run", ""], ["--run="]])
def test_a_folder_without_a_name(given: list[str], tmp_path: Path, capsys: Captured) -> None:
    refused(["train", *TINY, *given], capsys, "--run is given nothing")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["cache"]


class Large(gymnasium.Env[Any, Any]):
    """Spaces that say they are large, without the memory that a real one would take."""

    def __init__(self, observations: int = 1, actions: int = 2) -> None:
        self.observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        self.observation_space._shape = (observations,)
        self.action_space = gymnasium.spaces.Discrete(actions)

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        raise AssertionError("nothing is played")


gymnasium.register(
    "ManyNumbers-v0", entry_point=Large, disable_env_checker=True, order_enforce=False, kwargs={"observations": 10**8}
)
gymnasium.register(
    "ManyActions-v0", entry_point=Large, disable_env_checker=True, order_enforce=False, kwargs={"actions": 10**9}
)


@pytest.mark.parametrize("method", ["odt", "ewa-vq-odt", "bc", "gru"])
@pytest.mark.parametrize(
    ("env_id", "words"),
    [("ManyNumbers-v0", "must have 1 to 1,000,000 numbers"), ("ManyActions-v0", "make them fewer")],
)
def test_spaces_that_no_network_can_have(env_id: str, words: str, method: str, capsys: Captured) -> None:
    refused(
        ["train", "--task", "None", "--env-id", env_id, "--method", method, "--device", "cpu", "--run", "one"], capsys,
        words,
    )  # fmt: skip
    assert not Path("one").exists()


@pytest.mark.parametrize("method", get_args(Method))
@pytest.mark.parametrize("action", [BOX, ActionSpec("discrete", 5)], ids=["box", "discrete"])
def test_parameters_are_counted(method: Any, action: ActionSpec) -> None:
    for accounts in (
        AccountsConfig(ledger_input="none"),
        AccountsConfig(ledger_input="state", state_codes=3),
        AccountsConfig(ledger_input="state", codebook="product", bins=4),
        AccountsConfig(ledger_input="state", codebook="hierarchical"),
    ):
        config = PolicyConfig(
            state_dim=7, action=action, method=method, hidden=12, layers=2, heads=3, context_length=4, max_timestep=9,
            order_embedding=True, reward_input="none" if method == "bc" else "state", accounts=accounts,
        )  # fmt: skip
        policy = DecisionTransformer(config)
        assert count_parameters(config) == sum(value.numel() for value in policy.parameters())
        assert count_codes(config) == (0 if policy.accounts is None else policy.accounts.books.num_codes)


@pytest.mark.parametrize("name", PRESETS)
def test_what_is_usual_and_what_is_large_but_meant_is_not_refused(name: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(footprint, "available_memory", lambda: 8 * 10**9)
    config = PRESETS[name]
    model = {field: getattr(config.model, field) for field in config.model.__dataclass_fields__}
    known = {field: value for field, value in model.items() if value is not None}
    policy = PolicyConfig(**known, state_dim=17, action=BOX, method=config.method)
    check_run(config, policy, CPU)
    check_run(replace(config, batch_size=1024, eval_episodes=1000), replace(policy, hidden=256, heads=4), CPU)
    check_run(config, replace(policy, state_dim=20_000), CPU)


def test_an_estimate_is_a_low_one() -> None:
    """A network of a hundred million parameters: 1.6 GB, and some for the batch."""
    policy = PolicyConfig(state_dim=17, action=BOX, hidden=1024, layers=8, heads=8)
    need = needed(TrainConfig(), policy, CPU)
    assert 1.5e9 < need.network < 2e9
    assert 1e9 < need.batch < 2e10


def test_words_for_numbers() -> None:
    assert [in_words(n) for n in (1500, 2 * 10**6, 32 * 10**8, 10**15, 10**42)] == [
        "1.5 kB", "2.0 MB", "3.2 GB", "1,000 TB", "10^30 TB"
    ]  # fmt: skip
    assert roughly(12_345) == "12,345"
    assert roughly(10**5000) == "10^5000"
    assert available_memory() > 0
    assert usable_cores() >= 1


FAULTY = [*TINY, "--env-id", FAULT_ID, "--env-workers", "1", "--checkpoint-seconds", "0", "--online-iterations", "3"]
"""A run that writes a checkpoint after every update."""


def lines_of(run: str) -> list[dict[str, Any]]:
    return [{k: v for k, v in line.items() if "time/" not in k} for line in RunFolder(run).read_metrics()]


@pytest.fixture
def undisturbed() -> list[dict[str, Any]]:
    """What a run logs to which nothing happens."""
    assert main(["train", *FAULTY, "--run", "good"]) == 0
    return lines_of("good")


def arm(monkeypatch: pytest.MonkeyPatch, fault: str, when: str) -> Path:
    path = Path("fault").absolute()
    path.write_text(when)
    monkeypatch.setenv("FAULT", fault)
    monkeypatch.setenv("FAULT_FILE", str(path))
    return path


@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "metrics.jsonl", "policy.json", "weights-"])
def test_a_full_disk(
    name: str, undisturbed: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    flush, armed = os.fsync, [3]

    def fsync(file: int) -> None:
        if name in os.readlink(f"/proc/self/fd/{file}"):
            armed[0] -= 1
            if armed[0] <= 0:
                raise OSError(errno.ENOSPC, "No space left on device")
        flush(file)

    monkeypatch.setattr(os, "fsync", fsync)
    capsys.readouterr()
    refused(["train", *FAULTY, "--run", "one"], capsys, name, "No space left", "make room", "go on with:", "resume one")
    monkeypatch.setattr(os, "fsync", flush)
    assert main(["resume", "one"]) == 0
    assert lines_of("one") == undisturbed


def failed(arguments: list[str], capsys: Captured, *words: str) -> None:
    """Exit code 1, and one line with these words."""
    code, err = main(arguments), capsys.readouterr().err
    lines = [line for line in err.splitlines() if line.startswith("error: ")]
    assert (code, len(lines)) == (1, 1), err
    for word in words:
        assert word in lines[0]


@pytest.mark.parametrize("when", ["reset", "step"])
@pytest.mark.parametrize("task", [["--task", "None", "--pretrain-iterations", "0"], []], ids=["online", "offline"])
@pytest.mark.parametrize(("fault", "words"), [("exit", "SystemExit('the simulator"), ("raise", "motor is on fire")])
def test_an_environment_that_fails_at_once_leaves_nothing(
    when: str, task: list[str], fault: str, words: str, monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    arm(monkeypatch, fault, when)
    flags = ["--env-workers", "0", "--checkpoint-seconds", "60"]
    failed(["train", *FAULTY, *task, *flags, "--run", "one"], capsys, words, f"raised in {when}", "fault_env.py, line")
    assert not Path("one").exists()
    Path("two").mkdir()  # a folder that was there stays
    arm(monkeypatch, fault, when)
    failed(["train", *FAULTY, *task, *flags, "--run", "two"], capsys, words)
    assert Path("two").exists()


def test_a_reward_that_is_too_large(monkeypatch: pytest.MonkeyPatch, capsys: Captured) -> None:
    arm(monkeypatch, "rich", "step")
    failed(["train", *FAULTY, "--run", "one"], capsys, "gave the reward 3e+38 in step 0", "scale them down")


def test_data_whose_rewards_add_up_to_too_much(capsys: Captured) -> None:
    found = aim_data(3)
    with np.errstate(over="ignore"):
        large = Trajectories.from_steps(
            found.observations, found.actions, torch.full_like(found.rewards, 3e38), lengths=found.lengths,
            terminated=found.terminated, truncated=found.truncated, info=found.info,
        )  # fmt: skip
    large.save(imported_path("rich"))
    refused(["train", *TINY, "--task", "imported/rich", "--run", "one"], capsys, "too large for float32", "3e+38")
    assert not Path("one").exists()


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("kill", "the process that stepped environments 0 to 0 ended with signal SIGKILL"),
        ("leave", "the process that stepped environments 0 to 0 ended with exit code 7"),
        ("exit", "environment 0 raised in step 0"),
        ("raise", "motor is on fire"),
    ],
)
def test_a_process_of_environments_that_ends_alone(
    fault: str, words: str, undisturbed: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch, capsys: Captured
) -> None:
    path = arm(monkeypatch, fault, "worker")
    capsys.readouterr()
    failed(["train", *FAULTY, "--run", "one"], capsys, words, "go on with:", "resume one")
    assert not path.exists()
    assert main(["resume", "one"]) == 0
    assert lines_of("one") == undisturbed


def test_a_process_of_environments_that_hangs(
    undisturbed: list[dict[str, Any]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first Ctrl-C waits for the step to end; the second one, some seconds later, does not."""
    path = arm(monkeypatch, "hang", "worker")
    process = FreshProcess(tmp_path, command, "train", *FAULTY, "--run", "one")
    deadline = time.monotonic() + 120
    while path.exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    time.sleep(PATIENCE_S + 0.5)
    assert process.poll() is None
    process.send_signal(signal.SIGINT)
    code, err = process.wait(60), process.stderr
    assert code == 130, err
    assert "stopped at once, without another checkpoint; go on with:" in err
    assert "Traceback" not in err
    assert main(["resume", "one"]) == 0
    assert lines_of("one") == undisturbed
