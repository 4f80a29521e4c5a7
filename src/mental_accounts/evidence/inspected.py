"""One inspected episode for each method and task of a report, as pages beside it."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from mental_accounts.evidence.inspect import record
from mental_accounts.evidence.inspect_page import film_recording, to_page
from mental_accounts.evidence.runs import Evidence
from mental_accounts.files import write_atomically
from mental_accounts.learning.evaluation import read_subject

PICTURES = 60


@dataclass(frozen=True)
class Inspected:
    """Pages that were written, and those that could not be."""

    links: dict[str, str]
    """What each page shows, by its path from the report."""
    warnings: tuple[str, ...]


def inspect_evidence(evidence: Evidence, folder: Path, say: Callable[[str], None] = lambda text: None) -> Inspected:
    """Inspect one episode of the first seed of every method and task, into `folder`/inspect.

    A run that cannot be played here (made elsewhere, without its policy or environment) is a warning, not a failure.
    """
    links: dict[str, str] = {}
    warnings: list[str] = []
    for task in evidence.tasks:
        for method in evidence.methods:
            runs = evidence.of(task, method)
            if not runs:
                continue
            say(f"inspecting an episode: {task} {method}")
            page = folder / "inspect" / f"{_slug(task)}-{_slug(method)}.html"
            try:
                subject = read_subject(runs[0].path, None, None)
                recording = record(subject, episodes=1, seed=runs[0].seed)
                films = film_recording(recording, runs[0].seed, PICTURES)
                write_atomically(page, to_page(recording, films).encode())
            except Exception as error:  # whatever is wrong with one run, the report is worth having
                why = " ".join(str(error).split()) or repr(error)
                warnings.append(f"{task} {method}: no episode could be inspected ({why})")
                continue
            links[f"inspect/{page.name}"] = f"Inspect an episode: {task}, {method}, seed {runs[0].seed}"
    return Inspected(links, tuple(warnings))


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._=-]+", "-", text).strip("-")
