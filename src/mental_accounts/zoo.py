"""Policies that come with this package: run folders in small, each with a card.

`zoo/NAME` is understood wherever the folder of a run is.
"""

import difflib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mental_accounts.errors import UsageError
from mental_accounts.fields import check_fields
from mental_accounts.files import read_json

ZOO = Path(__file__).parent / "zoo_files"
PREFIX = "zoo"
"""Of a name in place of a folder."""
CARD = "card.json"
"""The command that made it, and what it earned."""
KINDS = {
    "task": "text", "method": "text", "command": "text", "episodes": "a whole number", "seed": "a whole number",
    "returns": "an object", "score": "a finite number or null",
}  # fmt: skip


def zoo_names() -> list[str]:
    """The names of all."""
    return sorted(path.parent.name for path in ZOO.glob(f"*/{CARD}"))


def zoo_folder(name: str) -> Path:
    """The folder of the policy with this name."""
    names = zoo_names()
    if name in names:
        return ZOO / name
    if "/" in name:
        raise UsageError(
            f"there is no {name!r} among the policies of this package; policies of other people are read from the Hub: "
            "mental_accounts.export.hub.HubPolicy.from_pretrained, or from a folder: DecisionTransformer.load"
        )
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.3)
    hint = f"did you mean {close[0]}? " if close else ""
    raise UsageError(f"there is no policy {name!r} to start from; {hint}there are {', '.join(names) or 'none'}")


def read_card(name: str) -> dict[str, Any]:
    """What is known of a policy: command, returns of its mean action with a 95% interval over episodes, hardware."""
    path = zoo_folder(name) / CARD
    return check_fields(read_json(path), KINDS, str(path))


def earned(returns: Mapping[str, float]) -> str:
    """A card's mean return with its interval, as text; small returns with more digits."""
    digits = 1 if abs(returns["mean"]) >= 10 else 2
    mean, low, high = (f"{returns[name]:.{digits}f}" for name in ("mean", "low", "high"))
    return f"{mean} [{low}, {high}]"


def folder_of(path: str | Path) -> Path:
    """The path itself, or where the policy lies that it names as `zoo/NAME`; a folder of the user's comes first."""
    given = Path(path)
    if given.parts[:1] == (PREFIX,) and len(given.parts) == 2 and not given.exists():
        return zoo_folder(given.name)
    return given


def beside(path: str | Path, name: str) -> Path:
    """Where something about a run is written: into its folder; of a policy of this package, into the current one."""
    given, found = Path(path), folder_of(path)
    return given / name if given == found else Path(f"{found.name}-{name}")
