"""The policies that come with the package: train them, write their cards, and check that they earn what these say.

    python studies/zoo_cards.py make hidden-arm --runs runs/zoo     # train (or go on), play, put it into the package
    python studies/zoo_cards.py check                               # play all of them again, on other episodes
    python studies/zoo_cards.py table                               # the table of docs/zoo.md

A policy's folder is that of its run without checkpoints, and with the last line of its log alone. It was chosen by
nothing: one run, seed 0, its last policy.
"""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np

from mental_accounts.export.model_card import card_text, read_run
from mental_accounts.learning.evaluation import evaluate_policy, read_subject
from mental_accounts.learning.run_folder import RunFolder, surroundings
from mental_accounts.policy.policy_files import read_policy_config
from mental_accounts.report.statistics import mean_interval
from mental_accounts.zoo import CARD, ZOO, earned, read_card, zoo_names

LONG = "--held-out 0.1 --pretrain-iterations 20 --updates-per-pretrain-iteration 400 --pretrain-eval-every 20"
HIDDEN = f"--preset hidden --data-steps 200000 {LONG}"
ROBOT = (
    "--preset quick --method odt --model.hidden 64 --data-steps 200000 --pretrain-iterations 10 "
    "--updates-per-pretrain-iteration 1000 --pretrain-eval-every 10 --online-iterations 0 --eval-episodes 20"
)
BANDIT = (
    "--preset online --method ledger-odt --model.accounts.phi 0.001 --model.accounts.reward-clip None "
    "--model.accounts.ledger-channels mean count --values.discount 0.9 --episodes-per-iteration 4"
)
ARM = (
    "--preset online --method ledger-odt --model.accounts.reward-transform raw --model.accounts.reward-clip None "
    "--model.accounts.phi 0.2 --values.discount 0 --values.critic-hidden 256 --batch-size 128 "
    "--random-episodes 40 --episodes-per-iteration 8 --updates-per-iteration 300"
)
"""As in online_scratch.py: by acting it earns more than those who made the data of the task."""
RECIPES = {
    "hidden-arm": f"--env-id mental_accounts.environments:HiddenArm-v0 {ARM}",
    "drifting-bandit": f"--task drifting-bandit {HIDDEN}",
    **{
        f"{robot}-{kind}": f"--task {robot}-{kind} {ROBOT}"
        for robot in ("hopper", "walker2d", "halfcheetah")
        for kind in ("medium", "medium-replay", "medium-expert")
    },
    **{
        f"popgym-bandit-{level}": f"--env-id popgym:popgym-MultiarmedBandit{level.capitalize()}-v0 {BANDIT}"
        for level in ("easy", "medium", "hard")
    },
}
"""Name -> what follows `mental-accounts train`."""
EPISODES = {"robot": 100, "other": 300}
SEED, CHECK_SEED = 0, 1
KEPT = ("task.json", "summary.json")


def command(name: str) -> str:
    """The one that makes it."""
    return f"mental-accounts train {RECIPES[name]} --seed 0"


def played(folder: Path, episodes: int, seed: int, *, sample: bool = False) -> tuple[list[float], float | None]:
    """Returns, and the normalised score if there is one."""
    found, _ = evaluate_policy(read_subject(folder, None, None, "cpu"), episodes, seed, sample=sample)
    return found["returns"], found.get("normalised_score")


def interval(returns: list[float]) -> dict[str, float]:
    """The mean with its 95% interval over episodes, as a card has it."""
    found = mean_interval(returns)
    return {name: round(getattr(found, of), 2) for name, of in (("mean", "estimate"), ("low", "low"), ("high", "high"))}


def make(name: str, runs: Path) -> None:
    """Train, play, and put the policy into the package."""
    folder = RunFolder(runs / name)
    if not folder.is_finished:
        program = [sys.executable, "-m", "mental_accounts"]
        verb = ["resume", str(folder.path)] if folder.is_run else ["train", *shlex.split(RECIPES[name]), "--seed", "0"]
        subprocess.run([*program, *verb, *([] if folder.is_run else ["--run", str(folder.path)])], check=True)
    place = ZOO / name
    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(folder.path / "policy", place / "policy")
    for kept in KEPT:
        shutil.copy(folder.path / kept, place / kept)
    (place / "metrics.jsonl").write_text(json.dumps(folder.read_metrics()[-1]) + "\n")  # has the target return
    facts = json.loads((folder.path / "config.json").read_text()) | {"command": shlex.split(command(name))}
    (place / "config.json").write_text(json.dumps(facts, indent=1) + "\n")
    config = folder.read_config()
    episodes = EPISODES["robot" if name.partition("-")[0] in ("hopper", "walker2d", "halfcheetah") else "other"]
    returns, score = played(place, episodes, SEED)
    sampled, _ = played(place, episodes, SEED, sample=True)
    card: dict[str, Any] = {
        "task": config.task or str(config.env_id), "method": config.method, "command": command(name),
        "episodes": episodes, "seed": SEED, "returns": interval(returns), "sampled": interval(sampled), "score": score,
        **surroundings(),
    }  # fmt: skip
    (place / CARD).write_text(json.dumps(card, indent=1) + "\n")
    (place / "README.md").write_text(readme(name, place, card))
    print(f"{name}: {card['returns']}", flush=True)


def readme(name: str, place: Path, card: dict[str, Any]) -> str:
    """The card for people."""
    loading = f'import mental_accounts as ma\n\npolicy = ma.DecisionTransformer.pretrained("{name}")'
    text = card_text(read_policy_config(place / "policy"), read_run(place), loading=loading)
    rows = [f"| {what} | {card[key]['mean']} [{card[key]['low']}, {card[key]['high']}] |"
            for what, key in (("mean action", "returns"), ("sampled actions", "sampled"))]  # fmt: skip
    scores = [
        "## Scores\n", f"Mean return over {card['episodes']} episodes [95% over episodes], one policy:\n",
        "| | return |", "|---|---:|", *rows, "", "Made by\n", f"```bash\n{card['command']}\n```\n",
    ]  # fmt: skip
    return text.replace("## Use\n", "\n".join(scores) + "\n## Use\n", 1)


def check(name: str) -> bool:
    """Whether the policy earns on other episodes what its card says: the intervals of both overlap."""
    card = read_card(name)
    returns, _ = played(ZOO / name, card["episodes"], CHECK_SEED)
    again, said = interval(returns), card["returns"]
    fits = bool(again["low"] <= said["high"] and said["low"] <= again["high"])
    print(f"{name}: card {said['mean']} [{said['low']}, {said['high']}], now {again['mean']} "
          f"[{again['low']}, {again['high']}]{'' if fits else '  DIFFERENT'}", flush=True)  # fmt: skip
    return fits


def table() -> str:
    """All policies, for docs/zoo.md."""
    lines = ["| policy | method | return [95%] | score | sampled actions [95%] |", "|---|---|---:|---:|---:|"]
    for name in zoo_names():
        card = read_card(name)
        mean, sampled = (earned(card[key]).replace("-", "−") for key in ("returns", "sampled"))
        score = "" if card["score"] is None else f"{card['score']:.0f}"
        lines.append(f"| `{name}` | {card['method']} | {mean} | {score} | {sampled} |")
    return "\n".join(lines)


def main() -> None:
    """Make, check, or print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("make", "check", "table"))
    parser.add_argument("names", nargs="*", help="default: all")
    parser.add_argument("--runs", type=Path, default=Path("runs/zoo"), help="where the runs are")
    given = parser.parse_args()
    if given.what == "table":
        print(table())
        return
    if given.what == "check":
        results = [check(name) for name in given.names or zoo_names()]
        sys.exit(0 if all(results) and np.size(results) else "some policies do not earn what their cards say")
    for name in given.names or RECIPES:
        make(name, given.runs)


if __name__ == "__main__":
    main()
