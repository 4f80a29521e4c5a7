"""Values on the inspection page: those of the critics, against the returns that came."""

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mental_accounts.cli import main
from mental_accounts.config import TrainConfig
from mental_accounts.data.windows import WindowSampler
from mental_accounts.inspect.inspect_page import to_page
from mental_accounts.inspect.inspect_summary import findings, numbers
from mental_accounts.inspect.recording import record
from mental_accounts.learning.critic_files import FILE, PolicyCritics
from mental_accounts.learning.critics import inputs_of
from mental_accounts.learning.episodes import Episode, as_trajectories
from mental_accounts.learning.evaluation import Subject
from mental_accounts.learning.value_measures import overestimation
from mental_accounts.learning.values import ValueLearner
from mental_accounts.policy import DecisionTransformer
from mental_accounts.policy_options import PolicyConfig
from mental_accounts.value_options import ValueConfig
from tests.inspect.recordings import NO_FILM, config, critics, episode, recording
from tests.learning.conftest import make_aim
from tests.learning.cut_runs import start
from tests.policy.helpers import DISCRETE, make_policy

KINDS: dict[str, PolicyConfig] = {
    "odt": config(method="odt"),
    "bias": config(),
    "short context": config(eval_context_length=2),
    "discrete": config(action=DISCRETE),
    "ledger": config({"ledger_input": "state"}),
    "ledger, window": config({"beta": 0.05, "account_scope": "window"}, method="ledger-odt"),
    "ledger and rewards": config({"beta": 0.05}, method="ledger-odt", reward_input="state"),
}


def step_by_step(policy: DecisionTransformer, held: PolicyCritics, played: Episode) -> np.ndarray:
    """Q₁ and Q₂ of every step in the environment's units, (2, T), from a context that is led through the episode."""
    context, found = policy.context(1, 50.0), []
    for seen, action, reward in zip(played.observations, played.actions, played.rewards, strict=True):
        context.observe(seen[None])
        x = policy.step_features(context.window())[0, -1]
        unit = policy.action_scale.to_unit(torch.as_tensor(action)[None])[0]
        discrete = policy.config.action.is_discrete
        both = held.critics(x)[:, unit] if discrete else held.critics(inputs_of(policy, x, unit))[:, 0]
        found.append(both.detach().numpy() * held.reward_scale)
        context.actions[:, -1] = torch.as_tensor(action)
        context.record(np.array([reward]), np.array([False]))
    return np.array(found).T


@pytest.mark.parametrize("terminated", [True, False])
@pytest.mark.parametrize("kind", KINDS)
def test_values_returns_and_errors_are_those_of_the_textbook(kind: str, terminated: bool) -> None:
    policy = make_policy(KINDS[kind])
    held, played = critics(policy), replace(episode(policy, 30), terminated=terminated, truncated=not terminated)
    [seen] = record(Subject(policy, "Made-up-v0", 50.0, None), recorded=[played], critics=held).episodes
    both, r, told = step_by_step(policy, held, played), played.rewards.astype(float), seen.values
    assert told is not None
    np.testing.assert_allclose(told.values, both[0], rtol=1e-4, atol=1e-4)
    assert told.values.std() > 0.01
    for t in range(30):
        came = sum(0.9 ** (k - t) * r[k] for k in range(t, 30 if terminated else 29))
        came += 0.0 if terminated else 0.9 ** (29 - t) * both[0, 29]
        assert told.discounted_returns[t] == pytest.approx(came, abs=1e-4)
        assert told.overestimation[t] == pytest.approx(both[0, t] - came, abs=2e-4)
        if t < 29 or terminated:
            target = r[t] + (0.9 * both[:, t + 1].min() if t < 29 else 0.0)
            assert told.td_errors[t] == pytest.approx(target - both[0, t], abs=2e-4)
    assert np.isnan(told.td_errors[29]) != terminated


def test_the_gap_is_the_one_that_training_logs() -> None:
    policy = make_policy(KINDS["ledger and rewards"])
    options = TrainConfig(
        task=None, env_id="none", method="ledger-odt", improve="td3", values=ValueConfig(discount=0.9)
    )
    values = ValueLearner(policy, replace(options, values=replace(options.values, reward_scale=4.0)))
    played = [replace(episode(policy, T, T), terminated=T > 9, truncated=T <= 9) for T in (9, 20)]
    store = as_trajectories(played)
    assert policy.accounts is not None
    store.annotate_by(policy.accounts.books, policy.action_scale.to_unit, balances=True)
    sampler = WindowSampler(store, 4, policy.config.context_length, torch.Generator(), previous_rewards=True)
    logged = overestimation(values, sampler, 2)["values/overestimation"]
    subject, held = Subject(policy, "Made-up-v0", 50.0, None), PolicyCritics(values.critics, 0.9, 4.0)
    found = record(subject, 2, recorded=played, critics=held)
    gaps = [seen.values.overestimation for seen in found.episodes if seen.values is not None]
    assert np.concatenate(gaps).mean() == pytest.approx(logged, rel=1e-4)


@pytest.mark.parametrize("kind", ["odt", "bias", "ledger and rewards"])
def test_pages_and_numbers_have_values_where_there_are_critics(kind: str) -> None:
    plain, found = recording(KINDS[kind]), recording(KINDS[kind], with_critics=True)
    without, page = to_page(plain, [NO_FILM] * 2), to_page(found, [NO_FILM] * 2)
    for words in ('<canvas id="values"', "valueLines", "γ = 0.9", "critics' values are on"):
        assert words not in without
    for words in ('<canvas id="values"', "valueLines", "(γ = 0.9)", "critics&#x27; values are on average "):
        assert words in page
    assert "<!--" not in page
    told = json.loads(json.dumps(numbers(found), allow_nan=False))
    assert told["discount"] == 0.9
    assert told["episodes"][1]["td_errors"][-1] is None
    for seen, episode_told in zip(found.episodes, told["episodes"], strict=True):
        assert seen.values is not None
        for name in ("values", "discounted_returns", "overestimation"):
            np.testing.assert_allclose(episode_told[name], getattr(seen.values, name), rtol=2e-6)
    bare = numbers(plain)
    assert "discount" not in bare
    assert not {"values", "td_errors", "overestimation"} & set(bare["episodes"][0])


def test_findings_say_how_far_values_are_off() -> None:
    found = recording(KINDS["bias"], with_critics=True)
    seen = found.episodes[0]
    assert seen.values is not None
    said, gap = findings(found, seen), seen.values.overestimation
    assert said[:-1] == findings(found, replace(seen, values=None))
    step = int(np.abs(gap).argmax())
    assert f" {abs(gap.mean()):.3g} {'below' if gap.mean() < 0 else 'above'} the discounted returns" in said[-1]
    assert f"most at step {step}: " in said[-1]
    assert "the mean absolute TD error is" in said[-1]
    [short] = recording(KINDS["bias"], (1,), with_critics=True).episodes  # cut off at once: nothing to compare with
    assert short.values is not None
    assert findings(found, short)[-1].endswith(" came.")
    assert short.values.overestimation.tolist() == [0.0]


# Runs.


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("values")
    with pytest.MonkeyPatch.context() as patch:
        aim = make_aim(folder, patch)
        small = replace(aim, improve="td3", pretrain_iterations=1, online_iterations=1, updates_per_iteration=2)
        start(small.for_method("ledger-odt"), folder / "run").run()
        yield folder / "run"


def test_a_run_that_improves_is_inspected_with_its_values(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", str(run), "--pictures", "0", "--episodes", "1"]) == 0
    assert "the discounted returns that came, on average" in capsys.readouterr().out
    assert '<canvas id="values"' in (run / "inspect.html").read_text()


def test_bad_critics_are_refused_and_none_are_fine(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    good = (run / FILE).read_bytes()
    try:
        (run / FILE).write_bytes(good[:-30])
        assert main(["inspect", str(run), "--pictures", "0"]) == 2
        [said] = capsys.readouterr().err.splitlines()
        assert said.startswith(f"error: {run / FILE}: not a whole safetensors file")
        (run / FILE).unlink()
        assert main(["inspect", str(run), "--pictures", "0", "--episodes", "1"]) == 0
        assert '<canvas id="values"' not in (run / "inspect.html").read_text()
    finally:
        (run / FILE).write_bytes(good)
