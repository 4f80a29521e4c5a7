"""What `data` prints: the list of all data, one task, and a line about data that were just made."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from mental_accounts.data import TASKS, Task, Trajectories, find_task, load_task
from mental_accounts.data.asked import describe_range, return_range
from mental_accounts.data.catalogue import Held, held_data
from mental_accounts.data.tasks import complete

EVALUATION, EXPLORATION = "return asked for", "return asked for while exploring"


def print_list() -> None:
    """All data: on this machine, and by name."""
    held = held_data()
    rows = []
    for name in dict.fromkeys([*TASKS, *(item.task for item in held)]):
        here = [item for item in held if item.task == name] or [Held(name, None, here=False)]
        rows += [_row(find_task(name), item) for item in here]
    header = ["task", "source", "environment", "steps", "trajectories", "return", "max", "MB", "D4RL's return"]
    show(header, rows, numbers=(3, 4, 5, 6, 7, 8))


def print_task(name: str) -> None:
    """One task, and its data on this machine compared with D4RL's published statistics."""
    task = find_task(name)
    held = [item for item in held_data() if item.task == task.name]
    facts = {
        "task": task.name,
        "source": f"{task.source} ({task.dataset})",
        "environment": _environment(task, held) or "set by the data",
        **({"data made by": task.made_by} if task.made_by else {}),
        **_asked_for(task, held),
        "score 0 / 100": _scores(task),
        "context": f"{task.context_length} steps in training, {task.eval_context_length} while acting",
        "timestep embedding": "yes" if task.timestep_embedding else "no",
    }
    show(["", ""], [[fact, value] for fact, value in facts.items()])
    rows = [
        [f"here, seed {item.seed}" if item.seed is not None else "here", *_numbers(item), str(item.path or "")]
        for item in held
    ]
    if task.published is not None:
        p = task.published
        numbers = [
            f"{p.steps:,}",
            f"{p.trajectories:,}",
            _spread(p.return_mean, p.return_std),
            _number(p.return_max),
        ]
        rows.append(["D4RL, published", *numbers, "", ""])
    show(["data", "steps", "trajectories", "return", "max", "MB", "file"], rows, numbers=(1, 2, 3, 4, 5))
    if not held:
        print(f"not on this machine yet: mental-accounts data make {task.name} [--steps 100000]")


def describe(name: str, store: Trajectories) -> None:
    """One line about a store of trajectories."""
    found = store.statistics()
    print(
        f"{name}: {found.steps:,} steps, {found.trajectories:,} trajectories, return {found.return_mean:.0f} ± "
        f"{found.return_std:.0f}, max {found.return_max:.0f}, environment {store.info.get('env_id') or 'unknown'}"
    )
    made_by = store.info.get("made_by")
    if made_by:  # episodes of each of those who took turns
        shares = sorted(made_by.items())
        print(f"made by {', '.join(f'{name} ({count / found.trajectories:.0%})' for name, count in shares)}")


def _asked_for(task: Task, held: Sequence[Held]) -> dict[str, str]:
    """The target returns of `train`: from the table of tasks, or from the data, which are then read."""
    store = None
    if task.target_return is None and held:
        largest = max(held, key=lambda item: item.steps or 0).path
        if task.source == "hidden" and largest is not None:  # other numbers of steps would be rolled out first
            store = Trajectories.load(largest)
            task = complete(task, store)
        else:
            task, store = load_task(task.name)
    if task.target_return is None or task.exploration_return is None:
        unknown = f"depends on the data: mental-accounts data make {task.name}, then this again"
        return {EVALUATION: unknown, EXPLORATION: unknown}
    found = {
        EVALUATION: f"{task.target_return:.4g}",
        EXPLORATION: f"{task.exploration_return:.4g}",
        "return-to-go": "not clipped while acting",
    }
    if store is not None and task.return_scale is None:  # no table
        low, high = return_range(store.returns_to_go)
        found[EVALUATION] += ": exceeded by 5% of the data's episodes"
        found[EXPLORATION] += ": as far above that as that is above the median, at most the best"
        found["return-to-go"] = f"clipped to [{low:.4g}, {high:.4g}] while acting, the range in the data"
        found["returns of the data"] = describe_range(store.returns)
    return found


def _scores(task: Task) -> str:
    if task.random_return is None or task.expert_return is None:
        return "unknown"
    return f"{task.random_return:.0f} / {task.expert_return:.0f} ({task.scored})"


def _row(task: Task, item: Held) -> list[str]:
    seed = f", seed {item.seed}" if item.seed else ""
    published = "" if task.published is None else _spread(task.published.return_mean, task.published.return_std)
    return [task.name, f"{task.source}{seed}", _environment(task, [item]) or "?", *_numbers(item), published]


def _environment(task: Task, held: Sequence[Held]) -> str | None:
    """The task's environment, or the one recorded with its data on this machine."""
    return task.env_id or next((item.env_id for item in held if item.env_id), None)


def _numbers(item: Held) -> list[str]:
    """Steps, trajectories, return, max, MB."""
    spread = _spread(item.return_mean, item.return_std) or ("here" if item.here else "")
    size = f"{item.nbytes / 1e6:.1f}" if item.nbytes is not None else ""
    counts = [f"{count:,}" if count is not None else "" for count in (item.steps, item.trajectories)]
    return [*counts, spread, _number(item.return_max), size]


def _spread(mean: float | None, std: float | None) -> str:
    return "" if mean is None or std is None else f"{mean:.0f} ± {std:.0f}"


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def show(header: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] = ()) -> None:
    """A table on a terminal; elsewhere plain columns of any width."""
    console = Console()
    if console.is_terminal:
        table = Table(show_header=any(header), box=None if not any(header) else Table().box)
        for i, title in enumerate(header):
            table.add_column(title, justify="right" if i in numbers else "left", no_wrap=i == 0)
        for row in rows:
            table.add_row(*map(escape, row))
        console.print(table)
        return
    lines = [header, *rows] if any(header) else rows
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    for line in lines:
        cells = (
            cell.rjust(w) if i in numbers else cell.ljust(w)
            for i, (cell, w) in enumerate(zip(line, widths, strict=True))
        )
        print("  ".join(cells).rstrip())
