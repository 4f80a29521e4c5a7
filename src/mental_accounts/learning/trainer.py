"""A run: pretraining on offline windows, then online iterations of exploring and learning. Can be killed at any time.

Everything random in iteration n follows from the run's seed and n; what an iteration has done so far is part of the
checkpoint. So a run that is killed and resumed ends with the same numbers as one that is not.
"""

import contextlib
import time
from dataclasses import asdict
from typing import Any

import torch

from mental_accounts.config import TrainConfig
from mental_accounts.data.asked import asked_returns
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.data.windows import Windows, WindowSampler
from mental_accounts.learning.capture import RepeatedUpdate
from mental_accounts.learning.checkpoint import Checkpoint, CheckpointError, read_checkpoint, write_checkpoint
from mental_accounts.learning.environments import PACES, Environments
from mental_accounts.learning.loggers import Logger, Tracker, check_tracker, make_loggers
from mental_accounts.learning.measures import account_measures, evaluation_measures, exploration_measures
from mental_accounts.learning.preparation import Preparation, as_episodes, as_trajectories, choose_device, prepare
from mental_accounts.learning.replay import Replay
from mental_accounts.learning.rollout import Episode, play
from mental_accounts.learning.run_folder import RunError, RunFolder
from mental_accounts.learning.run_progress import Progress
from mental_accounts.learning.seeds import derive
from mental_accounts.learning.signals import InterruptedRunError, SignalWatch
from mental_accounts.learning.update import Updater
from mental_accounts.learning.view import SilentView, View
from mental_accounts.policy import Actor, DecisionTransformer
from mental_accounts.policy.files import read_policy_config

MEASURED_WINDOWS = 32
WORTH_COMPILING = 20_000
"""Updates from which on torch.compile is worth the ten seconds and more that it takes."""


class Trainer:
    """One run in one folder."""

    def __init__(
        self, config: TrainConfig, folder: RunFolder, view: View | None = None, tracker: Tracker = "none"
    ) -> None:
        check_tracker(tracker)
        self.config, self.folder, self.view, self.tracker = config, folder, view or SilentView(), tracker
        self.device = choose_device(config.device)
        self.progress = Progress(device=self.device.type)
        self._watch = SignalWatch()
        self._unsaved: list[Episode] = []
        self._repeated: RepeatedUpdate | None = None

    def run(self) -> DecisionTransformer:
        """Start, or go on; the policy as it is at the end."""
        with self.folder.locked(), self.view, contextlib.ExitStack() as self._open:
            if self.folder.is_finished:
                self.view.say(f"{self.folder.path} is finished already")
                return DecisionTransformer.load(self.folder.path / "policy", self.device)
            if self.folder.is_run:
                self.folder.check_config(self.config)
            self._begun = time.monotonic()
            self.view.say(f"loading {self.config.task or self.config.env_id}")
            # A signal ends this at once: nothing of the run is lost.
            start = self.folder.path / "trajectories" / "start.safetensors"
            if not self.folder.has_begun:  # of a run that failed before its first checkpoint, perhaps another one
                start.unlink(missing_ok=True)
            self.prepared: Preparation = prepare(self.config, start)
            self._open.enter_context(self._watch)
            self._set_up()
            loggers = make_loggers(self.folder.path, self.config.to_dict(), self.progress.iteration + 1, self.tracker)
            try:
                while self.progress.iteration < self.total_iterations:
                    self._iterate(loggers)
            except InterruptedRunError:
                self._write_checkpoint()
                raise
            finally:
                for logger in loggers:
                    logger.close()
            self._write_checkpoint()
            self.folder.write_summary(self._summary())
        return self.policy

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
        task = self.prepared.task
        names = ("target_return", "exploration_return", "random_return", "expert_return")
        facts: dict[str, Any] = {name: None if task is None else getattr(task, name) for name in names}
        facts |= {"env_id": self.prepared.env_id, "data": self.prepared.fingerprint()}
        if self.folder.has_begun and self.folder.read_task() != facts:
            raise RunError(
                f"the data or the task of {self.folder.path} are not those that the run began with (version 0.1 asked "
                "for other returns where no table says which); bring them back, or start another run"
            )
        self.folder.write_task(facts)
        torch.manual_seed(derive(config.seed, "weights"))
        self.policy = DecisionTransformer(self.prepared.policy)
        data = self.prepared.data
        self.policy.fit_normalisation(data.observations, data.actions, data.rewards, derive(config.seed, "fit"))
        self.policy.to(self.device)
        for text in self.prepared.describe(config):
            self.view.say(text)
        self.updater = Updater(self.policy, config)
        if self.compiles:
            self.updater.compile()
        self.offline = data.to(self.device)
        if self.policy.accounts is not None:
            accounts = self.policy.accounts
            ledgers = self.policy.config.reads_ledger
            self.offline.annotate_by(accounts, self.policy.actions.to_unit, ledgers=ledgers)
        self.replay = Replay(self.offline, config.replay_size, self.prepared.longest)
        self.generator = torch.Generator(self.device)
        self.evaluators = self._players(config.eval_episodes, sample=False)
        self.explorers = self._players(config.episodes_per_iteration, sample=True) if config.online_iterations else None
        checkpoint = read_checkpoint(self.folder.path / "checkpoint", self.view.say, self._read_trajectories)
        if checkpoint is None:
            self.folder.keep_metrics(0)
        else:
            self._check_policy()
            try:
                self._restore(checkpoint)
            except (RuntimeError, KeyError, ValueError, TypeError) as error:
                raise CheckpointError(
                    f"the checkpoint of {self.folder.path} does not fit the run: {error}; was config.json changed?"
                ) from error
        self._checkpointed = time.monotonic()

    def _players(self, n: int, *, sample: bool) -> tuple[Actor, Environments]:
        """The policy in n environments, made once for all rollouts."""
        config, say = self.config, self.view.say
        made = Environments(self.prepared.make_env, n, config.env_workers, say, PACES[self.device.type])
        self._open.enter_context(contextlib.closing(made))
        return Actor(self.policy, n, sample=sample, precision=config.precision, say=say), made

    def _check_policy(self) -> None:
        """Refuse to go on with another network than the run began with: what follows from data may come out anew."""
        folder = self.folder.path / "policy"
        if not folder.is_dir():
            return
        began, now = read_policy_config(folder).to_dict(), self.policy.config.to_dict()
        changed = [name for name, value in now.items() if began[name] != value]
        if changed:
            raise RunError(
                f"{self.folder.path} began with another policy ({changed[0]}: {began[changed[0]]}, now "
                f"{now[changed[0]]}), perhaps by another version of this package; start another run"
            )

    def _restore(self, checkpoint: Checkpoint) -> None:
        self.progress = Progress.from_state(checkpoint.state)
        if self.progress.device != self.device.type:
            raise CheckpointError(f"the run began on {self.progress.device} and can only go on there")
        self.updater.load_tensors(checkpoint.tensors)
        self.replay.add(self._read_trajectories(checkpoint))
        self.generator.set_state(checkpoint.tensors["generator.windows"])
        torch.set_rng_state(checkpoint.tensors["generator.cpu"])
        if self.device.type == "cuda":
            torch.cuda.set_rng_state(checkpoint.tensors["generator.cuda"], self.device)
        self.folder.keep_metrics(self.progress.iteration)
        self.view.say(f"going on after iteration {self.progress.iteration}, {self.progress.updates} updates")
        self._begun = time.monotonic() - self.progress.seconds

    def _read_trajectories(self, checkpoint: Checkpoint) -> list[Episode]:
        """What had been collected when the checkpoint was written."""
        folder = self.folder.path / "trajectories"
        files = Progress.from_state(checkpoint.state).files
        stores = [Trajectories.load(folder / name) for name in files]
        return [episode for store in stores for episode in as_episodes(store)]

    # One iteration.

    def _iterate(self, loggers: list[Logger]) -> None:
        progress, config = self.progress, self.config
        number = progress.iteration
        online = number >= config.pretrain_iterations
        begun, steps_before, updates_before = time.monotonic(), progress.env_steps, progress.updates
        if progress.update == 0 and progress.explored is None:
            torch.manual_seed(derive(config.seed, "dropout", number))
            self.generator.manual_seed(derive(config.seed, "windows", number))
        if online and progress.explored is None:
            self._explore(number)
        explored = time.monotonic()
        updates = config.updates_per_iteration if online else config.updates_per_pretrain_iteration
        store = self.replay.store if online else self.offline
        self._learn(store, updates, f"{'online' if online else 'pretrain'} {number + 1}/{self.total_iterations}")
        self.updater.check()  # waits for a GPU, so that the time below is that of the updates
        learned = time.monotonic()
        line: dict[str, Any] = {"iteration": number + 1, "phase": "online" if online else "pretrain"}
        line |= {"updates": progress.updates, "env_steps": progress.env_steps} | (progress.explored or {})
        if self._evaluation_is_due(number, online):  # may be interrupted: nothing of the iteration is spent before
            line |= self._evaluate(number)
        line["best_return"] = progress.best_return
        line |= self.updater.drain(progress.update)
        line |= account_measures(self.policy, self._measured_windows(store, number))
        now = time.monotonic()
        line |= {
            "time/total": now - self._begun,
            "time/iteration": now - begun,
            "time/exploration": explored - begun,
            "time/training": learned - explored,
            "time/evaluation": now - learned,
            "time/updates_per_second": (progress.updates - updates_before) / max(learned - explored, 1e-9),
            "time/steps_per_second": (progress.env_steps - steps_before) / max(explored - begun, 1e-9),
        }
        self.folder.add_metrics(line)
        progress.iteration, progress.update, progress.explored = number + 1, 0, None
        for logger in loggers:
            logger.log(line, number + 1)
        self.view.metrics(line)
        self._checkpoint_in_time()

    def _explore(self, number: int) -> None:
        target = self.config.exploration_return
        task = self.prepared.task
        if target is None and task is not None:
            target = task.exploration_return
        if target is None:
            target = asked_returns(self.replay.store.first_returns_to_go).exploration
        self.view.stage(f"exploring, iteration {number + 1}", self.prepared.longest)
        assert self.explorers is not None
        episodes = self._play(self.explorers, target, derive(self.config.seed, "explore", number))
        self.replay.add(episodes)
        self._unsaved += episodes
        self.progress.env_steps += sum(len(episode) for episode in episodes)
        self.progress.explored = exploration_measures(episodes)

    def _learn(self, store: Trajectories, updates: int, stage: str) -> None:
        if self._repeated is None or self._repeated.sampler.store is not store:
            sampler = self._sampler(store, self.config.batch_size, self.generator)
            self._repeated = RepeatedUpdate(self.updater, sampler, self.view.say)
        self.view.stage(stage, updates, self.progress.update)
        while self.progress.update < updates:
            self._breathe()
            self._repeated.step()
            self.progress.update += 1
            self.progress.updates += 1
            self.view.advance()
            self._checkpoint_in_time()

    def _evaluation_is_due(self, number: int, online: bool) -> bool:
        config = self.config
        if online:
            done = number + 1 - config.pretrain_iterations
            return done % config.eval_every == 0 or done == config.online_iterations
        every = config.pretrain_eval_every
        return every > 0 and ((number + 1) % every == 0 or number + 1 == config.pretrain_iterations)

    def _evaluate(self, number: int) -> dict[str, float]:
        self.view.stage(f"evaluating, iteration {number + 1}", self.prepared.longest)
        seed = derive(self.config.seed, "evaluate", number)
        target = self.evaluation_target()
        episodes = self._play(self.evaluators, target, seed)
        measures = evaluation_measures(episodes, self.prepared.task) | {"evaluation/target_return": target}
        mean = measures["evaluation/return_mean_gm"]
        if self.progress.best_return is None or mean > self.progress.best_return:
            self.progress.best_return, self.progress.best_iteration = mean, number + 1
        return measures

    def evaluation_target(self) -> float:
        """The return that is asked for in evaluation."""
        if self.config.target_return is not None:
            return self.config.target_return
        if self.prepared.task is not None and self.prepared.task.target_return is not None:
            return self.prepared.task.target_return
        return asked_returns(self.replay.store.first_returns_to_go).evaluation

    def _play(self, players: tuple[Actor, Environments], target: float, seed: int) -> list[Episode]:
        def on_step() -> None:
            self._breathe()
            self.view.advance()

        return play(*players, target, seed, on_step=on_step)

    def _measured_windows(self, store: Trajectories, number: int) -> Windows:
        generator = torch.Generator(self.device).manual_seed(derive(self.config.seed, "measure", number))
        return self._sampler(store, MEASURED_WINDOWS, generator)()

    def _sampler(self, store: Trajectories, batch_size: int, generator: torch.Generator) -> WindowSampler:
        """Windows with all that the policy reads."""
        policy = self.prepared.policy
        K, scope = policy.context_length, policy.accounts.account_scope
        return WindowSampler(store, batch_size, K, generator, scope, previous_rewards=policy.reads_rewards)

    # Stopping and saving.

    def _breathe(self) -> None:
        self._watch.check()

    def _checkpoint_in_time(self) -> None:
        if time.monotonic() - self._checkpointed >= self.config.checkpoint_seconds:
            self._write_checkpoint()

    def _write_checkpoint(self) -> None:
        """Save everything. Weights that are no numbers are never saved over good ones."""
        self.updater.check()
        if self._unsaved:
            name = f"{len(self.progress.files):05d}.safetensors"
            as_trajectories(self._unsaved).save(self.folder.path / "trajectories" / name)
            self.progress.files.append(name)
            self._unsaved = []
        self.progress.seconds = time.monotonic() - self._begun
        tensors = self.updater.tensors()
        tensors["generator.windows"] = self.generator.get_state()
        tensors["generator.cpu"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["generator.cuda"] = torch.cuda.get_rng_state(self.device)
        write_checkpoint(self.folder.path / "checkpoint", Checkpoint(tensors, asdict(self.progress)))
        self.policy.save(self.folder.path / "policy")
        self._checkpointed = time.monotonic()

    def _summary(self) -> dict[str, Any]:
        evaluated = self.folder.last_evaluation()
        last = evaluated.get("evaluation/return_mean_gm")
        return {
            "task": self.config.task,
            "env_id": self.prepared.env_id,
            "method": self.config.method,
            "seed": self.config.seed,
            "iterations": self.progress.iteration,
            "updates": self.progress.updates,
            "env_steps": self.progress.env_steps,
            "seconds": time.monotonic() - self._begun,
            "last_return": last,
            "best_return": self.progress.best_return,
            "best_iteration": self.progress.best_iteration,
            "normalised_score": evaluated.get("evaluation/normalised_score"),
            "data": self.prepared.data.statistics().summary(),
            "warning": self.prepared.warning_about(last),
        }
