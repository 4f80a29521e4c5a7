"""Names of tasks with a hidden context, and their data: who made what, that seeds decide all, that old data remain."""

import json
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch

from mental_accounts.data import DataError, find_task, load_task
from mental_accounts.data.catalogue import held_data
from mental_accounts.data.hidden_data import EPISODE_SEEDS, MOST_TOLD
from mental_accounts.data.hidden_tasks import BASES, RETURNS, hidden_names, hidden_task, is_hidden
from mental_accounts.data.tasks import TASKS
from mental_accounts.environments.roster import makers
from tests.environments.slow_learner import slow_episode

ARM = "mental_accounts.environments:HiddenArm-v0"
BANDIT = "mental_accounts.environments:DriftingBandit-v0"


def test_every_environment_has_a_mixture_and_each_of_its_makers() -> None:
    assert [name for name in hidden_names() if name.startswith("hidden-arm-free")] == [
        "hidden-arm-free", "hidden-arm-free/thompson", "hidden-arm-free/ucb", "hidden-arm-free/epsilon-greedy",
        "hidden-arm-free/ewa", "hidden-arm-free/own-ledger",
    ]  # fmt: skip
    assert set(hidden_names()) == {name for name, task in TASKS.items() if task.source == "hidden"}
    for name in hidden_names():
        task = find_task(name)
        assert is_hidden(name)
        assert task.made_by
        assert task.random_return is not None
        assert task.expert_return is not None
    assert not is_hidden("hopper-medium")


@pytest.mark.parametrize(
    ("name", "full", "env_id"),
    [
        ("hidden-arm", "hidden-arm", ARM),
        ("hidden-arm:dim=3", "hidden-arm", ARM),
        ("hidden-arm:steps=400,dim=4/ucb", "hidden-arm:dim=4,steps=400/ucb", f"{ARM}:dim=4,steps=400"),
        ("hidden-arm-free:dim=1", "hidden-arm-free:dim=1", f"{ARM}:dim=1,hijack=0"),
        ("drifting-bandit:hijack=0.25", "drifting-bandit:hijack=0.25", f"{BANDIT}:hijack=0.25"),
        ("drifting-bandit-free:arms=300/ewa", "drifting-bandit-free:arms=300/ewa", f"{BANDIT}:arms=300,hijack=0"),
    ],
)
def test_a_name_says_which_environment(name: str, full: str, env_id: str) -> None:
    task = find_task(name)
    assert (task.name, task.env_id) == (full, env_id)
    assert find_task(full) == task


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("hidden-arm/thomson", "nobody called 'thomson' makes data; there are thompson, ucb, epsilon-greedy, ewa, own"),
        ("hidden-arm/", "nobody called ''"),
        ("hidden-arm/mixture", "without a name: a mixture of all but own-ledger"),
        ("hidden-arm:dims=4", "'dims=4' is no setting of HiddenArm-v0; settings and their defaults are dim=3, noise"),
        ("drifting-bandit:", "'' is no setting of DriftingBandit-v0; .* arms=10"),
        ("hidden-arm:dim=4.5", "dim must be a whole number, got '4.5'"),
        ("hidden-arm:noise=nan", "noise must be finite"),
        ("hidden-arm:dim=40", "dim must be from 1 to 12"),
        ("drifting-bandit:arms=1000000000", "arms must be at least 2 and at most 100000"),
        ("drifting-bandit-free:hijack=0.5", "hijack is 0 in drifting-bandit-free; take drifting-bandit instead"),
        ("broken-halfcheetah/ucb", "there is no task"),
        ("hiden-arm", "did you mean hidden-arm"),
    ],
)
def test_bad_names_say_what_there_is(name: str, message: str) -> None:
    with pytest.raises(DataError, match=message):
        find_task(name)


def test_scores_are_measured_by_the_environment_not_by_the_data() -> None:
    scales = {find_task(name).expert_return for name in ("hidden-arm", "hidden-arm/ucb", "hidden-arm:dim=3/ewa")}
    assert scales == {RETURNS["HiddenArm-v0"][1]}
    assert "Bayesian" in find_task("hidden-arm").scored
    assert find_task("hidden-arm:noise=0.2").expert_return is None  # nobody has measured it
    old = find_task("hidden-arm/own-ledger")  # as in all results of that time
    assert (old.random_return, old.expert_return, old.target_return, old.return_scale) == (-11.0, 30.1, 40.0, 0.02)
    assert "the learner that made the data" in old.scored
    assert "policy's own ledger" in str(old.made_by)


@pytest.mark.parametrize("name", ["hidden-arm", "drifting-bandit"])
def test_data_of_the_own_ledger_are_what_they_were(name: str) -> None:
    """Bit for bit; and close to the numbers of the store that the code before the other makers wrote."""
    task, store = load_task(f"{name}/own-ledger", 2_000, seed=3)
    env = gymnasium.make(str(task.env_id))
    episodes = [slow_episode(env, 3 * EPISODE_SEEDS + i) for i in range(10)]
    np.testing.assert_array_equal(store.actions.numpy(), np.concatenate([actions for actions, _ in episodes]))
    np.testing.assert_array_equal(store.rewards.numpy(), np.concatenate([rewards for _, rewards in episodes]))
    before = {
        "hidden-arm": [46.3394, 32.9060, 34.0550, 8.8405, 37.5915, 47.4446, 34.7215, 43.0397, -0.5382, 17.3213],
        "drifting-bandit": [107.0995, 209.2981, 153.9046, 47.4964, 156.0177, 115.9910, 91.4543, 52.7129, 194.2512,
                            59.5453],
    }  # fmt: skip
    assert store.returns.tolist() == pytest.approx(before[name], abs=1e-3)


@pytest.mark.parametrize("base", BASES)
def test_data_follow_from_their_seed_and_say_who_made_them(base: str, cache: Path) -> None:
    _, store = load_task(base, 2_000, seed=5)
    bits = [store.observations, store.actions, store.rewards]
    for path in (cache / "hidden").iterdir():
        path.unlink()
    _, again = load_task(base, 2_000, seed=5, workers=3)
    assert all(
        torch.equal(*pair) for pair in zip(bits, [again.observations, again.actions, again.rewards], strict=True)
    )
    _, other = load_task(base, 2_000, seed=6)
    assert not torch.equal(store.rewards, other.rewards)
    mixture = makers(BASES[base].family)["mixture"]
    names = [mixture.drawn(5 * EPISODE_SEEDS + i).name for i in range(10)]  # type: ignore[union-attr]
    assert store.info["makers"] == names
    assert store.info["made_by"] == {name: names.count(name) for name in dict.fromkeys(names)}
    assert json.dumps(store.info)


def test_one_maker_makes_all() -> None:
    task, store = load_task("hidden-arm/ucb", 400)
    assert "made_by" not in store.info
    assert task.target_return == pytest.approx(float(store.returns.min()))  # of two episodes, the second best
    assert hidden_task("hidden-arm/ucb").maker == makers("box")["ucb"]


def test_other_sizes_and_lengths() -> None:
    _, cells = load_task("hidden-arm:dim=4,steps=50", 100)
    assert cells.actions.shape == (100, 4)
    assert cells.lengths.tolist() == [50, 50]
    _, arms = load_task("drifting-bandit-free:arms=40,steps=300/thompson", 300)
    assert arms.lengths.tolist() == [300]
    assert int(arms.actions.max()) < 40
    assert 40 > MOST_TOLD
    assert arms.foregone is None
    assert not bool(arms.observations[:, 0].any())  # nothing is hijacked
    _, few = load_task("drifting-bandit", 200)
    assert few.foregone is not None


def test_data_on_this_machine_are_listed_by_their_names(cache: Path) -> None:
    for name in ("hidden-arm", "hidden-arm-free", "hidden-arm:dim=2/ucb"):
        load_task(name, 200)
    assert sorted(item.task for item in held_data()) == ["hidden-arm", "hidden-arm-free", "hidden-arm:dim=2/ucb"]
    (cache / "hidden" / "stray.safetensors").write_bytes(b"nothing")
    assert len(held_data()) == 3
