import json
from dataclasses import asdict, replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
import torch
from gymnasium import spaces

import mental_accounts as ma
from mental_accounts.account_options import AccountsConfig
from mental_accounts.action_spec import ActionSpec
from mental_accounts.config import TrainConfig
from mental_accounts.policy import DecisionTransformer, Window, action_spec_of, state_dim_of
from mental_accounts.policy_options import ModelConfig, PolicyConfig

from .helpers import DISCRETE, make_policy, make_window, numbers, random_actions, tiny


@pytest.mark.parametrize("codebook", ["grid", "algorithm2", "product", "kmeans"])
def test_a_loaded_policy_predicts_the_same(codebook: str, tmp_path: Path) -> None:
    policy = make_policy(tiny({"codebook": codebook, "num_codes": 5, "beta": 0.7, "beta_learned": True}))
    observations, actions, rewards = torch.randn(200, 3), random_actions(policy.config, 200), torch.randn(200) * 5 + 2
    policy.fit_normalisation(observations, actions, rewards)
    policy.save(tmp_path / "policy")
    loaded = DecisionTransformer.load(tmp_path / "policy").eval()
    assert loaded.config == policy.config
    window = make_window(policy, 2, 5)
    assert torch.equal(numbers(loaded(Window(**window))), numbers(policy(Window(**window))))
    paid = torch.randn(9) * 5 + 2
    assert torch.equal(loaded.accounts.books.transform(paid), policy.accounts.books.transform(paid))
    assert abs(float(policy.accounts.books.transform.mean) - float(rewards.mean())) < 1e-4
    one, other = policy.context(3, 50.0), loaded.context(3, 50.0)
    for _ in range(8):
        seen, paid = np.random.default_rng(0).normal(size=(3, 3)), np.ones(3)
        assert np.array_equal(policy.act(seen, one), loaded.act(seen, other))
        one.record(paid, np.zeros(3, bool))
        other.record(paid, np.zeros(3, bool))
    policy.save(tmp_path / "policy")  # again: replaces, and leaves nothing else behind
    assert len(list((tmp_path / "policy").iterdir())) == 2


@pytest.mark.parametrize("method", ["dt", "odt"])
@pytest.mark.parametrize("action", [None, DISCRETE])
def test_other_methods_and_discrete_actions(method: str, action: object, tmp_path: Path) -> None:
    policy = make_policy(tiny(method=method, **({} if action is None else {"action": action})))
    policy.save(tmp_path)
    window = make_window(policy, 2, 5)
    assert torch.equal(
        numbers(DecisionTransformer.load(tmp_path).eval()(Window(**window))), numbers(policy(Window(**window)))
    )


@pytest.mark.parametrize("name", ["odt", "window", "discrete"])
def test_policies_of_version_0_1_act_as_they_did(name: str) -> None:
    """Saved by that version, with the actions it chose. `window` learned with accounts of 4 steps and acts with 2."""
    folder = Path(__file__).parent / "version_0_1" / name
    policy = DecisionTransformer.load(folder)
    assert policy.config.likelihood == "squashed"
    rng, context = np.random.default_rng(0), policy.context(2, [5.0, -3.0])
    for t, expected in enumerate(json.loads((folder / "actions.json").read_text())):
        chosen = policy.act(rng.standard_normal((2, 3)).astype(np.float32), context)
        np.testing.assert_allclose(chosen, expected, rtol=1e-5, atol=1e-6)
        context.record(rng.standard_normal(2).astype(np.float32), np.array([False, t == 5]))


def test_policies_saved_before_ledger_odt_act_as_they_did() -> None:
    """Method ewa-vq-odt that read its ledger with β = 0: the form that is called ledger-odt since."""
    folder = Path(__file__).parent / "before_ledger_odt"
    old = DecisionTransformer.load(folder)
    assert (old.config.method, old.config.reads_ledger, old.config.has_bias) == ("ewa-vq-odt", True, True)
    new = DecisionTransformer(replace(old.config, method="ledger-odt"))
    tensors = old.state_dict()
    assert set(tensors) - set(new.state_dict()) == {"accounts.scale.beta"}
    new.load_state_dict({name: value for name, value in tensors.items() if name != "accounts.scale.beta"})
    rng, contexts = np.random.default_rng(0), [policy.context(2, [5.0, -3.0]) for policy in (old, new)]
    for t, expected in enumerate(json.loads((folder / "actions.json").read_text())):
        seen = rng.standard_normal((2, 3)).astype(np.float32)
        chosen = [policy.act(seen, context) for policy, context in zip((old, new), contexts, strict=True)]
        np.testing.assert_allclose(chosen[0], expected, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(chosen[1], chosen[0])
        rewards = rng.standard_normal(2).astype(np.float32)
        for context in contexts:
            context.record(rewards, np.array([False, t == 5]))


def test_damaged_folders_are_refused_and_say_why(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"policy\.json is missing"):
        DecisionTransformer.load(tmp_path)
    make_policy(tiny()).save(tmp_path)
    header = tmp_path / "policy.json"
    (weights,) = tmp_path.glob("*.safetensors")
    good_header, good_weights = header.read_text(), weights.read_bytes()

    def refused(match: str, error: type[Exception] = ValueError) -> None:
        with pytest.raises(error, match=match):
            DecisionTransformer.load(tmp_path)
        header.write_text(good_header)
        weights.write_bytes(good_weights)

    weights.write_bytes(good_weights[: len(good_weights) // 2])
    refused("is damaged: sha256")
    tampered = bytearray(good_weights)
    tampered[-3] ^= 1
    weights.write_bytes(bytes(tampered))
    refused("is damaged: sha256")
    weights.unlink()
    refused("was not copied completely", FileNotFoundError)
    header.write_text(good_header[:50])
    refused("is not JSON")
    header.write_text("[]")
    refused("holds no JSON object")
    header.write_text("{}")
    refused("format is missing")
    for path, value, match in [
        (("format",), 99, "format 99, this version reads format 1"),
        (("config", "hidden"), "8", "config: hidden must be int, got '8'"),
        (("config", "colour"), 1, "has no field colour"),
        (("config", "accounts", "phi"), 2.0, r"phi must be in \(0, 1\)"),
        (("config", "state_dim"), 4, r"state_mean must have shape \(4,\), got \(3,\)"),
        (("config", "hidden"), 2**40, r"asks for a network of 10\^25 parameters, but the weights have"),
        (("config", "action"), None, "config: action must be a table of fields, got NoneType"),
        (("config", "layers"), 3, r"weights of transformer\.blocks\.2.* got nothing"),
        (("config", "layers"), 1, r"are not part of a ewa-vq-odt policy"),
        (("config", "method"), "dqn", "method must be one of"),
    ]:
        content = json.loads(good_header)
        place = content
        for key in path[:-1]:
            place = place[key]
        place[path[-1]] = value
        header.write_text(json.dumps(content))
        refused(match)
    assert DecisionTransformer.load(tmp_path).config == tiny()


def test_a_crash_while_saving_leaves_the_old_policy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = make_policy(tiny(), seed=1), make_policy(tiny(), seed=2)
    old.save(tmp_path)

    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.fsync", full_disk)
    with pytest.raises(OSError, match="No space left"):
        new.save(tmp_path)
    monkeypatch.undo()
    loaded = DecisionTransformer.load(tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(loaded.parameters(), old.parameters(), strict=True))
    assert not list(tmp_path.glob(".*tmp"))


def test_spaces() -> None:
    assert state_dim_of(spaces.Box(-np.inf, np.inf, (11,))) == 11
    assert state_dim_of(spaces.Dict({"a": spaces.Discrete(5), "b": spaces.Box(0, 1, (2, 3))})) == 11
    box = action_spec_of(spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([2.0, 1.0], np.float32)))
    assert (box.kind, box.size, box.low, box.high) == ("box", 2, (-2.0, 0.0), (2.0, 1.0))
    assert action_spec_of(spaces.Discrete(3, start=1)) == DISCRETE
    bad = [
        (lambda: state_dim_of(spaces.Dict({"a": spaces.Text(2)})), r"observation\['a'\] must be of a Box, Discrete"),
        (lambda: state_dim_of(spaces.Discrete(10**7)), "1 to 1,000,000 numbers"),
        (lambda: action_spec_of(spaces.Tuple([spaces.Discrete(2)])), "must be Box, Discrete, MultiDiscrete or"),
        (lambda: action_spec_of(spaces.Box(-np.inf, np.inf, (2,))), "must be bounded"),
        (lambda: action_spec_of(spaces.Box(-1, 1, (2, 2))), "flat Box of floats"),
        (lambda: action_spec_of(spaces.Box(0, 5, (2,), np.int64)), "flat Box of floats"),
    ]
    for call, message in bad:
        with pytest.raises(ValueError, match=message):
            call()


def test_actions_are_rescaled_on_the_way_in_and_out() -> None:
    policy = make_policy(tiny())
    actions = random_actions(policy.config, 50)
    unit = policy.action_scale.to_unit(actions)
    assert unit.abs().max() <= 1 + 1e-6
    torch.testing.assert_close(policy.action_scale.from_unit(unit), actions)
    torch.testing.assert_close(
        policy.action_scale.from_unit(torch.tensor([[-1.0, -1.0], [1.0, 1.0]])), torch.tensor([[-2.0, 0.0], [2.0, 1.0]])
    )


def test_a_policy_acts_in_real_environments(tmp_path: Path) -> None:
    for env_id in ("Pendulum-v1", "CartPole-v1"):
        same_step = {"autoreset_mode": gymnasium.vector.AutoresetMode.SAME_STEP}
        envs = gymnasium.make_vec(env_id, num_envs=3, vectorization_mode="sync", vector_kwargs=same_step)
        config = PolicyConfig(
            state_dim=state_dim_of(envs.single_observation_space),
            action=action_spec_of(envs.single_action_space),
            hidden=16,
            layers=1,
            heads=2,
            context_length=5,
        )
        policy = ma.DecisionTransformer(config)
        policy.save(tmp_path / env_id)
        policy = ma.DecisionTransformer.load(tmp_path / env_id)
        context = policy.context(3, 100.0)
        observations, _ = envs.reset(seed=0)
        for _ in range(30):
            actions = policy.act(observations, context, sample=True)
            assert envs.action_space.contains(actions.astype(envs.action_space.dtype))
            observations, rewards, terminated, truncated, _ = envs.step(actions)
            context.record(rewards, terminated | truncated)
        envs.close()


def test_bad_configurations_are_refused() -> None:
    cases = [
        ({"hidden": 9}, "hidden must be a multiple of heads = 2, got 9"),
        ({"method": "ppo"}, "method must be one of"),
        ({"eval_context_length": 9}, "eval_context_length must be at most context_length = 6, got 9"),
        ({"dropout": 1.0}, "dropout must be in"),
        ({"return_scale": 0.0}, "return_scale must be in"),
        ({"layers": 0}, "layers must be at least 1"),
        ({"gamma": 0.0}, "gamma must be in"),
    ]
    for change, message in cases:
        with pytest.raises(ValueError, match=message):
            tiny(**change)
    for change, message in [
        ({"codebook": "hexagons"}, "codebook must be one of"),
        ({"codebook": "kmeans", "num_codes": None}, "num_codes must be given"),
        ({"phi": 0.0}, "phi must be in"),
        ({"read": "later"}, "read must be one of"),
        ({"bias_clip": -1.0}, "bias_clip must be in"),
    ]:
        with pytest.raises(ValueError, match=message):
            tiny(change)


@pytest.mark.parametrize(
    ("accounts", "message"),
    [
        ({"soft_codes": 2, "codebook": "product"}, "soft_codes must be 1 with codebook 'product'"),
        ({"soft_codes": 2, "read": "now"}, "cannot be read 'now'"),
        ({"beta_per": "token"}, "set beta_learned too"),
        ({"codebook": "hierarchical", "coarse_bins": 3}, "coarse_bins must be below bins"),
        ({"ledger_input": "all"}, "ledger_input must be one of"),
        ({"credit": "return"}, "credit must be one of"),
        ({"state_codes": 0}, "state_codes must be"),
        ({"soft_width": 0.0}, "soft_width must be"),
    ],
)
def test_options_that_cannot_work_are_refused_when_configured(accounts: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        tiny(accounts)


def test_fields_are_of_their_types() -> None:
    assert tiny().accounts == PolicyConfig(**(vars(tiny()) | {"accounts": asdict(tiny().accounts)})).accounts
    with pytest.raises(TypeError, match=r"beta_learned must be bool, got 'no' \(str\)"):
        tiny({"beta_learned": "no"})
    with pytest.raises(TypeError, match=r"action must be ActionSpec, got 'box' \(str\)"):
        tiny(action="box")
    with pytest.raises(ValueError, match=r"AccountsConfig has no field accounts\.betta"):
        ModelConfig(accounts={"betta": 1})
    with pytest.raises(TypeError, match=r"action\.start must be a whole number, got 'a'"):
        ActionSpec("discrete", 3, start="a")
    with pytest.raises(ValueError, match="there is nothing to do"):
        TrainConfig(task=None, env_id="CartPole-v1", online_iterations=0)


def test_a_feature_that_never_changed_does_not_drown_the_others() -> None:
    policy = make_policy(tiny({"state_codes": 2, "credit": "advantage"}))
    states = torch.randn(200, 3)
    states[:, 2] = 0.1
    policy.fit_normalisation(states, torch.rand(200, 2) * 2 - 1, torch.randn(200))
    assert (
        policy.state_std[2] == policy.accounts.books.state_codes.std[2] == policy.accounts.books.baseline.std[2] == 1.0
    )
    torch.testing.assert_close(policy.state_std[:2], states[:, :2].std(0, correction=0) + 1e-6)


def test_options_that_lack_something_say_what() -> None:
    with pytest.raises(ValueError, match="no ledger to read"):
        TrainConfig(method="odt", model=ModelConfig(accounts=AccountsConfig(ledger_input="state")))
    for option in ({"beta": 0.2}, {"beta_learned": True}, {"beta_per": "head"}, {"bias_clip": 0.1}, {"read": "now"}):
        words = f"ledger-odt has no attention bias, so accounts.{next(iter(option))} "
        with pytest.raises(ValueError, match=words):
            TrainConfig(method="ledger-odt", model=ModelConfig(accounts=AccountsConfig(**option)))
        with pytest.raises(ValueError, match=words):
            tiny(option, method="ledger-odt")
    with pytest.raises(ValueError, match="soft_codes must be 1 for discrete actions"):
        DecisionTransformer(tiny({"soft_codes": 2}, action=DISCRETE))
    policy = DecisionTransformer(tiny({"state_codes": 3}))
    with pytest.raises(ValueError, match="fit the accounts on data first"):
        policy.accounts.books.route_step(torch.zeros(1, 2), torch.zeros(1, 3))
    with pytest.raises(ValueError, match="states are needed to fit"):
        policy.accounts.books.fit(torch.zeros(4, 2), torch.zeros(4))
    ledger = make_policy(tiny({"ledger_input": "state"}))
    window = make_window(ledger, B=2, K=4)
    del window["balances"]
    with pytest.raises(
        ValueError, match=r"must have balances of shape \(2, 4, 9\) for a policy that reads them, got None"
    ):
        ledger(Window(**window))


def test_ledger_odt_reads_its_ledger_whatever_the_field_says(tmp_path: Path) -> None:
    for accounts in ({}, {"ledger_input": "state"}, {"beta": 0.0}):
        config = tiny(accounts, method="ledger-odt")
        assert (config.has_accounts, config.has_bias, config.reads_ledger) == (True, False, True)
        assert config.accounts.ledger_input == "state"
    policy = make_policy(config)
    assert policy.accounts.scale is None
    policy.save(tmp_path)
    again = DecisionTransformer.load(tmp_path)
    assert again.config == config
    window = make_window(policy, B=2, K=4)
    for name in ("attractions", "codes"):  # only a bias would read them
        del window[name]
    assert torch.equal(again(Window(**window)).mean, policy(Window(**window)).mean)


def test_what_a_method_does_not_have_is_left_behind() -> None:
    learned = TrainConfig(model=ModelConfig(accounts=AccountsConfig(beta_learned=True, read="now", phi=0.1)))
    assert learned.for_method("ewa-vq-odt") == learned
    ledger = learned.for_method("ledger-odt")
    assert ledger.model.accounts == AccountsConfig(ledger_input="state", phi=0.1)
    assert ledger.for_method("ewa-vq-odt").model.accounts == AccountsConfig(phi=0.1)
    assert ledger.for_method("odt").model.accounts == AccountsConfig(phi=0.1)
    old = TrainConfig(model=ModelConfig(accounts=AccountsConfig(ledger_input="state", beta=0.0)))
    assert old.for_method("ewa-vq-odt") == old == TrainConfig.from_dict(old.to_dict())
    renamed = TrainConfig(method="ledger-odt", model=old.model)  # β = 0 may stay: it says the same
    assert renamed.for_method("ewa-vq-odt").model.accounts == AccountsConfig()
