"""The acting step as a pure function of tensors: `policy.act` and `context.record`, without a Context.

    action, *new_state = step(observation, reward, ended, target_return, *state)

After `target_return` comes `action_mask`, the actions allowed now, if the environment gives masks; then `foregone`, the
rewards of all actions at the previous step, if the policy enters foregone payoffs.
`reward` and `ended` are the result of the previous action. At the first step of an episode `ended` is True: accounts,
window and return-to-go are then reset, whatever the state holds. So the first state may be all zeros.
"""

import copy

import torch
from torch import Tensor, nn

from mental_accounts.policy import Context, DecisionTransformer

LEDGER = "ledger_"
"""Prefix of the names of a ledger's tensors."""


class ActingStep(nn.Module):
    """The acting step of a policy for `num_envs` environments at once, with the mean action."""

    def __init__(self, policy: DecisionTransformer, num_envs: int) -> None:
        super().__init__()
        self.policy = policy
        self._template = policy.context(num_envs, 0.0)
        self.state_names = tuple(self.first_state())

    def first_state(self) -> dict[str, Tensor]:
        """The initial state, by name: the tensors of a context, except those this policy never reads."""
        config, accounts = self.policy.config, self.policy.config.accounts
        names = ["observations", "actions", "returns_to_go", "timesteps", "mask", "return_now", "timestep_now"]
        if config.is_recurrent:  # its window is the step alone
            names = ["actions", *(["return_now"] if config.reads_returns else []), "timestep_now", "memory"]
            names += ["observations"] if config.reads_advantages else []
        elif config.reads_rewards:
            names += ["previous_rewards", "reward_now", *(["previous_observations"] if config.reads_advantages else [])]
        names += ["action_masks"] if config.action_masks and config.enters_foregone else []
        of_windows = accounts.account_scope == "window"
        if config.has_accounts:
            names += ["payoffs", "codes", "account_mask"] if of_windows else ["attractions"] if config.has_bias else []
            names += ["codes"] if (accounts.read == "now" or accounts.reward_delay) and not of_windows else []
            names += ["account_mask"] if accounts.reward_delay and not of_windows else []
            reads_weights = of_windows or config.has_bias or accounts.reward_delay
            names += ["weights"] if accounts.soft_codes > 1 and reads_weights else []
            names += ["foregone_payoffs"] if accounts.foregone and of_windows else []
            names += ["balances"] if config.reads_ledger and not of_windows else []
        state = {name: getattr(self._template, name).clone() for name in names}
        if self._template.ledger is not None and not of_windows:
            state |= {f"{LEDGER}{name}": held.clone() for name, held in self._template.ledger.named_buffers()}
        return state

    @property
    def inputs(self) -> dict[str, Tensor]:
        """What comes before the state, by name, as at the first step of an episode."""
        n, config = self._template.num_envs, self.policy.config
        found = {"observation": torch.zeros(n, config.state_dim), "reward": torch.zeros(n)}
        found |= {"ended": torch.ones(n, dtype=torch.bool), "target_return": torch.zeros(n)}
        if config.action_masks:
            found["action_mask"] = torch.ones(n, sum(config.action.choices), dtype=torch.bool)
        return found | ({"foregone": torch.zeros(n, config.action.size)} if config.enters_foregone else {})

    def forward(
        self, observation: Tensor, reward: Tensor, ended: Tensor, target_return: Tensor, *rest: Tensor
    ) -> tuple[Tensor, ...]:
        """(n, state_dim), (n,), (n,) bool, (n,) and the state -> actions (n, dim) or (n,), and the new state.

        Masks (n, values) bool and foregone rewards (n, actions) come before the state, where the policy needs them.
        """
        values = list(rest)
        masks = values.pop(0) if self.policy.config.action_masks else None
        foregone = values.pop(0) if self.policy.config.enters_foregone else None
        context = self._context(target_return, dict(zip(self.state_names, values, strict=True)))
        context.record(reward, ended, foregone=foregone)
        action = self.policy.choose(observation, context, action_masks=masks)
        return (action, *(self._part(context, name) for name in self.state_names))

    def _context(self, target_return: Tensor, state: dict[str, Tensor]) -> Context:
        """A context in the middle of an episode: waiting for the result of its last action."""
        context = copy.copy(self._template)
        context.target = target_return
        for name, value in vars(self._template).items():
            if isinstance(value, Tensor) and name != "target":
                setattr(context, name, state.get(name, value).clone())
        if context.books is not None:
            context.ledger = context.books.ledger(context.num_envs, target_return.device)
            for name, value in state.items():
                if name.startswith(LEDGER):
                    setattr(context.ledger, name.removeprefix(LEDGER), value.clone())
        context._awaiting = True
        return context

    @staticmethod
    def _part(context: Context, name: str) -> Tensor:
        held = context.ledger if name.startswith(LEDGER) else context
        part: Tensor = getattr(held, name.removeprefix(LEDGER))
        return part
