"""inspect."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from mental_accounts.files import write_atomically
from mental_accounts.number_checks import check_count
from mental_accounts.zoo import beside, folder_of


@dataclass(frozen=True)
class Inspect:
    """Show a policy's accounts and their effect on its attention, on one interactive page.

    By default it plays some episodes, and writes inspect.html into the run folder.

    The same numbers as JSON: `inspect runs/... --json > numbers.json`.
    """

    subject: tyro.conf.Positional[Path]
    """The folder of a run, or of a saved policy."""
    episodes: int = 3
    """Number of episodes to play (the same as `evaluate` plays with this number and seed), or of recorded ones to
    read."""
    out: Path | None = None
    """The file to write; None: inspect.html in the folder of the run or policy (zoo/NAME: NAME-inspect.html
    here)."""
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False
    """Print all numbers as JSON; the page is then written only if --out is given."""
    recorded: Path | None = None
    """A file of trajectories to read instead of playing, such as one in a run's trajectories/ folder."""
    seed: int = 0
    """Seed of environments and actions."""
    target_return: float | None = None
    """The target return; None: the run's."""
    env_id: str | None = None
    """The environment; required for a saved policy outside a run folder."""
    pictures: int = 180
    """Largest number of rendered frames over all episodes; 0: none, plots of the state instead."""
    device: str = "auto"
    """auto: a GPU if there is one."""

    def execute(self) -> int:
        """Record, then write."""
        from mental_accounts.data.trajectories import Trajectories
        from mental_accounts.inspect.inspect_page import film_recording, first_shown, to_page
        from mental_accounts.inspect.inspect_summary import findings, numbers
        from mental_accounts.inspect.recording import record
        from mental_accounts.learning.critic_files import read_critics
        from mental_accounts.learning.evaluation import read_subject
        from mental_accounts.learning.footprint import check_episodes

        check_count("--pictures", self.pictures, 0)
        subject = read_subject(self.subject, self.env_id, self.target_return, self.device)
        check_episodes(subject.policy.config, self.episodes, "--episodes")
        stored = None if self.recorded is None else Trajectories.load(self.recorded)
        critics = read_critics(folder_of(self.subject), subject.policy)
        recording = record(subject, self.episodes, self.seed, recorded=stored, critics=critics)
        if self.as_json:
            print(json.dumps(numbers(recording), allow_nan=False))
        if self.out is not None or not self.as_json:
            path = self.out or beside(self.subject, "inspect.html")
            films = film_recording(recording, self.seed, self.pictures)
            if self.pictures > 0 and recording.source == "played" and films[0].problem:
                print(f"no frames of {recording.env_id}: {films[0].problem}", file=sys.stderr)
            write_atomically(path, to_page(recording, films).encode())
            if not self.as_json:
                place, of = first_shown(recording)["episode"], len(recording.episodes)
                print(f"Episode {place + 1} of {of}, at which the page opens:")
                for text in findings(recording, recording.episodes[place]):
                    print(text)
            print(f"page: {path}", file=sys.stderr if self.as_json else sys.stdout)
        return 0
