import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mental_accounts.policy import DecisionTransformer, Window

from . import slow_policy
from .helpers import BOX, DISCRETE, make_policy, make_window, numbers, tiny


@st.composite
def configurations(draw: st.DrawFn) -> object:
    codebook = draw(st.sampled_from(["grid", "product", "kmeans", "algorithm2"]))
    return tiny(
        method=draw(st.sampled_from(["dt", "odt", "ewa-vq-odt"])),
        action=draw(st.sampled_from([BOX, DISCRETE])),
        layers=draw(st.integers(1, 3)),
        heads=draw(st.sampled_from([1, 2, 4])),
        inner=draw(st.sampled_from([None, 5])),
        timestep_embedding=draw(st.booleans()),
        order_embedding=draw(st.booleans()),
        reward_input=draw(st.sampled_from(["none", "state", "advantage"])),
        accounts={
            "codebook": codebook,
            "num_codes": 4,
            "phi": draw(st.sampled_from([0.05, 0.5])),
            "beta": draw(st.sampled_from([0.0, 0.05, 1.3])),
            "beta_learned": draw(st.booleans()),
            "beta_per": draw(st.sampled_from(["model", "layer", "head", "layer-head"])),
            "read": draw(st.sampled_from(["then", "now"])),
            "bias_clip": draw(st.sampled_from([None, 0.3])),
        },
    )


def double_policy(config: object, seed: int) -> DecisionTransformer:
    policy = make_policy(config, seed, torch.float64)
    if policy.accounts is not None:
        with torch.no_grad():
            policy.accounts.scale.beta.add_(0.2 * torch.randn_like(policy.accounts.scale.beta))
    return policy


@settings(max_examples=25)
@given(config=configurations(), K=st.integers(1, 5), seed=st.integers(0, 1000))
def test_outputs_and_gradients_equal_the_slow_reference(config: object, K: int, seed: int) -> None:
    policy = double_policy(config, seed)
    window = make_window(policy, B=2, K=K, padding=[0, K // 2])
    if "attractions" in window:
        window["attractions"] = window["attractions"].double()
    weights = {name: value.detach().clone().requires_grad_() for name, value in policy.named_parameters()}
    expected = slow_policy.predictions(weights | dict(policy.named_buffers()), config, window)
    got = vars(policy(Window(**window)))
    there = window["mask"]
    for name, value in expected.items():
        torch.testing.assert_close(got[name][there], value[there], rtol=0, atol=1e-9)

    probe = {name: torch.randn_like(value) for name, value in expected.items()}
    sum((got[name] * probe[name])[there].sum() for name in expected).backward()
    sum((expected[name] * probe[name])[there].sum() for name in expected).backward()
    for name, parameter in policy.named_parameters():
        slow = weights[name].grad
        fast = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
        torch.testing.assert_close(
            fast,
            torch.zeros_like(parameter) if slow is None else slow,
            rtol=1e-7,
            atol=1e-7,
            msg=lambda m, n=name: f"{n}: {m}",
        )


def test_a_learned_beta_gets_a_gradient() -> None:
    policy = double_policy(tiny({"beta_learned": True, "beta_per": "layer-head"}), 3)
    window = make_window(policy, B=2, K=5)
    policy(Window(**window)).mean.sum().backward()
    assert policy.accounts.scale.beta.grad.abs().min() > 0


@pytest.mark.parametrize("read", ["then", "now"])
def test_beta_zero_is_bit_for_bit_plain_odt(read: str) -> None:
    odt = make_policy(tiny(method="odt"))
    ewa = make_policy(tiny({"beta": 0.0, "read": read}, method="ewa-vq-odt"))
    ewa.load_state_dict(odt.state_dict(), strict=False)
    window = make_window(ewa, B=4, K=6, padding=[0, 2, 5, 1])
    plain = {name: value for name, value in window.items() if name not in ("attractions", "codes")}
    ours, theirs = ewa(Window(**window)), odt(Window(**plain))
    assert torch.equal(ours.mean, theirs.mean)
    assert torch.equal(ours.log_std, theirs.log_std)
    ours.mean.sum().backward()
    theirs.mean.sum().backward()
    for (name, one), other in zip(ewa.named_parameters(), odt.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None), name
        assert one.grad is None or torch.equal(one.grad, other.grad), name


@pytest.mark.parametrize("accounts", [{}, {"soft_codes": 2}, {"account_scope": "window"}, {"codebook": "product"}])
def test_ledger_odt_is_bit_for_bit_a_ledger_beside_a_beta_of_zero(accounts: dict[str, object]) -> None:
    """Outputs, gradients and initial weights: what the form was called before it had a name."""
    old = make_policy(tiny({"ledger_input": "state", "beta": 0.0, **accounts}))
    new = make_policy(tiny(accounts, method="ledger-odt"))
    assert [name for name, _ in new.named_parameters()] == [name for name, _ in old.named_parameters()]
    assert set(old.state_dict()) - set(new.state_dict()) == {"accounts.scale.beta"}
    assert all(torch.equal(value, old.state_dict()[name]) for name, value in new.state_dict().items())
    window = Window(**make_window(old, B=4, K=6, padding=[0, 2, 5, 1]))
    found = [policy(window) for policy in (old, new)]
    assert torch.equal(found[0].mean, found[1].mean)
    assert torch.equal(found[0].log_std, found[1].log_std)
    for distribution in found:
        distribution.mean.sum().backward()
    for (name, one), other in zip(old.named_parameters(), new.parameters(), strict=True):
        assert (one.grad is None) == (other.grad is None), name
        assert one.grad is None or torch.equal(one.grad, other.grad), name


def test_same_initial_weights_for_all_methods_from_one_seed() -> None:
    weights = {}
    for method in ("odt", "ewa-vq-odt", "ledger-odt"):
        torch.manual_seed(5)
        weights[method] = dict(DecisionTransformer(tiny(method=method)).named_parameters())
    for method in ("ewa-vq-odt", "ledger-odt"):
        assert all(torch.equal(value, weights[method][name]) for name, value in weights["odt"].items())


def test_attention_to_the_biased_columns_follows_the_bias() -> None:
    """A huge bias on one action makes every later row look at it alone."""
    policy = make_policy(tiny({"beta": 1.0}))
    window = make_window(policy, B=1, K=5)
    window["attractions"] = torch.zeros(1, 5)
    window["attractions"][0, 1] = 1e4
    changed = {name: value.clone() for name, value in window.items()}
    changed["actions"][0, 2] = torch.tensor([-2.0, 1.0])  # step 2's action is out-shouted by step 1's
    before, after = policy(Window(**window)).mean, policy(Window(**changed)).mean
    assert torch.allclose(before[0, 4], after[0, 4], atol=1e-6)
    assert bool(torch.isfinite(before).all())


@pytest.mark.parametrize(
    "option",
    [
        {"ledger_input": "state"}, {"soft_codes": 2}, {"state_codes": 2},
        {"credit": "advantage"}, {"beta_per": "token", "beta_learned": True}, {"codebook": "hierarchical"},
    ],
)  # fmt: skip
def test_options_leave_the_initial_weights_of_everything_else_alone(option: dict[str, object]) -> None:
    policies = []
    for accounts in ({}, option):
        torch.manual_seed(3)
        policies.append(DecisionTransformer(tiny(accounts)).state_dict())
    plain, more = policies
    for name, value in plain.items():
        if not name.startswith("accounts."):
            assert torch.equal(value, more[name]), name
    added = {name for name in more if name not in plain and not name.startswith("accounts.")}
    expected = {"embed_ledger.weight", "embed_ledger.bias"} if "ledger_input" in option else set()
    assert added == expected


def test_reading_rewards_leaves_the_initial_weights_of_everything_else_alone() -> None:
    policies = []
    for reward_input in ("none", "state", "advantage"):
        torch.manual_seed(3)
        policies.append(DecisionTransformer(tiny({"ledger_input": "state"}, reward_input=reward_input)).state_dict())
    plain, more, most = policies
    assert all(torch.equal(value, more[name]) for name, value in plain.items())
    assert all(torch.equal(value, most[name]) for name, value in more.items())
    assert set(more) - set(plain) == {"embed_reward.weight", "reward_mean", "reward_std"}
    assert set(most) - set(more) == {f"reward_baseline.{name}" for name in ("mean", "std", "coefficients")}


def test_beta_per_token_begins_as_one_beta() -> None:
    torch.manual_seed(0)
    one = DecisionTransformer(tiny({"beta": 0.6, "beta_learned": True})).eval()
    torch.manual_seed(0)
    other = DecisionTransformer(tiny({"beta": 0.6, "beta_learned": True, "beta_per": "token"})).eval()
    window = make_window(one, B=2, K=6)
    torch.testing.assert_close(numbers(one(Window(**window))), numbers(other(Window(**window))))


def test_gradients_reach_the_ledger_map_and_the_map_of_tokens() -> None:
    policy = make_policy(tiny({"ledger_input": "state", "beta_per": "token", "beta_learned": True})).train()
    numbers(policy(Window(**make_window(policy, B=3, K=6)))).square().sum().backward()
    for parameter in (policy.embed_ledger.weight, policy.accounts.token_scale.weight, policy.accounts.scale.beta):
        assert parameter.grad is not None
        assert parameter.grad.abs().sum() > 0
