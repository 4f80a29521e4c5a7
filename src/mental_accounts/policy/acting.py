"""Acting for many steps: `policy.act` and `context.record`, on a GPU each as one captured CUDA graph.

Launching the kernels of one small forward takes ten times as long as running them. Observations, rewards and actions go
through pinned memory at fixed addresses; windows and ledgers never leave the device.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext

import numpy as np
import torch

from mental_accounts.machine import is_out_of_memory
from mental_accounts.policy.decision_transformer import DecisionTransformer
from mental_accounts.policy.half_precision import autocast, resolve_precision
from mental_accounts.policy.half_weights import HalfWeights
from mental_accounts.policy_options import Precision

WARM_UPS = 2


class Actor:
    """A policy in n environments, rollout after rollout: `begin`, then per step `act` and `record`.

    `sample` draws actions; by default the mean action is taken. `noise` is added to either. The policy's weights may
    change in place between rollouts, not within one. If capture is impossible, `say` is called and the actor does
    without.
    """

    captures = True
    """Whether steps are captured on a GPU."""

    def __init__(
        self,
        policy: DecisionTransformer,
        num_envs: int,
        *,
        sample: bool,
        noise: float = 0.0,
        precision: Precision = "float32",
        say: Callable[[str], None] = lambda text: None,
    ) -> None:
        self.policy, self.num_envs, self.precision = policy, num_envs, precision
        self.sample, self.noise = sample, noise
        is_half = resolve_precision(policy.device, precision) == "bf16"
        self._half = HalfWeights(policy.transformer) if is_half and policy.transformer is not None else None
        self.generator = torch.Generator(policy.device)
        self.context = policy.context(num_envs, 0.0)
        self._captured: _CapturedStep | None = None
        if self.captures and policy.device.type == "cuda":
            try:
                self._captured = _CapturedStep(self)
            except RuntimeError as error:
                if is_out_of_memory(error):
                    raise
                say(f"acting cannot be captured in a CUDA graph here ({error}); continuing without, more slowly")

    def begin(self, target_return: float, seed: int) -> None:
        """Start new episodes in all environments; everything random follows from `seed`."""
        if self._half is not None:
            self._half.refresh()
        self.context.restart(target_return)
        self.generator.manual_seed(seed)

    def act(self, observations: np.ndarray, action_masks: np.ndarray | None = None) -> np.ndarray:
        """(n, state) -> actions in the environment's units, (n, dim) or (n,); of those that masks (n, values) allow."""
        if self._captured is not None:
            return self._captured.act(observations, action_masks)
        return self.act_eagerly(observations, action_masks)

    def record(
        self,
        rewards: np.ndarray,
        ended: np.ndarray,
        actions: np.ndarray | None = None,
        foregone: np.ndarray | None = None,
    ) -> None:
        """The environments' results: (n,), (n,), and the actions actually taken, (n, dim) or (n,), if different.

        foregone (n, actions): the rewards of all actions, where the accounts enter them.
        """
        if self._captured is not None:
            self._captured.record(rewards, ended, actions, foregone)
        else:
            self.context.record(rewards, ended, actions, foregone)

    @contextmanager
    def in_precision(self) -> Iterator[None]:
        """The precision of acting; in bf16 with weights that were rounded when the rollout began."""
        held = nullcontext() if self._half is None else self._half.held()
        with held, autocast(self.policy.device, self.precision):
            yield

    def act_eagerly(self, observations: np.ndarray, action_masks: np.ndarray | None = None) -> np.ndarray:
        """As `act`, kernel by kernel."""
        with self.in_precision():
            return self.policy.act(
                observations,
                self.context,
                action_masks=action_masks,
                sample=self.sample,
                noise=self.noise,
                generator=self.generator,
            )


class _CapturedStep:
    """The two halves of a step as graphs. The first must be replayed at the start of a step, the second after it."""

    def __init__(self, actor: Actor) -> None:
        policy, n, device = actor.policy, actor.num_envs, actor.policy.device
        self.observations = torch.zeros(n, policy.config.state_dim, pin_memory=True)
        self.rewards = torch.zeros(n, pin_memory=True)
        self.ended = torch.zeros(n, dtype=torch.bool, pin_memory=True)
        self.chosen = torch.zeros_like(actor.context.actions[:, -1], device="cpu", pin_memory=True)
        books, self.foregone = actor.context.books, None
        if books is not None and books.foregone:
            self.foregone = torch.zeros(n, books.num_codes, pin_memory=True)
        held, self.action_masks = actor.context.allowed_now, None
        if held is not None:
            self.action_masks = torch.ones(held.shape, dtype=torch.bool, pin_memory=True)
        self.device = device
        stream = torch.cuda.Stream(device)
        stream.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(stream):  # allocates workspaces, which is not allowed during a capture
            for _ in range(WARM_UPS):
                self._act(actor)
                self._record(actor)
        torch.cuda.current_stream(device).wait_stream(stream)
        self.act_graph, self.record_graph = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        self.act_graph.register_generator_state(actor.generator)
        with torch.cuda.graph(self.act_graph):
            self._act(actor)
        with torch.cuda.graph(self.record_graph):
            self._record(actor)

    def act(self, observations: np.ndarray, action_masks: np.ndarray | None) -> np.ndarray:
        self.observations.copy_(torch.from_numpy(observations))
        if self.action_masks is not None:
            if action_masks is None:
                raise ValueError("action_masks must say which actions are allowed: the environment gives them")
            self.action_masks.copy_(torch.from_numpy(action_masks))
        self.act_graph.replay()
        torch.cuda.current_stream(self.device).synchronize()
        return self.chosen.numpy().copy()

    def record(
        self, rewards: np.ndarray, ended: np.ndarray, actions: np.ndarray | None, foregone: np.ndarray | None
    ) -> None:
        if actions is not None:
            self.chosen.copy_(torch.from_numpy(actions))
        self.rewards.copy_(torch.from_numpy(rewards))  # safe: the last replay has read them, `act` waited for it
        self.ended.copy_(torch.from_numpy(ended))
        if self.foregone is not None:
            if foregone is None:
                raise ValueError("foregone must have the reward of every action: the accounts enter them")
            self.foregone.copy_(torch.from_numpy(foregone))
        self.record_graph.replay()

    def _act(self, actor: Actor) -> None:
        masks = None if self.action_masks is None else self.action_masks.to(self.device, non_blocking=True)
        with actor.in_precision():
            chosen = actor.policy.choose(
                self.observations.to(self.device, non_blocking=True),
                actor.context,
                action_masks=masks,
                sample=actor.sample,
                noise=actor.noise,
                generator=actor.generator,
            )
        self.chosen.copy_(chosen, non_blocking=True)

    def _record(self, actor: Actor) -> None:
        rewards, ended, taken = (
            value.to(self.device, non_blocking=True) for value in (self.rewards, self.ended, self.chosen)
        )
        foregone = None if self.foregone is None else self.foregone.to(self.device, non_blocking=True)
        actor.context.record(rewards, ended, taken, foregone)
