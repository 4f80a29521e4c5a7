"""Critics on disk: the same values when they are read again, and nothing that does not fit the policy."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from mental_accounts.action_spec import ActionSpec
from mental_accounts.config import TrainConfig
from mental_accounts.data.tensor_files import read_tensors, write_tensors
from mental_accounts.errors import DataError
from mental_accounts.learning.critic_files import FILE, FORMAT, PolicyCritics, read_critics, write_critics
from mental_accounts.learning.critics import critics_of
from mental_accounts.learning.evaluation import evaluate_policy, read_subject
from mental_accounts.policy import DecisionTransformer
from mental_accounts.value_options import ValueConfig
from tests.policy.helpers import BOX, DISCRETE, make_policy, tiny

from .cut_runs import start


def saved(folder: Path, action: ActionSpec = BOX, *, layer_norm: bool = False) -> tuple[DecisionTransformer, Any]:
    policy = make_policy(tiny({"ledger_input": "state"}, method="ledger-odt", action=action, reward_input="state"))
    held = PolicyCritics(critics_of(policy, 8, layer_norm=layer_norm), 0.9, 2.5)
    write_critics(folder, held)
    return policy, held


@pytest.mark.parametrize("action", [BOX, DISCRETE])
@pytest.mark.parametrize("layer_norm", [False, True])
def test_what_is_read_is_what_was_written(action: ActionSpec, layer_norm: bool, tmp_path: Path) -> None:
    policy, held = saved(tmp_path, action, layer_norm=layer_norm)
    found = read_critics(tmp_path, policy)
    assert found is not None
    assert (found.discount, found.reward_scale) == (0.9, 2.5)
    inputs = torch.randn(5, held.critics.weights[0].shape[1])
    assert torch.equal(found.critics(inputs), held.critics(inputs))
    assert not any(parameter.requires_grad for parameter in found.critics.parameters())
    assert [path.name for path in tmp_path.iterdir()] == [FILE]


def test_a_run_writes_the_critics_that_its_policy_had(aim: TrainConfig, tmp_path: Path) -> None:
    config = replace(aim, improve="td3", values=ValueConfig(layer_norm=True, discount=0.8, reward_scale=None))
    trainer = start(config.for_method("odt"), tmp_path / "run")
    policy = trainer.run()
    found, values = read_critics(tmp_path / "run", policy), trainer.updater.values
    assert found is not None
    assert (found.discount, found.reward_scale) == (0.8, values.reward_scale)
    for name, value in values.critics.state_dict().items():
        assert torch.equal(found.critics.state_dict()[name], value)
    start(aim.for_method("odt"), tmp_path / "plain").run()
    assert not (tmp_path / "plain" / FILE).exists()
    assert read_critics(tmp_path / "plain", policy) is None


def rewritten(path: Path, tensors: dict[str, Any] | None = None, **facts: Any) -> None:
    """As somebody else would write it: with a right checksum."""
    held, known = read_tensors(path, [], FORMAT)
    kept = {name: value for name, value in (held | (tensors or {})).items() if value is not None}
    write_tensors(path, kept, {name: value for name, value in (known | facts).items() if value is not None}, FORMAT)


def damaged(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[-9] ^= 1
    path.write_bytes(data)


NAN = torch.zeros(2, 8, 8).fill_(torch.nan)
BAD: dict[str, tuple[Any, str]] = {
    "cut short": (lambda path: path.write_bytes(path.read_bytes()[:-20]), "not a whole safetensors file"),
    "empty": (lambda path: path.write_bytes(b""), "not a whole safetensors file"),
    "one bit": (damaged, "the checksum differs"),
    "another format": (lambda path: write_tensors(path, {}, {}), "expected a file of format 'mental-accounts critics"),
    "no weights": (lambda path: rewritten(path, {"weights.0": None}), r"has no \['weights.0'\]"),
    "one is missing": (lambda path: rewritten(path, {"biases.1": None}), "expected the tensors"),
    "one too many": (lambda path: rewritten(path, {"more": torch.zeros(2)}), "expected the tensors"),
    "no numbers": (lambda path: rewritten(path, {"weights.1": NAN}), r"weights.1 must be finite"),
    "doubles": (lambda path: rewritten(path, {"weights.1": NAN.double()}), r"weights.1 must have shape"),
    "another width": (lambda path: rewritten(path, {"weights.1": NAN[:, :4]}), r"\(2, 8, 8\) of .*, got \(2, 4, 8\)"),
    "far too wide": (lambda path: rewritten(path, {"weights.0": torch.zeros(0, 9, 2**40)}), "critics.safetensors"),
    "a number": (lambda path: rewritten(path, {"weights.0": torch.zeros(())}), "weights.0 must have shape"),
    "nothing wide": (lambda path: rewritten(path, {"weights.0": torch.zeros(2, 9, 0)}), "weights.0 must have shape"),
    "no discount": (lambda path: rewritten(path, discount=None), "discount is missing"),
    "discount 1": (lambda path: rewritten(path, discount=1), r"discount must be in \[0, 0.99999\]"),
    "discount in words": (lambda path: rewritten(path, discount="0.9"), "discount must be a finite number"),
    "a huge discount": (lambda path: rewritten(path, discount=10**400), "discount must be a finite number"),
    "a scale of 0": (lambda path: rewritten(path, reward_scale=0), "reward_scale must be in"),
    "a scale of NaN": (lambda path: rewritten(path, reward_scale=float("nan")), "reward_scale must be a finite"),
    "layer_norm 1": (lambda path: rewritten(path, layer_norm=1), "layer_norm must be true or false, got 1"),
}


@pytest.mark.parametrize("kind", BAD)
def test_what_does_not_fit_is_refused_in_one_line(kind: str, tmp_path: Path) -> None:
    policy, _ = saved(tmp_path)
    damage, words = BAD[kind]
    damage(tmp_path / FILE)
    with pytest.raises(DataError, match=words) as refused:
        read_critics(tmp_path, policy)
    assert "\n" not in str(refused.value)
    assert FILE in str(refused.value)


def test_critics_of_another_policy_are_refused(tmp_path: Path) -> None:
    saved(tmp_path)
    for other in (tiny({}, method="odt"), tiny({}, method="odt", action=DISCRETE)):
        with pytest.raises(DataError, match=r"weights\.0 must have shape .*it belongs to another policy"):
            read_critics(tmp_path, make_policy(other))


def test_bad_critics_do_not_keep_a_policy_from_acting(aim: TrainConfig, tmp_path: Path) -> None:
    config = replace(aim, improve="td3", pretrain_iterations=1, online_iterations=0).for_method("odt")
    start(config, tmp_path / "run").run()
    (tmp_path / "run" / FILE).write_bytes(b"nothing")
    result, _ = evaluate_policy(read_subject(tmp_path / "run", None, None), 1)
    assert len(result["returns"]) == 1
