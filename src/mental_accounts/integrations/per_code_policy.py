"""A Stable-Baselines3 policy that treats all codes of a ledger alike: one small network, shared by the actions.

    env = LedgerObservation(env, channels=("mean", "count"), dict_key="ledger")
    model = stable_baselines3.PPO(PerCodePolicy, env)

An ordinary network has to learn for every arm anew that a high mean payoff is good. Here each action's logit comes from
its own account and from a summary of all accounts,

    h_j = f(x_j, context),  p = (mean_j h_j, max_j h_j, context),  logit_j = g(h_j, p),  value = v(p),

so that permuting the accounts permutes the logits and leaves the value as it is.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from torch import Tensor, nn

from mental_accounts.errors import UsageError
from mental_accounts.extras import check_library
from mental_accounts.integrations.ledger_layout import LEDGER
from mental_accounts.number_checks import check_count

check_library("stable-baselines3", "PerCodePolicy")

from stable_baselines3.common.policies import ActorCriticPolicy  # noqa: E402
from stable_baselines3.common.preprocessing import get_flattened_obs_dim, is_image_space  # noqa: E402
from stable_baselines3.common.torch_layers import BaseFeaturesExtractor  # noqa: E402


class PerCodePolicy(ActorCriticPolicy):
    """Actor and critic for PPO and A2C, with Discrete actions whose codes are the actions.

    Args:
        observation_space: a Dict with the ledger as entry `ledger_key`, or a Box that ends with it. All else is the
            context, which every code reads alike.
        action_space: Discrete.
        lr_schedule: Stable-Baselines3 gives it.
        channels: how many numbers each code has: blocks of `action_space.n` numbers at the end of a Box, one per
            channel. Needed for a Box; a Dict tells by itself. A one-hot of the previous action may be one of them.
        hidden: width of the network.
        ledger_key: the Dict's entry with the ledger (`dict_key` of LedgerObservation).
        kwargs: as for ActorCriticPolicy, without `net_arch`.
    """

    def __init__(
        self,
        observation_space: Space[Any],
        action_space: Space[Any],
        lr_schedule: Callable[[float], float],
        channels: int | None = None,
        hidden: int = 32,
        ledger_key: str = LEDGER,
        **kwargs: Any,
    ) -> None:
        if kwargs.get("net_arch") is not None:
            raise UsageError("PerCodePolicy has no net_arch: hidden=32 sets the width of its network")
        self.channels = channels_of(observation_space, action_space, channels, ledger_key)
        self.hidden, self.ledger_key = check_count("hidden", hidden, 1), ledger_key
        kwargs |= {
            "features_extractor_class": LedgerLast,
            "features_extractor_kwargs": {"ledger_key": ledger_key},
        }
        super().__init__(observation_space, action_space, lr_schedule, **kwargs)

    def _build_mlp_extractor(self) -> None:
        """The name is Stable-Baselines3's: what comes between features and the last layers of actor and critic."""
        assert isinstance(self.action_space, spaces.Discrete)
        codes, context = int(self.action_space.n), self.features_dim - self.channels * int(self.action_space.n)
        self.mlp_extractor = PerCodeNetwork(  # type: ignore[assignment]
            codes, self.channels, context, self.hidden, self.activation_fn
        ).to(self.device)

    def _build(self, lr_schedule: Callable[[float], float]) -> None:
        # The actor's last layer reads one code at a time, hidden -> 1, and has the small initial weights of any actor.
        self.action_dist.proba_distribution_net = OneLogit  # type: ignore[method-assign]
        try:
            super()._build(lr_schedule)
        finally:
            del self.action_dist.proba_distribution_net

    def _get_constructor_parameters(self) -> dict[str, Any]:
        found = super()._get_constructor_parameters()
        for name in ("net_arch", "features_extractor_class", "features_extractor_kwargs"):
            del found[name]
        return {**found, "channels": self.channels, "hidden": self.hidden, "ledger_key": self.ledger_key}


class LedgerLast(BaseFeaturesExtractor):
    """Observations as one vector with the ledger at its end."""

    def __init__(self, observation_space: Space[Any], ledger_key: str) -> None:
        super().__init__(observation_space, get_flattened_obs_dim(observation_space))
        self._keys: list[str] | None = None
        if isinstance(observation_space, spaces.Dict):
            self._keys = [*(key for key in observation_space.spaces if key != ledger_key), ledger_key]

    def forward(self, observations: Any) -> Tensor:
        """(batch, ...), or a dict of such -> (batch, context + channels * codes)."""
        if self._keys is None:
            flat: Tensor = observations.flatten(1)
            return flat
        return torch.cat([observations[key].flatten(1) for key in self._keys], dim=1)


class PerCodeNetwork(nn.Module):
    """Encodes every code by the same layers, and pools over the codes."""

    def __init__(self, codes: int, channels: int, context: int, hidden: int, activation: type[nn.Module]) -> None:
        super().__init__()
        self.codes, self.channels, self.context = codes, channels, context
        self.latent_dim_pi, self.latent_dim_vf = hidden, hidden
        self.actor_encoder = _Encoder(channels, context, hidden, activation)
        self.critic_encoder = _Encoder(channels, context, hidden, activation)
        self.from_code = nn.Linear(hidden, hidden, bias=False)
        self.from_all = nn.Linear(2 * hidden + context, hidden)
        self.actor_activation = activation()
        self.critic = nn.Sequential(nn.Linear(2 * hidden + context, hidden), activation())

    def forward(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, features) -> what the last layers of actor and critic read."""
        return self.forward_actor(features), self.forward_critic(features)

    def forward_actor(self, features: Tensor) -> Tensor:
        """(batch, features) -> (batch, codes, hidden)."""
        context, accounts = self._split(features)
        encoded, pooled = self.actor_encoder(context, accounts)
        latent: Tensor = self.actor_activation(self.from_code(encoded) + self.from_all(pooled)[:, None])
        return latent

    def forward_critic(self, features: Tensor) -> Tensor:
        """(batch, features) -> (batch, hidden)."""
        _, pooled = self.critic_encoder(*self._split(features))
        latent: Tensor = self.critic(pooled)
        return latent

    def _split(self, features: Tensor) -> tuple[Tensor, Tensor]:
        """The context (batch, context), and the accounts (batch, codes, channels)."""
        accounts = features[:, self.context :].reshape(-1, self.channels, self.codes)  # channel after channel
        return features[:, : self.context], accounts.transpose(1, 2)


class _Encoder(nn.Module):
    def __init__(self, channels: int, context: int, hidden: int, activation: type[nn.Module]) -> None:
        super().__init__()
        self.from_account = nn.Linear(channels, hidden)
        self.from_context = nn.Linear(context, hidden, bias=False) if context else None
        self.activation = activation()

    def forward(self, context: Tensor, accounts: Tensor) -> tuple[Tensor, Tensor]:
        """(batch, context), (batch, codes, channels) -> each code (batch, codes, hidden), all (batch, 2 hidden + c)."""
        hidden = self.from_account(accounts)
        if self.from_context is not None:
            hidden = hidden + self.from_context(context)[:, None]
        encoded = self.activation(hidden)
        return encoded, torch.cat([encoded.mean(1), encoded.max(1).values, context], dim=1)


class OneLogit(nn.Module):
    """(batch, codes, hidden) -> (batch, codes): the actor's last layer, the same for all codes."""

    def __init__(self, latent_dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(latent_dim, 1, bias=False)  # a bias common to all logits would change nothing

    def forward(self, latent: Tensor) -> Tensor:
        """One number per code."""
        logits: Tensor = self.linear(latent)[..., 0]
        return logits


def channels_of(
    observation_space: Space[Any], action_space: Space[Any], channels: int | None = None, ledger_key: str = LEDGER
) -> int:
    """How many numbers each code has in these observations; spaces that do not fit are refused."""
    if not isinstance(action_space, spaces.Discrete):
        raise UsageError(
            f"PerCodePolicy needs Discrete actions, one per code, got {action_space}; with other actions use "
            "MlpPolicy, which reads a ledger like any other input"
        )
    codes = int(action_space.n)
    if channels is not None:
        check_count("channels", channels, 1)
    if isinstance(observation_space, spaces.Dict):
        ledger = observation_space.spaces.get(ledger_key)
        if ledger is None:
            raise UsageError(
                f"PerCodePolicy found no entry {ledger_key!r} in the observation, which has "
                f"{sorted(observation_space.spaces)}: wrap the environment in LedgerObservation, or set ledger_key"
            )
        images = [key for key, entry in observation_space.spaces.items() if len(entry.shape or ()) > 1]
        if images:
            raise UsageError(f"PerCodePolicy reads vectors, and the entries {images} of the observation are none")
        size = int(np.prod(ledger.shape or ()))
        if not isinstance(ledger, spaces.Box) or not size or size % codes:
            raise UsageError(
                f"the entry {ledger_key!r} must have {codes} numbers per channel, one for each action, got {ledger}; "
                "the ledger's codes must be the actions (the default for Discrete actions)"
            )
        found = size // codes
        if channels not in (None, found):
            raise UsageError(f"channels={channels}, but the entry {ledger_key!r} has {found} for {codes} actions")
        return found
    if not isinstance(observation_space, spaces.Box) or len(observation_space.shape) != 1:
        kind = "an image" if is_image_space(observation_space) else str(observation_space)
        raise UsageError(
            f"PerCodePolicy needs a Box of one dimension that ends with the ledger, or a Dict with it, got {kind}; "
            "LedgerObservation(..., dict_key='ledger') makes a Dict"
        )
    size = observation_space.shape[0]
    if channels is None:
        raise UsageError(
            "how many of the observation's numbers are the ledger's? Say policy_kwargs={'channels': 2} for two "
            "channels, or keep the ledger apart by LedgerObservation(..., dict_key='ledger')"
        )
    if channels * codes > size:
        raise UsageError(f"{channels} channels of {codes} actions are {channels * codes} numbers, of {size} observed")
    return channels
