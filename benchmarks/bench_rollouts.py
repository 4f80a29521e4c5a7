"""Rollouts of a policy of the paper's size, with environments in different numbers of worker processes.

    python benchmarks/bench_rollouts.py [--env Hopper-v5] [--envs 10] [--steps 1000] [--rounds 3] [--json FILE]

`auto` is the number that a run would choose. Hopper and Walker2d do not terminate when they fall, so that all episodes
have the same length. On a GPU in bf16, captured.
"""

import argparse
import functools
import json
import sys
import time
from pathlib import Path

import gymnasium
import torch

from mental_accounts.learning.parallel_envs import PACES, Environments
from mental_accounts.learning.rollout import play
from mental_accounts.learning.run_folder import surroundings
from mental_accounts.policy import Actor, DecisionTransformer
from mental_accounts.policy_options import PolicyConfig
from mental_accounts.spaces import action_spec_of, state_dim_of

FALLING = ("Hopper-v5", "Walker2d-v5")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--env", default="Hopper-v5")
    arguments.add_argument("--envs", type=int, default=10)
    arguments.add_argument("--steps", type=int, default=1000)
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--workers", type=int, nargs="+", default=[0, 1, 2, 4, 9])
    arguments.add_argument("--json", type=Path)
    asked = arguments.parse_args()
    device = "cuda" if torch.cuda.is_available() else "cpu"
    falls = {"terminate_when_unhealthy": False} if asked.env in FALLING else {}
    make = functools.partial(gymnasium.make, asked.env, max_episode_steps=asked.steps, **falls)
    env = make()
    state_dim, action = state_dim_of(env.observation_space), action_spec_of(env.action_space)
    rows = []
    for method in ("odt", "ewa-vq-odt"):
        torch.manual_seed(0)
        policy = DecisionTransformer(PolicyConfig(state_dim=state_dim, action=action, method=method)).to(device)
        actor = Actor(policy, asked.envs, sample=False, say=print)
        for workers in (None, *asked.workers):
            envs = Environments(make, asked.envs, workers, print, PACES[device])
            for number in range(asked.rounds):
                begun = time.perf_counter()
                episodes = play(actor, envs, 3000.0, number)
                spent = time.perf_counter() - begun
                words = f"auto ({len(envs.workers)})" if workers is None else str(workers)
                steps = max(len(episode) for episode in episodes)
                rows.append({"method": method, "workers": workers, "chosen": len(envs.workers), "round": number,
                             "seconds": spent, "steps": steps})  # fmt: skip
                print(
                    f"{method:10} {words:9} workers: {spent:7.3f} s, {1e3 * spent / steps:6.3f} ms per step", flush=True
                )
            envs.close()
    if asked.json is not None:
        record = {"command": sys.argv, **surroundings(), "device": device, "env": asked.env, "rows": rows}
        asked.json.write_text(json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
