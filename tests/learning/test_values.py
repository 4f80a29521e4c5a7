"""Critics: their targets, their losses, the gradient that they give a policy, and how all of it is checked."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from mental_accounts.config import TrainConfig
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.data.windows import WindowSampler
from mental_accounts.errors import DivergenceError
from mental_accounts.learning.critics import Critics, inputs_of
from mental_accounts.learning.update import Updater
from mental_accounts.learning.value_measures import discounted, gradient_shares, overestimation
from mental_accounts.learning.values import ValueLearner, reward_size
from mental_accounts.policy import (
    Categorical,
    ClippedGaussian,
    DecisionTransformer,
    SquashedGaussian,
    Window,
    disturbed,
)
from mental_accounts.policy.heads import clamp_inward
from mental_accounts.value_options import ValueConfig
from tests.policy.helpers import BOX, DISCRETE, make_policy, tiny

CONFIG = TrainConfig(
    optimizer="adamw", task=None, env_id="none", method="dt", improve="td3", batch_size=16, precision="float32"
)
LENGTHS, ENDED = [9, 1, 14, 3, 1], [True, True, False, False, False]


def store_for(policy: DecisionTransformer, seed: int = 0) -> Trajectories:
    """Short episodes of all kinds: terminated and cut off, of one step and of many."""
    rng, N, action = np.random.default_rng(seed), sum(LENGTHS), policy.config.action
    if action.is_discrete:
        actions = rng.integers(action.start, action.start + action.size, N)
    else:
        actions = rng.uniform(action.low, action.high, (N, action.size))
    store = Trajectories.from_steps(
        rng.normal(size=(N, 3)), actions, rng.normal(size=N),
        lengths=LENGTHS, terminated=ENDED, truncated=[not ended for ended in ENDED], action_spec=action,
    )  # fmt: skip
    if policy.accounts is not None:
        store.annotate_by(policy.accounts.books, policy.action_scale.to_unit, balances=policy.config.reads_ledger)
    return store


def learner(method: str = "dt", action: Any = BOX, **options: Any) -> tuple[Updater, WindowSampler]:
    accounts = {"ledger_input": "state"} if method == "ledger-odt" else {}
    policy = make_policy(tiny(accounts, method=method, action=action, reward_input="state", dropout=0.0))
    config = replace(CONFIG, method=method, values=ValueConfig(**options))
    torch.manual_seed(0)
    updater = Updater(policy, config)
    assert updater.values is not None
    updater.values.begin("online", 3.0)
    sampler = WindowSampler(store_for(policy), 16, policy.config.context_length, torch.Generator().manual_seed(1),
                            previous_rewards=True)  # fmt: skip
    return updater, sampler


def values_of(updater: Updater) -> ValueLearner:
    assert updater.values is not None
    return updater.values


@pytest.mark.parametrize("norm", [False, True])
def test_both_critics_are_plain_networks_of_their_own(norm: bool) -> None:
    critics, x = Critics(5, 2, 16, layer_norm=norm), torch.randn(4, 7, 5)
    for i in range(2):
        layers: list[nn.Module] = []
        for weight, bias in zip(critics.weights, critics.biases, strict=True):
            linear = nn.Linear(*weight.shape[1:])
            linear.load_state_dict({"weight": weight[i].T.detach(), "bias": bias[i, 0].detach()})
            layers += [linear, nn.LayerNorm(16, elementwise_affine=False) if norm else nn.Identity(), nn.ReLU()]
        torch.testing.assert_close(critics(x)[i], nn.Sequential(*layers[:-2])(x))
    torch.testing.assert_close(critics.first(x), critics(x)[0])
    bound = 1 / math.sqrt(5)
    assert critics.weights[0].abs().max() <= bound
    assert critics.weights[0].std().item() == pytest.approx(bound / math.sqrt(3), rel=0.2)  # as PyTorch's linear layers


@pytest.mark.parametrize("method", ["bc", "dt", "odt", "ewa-vq-odt", "ledger-odt"])
@pytest.mark.parametrize("action", [BOX, DISCRETE])
def test_targets_are_those_of_the_textbook(method: str, action: Any) -> None:
    """One step at a time, in float64; without noise, so that there is one answer."""
    if method == "bc":
        policy = make_policy(tiny({}, method="bc", action=action, dropout=0.0))
        updater = Updater(policy, replace(CONFIG, method="bc", values=ValueConfig(target_noise=0.0)))
        sampler = WindowSampler(store_for(policy), 16, policy.config.context_length, torch.Generator().manual_seed(1))
    else:
        updater, sampler = learner(method, action, target_noise=0.0, discount=0.9, reward_scale=2.0)
    values, pairs = values_of(updater), sampler.transitions()
    with torch.no_grad():  # another network than the policy, which targets must not be computed by
        for parameter in [*values.average_policy.parameters(), *values.average_critics.parameters()]:
            parameter.add_(0.3 * torch.randn_like(parameter))
    torch.manual_seed(5)
    inputs, targets, _ = values._compute_targets(pairs)
    torch.manual_seed(5)
    with torch.no_grad():
        following = values.average_policy.eval()(pairs.following)
        features = values.average_policy.step_features(pairs.following)
        if isinstance(following, Categorical):
            both = values.average_critics(features)
            ahead = (following.log_probs.exp() * torch.minimum(both[0], both[1])).sum(-1)
        else:
            both = values.average_critics(inputs_of(updater.policy, features, following.sample()))[..., 0]
            ahead = torch.minimum(both[0], both[1])
    checked = 0
    for b in range(16):
        for k in range(pairs.known.shape[1]):
            if pairs.known[b, k]:
                bootstrap = 0.0 if pairs.terminal[b, k] else float(ahead[b, k])
                wanted = float(pairs.now.rewards[b, k]) / values.reward_scale + values.options.discount * bootstrap
                assert float(targets[b, k]) == pytest.approx(wanted, abs=1e-5)
                checked += 1
    assert checked > 40
    torch.testing.assert_close(inputs, updater.policy.step_features(pairs.now))


def test_critics_read_what_the_policy_reads() -> None:
    updater, sampler = learner("ledger-odt")
    window, policy = sampler(), updater.policy
    features = policy.step_features(window)
    told = policy.accounts.books.ledger_size
    assert features.shape[-1] == policy.num_features == 3 + told + 1
    torch.testing.assert_close(features[..., 3 : 3 + told], window.balances)
    plain = make_policy(tiny({}, method="ewa-vq-odt"))  # a bias alone is not read: its critics see the state
    assert plain.num_features == 3
    values = values_of(updater)
    assert values.critics.weights[0].shape[1] == 3 + told + 1 + BOX.size + 1
    actions = torch.rand(*window.mask.shape, BOX.size) * 2 - 1
    inputs = inputs_of(updater.policy, features, actions)
    books = policy.accounts.books
    apart = (actions.unsqueeze(-2) - books.codebook.centers).norm(dim=-1)
    near = torch.exp(-apart.square() / (2 * books.soft_width**2))
    wanted = (near * window.balances).sum(-1) / near.sum(-1)
    torch.testing.assert_close(inputs[..., -1], wanted, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(inputs[..., : 3 + told + 1], features)


def test_a_step_that_was_cut_off_teaches_nothing_and_a_terminal_one_does() -> None:
    updater, sampler = learner(target_noise=0.0)
    values, store = values_of(updater), sampler.store

    def loss() -> float:
        pairs = sampler.transitions_at(torch.arange(sum(LENGTHS)))
        inputs, targets, _ = values._compute_targets(pairs)
        units = updater.policy.unit_actions(pairs.now)
        return values._compute_loss(pairs.now, inputs, units, targets, pairs.known)[0].item()

    before = loss()
    ends = np.cumsum(LENGTHS) - 1
    for end, terminated in zip(ends, ENDED, strict=True):
        kept = float(store.rewards[end])
        store.rewards[end] = 1e3
        assert (loss() == before) is not terminated
        store.rewards[end] = kept


def test_the_policy_climbs_its_value() -> None:
    """The gradient of -α Q₁ by hand: through a sample of a box action, and through the expected value."""
    updater, sampler = learner("odt", BOX, alpha=0.7)
    values, window = values_of(updater), sampler()
    mean = torch.zeros(16, window.mask.shape[1], BOX.size, requires_grad=True)
    predicted = SquashedGaussian(mean, torch.full_like(mean, -20.0))
    loss, value = values.policy_loss(predicted, window)
    loss.backward()
    action = torch.zeros_like(mean).requires_grad_()
    q = values.critics.first(inputs_of(updater.policy, updater.policy.step_features(window), action))[..., 0]
    wanted = -0.7 * (q * window.mask).sum() / window.mask.sum()
    wanted.backward()
    torch.testing.assert_close(mean.grad, action.grad, atol=1e-6, rtol=1e-4)
    assert loss.item() == pytest.approx(-0.7 * value.item(), rel=1e-5)
    assert all(parameter.grad is None for parameter in values.critics.parameters())

    updater, sampler = learner("odt", DISCRETE, alpha=0.7, normalised=True)
    values, window = values_of(updater), sampler()
    logits = torch.randn(16, window.mask.shape[1], 3, requires_grad=True)
    loss, _ = values.policy_loss(Categorical(logits.log_softmax(-1)), window)
    loss.backward()
    q, p = values.critics.first(updater.policy.step_features(window)).detach(), logits.detach().softmax(-1)
    expected = (p * q).sum(-1, keepdim=True)
    size = (expected[..., 0].abs() * window.mask).sum() / window.mask.sum()
    by_hand = -0.7 / size * p * (q - expected) * window.mask.unsqueeze(-1) / window.mask.sum()
    torch.testing.assert_close(logits.grad, by_hand, atol=1e-6, rtol=1e-4)


def test_clipped_actions_can_be_pulled_back_inside() -> None:
    x = torch.tensor([-2.0, -2.0, 0.5, 0.5, 2.0, 2.0], requires_grad=True)
    clipped = clamp_inward(x)
    assert clipped.tolist() == [-1.0, -1.0, 0.5, 0.5, 1.0, 1.0]
    clipped.backward(torch.tensor([1.0, -1.0, 1.0, -1.0, 1.0, -1.0]))
    assert x.grad.tolist() == [0.0, -1.0, 1.0, -1.0, 1.0, 0.0]  # descent goes against it: only ways back are open
    far = ClippedGaussian(torch.full((4, 1), 3.0, requires_grad=True), torch.full((4, 1), -3.0))
    (gradient,) = torch.autograd.grad(far.sample().sum(), far.mean)
    assert gradient.tolist() == [[1.0]] * 4


def test_noise_stays_in_bounds_and_is_as_large_as_asked() -> None:
    actions = torch.zeros(20_000, 2)
    noisy = disturbed(actions, 0.2, BOX, torch.Generator().manual_seed(0), clip=0.3)
    assert noisy.abs().max() == pytest.approx(0.3)
    assert disturbed(actions, 0.2, BOX).std() == pytest.approx(0.2, rel=0.03)
    assert disturbed(actions, 50.0, BOX).abs().max() == 1.0
    kept = torch.zeros(20_000, dtype=torch.int64)
    changed = disturbed(kept, 0.3, DISCRETE, torch.Generator().manual_seed(0))
    shares = torch.bincount(changed, minlength=3) / len(kept)
    assert shares.tolist() == pytest.approx([0.8, 0.1, 0.1], abs=0.01)


def test_averages_follow_and_begin_afresh() -> None:
    updater, sampler = learner("dt", tau=0.25)
    values = values_of(updater)
    before = [parameter.clone() for parameter in values.average_policy.parameters()]
    updater.learn_from(sampler)
    for old, now, average in zip(before, updater.policy.parameters(), values.average_policy.parameters(), strict=True):
        torch.testing.assert_close(average, 0.75 * old + 0.25 * now)
    moved = [not torch.equal(a, b) for a, b in zip(values.critics.parameters(),
                                                   values.average_critics.parameters(), strict=True)]  # fmt: skip
    assert all(moved)
    values.restart_averages()
    for a, b in zip(values.critics.parameters(), values.average_critics.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_policy_follows_the_critics_as_they_were_before_the_update() -> None:
    """So both may learn at the same time; between updates it holds the newest."""
    updater, sampler = learner("dt")
    values, pairs = values_of(updater), sampler.transitions()
    old = [parameter.clone() for parameter in values.critics.parameters()]
    values.learn(pairs)
    for before, now, held in zip(old, values.critics.parameters(), values.followed.parameters(), strict=True):
        assert torch.equal(before, held)
        assert not torch.equal(now, held)
    value = updater.update(pairs.now)
    assert value is not None
    values.follow(value)
    for now, held in zip(values.critics.parameters(), values.followed.parameters(), strict=True):
        assert torch.equal(now, held)


@pytest.mark.parametrize("steps", [1, 2, 3, 40])
def test_each_step_of_the_critics_takes_its_own_part_of_the_batch(steps: int) -> None:
    updater, sampler = learner("dt", critic_updates=steps)
    values, seen = values_of(updater), []
    original = values._critic_loss

    def watched(window: Window, inputs: torch.Tensor, *rest: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        assert torch.equal(inputs, updater.policy.step_features(window))
        seen.append(inputs)
        return original(window, inputs, *rest)

    values._critic_loss = watched
    pairs = sampler.transitions()
    values.learn(pairs)
    assert len(seen) == min(steps, 16)
    assert torch.equal(torch.cat(seen), updater.policy.step_features(pairs.now))


@pytest.mark.parametrize("imitate", ["always", "offline", "never"])
def test_what_is_imitated_when(imitate: str) -> None:
    updater, sampler = learner("odt", imitate=imitate, alpha=0.3, pretrain_alpha=0.0)
    values, window = values_of(updater), sampler()
    losses = updater.objective(updater.policy(window), updater.policy.action_scale.to_unit(window.actions), window.mask)
    for phase in ("pretrain", "online"):
        values.begin(phase, 1.0)
        imitates = imitate == "always" or (imitate == "offline" and phase == "pretrain")
        wanted = losses.loss if imitates else losses.constraint
        torch.testing.assert_close(values.supervised(losses), wanted)
        alpha = 0.0 if phase == "pretrain" and imitates else 0.3  # something must be learned
        assert float(values.alpha) == pytest.approx(alpha)


def test_values_are_compared_with_the_returns_that_came() -> None:
    updater, sampler = learner("ledger-odt", discount=0.9, reward_scale=4.0)
    values = values_of(updater)
    with torch.no_grad():
        for parameter in values.critics.parameters():
            parameter.zero_()
        values.critics.biases[-1].fill_(2.0)  # worth 2 · 4 everywhere
        values.hold_critics()
    gaps = []
    for i in (-2, -1):
        trajectory = sampler.store.slice(i)
        rewards = trajectory.rewards.double().numpy()
        returns = discounted(rewards, rewards[-1] if trajectory.terminated else 8.0, 0.9)
        gaps += (8.0 - returns).tolist()
    assert overestimation(values, sampler, 2)["values/overestimation"] == pytest.approx(np.mean(gaps), rel=1e-5)
    np.testing.assert_allclose(discounted(np.array([1.0, 2.0, 3.0]), 3.0, 0.5), [2.75, 3.5, 3.0])
    shares = gradient_shares(updater, sampler())
    assert shares["values/gradient_critics"] == 0  # a constant has no gradient
    assert shares["values/gradient_supervised"] > 0
    assert shares["values/gradient_share"] == 0


def test_values_that_explode_or_are_no_numbers_stop_a_run() -> None:
    updater, sampler = learner("dt")
    values = values_of(updater)
    updater.learn_from(sampler)
    updater.check()
    values.latest_value.fill_(11 * values.largest)
    with pytest.raises(DivergenceError, match=r"values explode: their mean is .*; lower --values\.critic-lr"):
        updater.check()
    values.begin("online", 0.0)  # no reward yet: new critics do not start at 0
    values.latest_value.fill_(5.0)
    updater.check()
    values.latest_value.zero_()
    for module in values._modules().values():
        parameter = next(module.parameters())
        kept = parameter.detach().clone()
        with torch.no_grad():
            parameter.flatten()[0] = torch.nan
        with pytest.raises(DivergenceError, match="no longer finite"):
            updater.check()
        with torch.no_grad():
            parameter.copy_(kept)
    updater.check()


def test_tensors_restore_everything() -> None:
    updater, sampler = learner("ledger-odt")
    for _ in range(3):
        updater.learn_from(sampler)
    saved = {name: value.clone() for name, value in updater.tensors().items()}
    state, cpu = sampler.generator.get_state(), torch.get_rng_state()
    for _ in range(3):
        updater.learn_from(sampler)
    wanted = {name: value.clone() for name, value in updater.tensors().items()}
    again, _ = learner("ledger-odt")
    again.load_tensors(saved)
    sampler.generator.set_state(state)
    torch.set_rng_state(cpu)
    for _ in range(3):
        again.learn_from(sampler)
    for name, value in again.tensors().items():
        assert torch.equal(value, wanted[name]), name


def test_the_size_of_rewards() -> None:
    assert reward_size(torch.tensor([3.0, -4.0])) == pytest.approx(math.sqrt(12.5))
    assert reward_size(torch.zeros(4)) == 1.0


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"discount": 1.0}, "discount"),
        ({"tau": 1.5}, "tau"),
        ({"alpha": -1.0}, "alpha"),
        ({"alpha": math.nan}, "alpha"),
        ({"imitate": "sometimes"}, "imitate"),
        ({"imitate": "never", "alpha": 0.0}, "nothing to learn from"),
        ({"critic_updates": 0}, "critic_updates"),
        ({"critic_hidden": 0}, "critic_hidden"),
        ({"critic_lr": 0.0}, "critic_lr"),
        ({"reward_scale": 0.0}, "reward_scale"),
        ({"exploration_noise": 2.0}, "exploration_noise"),
    ],
)
def test_what_cannot_be_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        ValueConfig(**options)
