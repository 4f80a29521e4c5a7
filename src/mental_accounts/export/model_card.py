"""A model card for the Hub, from a policy's config and the folder of the run that trained it."""

import json
from pathlib import Path
from typing import Any

from mental_accounts.account_options import OF_THE_BIAS
from mental_accounts.fields import check_fields
from mental_accounts.files import read_json, read_json_lines
from mental_accounts.markdown_text import cell, plain_text
from mental_accounts.policy_options import PolicyConfig

METHODS = {
    "bc": "Behaviour cloning (bc)",
    "gru": "Recurrent policy (gru)",
    "dt": "Decision Transformer (dt)",
    "odt": "Online Decision Transformer (odt)",
    "ewa-vq-odt": "Online Decision Transformer with mental accounts (ewa-vq-odt)",
    "ledger-odt": "Online Decision Transformer that reads its ledger (ledger-odt)",
}
TAGS = ("reinforcement-learning", "decision-transformer", "mental-accounts")


RETURN = "evaluation/return_mean_gm"
KINDS = {
    "config": {"config": "an object", "versions": "an object"},
    "config.config": {
        "task": "text or null", "target_return": "a finite number or null", "eval_episodes": "a whole number or null",
        "seed": "a whole number or null",
    },
    "task": {"env_id": "text or null", "target_return": "a finite number or null"},
    "summary": {
        "last_return": "a finite number or null", "best_return": "a finite number or null",
        "normalised_score": "a finite number or null", "data": "an object or null",
    },
    "summary.data": {"return_mean": "a finite number or null"},
}  # fmt: skip
"""What a card repeats of a run, where it is there."""


def read_run(folder: Path) -> dict[str, Any]:
    """config.json, task.json, summary.json and the evaluations in metrics.jsonl; what is not there is left out."""
    run: dict[str, Any] = {}
    for name, inner in (("config", "config"), ("task", None), ("summary", "data")):
        path = folder / f"{name}.json"
        if path.exists():
            run[name] = _checked(read_json(path), name, str(path))
            if inner is not None and run[name].get(inner) is not None:
                _checked(run[name][inner], f"{name}.{inner}", f"{path}, {inner},")
    metrics = folder / "metrics.jsonl"
    lines = read_json_lines(metrics) if metrics.exists() else []
    run["evaluations"] = [line for line in lines if RETURN in line]
    for line in run["evaluations"]:
        check_fields(line, {RETURN: "a finite number"}, str(metrics))
    return run


def _checked(table: object, kinds: str, where: str) -> dict[str, Any]:
    """An object whose fields are of the kinds that a card needs, as far as they are there."""
    found = check_fields(table, {}, where)
    return check_fields(found, {name: kind for name, kind in KINDS[kinds].items() if name in found}, where)


def card_text(
    config: PolicyConfig, run: dict[str, Any] | None, *, repo_id: str = "OWNER/NAME", loading: str | None = None
) -> str:
    """Front matter and prose; `loading` are the lines of Python that load the policy, by default from the Hub."""
    run = run or {}
    task: dict[str, Any] = run.get("task", {})
    summary: dict[str, Any] = run.get("summary", {})
    settings: dict[str, Any] = run.get("config", {}).get("config", {})
    where = settings.get("task") or task.get("env_id") or "an environment of the user's"
    method = METHODS[config.method]
    fields = {name: v for name, v in config.to_dict().items() if name != "accounts" or config.has_accounts}
    if config.has_accounts and not config.has_bias:
        fields["accounts"] = {name: v for name, v in fields["accounts"].items() if name not in OF_THE_BIAS}
    parts = [
        _front_matter(where, task, summary),
        f"# {method} for {plain_text(where)}\n",
        f"A policy trained with [mental-accounts](https://arxiv.org/abs/2509.15498): {_what(config)}.\n",
        "## Use\n",
        _use(config, settings.get("target_return") or task.get("target_return"), loading or _from_hub(repo_id)),
        "## Results\n",
        _results(run, summary),
        "## How it was trained\n",
        _training(run, settings),
        "## The policy\n",
        _table({"field": "value"}, _plain(fields)),
    ]
    return "\n".join(parts)


def _what(config: PolicyConfig) -> str:
    if config.has_accounts and not config.has_bias:
        return "a transformer that keeps an account of each kind of action and reads all balances before it acts"
    if config.has_accounts:
        return "a transformer that keeps an account of each kind of action and lets the balances tilt its attention"
    if config.is_recurrent:
        return "a recurrent network over states, actions and rewards that carries its own memory, as a baseline"
    if config.is_transformer:
        return "the same transformer without accounts, as a baseline"
    return "an MLP that clones the actions of the data from the state alone, as a baseline"


def _front_matter(where: str, task: dict[str, Any], summary: dict[str, Any]) -> str:
    lines = ["---", "library_name: mental-accounts", "pipeline_tag: reinforcement-learning", "tags:"]
    lines += [f"- {tag}" for tag in TAGS]
    if summary.get("last_return") is not None:
        lines += [
            "model-index:",
            f"- name: {json.dumps(where)}",
            "  results:",
            "  - task:",
            "      type: reinforcement-learning",
            "    dataset:",
            f"      name: {json.dumps(where)}",
            f"      type: {json.dumps(str(task.get('env_id', where)))}",
            "    metrics:",
            "    - type: mean_reward",
            f"      value: {float(summary['last_return']):.4g}",
            "      name: mean return of the last evaluation",
        ]
    return "\n".join([*lines, "---", ""])


def _from_hub(repo_id: str) -> str:
    return f'from mental_accounts.export.hub import HubPolicy\n\npolicy = HubPolicy.from_pretrained("{repo_id}")'


def _use(config: PolicyConfig, target: float | None, loading: str) -> str:
    asked = "..." if target is None else f"{float(target):g}"
    masks = ', action_masks=info["action_mask"][None]' if config.action_masks else ""
    return (
        f"```python\n{loading}\n"
        f"context = policy.context(num_envs=1, target_return={asked})\n"
        f"action = policy.act(observation, context{masks})  # observation (1, {config.state_dim})\n"
        "context.record(reward, ended)  # what the environment answered: posts the reward\n"
        "```\n"
    )


def _results(run: dict[str, Any], summary: dict[str, Any]) -> str:
    if summary.get("last_return") is None and not run.get("evaluations"):
        return "No evaluation is known of this policy.\n"
    rows: dict[str, Any] = {}
    for name, text in (
        ("last_return", "mean return, last evaluation"),
        ("best_return", "mean return, best evaluation"),
        ("normalised_score", "normalised score, last evaluation"),
    ):
        if summary.get(name) is not None:
            rows[text] = f"{float(summary[name]):.2f}"
    if not rows:
        last = run["evaluations"][-1]
        rows["mean return, last evaluation so far"] = f"{float(last[RETURN]):.2f}"
    data = summary.get("data")
    if data and data.get("return_mean") is not None:
        rows["mean return of the offline data"] = f"{float(data['return_mean']):.2f}"
    settings = run.get("config", {}).get("config", {})
    episodes = settings.get("eval_episodes")
    note = f"Evaluations play {episodes} episodes with the mean action; one run, seed {settings.get('seed')}.\n"
    return _table({"": "value"}, rows) + ("" if episodes is None else f"\n{note}")


def _training(run: dict[str, Any], settings: dict[str, Any]) -> str:
    if not settings:
        return "The run that trained this policy is not known.\n"
    shown = {name: value for name, value in settings.items() if name != "model" and value is not None}
    versions = run.get("config", {}).get("versions", {})
    made = ", ".join(f"{name} {version}" for name, version in versions.items())
    return _table({"setting": "value"}, shown) + (f"\nMade with {plain_text(made)}.\n" if made else "")


def _plain(values: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Nested tables with dotted names; what is None follows from the rest and is left out."""
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if isinstance(value, dict):
            flat |= _plain(value, f"{prefix}{name}.")
        elif value is not None:
            flat[f"{prefix}{name}"] = value
    return flat


def _table(head: dict[str, str], rows: dict[str, Any]) -> str:
    ((left, right),) = head.items()
    lines = [f"| {left} | {right} |", "|---|---|"]
    lines += [f"| {cell(name)} | {cell(str(value))} |" for name, value in rows.items()]
    return "\n".join(lines) + "\n"
