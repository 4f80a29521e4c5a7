"""What the steps of a run pay into the accounts of its policy: once for all, or anew by the values of critics."""

from mental_accounts.data.annotation import Annotation
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.learning.update import Updater
from mental_accounts.policy import DecisionTransformer


def annotate(store: Trajectories, policy: DecisionTransformer) -> None:
    """Give every step its code and attraction, by the policy's accounts, where it has any."""
    if policy.accounts is not None:
        books, to_unit = policy.accounts.books, policy.action_scale.to_unit
        store.annotate_by(books, to_unit, balances=policy.config.reads_ledger)


def renew_payoffs(store: Trajectories, updater: Updater) -> None:
    """Pay by the values learned so far: the TD errors of all steps are computed anew, and standardised."""
    values, accounts = updater.values, updater.policy.accounts
    assert values is not None
    assert accounts is not None
    values.hand_over_state_value()
    told = (store.observations, store.rewards, store.lengths, store.seen_after)
    amounts = Annotation(accounts.books, None).amounts(*told)
    accounts.books.fit_transform(amounts)
    annotate(store, updater.policy)
