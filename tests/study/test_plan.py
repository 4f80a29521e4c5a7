"""What a study consists of, and what is refused before anything is run."""

import json
from pathlib import Path

import pytest

from mental_accounts.config import TrainConfig
from mental_accounts.errors import UsageError
from mental_accounts.presets import PRESETS
from mental_accounts.study.plan import Arm, Study, parse_changes, with_changes


def make(folder: Path, **changes: object) -> Study:
    values = {
        "folder": folder, "tasks": ("hopper-medium",), "arms": (Arm.parse("odt"), Arm.parse("ewa-vq-odt")),
        "seeds": (0, 1), "base": PRESETS["quick"], "preset": "quick",
    }  # fmt: skip
    return Study(**(values | changes))


def test_a_methods_values_can_be_lists(tmp_path: Path) -> None:
    arms = (Arm.parse('ledger-odt:ledger_channels=["mean","count"],phi=0.2'), Arm.parse("ledger-odt:hidden=32"))
    first, second = (job.config.model for job in make(tmp_path, arms=arms).jobs[:2])
    assert (first.accounts.ledger_channels, first.accounts.phi) == (("mean", "count"), 0.2)
    assert (second.accounts.ledger_channels, second.hidden) == (("balance",), 32)
    unknown = make(tmp_path, arms=(Arm.parse('ledger-odt:ledger_channels=["mean","counts"]'),))
    with pytest.raises(UsageError, match="channels must be of"):
        list(unknown.jobs)


def test_every_task_with_every_method_and_seed_paired(tmp_path: Path) -> None:
    arms = (Arm.parse("odt"), Arm.parse("ewa-vq-odt:account_scope=window,beta=0.5"))
    study = make(tmp_path, tasks=("hopper-medium", "walker2d-medium-replay"), arms=arms)
    assert len(study.jobs) == 8
    assert len({job.path for job in study.jobs}) == 8
    one, other = study.jobs[0], study.jobs[1]
    assert (one.task, one.seed) == (other.task, other.seed)
    assert one.config.seed == other.config.seed
    assert other.config.model.accounts.account_scope == "window"
    assert other.config.model.accounts.beta == 0.5
    assert one.config.model.accounts.beta == PRESETS["quick"].model.accounts.beta


def test_every_seed_with_data_of_its_own(tmp_path: Path) -> None:
    assert {job.config.data_seed for job in make(tmp_path).jobs} == {0}
    study = make(tmp_path / "own", data_per_seed=True, seeds=(3, 5))
    assert [job.config.data_seed for job in study.jobs] == [job.seed for job in study.jobs]
    study.write(["test"])
    assert json.loads((tmp_path / "own" / "study.json").read_text())["data_per_seed"] is True
    with pytest.raises(UsageError, match="data_seed and --data-per-seed contradict"):
        make(tmp_path, data_per_seed=True, base=with_changes(PRESETS["quick"], {"data_seed": 4}))


def test_a_method_without_accounts_does_not_read_the_ledger_that_a_preset_reads(tmp_path: Path) -> None:
    arms = tuple(Arm.parse(name) for name in ("odt", "ewa-vq-odt", "ledger-odt"))
    odt, papers, ours = make(tmp_path, tasks=("hidden-arm",), arms=arms, base=PRESETS["hidden"], seeds=(0,)).jobs
    assert ours.config.model.accounts.ledger_input == "state"
    assert odt.config.model.accounts.ledger_input == papers.config.model.accounts.ledger_input == "none"
    assert papers.config.model.accounts.beta == 0.05
    asked = make(tmp_path, base=PRESETS["hidden"], arms=(Arm.parse("odt:ledger_input=state"),))
    with pytest.raises(ValueError, match="no ledger to read"):
        len(asked.jobs)


def test_changes_find_their_field_and_keep_its_type() -> None:
    changes = parse_changes(["account-scope=window", "model.accounts.beta=1", "lr=0.5", "timestep_embedding=None"])
    config = with_changes(TrainConfig(), changes)
    assert config.model.accounts.account_scope == "window"
    assert config.model.accounts.beta == 1.0
    assert config.lr == 0.5
    assert config.model.timestep_embedding is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("ewa", "there is no method 'ewa'; did you mean ewa-vq-odt"),
        ("zzz", "there are bc, gru, dt, odt, ewa-vq-odt, ledger-odt"),
        ("ledger", "there is no method 'ledger'; did you mean ledger-odt"),
        ("odt:bata=1", "no field 'bata' to set; did you mean beta"),
        ("odt:beta", "must look like field=value"),
        ("odt:seed=3", "seed is not changed by field=value: use --seeds"),
    ],
)
def test_bad_methods(text: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        Arm.parse(text)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"tasks": ()}, "at least one --task"),
        ({"tasks": ("hoper-medium",)}, "did you mean hopper-medium"),
        ({"arms": ()}, "at least one of --methods"),
        ({"seeds": ()}, "at least one seed"),
        ({"seeds": (1, 1)}, "seed 1 is given twice"),
        ({"arms": (Arm.parse("odt"), Arm.parse("odt"))}, "method odt is given twice"),
    ],
)
def test_bad_studies(tmp_path: Path, changes: dict[str, object], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        make(tmp_path, **changes)


def test_values_of_a_wrong_type_are_named() -> None:
    with pytest.raises(ValueError, match=r"lr must be float, got 'fast'"):
        with_changes(TrainConfig(), parse_changes(["lr=fast"]))
    with pytest.raises(ValueError, match="account_scope"):
        with_changes(TrainConfig(), parse_changes(["account_scope=episode"]))


def test_a_folder_keeps_to_its_settings(tmp_path: Path) -> None:
    study = make(tmp_path)
    study.write(["compare"])
    assert json.loads((tmp_path / "study.json").read_text())["methods"] == ["odt", "ewa-vq-odt"]
    first = study.jobs[0].path
    (first / "metrics.jsonl").write_text("{}\n")  # it has begun
    study.write(["compare"])
    other = make(tmp_path, base=with_changes(PRESETS["quick"], {"lr": 0.5}))
    with pytest.raises(UsageError, match=r"another configuration \(different: lr\).*--out"):
        other.write(["compare"])
