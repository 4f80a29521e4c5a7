"""data list | info | make | import."""

import sys
from dataclasses import dataclass
from typing import Annotated

import tyro

from mental_accounts.number_checks import check_count


@dataclass(frozen=True)
class ListData:
    """List the available data: on this machine, and by name."""

    def execute(self) -> int:
        from mental_accounts.commands.data_tables import print_list

        print_list()
        return 0


@dataclass(frozen=True)
class DataInfo:
    """Show one task: its settings, and its data on this machine compared with D4RL's published statistics."""

    task: tyro.conf.Positional[str]
    """A name, such as hopper-medium."""

    def execute(self) -> int:
        from mental_accounts.commands.data_tables import print_task

        print_task(self.task)
        return 0


@dataclass(frozen=True)
class MakeData:
    """Make, download or read the data of a task, and keep them in the cache."""

    task: tyro.conf.Positional[str]
    """A name, such as hopper-medium."""
    steps: int | None = None
    """Steps to roll out (built-in data); default: as many as D4RL has."""
    seed: int = 0
    """Seed of the rollouts."""
    workers: int | None = None
    """Processes that roll out; default: one per core. The data do not depend on it."""

    def execute(self) -> int:
        from mental_accounts.commands.data_tables import describe
        from mental_accounts.data import load_task
        from mental_accounts.learning.footprint import check_data_steps

        if self.workers is not None:
            check_count("--workers", self.workers, 1)
        check_data_steps(self.steps, "--steps")
        task, store = load_task(self.task, self.steps, self.seed, workers=self.workers)
        describe(task.name, store)
        return 0


@dataclass(frozen=True)
class ImportData:
    """Import data of your own under a name: imported/NAME is then a task."""

    source: tyro.conf.Positional[str]
    """A D4RL-layout .hdf5, a Decision Transformer .pkl, a .safetensors of Trajectories.save, or a Minari id."""
    name: str | None = None
    """The name of the data; default: that of the file."""
    env: str | None = None
    """The environment of the data: Gymnasium's id, my_module:My-v0 if your module registers it, or my_module:MyEnv."""
    time_limit: int | None = None
    """For HDF5 files without `timeouts`: the largest number of steps in an episode."""

    def execute(self) -> int:
        from mental_accounts.commands.data_tables import describe
        from mental_accounts.data import import_data
        from mental_accounts.data.trajectories import Trajectories
        from mental_accounts.learning.data_fit import check_for

        def check(data: Trajectories) -> None:
            if self.env is not None and (why := check_for(self.env, data, self.source)):
                print(f"warning: the data were not compared with the environment: {why}", file=sys.stderr)

        name, store = import_data(self.source, self.name, self.env, self.time_limit, check)
        describe(name, store)
        return 0


DataCommand = (
    Annotated[ListData, tyro.conf.subcommand("list")]
    | Annotated[DataInfo, tyro.conf.subcommand("info")]
    | Annotated[MakeData, tyro.conf.subcommand("make")]
    | Annotated[ImportData, tyro.conf.subcommand("import")]
)


@dataclass(frozen=True)
class Data:
    """List, describe, make and import trajectories."""

    command: tyro.conf.OmitSubcommandPrefixes[DataCommand]

    def execute(self) -> int:
        return self.command.execute()
