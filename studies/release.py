"""The sdist and the wheel, into dist/: built, checked, installed and tried: `make dist`.

    python studies/release.py

They are built in a copy of the repository's files, so that nothing gets in that merely lies around: the sdist first,
then the wheel from the sdist. Libraries come from the environment that runs this; nothing is downloaded.
"""

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from packaging.version import Version

from fresh_environment import install, make_environment, try_out
from release_checks import Release, wrong_with

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src"
REPOSITORY = "https://github.com/mental-accounts/mental-accounts"
LINK = re.compile(r"(!?)(\[[^\]]*\])\((?![a-z]+:|#)([^)\s]+)\)")
"""To a file of the repository: `[words](docs/index.md)`, `![words](docs/images/inspect.png)`."""


def package_version() -> str:
    """The version of the source, without importing it."""
    text = (SOURCE / "mental_accounts" / "__init__.py").read_text(encoding="utf-8")
    found = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    if found is None:
        sys.exit("error: src/mental_accounts/__init__.py has no line `__version__ = ...`")
    return found[1]


def copy_source(folder: Path) -> None:
    """The files that git tracks or would track, as they are now; the README as a page outside the repository."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).is_file():  # not one that was deleted a moment ago
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    page = folder / "README.md"
    page.write_text(with_full_links(page.read_text(encoding="utf-8"), package_version()), encoding="utf-8")


def with_full_links(text: str, version: str) -> str:
    """A page whose links lead to the repository from anywhere: to the version's tag, or to main before there is one."""
    state = "main" if Version(version).is_devrelease else f"v{version}"

    def full(link: re.Match[str]) -> str:
        kind = "raw" if link[1] else "blob"  # pictures are shown in place
        return f"{link[1]}{link[2]}({REPOSITORY}/{kind}/{state}/{link[3]})"

    return LINK.sub(full, text)


def build(folder: Path) -> Release:
    """Build both files into a folder, with the setuptools of this environment."""
    with tempfile.TemporaryDirectory() as copied:
        copy_source(Path(copied))
        command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), copied]
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        sys.exit(f"{done.stdout}\nerror: the release was not built; the lines above say why")
    stem = f"mental_accounts-{package_version()}"
    return Release(folder / f"{stem}.tar.gz", folder / f"{stem}-py3-none-any.whl")


def try_release(release: Release, folder: Path) -> str:
    """Install the wheel into a fresh environment in a folder outside the repository, and use it; what that printed."""
    python = make_environment(folder / "venv", release.wheel)
    install(python, release.wheel)
    return try_out(python, folder, package_version())


def main() -> None:
    """Build, check, install and try."""
    folder = ROOT / "dist"
    for old in folder.glob("mental_accounts-*"):
        old.unlink()
    release = build(folder)
    wrong = wrong_with(release, SOURCE)
    if wrong:
        sys.exit("\n".join(f"error: {line}" for line in wrong))
    with tempfile.TemporaryDirectory() as outside:
        print(try_release(release, Path(outside)), end="")
    for file in (release.sdist, release.wheel):
        print(f"{file.relative_to(ROOT)}: {file.stat().st_size / 1e6:.1f} MB")


if __name__ == "__main__":
    main()
