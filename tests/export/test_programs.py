"""Exported acting steps: the same actions as `policy.act`, over whole episodes of real environments."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import mental_accounts as ma
from mental_accounts.cli import main
from mental_accounts.errors import UsageError
from mental_accounts.export.acting_step import ActingStep
from mental_accounts.export.programs import export_policy, largest_difference
from mental_accounts.policy import action_spec_of, state_dim_of
from mental_accounts.presets import PRESETS

onnxruntime = pytest.importorskip("onnxruntime")
pytest.importorskip("onnxscript")

Accounts = ma.AccountsConfig
FACTS = {"env_id": "Pendulum-v1", "target_return": -200.0, "random_return": None, "expert_return": None}


def make_policy(env: Any, **changes: Any) -> ma.DecisionTransformer:
    """An untrained policy that knows the scale of the environment's observations."""
    torch.manual_seed(0)
    config = ma.PolicyConfig(
        state_dim=state_dim_of(env.observation_space), action=action_spec_of(env.action_space), hidden=32,
        heads=2, **{"context_length": 20, "layers": 2, **changes},
    )  # fmt: skip
    policy = ma.DecisionTransformer(config)
    env.action_space.seed(0)
    observations, actions, rewards = [env.reset(seed=0)[0]], [], []
    for _ in range(200):
        actions.append(env.action_space.sample())
        seen, reward, terminated, truncated, _ = env.step(actions[-1])
        rewards.append(reward)
        observations.append(env.reset()[0] if terminated or truncated else seen)
    policy.fit_normalisation(
        torch.tensor(np.array(observations[:-1]), dtype=torch.float32),
        torch.tensor(np.array(actions)),
        torch.tensor(rewards, dtype=torch.float32),
    )
    return policy


class OnnxProgram:
    """A robot's side of it: onnxruntime and what the .json says."""

    def __init__(self, folder: Path) -> None:
        self.about = json.loads((folder / "policy.onnx.json").read_text())
        self.session = onnxruntime.InferenceSession(folder / self.about["file"])
        self.state = {s["name"]: np.full(s["shape"], s["first"], s["dtype"]) for s in self.about["state"]}

    def act(self, **inputs: np.ndarray) -> np.ndarray:
        action, *new = self.session.run(None, {**inputs, **self.state})
        self.state = dict(zip(self.state, new, strict=True))
        found: np.ndarray = action
        return found


class TorchProgram:
    def __init__(self, folder: Path) -> None:
        self.about = json.loads((folder / "policy.pt2.json").read_text())
        self.module: Any = torch.export.load(folder / self.about["file"]).module()
        self.state = [
            torch.full(s["shape"], s["first"], dtype=getattr(torch, s["dtype"])) for s in self.about["state"]
        ]  # fmt: skip

    def act(self, **inputs: np.ndarray) -> np.ndarray:
        names = [each["name"] for each in self.about["inputs"]]
        with torch.no_grad():
            action, *self.state = self.module(*(torch.from_numpy(inputs[name]) for name in names), *self.state)
        found: np.ndarray = action.numpy()
        return found


def play_beside(policy: ma.DecisionTransformer, env: Any, folder: Path, target: float, steps: int) -> tuple[float, int]:
    """Play with `policy.act`; both programs see the same: the largest difference, and how many episodes ended."""
    for format in ("torch-export", "onnx"):
        export_policy(policy, folder, format)
    programs = [TorchProgram(folder), OnnxProgram(folder)]
    context = policy.context(1, target)
    observation, _ = env.reset(seed=1)
    reward, ended, worst, episodes = 0.0, True, 0.0, 0
    for _ in range(steps):
        seen = np.asarray(observation, dtype=np.float32)[None]
        action = policy.act(seen, context)
        answer = {"reward": np.array([reward], np.float32), "ended": np.array([ended])}
        for program in programs:
            theirs = program.act(observation=seen, target_return=np.array([target], np.float32), **answer)
            assert theirs.dtype == action.dtype
            worst = max(worst, float(np.abs(theirs - action).max()))
        observation, reward, terminated, truncated, _ = env.step(action[0])
        ended = bool(terminated or truncated)
        context.record(np.array([reward]), np.array([ended]))
        if ended:
            observation, _ = env.reset()
            episodes += 1
    return worst, episodes


@pytest.mark.learning
@pytest.mark.parametrize("scope", ["trajectory", "window"])
def test_whole_episodes_of_hopper(scope: Any, tmp_path: Path) -> None:
    """One episode of 1,000 steps; and many short ones, each with accounts of its own."""
    pytest.importorskip("mujoco")
    env = gymnasium.make("Hopper-v5", terminate_when_unhealthy=scope == "window")
    policy = make_policy(env, accounts=Accounts(account_scope=scope, beta=0.5))
    worst, episodes = play_beside(policy, env, tmp_path, 3600.0, steps=1_000)
    assert episodes == 1 if scope == "trajectory" else episodes > 5
    assert worst <= 1e-5


@pytest.mark.parametrize("changes", [{"accounts": Accounts(beta=0.5)}, {"method": "odt"}], ids=["accounts", "odt"])
def test_discrete_actions_with_and_without_accounts(changes: dict[str, Any], tmp_path: Path) -> None:
    env = gymnasium.make("CartPole-v1")
    policy = make_policy(env, context_length=6, **changes)
    worst, episodes = play_beside(policy, env, tmp_path, 200.0, steps=100)
    assert worst == 0
    assert episodes > 1


@pytest.mark.parametrize(
    "changes",
    [{"method": "dt"}, {"method": "bc"}, {"method": "odt", "reward_input": "state", "return_range": (-300.0, -1.0)}],
    ids=["dt", "bc", "rewards"],
)
def test_box_actions_without_accounts(changes: dict[str, Any], tmp_path: Path) -> None:
    env = gymnasium.make("Pendulum-v1")
    policy = make_policy(env, context_length=6, **changes)
    assert play_beside(policy, env, tmp_path, -200.0, steps=210)[0] <= 1e-5


VARIANTS = {
    "ledger": Accounts(beta=0.5, ledger_input="state"),
    "ledger, window": Accounts(beta=0.5, ledger_input="state", account_scope="window"),
    "counts and means, late": Accounts(
        beta=0.5, ledger_input="state", ledger_channels=("mean", "count", "balance"), reward_delay=7
    ),
    "late, window": Accounts(beta=0.5, ledger_input="state", account_scope="window", reward_delay=1),
    "soft, states, baseline": Accounts(beta=0.5, soft_codes=2, state_codes=3, credit="advantage"),
    "β by token": Accounts(beta=0.5, beta_learned=True, beta_per="token"),
    "canonical, now": Accounts(rule="canonical", read="now", beta=0.5),
    "product": Accounts(codebook="product", beta=0.5),
    "k-means": Accounts(codebook="kmeans", num_codes=5, beta=0.5),
    "learned per layer and head": Accounts(beta_learned=True, beta_per="layer-head", bias_clip=0.3),
}
READ = {
    "trajectory": Accounts(),
    "window": Accounts(account_scope="window"),
    "soft": Accounts(soft_codes=2, rule="canonical"),
}


@pytest.mark.parametrize("name", list(VARIANTS))
def test_every_kind_of_accounts(name: str, tmp_path: Path) -> None:
    env = gymnasium.make("Pendulum-v1")
    layers = 2 if "layer" in name else 1  # one has all that accounts add
    policy = make_policy(
        env, accounts=VARIANTS[name], context_length=5, eval_context_length=3, order_embedding=True, layers=layers
    )
    checked = export_policy(policy, tmp_path, "onnx", num_envs=3)["checked"]
    assert checked["largest_difference_of_actions"] <= 1e-5


@pytest.mark.parametrize("scope", ["trajectory", "window"])
def test_foregone_rewards_are_one_more_input(scope: Any, tmp_path: Path) -> None:
    accounts = Accounts(rule="canonical", foregone=True, beta=0.5, ledger_input="state", account_scope=scope)
    policy = make_policy(gymnasium.make("CartPole-v1"), accounts=accounts, context_length=5, layers=1)
    for format in ("torch-export", "onnx"):
        about = export_policy(policy, tmp_path, format, num_envs=3)
        assert about["checked"]["largest_difference_of_actions"] <= 1e-5
        assert about["inputs"][-1] == {"name": "foregone", "dtype": "float32", "shape": [3, 2]}
        assert "target_return, foregone, *state" in about["use"]


@pytest.mark.parametrize("name", list(READ))
def test_a_ledger_that_is_read_without_a_bias(name: str, tmp_path: Path) -> None:
    """ledger-odt: what only a bias reads is no part of the state."""
    env = gymnasium.make("Pendulum-v1")
    policy = make_policy(env, method="ledger-odt", accounts=READ[name], context_length=5, layers=1)
    assert play_beside(policy, env, tmp_path, -200.0, steps=60)[0] <= 1e-5
    state = set(ActingStep(policy, 1).state_names)
    of_windows = {"payoffs", "codes", "account_mask"}
    assert state & {*of_windows, "attractions", "weights", "balances", "ledger_attractions"} == (
        of_windows if name == "window" else {"balances", "ledger_attractions"}
    )


def test_the_check_notices_a_program_that_does_something_else(tmp_path: Path) -> None:
    """Posting nothing to the ledger is seen, and nothing is left behind."""
    policy = make_policy(gymnasium.make("Pendulum-v1"), accounts=Accounts(beta=3.0), context_length=5)
    step = ActingStep(policy, 2)

    def forgetful(inputs: list[np.ndarray]) -> list[np.ndarray]:
        with torch.no_grad():
            found = step(*(torch.from_numpy(np.asarray(value)) for value in inputs))
        names = ("action", *step.state_names)
        arrays = {name: value.numpy() for name, value in zip(names, found, strict=True)}
        arrays["attractions"] = np.zeros_like(arrays["attractions"])
        return list(arrays.values())

    def faithful(inputs: list[np.ndarray]) -> list[np.ndarray]:
        with torch.no_grad():
            return [value.numpy() for value in step(*(torch.from_numpy(np.asarray(value)) for value in inputs))]

    assert largest_difference(policy, 2, forgetful) > 1e-4
    assert largest_difference(policy, 2, faithful) == 0


def test_wide_actions_are_held_to_their_own_scale(tmp_path: Path) -> None:
    pendulum = gymnasium.make("Pendulum-v1")
    wide = gymnasium.wrappers.TransformAction(
        pendulum, lambda action: action / 2500 - 1, gymnasium.spaces.Box(0, 5000, (1,), np.float32)
    )
    about = export_policy(make_policy(wide, context_length=5), tmp_path, "onnx")
    assert about["checked"]["largest_difference_of_actions"] <= 1e-5


def test_a_program_that_differs_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    policy = make_policy(gymnasium.make("Pendulum-v1"), method="odt")
    monkeypatch.setattr("mental_accounts.export.programs.largest_difference", lambda *_: 0.1)
    with pytest.raises(UsageError, match=r"differs from policy\.act by 0\.1 over 200 steps.*was not written"):
        export_policy(policy, tmp_path, "torch-export")
    assert list(tmp_path.iterdir()) == []


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run"
    policy = make_policy(gymnasium.make("Pendulum-v1"), context_length=5)
    policy.save(folder / "policy")
    settings = replace(PRESETS["quick"], task=None, env_id="Pendulum-v1")
    (folder / "config.json").write_text(json.dumps({"config": settings.to_dict()}))
    (folder / "task.json").write_text(json.dumps(FACTS))
    return folder


def test_the_command_and_the_ten_lines(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", str(run), "--format", "onnx", "--num-envs", "2"]) == 0
    out = capsys.readouterr().out
    assert "policy.onnx" in out
    assert "the same actions as the policy's to" in out
    about = json.loads((run / "export" / "policy.onnx.json").read_text())
    assert (about["env_id"], about["target_return"], about["num_envs"]) == ("Pendulum-v1", -200.0, 2)
    (run / "task.json").write_text(json.dumps(FACTS | {"target_return": None}))  # from scratch: as it was evaluated
    (run / "metrics.jsonl").write_text('{"evaluation/target_return": -77.0}\n')
    assert main(["export", str(run), "--format", "torch-export"]) == 0
    assert json.loads((run / "export" / "policy.pt2.json").read_text())["target_return"] == -77.0
    assert "how_to_run_torch" not in about
    lines = about["how_to_run_onnx"]
    assert len(lines) == 10
    script = [
        "import sys",
        *lines,
        "made = []",
        "for t in range(8):",
        "    made.append(act(np.full((2, 3), 0.1 * t, 'float32'), -200.0).tolist())",
        "    answer.update(reward=np.full(2, -1.0, 'float32'), ended=np.array([False, t == 4]))",
        "assert not any(name.split('.')[0] in ('torch', 'mental_accounts') for name in sys.modules)",
        "print(json.dumps(made))",
    ]
    check_same_actions(run, script)


def check_same_actions(run: Path, script: list[str]) -> None:
    """Whether a program, run by itself, prints the actions of the run's policy."""
    done = subprocess.run(
        [sys.executable, "-c", "\n".join(script)], cwd=run / "export", capture_output=True, text=True, check=True
    )
    policy = ma.DecisionTransformer.load(run / "policy")
    context = policy.context(2, -200.0)
    for t, theirs in enumerate(json.loads(done.stdout)):
        ours = policy.act(np.full((2, 3), 0.1 * t, np.float32), context)
        assert np.abs(ours - np.array(theirs)).max() <= 1e-5
        context.record(np.full(2, -1.0), np.array([False, t == 4]))


def test_how_to_run_it_with_pytorch_alone(run: Path) -> None:
    assert main(["export", str(run), "--num-envs", "2", "--format", "torch-export"]) == 0
    about = json.loads((run / "export" / "policy.pt2.json").read_text())
    assert "how_to_run_onnx" not in about
    script = [
        "import sys",
        *about["how_to_run_torch"],
        "made = []",
        "for t in range(8):",
        "    made.append(act(torch.full((2, 3), 0.1 * t), -200.0).tolist())",
        "    answer.update(reward=torch.full((2,), -1.0), ended=torch.tensor([False, t == 4]))",
        "assert not any(name.startswith('mental_accounts') for name in sys.modules)",
        "print(json.dumps(made))",
    ]
    check_same_actions(run, script)


def test_the_command_takes_a_bare_policy(run: Path, tmp_path: Path) -> None:
    arguments = ["export", str(run / "policy"), "--format", "torch-export", "--output", str(tmp_path / "there")]
    assert main(arguments) == 0
    assert {path.name for path in (tmp_path / "there").iterdir()} == {"policy.pt2", "policy.pt2.json"}


class TestBadInput:
    def test_no_folder_and_no_policy(self, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        assert main(["export", str(tmp_path / "nothing")]) == 2
        assert "does not exist; give the folder of a run" in capsys.readouterr().err
        assert main(["export", str(tmp_path)]) == 2
        assert "holds no policy: policy.json is missing" in capsys.readouterr().err

    def test_a_run_without_a_policy_yet(self, run: Path, capsys: pytest.CaptureFixture[str]) -> None:
        (run / "policy").rename(run / "elsewhere")
        assert main(["export", str(run)]) == 2
        assert "the run has not written its first checkpoint yet" in capsys.readouterr().err

    def test_a_format_that_nobody_knows(self, tmp_path: Path) -> None:
        policy = make_policy(gymnasium.make("Pendulum-v1"), method="odt")
        with pytest.raises(UsageError, match="format must be one of"):
            export_policy(policy, tmp_path, "pickle")  # type: ignore[arg-type]
        with pytest.raises(ValueError, match="num_envs must be at least 1"):
            export_policy(policy, tmp_path, "torch-export", num_envs=0)

    def test_a_missing_extra(
        self, run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        def missing(name: str, purpose: str) -> None:
            raise ImportError(f"{purpose} needs {name}")

        monkeypatch.setattr("mental_accounts.export.programs.check_library", missing)
        assert main(["export", str(run), "--format", "onnx"]) == 2
        assert "exporting to ONNX needs onnx" in capsys.readouterr().err
