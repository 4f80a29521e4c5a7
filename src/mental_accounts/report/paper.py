"""The paper's two tables, and ours for comparison, computed the same way."""

from collections.abc import Sequence
from dataclasses import dataclass

from mental_accounts.report.analysis import TaskAnalysis, metric_matrix
from mental_accounts.report.runs import LOWER_IS_BETTER, SEVEN, Run
from mental_accounts.report.significance import Verdict
from mental_accounts.report.statistics import paper_average, relative_change


@dataclass(frozen=True)
class PaperTable:
    """A table of the paper: for each of the seven metrics EWA-VQ-ODT's average, ODT's, and Δ in per cent."""

    dataset: str
    rows: dict[str, tuple[float, float, float]]


PAPER_TABLES = {
    "walker2d-medium-replay": PaperTable(
        "walker2d-medium-replay-v2",
        dict(
            zip(
                SEVEN,
                [
                    (167.1, 82.4, 102.9),
                    (155.3, 57.4, 170.6),
                    (179.3, 123.4, 45.3),
                    (134.5, 87.4, 53.9),
                    (70.1, 16.2, 331.7),
                    (87.5, 64.0, 36.7),
                    (116.1, 90.5, 28.3),
                ],
                strict=True,
            )
        ),
    ),
    "hopper-medium": PaperTable(
        "hopper-medium-v2",
        dict(
            zip(
                SEVEN,
                [
                    (1343.9, 1254.8, 7.1),
                    (307.9, 403.3, -23.6),
                    (1325.1, 1222.1, 8.4),
                    (680.6, 629.0, 8.2),
                    (162.3, 187.2, -13.3),
                    (867.9, 884.5, -1.9),
                    (357.5, 376.8, -5.1),
                ],
                strict=True,
            )
        ),
    ),
}
"""By the task's name without its source; seeds 1 to 3 each."""


@dataclass(frozen=True)
class TableRow:
    """Averages of one metric for two methods, as the paper computes them."""

    metric: str
    ours: float
    baseline: float
    change_percent: float

    @property
    def is_better(self) -> bool:
        """Whether the change is an improvement."""
        return (self.change_percent < 0) == (self.metric in LOWER_IS_BETTER)


def table_of(ours: Sequence[Run], baseline: Sequence[Run]) -> list[TableRow]:
    """The paper's table for runs of two methods: seven averages each, over seeds, then steps; and Δ%."""
    rows = []
    for name in SEVEN:
        one, other = (paper_average(metric_matrix(runs, name)) for runs in (ours, baseline))
        rows.append(TableRow(name, one, other, relative_change(one, other)))
    return rows


def paper_table_for(task: str) -> PaperTable | None:
    """The paper's table for a task, whatever the source of its data; None if the paper has none."""
    bare = task.rpartition("/")[2].removesuffix("-v2")
    return PAPER_TABLES.get(bare)


def beside_the_paper(analysis: TaskAnalysis) -> list[tuple[str, TableRow, tuple[float, float, float] | None, Verdict]]:
    """Per method and metric: ours, the paper's numbers (None for other tasks), and the verdict of the test."""
    table = paper_table_for(analysis.task)
    found = []
    for comparison in analysis.comparisons:
        for row in comparison.rows:
            ours = TableRow(row.name, row.value, row.baseline, row.change_percent)
            found.append((comparison.method, ours, None if table is None else table.rows[row.name], row.verdict))
    return found
