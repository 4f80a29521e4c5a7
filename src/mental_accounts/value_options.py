"""The options of value gradients: a frozen dataclass with a docstring per field, validated on construction."""

from dataclasses import dataclass
from typing import Literal

from mental_accounts.fields import check_choice, settle_types
from mental_accounts.number_checks import check_count, check_number, check_positive

Improve = Literal["none", "td3"]
Imitate = Literal["always", "offline", "never"]


@dataclass(frozen=True, kw_only=True)
class ValueConfig:
    """Two critics that learn what actions are worth, and how strongly they pull the policy; used with improve td3.

    The defaults are those of TD3+ODT (Yan et al., 2024).
    """

    alpha: float = 0.1
    """α: the weight of the first critic's value in the policy's loss, online."""
    pretrain_alpha: float = 0.0
    """α while pretraining; where the policy does not imitate then, it is `alpha`. The critics learn in any case."""
    normalised: bool = False
    """Whether α is divided by the mean absolute value of the batch, as in TD3+BC; then it does not depend on the size
    of rewards."""
    imitate: Imitate = "always"
    """When the policy also learns from the actions in the data: always (TD3+ODT); offline: only while pretraining;
    never: TD3 alone. (The entropy constraint of odt stays in any case.)"""
    discount: float = 0.99
    """γ: discount factor of the values."""
    critic_hidden: int = 256
    """Width of the two hidden layers of a critic; a recurrent policy's critics also have a GRU of the policy's size."""
    layer_norm: bool = False
    """Whether the critics' hidden layers are normalised: they then overestimate less, and learn more slowly."""
    critic_lr: float = 1e-3
    """Learning rate of the critics (AdamW)."""
    critic_updates: int = 2
    """Steps of the critics per update of the policy; each takes its own part of the batch."""
    tau: float = 0.005
    """τ: how far the averaged networks, which targets are computed by, move with every update."""
    target_noise: float = 0.2
    """Standard deviation of the noise added to box actions in targets, in units of [-1, 1]."""
    target_noise_clip: float = 0.5
    """That noise is clipped to ± this."""
    exploration_noise: float = 0.1
    """While exploring: standard deviation of the noise added to box actions, in units of [-1, 1]; the share of discrete
    actions that are replaced by random ones."""
    reward_scale: float | None = 1.0
    """Rewards are divided by this before critics learn from them; None: the root mean square of the data's rewards."""

    def __post_init__(self) -> None:
        settle_types(self)
        check_choice(self, "imitate")
        for name in ("alpha", "pretrain_alpha", "target_noise", "target_noise_clip"):
            check_number(name, getattr(self, name), 0.0, 1e6, closed=True)
        for name in ("tau", "exploration_noise"):
            check_number(name, getattr(self, name), 0.0, 1.0, closed=True)
        check_number("discount", self.discount, 0.0, 0.99999, closed=True)
        if self.imitate != "always" and self.alpha == 0:
            raise ValueError(f"imitate {self.imitate!r} with alpha 0 leaves nothing to learn from online; raise alpha")
        for name in ("critic_hidden", "critic_updates"):
            object.__setattr__(self, name, check_count(name, getattr(self, name), 1))
        check_positive("critic_lr", self.critic_lr)
        if self.reward_scale is not None:
            check_positive("reward_scale", self.reward_scale)
