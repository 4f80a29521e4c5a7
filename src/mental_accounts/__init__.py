"""Mental accounts for transformer policies (EWA-VQ-ODT).

A transformer policy keeps an account of each kind of action (how well it has paid off recently) and lets the balances
bias its attention. The main functions:

    run = ma.train(env=MyEnv, callbacks=[stop_early])       # or data="hopper-medium", a file, ma.Trajectories
    run.returns, run.policy, run.folder                     # the results
    ma.evaluate(run, episodes=20).return_mean
    ma.resume(run.folder)                                   # continues exactly where it stopped
    ma.compare("hopper-medium", seeds=5).headlines

The whole data flow of the accounts, one call a line:

    book = ma.GridCodebook(dim=3, bins=3)                   # 27 kinds of action
    codes = book.route(actions)                             # action -> code
    rewards = ma.RewardTransform.fit(rewards)(rewards)      # reward -> payoff in [-1, 1]
    rule = ma.EWA(phi=0.05, delta=0.8)
    A = rule.trace(codes, rewards)                          # offline: the attraction of each step's own code
    ledger = rule.ledger(book.num_codes, batch_shape=(8,))  # online: the accounts of 8 actors
    a = ledger.post(codes[:, 0], rewards[:, 0])             #   ... the same numbers, step by step
    bias = ma.column_bias(A[:, -20:], beta=0.05)            # (B, 1, 1, 3K), added to the attention logits
"""

from typing import TYPE_CHECKING

from mental_accounts.lazy_names import on_first_use

if TYPE_CHECKING:
    from mental_accounts.account_options import AccountsConfig
    from mental_accounts.accounts import (
        EWA,
        BiasScale,
        CanonicalEWA,
        CanonicalLedger,
        DiscreteCodebook,
        GridCodebook,
        HierarchicalCodebook,
        KMeansCodebook,
        Ledger,
        ProductCodebook,
        RewardTransform,
        attention_drift,
        column_bias,
        drift_bound,
        now_bias,
        paper_drift_bound,
        range_drift_bound,
    )
    from mental_accounts.action_spec import ActionSpec
    from mental_accounts.config import TrainConfig
    from mental_accounts.data.tasks import load_task
    from mental_accounts.data.trajectories import Trajectories
    from mental_accounts.errors import CallbackError, UsageError
    from mental_accounts.front_door.compare import compare
    from mental_accounts.front_door.evaluate import Evaluation, evaluate
    from mental_accounts.front_door.run import Run
    from mental_accounts.front_door.train import resume, train
    from mental_accounts.learning.callbacks import STOP
    from mental_accounts.learning.events import (
        CheckpointWritten,
        EvaluationEnded,
        Event,
        ExplorationEnded,
        IterationEnded,
        Message,
        RunBegan,
        RunEnded,
        StageBegan,
        StepDone,
        UpdateDone,
    )
    from mental_accounts.policy import DecisionTransformer
    from mental_accounts.policy_options import ModelConfig, PolicyConfig

__version__ = "0.2.0.dev0"
"""The version of the package."""

__all__ = [
    "EWA",
    "STOP",
    "AccountsConfig",
    "ActionSpec",
    "BiasScale",
    "CallbackError",
    "CanonicalEWA",
    "CanonicalLedger",
    "CheckpointWritten",
    "DecisionTransformer",
    "DiscreteCodebook",
    "Evaluation",
    "EvaluationEnded",
    "Event",
    "ExplorationEnded",
    "GridCodebook",
    "HierarchicalCodebook",
    "IterationEnded",
    "KMeansCodebook",
    "Ledger",
    "Message",
    "ModelConfig",
    "PolicyConfig",
    "ProductCodebook",
    "RewardTransform",
    "Run",
    "RunBegan",
    "RunEnded",
    "StageBegan",
    "StepDone",
    "TrainConfig",
    "Trajectories",
    "UpdateDone",
    "UsageError",
    "__version__",
    "attention_drift",
    "column_bias",
    "compare",
    "drift_bound",
    "evaluate",
    "load_task",
    "now_bias",
    "paper_drift_bound",
    "range_drift_bound",
    "resume",
    "train",
]

_HOMES = {
    "AccountsConfig": "account_options",
    "ActionSpec": "action_spec",
    "ModelConfig PolicyConfig": "policy_options",
    "TrainConfig": "config",
    "CallbackError UsageError": "errors",
    "DecisionTransformer": "policy",
    "STOP": "learning.callbacks",
    "CheckpointWritten EvaluationEnded Event ExplorationEnded IterationEnded Message RunBegan RunEnded StageBegan "
    "StepDone UpdateDone": "learning.events",
    "Evaluation evaluate": "front_door.evaluate",
    "Run": "front_door.run",
    "Trajectories": "data.trajectories",
    "compare": "front_door.compare",
    "load_task": "data.tasks",
    "resume train": "front_door.train",
}
"""Names -> the modules that define them; all others are in `accounts`."""

__getattr__ = on_first_use(  # training needs Gymnasium and comparing matplotlib; most programs need neither
    __name__,
    dict.fromkeys(__all__, "accounts") | {name: home for names, home in _HOMES.items() for name in names.split()},
)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
