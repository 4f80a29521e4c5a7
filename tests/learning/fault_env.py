"""The tiny task with one fault, once: what and where is said by a file that the fault removes before it happens.

FAULT=kill|exit|leave|raise|hang|rich, by the environment's variables; FAULT_FILE is the file. Without it all is well.
"""

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np

from .tiny_env import Aim

ENV_ID = "tests.learning.fault_env:Fault-v0"


def happens(when: str) -> str:
    """The fault that is due, if one is."""
    path = Path(os.environ.get("FAULT_FILE", "/nowhere/fault"))
    try:
        if path.read_text() != when:
            return ""
        path.unlink()
    except FileNotFoundError:  # another process had it
        return ""
    return os.environ["FAULT"]


def suffer(fault: str) -> float:
    """Do it; the reward that comes of it, where anything does."""
    if fault == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if fault == "exit":
        sys.exit("the simulator has had enough")
    if fault == "leave":
        os._exit(7)
    if fault == "raise":
        raise OSError("the motor is on fire")
    if fault == "hang":
        time.sleep(600)
    return 3e38


class Fault(Aim):
    """As Aim, until the fault."""

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[np.ndarray, dict]:
        fault = happens("reset")
        if fault:
            suffer(fault)
        return super().reset(seed=seed, options=options)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, bool, dict]:
        observation, reward, terminated, truncated, info = super().step(action)
        is_worker = "mental_accounts.learning.trainer" not in sys.modules
        fault = happens("step") or (happens("worker") if is_worker else "")
        return observation, suffer(fault) if fault else reward, terminated, truncated, info


gymnasium.register("Fault-v0", entry_point=Fault)
