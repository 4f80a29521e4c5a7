"""Where the policy of a run lies."""

from pathlib import Path

from mental_accounts.errors import UsageError


def policy_folder(path: str | Path) -> Path:
    """The saved policy in the folder of a run, or the folder itself where it is one of a saved policy."""
    folder = Path(path)
    if not folder.is_dir():
        raise UsageError(f"{folder} does not exist; give the folder of a run, or of a saved policy")
    if not (folder / "config.json").is_file():  # no run
        return folder
    if not (folder / "policy").is_dir():
        raise UsageError(
            f"{folder} has no policy/: the run has not written its first checkpoint yet, or its policy lies elsewhere"
        )
    return folder / "policy"
