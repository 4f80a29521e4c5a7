"""The path of a run's policy."""

from pathlib import Path

from mental_accounts.errors import UsageError
from mental_accounts.files import runs_within
from mental_accounts.policy.policy_files import HEADER
from mental_accounts.zoo import folder_of


def policy_folder(path: str | Path) -> Path:
    """The saved policy in the folder of a run, or the folder itself if it is that of a saved policy."""
    folder = folder_of(path)
    if not folder.is_dir():
        raise UsageError(f"{folder} does not exist; give the folder of a run, or of a saved policy")
    if not (folder / "config.json").is_file():  # not a run
        there = "" if (folder / HEADER).is_file() else runs_within(folder)
        if there:
            raise UsageError(f"{folder} is not a run, but {there}")
        return folder
    if not (folder / "policy").is_dir():
        raise UsageError(
            f"{folder} has no policy/: the run has not written its first checkpoint yet, or its policy is elsewhere"
        )
    return folder / "policy"
