"""Whether an installed package works: part of `make dist`, which runs this far from the repository.

    python -I installed_smoke.py VERSION

It uses the package as a user with a bare installation does: the core dependencies, no extras, one CPU thread.
"""

import importlib
import importlib.metadata
import pkgutil
import subprocess
import sys
import sysconfig
from importlib.resources import files
from pathlib import Path

COMMAND = Path(sysconfig.get_path("scripts")) / "mental-accounts"
TINY = [
    "--model.hidden=16", "--model.layers=1", "--model.heads=1", "--data-steps=2000", "--pretrain-iterations=1",
    "--updates-per-pretrain-iteration=3", "--online-iterations=0", "--eval-episodes=2", "--device=cpu",
]  # fmt: skip
EXTRAS = {
    "h5py", "huggingface_hub", "imageio", "matplotlib", "minari", "onnx", "onnxruntime", "onnxscript", "ray",
    "stable_baselines3", "tensordict", "torchrl", "transformers", "triton",
}  # fmt: skip
"""Modules that an extra installs, or PyTorch for CUDA: the only ones that may be missing."""


def run(*arguments: str, code: int = 0) -> str:
    """What the installed command printed; it must end with a certain exit code."""
    done = subprocess.run([COMMAND, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == code, f"{arguments}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def check_place_and_version(version: str) -> None:
    """That this is the installed package, of this version by all accounts."""
    import mental_accounts

    place = Path(mental_accounts.__file__)
    assert place.is_relative_to(sys.prefix), f"{place} is not in {sys.prefix}"
    assert mental_accounts.__version__ == importlib.metadata.version("mental-accounts") == version
    assert run("--version") == f"mental-accounts {version}\n"


def check_modules() -> None:
    """That every module imports, or else misses what an extra installs; and that every public name is there."""
    import mental_accounts

    names = [found.name for found in pkgutil.walk_packages(mental_accounts.__path__, "mental_accounts.")]
    assert len(names) > 150
    for name in names:
        if name != "mental_accounts.__main__":
            try:
                importlib.import_module(name)
            except ImportError as missing:
                library = (missing.name or "").partition(".")[0]
                if library not in EXTRAS and "pip install 'mental-accounts[" not in str(missing):
                    raise
    assert all(hasattr(mental_accounts, name) for name in mental_accounts.__all__)


def check_data() -> None:
    """That the files beside the code are there and are read: types, behaviour policies, policies of the zoo."""
    from mental_accounts import DecisionTransformer
    from mental_accounts.data.builtin import TRAINED, recipe_of
    from mental_accounts.zoo import zoo_names

    assert files("mental_accounts").joinpath("py.typed").is_file()
    for robot in ("hopper", "walker2d", "halfcheetah"):
        for kind in TRAINED:
            assert recipe_of(robot, kind).shares  # compares the files with their checksums
    assert zoo_names()
    for name in zoo_names():
        assert sum(weight.numel() for weight in DecisionTransformer.pretrained(name).parameters()) > 1000


def check_commands() -> None:
    """That a run can be trained, played and looked into, and that what an extra is needed for says so."""
    assert "train" in run("--help")
    assert "drifting-bandit" in run("zoo")
    run("train", "--preset", "hidden", "--task", "drifting-bandit", "--run", "runs/tiny", *TINY)
    run("inspect", "runs/tiny")
    assert "<canvas" in Path("runs/tiny/inspect.html").read_text(encoding="utf-8")
    assert "return" in run("evaluate", "zoo/drifting-bandit", "--episodes", "2")
    assert "mental-accounts[mujoco]" in run("train", "--run", "runs/robot", code=2)


def main() -> None:
    """All of it."""
    (version,) = sys.argv[1:]
    check_place_and_version(version)
    check_modules()
    check_data()
    check_commands()
    print(f"mental-accounts {version} works in {sys.prefix}, on Python {sys.version.split()[0]}")


if __name__ == "__main__":
    main()
