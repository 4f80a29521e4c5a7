"""Every format that we read from strangers: a good file of it, how it is damaged, and the command that reads it."""

import gzip
import pickle
import random
import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import torch

from mental_accounts.action_spec import ActionSpec
from mental_accounts.cli import BAD_INPUT
from mental_accounts.config import TrainConfig
from mental_accounts.data.builtin import TRAINED, recipe_of
from mental_accounts.data.tasks import imported_path
from mental_accounts.export.model_card import card_text, read_run
from mental_accounts.learning.critic_files import FILE, PolicyCritics, read_critics, write_critics
from mental_accounts.learning.critics import critics_of
from mental_accounts.learning.run_folder import RunFolder
from mental_accounts.learning.trainer import Trainer
from mental_accounts.policy import DecisionTransformer
from mental_accounts.policy_options import ModelConfig, PolicyConfig
from mental_accounts.presets import PRESETS
from mental_accounts.report.packed import write_packed
from mental_accounts.report.runs import read_study
from mental_accounts.report.study_files import read_study_folder
from mental_accounts.study.plan import parse_changes, with_changes
from tests.data.slow_windows import episodes
from tests.data.test_builtin import behaviours
from tests.data.test_minari import record
from tests.data.writers import d4rl_arrays, pickled_paths, write_hdf5, write_pickle
from tests.fuzz.mutations import mutated_bytes, mutated_json
from tests.learning.conftest import aim_data
from tests.learning.tiny_env import ENV_ID
from tests.report.made_studies import write_study

Mutation = Callable[[bytes, random.Random], bytes]
TINY = TrainConfig(
    task="imported/aim", method="odt", device="cpu", precision="float32", optimizer="adamw",
    model=ModelConfig(hidden=8, layers=1, heads=1, context_length=3), batch_size=4, warmup_updates=1,
    pretrain_iterations=2, updates_per_pretrain_iteration=1, online_iterations=1, updates_per_iteration=1,
    eval_every=1, eval_episodes=1, env_workers=0,
)  # fmt: skip
SMALL = PolicyConfig(
    state_dim=1, action=ActionSpec("box", 1, (-1.0,), (1.0,)), hidden=8, layers=1, heads=1, context_length=3,
    max_timestep=5,
)  # fmt: skip


@dataclass(frozen=True)
class Format:
    """One kind of file. `make` writes a folder of good files and names the one to damage, relative to the folder."""

    make: Callable[[Path], str]
    mutate: Mutation
    command: Callable[[Path], list[str] | int]
    """What reads it, by the folder: the arguments of a command; or it is read right here, for an exit code."""


def _hdf5(compression: str) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        write_hdf5(folder / "data.hdf5", d4rl_arrays(episodes(4, longest=9)), compression)
        return "data.hdf5"

    return make


def _minari(name: str) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        record("Pendulum-v1", "test/pendulum-v0", episodes=2)
        return f"minari/test/pendulum-v0/data/{name}"

    return make


def _pickle(protocol: int) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        write_pickle(folder / "data.pkl", pickled_paths(episodes(4, longest=9)), protocol)
        return "data.pkl"

    return make


def _store(folder: Path) -> str:
    aim_data(4).save(folder / "cache" / "imported" / "own.safetensors")
    return "cache/imported/own.safetensors"


def _policy(name: str) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        torch.manual_seed(0)
        DecisionTransformer(SMALL).save(folder / "policy")
        return f"policy/{name}" if name else f"policy/{next((folder / 'policy').glob('weights-*')).name}"

    return make


def _run(name: str, *, finished: bool) -> Callable[[Path], str]:
    """A file of a run; of one that is stopped halfway, to be resumed, or of a finished one, to be evaluated."""

    def make(folder: Path) -> str:
        aim_data(4).save(imported_path("aim"))
        config = TINY if finished else replace(TINY, pretrain_iterations=3)
        run = RunFolder(folder / "run")
        run.path.mkdir()
        run.write_config(config, ["test"])
        trainer = Trainer(config, run)
        trainer.run()
        if not finished:  # as if it had been killed before its end
            (run.path / "summary.json").unlink()
        found = sorted((folder / "run").glob(name))
        return str(found[-1].relative_to(folder))

    return make


def _critics(folder: Path) -> str:
    torch.manual_seed(0)
    policy = DecisionTransformer(SMALL)
    policy.save(folder / "policy")
    write_critics(folder, PolicyCritics(critics_of(policy, 8), 0.9, 2.0))
    return FILE


def _study(name: str) -> Callable[[Path], str]:
    def make(folder: Path) -> str:
        write_study(folder / "study", lambda *key: 1000.0, seeds=2)
        return str(sorted((folder / "study").glob(name))[-1].relative_to(folder))

    return make


def _manifest(folder: Path) -> str:
    behaviours(folder / "behaviours")
    return "behaviours/manifest.json"


def _change(folder: Path) -> str:
    (folder / "change").write_text("model.hidden=64")
    return "change"


def here(read: Callable[[Path], object]) -> Callable[[Path], int]:
    """Read without a command, by its rule."""

    def run(folder: Path) -> int:
        try:
            read(folder)
        except BAD_INPUT as error:
            print(error, file=sys.stderr)
            return 2
        return 0

    return run


reported = here(lambda folder: read_study(folder / "study"))  # drawing the figures would take a second each time
unpacked = here(lambda folder: read_study(folder / "study.jsonl.gz"))
cooked = here(lambda folder: [recipe_of("robot", kind, folder / "behaviours") for kind in TRAINED])
judged = here(lambda folder: read_critics(folder, DecisionTransformer.load(folder / "policy")))
carded = here(lambda folder: card_text(SMALL, read_run(folder / "run")))


def _set(folder: Path) -> None:
    with_changes(PRESETS["quick"], parse_changes([(folder / "change").read_text(errors="replace")]))


def _packed(folder: Path) -> str:
    _study("study.json")(folder)
    write_packed(read_study_folder(folder / "study"), folder / "study.jsonl.gz")
    return "study.jsonl.gz"


def _mutated_inside(good: bytes, rng: random.Random) -> bytes:
    """Damage to the lines that are packed: the checksum of a stranger's file is right, too."""
    return gzip.compress(mutated_json(gzip.decompress(good), rng), 1)


def imported(file: str) -> Callable[[Path], list[str]]:
    return lambda folder: ["data", "import", str(folder / file), "--name", "mutant"]


def evaluated(folder: Path) -> list[str]:
    return ["evaluate", str(folder / "policy"), "--env-id", ENV_ID, "--target-return", "5", "--episodes", "1"]


def informed(folder: Path) -> list[str]:
    return ["data", "info", "minari/test/pendulum-v0"]


def played(folder: Path) -> list[str]:
    return ["evaluate", str(folder / "run"), "--episodes", "1"]


def resumed(folder: Path) -> list[str]:
    return ["resume", str(folder / "run")]


FORMATS = {
    "hdf5": Format(_hdf5("gzip"), mutated_bytes, imported("data.hdf5")),
    "hdf5, lzf": Format(_hdf5("lzf"), mutated_bytes, imported("data.hdf5")),
    "minari": Format(_minari("main_data.hdf5"), mutated_bytes, informed),
    "minari, metadata": Format(_minari("metadata.json"), mutated_json, informed),
    "pickle 2": Format(_pickle(2), mutated_bytes, imported("data.pkl")),
    "pickle 4": Format(_pickle(4), mutated_bytes, imported("data.pkl")),
    "pickle 5": Format(_pickle(pickle.HIGHEST_PROTOCOL), mutated_bytes, imported("data.pkl")),
    "trajectories": Format(_store, mutated_bytes, lambda folder: ["data", "info", "imported/own"]),
    "policy.json": Format(_policy("policy.json"), mutated_json, evaluated),
    "weights": Format(_policy(""), mutated_bytes, evaluated),
    "critics": Format(_critics, mutated_bytes, judged),
    "config.json": Format(_run("config.json", finished=True), mutated_json, played),
    "task.json": Format(_run("task.json", finished=True), mutated_json, played),
    "metrics.jsonl": Format(_run("metrics.jsonl", finished=False), mutated_json, resumed),
    "checkpoint, state": Format(_run("checkpoint/*/state.json", finished=False), mutated_json, resumed),
    "checkpoint, tensors": Format(_run("checkpoint/*/*.safetensors", finished=False), mutated_bytes, resumed),
    "trajectories of a run": Format(_run("trajectories/*.safetensors", finished=False), mutated_bytes, resumed),
    "summary.json": Format(_run("summary.json", finished=True), mutated_json, resumed),
    "study.json": Format(_study("study.json"), mutated_json, reported),
    "metrics of a study": Format(_study("runs/*/*/*/metrics.jsonl"), mutated_json, reported),
    "summary of a study": Format(_study("runs/*/*/*/summary.json"), mutated_json, reported),
    "packed study": Format(_packed, mutated_bytes, unpacked),
    "packed study, inside": Format(_packed, _mutated_inside, unpacked),
    "model card, config": Format(_run("config.json", finished=True), mutated_json, carded),
    "model card, summary": Format(_run("summary.json", finished=True), mutated_json, carded),
    "behaviours": Format(_manifest, mutated_json, cooked),
    "--set": Format(_change, mutated_bytes, here(_set)),
}


def good_folder(name: str, folder: Path) -> Path:
    """Good files of a format in a new folder, and the one to damage."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    return folder / FORMATS[name].make(folder)
