"""The scripts of our evidence: the same data from the same seed, and tables that follow from the runs that are kept."""

import json
import re
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import pytest
import torch

import behaviour_actor
import behaviour_choice
import behaviour_curves
import behaviour_training
import choosing
import evidence
import hidden_cost
import hidden_forms
import hidden_probe
import hidden_sampled
import hidden_spread
import hidden_tables
import hidden_whose
import interval_cells
import learner
import ledger_channels
import makers_tuning
import marked_pages
import mental_accounts as ma
import online_scratch
import players
import questions
import results_pages
import six_arms
import small_data
from mental_accounts.data import behaviour_worker
from mental_accounts.data.hidden_tasks import RETURNS
from mental_accounts.data.tasks import find_task
from mental_accounts.environments import roster
from mental_accounts.environments.yardsticks import Bayes
from mental_accounts.front_door.compare import plan_study
from mental_accounts.report.report import write_report
from mental_accounts.report.runs import read_study
from mental_accounts.report.statistics import Interval
from mental_accounts.study.plan import parse_changes
from tests.report.made_studies import write_study

NUMBER = r"-?\d+(?:\.\d+)?"
ROOT = Path(__file__).parents[1]


def rounded(value: Any) -> Any:
    """With numbers of ten digits."""
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    if isinstance(value, list):
        return [rounded(item) for item in value]
    return float(f"{value:.9e}") if isinstance(value, float) else value


def plain(text: str) -> str:
    return text.replace("−", "-").replace("**", "")


@pytest.mark.parametrize("name", ["pendulum", "cartpole", "mountain-car"])
def test_scripted_data_follow_from_their_seed(name: str) -> None:
    one, again, other = (small_data.make_data(name, seed, episodes=3) for seed in (1, 1, 2))
    assert torch.equal(one.actions, again.actions)
    assert torch.equal(one.rewards, again.rewards)
    assert not torch.equal(one.observations[:50], other.observations[:50])
    assert len(one) == 3


def test_the_scripts_are_as_described() -> None:
    pendulum = small_data.make_data("pendulum", 0)
    at_bound = float((pendulum.actions.abs() >= 2).float().mean())
    assert 0.05 < at_bound < 0.07
    assert float(pendulum.returns.mean()) == pytest.approx(-152.3, abs=1)
    car = small_data.make_data("mountain-car", 0, episodes=5)
    assert float(car.rewards.min()) < 0 < float(car.rewards.max())


def test_the_table_of_small_data_is_paired_by_data_seed() -> None:
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


TABLES: dict[str, Callable[[Any], str]] = {
    "learner": learner.offline_table,
    "small-data": lambda runs: small_data.markdown(small_data.table(runs)),
    "channels": ledger_channels.table,
    "online": lambda runs: online_scratch.table(runs, []),
}


@pytest.mark.parametrize(("folder", "least"), [("learner", 8), ("small-data", 8), ("channels", 6), ("online", 4)])
def test_the_results_say_what_the_runs_say(folder: str, least: int) -> None:
    """Every row of the script's table stands in the README beside the runs."""
    runs = json.loads((ROOT / "results" / folder / "runs.json").read_text())["runs"]
    made = TABLES[folder](runs)
    text = plain((ROOT / "results" / folder / "README.md").read_text())
    rows = plain(made).splitlines()[2:]
    assert len(rows) >= least
    for row in rows:
        found = re.search(rf"{NUMBER} (?:\[{NUMBER}, {NUMBER}\]|\(no interval\))", row)
        assert found is not None, row
        assert found[0] in text, row
        for difference in re.findall(rf"[+-]{NUMBER} (?:\[[+-]{NUMBER}, [+-]{NUMBER}\]|\(no interval\))", row):
            assert difference in text, row


def test_the_curves_of_the_learner_are_means_over_seeds() -> None:
    runs = [
        {"task": "t", "form": "f", "seed": seed, "metrics": [
            {"updates": 10, learner.NLL: 1.0}, {"updates": 20, learner.NLL: 0.5, learner.RETURN: 100.0 * seed},
        ]}
        for seed in (1, 2)
    ]  # fmt: skip
    assert learner.curve_table(runs).splitlines()[-1] == "| t | f | 20 | 150 | 0.50 |"
    assert learner.last_returns(runs, "t", "f") == {1: 100.0, 2: 200.0}


def test_the_forms_of_the_first_questions_are_those_that_the_rule_chooses() -> None:
    found = read_study(ROOT / "results" / "choosing" / "q1-forms.jsonl.gz")
    ledger, gru = (choosing.chosen(found, forms) for forms in questions.RIVAL_FORMS["q1-forms"].values())
    assert (ledger, gru) == questions.RIVALS
    assert (
        choosing.table(found, questions.RIVAL_FORMS["q1-forms"])
        in (ROOT / "results" / "choosing" / "README.md").read_text()
    )
    fewer = replace(found, runs=found.runs[1:])
    assert choosing.chosen(fewer, questions.LEDGER_FORMS) is None  # a form that lacks a seed is not compared


def test_results_are_small_enough_to_clone() -> None:
    files = [file for file in (ROOT / "results").rglob("*") if file.is_file()]
    assert len(files) < 150
    assert sum(file.stat().st_size for file in files) < 20e6
    assert not [file for file in files if file.suffix == ".py"]


@pytest.mark.parametrize("name", results_pages.STUDIES)
def test_reports_follow_from_the_packed_runs(name: str, tmp_path: Path) -> None:
    """To the digit that is shown; beyond it processors round differently. Pictures are left to matplotlib's version."""
    write_report(read_study(ROOT / "results" / name), tmp_path)
    assert (tmp_path / "report.md").read_text() == (ROOT / "results" / name / "report.md").read_text()
    made, kept = (json.loads((place / "report.json").read_text()) for place in (tmp_path, ROOT / "results" / name))
    assert rounded(made) == rounded(kept)


def test_every_study_is_packed_whole() -> None:
    """How many runs each of them has, and that none is left out."""
    files = sorted((ROOT / "results").rglob("runs.jsonl.gz"))
    found = {str(file.parent.relative_to(ROOT / "results")): read_study(file) for file in files}
    assert {name: len(evidence.runs) for name, evidence in found.items()} == {
        "converged": 20, "hidden/arm": 60, "hidden/bandit": 70, "hidden/bandit-options": 80, "hidden/broken": 50,
        "hidden/broken-options": 170, "hidden/observed": 100, "hidden/observed-options": 260, "hidden/options": 150,
        "paper": 60,
    }  # fmt: skip
    assert not [text for evidence in found.values() for text in evidence.warnings if "left out" in text]


def test_a_cell_says_where_there_is_no_interval() -> None:
    assert interval_cells.written(Interval(1.25, -2.0, 3.0), 1, signed=True) == "+1.2 [−2.0, +3.0]"
    assert interval_cells.written(Interval(-1.0, float("nan"), float("nan")), 0) == "−1 (no interval)"


def test_differences_are_of_the_seeds_that_both_have() -> None:
    found = hidden_tables.difference({0: 1.0, 1: 2.0, 2: 9.0}, {0: 0.0, 1: 0.0, 5: 7.0})
    assert found is not None
    assert found.estimate == 1.5
    assert hidden_tables.difference({0: 1.0}, {1: 1.0}) is None


def test_only_what_stands_between_the_markers_changes() -> None:
    page = "head\n<!-- a -->\nold\n<!-- b -->\ntail\n"
    assert marked_pages.between(page, "<!-- a -->", "<!-- b -->", "new") == (
        "head\n<!-- a -->\n\nnew\n\n<!-- b -->\ntail\n"
    )
    with pytest.raises(ValueError, match="in this order"):
        marked_pages.between(page, "<!-- b -->", "<!-- a -->", "new")


def test_forms_on_the_robot_have_a_code_for_each_sign() -> None:
    assert hidden_forms.with_signs("ewa-vq-odt:beta=0") == f"ewa-vq-odt:{hidden_forms.SIGNS},beta=0"
    coarse = "ewa-vq-odt:codebook=hierarchical,num_codes=None"
    assert hidden_forms.with_signs(coarse) == coarse
    assert all("odt" in setting.forms for setting in hidden_cost.SETTINGS.values())


def test_a_probe_finds_what_a_vector_tells_and_no_more() -> None:
    rng = torch.Generator().manual_seed(0)
    cells = torch.randint(hidden_probe.CELLS, (200, 20), generator=rng)
    known = torch.nn.functional.one_hot(cells, hidden_probe.CELLS).float()
    told = hidden_probe.probe(known, cells)
    assert told["accuracy"] == 1.0
    assert told["bits"] == pytest.approx(np.log2(hidden_probe.CELLS), abs=0.05)
    noise = hidden_probe.probe(torch.randn(200, 20, 8, generator=rng), cells)
    assert noise["accuracy"] < 0.1
    assert noise["bits"] < 0.05


def test_who_acts_is_answered_where_it_can_be_known(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hidden_whose, "UPDATES", 200)
    torch.manual_seed(0)
    who = torch.arange(600) % 3
    seen = torch.nn.functional.one_hot(who, 3).float() + 0.1 * torch.randn(600, 3)
    answers = hidden_whose.answered(seen[:400], who[:400], seen[400:], 3)
    assert bool((answers.argmax(1) == who[400:]).all())


def test_no_trained_policy_no_sampled_returns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_study(tmp_path, lambda *_: 1.0, seeds=1)
    monkeypatch.setattr("sys.argv", ["hidden_sampled.py", str(tmp_path)])
    hidden_sampled.main()
    assert not (tmp_path / "sampled.json").exists()


def test_spread_one_is_the_policys_own_and_spread_zero_its_mean_action(tmp_path: Path) -> None:
    tiny = {"data_steps": 1_000, "hidden": 16, "layers": 1, "updates_per_pretrain_iteration": 2, "eval_episodes": 2}
    run = ma.train(data="hidden-arm", preset="hidden", run=tmp_path / "run", device="cpu", **tiny)
    found = hidden_spread.measure(run.folder, episodes=3, seed=4)
    assert list(found["returns"]) == ["0.0", "0.25", "0.5", "0.75", "1.0"]
    for scale, sample in (("0.0", False), ("1.0", True)):
        whole = ma.evaluate(run, episodes=3, seed=4, sample=sample)
        assert found["returns"][scale] == pytest.approx(whole.return_mean)
    assert 0.01 < found["std"] < 8
    assert len(set(found["returns"].values())) == 5
    row = hidden_spread.table({"a-b": {"4": found}}, {}).splitlines()[2]
    assert row.startswith(f"| `a-b` | 1 | {found['std']:.2f} | {found['returns']['0.0']:.1f} |")


def test_a_shipped_actor_acts_as_the_package_has_it_act() -> None:
    file = behaviour_choice.SHIPPED / "hopper" / "medium.safetensors"
    actor = behaviour_actor.read_actor(file)
    policy = behaviour_worker.Actor.read(str(file), behaviour_actor.LOG_STD_RANGE)
    for seed in range(5):
        observation = np.random.default_rng(seed).standard_normal(11)
        ours = actor.act(observation[None], np.random.default_rng(seed))[0]
        assert ours == pytest.approx(policy.act(observation, np.random.default_rng(seed)), abs=1e-6)


def test_an_actor_is_written_rounded_and_read_back(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    tensors = {
        f"{layer}.{kind}": rng.standard_normal((4, 4) if kind == "weight" else 4).astype(np.float32)
        for layer in behaviour_actor.LAYERS
        for kind in ("weight", "bias")
    }
    actor = behaviour_actor.Actor(tensors, {"step": 3})
    behaviour_actor.write_actor(tmp_path / "a.safetensors", actor)
    found = behaviour_actor.read_actor(tmp_path / "a.safetensors")
    assert found.metadata == {"step": 3}
    for name, values in actor.rounded().tensors.items():
        assert np.array_equal(found.tensors[name], values)
    seen = rng.standard_normal((3, 4)).astype(np.float32)
    assert behaviour_choice.mode_in_tf32(found, seen) == pytest.approx(found.act(seen), abs=1e-2)


def test_the_ladder_has_the_shares_of_training() -> None:
    assert behaviour_choice.shares([100, 200], warmup=20) == [0.1, 0.65, 0.25]
    rungs = [
        {"returns": {"mean": 0.0, "std": 0.0}, "weight": 0.5, "length": 10.0},
        {"returns": {"mean": 100.0, "std": 0.0}, "weight": 0.5, "length": 30.0},
    ]
    assert behaviour_choice.mixture(rungs)["mean"] == 25.0  # three short episodes for each long one


def test_snapshots_are_dense_first() -> None:
    step, grid = 0, []
    while step < 600_000:
        step = behaviour_training.next_snapshot(step, 5_000)
        grid.append(step)
    assert grid[:3] == [5_000, 10_000, 15_000]
    assert np.diff(grid)[[0, 25, -1]].tolist() == [5_000, 10_000, 50_000]


def test_the_curves_are_drawn_from_their_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["behaviour_curves.py", "--out", str(tmp_path / "curves.png")])
    behaviour_curves.main()
    assert (tmp_path / "curves.png").stat().st_size > 50_000


def test_makers_have_the_constants_that_were_chosen() -> None:
    found = json.loads((ROOT / "results" / "players" / "tuning.json").read_text())
    assert found["first_seed"] == makers_tuning.FIRST_SEED > 2**31  # evaluations have smaller seeds
    page = (ROOT / "results" / "players" / "README.md").read_text()
    for one in found["tuned"]:
        best = one["tried"][0]
        assert best["share"] == max(tried["share"] for tried in one["tried"])
        assert not any(tried["constants"].get("forgetting") == 0.05 for tried in one["tried"])
        chosen = Bayes() if one["name"] == "bayes" else roster.ALGORITHMS[one["family"]][one["name"]]
        assert asdict(chosen) == best["constants"], one["name"]
        assert makers_tuning.table([one]).splitlines()[-1] in page
    assert {one["name"] for one in found["tuned"]} >= {*roster.ALGORITHMS["box"], *roster.ALGORITHMS["discrete"]}


def test_tuning_puts_the_best_candidate_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(makers_tuning.GRIDS["discrete"], "bayes", (Bayes, {"optimism": (-50.0, 1.5)}))
    found = makers_tuning.tune("discrete", "bayes", 3, [100.0] * 4)
    assert [tried["constants"]["optimism"] for tried in found["tried"]] == [1.5, -50.0]
    assert "| discrete | bayes | 2 | optimism 1.5 |" in makers_tuning.table([found])


def test_scores_are_measured_by_the_players_on_file() -> None:
    found = json.loads((ROOT / "results" / "players" / "returns.json").read_text())["returns"]
    for entry in players.entries():
        assert len(found[entry.task][entry.player]) == entry.episodes >= 1_000
    measured = players.scales(found)
    for task, pair in measured.items():
        assert (find_task(task).random_return, find_task(task).expert_return) == pair, task
    assert len(RETURNS) == len(measured)
    page = (ROOT / "results" / "players" / "README.md").read_text()
    for row in (players.main_table(found) + "\n" + players.size_table(found)).splitlines():
        assert row in page
    for task in players.TASKS:  # 100 is the best of those that are not told what is hidden
        means = {name: np.mean(values) for name, values in found[task].items() if name != "oracle"}
        assert max(means, key=means.__getitem__) == "bayes", task


def test_returns_on_file_are_played_again() -> None:
    found = json.loads((ROOT / "results" / "players" / "returns.json").read_text())["returns"]
    for task, player in (
        ("hidden-arm", "mixture"),
        ("drifting-bandit-free", "ucb"),
        ("hidden-arm-free:dim=2", "bayes"),
    ):
        assert players.played(players.Entry(task, player, 2)) == pytest.approx(found[task][player][:2], abs=0.02)


def test_six_arms_are_played_by_running_means() -> None:
    env = six_arms.SixArms()
    env.reset(seed=3)
    rng, means, total = np.random.default_rng([3, 1]), np.zeros(6), 0.0
    for _ in range(six_arms.STEPS):
        arm = int(rng.integers(6)) if rng.random() < 0.1 else int(means.argmax())
        reward = env.step(arm)[1]
        means[arm] += 0.2 * (reward - means[arm])
        total += reward
    assert six_arms.epsilon_greedy([3], 0.1, 0.2) == pytest.approx([total], abs=1e-3)


def test_every_study_of_the_protocol_can_be_planned(tmp_path: Path) -> None:
    protocol = (ROOT / "studies" / "PROTOCOL.md").read_text()
    for question, calls in questions.STUDIES.items():
        assert f"## {question.upper()}." in protocol
        for name, call in calls.items():
            assert call.first_seed in (questions.FIRST_SEED, questions.SECOND_SEED)
            seeds = range(call.first_seed, call.first_seed + call.seeds)
            changes = parse_changes(call.changes)
            study = plan_study(
                call.tasks, call.methods, seeds, call.preset, changes, tmp_path / question / name, data_per_seed=True
            )
            assert len(study.jobs) == len(call.tasks) * len(call.methods) * call.seeds, name
            arguments = call.arguments(tmp_path)
            assert [arguments[arguments.index("--seeds") + 1], arguments[-2]] == [str(call.seeds), "--out"]
            assert arguments[arguments.index("--first-seed") + 1] == str(call.first_seed)
    assert set(questions.STUDIES) == {f"q{number}" for number in range(1, 10)}
    assert questions.changed("held_out=0").count("held_out=0.1") == 0
    assert len(questions.changed("held_out=0")) == len(questions.HIDDEN)


@pytest.mark.learning
def test_a_question_is_run_in_parts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Seeds of two sessions end up in one file; time that is up loses nothing."""
    tiny = (
        "data_steps=400",
        "pretrain_iterations=1",
        "updates_per_pretrain_iteration=2",
        "eval_episodes=2",
        "hidden=8",
    )
    call = questions.Call(("drifting-bandit",), ("odt", "ledger-odt"), changes=(*tiny, "heads=1", "layers=1"), seeds=2)
    other = replace(call, methods=("odt",), changes=(*call.changes, "context_length=3"))
    monkeypatch.setattr(evidence, "STUDIES", {"q1": {"hidden": call}, "q2": {"shorter": other}})
    packed = tmp_path / "packed" / "q1-hidden.jsonl.gz"

    def run(*arguments: str) -> None:
        monkeypatch.setattr("sys.argv", ["evidence.py", "q1", "q2", str(tmp_path / "runs"), *arguments])
        evidence.main()

    run("--seeds", "1", "--seconds", "0.1", "--pack", str(packed.parent))
    assert not packed.exists() or not read_study(packed).runs
    run("--seeds", "1", "--seconds", "100", "--pack", str(packed.parent))
    assert [run.seed for run in read_study(packed).runs] == [1000, 1000]
    run("--skip", "1", "--pack", str(packed.parent))
    found = read_study(packed)
    assert sorted((run.method, run.seed) for run in found.runs) == [
        ("ledger-odt", 1000), ("ledger-odt", 1001), ("odt", 1000), ("odt", 1001),
    ]  # fmt: skip
    shorter = read_study(packed.with_name("q2-shorter.jsonl.gz")).runs  # the same names as runs of the other call
    assert [(run.method, run.seed, run.config["model"]["context_length"]) for run in shorter] == [
        ("odt", 1000, 3), ("odt", 1001, 3),
    ]  # fmt: skip
    run("--skip", "1", "--commands")
    assert capsys.readouterr().out.count("--seeds 1 --first-seed 1001 --data-per-seed") == 2
    with pytest.raises(SystemExit):
        run("--only", "hiden")
    assert "there is no call 'hiden'; there are hidden, shorter" in capsys.readouterr().err


def test_question_4_has_a_thousand_episodes_and_every_form_of_the_protocol(tmp_path: Path) -> None:
    (call,) = questions.STUDIES["q4"].values()
    study = plan_study(
        call.tasks, call.methods, [1000], call.preset, parse_changes(call.changes), tmp_path, data_per_seed=True
    )
    configs = {job.arm.label: job.config for job in study.jobs}
    assert list(configs) == list(call.methods) == [*questions.Q4_WITHOUT, *questions.Q4_LEDGERS]
    env = gymnasium.make(find_task("broken-halfcheetah").env_id)
    assert {config.data_steps for config in configs.values()} == {1_000 * env.spec.max_episode_steps}
    assert {config.total_updates for config in configs.values()} == {10_000}
    plain = [config.model for label, config in configs.items() if config.method == "odt"]
    assert {(model.context_length, model.reward_input) for model in plain} == {
        *((steps, "auto") for steps in (5, 20, 50, 100)),
        *((steps, read) for steps in (5, 50) for read in ("state", "advantage")),
    }
    assert {model.eval_context_length for model in plain if model.context_length > 5} == {20, 50, 100}
    ledgers = [configs[label] for label in questions.Q4_LEDGERS]
    assert {config.method for config in ledgers} == {"ledger-odt"}
    assert {config.model.accounts.credit for config in ledgers} == {"reward", "advantage"}
