"""Inspecting: the numbers are those of acting, and they obey the method."""

import json
import re
import shutil
from pathlib import Path
from typing import Any, ClassVar

import gymnasium
import numpy as np
import pytest
import torch

from mental_accounts.accounts import Entry
from mental_accounts.action_spec import ActionSpec
from mental_accounts.cli import main
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.errors import UsageError
from mental_accounts.inspect.camera import film_episode
from mental_accounts.inspect.episode_accounts import MOST_CODES
from mental_accounts.inspect.inspect_page import film_recording, to_page
from mental_accounts.inspect.inspect_summary import findings, numbers, usage
from mental_accounts.inspect.recording import Recording, record
from mental_accounts.learning.episodes import Episode, as_trajectories
from mental_accounts.learning.evaluation import Subject, environment_seed, evaluate_policy, read_subject
from mental_accounts.learning.run_folder import RunFolder
from mental_accounts.policy import DecisionTransformer
from mental_accounts.policy.attention_probe import attention_of
from mental_accounts.policy_options import PolicyConfig
from tests.inspect.recordings import NARROW, NO_FILM, config, episode, recording
from tests.learning.tiny_env import ENV_ID
from tests.policy.helpers import DISCRETE, make_policy
from tests.report.made_studies import write_study

KINDS: dict[str, PolicyConfig] = {
    "grid": config(),
    "window": config({"account_scope": "window"}),
    "now": config({"read": "now"}),
    "short context": config(eval_context_length=3),
    "one step": config({"account_scope": "window"}, eval_context_length=1),
    "product": config({"codebook": "product", "groups": 2}),
    "product, window, now": config({"codebook": "product", "account_scope": "window", "read": "now"}),
    "canonical": config({"rule": "canonical"}),
    "canonical, window": config({"rule": "canonical", "account_scope": "window"}),
    "k-means": config({"codebook": "kmeans", "num_codes": 7}),
    "discrete": config(action=DISCRETE),
    "clipped": config({"bias_clip": 0.1, "reward_clip": None}),
    "β by layer and head": config({"beta_learned": True, "beta_per": "layer-head"}),
    "discounted": config(gamma=0.9),
    "ledger state": config({"ledger_input": "state"}),
    "ledger, window": config({"ledger_input": "state", "account_scope": "window"}),
    "soft": config({"soft_codes": 3}),
    "soft, window": config({"soft_codes": 2, "account_scope": "window", "ledger_input": "state"}),
    "hierarchical": config({"codebook": "hierarchical", "bins": 4}),
    "states and baseline": config({"state_codes": 2, "credit": "advantage", "ledger_input": "state"}),
    "β by token": config({"beta_per": "token", "beta_learned": True}),
    "window, short context": config({"account_scope": "window", "ledger_input": "state"}, eval_context_length=2),
    "canonical, window, now": config(
        {"rule": "canonical", "account_scope": "window", "read": "now"}, eval_context_length=2
    ),
    "rewards and a range": config(reward_input="state", return_range=(0.5, 2.0)),
    "rewards above a baseline": config(reward_input="advantage"),
    "ledger-odt": config({"beta": 0.05}, method="ledger-odt"),
    "ledger-odt, window": config({"beta": 0.05, "account_scope": "window"}, method="ledger-odt", eval_context_length=2),
    "odt": config(method="odt"),
}
with_kinds = pytest.mark.parametrize("kind", KINDS)
with_accounts = pytest.mark.parametrize("kind", [name for name, made in KINDS.items() if made.has_accounts])
with_bias = pytest.mark.parametrize("kind", [name for name, made in KINDS.items() if made.has_bias])


def live(policy: DecisionTransformer, played: Episode, target: float) -> tuple[np.ndarray, np.ndarray]:
    """Logits and bias of the last row at every step, from a context that is led through the episode step by step."""
    context, logits, bias = policy.context(1, target), [], []
    for seen, action, reward in zip(played.observations, played.actions, played.rewards, strict=True):
        context.observe(seen[None])
        layers = attention_of(policy, context.window())
        logits.append(torch.stack([layer.logits[0, :, -1] for layer in layers]))
        bias.append(torch.stack([layer.bias[0, :, -1].expand(logits[-1].shape[1:]) for layer in layers]))
        context.actions[:, -1] = torch.as_tensor(action)
        context.record(np.array([reward]), np.array([False]))
    return torch.stack(logits).numpy(), torch.stack(bias).numpy()


@with_kinds
def test_what_is_recorded_is_what_acting_sees(kind: str) -> None:
    policy = make_policy(KINDS[kind])
    if KINDS[kind].has_bias and policy.accounts.scale.beta.ndim:
        with torch.no_grad():
            policy.accounts.scale.beta.copy_(torch.rand_like(policy.accounts.scale.beta))
    played = episode(policy, 30)
    [seen] = record(Subject(policy, "Made-up-v0", 50.0, None), recorded=[played]).episodes
    logits, bias = live(policy, played, 50.0)
    np.testing.assert_array_equal(np.isinf(seen.logits), np.isinf(logits))
    there = ~np.isinf(logits)
    np.testing.assert_allclose(seen.logits[there], logits[there], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(np.where(there, seen.bias, 0), np.where(there, bias, 0), rtol=1e-4, atol=1e-5)
    assert (np.abs(seen.bias[~there]) == 0).all()


@with_bias
def test_attention_without_bias_plus_bias_renormalised_is_attention_with_bias(kind: str) -> None:
    for seen in recording(KINDS[kind]).episodes:
        plus = seen.attention_without * np.exp(seen.bias.astype(np.float64))
        np.testing.assert_allclose(plus / plus.sum(axis=-1, keepdims=True), seen.attention_with, atol=1e-12)
        moved = np.abs(seen.attention_with - seen.attention_without).sum(axis=-1) / 2
        np.testing.assert_allclose(moved, seen.drift, atol=1e-12)
        assert (seen.drift <= seen.sharp_bound + 1e-12).all()
        assert (seen.sharp_bound <= seen.size_bound + 1e-12).all()
        assert (seen.size_bound <= seen.paper_bound + 1e-12).all()
        if policy_context(kind) > 1:
            assert seen.drift.max() > 1e-3


def policy_context(kind: str) -> int:
    return KINDS[kind].acting_context


@with_accounts
def test_balances_are_those_of_a_ledger_kept_by_hand(kind: str) -> None:
    policy = make_policy(KINDS[kind])
    assert policy.accounts is not None
    played, cfg = episode(policy, 30), KINDS[kind].accounts
    found = record(Subject(policy, "Made-up-v0", 50.0, None), recorded=[played])
    held = found.episodes[0].accounts
    assert held is not None
    assert found.codes is not None
    states = torch.from_numpy(played.observations)
    entry = policy.accounts.books.route_step(policy.action_scale.to_unit(torch.from_numpy(played.actions)), states)
    codes = entry.codes.reshape(30, -1).numpy()
    shares = np.ones(codes.shape) if entry.weights is None else entry.weights.numpy()
    np.testing.assert_array_equal(held.codes, codes)
    payoffs = policy.accounts.books.payoffs(torch.from_numpy(played.rewards), states).double().numpy()
    posts = KINDS[kind].account_window - 1 if cfg.account_scope == "window" else 30
    for t in range(30):
        balances, N = np.zeros(policy.accounts.books.num_codes), 1.0
        for step in range(max(0, t - posts + 1), t + 1):
            if cfg.rule == "canonical":
                balances *= (1 - cfg.phi) * N
                balances[codes[step]] += payoffs[step] * shares[step]
                N = (1 - cfg.rho) * N + 1
                balances /= N
            else:
                balances *= 1 - cfg.phi
                balances[codes[step]] += cfg.delta * payoffs[step] * shares[step]
        np.testing.assert_allclose(held.balances[t], balances, atol=1e-4)


def test_a_traced_balance_is_that_of_the_posted_code() -> None:
    policy = make_policy(KINDS["grid"])
    assert policy.accounts is not None
    played = episode(policy, 50)
    held = record(Subject(policy, "Made-up-v0", 50.0, None), recorded=[played]).episodes[0].accounts
    assert held is not None
    codes, rewards = torch.from_numpy(held.codes[:, 0]), torch.from_numpy(played.rewards)
    own, books = held.balances[np.arange(50), held.codes[:, 0]], policy.accounts.books
    np.testing.assert_allclose(own, books.trace(Entry(codes[None]), books.payoffs(rewards[None]))[0], atol=1e-5)


@pytest.mark.parametrize("env_id", [ENV_ID, "CartPole-v1"])
def test_the_episodes_are_those_of_evaluate(env_id: str) -> None:
    action = ActionSpec("discrete", 2) if env_id.startswith("Cart") else ActionSpec("box", 1, (-1.0,), (1.0,))
    policy = make_policy(config(action=action, state_dim=4 if env_id.startswith("Cart") else 1))
    subject = Subject(policy, env_id, 5.0, None)
    result, first = evaluate_policy(subject, 2, seed=3)
    found = record(subject, 2, seed=3)
    np.testing.assert_array_equal(found.episodes[0].actions, first.actions)
    np.testing.assert_array_equal(found.episodes[0].observations, first.observations)
    assert [seen.total for seen in found.episodes] == result["returns"]
    asked = 5.0 - np.concatenate([[0.0], np.cumsum(first.rewards)[:-1]])
    np.testing.assert_allclose(found.episodes[0].returns_to_go, asked, rtol=1e-4)


def test_codes_stand_for_actions_in_the_units_of_the_environment() -> None:
    found = recording(config()).codes
    assert found is not None
    np.testing.assert_allclose(found.centers[0], NARROW.low)
    np.testing.assert_allclose(found.centers[13], [0.0, 0.5, 0.0])
    np.testing.assert_allclose(found.centers[26], NARROW.high)
    assert found.cube is not None
    assert found.cube_dimensions == (0, 1, 2)
    assert found.cube[2, 1, 0] == 2 * 9 + 1 * 3 + 0
    six = ActionSpec("box", 6, (-1.0,) * 6, (1.0,) * 6)
    walker = recording(config(action=six)).codes  # 27 of 3**6 cells: they differ in three dimensions
    assert walker is not None
    assert walker.cube is not None
    assert (np.sort(walker.cube.ravel()) == np.arange(27)).all()
    product = recording(config({"codebook": "product", "groups": 2})).codes
    assert product is not None
    assert product.cube is None
    np.testing.assert_allclose(product.centers[0], [-2.0, 0.0, np.nan])
    np.testing.assert_allclose(product.centers[9:], [[np.nan, np.nan, x] for x in (-1.0, 0.0, 1.0)])
    discrete = recording(config(action=DISCRETE)).codes
    assert discrete is not None
    assert discrete.centers.ravel().tolist() == [1, 2, 3]


def test_routing_error_is_the_distance_to_the_centre() -> None:
    found = recording(config())
    assert found.codes is not None
    for seen in found.episodes:
        assert seen.accounts is not None
        half = (np.array(NARROW.high) - np.array(NARROW.low)) / 2
        away = (seen.actions - found.codes.centers[seen.accounts.codes[:, 0]]) / half
        np.testing.assert_allclose(seen.accounts.routing_error, np.linalg.norm(away, axis=1), atol=1e-5)
    for seen in recording(config(action=DISCRETE)).episodes:
        assert seen.accounts is not None
        assert (seen.accounts.routing_error == 0).all()


def test_a_large_codebook_keeps_the_codes_that_were_posted() -> None:
    seven = ActionSpec("box", 7, (-1.0,) * 7, (1.0,) * 7)
    found = recording(config({"num_codes": None}, action=seven))
    assert found.codes is not None
    assert found.codes.total == 3**7
    assert len(found.codes.numbers) <= MOST_CODES
    posted = np.concatenate([seen.accounts.codes.ravel() for seen in found.episodes if seen.accounts])
    assert set(found.codes.numbers) == set(posted)
    assert usage(found).posts.sum() == len(posted)


def test_usage_counts_posts_and_pay() -> None:
    found = recording(config())
    used = usage(found)
    codes = np.concatenate([seen.accounts.codes[:, 0] for seen in found.episodes if seen.accounts])
    rewards = np.concatenate([seen.rewards for seen in found.episodes])
    for code in range(27):
        assert used.posts[code] == (codes == code).sum()
        if used.posts[code]:
            assert used.mean_reward[code] == pytest.approx(rewards[codes == code].mean(), rel=1e-5)
    assert np.isnan(used.mean_reward[used.posts == 0]).all()


def test_findings_name_peaks_and_the_clip() -> None:
    found = recording(KINDS["clipped"])
    seen = found.episodes[0]
    assert seen.accounts is not None
    said = findings(found, seen)
    step, code = np.unravel_index(seen.accounts.balances.argmax(), seen.accounts.balances.shape)
    assert f"code {code} (" in said[2]
    assert f"at step {step};" in said[2]
    assert f"Drift peaked at step {np.unravel_index(seen.drift.argmax(), seen.drift.shape)[0]}, " in said[4]
    assert np.abs(seen.bias).max() == pytest.approx(0.1)
    at_clip = np.flatnonzero((np.abs(seen.bias) >= 0.0999999).any(axis=(1, 2, 3)))
    assert said[5] == f"The bias hit its clip of 0.1 at {len(at_clip)} of 40 steps, first at step {at_clip[0]}."
    assert "has no clip" in findings(recording(config()), recording(config()).episodes[0])[5]
    never = recording(config({"bias_clip": 100.0}))
    assert "never hit its clip" in findings(never, never.episodes[0])[5]


def test_names_of_tokens() -> None:
    found = recording(config(eval_context_length=2))
    assert found.tokens(7) == ["R_6", "s_6", "a_6", "R_7", "s_7"]
    assert found.tokens(0) == ["", "", "", "R_0", "s_0"]


@with_kinds
def test_numbers_are_plain_json_and_equal_the_arrays(kind: str) -> None:
    found = recording(KINDS[kind], (12,))
    told = json.loads(json.dumps(numbers(found), allow_nan=False))["episodes"][0]
    seen = found.episodes[0]
    names = ["observations", "actions", "rewards", "returns_to_go", "logits", "attention_without"]
    names += ["bias", "attention_with", "drift", "sharp_bound", "paper_bound"] if found.has_bias else []
    for name in names:
        array = np.array(told[name], dtype=float)
        expected = getattr(seen, name)
        np.testing.assert_allclose(array, np.where(np.isinf(expected), np.nan, expected), rtol=2e-6, atol=1e-12)
    assert ("drift" in told) == KINDS[kind].has_bias
    assert ("balances" in told) == KINDS[kind].has_accounts
    if seen.accounts is not None:
        np.testing.assert_allclose(told["balances"], seen.accounts.balances, rtol=2e-6)
        np.testing.assert_array_equal(told["codes"], seen.accounts.codes)


def test_a_policy_without_accounts_gets_a_page_that_says_why() -> None:
    page = to_page(recording(KINDS["odt"]), [NO_FILM] * 2)
    assert "keeps no accounts (its method is odt)" in page
    for figure in ("heat", "cube", "traces", "drift", "histogram", "usage", "error"):
        assert f'<canvas id="{figure}"' not in page
    for figure in ("states", "rewards", "attention"):
        assert f'<canvas id="{figure}"' in page


def test_a_policy_that_reads_its_ledger_gets_a_page_without_a_bias() -> None:
    found = recording(KINDS["ledger-odt"])
    page = to_page(found, [NO_FILM] * 2)
    assert "No bias is added: this policy reads its ledger." in page
    assert "There is no bias on the attention, and so no drift: this policy reads its ledger" in page
    assert "Drift peaked" not in page
    for figure in ("drift", "histogram"):
        assert f'<canvas id="{figure}"' not in page
    for figure in ("states", "cube", "heat", "traces", "attention", "usage", "error"):
        assert f'<canvas id="{figure}"' in page
    assert "<!-- bias -->" not in to_page(recording(KINDS["grid"]), [NO_FILM] * 2)
    assert not any(seen.bias.any() for seen in found.episodes)


def test_text_is_escaped() -> None:
    nasty = "</script><script>alert(1)</script><!--{{data}}&amp;"
    page = to_page(recording(config(), env_id=nasty), [NO_FILM] * 2)
    assert "alert(1)</script>" not in page
    assert "<!--" not in page
    assert page.count("<script") == page.count("</script>") == 2
    assert "{{data}}" in page  # as text, not filled in again


# Commands.


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    make_policy(config(action=ActionSpec("box", 1, (-1.0,), (1.0,)), state_dim=1)).save(tmp_path / "policy")
    return tmp_path / "policy"


def test_behaviour_cloning_has_nothing_to_look_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    make_policy(config(method="bc", state_dim=1, action=ActionSpec("box", 1, (-1.0,), (1.0,)))).save(tmp_path)
    assert inspect(tmp_path) == 2
    assert capsys.readouterr().err.startswith(
        "error: a policy of method bc has no attention and no accounts to inspect"
    )


def inspect(saved: Path, *more: str) -> int:
    return main(["inspect", str(saved), "--env-id", ENV_ID, "--target-return", "5", *more])


def test_the_command_writes_a_page_with_pictures(
    saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inspect(saved, "--episodes", "2", "--out", str(tmp_path / "a b" / "page.html")) == 0
    page = (tmp_path / "a b" / "page.html").read_text()
    assert f"on {ENV_ID}" in page
    assert '"pictures":["/9j/' in page  # a JPEG in base64
    said = capsys.readouterr()
    assert "Drift peaked" in said.out
    assert "page: " in said.out
    assert said.err == ""


def test_the_command_prints_json(saved: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect(saved, "--episodes", "2", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert len(told["episodes"]) == 2
    assert np.array(told["episodes"][0]["drift"]).shape == (10, 2, 2)
    assert not (saved / "inspect.html").exists()


def test_the_command_reads_recorded_episodes(saved: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    played = [episode(DecisionTransformer.load(saved), T, T) for T in (7, 9, 5)]
    as_trajectories(played).save(tmp_path / "episodes.safetensors")
    assert inspect(saved, "--recorded", str(tmp_path / "episodes.safetensors"), "--episodes", "2", "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert [len(seen["rewards"]) for seen in told["episodes"]] == [7, 9]
    np.testing.assert_allclose(told["episodes"][1]["actions"], played[1].actions, rtol=1e-5)
    assert told["source"] == "recorded"
    assert inspect(saved, "--recorded", str(tmp_path / "episodes.safetensors")) == 0
    assert "recorded episodes cannot be replayed" in (saved / "inspect.html").read_text()


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (["--episodes", "0"], "episodes must be at least 1"),
        (["--recorded", "none.safetensors"], "none.safetensors"),
        (["--device", "abacus"], "device must be auto, cpu or cuda"),
    ],
)
def test_bad_input_is_one_line(saved: Path, more: list[str], expected: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect(saved, *more) == 2
    said = capsys.readouterr().err
    assert expected in said
    assert len(said.splitlines()) == 1


def test_recorded_episodes_of_another_kind_are_refused() -> None:
    subject = Subject(make_policy(config()), "Made-up-v0", 5.0, None)
    others = [episode(make_policy(config(state_dim=9)), 5)]
    with pytest.raises(UsageError, match=r"observations and actions of shape \(4,\) and \(3,\), they have \(9,\)"):
        record(subject, recorded=others)
    with pytest.raises(UsageError, match="no recorded episode"):
        record(subject, recorded=[])
    stored = as_trajectories([episode(make_policy(config()), 5)])
    assert isinstance(stored, Trajectories)
    assert len(record(subject, 3, recorded=stored).episodes) == 1


# Pictures.


class Unseen(gymnasium.Env[Any, Any]):
    """An environment that cannot be rendered."""

    observation_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    action_space = gymnasium.spaces.Box(-1, 1, (1,), np.float32)


class Unasked(Unseen):
    """One that says it renders, but cannot be told how."""

    metadata: ClassVar[dict[str, Any]] = {"render_modes": ["rgb_array"]}


def test_a_missing_renderer_is_no_failure(tmp_path: Path) -> None:
    film = film_episode("No-such-environment-v0", 0, np.zeros((3, 1)), np.zeros((3, 1)), 3)
    assert film.pictures == ()
    assert "No-such-environment" in film.problem
    gymnasium.register("Unseen-v0", Unseen)  # here, so that the process with the camera does not know it
    policy = make_policy(config(action=ActionSpec("box", 1, (-1.0,), (1.0,)), state_dim=1))
    found = record(Subject(policy, "Unseen-v0", 5.0, None), recorded=[episode(policy, 8)])
    played = Recording(**{**vars(found), "source": "played"})
    [film] = film_recording(played, 0, 10)
    assert film.problem
    assert "No frames: " in to_page(played, [film])


@pytest.mark.parametrize(
    ("env_id", "why"),
    [
        ("tests.inspect.test_inspect:Unseen", "does not render (no rgb_array in metadata['render_modes'])"),
        ("tests.inspect.test_inspect:Unasked", "does not render (its class takes no render_mode)"),
    ],
)
def test_why_there_are_no_frames_is_said_without_internals(env_id: str, why: str) -> None:
    film = film_episode(env_id, 0, np.zeros((3, 1)), np.zeros((3, 1)), 3)
    assert film.problem == f"this environment {why}"


def test_an_episode_that_does_not_come_again_is_not_filmed() -> None:
    policy = make_policy(config(action=ActionSpec("box", 1, (-1.0,), (1.0,)), state_dim=1))
    [seen] = record(Subject(policy, ENV_ID, 5.0, None)).episodes
    film = film_episode(ENV_ID, environment_seed(0, 0), seen.observations, seen.actions, 4)
    assert film.steps == (0, 3, 6, 9)
    assert all(picture.startswith(b"\xff\xd8") for picture in film.pictures)
    other = film_episode(ENV_ID, environment_seed(1, 0), seen.observations, seen.actions, 4)
    assert "is not reproducible from its seed: step 0 differs" in other.problem
    assert film_episode(ENV_ID, 0, seen.observations, seen.actions, 0).problem


# Reports.


def test_a_report_links_one_inspected_episode_per_method_and_task(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    study = write_study(tmp_path, lambda *_: 1.0, seeds=2)
    for job in study.jobs:
        box = ActionSpec("box", 1, (-1.0,), (1.0,))
        make_policy(config(action=box, state_dim=1, method=job.arm.method)).save(job.path / "policy")
        facts = {"env_id": ENV_ID, "target_return": 5.0, "expert_return": None, "random_return": None}
        RunFolder(job.path).write_task(facts)
    assert main(["report", str(tmp_path)]) == 0
    report = (tmp_path / "report.html").read_text()
    for method, words in (("odt", "keeps no accounts"), ("ewa-vq-odt", "Mental accounts: ")):
        assert f'<a href="inspect/hopper-medium-{method}-seed-0.html">' in report
        assert words in (tmp_path / "inspect" / f"hopper-medium-{method}-seed-0.html").read_text()
    assert "could be inspected" not in report
    pages = {page: page.read_bytes() for page in (tmp_path / "inspect").iterdir()}
    capsys.readouterr()
    shutil.rmtree(study.jobs[0].path / "policy")  # left on another machine: the page stays
    assert main(["report", str(tmp_path)]) == 0
    assert "inspecting" not in capsys.readouterr().err
    assert {page: page.read_bytes() for page in (tmp_path / "inspect").iterdir()} == pages
    assert (tmp_path / "report.html").read_text().count('<a href="inspect/') == 2
    with (study.jobs[1].path / "metrics.jsonl").open("a") as file:  # another run since: another page
        file.write((study.jobs[1].path / "metrics.jsonl").read_text().splitlines()[-1] + "\n")
    assert main(["report", str(tmp_path)]) == 0
    assert f"inspecting an episode: hopper-medium {study.jobs[1].arm.label}" in capsys.readouterr().err


def test_runs_without_a_policy_are_a_warning_of_the_report(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_study(tmp_path, lambda *_: 1.0, seeds=2)
    assert main(["report", str(tmp_path)]) == 0
    report = (tmp_path / "report.html").read_text()
    assert report.count("no episode could be inspected") == 2
    assert "Inspected episodes" not in report


def test_a_run_folder_is_enough(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    study = write_study(tmp_path, lambda *_: 1.0, seeds=1, methods=("ewa-vq-odt",))
    run = study.jobs[0].path
    make_policy(config(action=ActionSpec("box", 1, (-1.0,), (1.0,)), state_dim=1)).save(run / "policy")
    facts = {"env_id": ENV_ID, "target_return": 5.0, "expert_return": None, "random_return": None}
    RunFolder(run).write_task(facts)
    assert read_subject(run, None, None).env_id == ENV_ID
    assert main(["inspect", str(run), "--pictures", "0"]) == 0
    page = (run / "inspect.html").read_text()
    assert "no frames were requested" in page
    shown, *told, _ = capsys.readouterr().out.splitlines()
    first = json.loads(re.search(r'"first":({[^}]*})', page)[1])["episode"]
    assert shown == f"Episode {first + 1} of 3, at which the page opens:"
    recorded = record(read_subject(run, None, None), 3)
    assert told == findings(recorded, recorded.episodes[first])
