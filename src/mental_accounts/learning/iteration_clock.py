"""Where the time of an iteration goes, as metrics."""

import time

from mental_accounts.learning.run_progress import Progress


class IterationClock:
    """Started with an iteration; told when exploring and learning are over."""

    def __init__(self, run_begun: float, progress: Progress) -> None:
        """`run_begun`: when the run began, by `time.monotonic`, less the time of earlier sessions."""
        self._run_begun, self._begun = run_begun, time.monotonic()
        self._explored = self._learned = self._begun
        self._steps, self._updates = progress.env_steps, progress.updates

    def exploring_is_over(self) -> None:
        """Learning begins."""
        self._explored = time.monotonic()

    def learning_is_over(self) -> None:
        """Evaluation begins."""
        self._learned = time.monotonic()

    def times(self, progress: Progress) -> dict[str, float]:
        """Seconds of all parts, and what was made in a second."""
        now, exploration, training = time.monotonic(), self._explored - self._begun, self._learned - self._explored
        return {
            "time/total": now - self._run_begun,
            "time/iteration": now - self._begun,
            "time/exploration": exploration,
            "time/training": training,
            "time/evaluation": now - self._learned,
            "time/updates_per_second": (progress.updates - self._updates) / max(training, 1e-9),
            "time/steps_per_second": (progress.env_steps - self._steps) / max(exploration, 1e-9),
        }
