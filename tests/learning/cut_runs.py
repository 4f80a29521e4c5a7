"""Runs in tests: to start one, to compare two, to cut one."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

import pytest
import torch

from mental_accounts.config import TrainConfig
from mental_accounts.learning.callbacks import Callback
from mental_accounts.learning.run_folder import RunFolder
from mental_accounts.learning.trainer import Trainer
from mental_accounts.policy import DecisionTransformer


def start(config: TrainConfig, path: Path, *callbacks: Callback) -> Trainer:
    folder = RunFolder(path)
    path.mkdir(parents=True, exist_ok=True)
    folder.write_config(config, ["test"])
    return Trainer(config, folder, callbacks=callbacks)


def numbers(path: Path) -> list[dict[str, object]]:
    """The log without times."""
    return [{k: v for k, v in line.items() if not k.startswith("time/")} for line in RunFolder(path).read_metrics()]


def weights(path: Path) -> dict[str, torch.Tensor]:
    return DecisionTransformer.load(path / "policy").state_dict()


def same_run(one: Path, other: Path) -> None:
    assert numbers(one) == numbers(other)
    for (name, a), b in zip(weights(one).items(), weights(other).values(), strict=True):
        assert torch.equal(a, b), name


def run_cut_and_whole(config: TrainConfig, folder: Path, *checkpoints: int) -> None:
    """A run that is stopped after so many checkpoints, and resumed, ends as one that is not; for each number."""
    start(replace(config, checkpoint_seconds=1e6), folder / "whole").run()
    for number in checkpoints:
        trainer = start(config, folder / str(number))
        trainer._write_checkpoint = partial(_write_and_stop, trainer._write_checkpoint, count(1), number)
        with pytest.raises(KeyboardInterrupt):
            trainer.run()
        start(config, folder / str(number)).run()
        same_run(folder / "whole", folder / str(number))


def _write_and_stop(write: Callable[[], None], written: Iterator[int], number: int) -> None:
    write()
    if next(written) == number:
        raise KeyboardInterrupt
