"""Where trajectories come from: sources -> one store of flat tensors -> windows."""

from mental_accounts.account_options import AccountScope
from mental_accounts.data.annotation import Annotation
from mental_accounts.data.d4rl import read_d4rl
from mental_accounts.data.description import Statistics
from mental_accounts.data.imports import import_data
from mental_accounts.data.minari import read_minari
from mental_accounts.data.pickles import read_pickle
from mental_accounts.data.tasks import TASKS, Task, find_task, load_task, normalised_score
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.data.trajectory import Trajectory
from mental_accounts.data.windows import WindowSampler
from mental_accounts.errors import DataError

__all__ = [
    "TASKS",
    "AccountScope",
    "Annotation",
    "DataError",
    "Statistics",
    "Task",
    "Trajectories",
    "Trajectory",
    "WindowSampler",
    "find_task",
    "import_data",
    "load_task",
    "normalised_score",
    "read_d4rl",
    "read_minari",
    "read_pickle",
]
