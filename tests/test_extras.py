"""Libraries that are missing or of another version are named, with what to do."""

import subprocess
import sys
from importlib import metadata

import pytest
import torch

import mental_accounts as ma
from mental_accounts.extras import SUPPORTED, check_library
from mental_accounts.integrations import hugging_face_accounts, torchrl_accounts


def pretend(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str | None]) -> None:
    known = metadata.version

    def version(name: str) -> str:
        found = versions.get(name, known(name) if name not in versions else None)
        if found is None:
            raise metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr("mental_accounts.extras.metadata.version", version)


@pytest.mark.parametrize(("name", "extra"), [(name, value[0]) for name, value in SUPPORTED.items()])
def test_a_missing_library(name: str, extra: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, {name: None})
    with pytest.raises(ImportError, match=rf"x needs {name}.*'mental-accounts\[{extra}\]' .*'\.\[{extra}\]'"):
        check_library(name, "x")


@pytest.mark.parametrize("version", ["4.57.1", "5.3.0", "6.0.0"])
def test_a_version_outside_the_range(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, {"transformers": version})
    model, book, rule = torch.nn.Linear(2, 2), ma.GridCodebook(dim=2), ma.EWA()
    expected = rf"supports transformers >= 5.4 and < 6.0, but {version} is installed.*\[hf\]"
    for accounts in (hugging_face_accounts, torchrl_accounts):
        with pytest.raises(ImportError, match=expected):
            accounts(model, book, rule, 0.1)


@pytest.mark.parametrize("version", ["5.4.0", "5.99.3", "5.5rc1"])
def test_a_version_within_the_range(version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, {"transformers": version})
    check_library("transformers", "x")


def test_importing_the_room_imports_no_library() -> None:
    heavy = ("transformers", "torchrl", "tensordict", "huggingface_hub", "onnx", "onnxruntime", "onnxscript")
    code = (
        "import sys, mental_accounts.integrations, mental_accounts.export.programs;"
        f"print([name for name in {heavy} if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
