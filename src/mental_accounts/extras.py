"""Optional libraries: which versions are supported, and how to install a missing one."""

import re
from importlib import metadata

SUPPORTED = {
    "transformers": ("hf", (5, 4), (6, 0)),
    "torchrl": ("torchrl", (0, 14), (1, 0)),
    "stable-baselines3": ("sb3", (2, 6), (3, 0)),
    "huggingface_hub": ("hub", (1, 5), (3, 0)),
    "onnx": ("onnx", (1, 17), (2, 0)),
    "onnxscript": ("onnx", (0, 6), (1, 0)),
    "onnxruntime": ("onnx", (1, 20), (2, 0)),
}
"""Library -> the extra that installs it, the first supported version, and the first that is no longer supported."""


def how_to_install(extra: str) -> str:
    """The command that installs what an extra consists of."""
    return f"pip install 'mental-accounts[{extra}]' (in the repository: pip install '.[{extra}]')"


def check_library(name: str, purpose: str) -> None:
    """Raise if a library is missing or its version is unsupported, with the command that installs it."""
    extra, low, high = SUPPORTED[name]
    install = how_to_install(extra)
    try:
        installed = metadata.version(name)
    except metadata.PackageNotFoundError:
        raise ImportError(f"{purpose} needs {name}, which is not installed: {install}") from None
    numbers = [int(part) for part in re.findall(r"\d+", installed)[:2]]
    if not low <= (*numbers, 0, 0)[:2] < high:
        wanted = f">= {'.'.join(map(str, low))} and < {'.'.join(map(str, high))}"
        raise ImportError(f"{purpose} supports {name} {wanted}, but {installed} is installed: {install}")
