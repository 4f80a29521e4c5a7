"""Frames of episodes, replayed and rendered in a separate process.

Rendering without a screen can crash the whole process, and MuJoCo chooses its renderer when it is first imported. So a
child process renders (`python -m mental_accounts.inspect.camera`); if it cannot, the reason is reported.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mental_accounts.errors import UsageError
from mental_accounts.learning.make_env import make_environment
from mental_accounts.learning.parallel_envs import Environments
from mental_accounts.learning.stepping import Environment

Array = NDArray[Any]
WIDEST = 240
"""Pixels of a frame's longer side."""
QUALITY = 70
LONGEST_REASON = 240
"""Letters of the reason why there are no frames."""
SECONDS = 300.0
"""The longest time that rendering one episode may take."""


@dataclass(frozen=True)
class Film:
    """Frames of an episode at some of its steps; or none, and the reason."""

    steps: tuple[int, ...]
    pictures: tuple[bytes, ...]  # JPEG, one per step named
    problem: str = ""


def film_episode(env_id: str, seed: int, observations: Array, actions: Array, most: int) -> Film:
    """Replay an episode's actions, (T, dim) or (T,), from its seed, and render at most `most` frames."""
    steps = np.unique(np.linspace(0, len(actions) - 1, min(most, len(actions))).round().astype(int))
    problem = "no frames were requested"
    for renderer in _renderers() if len(steps) else ():
        with tempfile.TemporaryDirectory() as place:
            folder = Path(place)
            np.savez(folder / "episode.npz", observations=observations, actions=actions, steps=steps, seed=seed)
            problem = _film_apart(folder, env_id, renderer)
            if not problem:
                return Film(tuple(map(int, steps)), tuple((folder / f"{step}.jpg").read_bytes() for step in steps))
    return Film((), (), problem)


def _renderers() -> Sequence[str | None]:
    """MuJoCo's renderers to try; None: the configured one. Other environments ignore this."""
    if sys.platform == "linux" and not os.environ.get("DISPLAY") and not os.environ.get("MUJOCO_GL"):
        return "egl", "osmesa"
    return (None,)


def _film_apart(folder: Path, env_id: str, renderer: str | None) -> str:
    """Run this module in a separate process; returns what went wrong, or an empty string."""
    surroundings = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, ["", *sys.path]))}
    if renderer is not None:
        surroundings["MUJOCO_GL"] = renderer
    command = [sys.executable, "-P", "-m", "mental_accounts.inspect.camera", str(folder), env_id]
    try:
        done = subprocess.run(
            command, env=surroundings, capture_output=True, text=True, timeout=SECONDS, check=False, errors="replace"
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return ""
    said = (folder / "problem").read_text() if (folder / "problem").is_file() else ""
    return said or f"the renderer ended with exit code {done.returncode}"


def _take_pictures(folder: Path, env_id: str) -> None:
    """The child process: write <step>.jpg for each requested step, or raise."""
    from PIL import Image  # comes with the mujoco extra

    with np.load(folder / "episode.npz") as held:
        observations, actions, steps = held["observations"], held["actions"], set(held["steps"].tolist())
        seed = int(held["seed"])
    environments = Environments(lambda: _make(env_id), 1)
    try:
        observation = environments.reset([seed])[0]  # overwritten by each step
        for t, action in enumerate(actions):
            if not np.allclose(observation, observations[t], rtol=1e-4, atol=1e-4):
                raise RuntimeError(f"the environment is not reproducible from its seed: step {t} differs")
            if t in steps:
                frame = environments.envs[0].render()
                if frame is None:
                    raise UsageError("this environment does not render: its render() returns nothing")
                picture = Image.fromarray(np.asarray(frame))
                picture.thumbnail((WIDEST, WIDEST))
                picture.convert("RGB").save(folder / f"{t}.jpg", quality=QUALITY)
            environments.step(action[None], np.ones(1, dtype=bool), t)
    finally:
        environments.close()


def _make(env_id: str) -> Environment:
    """MuJoCo environments render small frames, which is faster, and track the robot; other frames are scaled down."""
    with contextlib.closing(make_environment(env_id)) as example:
        modes = example.metadata.get("render_modes") or ()
    if "rgb_array" not in modes:
        raise UsageError("this environment does not render (no rgb_array in metadata['render_modes'])")
    try:
        env = make_environment(env_id, render_mode="rgb_array")
    except UsageError as error:
        if isinstance(error.__cause__, TypeError) and "render_mode" in str(error.__cause__):
            raise UsageError("this environment does not render (its class takes no render_mode)") from None
        raise
    model: Any = getattr(env.unwrapped, "model", None)
    if not hasattr(model, "ncam") or not hasattr(env.unwrapped, "mujoco_renderer"):
        return env
    follows = "track" in [model.camera(i).name for i in range(model.ncam)]
    env.close()
    camera = {"camera_name": "track"} if follows else {}
    return make_environment(env_id, render_mode="rgb_array", width=WIDEST, height=WIDEST, **camera)


if __name__ == "__main__":
    try:
        _take_pictures(Path(sys.argv[1]), sys.argv[2])
    except BaseException as error:
        what = str(error) if isinstance(error, UsageError) else f"rendering failed: {error or type(error).__name__}"
        (Path(sys.argv[1]) / "problem").write_text(" ".join(what.split())[:LONGEST_REASON])
        sys.exit(1)
