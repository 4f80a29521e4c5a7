"""One inspected episode for each method and task of a report, as pages next to it."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mental_accounts.files import slug, write_atomically
from mental_accounts.inspect.inspect_page import film_recording, to_page
from mental_accounts.inspect.recording import record
from mental_accounts.learning.critic_files import read_critics
from mental_accounts.learning.evaluation import read_subject
from mental_accounts.policy_options import TRANSFORMERS
from mental_accounts.report.runs import Evidence

PICTURES = 60


@dataclass(frozen=True)
class Inspected:
    """The pages that were written, and warnings about those that were not."""

    links: dict[str, str]
    """The link text of each page, by its path relative to the report."""
    warnings: tuple[str, ...]


def inspect_evidence(evidence: Evidence, folder: Path, say: Callable[[str], None] = lambda text: None) -> Inspected:
    """Inspect one episode of the first seed of every task and method that has attention, into `folder`/inspect.

    An existing page of the same run is kept, as is one whose run's policy is elsewhere. A run that cannot be played
    here causes a warning, not a failure; a packed run has no policy to play.
    """
    links: dict[str, str] = {}
    warnings: list[str] = []
    for task in evidence.tasks:
        for method in evidence.methods:
            runs = evidence.of(task, method)
            if not runs or runs[0].config["method"] not in TRANSFORMERS:
                continue
            page = folder / "inspect" / f"{slug(task)}-{slug(method)}-seed-{runs[0].seed}.html"
            place = runs[0].path
            if place is None and not page.is_file():
                continue
            try:
                if place is not None and not _is_there(page, place):
                    say(f"inspecting an episode: {task} {method}")
                    _inspect(place, runs[0].seed, page)
            except Exception as error:  # one bad run should not prevent the report
                why = " ".join(str(error).split()) or repr(error)
                warnings.append(f"{task} {method}: no episode could be inspected ({why})")
                continue
            links[f"inspect/{page.name}"] = f"Inspect an episode: {task}, {method}, seed {runs[0].seed}"
    return Inspected(links, tuple(warnings))


def _is_there(page: Path, run: Path) -> bool:
    return page.is_file() and (not (run / "policy").is_dir() or _mark(run) in page.read_text())


def _mark(run: Path) -> str:
    """A line of a page that identifies its run by content."""
    content = b"".join((run / name).read_bytes() for name in ("config.json", "metrics.jsonl"))
    return f"<!-- run {hashlib.sha256(content).hexdigest()} -->"


def _inspect(run: Path, seed: int, page: Path) -> None:
    subject = read_subject(run, None, None)
    recording = record(subject, episodes=1, seed=seed, critics=read_critics(run, subject.policy))
    films = film_recording(recording, seed, PICTURES)
    write_atomically(page, f"{to_page(recording, films)}\n{_mark(run)}\n".encode())
