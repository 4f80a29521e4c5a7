"""A release that installs: built, checked, and used far from the repository."""

import io
import re
import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import mental_accounts
import release
from fresh_environment import install, make_environment, needed
from release_checks import SDIST, Release, wrong_with

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
VERSION = mental_accounts.__version__
PYTHONS = [line.rpartition(" ")[2] for line in PROJECT["classifiers"] if re.search(r":: 3\.\d+$", line)]

FILES = {"mental_accounts/__init__.py", "mental_accounts/py.typed"}
ABOUT = "mental_accounts-1.0.dist-info"
URLS = "\n".join(f"Project-URL: {name}, https://x.org/{name}" for name in PROJECT["urls"])
METADATA = f"Metadata-Version: 2.4\nName: mental-accounts\nVersion: 1.0\nLicense-Expression: MIT\n{URLS}\n"
WHEEL = {
    **dict.fromkeys(FILES, ""),
    f"{ABOUT}/METADATA": f"{METADATA}\n[docs](https://x.org)\n",
    f"{ABOUT}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    f"{ABOUT}/entry_points.txt": "[console_scripts]\nmental-accounts = mental_accounts.cli:main\n",
    f"{ABOUT}/licenses/LICENSE": "MIT",
    f"{ABOUT}/RECORD": "",
}


def write(
    folder: Path, wheel: dict[str, str | None] | None = None, sdist: dict[str, str | None] | None = None
) -> Release:
    """A small release and its source in `src`; changes add files, replace them, or with None take them away."""
    for name in FILES:
        (folder / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "src" / name).touch()
    made = Release(folder / "mental_accounts-1.0.tar.gz", folder / "mental_accounts-1.0-py3-none-any.whl")
    with zipfile.ZipFile(made.wheel, "w") as archive:
        for name, text in (WHEEL | (wheel or {})).items():
            if text is not None:
                archive.writestr(name, text)
    held = dict.fromkeys([*SDIST - {"src"}, *(f"src/{name}" for name in FILES)], "") | (sdist or {})
    with tarfile.open(made.sdist, "w:gz") as archive:
        for name, text in held.items():
            if text is not None:
                member = tarfile.TarInfo(f"mental_accounts-1.0/{name}")
                member.size = len(text)
                archive.addfile(member, io.BytesIO(text.encode()))
    return made


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a release is built from a git repository")
def test_it_is_built_installs_and_works(tmp_path: Path) -> None:
    built = release.build(tmp_path / "dist")
    assert wrong_with(built, release.SOURCE) == []
    assert f"mental-accounts {VERSION} works in {tmp_path}" in release.try_release(built, tmp_path)


def test_nothing_is_wrong_with_a_good_one(tmp_path: Path) -> None:
    assert wrong_with(write(tmp_path), tmp_path / "src") == []


@pytest.mark.parametrize(
    ("wheel", "sdist", "words"),
    [
        ({"mental_accounts/py.typed": None}, {}, "1.0-py3-none-any.whl lacks mental_accounts/py.typed"),
        ({"tests/test_x.py": ""}, {}, "1.0-py3-none-any.whl should not hold tests/test_x.py"),
        ({f"{ABOUT}/licenses/LICENSE": None}, {}, "has no licence"),
        ({f"{ABOUT}/entry_points.txt": "[console_scripts]\n"}, {}, "has no command"),
        ({f"{ABOUT}/METADATA": f"{METADATA}\n[docs](docs/index.md)\n"}, {}, "links to docs/index.md, which is not"),
        ({f"{ABOUT}/METADATA": METADATA}, {}, "the README is empty"),
        ({f"{ABOUT}/METADATA": METADATA.replace("Issues", "Bugs") + "\nx"}, {}, "there is no URL named Issues"),
        ({f"{ABOUT}/METADATA": METADATA.replace("MIT", "BSD-3-Clause") + "\nx"}, {}, "the licence is BSD-3-Clause"),
        ({f"{ABOUT}/METADATA": METADATA + "Requires-Dist: a b\n\nx"}, {}, "'a b' is invalid for 'requires-dist'"),
        ({}, {"src/mental_accounts/py.typed": None}, "1.0.tar.gz lacks mental_accounts/py.typed"),
        ({}, {"README.md": None}, "1.0.tar.gz lacks README.md"),
        ({}, {"results/online/runs.jsonl.gz": ""}, "1.0.tar.gz should not hold results"),
    ],
)
def test_what_is_wrong_is_named(
    wheel: dict[str, str | None], sdist: dict[str, str | None], words: str, tmp_path: Path
) -> None:
    (line,) = wrong_with(write(tmp_path, wheel, sdist), tmp_path / "src")
    assert words in line


def test_a_release_that_is_too_large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("release_checks.MAX_BYTES", 100)
    found = wrong_with(write(tmp_path), tmp_path / "src")
    assert [line.partition(" ")[0] for line in found] == [
        "mental_accounts-1.0.tar.gz",
        "mental_accounts-1.0-py3-none-any.whl",
    ]


def test_a_fresh_environment_has_what_is_asked_for_alone(tmp_path: Path) -> None:
    asks = {f"{ABOUT}/METADATA": f"{METADATA}Requires-Dist: gymnasium\nRequires-Dist: rich; extra == 'more'\n"}
    wheel = write(tmp_path, asks).wheel
    python = make_environment(tmp_path / "venv", wheel)
    install(python, wheel)
    code = "import gymnasium, mental_accounts, numpy; print(mental_accounts.__file__); import {}"
    for missing in ("torch", "rich", "pytest"):
        done = subprocess.run([python, "-I", "-c", code.format(missing)], capture_output=True, text=True, check=False)
        assert done.stdout.startswith(str(tmp_path / "venv"))
        assert f"No module named '{missing}'" in done.stderr


def test_what_libraries_need_in_turn() -> None:
    assert {"gymnasium", "numpy", "farama-notifications"} <= set(needed([Requirement("gymnasium")]))
    assert "mujoco" not in needed([Requirement("gymnasium")])
    assert "mujoco" in needed([Requirement("gymnasium"), Requirement("gymnasium[mujoco]")])
    assert needed([Requirement("gymnasium; python_version < '3'")]) == {}
    with pytest.raises(SystemExit, match="no-such-library>=1 is asked for, but is not installed"):
        needed([Requirement("no-such-library>=1")])


def test_links_of_the_readme_lead_to_the_repository() -> None:
    page = "[a](docs/a.md#b) ![c](docs/c.png) [d](https://x.org) [e](#f)"
    repository = release.REPOSITORY
    assert release.with_full_links(page, "1.0") == (
        f"[a]({repository}/blob/v1.0/docs/a.md#b) ![c]({repository}/raw/v1.0/docs/c.png) [d](https://x.org) [e](#f)"
    )
    assert "/blob/main/docs/a.md" in release.with_full_links(page, "1.0.dev0")


def test_all_files_have_the_same_version() -> None:
    assert release.package_version() == VERSION == PROJECT["version"]
    assert f"\nversion: {VERSION}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    sections = re.findall(r"^## \[(.+?)\] - ", (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sections[0] == VERSION.partition(".dev")[0]
    assert sections[-1] == "0.1.0"


@pytest.mark.parametrize("page", ["README.md", "docs/index.md"])
def test_pages_and_metadata_say_where_it_runs(page: str) -> None:
    text = " ".join((ROOT / page).read_text(encoding="utf-8").split())
    assert f"Python {PYTHONS[0]} to {PYTHONS[-1]} on Linux or macOS; Windows is not supported" in text
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"
    systems = {line.rpartition(" ")[2] for line in PROJECT["classifiers"] if line.startswith("Operating System")}
    assert systems == {"Linux", "MacOS"}
