"""What can be chosen: frozen dataclasses, each field documented, validated once when made."""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, is_dataclass
from types import NoneType, UnionType
from typing import Any, Literal, Self, TypeVar, get_args, get_origin, get_type_hints

from mental_accounts.accounts.checks import check_count, check_number, check_positive

Method = Literal["dt", "odt", "ewa-vq-odt"]
CodebookKind = Literal["grid", "algorithm2", "product", "kmeans"]
Config = TypeVar("Config")


@dataclass(frozen=True)
class ActionSpec:
    """The action space of an environment: a box with finite bounds, or a number of discrete actions."""

    kind: Literal["box", "discrete"]
    """box: real vectors; discrete: whole numbers."""
    size: int
    """Dimensions of a box; number of discrete actions."""
    low: tuple[float, ...] = ()
    """Lower bounds of a box; actions are rescaled to [-1, 1] on the way in and back on the way out."""
    high: tuple[float, ...] = ()
    """Upper bounds of a box."""
    start: int = 0
    """The smallest discrete action."""

    def __post_init__(self) -> None:
        _choice(self, "kind")
        check_count("action.size", self.size, 1)
        if self.kind == "box":
            if len(self.low) != self.size or len(self.high) != self.size:
                raise ValueError(
                    f"action.low and action.high must have {self.size} bounds each, "
                    f"got {len(self.low)} and {len(self.high)}"
                )
            for d, (low, high) in enumerate(zip(self.low, self.high, strict=True)):
                if not (math.isfinite(low) and math.isfinite(high) and low < high):
                    raise ValueError(
                        f"action bounds must be finite with low < high, got [{low}, {high}] in dimension {d}"
                    )

    @property
    def is_discrete(self) -> bool:
        """Whether actions are whole numbers."""
        return self.kind == "discrete"


@dataclass(frozen=True)
class AccountsConfig:
    """The mental accounts of a policy: how actions are sorted, credited and read."""

    codebook: CodebookKind = "grid"
    """How box actions are routed to codes. Discrete actions are their own codes."""
    bins: int = 3
    """Grid points per dimension (grid, product)."""
    num_codes: int | None = 27
    """At most this many codes: the first cells of a grid (the paper's appendix), Algorithm 2's request, the number of
    k-means centres. None: every cell of the grid."""
    groups: int = 2
    """Groups of dimensions, each with a grid and accounts of its own (product)."""
    rule: Literal["ewa", "canonical"] = "ewa"
    """The paper's update, or the one of Camerer and Ho (1999)."""
    phi: float = 0.05
    """φ: the share of every balance that is forgotten at each step."""
    delta: float = 0.8
    """δ: the weight of the reward of the action taken (ewa); of foregone payoffs (canonical)."""
    rho: float = 0.05
    """ρ: the share of experience forgotten at each step (canonical)."""
    reward_transform: Literal["raw", "centred", "standardised"] = "standardised"
    """How rewards become payoffs, by the offline data's mean and standard deviation. The paper ran raw rewards."""
    reward_clip: float | None = 1.0
    """R: payoffs are clipped to ±R, so that no balance exceeds δR/φ. None: no clip (the paper)."""
    account_scope: Literal["trajectory", "window"] = "trajectory"
    """trajectory: balances last the whole episode. window: they start at zero in every context (the authors' code)."""
    read: Literal["then", "now"] = "then"
    """then: a column shows the balance right after its action (Eq. 10). now: the balance at the row's own time."""
    beta: float = 0.05
    """β: the scale of the attention bias, or its initial value where it is learned."""
    beta_learned: bool = False
    """Whether β is a parameter."""
    beta_per: Literal["model", "layer", "head", "layer-head"] = "model"
    """One β for all, or one per layer, per head, or per layer and head."""
    bias_clip: float | None = None
    """ε: the bias is clipped to ±ε, which bounds the drift of attention by tanh(ε/2). None: no clip."""

    def __post_init__(self) -> None:
        for name in ("codebook", "rule", "reward_transform", "account_scope", "read", "beta_per"):
            _choice(self, name)
        check_count("bins", self.bins, 2)
        check_count("groups", self.groups, 1)
        if self.num_codes is not None:
            check_count("num_codes", self.num_codes, 1)
        elif self.codebook in ("algorithm2", "kmeans"):
            raise ValueError(f"num_codes must be given for codebook {self.codebook!r}, got None")
        check_number("phi", self.phi, 0.0, 1.0, closed=False)
        check_number("delta", self.delta, 0.0, 1.0, closed=True)
        check_number("rho", self.rho, 0.0, 1.0, closed=True)
        check_number("beta", self.beta, -math.inf, math.inf, closed=False)
        for name in ("reward_clip", "bias_clip"):
            if getattr(self, name) is not None:
                check_positive(name, getattr(self, name))


@dataclass(frozen=True)
class PolicyConfig:
    """A transformer policy: the same network for dt, odt and ewa-vq-odt."""

    state_dim: int
    """Size of a (flat) observation."""
    action: ActionSpec
    """The action space."""
    method: Method = "ewa-vq-odt"
    """dt: deterministic actions. odt: a distribution over actions. ewa-vq-odt: odt with mental accounts."""
    hidden: int = 512
    """Width of a token."""
    layers: int = 4
    """Transformer blocks."""
    heads: int = 4
    """Attention heads per block."""
    inner: int | None = None
    """Width inside the MLP of a block; None: 4 × hidden."""
    dropout: float = 0.1
    """Dropout of embeddings, attention weights and residual branches while training."""
    context_length: int = 20
    """K: the most steps the policy sees at once."""
    eval_context_length: int | None = None
    """Steps seen while acting; None: context_length. (ODT acts with 5 on walker2d.)"""
    timestep_embedding: bool = True
    """Whether tokens carry an embedding of the absolute timestep. (ODT: hopper yes, walker2d no.)"""
    max_timestep: int = 1000
    """Timesteps with an embedding of their own; later ones share the last."""
    order_embedding: bool = False
    """Whether tokens carry an embedding of their place in the context."""
    return_scale: float = 0.001
    """Returns-to-go are multiplied by this."""
    gamma: float = 1.0
    """γ: discount of returns-to-go."""
    accounts: AccountsConfig = field(default_factory=AccountsConfig)
    """The mental accounts; they are there for method ewa-vq-odt only."""

    def __post_init__(self) -> None:
        _choice(self, "method")
        for name in ("state_dim", "hidden", "layers", "heads", "context_length", "max_timestep"):
            check_count(name, getattr(self, name), 1)
        if self.inner is not None:
            check_count("inner", self.inner, 1)
        if self.hidden % self.heads:
            raise ValueError(f"hidden must be a multiple of heads = {self.heads}, got {self.hidden}")
        check_number("dropout", self.dropout, 0.0, 0.999, closed=True)
        check_positive("return_scale", self.return_scale)
        check_number("gamma", self.gamma, 1e-6, 1.0, closed=True)
        if self.eval_context_length is not None:
            check_count("eval_context_length", self.eval_context_length, 1)
            if self.eval_context_length > self.context_length:
                raise ValueError(
                    f"eval_context_length must be at most context_length = {self.context_length}, "
                    f"got {self.eval_context_length}"
                )

    @property
    def has_accounts(self) -> bool:
        """Whether the policy keeps mental accounts."""
        return self.method == "ewa-vq-odt"

    @property
    def acting_context(self) -> int:
        """Steps seen while acting."""
        return self.eval_context_length or self.context_length

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Self:
        """Back from `to_dict`; unknown, missing and mistyped fields are named."""
        return config_from_dict(cls, values)


def config_from_dict(cls: type[Config], values: Mapping[str, Any], path: str = "") -> Config:
    """Build a (nested) config dataclass from plain values; errors name the field."""
    if not isinstance(values, Mapping):
        raise TypeError(f"{path or cls.__name__} must be a table of fields, got {type(values).__name__}")
    assert is_dataclass(cls)
    known = {item.name for item in fields(cls)}
    unknown = sorted(set(values) - known)
    if unknown:
        raise ValueError(f"{cls.__name__} has no field {path}{unknown[0]}; it has {', '.join(sorted(known))}")
    hints = get_type_hints(cls)
    arguments = {name: _typed(hints[name], value, f"{path}{name}") for name, value in values.items()}
    try:
        return cls(**arguments)
    except TypeError as error:
        raise ValueError(f"{cls.__name__} cannot be made from {sorted(values)}: {error}") from error


def _typed(hint: Any, value: Any, path: str) -> Any:
    """A JSON value as the type of its field."""
    if isinstance(hint, type) and is_dataclass(hint):
        return config_from_dict(hint, value, f"{path}.")
    if get_origin(hint) is UnionType:
        if value is None and NoneType in get_args(hint):
            return None
        return _typed(next(part for part in get_args(hint) if part is not NoneType), value, path)
    if get_origin(hint) is tuple:
        if not isinstance(value, (list, tuple)):
            raise TypeError(f"{path} must be a list, got {value!r}")
        return tuple(_typed(get_args(hint)[0], item, path) for item in value)
    if hint is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if get_origin(hint) is not Literal and (
        not isinstance(value, hint) or (isinstance(value, bool) and hint is not bool)
    ):
        raise TypeError(f"{path} must be {hint.__name__}, got {value!r}")
    return value


def _choice(config: object, name: str) -> None:
    """Refuse a value that the field's Literal does not list."""
    allowed = get_args(get_type_hints(type(config))[name])
    if getattr(config, name) not in allowed:
        raise ValueError(f"{name} must be one of {list(allowed)}, got {getattr(config, name)!r}")
