"""An environment that has a wheel and the libraries it asks for, and no others: part of `make dist`.

The libraries are links to those of the environment that runs this, so that PyTorch is not copied and nothing is
downloaded. What the package imports without asking for it in pyproject.toml is missing here, and that is the point.
"""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Iterable
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path, PurePosixPath

from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

SMOKE = Path(__file__).with_name("installed_smoke.py")


def requirements_of(wheel: Path) -> list[Requirement]:
    """What a wheel asks for."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return list(Metadata.from_email(archive.read(name)).requires_dist or [])


def needed(requirements: Iterable[Requirement]) -> dict[str, Distribution]:
    """The installed libraries that are asked for, with those that they ask for in turn."""
    found: dict[str, Distribution] = {}
    asked: set[tuple[str, str]] = set()  # libraries with one of their extras, or ""
    waiting = [(requirement, "") for requirement in requirements]
    while waiting:
        requirement, of = waiting.pop()
        if requirement.marker is not None and not requirement.marker.evaluate({"extra": of}):
            continue
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras} - {known for library, known in asked if library == name}:
            asked.add((name, extra))
            try:
                found[name] = distribution(name)
            except PackageNotFoundError:
                sys.exit(f"error: {requirement} is asked for, but is not installed; `make dist` installs it first")
            waiting += [(Requirement(line), extra) for line in found[name].requires or []]
    return found


def make_environment(folder: Path, wheel: Path) -> Path:
    """A virtual environment with what a wheel asks for, without the wheel; the path of its Python."""
    venv.create(folder, symlinks=True)
    packages = Path(sysconfig.get_path("purelib", "venv", {"base": str(folder), "platbase": str(folder)}))
    for name, library in needed(requirements_of(wheel)).items():
        if library.files is None:
            sys.exit(f"error: {name} does not say which files it has; install it by pip")
        for top in {PurePosixPath(file).parts[0] for file in library.files} - {"..", "__pycache__"}:
            link, target = packages / top, Path(str(library.locate_file(top)))
            if target.exists() and not link.is_symlink():
                link.symlink_to(target)
    return folder / "bin" / "python"


def install(python: Path, wheel: Path) -> None:
    """Install a wheel; pip refuses if a library that it asks for is missing or of another version."""
    command = [sys.executable, "-m", "pip", "--isolated", "--quiet", "--python", str(python)]
    subprocess.run([*command, "install", "--no-index", "--disable-pip-version-check", str(wheel)], check=True)


def try_out(python: Path, folder: Path, version: str) -> str:
    """Use what was installed, in a folder outside the repository; what that printed."""
    outside = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MENTAL_ACCOUNTS"))}
    outside |= {"MENTAL_ACCOUNTS_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    command = [str(python), "-I", "-W", "error", str(SMOKE), version]
    done = subprocess.run(command, cwd=folder, env=outside, capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}{done.stderr}\nerror: what was installed does not work; the lines above say where")
    return done.stdout
