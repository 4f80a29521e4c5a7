"""The state of acting: the last K steps of n environments, their returns-to-go, and their live ledgers.

A recurrent policy has the last step alone, and a memory in which it holds all before.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from mental_accounts.accounts import Books, Entry, Ledger
from mental_accounts.action_masks import checked_masks
from mental_accounts.checks import check_finite, looking_is_free
from mental_accounts.flattening import flatten
from mental_accounts.policy.policy_accounts import PolicyAccounts
from mental_accounts.policy.window import Window
from mental_accounts.policy_options import PolicyConfig
from mental_accounts.spaces import ActionScale

Observations = Tensor | np.ndarray | Mapping[str, Any] | Sequence[Any]
"""(num_envs, state) vectors; or as the environments give them, where their spaces are no flat boxes: a dict or tuple of
entries (num_envs, ...), or a list with one observation for each environment."""


class Context:
    """A rolling window per environment, on the policy's device. Created by `policy.context(...)`.

    Per step: `policy.act(observations, context)`, then `context.record(rewards, ended)`. Where `ended` is True, the
    environment begins a new episode: empty window, full target return, accounts and memory at zero. The next
    observation must then be the new episode's first: with Gymnasium's vector environments use
    `autoreset_mode=AutoresetMode.SAME_STEP` (or reset them yourself), since the default first repeats the old episode's
    last observation.
    """

    def __init__(
        self,
        config: PolicyConfig,
        accounts: PolicyAccounts | None,
        action_scale: ActionScale,
        num_envs: int,
        target_return: float | Sequence[float] | np.ndarray,
        device: torch.device,
    ) -> None:
        if num_envs < 1:
            raise ValueError(f"num_envs must be at least 1, got {num_envs}")
        n, K = num_envs, config.acting_context
        self.config, self.action_scale = config, action_scale
        self.books = None if accounts is None else accounts.books
        self.num_envs = n
        self.target = self._checked_target(target_return, device)
        self.observations = torch.zeros(n, K, config.state_dim, device=device)
        kind = torch.int64 if config.action.is_discrete else torch.float32
        self.actions = action_scale.first.to(device, kind).expand(n, K, *config.action.shape).clone()
        self.returns_to_go = torch.zeros(n, K, device=device)
        self.previous_rewards = torch.zeros(n, K, device=device) if config.reads_rewards else None
        self.previous_observations = torch.zeros_like(self.observations) if config.reads_advantages else None
        self.previous_actions = torch.zeros_like(self.actions) if config.is_recurrent else None
        flags = (n, K, sum(config.action.choices))
        self.action_masks = torch.zeros(flags, device=device, dtype=torch.bool) if config.action_masks else None
        self.memory = torch.zeros(n, config.gru_layers, config.hidden, device=device) if config.is_recurrent else None
        self.timesteps = torch.zeros(n, K, device=device, dtype=torch.int64)
        self.mask = torch.zeros(n, K, device=device, dtype=torch.bool)
        self.return_now = self.target.clone()
        self.reward_now = torch.zeros(n, device=device)
        self.timestep_now = torch.zeros(n, device=device, dtype=torch.int64)
        self.ledger = None if self.books is None else self.books.ledger(n, device)
        if self.books is not None:
            L = config.account_window if self._accounts_are_of_windows else max(K, self.books.reward_delay + 1)
            shape = (n, L, *self.books.code_shape)
            self.codes = torch.zeros(shape, device=device, dtype=torch.int64)
            self.attractions = torch.zeros(shape, device=device)
            self.payoffs = torch.zeros(n, L, device=device)
            self.account_mask = torch.zeros(n, L, device=device, dtype=torch.bool)  # True at real steps
            self.weights = torch.zeros(shape, device=device) if self.books.is_soft else None
            self.balances = torch.zeros(n, K, self.books.ledger_size, device=device) if config.reads_ledger else None
            # Steps that are entered once the state after them is known.
            self.unsettled = torch.zeros(n, device=device, dtype=torch.bool)
            holds_foregone = self.books.foregone and self._accounts_are_of_windows
            self.foregone_payoffs = torch.zeros(n, L, self.books.num_codes, device=device) if holds_foregone else None
        self._awaiting = False

    def restart(self, target_return: float | Sequence[float] | np.ndarray) -> None:
        """Start new episodes in all environments with this target; in place, so that captured graphs stay valid."""
        self.target.copy_(self._checked_target(target_return, self.target.device))
        self.return_now.copy_(self.target)
        self.reward_now.zero_()
        self.timestep_now.zero_()
        for rolling in self._rolling():
            rolling.zero_()
        self.actions.copy_(self.action_scale.first.expand_as(self.actions))
        if self.memory is not None:
            self.memory.zero_()
        if self.ledger is not None:
            self.ledger.reset()
            self.unsettled.zero_()
        self._awaiting = False

    def observe(self, observations: Observations, action_masks: Tensor | np.ndarray | None = None) -> None:
        """Begin a step: shift the window by one; its last step gets the observation and the return-to-go.

        action_masks (num_envs, values): the actions allowed at this step, for a policy of an environment that says so.
        """
        if self._awaiting:
            raise RuntimeError("act was called twice: call context.record(rewards, ended) after every action")
        shape = (self.num_envs, self.config.state_dim)
        if self.config.observation and getattr(observations, "shape", None) != shape:
            observations = flatten(self.config.observation, observations, self.num_envs)
        observed = torch.as_tensor(
            np.asarray(observations) if isinstance(observations, list) else observations, dtype=torch.float32
        )
        if tuple(observed.shape) != shape:
            raise ValueError(
                f"observations must have shape (num_envs = {shape[0]}, state_dim = {shape[1]}), got "
                f"{tuple(observed.shape)}"
            )
        if looking_is_free(observed):
            check_finite("observations", observed)
        allowed = self._checked_masks(action_masks)
        observed = observed.to(self.observations.device)
        self.settle(observed)
        before = None if self.previous_observations is None else self.observations[:, -1].clone()
        for rolling in self._rolling():
            rolling.copy_(rolling.roll(-1, dims=1))
        self.observations[:, -1] = observed
        self.returns_to_go[:, -1] = keep_in_range(self.return_now, self.target, self.config.return_range)
        self.timesteps[:, -1] = self.timestep_now
        self.mask[:, -1] = True
        if self.action_masks is not None and allowed is not None:
            self.action_masks[:, -1] = allowed
        if self.previous_rewards is not None:
            self.previous_rewards[:, -1] = self.reward_now
        if self.previous_observations is not None and before is not None:
            self.previous_observations[:, -1] = before
        if self.previous_actions is not None:
            self.previous_actions.copy_(self.actions)  # of its one step, not chosen anew yet
        if self.books is not None:
            self.account_mask[:, -1] = True
            if self.balances is not None and self.ledger is not None:
                self.balances[:, -1] = self.books.told_by(self.ledger)
        self._awaiting = True

    def settle(self, observed: Tensor | None) -> None:
        """Enter steps whose payoffs depend on the state after them, (num_envs, state_dim); None: nobody knows it."""
        if self.books is None or self.ledger is None or not self.books.looks_ahead:
            return
        entry = Entry(self.codes[:, -1], None if self.weights is None else self.weights[:, -1])
        payoffs = self.books.payoffs(self.reward_now, self.observations[:, -1], observed)
        self.payoffs[:, -1] = payoffs
        self._post(self.ledger, self.books, entry, payoffs, None)
        self.ledger.reset(~self.unsettled)  # where an episode has just begun, there was nothing to enter
        self.unsettled.zero_()

    def window(self) -> Window:
        """The policy's input for the step begun by `observe`; fields not known yet at its last step are not read.

        A context of whole episodes is mostly padding at first: where looking is free, what all have is left out.
        """
        shown = self._whole_window()
        if not self.config.learns_episodes or self.config.is_recurrent or not looking_is_free(self.mask):
            return shown
        return shown.since(int(self.mask.any(dim=0).long().argmax()))

    def _whole_window(self) -> Window:
        plain = Window(
            self.observations,
            self.actions,
            self.returns_to_go,
            self.timesteps,
            self.mask,
            previous_rewards=self.previous_rewards,
            previous_observations=self.previous_observations,
            previous_actions=self.previous_actions,
            action_masks=self.action_masks,
            memory=self.memory,
        )
        if self.books is None:
            return plain
        attractions, balances = self.attractions, self.balances
        if self._accounts_are_of_windows:
            entry = Entry(self.codes, self.weights)
            attractions = self.books.trace(entry, self.payoffs, self.account_mask, self.foregone_payoffs)
            if balances is not None:
                balances = self.books.told_in_windows(entry, self.payoffs, self.account_mask, self.foregone_payoffs)
        K = self.config.acting_context  # accounts may reach further back than the context
        return replace(
            plain,
            attractions=attractions[:, -K:],
            codes=self.codes[:, -K:],
            weights=None if self.weights is None else self.weights[:, -K:],
            balances=None if balances is None else balances[:, -K:],
        )

    def balances_now(self) -> Tensor:
        """All balances before the next step, or before the one that has begun, (num_envs, num_codes)."""
        if self.books is None or self.ledger is None:
            raise ValueError("a policy without accounts has no balances")
        if not self._accounts_are_of_windows:
            return self.ledger.attractions
        if self.codes.shape[1] == 1:  # the next window holds only the next step
            return torch.zeros_like(self.ledger.attractions)
        past = slice(-1) if self._awaiting else slice(1, None)  # `observe` has shifted them already
        entry = Entry(self.codes[:, past], None if self.weights is None else self.weights[:, past])
        foregone = None if self.foregone_payoffs is None else self.foregone_payoffs[:, past]
        return self.books.balances_after_windows(entry, self.payoffs[:, past], self.account_mask[:, past], foregone)

    def remember(self, memory: Tensor) -> None:
        """Keep what a recurrent policy remembers after the step begun by `observe`, (num_envs, layers, hidden)."""
        if self.memory is not None:
            self.memory.copy_(memory)

    def choose(self, actions: Tensor) -> Tensor:
        """Record the chosen actions (in policy units) and return them in the environment's units."""
        in_units = self.action_scale.from_unit(actions)
        self.actions[:, -1] = in_units
        return in_units

    def record(
        self,
        rewards: Tensor | np.ndarray,
        ended: Tensor | np.ndarray,
        actions: Tensor | np.ndarray | None = None,
        foregone: Tensor | np.ndarray | None = None,
    ) -> None:
        """End a step: post the rewards, lower the returns-to-go, and reset where an episode `ended`.

        `actions` are those actually taken, for environments that may replace the agent's actions. `foregone`
        (num_envs, num_codes) are the rewards of all actions at this step, where the accounts enter them.
        """
        if not self._awaiting:
            raise RuntimeError("nothing to record: call policy.act(observations, context) first")
        reward, done = torch.as_tensor(rewards).float(), torch.as_tensor(ended).bool()
        if tuple(reward.shape) != (self.num_envs,) or tuple(done.shape) != (self.num_envs,):
            raise ValueError(
                f"rewards and ended must have shape ({self.num_envs},), got {tuple(reward.shape)} and "
                f"{tuple(done.shape)}"
            )
        if looking_is_free(reward):
            check_finite("rewards", reward)
        reward, done = reward.to(self.mask.device), done.to(self.mask.device)
        if actions is not None:
            self.actions[:, -1] = torch.as_tensor(actions, dtype=self.actions.dtype).to(self.actions.device)
        self.reward_now.copy_(reward)
        self.return_now.sub_(reward).div_(self.config.gamma)
        self.timestep_now.add_(1)
        if self.books is not None and self.ledger is not None:
            state = self.observations[:, -1]
            entry = self.books.route_step(self.action_scale.to_unit(self.actions[:, -1]), state)
            self.codes[:, -1] = entry.codes
            if self.weights is not None and entry.weights is not None:
                self.weights[:, -1] = entry.weights
            if self.books.looks_ahead:
                self.unsettled.fill_(True)
            else:
                self.payoffs[:, -1] = payoffs = self.books.payoffs(reward, state)
                self._post(self.ledger, self.books, entry, payoffs, foregone)
            self.ledger.reset(done)
            self.unsettled.logical_and_(~done)
            self.account_mask.logical_and_(~done.unsqueeze(-1))
        if self.memory is not None:
            self.memory.masked_fill_(done.view(-1, 1, 1), 0.0)
        self.return_now.copy_(torch.where(done, self.target, self.return_now))
        self.timestep_now.masked_fill_(done, 0)
        self.mask.logical_and_(~done.unsqueeze(-1))
        self._awaiting = False

    def _post(
        self,
        ledger: Ledger,
        books: Books,
        entry: Entry,
        payoffs: Tensor,
        foregone: Tensor | np.ndarray | None,
    ) -> None:
        """Enter a step, or the one that its reward belongs to, and keep the attractions of its own codes."""
        if books.foregone:
            paid = books.foregone_payoffs(self._checked_foregone(foregone), self.allowed_now)
            if self.foregone_payoffs is not None:
                self.foregone_payoffs[:, -1] = paid
            self.attractions[:, -1] = books.post(ledger, entry, payoffs, foregone=paid)
        elif not books.reward_delay:
            self.attractions[:, -1] = books.post(ledger, entry, payoffs)
        elif not self._accounts_are_of_windows:  # those of windows are traced anew each time
            place = -1 - books.reward_delay
            late = Entry(self.codes[:, place], None if self.weights is None else self.weights[:, place])
            age = torch.where(self.account_mask[:, place], books.reward_delay, -1)
            books.post(ledger, late, payoffs, age=age)
            self.attractions[:, -1] = ledger.read(entry.codes)

    @property
    def allowed_now(self) -> Tensor | None:
        """The actions allowed at the step begun by `observe`, (num_envs, values); None without masks."""
        return None if self.action_masks is None else self.action_masks[:, -1]

    def _checked_masks(self, masks: Tensor | np.ndarray | None) -> Tensor | None:
        choices = self.config.action.choices
        shape = (self.num_envs, sum(choices))
        if (masks is not None) != self.config.action_masks:
            if masks is None:
                raise ValueError(
                    f"action_masks must say which actions are allowed, shape {shape}, got None: the policy is of an "
                    'environment that gives info["action_mask"]'
                )
            raise ValueError(
                "action_masks must be None for a policy without them; PolicyConfig(action_masks=True) makes one with "
                "them, as training does in an environment that gives them"
            )
        if masks is None or (isinstance(masks, Tensor) and not looking_is_free(masks)):
            return masks
        return torch.from_numpy(checked_masks(masks, choices, self.num_envs)).to(self.mask.device)

    def _checked_foregone(self, foregone: Tensor | np.ndarray | None) -> Tensor:
        shape = (self.num_envs, self.config.action.size)
        values = None if foregone is None else torch.as_tensor(foregone).float()
        if values is None or tuple(values.shape) != shape:
            got = None if values is None else tuple(values.shape)
            raise ValueError(f"foregone must have the reward of every action, shape {shape}, got {got}")
        if looking_is_free(values):
            check_finite("foregone", values)
        return values.to(self.mask.device)

    @property
    def _accounts_are_of_windows(self) -> bool:
        return self.config.accounts.account_scope == "window"

    def _checked_target(self, target_return: float | Sequence[float] | np.ndarray, device: torch.device) -> Tensor:
        target = torch.as_tensor(target_return, dtype=torch.float32, device=device)
        if tuple(target.shape) not in ((), (1,), (self.num_envs,)):
            raise ValueError(
                f"target_return must be one number, or one for each of {self.num_envs} environments, "
                f"got {target_return}"
            )
        if not bool(torch.isfinite(target).all()):
            raise ValueError(f"target_return must be finite, got {target_return}")
        return target.expand(self.num_envs).clone()

    def _rolling(self) -> list[Tensor]:
        """All tensors that shift by one step with every observation."""
        held: list[Tensor | None] = [self.observations, self.actions, self.returns_to_go, self.timesteps, self.mask]
        held += [self.previous_rewards, self.previous_observations, self.action_masks]
        if self.books is not None:
            held += [self.codes, self.attractions, self.payoffs, self.account_mask, self.weights, self.balances]
            held.append(self.foregone_payoffs)
        return [value for value in held if value is not None]


def keep_in_range(returns: Tensor, target: Tensor, bounds: tuple[float, float] | None) -> Tensor:
    """Returns-to-go as a policy reads them: clipped to the bounds, widened to include the target return; (...)."""
    if bounds is None:
        return returns
    low, high = bounds
    return torch.minimum(torch.maximum(returns, target.clamp(max=low)), target.clamp(min=high))
