"""How a run ended, compared with the data it has learned from."""

from dataclasses import dataclass

from mental_accounts.data.description import Statistics
from mental_accounts.policy_options import PolicyConfig
from mental_accounts.return_text import return_text


@dataclass(frozen=True)
class Ending:
    """The returns of the last evaluation."""

    last: float
    """With the most likely action (continuous: the mean)."""
    data_mean: float
    """The data's."""
    sampled: float | None = None
    """With sampled actions, if that was evaluated."""

    @property
    def is_better_sampled(self) -> bool:
        """Whether sampled actions earn at least half of what the most likely ones lack."""
        lacking = self.data_mean - self.last
        return self.sampled is not None and lacking > 0 and self.sampled - self.last >= lacking / 2

    def warning(self, data: Statistics, policy: PolicyConfig) -> str | None:
        """What to say of a policy that ends far below its data; None where it does not."""
        margin = max(data.return_std, 0.05 * abs(data.return_mean))
        if self.last >= data.return_mean - margin:
            return None
        usual, is_discrete = "mean" if policy.action.kind == "box" else "most likely", policy.action.kind != "box"
        last, mean = return_text(self.last), return_text(data.return_mean)
        far = f"the last return, {last}, is far below the data's mean of {mean}"
        if self.sampled is not None and self.is_better_sampled:
            return (
                f"{far}, but sampled actions earn {return_text(self.sampled)}: play with evaluate --sample (in Python: "
                f"sample=True); always taking the {usual} action, a policy never explores as its data do"
            )
        advice = []
        if is_discrete and self.sampled is None:
            advice.append(
                "evaluate --sample (in Python: sample=True), since the most likely action never explores as the data "
                "may do"
            )
        advice.append("more updates")
        if policy.method != "bc":
            advice.append("AdamW without dropout (as preset quick has)")
            advice.append("--method bc to see how far cloning goes")
        return f"{far}: try {'; '.join(advice)}"
