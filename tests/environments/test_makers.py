"""The makers of data: each is a decent player, none keeps a policy's ledger, and seeds decide who plays and what."""

import itertools
from dataclasses import fields

import gymnasium
import numpy as np
import pytest

from mental_accounts.environments import DriftingBandit, HiddenArm
from mental_accounts.environments.kinds import EDGE, Arms, Cells, Sites, grid_of, inside, sites_of
from mental_accounts.environments.learners import HighestAccount, Learner
from mental_accounts.environments.makers import UCB, EpsilonGreedy, EWALearner, Mixture, Part, Thompson
from mental_accounts.environments.playing import Env, Player, own_chance
from mental_accounts.environments.recall import Recall
from mental_accounts.environments.roster import ALGORITHMS, OWN_LEDGER, Family, makers, players
from mental_accounts.environments.yardsticks import AtRandom, Bayes, Oracle

ENVIRONMENTS: dict[Family, type[HiddenArm] | type[DriftingBandit]] = {"box": HiddenArm, "discrete": DriftingBandit}
FAMILIES: list[Family] = ["box", "discrete"]
ALL = [(family, name) for family in FAMILIES for name in ALGORITHMS[family]]


def mean_return(player: Player | Mixture, env: Env, episodes: int = 12) -> float:
    return float(np.mean([player.play(env, seed).rewards.sum() for seed in range(episodes)]))


@pytest.mark.parametrize(("family", "name"), ALL)
@pytest.mark.parametrize("hijack", [0.5, 0.0])
def test_each_is_clearly_better_than_chance(family: Family, name: str, hijack: float) -> None:
    env = ENVIRONMENTS[family](hijack=hijack)
    random, best = mean_return(AtRandom(), env), mean_return(Bayes(), env)
    assert mean_return(ALGORITHMS[family][name], env) > random + 0.2 * (best - random)


@pytest.mark.parametrize(
    ("family", "settings"),
    [("box", {"dim": 1}), ("box", {"dim": 4}), ("discrete", {"arms": 100}), ("discrete", {"arms": 300})],
)
def test_they_work_in_other_sizes(family: Family, settings: dict[str, int]) -> None:
    env = ENVIRONMENTS[family](**settings)  # type: ignore[arg-type]
    random = np.mean([AtRandom().play(env, seed).rewards.sum() for seed in range(6)])
    for name, player in ALGORITHMS[family].items():
        assert mean_return(player, env, 6) > random + 4, name


@pytest.mark.parametrize(("family", "name"), ALL)
def test_none_keeps_a_policys_ledger(family: Family, name: str) -> None:
    player, env = ALGORITHMS[family][name], ENVIRONMENTS[family]()
    kept = {one.name: getattr(player, one.name) for one in fields(player)}
    assert kept.get("forgetting", kept.get("rate", 0.0)) != 0.05
    memories = [player.begin(env, own_chance(seed)) for seed in (0, 1)]
    kinds = [getattr(memory, "kinds", None) for memory in memories]
    if family == "discrete":
        assert all(kind is None or kind == Arms(10) for kind in kinds)
    elif kinds[0] is None:  # no cells at all
        assert all(isinstance(memory.recall, Recall) for memory in memories)  # type: ignore[attr-defined]
        assert isinstance(player, (Thompson, UCB))
    else:
        assert all(isinstance(kind, Sites) for kind in kinds)
        assert kinds[0].count != 27
        assert (kinds[0].points != kinds[1].points).all()  # anew in each episode
        own = Cells(3, 0.0).centres
        assert np.abs(kinds[0].points[:, None] - own).max(-1).min() > 1e-3


def test_the_ledgers_of_policies_are_there_for_comparison_only() -> None:
    for family in FAMILIES:
        mixture = makers(family)["mixture"]
        assert isinstance(mixture, Mixture)
        assert not any(isinstance(part.player, (Learner, HighestAccount)) for part in mixture.parts)
        assert makers(family)[OWN_LEDGER] == Learner()
        assert isinstance(grid_of(ENVIRONMENTS[family]()), Cells if family == "box" else Arms)


@pytest.mark.parametrize("family", FAMILIES)
def test_the_mixture_has_a_quarter_of_each(family: Family) -> None:
    mixture = makers(family)["mixture"]
    assert isinstance(mixture, Mixture)
    drawn = [mixture.drawn(seed).name for seed in range(8_000)]
    shares = {name: drawn.count(name) / len(drawn) for name in ALGORITHMS[family]}
    for name, share in shares.items():
        assert share == pytest.approx(1 / 12 if name.startswith("ewa") else 1 / 4, abs=0.02), name
    assert sum(shares.values()) == pytest.approx(1)


def test_a_turn_in_the_mixture_is_what_its_player_plays_alone() -> None:
    env, mixture = HiddenArm(), makers("box")["mixture"]
    names = []
    for seed in range(8):
        played = mixture.play(env, seed)
        assert played.player is not None
        alone = ALGORITHMS["box"][played.player].play(env, seed)
        np.testing.assert_array_equal(played.actions, alone.actions)
        np.testing.assert_array_equal(played.rewards, alone.rewards)
        names.append(played.player)
    assert len(set(names)) > 2
    assert (mixture.play(env, 0).rewards != mixture.play(env, 8).rewards).any()


def test_shares_must_be_shares() -> None:
    with pytest.raises(ValueError, match=r"sum to 1, got \[0.5, 0.4\]"):
        Mixture((Part("a", AtRandom(), 0.5), Part("b", Oracle(), 0.4)))


def test_thompson_draws_from_the_posterior_and_ucb_adds_what_is_not_known() -> None:
    counts, sums = np.array([3.0, 0.0, 8.0]), np.array([3.0, 0.0, -4.0])
    draws = [Thompson(0.1, noise=0.5, prior=1.0).indices(counts, sums, own_chance(seed)) for seed in range(4_000)]
    assert np.mean(draws, 0) == pytest.approx([0.75, 0.0, -4 / 9], abs=0.03)
    assert np.std(draws, 0) == pytest.approx([0.25, 0.5, 1 / 6], abs=0.03)
    bonus = 2.0 * np.sqrt(np.log(12) / np.array([4.0, 1.0, 9.0]))
    found = UCB(50, optimism=2.0, prior=1.0).indices(counts, sums, own_chance(0))
    assert found == pytest.approx(np.array([0.75, 0.0, -4 / 9]) + bonus)


@pytest.mark.parametrize("forgetting", [0.0, 0.2])
def test_what_is_recalled_is_the_last_steps(forgetting: float) -> None:
    """Against sums over the steps themselves."""
    rng = np.random.default_rng(0)
    steps = [(rng.uniform(-1, 1, 2), float(rng.normal())) for _ in range(17)]
    box = Recall(HiddenArm(dim=2), 6, forgetting, 0.3)
    arms = Recall(DriftingBandit(arms=4), 6, forgetting, 0.3)
    for i, (action, reward) in enumerate(steps):
        box.learn(action, reward)
        arms.learn(i % 3, reward)
    options = box.options(rng)
    assert options.shape == (64, 2)
    assert np.abs(options).max() <= EDGE
    for option, count, total in zip(options, *box.about(options), strict=True):
        weights = [
            (1 - forgetting) ** (16 - i) * np.exp(-np.square(steps[i][0] - option).sum() / (2 * 0.3**2))
            for i in range(11, 17)
        ]
        assert count == pytest.approx(sum(weights))
        assert total == pytest.approx(sum(w * steps[i][1] for w, i in zip(weights, range(11, 17), strict=True)))
    counts, sums = arms.about(arms.options(rng))
    for arm in range(4):
        seen = [i for i in range(11, 17) if i % 3 == arm]
        assert counts[arm] == pytest.approx(sum((1 - forgetting) ** (16 - i) for i in seen))
        assert sums[arm] == pytest.approx(sum((1 - forgetting) ** (16 - i) * steps[i][1] for i in seen))


def test_actions_stay_off_the_bounds() -> None:
    assert inside(np.array([-1.2, -0.5, 0.995, 0.9])) == pytest.approx([-0.78, -0.5, 0.985, 0.9])
    env = HiddenArm(hijack=0.0)
    for name in ("thompson", "ucb", "epsilon-greedy", "ewa-0.1"):
        actions = ALGORITHMS["box"][name].play(env, 3).actions
        assert np.abs(actions).max() <= EDGE + 1e-6, name
        assert len(np.unique(actions, axis=0)) == len(actions), name


def test_running_means_and_attractions() -> None:
    env = DriftingBandit(arms=2)
    greedy = EpsilonGreedy(epsilon=0.0, rate=0.5).begin(env, own_chance(0))
    greedy.learn(0, -1.0)
    assert greedy.act({}) == 1
    greedy.learn(1, -4.0)
    assert greedy.act({}) == 0
    drawn = EWALearner(forgetting=0.1, precision=1e3).begin(env, own_chance(0))
    drawn.learn(1, 1.0)
    drawn.learn(0, 0.85)
    assert drawn.act({}) == 1  # 0.9 is left of the 1
    assert sites_of(HiddenArm(dim=4), 4.0, 0.1, own_chance(0)).count == 256


def test_those_that_know_more_earn_more() -> None:
    for family in FAMILIES:
        env = ENVIRONMENTS[family]()
        known = players(family)
        assert next(iter(known)) == "random"
        assert list(known)[-2:] == ["bayes", "oracle"]
        means = {name: mean_return(player, env, 20) for name, player in known.items()}
        assert min(means, key=means.__getitem__) == "random"
        assert sorted(means, key=means.__getitem__)[-1] == "oracle"
        assert means["bayes"] > max(value for name, value in means.items() if name not in ("bayes", "oracle")) - 3


def test_the_bayesian_players_posteriors_are_exact() -> None:
    """Against sums over all that may have happened; where nothing moves, the posterior is a product."""
    env = HiddenArm(dim=1, jump=0.1, noise=0.3)
    memory = Bayes().begin(env, own_chance(0))
    seen = [(np.array([0.1], np.float32), 0.4), (np.array([-0.7], np.float32), 0.1), (np.array([0.6], np.float32), 0.5)]
    for action, reward in seen:
        memory.learn(action, reward)
    move = 0.9 * np.eye(3) + 0.1 / 3
    chances = np.zeros(3)
    for path in np.ndindex(3, 3, 3, 3):
        chance = 1 / 3 * np.prod([move[a, b] for a, b in itertools.pairwise(path)])
        for (action, reward), cell in zip(seen, path, strict=False):
            mean = np.exp(-((action[0] - 0.75 * (cell - 1)) ** 2) / (2 * 0.35**2)) - 0.105
            chance *= np.exp(-(((reward - mean) / 0.3) ** 2) / 2)
        chances[path[-1]] += chance
    assert memory.chances == pytest.approx(chances / chances.sum(), abs=1e-6)  # type: ignore[attr-defined]
    still = Bayes().begin(DriftingBandit(arms=2, drift=0.0, noise=0.5), own_chance(0))
    for reward in (1.0, 0.4):
        still.learn(1, reward)
    assert still.means == pytest.approx([0.0, 1.4 / (2 + 0.25)])  # type: ignore[attr-defined]
    assert still.variances == pytest.approx([1.0, 0.25 / (2 + 0.25)])  # type: ignore[attr-defined]


def test_bad_use_says_why() -> None:
    with pytest.raises(TypeError, match="the equations of HiddenArm and DriftingBandit are known"):
        Bayes().begin(gymnasium.make("CartPole-v1"), own_chance(0))
    with pytest.raises(ValueError, match="does not tell its hidden context"):
        Oracle().play(gymnasium.make("CartPole-v1"), 0)
    with pytest.raises(TypeError, match="in Discrete spaces and in boxes"):
        Thompson(0.1, 0.1, 0.1).begin(_matrix(), own_chance(0))


def _matrix() -> Env:
    env = HiddenArm()
    env.action_space = gymnasium.spaces.Box(-1.0, 1.0, (2, 2))
    return env
