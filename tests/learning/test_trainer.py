"""Runs: the same from the same seed, exact after any stop, honest about what goes wrong."""

import json
import os
import random
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path
from typing import get_args
from unittest.mock import Mock

import gymnasium
import numpy as np
import pytest
import torch

from mental_accounts.action_spec import ActionSpec
from mental_accounts.config import TrainConfig
from mental_accounts.data.asked import asked_returns
from mental_accounts.data.tasks import imported_path
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.errors import (
    BrokenEnvironmentError,
    CheckpointError,
    DivergenceError,
    InterruptedRunError,
    NoRoomError,
    StoppedRunError,
    UsageError,
)
from mental_accounts.learning.callbacks import STOP
from mental_accounts.learning.checkpoint import Checkpoint, read_checkpoint, write_checkpoint
from mental_accounts.learning.episodes import Episode
from mental_accounts.learning.events import Event, IterationEnded, Message, RunBegan
from mental_accounts.learning.preparation import prepare
from mental_accounts.learning.replay import Replay
from mental_accounts.learning.run_ending import Ending
from mental_accounts.learning.run_folder import RunFolder
from mental_accounts.learning.trainer import Trainer
from mental_accounts.machine import choose_device
from mental_accounts.policy import DecisionTransformer
from mental_accounts.policy_options import WITH_ACCOUNTS, Method, ModelConfig
from mental_accounts.presets import PRESETS, PresetName
from tests.fresh_process import FreshProcess

from .conftest import aim_data
from .cut_runs import numbers, run_cut_and_whole, same_run, start, weights
from .tiny_env import ENV_ID


def warnings_in(events: list[Event]) -> list[str]:
    return [event.text for event in events if isinstance(event, Message) and event.kind == "warning"]


@pytest.mark.parametrize("method", ["dt", "odt"])
def test_the_last_policy_is_also_evaluated_with_sampled_actions(
    aim: TrainConfig, method: Method, tmp_path: Path
) -> None:
    start(replace(aim, method=method, eval_sampled=True, checkpoint_seconds=0.0), tmp_path / "run").run()
    lines = numbers(tmp_path / "run")
    assert [("evaluation/return_mean_sampled" in line) for line in lines] == [False] * 5 + [True]
    last = lines[-1]
    assert len(last["evaluation/returns_sampled"]) == len(last["evaluation/returns"])
    assert (last["evaluation/returns_sampled"] == last["evaluation/returns"]) == (method == "dt")
    start(replace(aim, method=method), tmp_path / "plain").run()  # nothing else changes
    others = [{name: line[name] for name in line if "sampled" not in name} for line in lines]
    assert others == numbers(tmp_path / "plain")


@pytest.mark.parametrize("method", get_args(Method))
def test_a_run_leaves_everything_behind(aim: TrainConfig, method: str, tmp_path: Path) -> None:
    config = replace(aim, method=method)
    trained = start(config, tmp_path / "run").run()
    lines = numbers(tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["parameters"] == sum(value.numel() for value in trained.parameters())
    steps = {"gru": 10}.get(method, config.model.context_length)  # whole episodes
    assert summary["steps_read"] == (2 * 30 + 4 * 20) * config.batch_size * steps
    assert summary["memory"] > 1e7
    assert summary["gpu_memory"] is None
    assert [line["iteration"] for line in lines] == [1, 2, 3, 4, 5, 6]
    assert [line["phase"] for line in lines] == ["pretrain"] * 2 + ["online"] * 4
    assert [("evaluation/return_mean_gm" in line) for line in lines] == [True, True, False, True, False, True]
    assert [("aug_traj/return" in line) for line in lines] == [False] * 2 + [True] * 4
    assert lines[-1]["env_steps"] == 4 * 2 * 10
    assert lines[-1]["updates"] == 2 * 30 + 4 * 20
    last = lines[-1]
    assert last["evaluation/return_vs_samples"] == last["evaluation/return_mean_gm"]
    assert ("accounts/drift_max" in last) == (method == "ewa-vq-odt")
    assert ("accounts/beta" in last) == (method == "ewa-vq-odt")
    assert ("accounts/attraction_max" in last) == (method in WITH_ACCOUNTS)
    if method == "ewa-vq-odt":
        assert 0 < last["accounts/drift_max"] <= last["accounts/drift_bound"]
        assert last["accounts/attraction_max"] <= 0.8 * 1.0 / 0.05
    content = json.loads((tmp_path / "run" / "config.json").read_text())
    assert content["versions"]["torch"] == torch.__version__
    assert content["config"]["seed"] == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    assert summary["last_return"] == last["evaluation/return_mean_gm"]
    assert summary["best_return"] == max(line.get("evaluation/return_mean_gm", -1e9) for line in lines)
    policy = DecisionTransformer.load(tmp_path / "run" / "policy")
    assert policy.config.method == method
    again = start(config, tmp_path / "run").run()  # finished: nothing is done again
    assert numbers(tmp_path / "run") == lines
    assert again.config == policy.config


@pytest.mark.parametrize("optimizer", ["adamw", "lamb"])
def test_ledger_odt_is_the_run_that_a_ledger_beside_a_beta_of_zero_was(
    aim: TrainConfig, optimizer: str, tmp_path: Path
) -> None:
    """Bit for bit, with dropout; the old form goes on, too: stopped in the middle, it ends with the same numbers."""
    accounts = replace(aim.model.accounts, ledger_input="state", beta=0.0)
    old = replace(aim, optimizer=optimizer, model=replace(aim.model, accounts=accounts))
    start(old, tmp_path / "old").run()
    start(old.for_method("ledger-odt"), tmp_path / "new").run()
    with pytest.raises(StoppedRunError):
        start(old, tmp_path / "cut", lambda event: STOP if isinstance(event, IterationEnded) else None).run()
    start(RunFolder(tmp_path / "cut").read_config(), tmp_path / "cut").run()
    same_run(tmp_path / "old", tmp_path / "cut")
    of_the_bias = {f"accounts/{name}" for name in ("drift_mean", "drift_max", "drift_bound", "bias_max", "beta")}
    ours, before = numbers(tmp_path / "new"), numbers(tmp_path / "old")
    assert of_the_bias <= before[-1].keys()
    assert before[-1]["accounts/drift_max"] == 0
    assert ours == [{name: v for name, v in line.items() if name not in of_the_bias} for line in before]
    learned, kept = weights(tmp_path / "new"), weights(tmp_path / "old")
    assert set(kept) - set(learned) == {"accounts.scale.beta"}
    assert all(torch.equal(value, kept[name]) for name, value in learned.items())


def test_same_seed_same_run_and_another_seed_another(aim: TrainConfig, tmp_path: Path) -> None:
    for name, seed in [("one", 3), ("two", 3), ("three", 4)]:
        start(replace(aim, seed=seed), tmp_path / name).run()
    same_run(tmp_path / "one", tmp_path / "two")
    assert numbers(tmp_path / "one") != numbers(tmp_path / "three")


def go_on(path: Path) -> None:
    folder = RunFolder(path)
    Trainer(folder.read_config(), folder).run()


@pytest.mark.learning
@pytest.mark.parametrize("method", ["odt", "gru", "ewa-vq-odt", "ledger-odt"])
def test_killed_and_resumed_ends_the_same(aim: TrainConfig, method: str, tmp_path: Path) -> None:
    """The last of them learns by values, too, which pay its accounts."""
    config = replace(aim, method=method, optimizer="lamb" if method in ("odt", "gru") else "adamw")
    if method == "ledger-odt":
        accounts = replace(aim.model.accounts, credit="td")
        config = replace(config, improve="td3", model=replace(aim.model, accounts=accounts))
    config = replace(config, updates_per_pretrain_iteration=150, updates_per_iteration=60, checkpoint_seconds=0.3)
    start(config, tmp_path / "whole").run()
    start(config, tmp_path / "killed")
    rng = random.Random(method)
    kills = 0
    for _ in range(40):
        process = FreshProcess(tmp_path, go_on, tmp_path / "killed")
        if kills >= 4:
            assert process.wait(120) == 0, process.stderr
            break
        # Until something new is on disk, then on to a random moment: so that every attempt gets somewhere.
        seen = sorted((tmp_path / "killed").glob("checkpoint/*/state.json"))
        deadline = time.monotonic() + 200
        while time.monotonic() < deadline and process.poll() is None:
            if sorted((tmp_path / "killed").glob("checkpoint/*/state.json")) != seen:
                break
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, 0.25))
        process.send_signal(signal.SIGKILL)
        if process.wait(60) == 0:
            break
        kills += 1
    assert kills >= 2, f"the run was over before it could be killed ({kills} kills)"
    same_run(tmp_path / "whole", tmp_path / "killed")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_signals_stop_cleanly_after_a_checkpoint(aim: TrainConfig, number: signal.Signals, tmp_path: Path) -> None:
    config = replace(aim, checkpoint_seconds=1e9)
    start(config, tmp_path / "whole").run()
    path = tmp_path / "stopped"
    for stops in (5, 45, 60, 30):  # in pretraining, in exploration, in online updates, in an evaluation
        trainer = start(config, path)
        calls = 0
        breathe = trainer._check_signals

        def stop_soon(trainer: Trainer = trainer, stops: int = stops, breathe: object = breathe) -> None:
            nonlocal calls
            calls += 1
            if calls == stops:
                os.kill(os.getpid(), number)
            breathe()

        trainer._check_signals = stop_soon
        with pytest.raises(InterruptedRunError, match=number.name) as stopped:
            trainer.run()
        assert stopped.value.signal_number == number
        assert list(path.glob("checkpoint/*/state.json"))
    start(config, path).run()
    same_run(tmp_path / "whole", path)


def test_a_damaged_checkpoint_falls_back_to_the_one_before(
    aim: TrainConfig, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = replace(aim, checkpoint_seconds=0.0)
    start(config, tmp_path / "whole").run()
    shutil.copytree(tmp_path / "whole", tmp_path / "damaged")
    (tmp_path / "damaged" / "summary.json").unlink()
    newest, older = sorted((tmp_path / "damaged" / "checkpoint").iterdir(), reverse=True)
    tensors = newest / "tensors.safetensors"
    tensors.write_bytes(tensors.read_bytes()[:1000])
    said: list[Event] = []
    start(config, tmp_path / "damaged", said.append).run()
    assert any("damaged or truncated" in text for text in warnings_in(said))
    assert not newest.exists() or json.loads((newest / "state.json").read_text())["format"] == 1
    same_run(tmp_path / "whole", tmp_path / "damaged")
    shutil.rmtree(tmp_path / "damaged")
    shutil.copytree(tmp_path / "whole", tmp_path / "damaged")
    (tmp_path / "damaged" / "summary.json").unlink()
    for path in (newest, older):
        state = json.loads((path / "state.json").read_text())
        (path / "state.json").write_text(json.dumps(state | {"format": 99}))
    with pytest.raises(CheckpointError, match="format 99, this version reads format 1"):
        start(config, tmp_path / "damaged").run()


def test_two_processes_cannot_write_one_run_and_configs_do_not_mix(aim: TrainConfig, tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    with (
        folder.locked(),
        pytest.raises(UsageError, match="is being written by process"),
        RunFolder(folder.path).locked(),
    ):
        pass
    folder.write_config(aim, ["test"])
    with folder.locked(), pytest.raises(UsageError, match="is being written by process"):
        RunFolder(folder.path).write_config(replace(aim, seed=1), ["test"])
    assert folder.read_config() == aim
    with pytest.raises(UsageError, match=r"another configuration \(different: seed\)"):
        Trainer(replace(aim, seed=1), folder).run()
    folder.add_metrics({"iteration": 1})
    with pytest.raises(UsageError, match=r"another configuration \(different: seed, lr\)"):
        folder.write_config(replace(aim, seed=1, lr=0.5), ["test"])
    with pytest.raises(UsageError, match="holds no run"):
        RunFolder(tmp_path / "nothing").read_config()


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        ("raise", r"motor is on fire.*tiny_env\.py, line \d+"),
        ("nan-observation", "not finite"),
        ("inf-reward", "gave the reward inf in step 2"),
    ],
)
def test_a_broken_environment_is_named_and_the_run_can_go_on(
    aim: TrainConfig, fault: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(aim, pretrain_eval_every=0, checkpoint_seconds=0.0)
    start(config, tmp_path / "whole").run()
    make = gymnasium.make
    monkeypatch.setattr(gymnasium, "make", lambda env_id, **kw: make(env_id, fault=fault, **kw))
    with pytest.raises(BrokenEnvironmentError, match=message):
        start(config, tmp_path / "run").run()
    monkeypatch.undo()
    monkeypatch.setenv("MENTAL_ACCOUNTS_CACHE", str(tmp_path / "cache"))
    start(config, tmp_path / "run").run()
    same_run(tmp_path / "whole", tmp_path / "run")


def test_random_episodes_of_a_run_that_never_began_are_not_used_for_another(
    aim: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(aim, task=None, env_id=ENV_ID, random_episodes=3)
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_iterate", lambda *_: (_ for _ in ()).throw(BrokenEnvironmentError("smoke", 0)))
        with pytest.raises(BrokenEnvironmentError):
            start(config, tmp_path / "run").run()
    assert (tmp_path / "run" / "trajectories" / "start.safetensors").is_file()
    trainer = start(replace(config, random_episodes=5, seed=1), tmp_path / "run")
    trainer.run()
    assert len(trainer.prepared.data.lengths) == 5


def test_data_outside_of_the_bounds_are_refused(aim: TrainConfig) -> None:
    data = aim_data()
    data.actions[7] = 1.5
    data.save(imported_path("aim"))
    with pytest.raises(ValueError, match=r"data of imported/aim: actions\[7, 0\] is 1.5, outside of the action bounds"):
        prepare(aim)


def test_a_diverging_loss_stops_the_run_and_spares_the_checkpoint(aim: TrainConfig, tmp_path: Path) -> None:
    config = replace(aim, checkpoint_seconds=0.0)
    trainer = start(config, tmp_path / "run")
    update, calls = None, 0

    def poisoned(windows: object) -> None:
        nonlocal calls
        calls += 1
        if calls == 40:
            with torch.no_grad():
                trainer.policy.state_mean.fill_(float("nan"))
        update(windows)

    set_up = trainer._set_up

    def set_up_and_poison() -> None:
        nonlocal update
        set_up()
        update, trainer.updater.update = trainer.updater.update, poisoned

    trainer._set_up = set_up_and_poison
    with pytest.raises(DivergenceError, match="training diverged; lower --lr"):
        trainer.run()
    assert all(bool(torch.isfinite(value).all()) for value in weights(tmp_path / "run").values())


def test_a_full_disk_leaves_the_last_checkpoint_whole(
    aim: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = replace(aim, checkpoint_seconds=0.0)
    start(config, tmp_path / "whole").run()
    calls, fsync = 0, os.fsync

    def full(descriptor: int) -> None:
        nonlocal calls
        calls += 1
        if calls > 60:
            raise OSError(28, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        start(config, tmp_path / "run").run()
    monkeypatch.setattr(os, "fsync", fsync)
    start(config, tmp_path / "run").run()
    same_run(tmp_path / "whole", tmp_path / "run")


def test_data_that_do_not_fit_the_environment(aim: TrainConfig) -> None:
    with pytest.raises(UsageError, match="do not fit CartPole-v1: observations of size 1 where the environment has 4"):
        prepare(replace(aim, env_id="CartPole-v1"))
    with pytest.raises(UsageError, match="cannot be made"):
        prepare(replace(aim, env_id="NoSuchThing-v0"))


def test_environments_without_data_start_from_random_episodes(tmp_path: Path) -> None:
    for env_id, size in [("CartPole-v1", None), ("Pendulum-v1", 1)]:
        config = TrainConfig(
            task=None, env_id=env_id, random_episodes=3, online_iterations=1, updates_per_iteration=2, eval_episodes=2,
            batch_size=8, model=replace(PRESETS["quick"].model, hidden=16, layers=1), device="cpu",
        )  # fmt: skip
        assert config.pretrain_iterations == 0
        prepared = prepare(config)
        assert len(prepared.data) == 3
        assert (None if prepared.data.discrete else prepared.data.actions.shape[1]) == size
        start(config, tmp_path / env_id).run()
        (line,) = numbers(tmp_path / env_id)
        assert np.isfinite(line["evaluation/return_mean_gm"])
    with pytest.raises(ValueError, match="give a task or an env_id"):
        TrainConfig(task=None)


def test_replay_starts_with_the_best_and_forgets_the_oldest() -> None:
    data = aim_data(20)
    before = data.returns.clone()
    replay = Replay(data, size=5, longest=10)
    assert torch.equal(replay.store.returns, before.sort().values[-5:])
    episode = Episode(
        np.zeros((7, 1), np.float32), np.zeros((7, 1), np.float32), np.full(7, 9.0, np.float32), True, False
    )
    for _ in range(12):
        replay.add([episode, episode])
        assert len(replay) == 5
    assert replay.store.returns.tolist() == [63.0] * 5
    assert bool(replay.store.terminated.all())
    assert torch.equal(data.returns, before)  # the caller's data are as they were


@pytest.mark.learning
def test_memory_is_flat_over_many_iterations(aim: TrainConfig, tmp_path: Path) -> None:
    import resource

    config = replace(
        aim,
        pretrain_iterations=0,
        online_iterations=220,
        updates_per_iteration=2,
        eval_every=50,
        checkpoint_seconds=2.0,
    )
    trainer = start(config, tmp_path / "run")
    sizes = []
    iterate = trainer._iterate

    def measured(loggers: list[object]) -> None:
        iterate(loggers)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        sizes.append(pages * resource.getpagesize())

    trainer._iterate = measured
    trainer.run()
    assert len(sizes) == 220
    assert max(sizes[-20:]) < 1.02 * max(sizes[15:25]), f"{sizes[20] / 1e6:.1f} MB -> {sizes[-1] / 1e6:.1f} MB"


@pytest.mark.learning
@pytest.mark.parametrize("method", ["odt", "ewa-vq-odt"])
def test_going_online_improves_on_pretraining(aim: TrainConfig, method: str, tmp_path: Path) -> None:
    config = replace(
        aim, method=method, pretrain_iterations=1, updates_per_pretrain_iteration=150, online_iterations=15,
        episodes_per_iteration=5, updates_per_iteration=30, eval_every=15, eval_episodes=20, replay_size=60,
        target_return=9.5, exploration_return=9.5,
    )  # fmt: skip
    gains = []
    for seed in range(8):
        path = tmp_path / str(seed)
        start(replace(config, seed=seed), path).run()
        pretrained, *_, last = (line for line in numbers(path) if "evaluation/return_mean_gm" in line)
        gains.append(last["evaluation/return_mean_gm"] - pretrained["evaluation/return_mean_gm"])
        print(method, seed, pretrained["evaluation/return_mean_gm"], last["evaluation/return_mean_gm"])
    assert sum(gain > 0 for gain in gains) >= 5  # about six in seven do
    assert sum(gains) / len(gains) > 0.2


def test_gamma_discounts_the_returns_to_go(aim: TrainConfig) -> None:
    prepared = prepare(replace(aim, model=replace(aim.model, gamma=0.5)))
    rewards = prepared.data.slice(0).rewards
    expected = sum(float(r) * 0.5**i for i, r in enumerate(rewards))
    assert float(prepared.data.slice(0).returns_to_go[0]) == pytest.approx(expected, rel=1e-5)
    assert prepared.env_id == ENV_ID


def test_undiscounted_returns_are_not_asked_for_where_gamma_discounts(tmp_path: Path) -> None:
    config = TrainConfig(
        task=None, env_id="CartPole-v1", random_episodes=5, online_iterations=1, updates_per_iteration=1,
        eval_episodes=1, batch_size=8, model=replace(PRESETS["quick"].model, hidden=16, layers=1, gamma=0.9),
        device="cpu",
    )  # fmt: skip
    prepared = prepare(config)
    largest = float(prepared.data.returns_to_go.max())
    assert largest < 10.0 < float(prepared.data.returns.max())
    assert prepared.policy.return_scale == pytest.approx(1 / largest, rel=0.02)
    assert prepared.policy.return_range == (pytest.approx(1.0), pytest.approx(largest))
    trainer = start(config, tmp_path / "run")
    trainer.run()
    assert trainer.rollouts.evaluation_target(trainer.replay.store.first_returns_to_go) <= 10.0


def warnings_of(config: TrainConfig, path: Path) -> list[str]:
    """What a run warns of before it begins."""
    events: list[Event] = []
    start(config, path, events.append).run()
    began = next(place for place, event in enumerate(events) if isinstance(event, RunBegan))
    return warnings_in(events[:began])


def test_a_return_far_outside_of_the_data_is_noted_with_their_range(aim: TrainConfig, tmp_path: Path) -> None:
    short = replace(aim, pretrain_iterations=1, updates_per_pretrain_iteration=1, online_iterations=0, eval_episodes=1)
    assert warnings_of(short, tmp_path / "usual") == []
    asked = prepare(short).data.returns
    (said,) = warnings_of(replace(short, target_return=1e6), tmp_path / "far")
    assert said.startswith("--target-return asks for 1e+06, far outside the data, whose returns are")
    assert f"{float(asked.min()):.4g} to {float(asked.max()):.4g}" in said
    assert warnings_of(replace(short, exploration_return=float(asked.max()) + 0.1), tmp_path / "near") == []
    with pytest.raises(ValueError, match="target_return must be"):
        replace(short, target_return=float("nan"))


def test_a_policy_that_ends_far_below_its_data_is_warned_of(aim: TrainConfig, tmp_path: Path) -> None:
    short = replace(aim, pretrain_iterations=1, updates_per_pretrain_iteration=1, online_iterations=0, eval_episodes=1)
    prepared, found = prepare(short), prepare(short).data.statistics()
    assert prepared.warning_about(found.return_mean - 0.9 * found.return_std) is None
    assert prepared.warning_about(None) is None
    said = prepared.warning_about(found.return_mean - 1.1 * found.return_std)
    assert said is not None
    assert "--method bc" in said
    assert "--sample" not in said, "continuous actions"
    scratch = prepare(replace(aim, task=None, env_id=ENV_ID, random_episodes=4))
    assert scratch.warning_about(-1e9) is None  # random episodes are nothing to live up to
    start(short, tmp_path / "run").run()
    assert "warning" in json.loads((tmp_path / "run" / "summary.json").read_text())


def test_a_policy_that_only_earns_with_sampled_actions_is_told_so(aim: TrainConfig) -> None:
    found, box = prepare(aim).data.statistics(), prepare(aim).policy
    policy = replace(box, action=ActionSpec("discrete", 3))
    low = found.return_mean - 2 * found.return_std

    def said(sampled: float | None) -> str:
        text = Ending(low, found.return_mean, sampled).warning(found, policy)
        assert text is not None
        return text

    better = found.return_mean - 0.5 * found.return_std
    assert f"but sampled actions earn {better:.3g}: play with evaluate --sample" in said(better)
    assert "more updates" not in said(better)
    assert "try evaluate --sample" in said(None), "not known: worth a try"
    assert "--sample" not in said(low + 0.1 * found.return_std), "known, and no better"
    assert Ending(found.return_mean, found.return_mean, low).warning(found, policy) is None


@pytest.mark.learning
def test_rewards_that_decide_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The best action is the last reward's sign; it shows in nothing else that is large enough to see."""
    monkeypatch.setenv("MENTAL_ACCOUNTS_CACHE", str(tmp_path / "cache"))
    rng = np.random.default_rng(0)
    episodes, T = 200, 12
    rewards = rng.choice([-1.0, 1.0], (episodes, T)).astype(np.float32)
    before = np.concatenate([np.zeros((episodes, 1)), rewards[:, :-1]], axis=1)
    noise = rng.uniform(-0.1, 0.1, (episodes, T))
    store = Trajectories.from_steps(
        rng.standard_normal((episodes * T, 1)).astype(np.float32),
        (0.6 * before + noise).reshape(-1, 1).astype(np.float32),
        rewards.reshape(-1) + 500.0,
        lengths=[T] * episodes, terminated=[False] * episodes, truncated=[True] * episodes, info={"env_id": ENV_ID},
    )  # fmt: skip
    store.save(imported_path("echo"))
    likelihoods = {}
    for reward_input in ("none", "state"):
        config = TrainConfig(
            task="imported/echo", method="odt", device="cpu", precision="float32", optimizer="adamw", lr=2e-3,
            warmup_updates=20, batch_size=64, pretrain_iterations=1, updates_per_pretrain_iteration=250,
            pretrain_eval_every=0, online_iterations=0, model=ModelConfig(
                hidden=32, layers=1, heads=1, context_length=4, dropout=0.0, reward_input=reward_input
            ),
        )  # fmt: skip
        start(config, tmp_path / reward_input).run()
        likelihoods[reward_input] = numbers(tmp_path / reward_input)[-1]["training/nll_last"]
    assert likelihoods["state"] < likelihoods["none"] - 0.5, likelihoods


def test_rewards_that_never_differ_are_noted_where_they_are_read(aim: TrainConfig, tmp_path: Path) -> None:
    store = aim_data()
    flat = Trajectories.from_steps(
        store.observations, store.actions, torch.zeros_like(store.rewards), lengths=store.lengths,
        terminated=store.terminated, truncated=store.truncated, info=store.info,
    )  # fmt: skip
    flat.save(imported_path("flat"))
    config = replace(
        aim, task="imported/flat", method="odt", model=replace(aim.model, reward_input="state"),
        pretrain_iterations=1, updates_per_pretrain_iteration=1, online_iterations=0, eval_episodes=1,
    )  # fmt: skip
    (said,) = warnings_of(config, tmp_path / "run")
    assert said.startswith("all rewards of the data are 0, so --model.reward-input tells the policy nothing")
    with pytest.raises(ValueError, match="method bc reads the state alone"):
        replace(config, method="bc")
    assert config.for_method("bc").model.reward_input == "none"


def test_a_run_that_reads_rewards_is_resumed_exactly(aim: TrainConfig, tmp_path: Path) -> None:
    config = replace(aim, method="odt", model=replace(aim.model, reward_input="state"), checkpoint_seconds=0.0)
    run_cut_and_whole(config, tmp_path, 75)


def test_configurations_of_version_0_1_mean_what_they_meant(tmp_path: Path) -> None:
    values = PRESETS["paper"].to_dict()
    for name in ("likelihood", "reward_input", "return_range"):
        del values["model"][name]
    del values["model"]["accounts"]["window_steps"]
    (tmp_path / "config.json").write_text(json.dumps({"config": values}))
    model = RunFolder(tmp_path).read_config().model
    assert (model.likelihood, model.reward_input, model.accounts.window_steps) == ("squashed", "none", 0)
    (tmp_path / "config.json").write_text(json.dumps({"config": {"model": {"hidden": 64, "gamma": 0.9}}}))
    assert RunFolder(tmp_path).read_config().model.likelihood == "clipped"  # by hand: today's defaults


def test_random_episodes_are_kept_and_other_data_refused(aim: TrainConfig, tmp_path: Path) -> None:
    config = replace(aim, task=None, env_id=ENV_ID, random_episodes=3)
    first = prepare(config, tmp_path / "start.safetensors").data.rewards.clone()
    assert torch.equal(prepare(replace(config, seed=9), tmp_path / "start.safetensors").data.rewards, first)

    stopped = start(replace(aim, checkpoint_seconds=0.0), tmp_path / "run")
    stopped._evaluate = lambda *_, **__: (_ for _ in ()).throw(InterruptedRunError(15))
    with pytest.raises(InterruptedRunError):
        stopped.run()
    aim_data(seed=7).save(imported_path("aim"))
    with pytest.raises(UsageError, match="not those that the run began with"):
        start(replace(aim, checkpoint_seconds=0.0), tmp_path / "run").run()


def test_environments_of_all_kinds(tmp_path: Path) -> None:
    """No time limit; actions looked up in a dict; numbers of actions that begin late, with windows that are mostly
    padding; bounds that float32 cannot hold; a constructor that raises.
    """

    class Endless(gymnasium.Env):
        observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
        action_space = gymnasium.spaces.Discrete(2)

        def reset(self, *, seed: int | None = None, options: object = None) -> tuple[np.ndarray, dict]:
            return np.zeros(1, np.float32), {}

        def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
            return np.zeros(1, np.float32), {0: 0.0, 1: 1.0}[action], False, False, {}

    class Late(Endless):
        action_space = gymnasium.spaces.Discrete(2, start=5)

        def step(self, action: int) -> tuple[np.ndarray, float, bool, bool, dict]:
            return np.zeros(1, np.float32), {5: 0.0, 6: 1.0}[action], True, False, {}

    class Precise(Endless):
        action_space = gymnasium.spaces.Box(np.array([-0.1]), np.array([0.3]), dtype=np.float64)

        def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
            assert self.action_space.contains(action)
            return np.zeros(1, np.float32), float(action[0]), True, False, {}

    class Broken(Endless):
        def __init__(self) -> None:
            raise KeyError("no such robot")

    for name, kind in [("Endless-v0", Endless), ("Late-v0", Late), ("Precise-v0", Precise), ("Broken-v0", Broken)]:
        gymnasium.register(name, entry_point=kind, disable_env_checker=True)
    config = TrainConfig(
        task=None, env_id="Endless-v0", random_episodes=1, online_iterations=1, updates_per_iteration=1,
        eval_episodes=1, batch_size=4, model=replace(PRESETS["quick"].model, hidden=8, layers=1, context_length=2),
        device="cpu",
    )  # fmt: skip
    start(config, tmp_path / "endless").run()
    assert numbers(tmp_path / "endless")[0]["aug_traj/length"] == 1000
    start(replace(config, env_id="Precise-v0"), tmp_path / "precise").run()
    for method in ("odt", "ewa-vq-odt"):
        start(replace(config, env_id="Late-v0", method=method), tmp_path / method).run()
    with pytest.raises(UsageError, match="constructor raised KeyError"):
        prepare(replace(config, env_id="Broken-v0"))
    for device in ("mps", "meta", "nonsense"):
        with pytest.raises(UsageError, match="device must be auto, cpu or cuda"):
            start(replace(config, device=device), tmp_path / "device")


def test_a_gpu_that_is_not_there_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    assert choose_device("cuda:1") == torch.device("cuda:1")
    with pytest.raises(UsageError, match="device cuda:2 was asked for, but the last one is cuda:1"):
        choose_device("cuda:2")


@pytest.mark.parametrize(("preset", "device", "asked", "compiles"), [
    ("paper", "cuda", None, False), ("converged", "cuda", None, False), ("odt", "cuda", None, True),
    ("odt", "cpu", None, False), ("paper", "cuda", True, True), ("odt", "cuda", False, False),
])  # fmt: skip
def test_long_runs_on_a_gpu_are_compiled_unless_told_otherwise(
    preset: PresetName, device: str, asked: bool | None, compiles: bool, tmp_path: Path
) -> None:
    trainer = Trainer(replace(PRESETS[preset], compile=asked), RunFolder(tmp_path))
    trainer.device = torch.device(device)
    assert trainer.compiles == compiles


def test_two_whole_checkpoints_are_kept_whatever_lies_beside_them(tmp_path: Path) -> None:
    folder = tmp_path / "checkpoint"
    for i in range(3):
        write_checkpoint(folder, Checkpoint({"x": torch.tensor(i)}, {"i": i}))
    (folder / "00099").mkdir()  # a process was killed here
    write_checkpoint(folder, Checkpoint({"x": torch.tensor(3)}, {"i": 3}))
    assert sorted(path.name for path in folder.iterdir()) == ["00003", "00100"]
    (folder / "00100" / "state.json").write_text("[]")
    said: list[str] = []
    assert read_checkpoint(folder, said.append).state == {"i": 2}
    assert len(said) == 1
    assert [path.name for path in folder.iterdir()] == ["00003"]
    for number in (99_999, 100_000):  # numbers, not names, are in order
        (folder / "00003").rename(folder / str(number))
        write_checkpoint(folder, Checkpoint({"x": torch.tensor(4)}, {"i": 4}))
        assert read_checkpoint(folder, said.append).state == {"i": 4}
        shutil.rmtree(folder)
        write_checkpoint(folder, Checkpoint({"x": torch.tensor(4)}, {"i": 4}))
        (folder / "00001").rename(folder / "00003")


def test_a_cut_trajectory_file_falls_back_and_another_device_is_refused(aim: TrainConfig, tmp_path: Path) -> None:
    config = replace(aim, checkpoint_seconds=0.0)
    start(config, tmp_path / "whole").run()
    path = tmp_path / "run"
    shutil.copytree(tmp_path / "whole", path)
    (path / "summary.json").unlink()
    files = sorted((path / "trajectories").glob("0*.safetensors"))
    files[-1].write_bytes(files[-1].read_bytes()[:100])
    with pytest.raises(CheckpointError, match="not a whole safetensors file"):
        start(config, path).run()  # both checkpoints know of that file
    shutil.rmtree(path)
    shutil.copytree(tmp_path / "whole", path)
    (path / "summary.json").unlink()
    for state in path.glob("checkpoint/*/state.json"):
        content = json.loads(state.read_text())
        content["state"]["device"] = "cuda"
        state.write_text(json.dumps(content))
    with pytest.raises(CheckpointError, match="began on cuda and can only go on there"):
        start(config, path).run()


def test_too_little_memory_is_no_damage(aim: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Others have it for now: nothing is removed, and the run goes on once there is more."""
    config, path = replace(aim, checkpoint_seconds=0.0), tmp_path / "run"
    start(config, path).run()
    (path / "summary.json").unlink()
    before = sorted(path.glob("checkpoint/*"))
    full = NoRoomError("no room")
    for kind, name in ((Trajectories, "load"), (Replay, "add")):  # the episodes of a checkpoint are read, and kept
        with monkeypatch.context() as changed:
            changed.setattr(kind, name, Mock(side_effect=full))
            with pytest.raises(NoRoomError) as raised:
                start(config, path).run()
        assert raised.value is full
        assert sorted(path.glob("checkpoint/*")) == before
    start(config, path).run()


def test_targets_follow_the_replay_buffer_or_the_task(aim: TrainConfig, tmp_path: Path) -> None:
    asked = {}
    for targets in ("task", "replay"):
        config = replace(aim, targets=targets, eval_every=1, replay_size=8)
        trainer = start(config, tmp_path / targets)
        trainer.run()
        lines = [json.loads(text) for text in (tmp_path / targets / "metrics.jsonl").read_text().splitlines()]
        asked[targets] = [line["evaluation/target_return"] for line in lines]
        last = asked_returns(trainer.replay.store.first_returns_to_go).evaluation
    assert len(set(asked["task"])) == 1
    assert len(set(asked["replay"])) > 1
    assert asked["replay"][-1] == pytest.approx(last)
    with pytest.raises(ValueError, match="targets must be one of"):
        replace(aim, targets="best")  # type: ignore[arg-type]
