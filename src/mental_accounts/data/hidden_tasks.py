"""Names of tasks with a hidden context: `hidden-arm`, `hidden-arm-free/ucb`, `drifting-bandit:arms=100,steps=400/ewa`.

A name is that of an environment, its settings after a colon, and who made the data after a slash. Without a maker the
data are a mixture of all but `own-ledger`.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from mental_accounts.data.hidden_data import Maker
from mental_accounts.data.mechanic import Mechanic
from mental_accounts.environments.roster import OWN_LEDGER, Family, makers
from mental_accounts.environments.variants import (
    MODULE,
    Settings,
    parse_settings,
    settings_text,
    variant_id,
    variant_spec,
)
from mental_accounts.errors import DataError

MIXTURE = "mixture"
WORDS = {
    "thompson": "Thompson sampling with discounted posteriors",
    "ucb": "UCB with a sliding window",
    "epsilon-greedy": "ε-greedy on running means",
    "ewa": "EWA learners with φ = 0.02, 0.1 and 0.2",
    OWN_LEDGER: "an EWA learner with the cells and the default φ of the policy's own ledger, which favours that policy",
}
"""Makers in words."""
MIXED = "Thompson sampling, UCB, ε-greedy and EWA learners (φ = 0.02, 0.1, 0.2), a quarter of the episodes each"
BAYES = "0: random actions; 100: a Bayesian player that knows the equations, but not the hidden context"
AS_BEFORE = "0: random actions; 100: the learner that made the data"


@dataclass(frozen=True)
class Returns:
    """Returns of a task; what is None is left to the data, or not known."""

    random: float | None
    """A normalised score of 0 ..."""
    expert: float | None
    """... and of 100."""
    target: float | None = None
    exploration: float | None = None
    scale: float | None = None


@dataclass(frozen=True)
class Base:
    """An environment and its data."""

    env: str
    """Its id with Gymnasium."""
    family: Family
    settings: Settings = field(default_factory=dict)
    """Where they differ from the environment's defaults."""
    before: Returns | None = None
    """The task's returns when a policy's own ledger made the data: results of that time can be made again."""


BASES = {
    "hidden-arm": Base("HiddenArm-v0", "box", before=Returns(-11.0, 30.1, 40.0, 60.0, 0.02)),
    "hidden-arm-free": Base("HiddenArm-v0", "box", {"hijack": 0.0}),
    "drifting-bandit": Base("DriftingBandit-v0", "discrete", before=Returns(0.0, 105.2, 140.0, 160.0, 0.01)),
    "drifting-bandit-free": Base("DriftingBandit-v0", "discrete", {"hijack": 0.0}),
}
"""By name; in those called free, no action is replaced by a random one."""

RETURNS: dict[str, tuple[float, float]] = {
    "HiddenArm-v0": (-10.9, 72.0),
    "HiddenArm-v0:hijack=0": (-11.0, 157.8),
    "DriftingBandit-v0": (-0.5, 133.8),
    "DriftingBandit-v0:hijack=0": (-0.3, 262.1),
    "HiddenArm-v0:dim=1": (52.7, 114.4),
    "HiddenArm-v0:dim=2": (6.2, 87.9),
    "HiddenArm-v0:dim=4": (-17.3, 53.9),
    "HiddenArm-v0:dim=1,hijack=0": (52.6, 176.4),
    "HiddenArm-v0:dim=2,hijack=0": (6.1, 170.7),
    "HiddenArm-v0:dim=4,hijack=0": (-17.3, 130.1),
    "DriftingBandit-v0:arms=27": (-1.5, 161.3),
    "DriftingBandit-v0:arms=100": (0.0, 177.7),
    "DriftingBandit-v0:arms=300": (-0.2, 183.4),
    "DriftingBandit-v0:arms=27,hijack=0": (-1.6, 299.5),
    "DriftingBandit-v0:arms=100,hijack=0": (0.7, 304.2),
    "DriftingBandit-v0:arms=300,hijack=0": (0.2, 304.9),
}
"""The mean returns of random actions and of the Bayesian player by settings of the environment, over 2,000 episodes:
python studies/players.py (results/players)."""


@dataclass(frozen=True)
class HiddenTask:
    """What a name says."""

    name: str
    env_id: str
    maker: Maker
    made_by: str
    """Who made the data, in words."""
    scored: str
    """What the scores 0 and 100 mean, in words."""
    returns: Returns


ROBOT = HiddenTask(
    "broken-halfcheetah",
    f"{MODULE}:BrokenHalfCheetah-v0",
    Mechanic("halfcheetah"),
    "the medium policy and a mechanic",
    "0: random actions on an intact robot; 100: the behaviour policy",
    Returns(-280.2, 4526.0, 5000.0, 10000.0, 0.001),
)


def hidden_names() -> Iterator[str]:
    """The names in the table of tasks; there are more, with settings."""
    for base, found in BASES.items():
        yield base
        yield from (f"{base}/{maker}" for maker in makers(found.family) if maker != MIXTURE)
    yield ROBOT.name


def is_hidden(name: str) -> bool:
    """Whether a name begins as those of tasks with a hidden context do."""
    return name == ROBOT.name or name.partition("/")[0].partition(":")[0] in BASES


def hidden_task(name: str) -> HiddenTask:
    """What the name says; a setting or a maker that does not exist is an error that says what there is."""
    if name == ROBOT.name:
        return ROBOT
    place, slash, maker = name.partition("/")
    base_name, colon, text = place.partition(":")
    base = BASES[base_name]
    known = makers(base.family)
    if slash and maker not in WORDS:
        there = ", ".join(one for one in known if one != MIXTURE)
        raise DataError(
            f"{name}: nobody called {maker!r} makes data; there are {there}; without a name: a mixture of all but "
            f"{OWN_LEDGER}"
        )
    try:
        given = parse_settings(base.env, text) if colon else {}
        env_id = variant_id(base.env, base.settings | given)
        variant_spec(env_id)  # refuses what does not go together
    except ValueError as error:
        raise DataError(f"{name}: {error}") from None
    fixed = [key for key in given if key in base.settings]
    if fixed:
        raise DataError(
            f"{name}: {fixed[0]} is {base.settings[fixed[0]]:g} in {base_name}; take {_without(base)} instead"
        )
    shown = settings_text(base.env, given)
    full = base_name + (f":{shown}" if shown else "") + (f"/{maker}" if slash else "")
    made_by = WORDS[maker] if slash else MIXED
    if base.before is not None and maker == OWN_LEDGER and not shown:
        return HiddenTask(full, env_id, known[maker], made_by, AS_BEFORE, base.before)
    returns = Returns(*RETURNS.get(env_id.removeprefix(f"{MODULE}:"), (None, None)))
    return HiddenTask(full, env_id, known[maker or MIXTURE], made_by, BAYES, returns)


def _without(base: Base) -> str:
    return next(name for name, other in BASES.items() if other.env == base.env and not other.settings)
