"""Events tell all that happens in a run; callbacks stop it anywhere, and it goes on with the same numbers."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from mental_accounts.config import TrainConfig
from mental_accounts.errors import CallbackError, StoppedRunError, UsageError
from mental_accounts.learning import trainer as trainer_module
from mental_accounts.learning.callbacks import STOP, check_callbacks
from mental_accounts.learning.events import (
    SENT,
    CheckpointWritten,
    EvaluationEnded,
    Event,
    ExplorationEnded,
    IterationEnded,
    Message,
    RunBegan,
    RunEnded,
    StageBegan,
    StepDone,
    UpdateDone,
    from_plain,
    to_plain,
)
from mental_accounts.learning.run_folder import RunFolder

from .conftest import make_aim
from .test_trainer import same_run, start

EVENTS = [  # which event, and the how many-th of its kind
    (RunBegan, 1), (StageBegan, 3), (UpdateDone, 7), (UpdateDone, 25), (StepDone, 5), (StepDone, 25),
    (EvaluationEnded, 1), (ExplorationEnded, 2), (IterationEnded, 1), (IterationEnded, 5), (CheckpointWritten, 4),
]  # fmt: skip


def short(aim: TrainConfig) -> TrainConfig:
    """20 updates of pretraining and 32 online, in as many iterations as `aim`."""
    return replace(aim, updates_per_pretrain_iteration=10, updates_per_iteration=8)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A short run without a stop."""
    folder = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        start(short(make_aim(folder, patch)), folder / "run").run()
        yield folder / "run"


class At:
    """Acts at one event: returns STOP, or raises."""

    def __init__(self, kind: type, number: int, error: Exception | None = None) -> None:
        self.kind, self.left, self.error = kind, number, error

    def __call__(self, event: Event) -> object:
        self.left -= isinstance(event, self.kind)
        if self.left == 0 and isinstance(event, self.kind):
            if self.error is not None:
                raise self.error
            return STOP
        return None


def test_events_tell_what_the_folder_says(aim: TrainConfig, tmp_path: Path) -> None:
    events: list[Event] = []
    nlls: list[float] = []

    def listen(event: Event) -> None:
        events.append(event)
        if isinstance(event, UpdateDone):
            nlls.append(float(event.nll))

    path = tmp_path / "run"
    policy = start(aim, path, listen).run()
    folder = RunFolder(path)
    count = Counter(type(event) for event in events)
    assert count[UpdateDone] == aim.total_updates == 140
    assert [event.update for event in events if isinstance(event, UpdateDone)] == list(range(1, 141))
    assert [dict(event.metrics) for event in events if isinstance(event, IterationEnded)] == folder.read_metrics()
    assert nlls[29] == folder.read_metrics()[0]["training/nll_last"]
    evaluated = [line for line in folder.read_metrics() if "evaluation/return_mean_gm" in line]
    told = [event for event in events if isinstance(event, EvaluationEnded)]
    assert [event.return_mean for event in told] == [line["evaluation/return_mean_gm"] for line in evaluated]
    assert [event.best_return for event in told] == [line["best_return"] for line in evaluated]
    assert all(sum(event.returns) / 4 == pytest.approx(event.return_mean) for event in told)
    explored = [event for event in events if isinstance(event, ExplorationEnded)]
    assert [event.lengths for event in explored] == [(10, 10)] * 4
    assert explored[-1].env_steps == 80
    stages = Counter(event.stage for event in events if isinstance(event, StageBegan))
    assert stages == {"loading": 1, "learning": 6, "exploring": 4, "evaluating": 4}
    assert count[StepDone] == (4 + 4) * 10
    (began,) = (event for event in events if isinstance(event, RunBegan))
    assert (began.folder, began.config, began.policy, began.iteration) == (path, aim, policy, 0)
    assert events.index(began) < min(i for i, event in enumerate(events) if isinstance(event, UpdateDone))
    assert isinstance(events[-1], RunEnded)
    assert events[-1].summary == folder.read_summary()
    titles = [event.title for event in events if isinstance(event, StageBegan)]
    assert titles[:3] == ["loading", "pretrain 1/6", "evaluating, iteration 1"]
    assert "online 3/6" in titles
    assert all(event.kind == "note" for event in events if isinstance(event, Message)), "nothing to warn of"


@pytest.mark.parametrize(("kind", "number"), EVENTS)
def test_a_stopped_run_goes_on_with_the_same_numbers(
    aim: TrainConfig, whole: Path, kind: type, number: int, tmp_path: Path
) -> None:
    config = replace(short(aim), checkpoint_seconds=0.0 if kind is CheckpointWritten else 1e9)
    with pytest.raises(StoppedRunError, match=f"stopped by callback At at {kind.__name__}"):
        start(config, tmp_path / "cut", At(kind, number)).run()
    assert not RunFolder(tmp_path / "cut").is_finished
    assert list((tmp_path / "cut").glob("checkpoint/*/state.json"))
    start(config, tmp_path / "cut").run()
    same_run(whole, tmp_path / "cut")


@pytest.mark.parametrize(("kind", "number"), EVENTS[1:])
def test_a_callback_that_raises_is_named_and_the_run_is_whole(
    aim: TrainConfig, whole: Path, kind: type, number: int, tmp_path: Path
) -> None:
    config = replace(short(aim), checkpoint_seconds=0.0 if kind is CheckpointWritten else 1e9)
    path, after = tmp_path / "cut", []
    told = rf"callback At raised KeyError at {kind.__name__}.*'loss'; .*ma\.resume\('{path}', callbacks=\.\.\.\)"
    with pytest.raises(CallbackError, match=told) as raised:
        start(config, path, At(kind, number, KeyError("loss")), after.append).run()
    assert isinstance(raised.value.__cause__, KeyError)
    assert not any(isinstance(event, RunEnded) for event in after)
    start(config, path).run()
    same_run(whole, path)


def test_an_error_before_anything_is_trained_is_raised_at_once(aim: TrainConfig, tmp_path: Path) -> None:
    for kind in (StageBegan, Message, RunBegan):
        with pytest.raises(CallbackError, match="nothing was trained yet"):
            start(aim, tmp_path / kind.__name__, At(kind, 1, ValueError("no"))).run()
        assert not RunFolder(tmp_path / kind.__name__).has_begun


def test_an_error_at_the_end_loses_nothing(aim: TrainConfig, tmp_path: Path) -> None:
    aim = short(aim)
    with pytest.raises(CallbackError, match="at RunEnded: no; the run is finished"):
        start(aim, tmp_path / "run", At(RunEnded, 1, ValueError("no"))).run()
    assert RunFolder(tmp_path / "run").is_finished
    with pytest.raises(CallbackError, match="of iteration 6: no; the run is saved: fix the callback"):
        start(aim, tmp_path / "late", At(IterationEnded, 6, ValueError("no"))).run()
    start(aim, tmp_path / "late").run()
    same_run(tmp_path / "run", tmp_path / "late")
    start(aim, tmp_path / "stopped", At(IterationEnded, 6)).run()  # nothing is left to be stopped
    same_run(tmp_path / "run", tmp_path / "stopped")


def test_callbacks_may_draw_random_numbers(aim: TrainConfig, whole: Path, tmp_path: Path) -> None:
    start(short(aim), tmp_path / "drawing", lambda event: torch.rand(3), lambda event: torch.manual_seed(1)).run()
    same_run(whole, tmp_path / "drawing")


def test_steps_cost_nothing_where_nobody_follows_them(
    aim: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("UpdateDone", "StepDone"):
        monkeypatch.setattr(trainer_module, name, lambda *_: pytest.fail("made for nobody"))
    start(aim, tmp_path / "run").run()


def test_what_is_no_callback_is_refused(aim: TrainConfig, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"callback At is a class; pass an instance of it: callbacks=\[At\(\)\]"):
        check_callbacks([At])
    for wrong in (["print"], [None], 3, "print"):
        with pytest.raises(UsageError, match=r"must be (a )?function"):
            check_callbacks(wrong)
    assert check_callbacks(print) == (print,)
    with pytest.raises(CallbackError, match=r"it returned False; return ma\.STOP to stop the run"):
        start(aim, tmp_path / "run", lambda event: False if isinstance(event, UpdateDone) else None).run()


def test_events_cross_to_another_process_and_back() -> None:
    sent = [
        Message("warning", "slow"), StageBegan("learning", 50, 3, 2, 4, "online"), UpdateDone(3, 140, 1),
        IterationEnded(2, "online", {"updates": 3}),
    ]  # fmt: skip
    assert {type(event).__name__ for event in sent} == set(SENT)
    for event in sent:
        assert from_plain(to_plain(event)) == event
    assert "nll" not in to_plain(UpdateDone(3, 140, 1, torch.zeros(())))
    for nonsense in ({}, {"event": "RunEnded"}, {"event": "Message", "words": 3}, {"event": None}):
        assert from_plain(nonsense) is None
