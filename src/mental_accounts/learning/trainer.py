"""A run: pretraining on offline windows, then online iterations of exploring and learning. Can be killed at any time.

Everything random in iteration n follows from the run's seed and n; what an iteration has done so far is part of the
checkpoint. So a run that is killed and resumed ends with the same numbers as one that is not.
"""

import contextlib
import time
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from mental_accounts.config import TrainConfig
from mental_accounts.data.episode_windows import sampler_for
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.data.windows import WindowSampler
from mental_accounts.errors import CallbackError, CheckpointError, InterruptedRunError, StoppedRunError
from mental_accounts.learning.account_payoffs import annotate, renew_payoffs
from mental_accounts.learning.callbacks import Callback, Callbacks
from mental_accounts.learning.capture import RepeatedUpdate
from mental_accounts.learning.checkpoint import Checkpoint
from mental_accounts.learning.events import (
    CheckpointWritten,
    EvaluationEnded,
    Event,
    ExplorationEnded,
    IterationEnded,
    Message,
    Phase,
    RunBegan,
    RunEnded,
    Stage,
    StageBegan,
    StepDone,
    UpdateDone,
)
from mental_accounts.learning.held_out import HeldOut
from mental_accounts.learning.iteration_clock import IterationClock
from mental_accounts.learning.loggers import Logger, Tracker, check_tracker, make_loggers
from mental_accounts.learning.make_env import EnvironmentSource
from mental_accounts.learning.measures import (
    account_measures,
    evaluation_measures,
    exploration_measures,
    sampled_measures,
)
from mental_accounts.learning.preparation import Preparation, prepare
from mental_accounts.learning.replay import Replay
from mental_accounts.learning.run_folder import RunFolder
from mental_accounts.learning.run_progress import Progress
from mental_accounts.learning.run_rollouts import RunRollouts
from mental_accounts.learning.run_state import RunState
from mental_accounts.learning.run_view import SilentView, View
from mental_accounts.learning.same_run import check_policy, record_task, summary_of
from mental_accounts.learning.seeds import derive
from mental_accounts.learning.signals import SignalWatch
from mental_accounts.learning.update import Updater
from mental_accounts.learning.value_measures import gradient_shares, overestimation
from mental_accounts.learning.values import reward_size
from mental_accounts.machine import is_out_of_memory, use_device
from mental_accounts.policy import DecisionTransformer

MEASURED_WINDOWS = 32
WORTH_COMPILING = 20_000
"""Updates from which on torch.compile is worth the ten seconds and more that it takes."""


class Trainer:
    """One run in one folder."""

    def __init__(
        self,
        config: TrainConfig,
        folder: RunFolder,
        view: View | None = None,
        tracker: Tracker = "none",
        *,
        callbacks: Callback | Sequence[Callback] = (),
        env: EnvironmentSource | None = None,
    ) -> None:
        """`env` makes the environments, where the configuration cannot name them."""
        check_tracker(tracker)
        self.config, self.folder, self.view, self.tracker = config, folder, view or SilentView(), tracker
        self.callbacks, self.env = Callbacks(callbacks, folder.path), env
        self.device = use_device(config.device)
        self.progress = Progress(device=self.device.type)
        self._watch = SignalWatch()
        self._repeated: RepeatedUpdate | None = None
        self._follows_steps = False

    def run(self) -> DecisionTransformer:
        """Start, or go on; the policy as it is at the end."""
        with self.folder.locked(), self.view, contextlib.ExitStack() as self._open:
            if self.folder.is_finished:
                self._note(f"{self.folder.path} is finished already")
                self._warn_of(self.folder.read_summary())
                return DecisionTransformer.load(self.folder.path / "policy", self.device)
            if self.folder.is_run:
                self.folder.check_config(self.config)
            self.folder.read_metrics()  # a log that cannot be read is refused before anything is loaded
            self._begun = time.monotonic()
            self._emit(StageBegan("loading"))
            self._note(f"loading {self.config.task or self.config.env_id}")
            # A signal ends this at once: nothing of the run is lost.
            if not self.folder.has_begun:  # of a run that failed before its first checkpoint, perhaps another one
                self.folder.random_data.unlink(missing_ok=True)
            self.prepared: Preparation = prepare(
                self.config, self.folder.random_data, offline=self.folder.offline_data, env=self.env
            )
            self._open.enter_context(self._watch)
            self._set_up()
            self._note(f"run folder: {self.folder.path}")
            done = self.progress.iteration, self.progress.updates
            self._emit(RunBegan(self.folder.path, self.config, self.policy, *done))
            self.callbacks.can_checkpoint = True
            loggers = make_loggers(self.folder.path, self.config.to_dict(), self.progress.iteration + 1, self.tracker)
            try:
                self._go_on(loggers)
            except (InterruptedRunError, StoppedRunError, CallbackError):
                self._write_checkpoint()
                raise
            finally:
                for logger in loggers:
                    logger.close()
            self._write_checkpoint()
            self._end()
        self.callbacks.check_error("the run is finished, and nothing of it is lost")
        return self.policy

    def _go_on(self, loggers: list[Logger]) -> None:
        """All iterations that are left."""
        self._follows_steps = self.view.follows_steps or bool(self.callbacks)
        while self.progress.iteration < self.total_iterations:
            self.callbacks.check()
            self._iterate(loggers)
        self.callbacks.check_error()

    def _end(self) -> None:
        """Say what came of the run."""
        summary = summary_of(self.folder, self.config, self.prepared, self.progress, self.policy)
        self.folder.write_summary(summary)
        self._warn_of(summary)
        self._emit(RunEnded(self.folder.path, summary))

    def _warn_of(self, summary: Mapping[str, Any]) -> None:
        if summary.get("warning"):
            self._emit(Message("warning", summary["warning"], in_summary=True))

    # Events.

    def _emit(self, event: Event) -> None:
        """Tell everybody."""
        self.view(event)
        self.callbacks(event)

    def _note(self, text: str) -> None:
        self._emit(Message("note", text))

    def _warn(self, text: str) -> None:
        self._emit(Message("warning", text))

    @property
    def total_iterations(self) -> int:
        """Iterations of pretraining and online learning together."""
        return self.config.pretrain_iterations + self.config.online_iterations

    @property
    def compiles(self) -> bool:
        """Whether updates are compiled: as configured, else where it is worth the time."""
        if self.config.compile is not None:
            return self.config.compile
        return self.device.type == "cuda" and self.config.total_updates >= WORTH_COMPILING

    # Setting up.

    def _set_up(self) -> None:
        config = self.config
        record_task(self.folder, self.prepared)
        torch.manual_seed(derive(config.seed, "weights"))
        self.policy = DecisionTransformer(self.prepared.policy)
        data = self.prepared.data
        self.policy.fit_normalisation(data.observations, data.actions, data.rewards, derive(config.seed, "fit"))
        self.policy.to(self.device)
        for message in self.prepared.describe(config):
            self._emit(message)
        self.updater = Updater(self.policy, config, reward_size(data.rewards))
        if self.compiles:
            self.updater.compile()
        self.offline = data.to(self.device)
        annotate(self.offline, self.policy)
        held_out = self.prepared.held_out
        self.held_out = None if held_out is None else HeldOut(held_out, self.updater, config)
        self.replay = Replay(self.offline, config.replay_size, self.prepared.longest)
        self.generator = torch.Generator(self.device)
        self.rollouts = RunRollouts(
            self.policy, config, self.prepared, self._open, self._warn, self._begin_round, self._on_step
        )
        self.state = RunState(self.folder, self.updater, self.held_out, self.generator)
        checkpoint = self.state.read(self._warn)
        if checkpoint is None:
            self.folder.keep_metrics(0)
        else:
            check_policy(self.folder, self.policy.config)
            try:
                self._restore(checkpoint)
            except (RuntimeError, KeyError, ValueError, TypeError) as error:
                if isinstance(error, CheckpointError) or is_out_of_memory(error):
                    raise
                raise CheckpointError(
                    f"the checkpoint of {self.folder.path} does not fit the run: {error}; was config.json changed?"
                ) from error
        self._checkpointed = time.monotonic()

    def _restore(self, checkpoint: Checkpoint) -> None:
        self.progress = Progress.from_state(checkpoint.state)
        if self.progress.device != self.device.type:
            raise CheckpointError(f"the run began on {self.progress.device} and can only go on there")
        self.state.restore_weights(checkpoint)
        episodes = self.state.collected(checkpoint)
        before = len(episodes) - self.progress.explored_episodes
        self.replay.add(episodes[:before])
        if self.config.pays_td_errors:  # as they were paid when the iteration began
            annotate(self.offline, self.policy)
            annotate(self.replay.store, self.policy)
        self.replay.add(episodes[before:])
        self.state.restore_generators(checkpoint)
        self.folder.keep_metrics(self.progress.made)
        self._note(f"going on after iteration {self.progress.iteration}, {self.progress.updates} updates")
        self._begun = time.monotonic() - self.progress.seconds

    # One iteration.

    def _iterate(self, loggers: list[Logger]) -> None:
        progress, config = self.progress, self.config
        number, clock = progress.iteration, IterationClock(self._begun, progress)
        phase: Phase = "online" if number >= config.pretrain_iterations else "pretrain"
        online = phase == "online"
        if progress.update == 0 and progress.explored is None:
            self._begin_iteration(number, online)
        if online and progress.explored is None:
            self._explore(number)
        clock.exploring_is_over()
        store = self.replay.store if online else self.offline
        if self.updater.values is not None:
            self.updater.values.begin(phase, float(store.rewards.abs().max()))
        self._learn(store, config.updates_per_iteration if online else config.updates_per_pretrain_iteration, phase)
        self.updater.check()  # waits for a GPU, so that the time below is that of the updates
        clock.learning_is_over()
        following = number + 1
        line: dict[str, Any] = {"iteration": number + 1, "phase": phase}
        line |= {"updates": progress.updates, "env_steps": progress.env_steps} | (progress.explored or {})
        if self.held_out is not None and not online:
            line |= self.held_out.measure(number)
            if self.held_out.is_patience_over:
                following = config.pretrain_iterations
            if following == config.pretrain_iterations:
                self.held_out.restore()
        if self._evaluation_is_due(following, online):  # may be interrupted: nothing of the iteration is spent before
            line |= self._evaluate(number, is_last=following == self.total_iterations)
        line |= {"best_return": progress.best_return} | self.updater.drain(progress.update)
        line |= self._measure(store, number, online)
        line |= clock.times(progress)
        self.folder.add_metrics(line)
        progress.skipped += following - number - 1
        progress.iteration, progress.update, progress.explored, progress.explored_episodes = following, 0, None, 0
        for logger in loggers:
            logger.log(line, number + 1)
        self._emit(IterationEnded(number + 1, phase, line))
        self._checkpoint_in_time()

    def _begin_iteration(self, number: int, online: bool) -> None:
        """Everything random in it follows from its number."""
        torch.manual_seed(derive(self.config.seed, "dropout", number))
        self.generator.manual_seed(derive(self.config.seed, "windows", number))
        if self.updater.values is not None and number == self.config.pretrain_iterations:
            self.updater.values.restart_averages()
        if self.config.pays_td_errors:
            renew_payoffs(self.replay.store if online else self.offline, self.updater)

    def _measure(self, store: Trajectories, number: int, online: bool) -> dict[str, float]:
        """What accounts and critics do, on some windows."""
        sampler = self._sampler(store, MEASURED_WINDOWS, self._generator("measure", number))
        measures = account_measures(self.policy, window := sampler())
        if self.updater.values is not None:
            measures |= gradient_shares(self.updater, window)
            if online:
                measures |= overestimation(self.updater.values, sampler, self.progress.explored_episodes)
        return measures

    def _explore(self, number: int) -> None:
        episodes = self.rollouts.explore(number, self.replay.store.first_returns_to_go)
        self.replay.add(episodes)
        self.state.collect(episodes)
        self.progress.env_steps += sum(len(episode) for episode in episodes)
        self.progress.explored, self.progress.explored_episodes = exploration_measures(episodes), len(episodes)
        returns, lengths = tuple(episode.total for episode in episodes), tuple(len(episode) for episode in episodes)
        self._emit(ExplorationEnded(number + 1, returns, lengths, self.progress.env_steps))

    def _learn(self, store: Trajectories, updates: int, phase: Phase) -> None:
        if self._repeated is None or self._repeated.sampler.store is not store:
            sampler = self._sampler(store, self.config.batch_size, self.generator)
            self._repeated = RepeatedUpdate(self.updater, sampler, self._warn)
        progress, total = self.progress, self.config.total_updates
        self._emit(self._stage("learning", updates, progress.update, phase))
        while progress.update < updates:
            self._check_signals()
            self._repeated.step()
            progress.update += 1
            progress.updates += 1
            if self._follows_steps:
                self._emit(UpdateDone(progress.updates, total, progress.iteration + 1, self.updater.latest_nll))
            self._checkpoint_in_time()

    def _evaluation_is_due(self, done: int, online: bool) -> bool:
        """Whether the policy is evaluated after so many iterations."""
        config = self.config
        if online:
            done -= config.pretrain_iterations
            return done % config.eval_every == 0 or done == config.online_iterations
        every = config.pretrain_eval_every
        return every > 0 and (done % every == 0 or done == config.pretrain_iterations)

    def _evaluate(self, number: int, *, is_last: bool) -> dict[str, Any]:
        known = self.replay.store.first_returns_to_go
        target, episodes = self.rollouts.evaluation_target(known), self.rollouts.evaluate(number, known)
        measures = evaluation_measures(episodes, self.prepared.task) | {"evaluation/target_return": target}
        mean = measures["evaluation/return_mean_gm"]
        if self.progress.best_return is None or mean > self.progress.best_return:
            self.progress.best_return, self.progress.best_iteration = mean, number + 1
        returns, spread = tuple(episode.total for episode in episodes), measures["evaluation/return_std_gm"]
        self._emit(EvaluationEnded(number + 1, returns, mean, spread, target, self.progress.best_return))
        if self.config.eval_sampled and is_last:
            measures |= sampled_measures(self.rollouts.evaluate(number, known, sample=True))
        return measures

    def _begin_round(self, stage: Stage) -> None:
        self._emit(self._stage(stage, self.prepared.longest))

    def _on_step(self) -> None:
        self._check_signals()
        if self._follows_steps:
            self._emit(StepDone())

    def _generator(self, *names: str | int) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(derive(self.config.seed, *names))

    def _sampler(self, store: Trajectories, batch_size: int, generator: torch.Generator) -> WindowSampler:
        """Windows with all that the policy reads."""
        longest = self.prepared.longest if store is self.replay.store else 0
        return sampler_for(self.prepared.policy, store, batch_size, generator, longest)

    # Stopping and saving.

    def _stage(self, stage: Stage, total: int, done: int = 0, phase: Phase = "online") -> StageBegan:
        return StageBegan(stage, total, done, self.progress.iteration + 1, self.total_iterations, phase)

    def _check_signals(self) -> None:
        """Stop here, if a signal or a callback asked for it."""
        self._watch.check()
        self.callbacks.check()

    def _checkpoint_in_time(self) -> None:
        if time.monotonic() - self._checkpointed >= self.config.checkpoint_seconds:
            self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        self.progress.seconds = time.monotonic() - self._begun
        self.state.write(self.progress)
        self._checkpointed = time.monotonic()
        self._emit(CheckpointWritten(self.folder.path, self.progress.iteration, self.progress.updates))
