"""Policies on the Hub: the folder round trip, the card, and what would be uploaded. Nothing goes over a network."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import mental_accounts as ma

pytest.importorskip("huggingface_hub")
from huggingface_hub import HfApi, ModelCard

from mental_accounts.export.hub import HubPolicy
from mental_accounts.export.model_card import card_text, read_run

BOX = ma.ActionSpec("box", 2, (-2.0, -1.0), (2.0, 3.0))


def config(**changes: Any) -> ma.PolicyConfig:
    return ma.PolicyConfig(state_dim=3, action=BOX, hidden=16, layers=1, heads=2, context_length=4, **changes)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """What a finished run leaves behind."""
    folder = tmp_path / "run"
    ma.DecisionTransformer(config()).save(folder / "policy")
    settings = {"task": "hopper-medium", "method": "ewa-vq-odt", "seed": 3, "eval_episodes": 10, "lr": 0.001}
    files = {
        "config": {"config": settings, "versions": {"torch": "2.13.0"}},
        "task": {"env_id": "Hopper-v5", "target_return": 3600.0, "random_return": -20.3, "expert_return": 3234.3},
        "summary": {
            "last_return": 1234.56, "best_return": 2000.0, "normalised_score": 38.5, "data": {"return_mean": 1362.0},
        },
    }  # fmt: skip
    for name, content in files.items():
        (folder / f"{name}.json").write_text(json.dumps(content))
    (folder / "metrics.jsonl").write_text('{"iteration": 1, "evaluation/return_mean_gm": 1234.56}\n{"iter')
    return folder


def same(a: ma.DecisionTransformer, b: ma.DecisionTransformer) -> bool:
    ours, theirs = a.state_dict(), b.state_dict()
    return a.config == b.config and all(torch.equal(ours[name], theirs[name]) for name in ours)


def test_a_folder_round_trip(run: Path, tmp_path: Path) -> None:
    policy = HubPolicy.from_run(run)
    assert same(policy, ma.DecisionTransformer.load(run / "policy"))
    policy.save_pretrained(tmp_path / "out")
    names = {path.name for path in (tmp_path / "out").iterdir()}
    (weights,) = (name for name in names if name.endswith(".safetensors"))
    assert names == {"README.md", "policy.json", "config.json", weights}
    again = HubPolicy.from_pretrained(tmp_path / "out")
    assert isinstance(again, HubPolicy)
    assert same(policy, again)
    assert same(policy, ma.DecisionTransformer.load(tmp_path / "out"))  # the same files as policy.save writes
    observation = np.zeros((1, 3), dtype=np.float32)
    actions = [p.act(observation, p.context(1, 10.0)) for p in (policy, again)]
    assert np.array_equal(*actions)


def test_the_card_tells_of_the_run(run: Path) -> None:
    card = HubPolicy.from_run(run).generate_model_card(repo_id="me/hopper")
    data = card.data.to_dict()
    assert data["library_name"] == "mental-accounts"
    assert {"reinforcement-learning", "mental-accounts"} <= set(data["tags"])
    (result,) = card.data.eval_results
    assert (result.metric_value, result.dataset_type) == (1235, "Hopper-v5")
    for text in (
        "with mental accounts (ewa-vq-odt) for hopper-medium",
        'HubPolicy.from_pretrained("me/hopper")',
        "target_return=3600",
        "| mean return, last evaluation | 1234.56 |",
        "| mean return, best evaluation | 2000.00 |",
        "| normalised score, last evaluation | 38.50 |",
        "| mean return of the offline data | 1362.00 |",
        "10 episodes with the mean action; one run, seed 3",
        "| lr | 0.001 |",
        "| accounts.phi | 0.05 |",
        "torch 2.13.0",
    ):
        assert text in card.content, text


def test_names_of_strangers_are_text_in_the_card(run: Path) -> None:
    known = read_run(run)
    known["config"]["config"]["task"] = "[x](javascript:alert(1)) | <b> *y*\n# z"
    known["config"]["versions"] = {"torch": "`2` **0**"}
    text = card_text(ma.PolicyConfig(state_dim=3, action=ma.ActionSpec("discrete", 2)), known)
    body = text.split("---", 2)[2]
    assert r"for [x\](javascript:alert(1)) | &lt;b> \*y\* # z" in body.splitlines()[2]
    assert r"| task | [x\](javascript:alert(1)) \| &lt;b> \*y\* # z |" in body
    assert r"Made with torch \`2\` \*\*0\*\*." in body


def test_a_run_that_is_not_finished_and_a_policy_of_unknown_origin(run: Path) -> None:
    (run / "summary.json").unlink()
    assert "| mean return, last evaluation so far | 1234.56 |" in str(HubPolicy.from_run(run).generate_model_card())
    bare = HubPolicy(config(method="odt")).generate_model_card().content
    assert "No evaluation is known" in bare
    assert "The run that trained this policy is not known" in bare
    assert "(odt) for an environment of the user's" in bare
    assert "accounts.phi" not in bare
    ModelCard(bare).data.to_dict()


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("config.json", "[" * 100_000, "lists and objects lie more than"),
        ("config.json", '{"config": 3}', "config must be an object, got 3"),
        ("config.json", '{"config": {"task": 3}}', ", config, cannot be read: task must be text"),
        ("task.json", '{"env_id": 7}', "env_id must be text"),
        ("task.json", '{"target_return": "much"}', "target_return must be a finite number"),
        ("summary.json", "[]", "it holds no JSON object"),
        ("summary.json", '{"last_return": "good"}', "last_return must be a finite number"),
        ("summary.json", '{"data": {"return_mean": NaN}}', ", data, cannot be read: return_mean must be"),
        ("metrics.jsonl", "3\n", ", line 1 cannot be read"),
        ("metrics.jsonl", '{"evaluation/return_mean_gm": "high"}\n', "return_mean_gm must be a finite number"),
    ],
)
def test_files_of_a_run_that_are_wrong(run: Path, name: str, text: str, words: str) -> None:
    (run / name).write_text(text)
    with pytest.raises(ValueError, match=rf"{name}.*{words}") as caught:
        HubPolicy.from_run(run)
    assert len(str(caught.value).splitlines()) == 1


def test_what_would_be_uploaded(run: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sent: dict[str, Any] = {}

    class Repo:
        repo_id = "me/hopper"

    def create_repo(self: HfApi, **kwargs: Any) -> Repo:
        sent["repo"] = kwargs
        return Repo()

    def upload_folder(self: HfApi, **kwargs: Any) -> str:
        sent["files"] = {path.name: path.read_bytes() for path in Path(kwargs["folder_path"]).iterdir()}
        sent["to"] = kwargs["repo_id"]
        return "url"

    monkeypatch.setattr(HfApi, "create_repo", create_repo)
    monkeypatch.setattr(HfApi, "upload_folder", upload_folder)
    policy = HubPolicy.from_run(run)
    assert policy.push_to_hub("me/hopper", private=True) == "url"
    assert sent["repo"]["repo_id"] == sent["to"] == "me/hopper"
    assert sent["repo"]["private"]
    assert {"README.md", "policy.json", "config.json"} < set(sent["files"])
    assert b'from_pretrained("me/hopper")' in sent["files"]["README.md"]
    for name, content in sent["files"].items():
        (tmp_path / name).write_bytes(content)
    asked: dict[str, Any] = {}

    def snapshot_download(**kwargs: Any) -> str:
        asked.update(kwargs)
        return str(tmp_path)

    monkeypatch.setattr("mental_accounts.export.hub.snapshot_download", snapshot_download)
    monkeypatch.setattr("huggingface_hub.hub_mixin.hf_hub_download", lambda **_: str(tmp_path / "config.json"))
    assert same(policy, HubPolicy.from_pretrained("me/hopper", revision="main"))
    assert asked["repo_id"] == "me/hopper"
    assert asked["allow_patterns"] == ["policy.json", "weights-*.safetensors"]


def test_bad_input(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="holds no run with a policy"):
        HubPolicy.from_run(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"holds no policy: policy\.json is missing"):
        HubPolicy.from_pretrained(tmp_path)


def test_the_card_of_a_policy_that_reads_its_ledger_has_no_beta() -> None:
    config = ma.PolicyConfig(state_dim=3, action=ma.ActionSpec("discrete", 2), method="ledger-odt")
    card = card_text(config, None)
    assert "Online Decision Transformer that reads its ledger (ledger-odt)" in card
    assert "reads all balances before it acts" in card
    assert "| accounts.ledger_input | state |" in card
    for name in ("beta", "beta_learned", "beta_per", "read", "tilt"):
        assert f"accounts.{name} " not in card
    assert "tilt its attention" not in card
