"""The lowest versions that pyproject.toml allows, as constraints for pip: part of `make lowest`.

    python studies/lowest_versions.py > lowest.txt

What users install is at its lowest: dependencies and extras, all in one environment. PyTorch is not: old versions of it
are on package indexes for CUDA alone, in gigabytes. It is the one of constraints.txt, as are the test tools.
What our dependencies depend on is left to pip, which takes the newest that fits.
"""

import sys
import tomllib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
TOOLS = ("dev", "docs", "behaviours")
"""Extras of those who develop this package."""
PINNED = ("torch",)


def requirements(project: Mapping[str, Any]) -> Iterator[tuple[str, Requirement]]:
    """Each requirement of pyproject.toml's table `project`, with the extra it belongs to, or ""."""
    for extra, lines in {"": project["dependencies"], **project["optional-dependencies"]}.items():
        for requirement in map(Requirement, lines):
            if requirement.name != project["name"]:
                yield extra, requirement


def lowest(requirement: Requirement) -> str:
    """The lower bound of a range: `1.26` of `numpy>=1.26`."""
    bounds = [part.version for part in requirement.specifier if part.operator == ">="]
    if len(bounds) != 1:
        raise ValueError(f"expected one lower bound, as in `numpy>=1.26`, got `{requirement}`")
    return bounds[0]


def lowest_versions(project: Mapping[str, Any], pins: Mapping[str, str]) -> dict[str, str]:
    """Library -> version; `pins` are those of constraints.txt."""
    found: dict[str, str] = {}
    for extra, requirement in requirements(project):
        name = canonicalize_name(requirement.name)
        if extra in TOOLS or name in PINNED:
            continue
        version = lowest(requirement)
        if found.setdefault(name, version) != version:
            raise ValueError(f"{name} has two lower bounds, {found[name]} and {version}; one range for all extras")
    tools = {canonicalize_name(requirement.name) for extra, requirement in requirements(project) if extra in TOOLS}
    return found | {name: pins[name] for name in sorted(tools | set(PINNED)) if name in pins and name not in found}


def read_pins(path: Path) -> dict[str, str]:
    """Library -> version, of a file of lines such as `numpy==2.4.6`."""
    lines = (line.partition("==") for line in path.read_text(encoding="utf-8").splitlines() if "==" in line)
    return {canonicalize_name(name): version for name, _, version in lines}


def main() -> None:
    """Print them."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    try:
        found = lowest_versions(project, read_pins(ROOT / "constraints.txt"))
    except ValueError as error:
        sys.exit(f"error: pyproject.toml: {error}")
    print("\n".join(f"{name}=={version}" for name, version in sorted(found.items())))


if __name__ == "__main__":
    main()
