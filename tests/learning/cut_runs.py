"""Runs in tests: to start one, to compare two, to cut one."""

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


def run_cut_and_whole(config: TrainConfig, folder: Path, checkpoints: int) -> None:
    """A run that is stopped after so many checkpoints, and resumed, ends as one that is not."""
    start(config, folder / "whole").run()
    trainer = start(config, folder / "cut")
    kept, made = trainer._write_checkpoint, []

    def write_and_stop() -> None:
        kept()
        made.append(1)
        if len(made) == checkpoints:
            raise KeyboardInterrupt

    trainer._write_checkpoint = write_and_stop
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    start(config, folder / "cut").run()
    same_run(folder / "whole", folder / "cut")
