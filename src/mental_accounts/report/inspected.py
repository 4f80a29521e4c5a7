"""One inspected episode for each method and task of a report, as pages next to it."""

import hashlib
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from mental_accounts.files import slug, write_atomically
from mental_accounts.inspect.inspect_page import film_recording, to_page
from mental_accounts.inspect.recording import Recording, record
from mental_accounts.learning.critic_files import read_critics
from mental_accounts.learning.evaluation import read_subject
from mental_accounts.machine import usable_cores
from mental_accounts.policy_options import TRANSFORMERS
from mental_accounts.report.runs import Evidence, Run

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
    pages = dict(_pages(evidence, folder))
    failed: dict[Path, str] = {}
    filmed: dict[Path, Future[None]] = {}
    with ThreadPoolExecutor(usable_cores()) as cameras:  # a film is made by a process, beside the next recording
        for page, run in pages.items():
            try:
                if run.path is not None and not _is_there(page, run.path):
                    say(f"inspecting an episode: {run.task} {run.method}")
                    filmed[page] = cameras.submit(_write, _record(run.path, run.seed), run.path, run.seed, page)
            except Exception as error:  # one bad run should not prevent the report
                failed[page] = _why(error)
    for page, film in filmed.items():
        if (problem := film.exception()) is not None:
            failed[page] = _why(problem)
    links = {
        f"inspect/{page.name}": f"Inspect an episode: {run.task}, {run.method}, seed {run.seed}"
        for page, run in pages.items()
        if page not in failed
    }
    warnings = (
        f"{pages[page].task} {pages[page].method}: no episode could be inspected ({why})"
        for page, why in failed.items()
    )
    return Inspected(links, tuple(warnings))


def _pages(evidence: Evidence, folder: Path) -> Iterator[tuple[Path, Run]]:
    """The pages that there can be, each with its run."""
    for task in evidence.tasks:
        for method in evidence.methods:
            runs = evidence.of(task, method)
            if runs and runs[0].config["method"] in TRANSFORMERS:
                page = folder / "inspect" / f"{slug(task)}-{slug(method)}-seed-{runs[0].seed}.html"
                if runs[0].path is not None or page.is_file():
                    yield page, runs[0]


def _why(error: BaseException) -> str:
    return " ".join(str(error).split()) or repr(error)


def _is_there(page: Path, run: Path) -> bool:
    return page.is_file() and (not (run / "policy").is_dir() or _mark(run) in page.read_text())


def _mark(run: Path) -> str:
    """A line of a page that identifies its run by content."""
    content = b"".join((run / name).read_bytes() for name in ("config.json", "metrics.jsonl"))
    return f"<!-- run {hashlib.sha256(content).hexdigest()} -->"


def _record(run: Path, seed: int) -> Recording:
    subject = read_subject(run, None, None)
    return record(subject, episodes=1, seed=seed, critics=read_critics(run, subject.policy))


def _write(recording: Recording, run: Path, seed: int, page: Path) -> None:
    """Film the recorded episode, and write its page."""
    films = film_recording(recording, seed, PICTURES)
    write_atomically(page, f"{to_page(recording, films)}\n{_mark(run)}\n".encode())
