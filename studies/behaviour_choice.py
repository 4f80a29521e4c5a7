"""Choose the shipped behaviour policies from the snapshots of behaviour_training.py.

    python studies/behaviour_choice.py --runs runs

After D4RL's definitions: *medium* is a half-trained actor with about a third of the expert's return, the *replay
ladder* is the sequence of actors up to it (which collected its replay memory), *expert* is the best late actor. The
choice is by measured returns; the shipped actors are measured again with new seeds, so that selection does not bias
their returns.

    <out>/<task>/medium.safetensors, expert.safetensors, replay-01.safetensors ...  float16 (behaviour_actor.py)
    <out>/manifest.json       per task: files, steps, returns, the ladder's weights

The default of --out is where the package ships them; results/behaviours/README.md has the manifest's format.
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.metadata
import itertools
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from behaviour_actor import ENV_IDS, Actor, Array, play, read_actor, summary, write_actor, write_json

SHIPPED = Path(__file__).resolve().parents[1] / "src" / "mental_accounts" / "data" / "behaviours"
RUNGS = 12
"""Policies on the ladder, the uniformly random one at its foot and the medium one at its top included."""

CANDIDATE_SEED, REPORT_SEED = 1_000_000, 2_000_000
MAX_FILE, MAX_TOTAL = 200_000, 8_000_000


@dataclass(frozen=True)
class Target:
    """The target returns of a stochastic medium policy, and the minimum return of an expert."""

    low: float
    high: float
    mean: float
    std: float
    expert: float


TARGETS = {
    "hopper": Target(1000, 2000, 1422, 379, 3000),  # D4RL's medium data
    "walker2d": Target(1500, 2900, 2200, 1095, 4000),  # between a third of the expert's return and D4RL's 2852 ± 1095
    "halfcheetah": Target(4000, 5000, 4770, 356, 9000),  # D4RL's medium data
}


@dataclass(frozen=True)
class Snapshot:
    """A snapshot on disk, and its stochastic return as measured in training."""

    path: Path
    run: str
    step: int
    mean: float


def snapshots(runs: Path, task: str) -> list[Snapshot]:
    """All snapshots of a task's agents."""
    found = []
    for run in sorted(runs.glob(f"{task}-seed*")):
        for point in json.loads((run / "curve.json").read_text()):
            path = run / "snapshots" / f"step-{point['step']:08d}.safetensors"
            if path.exists():
                found.append(Snapshot(path, run.name, point["step"], point["stochastic"]["mean"]))
    if not found:
        raise SystemExit(f"no snapshots of {task} under {runs}: expected {task}-seed<k>/curve.json and snapshots/")
    return found


def measure(path: Path | None, task: str, episodes: int, seed: int) -> dict[str, Any]:
    """The snapshot's returns and mean length, acting stochastically; no path means uniformly random actions."""
    returns, lengths = play(read_actor(path) if path else None, ENV_IDS[task], episodes, seed=seed)
    return {"returns": summary(returns), "length": round(float(lengths.mean()), 1)}


def choose_medium(found: list[Snapshot], task: str, episodes: int, tries: int = 8) -> Snapshot:
    """The snapshot nearest to the target's mean and spread among those with a full ladder."""
    target = TARGETS[task]
    ladder = {s.path: sum(o.run == s.run and o.step <= s.step for o in found) for s in found}
    candidates = [s for s in found if ladder[s.path] >= RUNGS - 1] or found
    candidates = sorted(candidates, key=lambda s: abs(s.mean - target.mean))[:tries]

    def distance(snapshot: Snapshot) -> float:
        got = measure(snapshot.path, task, episodes, CANDIDATE_SEED)["returns"]
        off = abs(got["mean"] - target.mean) / target.mean + 0.5 * abs(got["std"] - target.std) / target.std
        outside = not target.low <= got["mean"] <= target.high
        print(f"{task} medium? {snapshot.run} step {snapshot.step}: {got['mean']} ± {got['std']}", flush=True)
        return float(off + 10 * outside)

    return min(candidates, key=distance)


def choose_expert(found: list[Snapshot], task: str, episodes: int, tries: int = 6) -> Snapshot:
    """The best of the second half of training."""
    late = [s for s in found if s.step >= max(o.step for o in found if o.run == s.run) / 2]
    best = sorted(late, key=lambda s: -s.mean)[:tries]

    def mean(snapshot: Snapshot) -> float:
        got = measure(snapshot.path, task, episodes, CANDIDATE_SEED)["returns"]
        print(f"{task} expert? {snapshot.run} step {snapshot.step}: {got['mean']} ± {got['std']}", flush=True)
        return float(got["mean"])

    return max(best, key=mean)


def choose_ladder(found: list[Snapshot], medium: Snapshot) -> list[Snapshot]:
    """Snapshots of the medium one's run nearest to an even grid of steps; the last one is the medium one itself."""
    own = [s for s in found if s.run == medium.run and s.step <= medium.step]
    grid = np.linspace(0, medium.step, RUNGS)[1:]
    return sorted({min(own, key=lambda s: abs(s.step - step)) for step in grid}, key=lambda s: s.step)


def shares(steps: list[int], warmup: int) -> list[float]:
    """Shares of the training steps: the uniformly random ones, then for each rung the later steps nearest to it."""
    middles = [(a + b) / 2 for a, b in itertools.pairwise(steps)]
    edges = np.array([0.0, warmup, *middles, steps[-1]])
    return [round(float(w), 6) for w in np.diff(edges) / steps[-1]]


def mixture(rungs: list[dict[str, Any]]) -> dict[str, float]:
    """The ladder's mixture by trajectories: for equal steps, short episodes make more trajectories than long ones."""
    mean, std = (np.array([rung["returns"][k] for rung in rungs]) for k in ("mean", "std"))
    rate = np.array([rung["weight"] / rung["length"] for rung in rungs])  # trajectories per step
    share = rate / rate.sum()
    centre = float(share @ mean)
    spread = float(np.sqrt(share @ (std**2 + (mean - centre) ** 2)))
    return {"mean": round(centre, 2), "std": round(spread, 2), "length": round(1 / float(rate.sum()), 1)}


def tf32(x: Array) -> Array:
    """Rounded to the ten mantissa bits that the GPU's matrix products use."""
    bits = np.ascontiguousarray(x, dtype=np.float32).view(np.uint32)
    rounded: Array = ((bits + 0x0FFF + (bits >> 13 & 1)) & np.uint32(0xFFFFE000)).view(np.float32)
    return rounded


def mode_in_tf32(actor: Actor, observations: Array) -> Array:
    """The squashed mean as the training host computes it."""
    t, h = actor.tensors, observations
    for layer in ("hidden.0", "hidden.1"):
        h = np.maximum(tf32(h) @ tf32(t[f"{layer}.weight"]).T + t[f"{layer}.bias"], 0.0)
    mode: Array = np.tanh(tf32(h) @ tf32(t["mean.weight"]).T + t["mean.bias"])
    return mode


def check_export(runs: Path, run: str, task: str, episodes: int) -> dict[str, Any]:
    """The plain arrays against sbx's own actions, and float16 against float32, on the run's newest actor."""
    full = read_actor(runs / run / "latest-float32.safetensors")
    probe, expected = full.tensors["probe.observations"], full.tensors["probe.actions"]
    half = Actor({k: v for k, v in full.tensors.items() if not k.startswith("probe.")}, full.metadata).rounded()
    differences = {
        "tf32_vs_sbx": float(np.abs(mode_in_tf32(full, probe) - expected).max()),
        "float32_vs_sbx": float(np.abs(full.act(probe) - expected).max()),
        "float16_vs_sbx": float(np.abs(half.act(probe) - expected).max()),
    }
    if differences["tf32_vs_sbx"] > 1e-3 or max(differences.values()) > 1e-2:
        raise SystemExit(f"{run}: the exported actor's mean actions differ from sbx's by {differences}")
    returns = {
        name: summary(play(actor, ENV_IDS[task], episodes, seed=REPORT_SEED)[0])
        for name, actor in {"float32": full, "float16": half}.items()
    }
    return {"run": run, "step": full.metadata["step"], "largest_action_difference": differences, "returns": returns}


def ship(task: str, runs: Path, out: Path, episodes: int) -> dict[str, Any]:
    """Choose, measure and write the policies of a task; its entry in the manifest."""
    found = snapshots(runs, task)
    medium = choose_medium(found, task, episodes)
    expert = choose_expert(found, task, episodes)
    ladder = choose_ladder(found, medium)
    entries: dict[Path, dict[str, Any]] = {}

    def entry(name: str, snapshot: Snapshot) -> dict[str, Any]:
        if snapshot.path not in entries:
            actor = read_actor(snapshot.path)
            measured = measure(snapshot.path, task, episodes, REPORT_SEED)
            path = out / task / f"{name}.safetensors"
            write_actor(path, Actor(actor.tensors, dict(actor.metadata) | measured))
            if path.stat().st_size > MAX_FILE:
                raise SystemExit(f"{path} has {path.stat().st_size} bytes, more than {MAX_FILE}")
            entries[snapshot.path] = {
                "file": f"{task}/{name}.safetensors",
                "sha256": hashlib.sha256(path.read_bytes()).hexdigest(),
                "step": snapshot.step,
                "train_seed": actor.metadata["seed"],
                **measured,
            }
            print(f"{task} {name}: {snapshot.run} step {snapshot.step}, {measured}", flush=True)
        return entries[snapshot.path]

    target = TARGETS[task]
    chosen = {"medium": entry("medium", medium), "expert": entry("expert", expert)}
    training = read_actor(medium.path).metadata
    weights = shares([s.step for s in ladder], training["warmup"])
    foot = {"file": None, "step": 0, **measure(None, task, episodes, REPORT_SEED), "weight": weights[0]}
    climb = enumerate(zip(ladder, weights[1:], strict=True), 1)
    rungs = [foot, *(entry(f"replay-{i:02d}", s) | {"weight": w} for i, (s, w) in climb)]
    for stale in set((out / task).glob("*.safetensors")) - {out / e["file"] for e in entries.values()}:
        stale.unlink()
    mean, top = chosen["medium"]["returns"]["mean"], chosen["expert"]["returns"]["mean"]
    return {
        "env_id": ENV_IDS[task],
        "medium": chosen["medium"] | {"target": [target.low, target.high], "met": target.low <= mean <= target.high},
        "expert": chosen["expert"] | {"target": target.expert, "met": top > target.expert},
        "replay": rungs,
        "replay_expected": mixture(rungs),
        "training": {k: training[k] for k in ("algorithm", "envs", "updates_per_step", "warmup", "versions", "device")},
        "export_check": check_export(runs, medium.run, task, episodes),
    }


def main() -> None:
    """Ship every requested task."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=Path, default=Path("runs"))
    parser.add_argument("--out", type=Path, default=SHIPPED)
    parser.add_argument("--tasks", nargs="+", default=list(TARGETS), choices=list(TARGETS))
    parser.add_argument("--episodes", type=int, default=100, help="per measurement")
    args = parser.parse_args()
    path = args.out / "manifest.json"
    tasks = json.loads(path.read_text())["tasks"] if path.exists() else {}
    manifest: dict[str, Any] = {"format": 1}
    manifest["policy"] = "tanh-squashed Gaussian, 256x256 ReLU, float16 tensors in torch layout"
    manifest["log_std_range"] = [-20.0, 2.0]
    manifest["measured_with"] = {p: importlib.metadata.version(p) for p in ("gymnasium", "mujoco", "numpy")}
    manifest["seeds"] = {"candidates": CANDIDATE_SEED, "reported": REPORT_SEED}
    manifest["tasks"] = tasks
    for task in args.tasks:
        tasks[task] = ship(task, args.runs, args.out, args.episodes)
        write_json(path, manifest)
    total = sum(file.stat().st_size for file in args.out.rglob("*.safetensors"))
    if total > MAX_TOTAL:
        raise SystemExit(f"the selected files have {total} bytes together, more than {MAX_TOTAL}")
    print(f"{total} bytes in {args.out}")


if __name__ == "__main__":
    main()
