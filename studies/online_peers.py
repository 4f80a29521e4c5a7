"""What a user would pick instead: SAC and TD3 of Stable-Baselines3's authors, from scratch, on question 7's robots.

    python studies/online_peers.py runs/peers            # what is missing, then all into one file; may be killed
    python studies/online_peers.py runs/peers --seeds 0  # run nothing: pack what there is

sbx, in JAX, since it is several times faster on a CPU than Stable-Baselines3 in PyTorch; settings of rl-baselines3-zoo:
10,000 random steps first, TD3 explores with noise of 0.1, all else as sbx has it. One update per step, one thread.
Every 20,000 steps the mean action plays ten episodes.
"""

import argparse
import importlib.metadata
import json
import os
import platform
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

STEPS_OF = {"Hopper-v5": 120_000, "Walker2d-v5": 120_000, "HalfCheetah-v5": 60_000}
"""As many as question 7's policies act, rounded up; the first 13 runs (seeds 1000, 1001, one of 1002) have 200,000."""
ALGORITHMS = ("SAC", "TD3")
FIRST_SEED = 1000
PACKED = Path(__file__).parents[1] / "results" / "evidence" / "q7-peers.json"
EVERY, EPISODES = 20_000, 10
RANDOM_STEPS, NOISE = 10_000, 0.1
PACKAGES = ("sbx-rl", "stable-baselines3", "jax", "gymnasium", "mujoco", "numpy")


def returns_of(model: Any, env: Any, seed: int) -> list[float]:
    """Returns of the mean action."""
    found = []
    for episode in range(EPISODES):
        observation, _ = env.reset(seed=seed + episode)
        total, over = 0.0, False
        while not over:
            action, _ = model.predict(observation, deterministic=True)
            observation, reward, terminated, truncated, _ = env.step(action)
            total, over = total + float(reward), terminated or truncated
        found.append(total)
    return found


def learn(env_id: str, algorithm: str, seed: int, file: Path) -> None:
    """One run, in this process."""
    import gymnasium
    import sbx
    from stable_baselines3.common.noise import NormalActionNoise

    env, played = gymnasium.make(env_id), gymnasium.make(env_id)
    assert env.action_space.shape is not None
    (dim,) = env.action_space.shape
    noise = NormalActionNoise(np.zeros(dim), NOISE * np.ones(dim)) if algorithm == "TD3" else None
    make = {"SAC": sbx.SAC, "TD3": sbx.TD3}[algorithm]
    model = make("MlpPolicy", env, seed=seed, learning_starts=RANDOM_STEPS, action_noise=noise)
    curve = []
    for steps in range(EVERY, STEPS_OF[env_id] + 1, EVERY):
        model.learn(EVERY, reset_num_timesteps=steps == EVERY)
        curve.append({"env_steps": steps, "returns": returns_of(model, played, 10_000 * seed)})
    versions = {name: importlib.metadata.version(name) for name in PACKAGES}
    row = {"env_id": env_id, "method": algorithm, "seed": seed, "curve": curve, "versions": versions}
    partial = file.with_suffix(".part")
    partial.write_text(json.dumps(row | {"python": platform.python_version()}) + "\n")
    partial.replace(file)


def jobs(folder: Path, seeds: int) -> Iterator[tuple[str, str, int, Path]]:
    """Every run of the study and its file; all of a seed before the next."""
    for seed in range(FIRST_SEED, FIRST_SEED + seeds):
        for env_id in STEPS_OF:
            for algorithm in ALGORITHMS:
                yield env_id, algorithm, seed, folder / f"{env_id}-{algorithm}-{seed}.json"


def run(job: tuple[str, str, int, Path]) -> None:
    """One run in a process of its own, with one thread."""
    env_id, algorithm, seed, file = job
    if file.exists():
        return
    flags = "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"
    environ = os.environ | {"OMP_NUM_THREADS": "1", "XLA_FLAGS": flags, "JAX_PLATFORMS": "cpu"}
    one = [sys.executable, __file__, str(file.parent), "--one", env_id, algorithm, str(seed)]
    subprocess.run(one, check=True, env=environ)
    last = json.loads(file.read_text())["curve"][-1]
    print(f"{file.stem}: {np.mean(last['returns']):.0f} after {last['env_steps']} steps", flush=True)


def main() -> None:
    """Make what is missing, and one file of all; or one run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--at-a-time", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--pack", type=Path, default=PACKED, help="the file of all runs; those in it are not run again")
    parser.add_argument("--one", nargs=3, metavar=("ENV", "ALGORITHM", "SEED"), help="one run, in this process")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    if given.one is not None:
        env_id, algorithm, seed = given.one
        learn(env_id, algorithm, int(seed), given.folder / f"{env_id}-{algorithm}-{seed}.json")
        return
    known = packed_rows(given.pack)
    with ThreadPoolExecutor(given.at_a_time) as pool:
        list(pool.map(run, [job for job in jobs(given.folder, given.seeds) if job[:3] not in known]))
    for file in sorted(given.folder.glob("*-*-*.json")):
        row = json.loads(file.read_text())
        known[row["env_id"], row["method"], row["seed"]] = row
    settings = {"random_steps": RANDOM_STEPS, "noise": NOISE, "settings": "rl-baselines3-zoo; one update per step"}
    rows = [known[place] for place in sorted(known)]
    given.pack.parent.mkdir(parents=True, exist_ok=True)
    given.pack.write_text(json.dumps({"command": "python studies/online_peers.py", **settings, "runs": rows}) + "\n")


def packed_rows(file: Path) -> dict[tuple[str, str, int], dict[str, Any]]:
    """The runs that an earlier session has packed, by environment, algorithm and seed."""
    rows = json.loads(file.read_text())["runs"] if file.exists() else []
    return {(row["env_id"], row["method"], row["seed"]): row for row in rows}


if __name__ == "__main__":
    main()
