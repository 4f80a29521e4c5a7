"""The questions of PROTOCOL.md, each as calls of `mental-accounts compare`; evidence.py runs them."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mental_accounts.presets import PresetName

FIRST_SEED, SECOND_SEED, FIRST_CHOOSING = 1000, 1010, 100
"""First seeds: of results, of what was asked once some of these were seen, and of runs that choose between forms."""
PAPERS = ("hopper-medium", "walker2d-medium-replay")
BOTH = ("hidden-arm", "drifting-bandit")
BANDIT, ARM = "mental_accounts.environments:DriftingBandit-v0", "mental_accounts.environments:HiddenArm-v0"
STEPS = 200
"""Of an episode of the hidden tasks."""
EPISODES = "batch_size=16"
"""Of methods that read whole episodes: 3,200 steps an update, where windows of 5 steps have 320."""
WHOLE_UNORDERED = f"odt:reward_input=state,windows=episodes,context_length=200,eval_context_length=200,{EPISODES}"
WHOLE = f"{WHOLE_UNORDERED},timestep_embedding=True"
"""A transformer over whole episodes: as it was run first, with nothing that tells steps apart, and with timesteps."""
GRU, LEDGER = f"gru:{EPISODES},hidden=128,lr=3e-4", "ledger-odt:phi=0.3"
"""As they were chosen on other seeds (choosing.py; results/choosing)."""
Q1_METHODS = {
    "odt": "ODT, K = 5",
    "odt:reward_input=state": "ODT, K = 5, reads rewards",
    WHOLE_UNORDERED: "transformer over whole episodes, no timesteps, reads rewards",
    WHOLE: "transformer over whole episodes, reads rewards",
    GRU: "GRU, reads rewards",
    f"{GRU},reward_input=none": "GRU without rewards",
    "ewa-vq-odt": "the paper's bias",
    LEDGER: "ledger",
    "bc": "behaviour cloning",
}
RIVALS = (LEDGER, GRU)
CHANNELS, ALL_CHANNELS = 'ledger_channels=["mean","count"]', 'ledger_channels=["balance","mean","count"]'
LEDGER_FORMS = tuple(
    f"ledger-odt:{change}"
    for change in ("phi=0.05", "phi=0.15", "phi=0.3", CHANNELS, f"{CHANNELS},phi=0.15", f"{CHANNELS},phi=0.3")
)
GRU_FORMS = tuple(
    f"gru:{EPISODES}{change}"
    for change in ("", ",hidden=128", ",lr=3e-4", ",gru_layers=2", ",hidden=128,lr=3e-4", ",hidden=128,gru_layers=2")
)
"""Q1 to Q3: as many forms of each rival are tried on the seeds of choice."""
ONE_STEP = "context_length=1,eval_context_length=1"
SECOND_LEDGERS = (
    LEDGER,
    *(
        f"ledger-odt:{ONE_STEP},{change}"
        for change in (
            "phi=0.05", "phi=0.15", "phi=0.3", f"{CHANNELS},phi=0.15", f"{CHANNELS},phi=0.3",
            f"{ALL_CHANNELS},phi=0.3",
        )
    ),
)  # fmt: skip
SECOND_GRUS = (
    GRU,
    *(
        f"gru:{change}"
        for change in (
            f"{EPISODES},hidden=128,gru_layers=2,lr=3e-4", f"{EPISODES},hidden=256,lr=3e-4", "batch_size=64,hidden=128",
            f"{EPISODES},hidden=128,pretrain_iterations=40", f"{EPISODES},hidden=128,lr=3e-4,pretrain_iterations=40",
            f"{EPISODES},hidden=128,lr=3e-4,dropout=0.1",
        )
    ),
)  # fmt: skip
"""Q9: the winners of the first round and six more forms of each, on the same seeds."""
SECOND_FORM = f"ledger-odt:{ONE_STEP},{ALL_CHANNELS}"
SECOND_PHI = 0.3
SECOND_LEDGER, SECOND_GRU = f"{SECOND_FORM},phi={SECOND_PHI}", f"gru:{EPISODES},hidden=128,gru_layers=2,lr=3e-4"
SECOND_RIVALS = (SECOND_LEDGER, SECOND_GRU)
SECOND_WORDS = dict(zip(SECOND_RIVALS, ("ledger (K = 1)", "GRU, two layers"), strict=True))
"""Q3 and Q9: as they were chosen in the second round."""
LEARNING = (
    "held_out=0.1", "patience=5", "pretrain_iterations=20", "updates_per_pretrain_iteration=400",
    "pretrain_eval_every=20",
)  # fmt: skip
HIDDEN_EPISODES = 1_000
HIDDEN = (f"data_steps={HIDDEN_EPISODES * STEPS}", *LEARNING, "eval_sampled=True", "warmup_updates=200", "phi=0.05")
"""Of all runs on hidden tasks: one rule of stopping for every method, and the paper's φ unless a form has its own."""
Q2_EPISODES = (30, 100, 300, HIDDEN_EPISODES, 3_000)
"""Question 2 by number of training episodes; one of them is question 1."""
ROBOT, ROBOT_STEPS, SIGNS = "broken-halfcheetah", 1_000, "bins=2,num_codes=64"
"""An episode has so many steps, and an account is kept for each combination of signs of six torques."""


def acting_with(steps: int) -> str:
    """A context of so many steps, in training and while acting."""
    return f"context_length={steps},eval_context_length={steps}"


Q4_WITHOUT = {
    "odt": "ODT, K = 5",
    **{f"odt:{acting_with(steps)}": f"ODT, K = {steps}" for steps in (20, 50, 100)},
    "odt:reward_input=state": "ODT, K = 5, reads rewards",
    f"odt:{acting_with(50)},reward_input=state": "ODT, K = 50, reads rewards",
    "odt:reward_input=advantage": "ODT, K = 5, reads rewards minus a state baseline",
    f"odt:{acting_with(50)},reward_input=advantage": "ODT, K = 50, reads rewards minus a state baseline",
    "gru:batch_size=4": "GRU, reads rewards",
    "gru:batch_size=4,reward_input=advantage": "GRU, reads rewards minus a state baseline",
}
"""The forms without a ledger; the mechanic acts 10 to 40 steps after the fault, which 50 steps cover."""
Q4_LEDGERS = {
    f"ledger-odt:{SIGNS}": "ledger",
    f"ledger-odt:{SIGNS},credit=advantage": "ledger of rewards above a state baseline",
    f"ledger-odt:{SIGNS},state_codes=4": "ledger, accounts of 4 kinds of state",
    f"ledger-odt:{SIGNS},credit=advantage,state_codes=4": "ledger above a baseline, 4 kinds of state",
}


@dataclass(frozen=True)
class Call:
    """One call of `compare`."""

    tasks: tuple[str, ...]
    methods: tuple[str, ...]
    preset: PresetName = "hidden"
    changes: tuple[str, ...] = HIDDEN
    seeds: int = 5
    first_seed: int = FIRST_SEED

    def arguments(self, out: Path) -> list[str]:
        """What follows `mental-accounts`."""
        found = ["compare", "--preset", self.preset, "--task", *self.tasks, "--methods", *self.methods]
        found += ["--seeds", str(self.seeds), "--first-seed", str(self.first_seed), "--data-per-seed"]
        return [*found, "--set", *self.changes, "--out", str(out)]


def changed(*changes: str, among: tuple[str, ...] = HIDDEN) -> tuple[str, ...]:
    """Settings with some of their values replaced."""
    names = {change.partition("=")[0] for change in changes}
    return (*(kept for kept in among if kept.partition("=")[0] not in names), *changes)


def q2() -> Iterator[tuple[str, Call]]:
    """By number of training episodes."""
    for episodes in Q2_EPISODES:
        if episodes != HIDDEN_EPISODES:
            changes = changed(f"data_steps={episodes * STEPS}")
            yield f"episodes-{episodes}", Call(BOTH, ("odt", WHOLE_UNORDERED, *RIVALS), changes=changes)
            yield f"whole-{episodes}", Call(BOTH, (WHOLE,), changes=changes)


ARMS, DIMS, TIMES = (27, 100, 300), (1, 2, 4), (2, 5)
ASKED = {"hidden-arm": 65, "drifting-bandit": 243}
"""The target returns of question 9's ledgers; episodes of twice the length are asked for twice as much."""
PHIS, MISFITS = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5), (16, 64)
PHI_FORMS = tuple(f"{SECOND_FORM},phi={phi}" for phi in PHIS)
MISFIT_FORMS = tuple(f"{SECOND_LEDGER},codebook=kmeans,num_codes={codes}" for codes in MISFITS)
MAKERS = ("thompson", "ucb", "epsilon-greedy", "ewa", "own-ledger")
"""Q3: what is changed. Question 9 has 10 arms, 3 dimensions, 200 steps, φ = 0.3, the task's cells, four makers."""


def q3() -> Iterator[tuple[str, Call]]:
    """One axis at a time, with the forms and the seeds of question 9, whose runs are the middle of each."""
    both = Call(BOTH, SECOND_RIVALS, first_seed=SECOND_SEED)
    for arms in ARMS:
        yield f"arms-{arms}", replace(both, tasks=(f"drifting-bandit:arms={arms}",))
    for dim in DIMS:
        yield f"cells-{3**dim}", replace(both, tasks=(f"hidden-arm:dim={dim}",))
    for times in TIMES:
        for task, env in zip(BOTH, (ARM, BANDIT), strict=True):
            longer = changed(f"env_id={env}:steps={times * STEPS}", f"target_return={times * ASKED[task]}")
            yield f"{task}-{times}-times-as-long", replace(both, tasks=(task,), changes=longer)
    yield "phi", replace(both, methods=PHI_FORMS)
    yield "codes", replace(both, tasks=("hidden-arm",), methods=MISFIT_FORMS)
    yield "free", replace(both, tasks=tuple(f"{task}-free" for task in BOTH))
    for maker in MAKERS:
        yield f"made-by-{maker}", replace(both, tasks=tuple(f"{task}/{maker}" for task in BOTH))


def q4() -> Call:
    """The robot with a hidden fault: the budget of results/hidden (10,000 updates, hidden 128), and Q1's stopping."""
    changes = changed(
        f"data_steps={1_000 * ROBOT_STEPS}", "updates_per_pretrain_iteration=500", "pretrain_eval_every=10",
        "hidden=128", "reward_transform=standardised", "eval_episodes=20",
    )  # fmt: skip
    return Call((ROBOT,), (*Q4_WITHOUT, *Q4_LEDGERS), changes=changes)


def q5() -> Iterator[tuple[str, Call]]:
    """The paper's experiment, by both optimisers."""
    methods = ("odt", "ewa-vq-odt", "ewa-vq-odt:account_scope=trajectory", "bc")
    often = ("pretrain_iterations=10", "updates_per_pretrain_iteration=500", "pretrain_eval_every=1")
    for optimizer in ("adamw", "lamb"):
        yield optimizer, Call(PAPERS, methods, "paper", (*often, "data_steps=100000", f"optimizer={optimizer}"), 20)


SMALLER = (
    "hidden=128", "layers=3", "heads=1", "dropout=0", "context_length=5", "eval_context_length=5",
    "timestep_embedding=False", "batch_size=128", "optimizer=adamw", "lr=3e-4", "warmup_updates=500",
    "data_steps=100000", "pretrain_iterations=1", "updates_per_pretrain_iteration=3000", "steps_per_iteration=1000",
    "updates_per_iteration=600", "tau=0.02", "targets=replay", "anneal=True", "eval_every=20", "eval_episodes=10",
)  # fmt: skip
"""Q7: a smaller network than the published."""
BY_VALUES = "imitate=offline,alpha=1,normalised=True,lambda_lr=3e-3,likelihood=squashed"
SUPERVISED, TD3_ODT, TD3_ALONE, TD3_LEDGER = "odt:improve=none", "dt", f"odt:{BY_VALUES}", f"ledger-odt:{BY_VALUES}"
Q7_METHODS = {
    SUPERVISED: "ODT, no critics",
    TD3_ODT: "td3+odt: critics and imitation",
    TD3_ALONE: "td3 alone: critics, imitation only offline",
    TD3_LEDGER: "td3 alone with a ledger",
}
ROBOT_DECIDES = ((TD3_ODT, SUPERVISED), (TD3_ODT, TD3_ALONE), (TD3_LEDGER, TD3_ALONE))
ABOVE = f"{SIGNS},credit=advantage"
BROKEN_LEDGER, BROKEN_TD3_LEDGER = f"ledger-odt:{ABOVE},improve=none", f"ledger-odt:{ABOVE},{BY_VALUES}"
BROKEN_METHODS = {
    SUPERVISED: Q7_METHODS[SUPERVISED],
    BROKEN_LEDGER: "ODT with a ledger above a baseline, no critics",
    TD3_ODT: Q7_METHODS[TD3_ODT],
    TD3_ALONE: Q7_METHODS[TD3_ALONE],
    BROKEN_TD3_LEDGER: "td3 alone with a ledger above a baseline",
}
"""Q7 on the robot with a hidden fault; its ledger has Q4's accounts, and is also tried without critics."""
BROKEN_NORMALISED = {
    f"{TD3_ODT}:layer_norm=True": "td3+odt, normalised critics",
    f"{TD3_ALONE},layer_norm=True": "td3 alone, normalised critics",
    f"{BROKEN_TD3_LEDGER},layer_norm=True": "td3 alone with a ledger above a baseline, normalised critics",
}
"""The same with LayerNorm in the critics, which overestimate there."""
BROKEN_DECIDES = ((TD3_ODT, SUPERVISED), (BROKEN_LEDGER, SUPERVISED), (BROKEN_TD3_LEDGER, TD3_ALONE))
Q7_SHORT = {
    SUPERVISED: "ODT",
    BROKEN_LEDGER: "ODT, ledger",
    TD3_ODT: "td3+odt",
    TD3_ALONE: "td3 alone",
    TD3_LEDGER: "td3 alone, ledger",
    BROKEN_TD3_LEDGER: "td3 alone, ledger",
}
"""The forms of question 7 in a word or two."""


FOLLOWING, PUBLISHED = SUPERVISED, f"{SUPERVISED},targets=task"
"""Q8: ODT whose target returns follow the replay buffer, as all of Q7, and with those that are published."""


RANDOM = {
    "hopper-random": ("layer_norm=True", "online_iterations=25"),
    "walker2d-random": ("layer_norm=True", "online_iterations=25"),
    "halfcheetah-random": ("online_iterations=12",),
}
"""Q7: tasks of random data, whose critics have normalised layers where that helped on seed 100."""
EVERY_STEP = ("hopper-random", "walker2d-random")
TD3_EVERY_STEP = f"{TD3_ALONE},updates_per_iteration=4000"
"""Q7: as many updates as steps, which is what SAC and TD3 make; the others make 400 per 1,000 steps."""


def q7() -> Iterator[tuple[str, Call]]:
    """Getting better by acting: about 100,000 steps, from good data in 80 iterations, from random ones in 25."""
    for task in PAPERS:
        yield task, Call((task,), tuple(Q7_METHODS), "td3", (*SMALLER, "online_iterations=80"))
    larger = ("episodes_per_iteration=4", "steps_per_iteration=4000", "updates_per_iteration=1600", "eval_every=5")
    for task, chosen in RANDOM.items():
        yield task, Call((task,), tuple(Q7_METHODS), "td3", (*changed(*larger, among=SMALLER), *chosen))
    for task in EVERY_STEP:
        once = (*changed(*larger, among=SMALLER), *RANDOM[task])
        yield f"{task}-every-step", Call((task,), (TD3_EVERY_STEP,), "td3", once)
        longer = changed("layers=1", "online_iterations=42", among=once)
        yield f"{task}-200k", Call((task,), (TD3_EVERY_STEP,), "td3", longer)
    broken = (*changed(*larger, among=SMALLER), "reward_transform=standardised", "online_iterations=12")
    yield ROBOT, Call((ROBOT,), tuple(BROKEN_METHODS), "td3", broken)
    yield f"{ROBOT}-normalised", Call((ROBOT,), tuple(BROKEN_NORMALISED), "td3", broken)


Q7_DECIDES = dict.fromkeys((*PAPERS, *RANDOM), ROBOT_DECIDES) | {ROBOT: BROKEN_DECIDES}
"""By study: the comparisons that decide question 7."""


Q9_EPISODES = (30, 100, 300)


def q9() -> Iterator[tuple[str, Call]]:
    """The rivals as chosen anew and question 1's ledger, on seeds that question 1 did not use; then with less data."""
    yield "again", Call(BOTH, (*SECOND_RIVALS, LEDGER), seeds=10, first_seed=SECOND_SEED)
    for episodes in Q9_EPISODES:
        changes = changed(f"data_steps={episodes * STEPS}")
        yield f"again-{episodes}", Call(BOTH, SECOND_RIVALS, changes=changes, first_seed=SECOND_SEED)


STUDIES: dict[str, dict[str, Call]] = {
    "q1": {
        "hidden": Call(BOTH, tuple(method for method in Q1_METHODS if method != WHOLE), seeds=10),
        "whole": Call(BOTH, (WHOLE,), seeds=10),
    },
    "q2": dict(q2()),
    "q3": dict(q3()),
    "q4": {"broken": q4()},
    "q5": dict(q5()),
    "q6": {
        "converged": Call(
            PAPERS, ("odt", "ewa-vq-odt", "ledger-odt", "gru:batch_size=4", "bc"), "converged", ("data_steps=200000",)
        )
    },
    "q7": dict(q7()),
    "q8": {
        "targets": Call(
            PAPERS, (PUBLISHED, FOLLOWING), "td3", (*SMALLER, "online_iterations=80"), first_seed=SECOND_SEED
        )
    },
    "q9": dict(q9()),
}
"""By question of the protocol, then by name."""
WITH_PLAYERS = tuple(
    f"evidence/{name}.jsonl.gz"
    for name in (
        "q1-hidden",
        "q9-again",
        "q3-free",
        *(f"q3-arms-{arms}" for arms in ARMS),
        *(f"q3-cells-{3**dim}" for dim in DIMS),
    )
)
"""Packed studies whose tables have players that do not learn, one of each environment."""
CHOICES: dict[str, dict[str, Call]] = {
    "q1": {
        "forms": Call(BOTH, (*LEDGER_FORMS, *GRU_FORMS), seeds=3, first_seed=FIRST_CHOOSING),
        "again": Call(BOTH, (*SECOND_LEDGERS, *SECOND_GRUS), seeds=3, first_seed=FIRST_CHOOSING),
    },
    "q4": {name: replace(call, seeds=2, first_seed=FIRST_CHOOSING) for name, call in STUDIES["q4"].items()},
}
"""What is run on the seeds of choice, by the question that a form is chosen for."""
RIVAL_FORMS: dict[str, dict[str, Sequence[str]]] = {
    "q1-forms": {"ledger": LEDGER_FORMS, "GRU": GRU_FORMS},
    "q1-again": {"ledger": SECOND_LEDGERS, "GRU": SECOND_GRUS},
    "q4-broken": {"ledger": tuple(Q4_LEDGERS), "without": tuple(Q4_WITHOUT)},
}
"""By packed study: of each of these one form is chosen (choosing.py)."""
TITLES = {
    "q1": "Q1. Does a ledger help where only memory helps, on data that it did not make?",
    "q2": "Q2. Does it need less data?",
    "q3": "Q3. Where does it break?",
    "q4": "Q4. The robot with a hidden fault",
    "q5": "Q5. The paper's experiment",
    "q6": "Q6. Where bias and ledger hurt",
    "q7": "Q7. Getting better by acting",
    "q8": "Q8. Asking for what has been reached",
    "q9": "Q9. Does a ledger need a window?",
}
"""As headings of results/evidence/README.md."""
WORDS: dict[str, dict[str, str]] = {
    **dict.fromkeys(("q1", "q2"), Q1_METHODS),
    "q3": SECOND_WORDS
    | {form: f"ledger (K = 1), φ = {phi}" for form, phi in zip(PHI_FORMS, PHIS, strict=True)}
    | {form: f"ledger (K = 1), {codes} codes by k-means" for form, codes in zip(MISFIT_FORMS, MISFITS, strict=True)},
    "q4": Q4_WITHOUT | Q4_LEDGERS,
    "q7": Q7_METHODS | BROKEN_METHODS | BROKEN_NORMALISED | {TD3_EVERY_STEP: "td3 alone, an update for every step"},
    "q8": {FOLLOWING: "ODT, targets that follow the replay buffer", PUBLISHED: "ODT, published targets"},
    "q9": SECOND_WORDS | {LEDGER: "ledger of question 1 (K = 5)"},
}
"""What methods are called in tables, by question; others by their labels."""
STUDY_WORDS: dict[str, dict[str, str]] = {
    f"q7-{task}-200k.jsonl.gz": {TD3_EVERY_STEP: "td3 alone, one layer, an update for every step"}
    for task in EVERY_STEP
}
"""Where a study's form differs from that of the same name in others, by packed file."""
