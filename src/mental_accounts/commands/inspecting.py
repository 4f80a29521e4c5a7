"""inspect."""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import tyro

from mental_accounts.checks import check_count
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.files import write_atomically
from mental_accounts.inspect.inspect_page import film_recording, to_page
from mental_accounts.inspect.inspect_summary import findings, numbers
from mental_accounts.inspect.recording import record
from mental_accounts.learning.evaluation import read_subject
from mental_accounts.learning.footprint import check_episodes


@dataclass(frozen=True)
class Inspect:
    """See what a policy's accounts hold and what they do to its attention: one interactive page.

    `inspect runs/...`: play some episodes, write inspect.html into the run's folder.

    `inspect runs/... --json > numbers.json`: the same numbers for programs.
    """

    subject: tyro.conf.Positional[Path]
    """The folder of a run, or of a saved policy."""
    episodes: int = 3
    """Episodes to play (those of `evaluate` with the same number and seed), or to read of the recorded ones."""
    out: Path | None = None
    """The page; None: inspect.html in the folder of the subject."""
    as_json: Annotated[bool, tyro.conf.arg(name="json")] = False
    """Print all numbers as JSON; the page is then written only where --out says so."""
    recorded: Path | None = None
    """A file of trajectories to read instead of playing, such as one of a run's own folder trajectories/."""
    seed: int = 0
    """Of environments and actions."""
    target_return: float | None = None
    """The return to ask for; None: the run's own."""
    env_id: str | None = None
    """The environment; needed for a bare policy, which does not know it."""
    pictures: int = 180
    """The most pictures of the environment, over all episodes; 0: none, the state's curves instead."""
    device: str = "auto"
    """auto: a GPU where there is one."""

    def execute(self) -> int:
        """Record, then write."""
        check_count("--pictures", self.pictures, 0)
        subject = read_subject(self.subject, self.env_id, self.target_return, self.device)
        check_episodes(subject.policy.config, self.episodes, "--episodes")
        stored = None if self.recorded is None else Trajectories.load(self.recorded)
        recording = record(subject, self.episodes, self.seed, recorded=stored)
        if self.as_json:
            print(json.dumps(numbers(recording), allow_nan=False))
        if self.out is not None or not self.as_json:
            path = self.out or self.subject / "inspect.html"
            films = film_recording(recording, self.seed, self.pictures)
            if self.pictures > 0 and recording.source == "played" and films[0].problem:
                print(f"no pictures of {recording.env_id}: {films[0].problem}", file=sys.stderr)
            write_atomically(path, to_page(recording, films).encode())
            if not self.as_json:
                for text in findings(recording, recording.episodes[0]):
                    print(text)
            print(f"page: {path}", file=sys.stderr if self.as_json else sys.stdout)
        return 0
