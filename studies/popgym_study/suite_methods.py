"""The methods: PPO with the same settings, and a memory or none."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from gymnasium.vector import VectorEnv
from sb3_contrib import RecurrentPPO
from sb3_contrib.common.recurrent.policies import RecurrentActorCriticPolicy
from sb3_contrib.common.recurrent.type_aliases import RNNStates
from stable_baselines3 import PPO
from stable_baselines3.common.on_policy_algorithm import OnPolicyAlgorithm
from torch import Tensor, nn

from mental_accounts.integrations import LedgerVectorObservation, PerCodePolicy, RunningRewards

from .suite_envs import LearnerEnvs, StackedSteps, SuiteEnvs

Memory = Literal["none", "ledger", "stack", "lstm"]


@dataclass(frozen=True)
class Settings:
    """What a method learns with. Lengths in steps of one environment."""

    memory: Memory = "none"
    per_code: bool = False
    """All codes share one network (PerCodePolicy)."""
    envs: int = 64
    rollout: int = 256
    batch: int = 1024
    epochs: int = 4
    learning_rate: float = 1e-3
    """At the beginning; falls linearly to 0."""
    gamma: float = 0.99
    gae_lambda: float = 0.95
    entropy: float = 0.0
    hidden: int = 64
    """Width of the two layers of actor and critic."""
    stacked: int = 32
    """Steps in a stack."""
    lstm_hidden: int = 128
    phi: float = 0.001
    """What a ledger forgets in a step."""


METHODS: dict[str, Settings] = {
    "plain": Settings(),
    "ledger": Settings("ledger", learning_rate=3e-3),
    "ledger-per-code": Settings("ledger", per_code=True, epochs=2, hidden=32),
    "stack": Settings("stack"),
    "lstm": Settings("lstm", learning_rate=3e-3),
}

LABELS = {
    "plain": "PPO",
    "ledger": "PPO with a ledger, MLP",
    "ledger-per-code": "PPO with a ledger, one network for all arms",
    "stack": "PPO on the last 32 steps",
    "lstm": "Recurrent PPO (LSTM)",
}


class SharedLstmPolicy(RecurrentActorCriticPolicy):
    """`MlpLstmPolicy` with one LSTM that actor and critic both train, as the suite's memory models are, and faster.

    The shared LSTM of sb3-contrib learns from the actor alone. Its buffer cuts sequences where episodes begin, and its
    policy still goes through them step by step; here they go through the LSTM at once, with the same numbers.
    """

    @staticmethod
    def _process_sequence(
        features: Tensor, lstm_states: tuple[Tensor, Tensor], episode_starts: Tensor, lstm: nn.LSTM
    ) -> tuple[Tensor, Any]:
        sequences = lstm_states[0].shape[1]
        starts = episode_starts.reshape(sequences, -1)
        if bool((starts[:, 1:] != 0).any()):
            return RecurrentActorCriticPolicy._process_sequence(features, lstm_states, episode_starts, lstm)
        kept = (1.0 - starts[:, 0]).view(1, sequences, 1)
        steps = features.reshape(sequences, -1, lstm.input_size).swapaxes(0, 1)  # (length, sequences, features)
        output, states = lstm(steps, (kept * lstm_states[0], kept * lstm_states[1]))
        return output.transpose(0, 1).flatten(0, 1), states

    def evaluate_actions(  # type: ignore[override]  # as that of sb3-contrib
        self, obs: Tensor, actions: Tensor, lstm_states: RNNStates, episode_starts: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Values, log-probabilities and entropies, for an update."""
        features = self.extract_features(obs)
        assert isinstance(features, Tensor)
        hidden, cell = lstm_states.pi
        latent, _ = self._process_sequence(features, (hidden, cell), episode_starts, self.lstm_actor)
        distribution = self._get_action_dist_from_latent(self.mlp_extractor.forward_actor(latent))
        values = self.value_net(self.mlp_extractor.forward_critic(latent))
        entropy = distribution.entropy()
        assert entropy is not None
        return values, distribution.log_prob(actions), entropy


def make_envs(environment: str, settings: Settings, n: int, rewards: RunningRewards) -> LearnerEnvs:
    """Environments whose observations have what the method is to see; `rewards` is shared, or frozen to evaluate."""
    envs: VectorEnv[Any, Any, Any] = SuiteEnvs(environment, n, None if settings.memory == "none" else rewards)
    if settings.memory == "ledger":
        # Both enter every reward: counted twice, they have the same mean and standard deviation.
        envs = LedgerVectorObservation(envs, rewards=rewards, channels=("mean", "count"), phi=settings.phi)
    elif settings.memory == "stack":
        envs = StackedSteps(envs, settings.stacked)
    return LearnerEnvs(envs)


def make_model(settings: Settings, envs: LearnerEnvs, seed: int, device: str = "cpu") -> OnPolicyAlgorithm:
    """An untrained learner."""
    numbers: dict[str, Any] = {
        "n_steps": settings.rollout,
        "batch_size": settings.batch,
        "n_epochs": settings.epochs,
        "learning_rate": falling(settings.learning_rate),
        "gamma": settings.gamma,
        "gae_lambda": settings.gae_lambda,
        "ent_coef": settings.entropy,
        "seed": seed,
        "device": device,
    }
    width = {"pi": [settings.hidden] * 2, "vf": [settings.hidden] * 2}
    if settings.memory == "lstm":
        network: dict[str, Any] = {"net_arch": {"pi": [settings.hidden], "vf": [settings.hidden]}}
        network |= {"lstm_hidden_size": settings.lstm_hidden, "shared_lstm": True, "enable_critic_lstm": False}
        return RecurrentPPO(SharedLstmPolicy, envs, policy_kwargs=network, **numbers)
    if settings.per_code:  # previous action, mean and count of every action
        network = {"channels": 3, "hidden": settings.hidden, "activation_fn": nn.ReLU}
        return PPO(PerCodePolicy, envs, policy_kwargs=network, **numbers)
    return PPO("MlpPolicy", envs, policy_kwargs={"net_arch": width}, **numbers)


def falling(start: float) -> Callable[[float], float]:
    """From `start` linearly to 0."""
    return lambda left: start * left


def evaluate(model: OnPolicyAlgorithm, envs: LearnerEnvs, per_env: int, *, mode: bool, seed: int) -> np.ndarray:
    """Returns of `per_env` episodes of each environment: as many of all, since short ones would be over-counted."""
    torch.manual_seed(seed)
    envs.seed(seed)
    observations, states = envs.reset(), None
    begun = np.ones(envs.num_envs, np.bool_)
    found: list[list[float]] = [[] for _ in range(envs.num_envs)]
    running = np.zeros(envs.num_envs)
    while min(map(len, found)) < per_env:
        actions, states = model.predict(observations, states, begun, deterministic=mode)
        observations, rewards, begun, _ = envs.step(actions)
        running += rewards
        for i in np.flatnonzero(begun):
            found[i].append(float(running[i]))
            running[i] = 0.0
    return np.array([values[:per_env] for values in found]).ravel()
