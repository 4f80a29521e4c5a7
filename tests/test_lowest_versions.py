"""`make lowest` tests what pyproject.toml allows, and what the code itself refuses is the same."""

import tomllib
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

from lowest_versions import lowest, lowest_versions, read_pins, requirements
from mental_accounts.extras import SUPPORTED

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def project(*dependencies: str, **extras: list[str]) -> dict[str, Any]:
    return {"name": "own", "dependencies": list(dependencies), "optional-dependencies": extras}


def test_lower_bounds() -> None:
    found = project("torch>=2.6", "numpy>=1.26,<3", plots=["Plots_x>=3.8"], all=["own[plots]"], dev=["pytest>=8"])
    pins = {"torch": "2.13.0", "numpy": "2.4.6", "pytest": "9.2.0"}
    assert lowest_versions(found, pins) == {"numpy": "1.26", "plots-x": "3.8", "pytest": "9.2.0", "torch": "2.13.0"}


@pytest.mark.parametrize("line", ["numpy", "numpy==1.26", "numpy<3"])
def test_a_range_without_a_lower_bound(line: str) -> None:
    with pytest.raises(ValueError, match=r"expected one lower bound, as in `numpy>=1\.26`, got `numpy"):
        lowest(Requirement(line))


def test_two_lower_bounds_of_one_library() -> None:
    with pytest.raises(ValueError, match=r"h5py has two lower bounds, 3\.10 and 3\.16"):
        lowest_versions(project("h5py>=3.10", minari=["h5py>=3.16"]), {})


def test_those_of_this_package() -> None:
    pins = read_pins(ROOT / "constraints.txt")
    found = lowest_versions(PROJECT, pins)
    assert {"numpy", "gymnasium", "h5py", "transformers"} <= set(found)
    assert found["torch"] == pins["torch"]
    for name, version in found.items():
        assert name not in pins or Version(version) <= Version(pins[name]), f"{name} {version} is newer than its pin"


@pytest.mark.parametrize("name", SUPPORTED)
def test_what_is_refused_is_what_is_not_allowed(name: str) -> None:
    extra, low, high = SUPPORTED[name]
    (allowed,) = (found.specifier for of, found in requirements(PROJECT) if found.name == name and of == extra)
    bounds = {part.operator: Version(part.version) for part in allowed}
    assert bounds == {">=": Version("{}.{}".format(*low)), "<": Version("{}.{}".format(*high))}
