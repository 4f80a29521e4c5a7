"""What a sdist and a wheel must hold, and what they must not: part of `make dist`."""

import re
import tarfile
import zipfile
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from packaging.metadata import Metadata

SDIST = {
    "CHANGELOG.md", "CITATION.cff", "LICENSE", "MANIFEST.in", "PKG-INFO", "README.md", "SECURITY.md", "pyproject.toml",
    "setup.cfg", "src",
}  # fmt: skip
"""All there is at the top of it; setuptools writes PKG-INFO and setup.cfg."""
MAX_BYTES = 16_000_000
"""Of either file. The behaviour policies take 5 MB, the policies of the zoo 9."""
URLS = {"Homepage", "Documentation", "Repository", "Issues", "Changelog"}
RELATIVE_LINK = re.compile(r"\]\((?!https?://|#)[^)]*\)")


@dataclass(frozen=True)
class Release:
    """The two files of a version."""

    sdist: Path
    wheel: Path


def wrong_with(release: Release, source: Path) -> list[str]:
    """What is wrong with the two files, a line each; `source` is the folder that has the package."""
    package = {
        str(PurePosixPath(path.relative_to(source)))
        for path in (source / "mental_accounts").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    return [
        *(f"{file.name} is larger than {MAX_BYTES / 1e6:.0f} MB" for file in sizes_over(release)),
        *wrong_sdist(release.sdist, package),
        *wrong_wheel(release.wheel, package),
    ]


def sizes_over(release: Release) -> list[Path]:
    """The files that are too large for what they should hold."""
    return [file for file in (release.sdist, release.wheel) if file.stat().st_size > MAX_BYTES]


def wrong_sdist(path: Path, package: set[str]) -> list[str]:
    """Whether all of the package is in it, and nothing but what building takes."""
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames() if "/" in name}
    held = {name.removeprefix("src/") for name in names if name.startswith("src/mental_accounts/")}
    tops = {name.partition("/")[0] for name in names}
    return [
        *(f"{path.name} lacks {name}" for name in sorted(package - held | SDIST - tops)),
        *(f"{path.name} should not hold {name}" for name in sorted(tops - SDIST)),
    ]


def wrong_wheel(path: Path, package: set[str]) -> list[str]:
    """Whether all of the package is in it, nothing else, and what it says about itself."""
    with zipfile.ZipFile(path) as archive:
        names = {name for name in archive.namelist() if not name.endswith("/")}
        about = next(name.partition("/")[0] for name in names if name.endswith(".dist-info/METADATA"))
        text = archive.read(f"{about}/METADATA")
        entries = archive.read(f"{about}/entry_points.txt").decode()
    held = {name for name in names if not name.startswith(f"{about}/")}
    return [
        *(f"{path.name} lacks {name}" for name in sorted(package - held)),
        *(f"{path.name} should not hold {name}" for name in sorted(held - package)),
        *([] if f"{about}/licenses/LICENSE" in names else [f"{path.name} has no licence"]),
        *([] if "mental-accounts = mental_accounts.cli:main" in entries else [f"{path.name} has no command"]),
        *(f"{path.name}: {line}" for line in wrong_metadata(text)),
    ]


def wrong_metadata(text: bytes) -> list[str]:
    """Whether a package index would take it, and show it with links that lead somewhere."""
    try:
        found = Metadata.from_email(text, validate=True)
    except ExceptionGroup as refused:
        return [str(error) for error in refused.exceptions]
    page = found.description or ""
    return [
        *(f"there is no URL named {name}" for name in sorted(URLS - set(found.project_urls or {}))),
        *(f"the README links to {link[2:-1]}, which is not there" for link in RELATIVE_LINK.findall(page)),
        *([] if page.strip() else ["the README is empty"]),
        *([] if found.license_expression == "MIT" else [f"the licence is {found.license_expression}"]),
    ]
