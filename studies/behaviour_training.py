"""Train the SAC behaviour policies of the built-in data.

    python studies/behaviour_training.py --agents hopper:0 hopper:1 --out runs --seconds 500

Agents of one call are trained together on one accelerator (see behaviour_population.py), each with its own environments
in its own worker process. Snapshots of the actor are taken on a fixed grid of steps; a pool of processes plays each
snapshot, stochastically and with the mean action, and writes it with its returns:

    <out>/<task>-seed<k>/curve.json                       step, stochastic and deterministic return, wall seconds
    <out>/<task>-seed<k>/snapshots/step-00005000.safetensors   float16 actor, see behaviour_actor.py
    <out>/<task>-seed<k>/latest-float32.safetensors       the newest actor unrounded, with sbx's own actions to check by

Every file is written under a temporary name and renamed, so the run may be stopped at any time. With --state the whole
training state is saved when time is up, and a second call continues from it.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import multiprocessing as mp
import os
import platform
import signal
import time
from concurrent.futures import Future, ProcessPoolExecutor
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from behaviour_actor import ENV_IDS, LOG_STD_RANGE, Actor, play, summary, write_actor, write_json

PACKAGES = ("sbx-rl", "stable-baselines3", "jax", "flax", "optax", "gymnasium", "mujoco", "numpy")


def parse() -> argparse.Namespace:
    """The command-line arguments."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--agents", nargs="+", default=["hopper:0"], help="task:seed; the tasks of one call must have equal spaces")
    add("--out", type=Path, default=Path("runs"))
    add("--state", type=Path, help="file for the whole training state; read at the start where it exists")
    add("--steps", type=int, default=1_000_000, help="environment steps per agent")
    add("--seconds", type=float, default=float("inf"), help="stop after this much wall-clock time")
    add("--envs", type=int, default=16, help="environments per agent, stepped in one round")
    add("--updates", type=int, default=8, help="gradient updates per round (updates per step = updates / envs)")
    add("--warmup", type=int, default=5_000, help="uniformly random steps before the first update")
    add("--episodes", type=int, default=8, help="evaluation episodes per snapshot, of each kind")
    add("--judges", type=int, default=2, help="processes that play the snapshots")
    add("--spacing", type=int, default=5_000, help="steps between snapshots at the start of training")
    return parser.parse_args()


def next_snapshot(step: int, spacing: int) -> int:
    """The grid of snapshots: dense while the policy changes fast (x1 up to 20 spacings, x2 up to 60, then x10)."""
    gap = spacing * (1 if step < 20 * spacing else 2 if step < 60 * spacing else 10)
    return (step // gap + 1) * gap


def environments(pipe: Connection, env_id: str, count: int, seed: int) -> None:
    """A worker: receives actions (count, act), returns rows [s, a, s', r, terminated] and the new observations."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    envs = [gym.make(env_id) for _ in range(count)]
    now = np.stack([env.reset(seed=1000 * seed + i)[0] for i, env in enumerate(envs)])
    pipe.send(now.astype(np.float32))
    while (actions := pipe.recv()) is not None:
        before, after = now.copy(), np.empty_like(now)
        outcome = np.empty((count, 2))
        for i, env in enumerate(envs):
            after[i], reward, terminated, truncated, _ = env.step(actions[i])
            outcome[i] = float(reward), terminated
            now[i] = env.reset()[0] if terminated or truncated else after[i]
        pipe.send(
            (np.concatenate([before, actions, after, outcome], axis=1).astype(np.float32), now.astype(np.float32))
        )


def judge(actor: Actor, folder: Path, episodes: int) -> dict[str, Any]:
    """Play the actor as rounded in its file, write it with its returns, and return the point of the curve."""
    meta = dict(actor.metadata)
    kinds = {"stochastic": True, "deterministic": False}
    rounded = actor.rounded()
    for kind, flag in kinds.items():
        returns, _ = play(rounded, meta["env_id"], episodes, stochastic=flag, seed=100_000 + meta["step"])
        meta[kind] = summary(returns)
    write_actor(folder / "snapshots" / f"step-{meta['step']:08d}.safetensors", Actor(actor.tensors, meta))
    return {k: meta[k] for k in ("step", "updates", "wall_seconds", *kinds)}


class Curve:
    """One agent's learning curve: a JSON list, kept in order of steps, written again at every point."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "curve.json"
        self.points: list[dict[str, Any]] = json.loads(self.path.read_text()) if self.path.exists() else []

    def add(self, name: str, done: Future[dict[str, Any]]) -> None:
        point = done.result()
        self.points = sorted([*(p for p in self.points if p["step"] != point["step"]), point], key=lambda p: p["step"])
        write_json(self.path, self.points)
        kinds = "  ".join(
            f"{k} {point[k]['mean']:8.1f} ± {point[k]['std']:6.1f}" for k in ("stochastic", "deterministic")
        )
        print(f"{name:18} step {point['step']:8d}  {kinds}  {point['wall_seconds']:6.0f} s", flush=True)


def main() -> None:
    """Train until time or steps are up."""
    started = time.monotonic()
    args = parse()
    agents = [(task, int(seed)) for task, _, seed in (agent.partition(":") for agent in args.agents)]
    stop: list[int] = []
    signal.signal(signal.SIGTERM, lambda number, _frame: stop.append(number))

    # Workers are spawned and import no JAX: it is imported below, by the process that learns.
    context = mp.get_context("spawn")
    pipes: list[Connection] = []
    for task, seed in agents:
        ours, theirs = context.Pipe()
        context.Process(target=environments, args=(theirs, ENV_IDS[task], args.envs, seed), daemon=True).start()
        pipes.append(ours)
    judges = ProcessPoolExecutor(args.judges, mp_context=context)

    import jax

    from behaviour_population import Population

    capacity = min(args.steps, 1_000_000) // args.envs * args.envs
    population = Population([(ENV_IDS[task], seed) for task, seed in agents], capacity)
    step = population.load(args.state) if args.state and args.state.exists() else 0
    facts = {
        "algorithm": "SAC (sbx-rl), its defaults but for the loop",
        "envs": args.envs,
        "updates_per_step": args.updates / args.envs,
        "warmup": args.warmup,
        "log_std_range": LOG_STD_RANGE,
        "versions": {"python": platform.python_version()} | {p: importlib.metadata.version(p) for p in PACKAGES},
        "device": jax.devices()[0].device_kind,
    }
    names = [f"{task}-seed{seed}" for task, seed in agents]
    curves = [Curve(args.out / name) for name in names]
    pending: list[tuple[int, Future[dict[str, Any]]]] = []
    rng = np.random.default_rng(sum(seed for _, seed in agents))
    observations = np.stack([pipe.recv() for pipe in pipes])  # (agents, envs, obs)
    rows: np.ndarray | None = None  # (agents, envs, row): the last round's, not yet stored
    snapshot = next_snapshot(step, args.spacing)
    earlier = max((c.points[-1]["wall_seconds"] for c in curves if c.points), default=0.0)
    print(f"{names}: start at step {step}, {facts['device']}, {time.monotonic() - started:.1f} s", flush=True)

    while step < args.steps and not stop and time.monotonic() - started < args.seconds:
        if step < args.warmup:
            actions = rng.uniform(-1.0, 1.0, (*observations.shape[:2], population.act)).astype(np.float32)
        else:
            actions = population.actions(observations)
        for pipe, action in zip(pipes, actions, strict=True):
            pipe.send(action)
        if rows is not None:  # learn from the last round while the environments play this one
            population.learn(rows, args.updates if step >= args.warmup else 0)
        answers = [pipe.recv() for pipe in pipes]
        rows, observations = np.stack([a[0] for a in answers]), np.stack([a[1] for a in answers])
        step += args.envs
        if step >= snapshot:
            snapshot = next_snapshot(step, args.spacing)
            seconds = round(earlier + time.monotonic() - started, 1)
            probes = population.modes(observations)
            for i, ((task, seed), weights) in enumerate(zip(agents, population.actors(), strict=True)):
                meta = {"env_id": ENV_IDS[task], "seed": seed, "step": step, "updates": population.updates, **facts}
                actor = Actor(weights.tensors, meta | {"wall_seconds": seconds})
                probe = {"probe.observations": observations[i], "probe.actions": probes[i]}
                write_actor(
                    args.out / names[i] / "latest-float32.safetensors",
                    Actor({**actor.tensors, **probe}, actor.metadata),
                    np.float32,
                )
                pending.append((i, judges.submit(judge, actor, args.out / names[i], args.episodes)))
        for item in [item for item in pending if item[1].done()]:
            pending.remove(item)
            curves[item[0]].add(names[item[0]], item[1])

    print(f"{names}: {step} steps, {population.updates} updates in {time.monotonic() - started:.1f} s", flush=True)
    for pipe in pipes:
        pipe.send(None)
    for i, future in pending:
        curves[i].add(names[i], future)
    if args.state:
        args.state.parent.mkdir(parents=True, exist_ok=True)
        population.save(args.state)
    judges.shutdown()
    os._exit(0)  # do not wait for XLA's threads: time on the machine is limited


if __name__ == "__main__":
    main()
