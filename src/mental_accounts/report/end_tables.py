"""Tables of a report about the end of its runs: what their accounts held, and what their critics said."""

from collections.abc import Mapping, Sequence

from mental_accounts.report.analysis import Scores
from mental_accounts.report.page import Named, Table

OVERESTIMATION = "values/overestimation"


def account_table(scores: Sequence[Scores], name: str) -> list[Table]:
    """What the accounts held, and how far they moved attention; empty if no method has accounts."""
    known = {
        "accounts/drift_mean": "mean drift",
        "accounts/drift_max": "largest drift",
        "accounts/drift_bound": "bound of the drift",
        "accounts/bias_max": "largest bias",
        "accounts/codes_used": "codes used",
        "accounts/attraction_min": "lowest balance",
        "accounts/attraction_max": "highest balance",
        "accounts/beta": "β",
    }
    ends = {score.method: score.accounts for score in scores if score.accounts}
    has_drift = any("accounts/drift_mean" in end for end in ends.values())
    caption = "Accounts at the end, averaged over seeds" + (
        ": how far the bias moves attention (total variation), and its bound." if has_drift else "."
    )
    return _end_table(ends, known, caption, f"accounts-{name}")


def value_table(scores: Sequence[Scores], name: str) -> list[Table]:
    """What the critics said, and how far they were off; empty if no method has critics."""
    known = {
        "values/policy_mean": "policy's value",
        "values/td_error": "TD error",
        OVERESTIMATION: "overestimation",
        "values/gradient_share": "critics' share of the gradient",
    }
    caption = (
        "Values at the end, averaged over seeds, in the environment's units of reward: what the critics say of the "
        "policy's own actions, their mean absolute TD error, and how far they are above (+) or below (−) the "
        "discounted returns that came; and how much of the policy's gradient is theirs."
    )
    return _end_table(
        {score.method: score.values for score in scores if score.values}, known, caption, f"values-{name}"
    )


def _end_table(
    ends: Mapping[str, Mapping[str, float]], known: Mapping[str, str], caption: str, name: str
) -> list[Table]:
    """The last metrics of each method, those that are known and there, in columns with their titles; none: no table."""
    columns = [key for key in known if any(key in end for end in ends.values())]
    rows = [
        [method, *(_number(end.get(key), signed=key == OVERESTIMATION) for key in columns)]
        for method, end in ends.items()
    ]
    return [Table(["method", *(Named(known[key], key) for key in columns)], rows, caption, name=name)] if ends else []


def _number(value: float | None, *, signed: bool = False) -> str:
    if value is None:
        return "–"
    return f"{value:+.3g}".replace("-", "−") if signed else f"{value:.3g}"
