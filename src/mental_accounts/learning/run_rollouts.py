"""The rollouts of a run: its policy in environments, exploring and being evaluated, and the returns it is asked for."""

import contextlib
from collections.abc import Callable
from contextlib import ExitStack

from torch import Tensor

from mental_accounts.config import TrainConfig
from mental_accounts.data.asked import asked_returns
from mental_accounts.learning.episodes import Episode
from mental_accounts.learning.events import Stage
from mental_accounts.learning.parallel_envs import PACES, Environments
from mental_accounts.learning.preparation import Preparation
from mental_accounts.learning.rollout import play
from mental_accounts.learning.seeds import derive
from mental_accounts.policy import Actor, DecisionTransformer


class RunRollouts:
    """Actors and environments, made once for all rollouts of a run.

    Before every round of episodes `begin` is called, and `on_step` before each of its steps.
    """

    def __init__(
        self,
        policy: DecisionTransformer,
        config: TrainConfig,
        prepared: Preparation,
        opened: ExitStack,
        warn: Callable[[str], None],
        begin: Callable[[Stage], None],
        on_step: Callable[[], None],
    ) -> None:
        """Environments are closed with `opened`; `begin` is told what the round is for."""
        self.policy, self.config, self.prepared = policy, config, prepared
        self._opened, self._warn, self._begin, self._on_step = opened, warn, begin, on_step
        self._evaluators = self._players(config.eval_episodes, sample=False)
        self._explorers = (
            self._players(config.episodes_per_iteration, sample=True) if config.online_iterations else None
        )

    def _players(self, n: int, *, sample: bool) -> tuple[Actor, Environments]:
        """The policy in n environments."""
        config = self.config
        made = Environments(
            self.prepared.env, n, config.env_workers, self._warn, PACES[self.policy.device.type],
            foregone=self.policy.config.enters_foregone, masks=self.policy.config.action_masks,
        )  # fmt: skip
        self._opened.enter_context(contextlib.closing(made))
        noise = config.values.exploration_noise if sample and config.improve == "td3" else 0.0
        return self._actor(n, sample=sample, noise=noise), made

    def _actor(self, n: int, *, sample: bool, noise: float = 0.0) -> Actor:
        return Actor(self.policy, n, sample=sample, noise=noise, precision=self.config.precision, say=self._warn)

    def explore(self, number: int, returns: Tensor) -> list[Episode]:
        """Episodes with sampled actions, of iteration `number`; `returns` are those in the replay buffer."""
        assert self._explorers is not None
        target, episodes = self.exploration_target(returns), list[Episode]()
        while not episodes or sum(map(len, episodes)) < self.config.steps_per_iteration:
            place = (len(episodes),) if episodes else ()  # of further rounds
            seed = derive(self.config.seed, "explore", number, *place)
            episodes += self._play("exploring", self._explorers, target, seed)
        return episodes

    def evaluate(self, number: int, returns: Tensor, *, sample: bool = False) -> list[Episode]:
        """Episodes with the mean action, or with sampled ones from the same beginnings."""
        actor, environments = self._evaluators
        if sample:
            actor = self._actor(self.config.eval_episodes, sample=True)
        seed = derive(self.config.seed, "evaluate", number)
        return self._play("evaluating", (actor, environments), self.evaluation_target(returns), seed)

    def _play(self, stage: Stage, players: tuple[Actor, Environments], target: float, seed: int) -> list[Episode]:
        self._begin(stage)
        return play(*players, target, seed, on_step=self._on_step)

    def exploration_target(self, returns: Tensor) -> float:
        """The return that is asked for while exploring, given those in the replay buffer."""
        task, given = self.prepared.task, self.config.exploration_return
        if given is None and task is not None:
            given = task.exploration_return
        return asked_returns(returns).exploration if given is None else given

    def evaluation_target(self, returns: Tensor) -> float:
        """The return that is asked for in evaluation."""
        task, given = self.prepared.task, self.config.target_return
        if given is None and task is not None:
            given = task.target_return
        return asked_returns(returns).evaluation if given is None else given
