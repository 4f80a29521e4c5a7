"""compare, reproduce, report."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal

import tyro

from mental_accounts.commands.program import value_of
from mental_accounts.presets import PRESETS, PresetName, usual_comparison
from mental_accounts.study.running import Running


@dataclass(frozen=True)
class Compare:
    """Run every task with every method and seed, and report who wins, if anybody does.

    By default: built-in hopper-medium, preset quick, odt, ewa-vq-odt and bc, 2 seeds.

    With `--preset hidden`: hidden-arm, and ledger-odt, the policy that reads its ledger, among the methods.

    The first method is the baseline; a method can carry changes of its own, as in `compare --preset paper --seeds 10
    --task hopper-medium --methods odt ewa-vq-odt:account_scope=window`.

    Interrupted, the same command goes on; finished runs are never repeated.
    """

    task: tuple[str, ...] = usual_comparison("quick")[0]
    """Tasks, by the names of `mental-accounts data list`."""
    methods: tuple[str, ...] = usual_comparison("quick")[1]
    """The baseline and what is compared with it; METHOD:field=value,field=value changes fields of one of them."""
    seeds: int = 2
    """How many seeds: 0, 1, ..."""
    first_seed: int = 0
    """The first of them."""
    data_per_seed: bool = False
    """Every seed has data of its own, made or drawn with it; else one data set for all."""
    preset: PresetName = "quick"
    """Where every run starts from."""
    set: tuple[str, ...] = ()
    """field=value: changes to the preset, for all methods that have the field."""
    running: Annotated[Running, tyro.conf.arg(name="")] = field(default_factory=Running)
    """Where and how runs are made."""

    def execute(self) -> int:
        """Run what is missing, then report."""
        from mental_accounts.commands.conclusions import conclude, run_planned
        from mental_accounts.front_door.compare import plan_study, seeds_from
        from mental_accounts.study.plan import parse_changes

        seeds = seeds_from(self.first_seed, self.seeds)
        changes = parse_changes(self.set)
        study = plan_study(
            self.task, self.methods, seeds, self.preset, changes, self.running.out, data_per_seed=self.data_per_seed
        )
        return conclude(run_planned(study, self.running))


@dataclass(frozen=True)
class Reproduce:
    """The paper's experiment: its two tables beside ours, and its figure.

    Preset paper on both tasks. D4RL's data are used where they have been downloaded (`data make`), built-in
    data where not; the report says which.
    """

    seeds: int = 3
    """How many seeds; the paper has 3."""
    first_seed: int = 1
    """The paper's seeds begin with 1."""
    scope: tuple[Literal["window", "trajectory"], ...] = ("window",)
    """Where accounts begin: with every window (what the authors ran), with the trajectory (what the text says)."""
    set: tuple[str, ...] = ()
    """field=value: changes to the preset, for a shorter look."""
    running: Annotated[Running, tyro.conf.arg(name="")] = field(default_factory=Running)
    """Where and how runs are made."""

    def execute(self) -> int:
        """Run, print the tables, draw the figure."""
        from mental_accounts.commands.conclusions import conclude, print_tables, run_planned
        from mental_accounts.front_door.compare import plan_paper, seeds_from
        from mental_accounts.report.figures import paper_figure, save
        from mental_accounts.study.plan import parse_changes

        seeds = seeds_from(self.first_seed, self.seeds)
        study = plan_paper(seeds, self.scope, parse_changes(self.set), self.running.out)
        result = run_planned(study, self.running)
        print_tables(result.analysis)
        figure = save(paper_figure(result.evidence), result.folder / "figure")
        print(f"figure: {', '.join(map(str, figure))}")
        return conclude(result)


@dataclass(frozen=True)
class ReportCommand:
    """Write the report of a comparison again, or one of any runs; or pack a comparison into one file."""

    folders: tyro.conf.Positional[tuple[Path, ...]]
    """The folder of a comparison, or its packed file; or folders of runs, which are grouped by task and method."""
    out: Path | None = None
    """Where to; None: into the comparison's folder, or the current one."""
    pack: Path | None = None
    """Instead of a report, write the comparison as one small file, NAME.jsonl.gz, that `report` reads as well. Several
    folders or packed files are put together: parts of one comparison, with other seeds or tasks."""

    def execute(self) -> int:
        """Read and write."""
        from mental_accounts.commands.conclusions import conclude, say
        from mental_accounts.front_door.compare import pack_study, report_folders

        if self.pack is not None:
            runs = pack_study(self.folders, self.pack)
            print(f"packed: {runs} runs in {self.pack}, {self.pack.stat().st_size / 1e6:.2f} MB")
            return 0
        return conclude(report_folders(self.folders, self.out, say))


def usual_compare(arguments: list[str]) -> Compare:
    """The defaults of `compare`: those of the preset that the arguments name."""
    named = value_of(arguments, "--preset")
    preset: PresetName = next((known for known in PRESETS if known == named), "quick")
    task, methods = usual_comparison(preset)
    return Compare(task=task, methods=methods, preset=preset)
