"""Trajectories that are not learned from, and the policy of a run that explains them best.

A network that learns on after that point learns its few trajectories by heart; pretraining can end soon after it.
"""

import torch
from torch import Tensor

from mental_accounts.config import TrainConfig
from mental_accounts.data.episode_windows import sampler_for
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.errors import UsageError
from mental_accounts.learning.account_payoffs import annotate
from mental_accounts.learning.checkpoint import part_of
from mental_accounts.learning.seeds import derive
from mental_accounts.learning.update import Updater
from mental_accounts.policy import autocast, resolve_precision

BATCHES = 16
"""Batches of windows that a loss is measured on, always the same ones."""
METRIC = "evaluation/held_out_loss"


def split(data: Trajectories, config: TrainConfig) -> tuple[Trajectories, Trajectories | None]:
    """What is learned from, and what is not: trajectories drawn by the run's seed."""
    if config.held_out == 0:
        return data, None
    count = max(1, round(config.held_out * len(data)))
    if len(data) < 2:
        raise UsageError(
            f"held_out sets aside whole trajectories, and the data of {config.task} have {len(data)}; leave it out, or "
            "cut the data into more of them"
        )
    generator = torch.Generator().manual_seed(derive(config.seed, "held out"))
    drawn = torch.randperm(len(data), generator=generator)
    return data.select(drawn[count:].sort().values), data.select(drawn[:count].sort().values)


class HeldOut:
    """Measures a policy on trajectories that it does not learn from, and keeps the weights that were best there."""

    def __init__(self, store: Trajectories, updater: Updater, config: TrainConfig) -> None:
        self.store, self.updater, self.config = store.to(updater.policy.device), updater, config
        self.losses: list[float] = []
        """By iteration."""
        self._best = {name: value.clone() for name, value in self._weights().items()}
        annotate(self.store, updater.policy)

    def measure(self, iteration: int) -> dict[str, float]:
        """The loss after this iteration, which is measured once; the weights of the smallest one are kept."""
        if len(self.losses) == iteration:
            self.losses.append(self._loss())
            if self.losses[-1] == min(self.losses):
                for name, value in self._weights().items():
                    self._best[name].copy_(value)
        return {METRIC: self.losses[iteration]}

    @property
    def is_patience_over(self) -> bool:
        """Whether the last iterations, as many as the configuration waits for, were all no better."""
        patience = self.config.patience
        return patience is not None and len(self.losses) - 1 - self.losses.index(min(self.losses)) >= patience

    @torch.no_grad()
    def _loss(self) -> float:
        policy, config = self.updater.policy, self.config
        if config.pays_td_errors:  # by the values of now
            annotate(self.store, policy)
        generator = torch.Generator(policy.device).manual_seed(derive(config.seed, "held out"))
        sampler = sampler_for(policy.config, self.store, config.batch_size, generator)
        precision, losses = resolve_precision(policy.device, config.precision), []
        policy.eval()
        for _ in range(BATCHES):
            window = sampler()
            with autocast(policy.device, precision):
                predicted = policy(window)
            actions = policy.action_scale.to_unit(window.actions)
            losses.append(self.updater.objective(predicted, actions, window.counted).nll)
        return float(torch.stack(losses).mean())

    def restore(self) -> None:
        """Give the policy its best weights."""
        for name, value in self._weights().items():
            value.copy_(self._best[name])

    def _weights(self) -> dict[str, Tensor]:
        return self.updater.policy.state_dict()

    def tensors(self) -> dict[str, Tensor]:
        """All tensors to save, by name."""
        losses = torch.tensor(self.losses, dtype=torch.float64)
        return {"held_out.losses": losses} | {f"held_out.best.{name}": value for name, value in self._best.items()}

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """The inverse of `tensors`."""
        self.losses = tensors["held_out.losses"].tolist()
        for name, value in part_of(tensors, "held_out.best.").items():
            self._best[name].copy_(value)
