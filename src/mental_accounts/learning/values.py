"""Learning by value: two critics, averaged networks for their targets, and the gradient that they give the policy.

As TD3 does it (Fujimoto et al., 2018), for a policy over windows as in TD3+ODT (Yan et al., 2024):

    y   = r / scale + γ (1 - terminal) min Q̄(x', a'),   a' by the averaged policy on the window one step later
    L_Q = Σ_i (Q_i(x, a) - y)²,                         over all steps of the windows whose successor is known
    L_π = supervised loss - α Q₁(x, â),                 â a reparameterised action; discrete: Σ_a π(a) Q₁(x, a)

In one update critics and policy learn side by side: the policy follows Q₁ as it was before the critics' steps.

π is over the actions allowed, where there are masks: those forbidden neither count nor are followed.

x is what the policy reads of a step: the state, and its ledger and previous reward where it reads them. With a ledger,
critics of box actions also read what it tells of the surroundings of the action, so that balances lead to actions. If
the policy is recurrent, critics have a recurrent network of their own over the episode so far, and x includes its
state. A step that was cut off by a time limit is not a terminal one: its target has the value of what was seen after
it, where that is known, and it is left out where it is not.

Accounts that are paid by TD errors need the value of a state alone, V(s'): a small network that follows min Q̄(x', a').
"""

import copy
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from itertools import pairwise

import torch
from torch import Tensor, nn

from mental_accounts.accounts import StateValue
from mental_accounts.accounts.state_models import VALUE_WIDTH
from mental_accounts.config import TrainConfig
from mental_accounts.data.windows import Transitions
from mental_accounts.errors import CheckpointError, DivergenceError
from mental_accounts.learning.checkpoint import load_optimizer_tensors, optimizer_tensors, part_of
from mental_accounts.learning.critics import CRITICS, action_values, critics_of, features_of, inputs_of
from mental_accounts.learning.events import Phase
from mental_accounts.learning.objective import Losses, mean_over
from mental_accounts.learning.optimizers import WarmUp, make_optimizer
from mental_accounts.policy import (
    ActionDistribution,
    Categorical,
    DecisionTransformer,
    Window,
    autocast,
    disturbed,
    from_step,
    resolve_precision,
)
from mental_accounts.policy.half_weights import HalfWeights

SUMMED = ("loss", "td_error", "data_mean", "target_mean", "policy_mean")
"""What is summed over updates, in this order."""
EXPLODED = 10.0
"""How many times the largest possible value a mean may be before a run is stopped."""
ADVICE = (
    "lower --values.critic-lr or --values.alpha, let the data choose --values.reward-scale (None), and where a ledger "
    "is read, --model.accounts.reward-transform standardised"
)


class ValueLearner:
    """Critics of a policy, the averages of both, and the sums of what is logged."""

    def __init__(self, policy: DecisionTransformer, config: TrainConfig, reward_scale: float = 1.0) -> None:
        """`reward_scale` is used where the configuration leaves it to the data."""
        options, device = config.values, policy.device
        self.policy, self.options, self.is_discrete = policy, options, policy.config.action.is_discrete
        self.reward_scale = reward_scale if options.reward_scale is None else options.reward_scale
        self.critics = critics_of(policy, options.critic_hidden, layer_norm=options.layer_norm).to(device)
        self.state_value = _value_network(policy.config.state_dim).to(device) if config.pays_td_errors else None
        self.average_policy = copy.deepcopy(policy).requires_grad_(False).eval()
        self.average_critics, self.followed = (copy.deepcopy(self.critics).requires_grad_(False) for _ in range(2))
        learned = nn.ModuleList([self.critics, *([] if self.state_value is None else [self.state_value])])
        self.optimizer = make_optimizer("adamw", learned.parameters(), options.critic_lr, 0.0, device)
        self.annealing = WarmUp(self.optimizer, 1, config.total_updates) if config.anneal else None
        self.alpha, self.imitation = (torch.zeros((), device=device) for _ in range(2))
        self.largest = float("inf")
        """The largest absolute value that rewards allow; a mean far above it is a divergence."""
        self.sums = torch.zeros(len(SUMMED), dtype=torch.float64, device=device)
        self.latest_value = torch.zeros((), device=device)
        self._precision = resolve_precision(device, config.precision)
        transformer = self.average_policy.transformer
        is_half = self._precision == "bf16" and transformer is not None
        self._half = HalfWeights(transformer) if is_half and transformer is not None else None
        self.uncompile()

    def begin(self, phase: Phase, largest_reward: float) -> None:
        """Set the weights of both losses for a phase of learning; and the largest absolute reward so far."""
        options, online = self.options, phase == "online"
        imitates = options.imitate == "always" or (options.imitate == "offline" and not online)
        self.imitation.fill_(float(imitates))
        self.alpha.fill_(options.alpha if online or not imitates else options.pretrain_alpha)
        self.largest = max(largest_reward / self.reward_scale, 1.0) / (1.0 - options.discount)  # rewards may come yet

    def compile(self) -> None:
        """Compile targets and losses. It happens at the next update, which may raise."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # loading the compiler triggers PyTorch's own deprecation warnings
            self._targets: Callable[[Transitions], tuple[Tensor, Tensor, Tensor]] = torch.compile(
                self._compute_targets, dynamic=False
            )
            self._critic_loss: Callable[..., tuple[Tensor, Tensor]] = torch.compile(self._compute_loss, dynamic=False)

    def uncompile(self) -> None:
        """Return to unfused kernels."""
        self._targets, self._critic_loss = self._compute_targets, self._compute_loss

    # One update: the critics' steps, the policy's loss, the averages.

    def learn(self, transitions: Transitions) -> None:
        """The critics' steps of one update, each on its own part of the windows."""
        with self._fast_products():
            self._learn(transitions)

    @contextmanager
    def _fast_products(self) -> Iterator[None]:
        """On a GPU, unless float32 is asked for: the critics' products on its matrix units, in TF32 (but for GRUs)."""
        before = torch.get_float32_matmul_precision()
        is_wanted = self.policy.device.type == "cuda" and self._precision == "bf16"
        torch.set_float32_matmul_precision("high" if is_wanted else before)
        try:
            yield
        finally:
            torch.set_float32_matmul_precision(before)

    def _learn(self, transitions: Transitions) -> None:
        with torch.no_grad(), nullcontext() if self._half is None else self._half.in_place():
            inputs, targets, ahead = self._targets(transitions)
        actions, known = self.policy.unit_actions(transitions.now), transitions.known
        steps, B = min(self.options.critic_updates, len(targets)), len(targets)
        for i in range(steps):
            part = slice(i * B // steps, (i + 1) * B // steps)
            self.optimizer.zero_grad(set_to_none=True)
            window = transitions.now[part]
            loss, noted = self._critic_loss(window, inputs[part], actions[part], targets[part], known[part])
            if self.state_value is not None:
                loss = loss + self._state_loss(self.state_value, transitions, targets, ahead, part)
            loss.backward()
            self.optimizer.step()
            self.sums[: len(noted)].add_(noted, alpha=1.0 / steps)
        if self.annealing is not None:
            self.annealing.advance()
        self.latest_value.copy_(noted[2])

    def policy_loss(self, predicted: ActionDistribution, window: Window) -> tuple[Tensor, Tensor]:
        """-α Q₁ of the policy's own actions, and the mean of Q₁."""
        with torch.no_grad():
            features = features_of(self.policy, self.followed, window)
        if isinstance(predicted, Categorical):
            values = predicted.expected(self.followed.first(features).detach())
        else:
            values = self.followed.first(inputs_of(self.policy, features, predicted.sample())).squeeze(-1)
        mean = mean_over(values, window.counted)
        weight = self.alpha
        if self.options.normalised:
            weight = weight / mean_over(values.detach().abs(), window.counted).clamp(min=1e-6)
        return -weight * mean, mean.detach()

    def supervised(self, losses: Losses) -> Tensor:
        """The supervised loss; where the policy does not imitate, only the entropy's part of it is left."""
        if losses.constraint is None:
            return self.imitation * losses.loss
        return losses.constraint + self.imitation * (losses.loss - losses.constraint)

    @torch.no_grad()
    def follow(self, policy_value: Tensor) -> None:
        """Move the averages towards the networks, and note the value of the policy's actions."""
        self.sums[-1].add_(policy_value)
        for average, network in self._averaged():
            torch._foreach_lerp_(list(average.parameters()), list(network.parameters()), self.options.tau)
        self.hold_critics()

    @torch.no_grad()
    def hold_critics(self) -> None:
        """Let the policy follow the critics as they are now."""
        torch._foreach_copy_(list(self.followed.parameters()), list(self.critics.parameters()))

    @torch.no_grad()
    def restart_averages(self) -> None:
        """Copy the networks afresh, fitted statistics included."""
        for average, network in self._averaged():
            average.load_state_dict(network.state_dict())

    def _averaged(self) -> list[tuple[nn.Module, nn.Module]]:
        return [(self.average_policy, self.policy), (self.average_critics, self.critics)]

    def _compute_targets(self, transitions: Transitions) -> tuple[Tensor, Tensor, Tensor]:
        """What the policy reads of each step, (B, K, features), the targets, and the values one step later, (B, K)."""
        options, now = self.options, transitions.now
        assert now.rewards is not None
        with autocast(self.policy.device, self._precision):
            following = from_step(transitions.lead, self.average_policy(transitions.following))
        features = features_of(self.average_policy, self.average_critics, transitions.following)[:, transitions.lead :]
        if isinstance(following, Categorical):
            value = following.expected(self.average_critics(features).amin(dim=0))  # of (B, K, n)
        else:
            action = self.policy.config.action
            smoothed = disturbed(following.sample(), options.target_noise, action, clip=options.target_noise_clip)
            value = self.average_critics(inputs_of(self.policy, features, smoothed)).amin(dim=0).squeeze(-1)
        value = torch.where(transitions.known & ~transitions.terminal, value, 0.0)
        targets = now.rewards / self.reward_scale + options.discount * value
        return self.policy.step_features(now), targets, value

    def _compute_loss(
        self, window: Window, inputs: Tensor, actions: Tensor, targets: Tensor, known: Tensor
    ) -> tuple[Tensor, Tensor]:
        """The critics' loss on steps (B, K), and what is logged of it, in the order of SUMMED."""
        features = features_of(self.policy, self.critics, window, inputs)
        values = action_values(self.policy, self.critics, features, actions)  # (2, B, K)
        errors = values - targets
        loss = CRITICS * mean_over(errors.square(), known.expand_as(errors))
        seen = (errors[0].abs(), values[0], targets)
        return loss, torch.stack([loss, *(mean_over(each, known) for each in seen)]).detach()

    def _state_loss(
        self, network: nn.Module, transitions: Transitions, targets: Tensor, ahead: Tensor, part: slice
    ) -> Tensor:
        """The squared error of V: `ahead` (B, K) at states that follow others, `targets` (B, K) at first ones."""
        now, following, known = transitions.now, transitions.following, transitions.known
        states = torch.cat([following.observations[part], now.observations[part]])
        where = torch.cat([(known & ~transitions.terminal)[part], (known & (now.timesteps == 0))[part]])
        found = network(self._state_model().standardised(states)).squeeze(-1)
        return mean_over((found - torch.cat([ahead[part], targets[part]])).square(), where)

    def _state_model(self) -> StateValue:
        """V as the accounts hold it."""
        assert self.policy.accounts is not None
        model = self.policy.accounts.books.baseline
        assert isinstance(model, StateValue)
        return model

    @torch.no_grad()
    def hand_over_state_value(self) -> None:
        """Give the policy's accounts the V that has been learned so far."""
        if self.state_value is None:
            return
        layers = [layer for layer in self.state_value if isinstance(layer, nn.Linear)]
        weights, biases = [layer.weight for layer in layers], [layer.bias for layer in layers]
        self._state_model().copy_from(weights, biases, self.options.discount, self.reward_scale)

    def of_data(self, window: Window) -> Tensor:
        """Q₁ of the actions in windows: (B, K)."""
        features, actions = features_of(self.policy, self.critics, window), self.policy.unit_actions(window)
        return action_values(self.policy, self.critics, features, actions)[0]

    # Between updates.

    def check(self) -> None:
        """Raise if values are not finite, or far beyond what any rewards could add up to."""
        learned = [value for module in self._modules().values() for value in module.parameters()]
        norms = torch.stack([value.detach().norm() for value in learned])
        if not bool(torch.isfinite(self.sums).all()) or not bool(torch.isfinite(norms).all()):
            raise DivergenceError(f"the critics' values are no longer finite: training diverged; {ADVICE}")
        latest = float(self.latest_value.abs())
        if latest > EXPLODED * self.largest:
            raise DivergenceError(
                f"the critics' values explode: their mean is {latest:.3g}, but rewards so far cannot add up to more "
                f"than {self.largest:.3g} (of rewards divided by {self.reward_scale:.3g}); {ADVICE}"
            )

    def drain(self, updates: int) -> dict[str, float]:
        """The means over the updates since the last call, as metrics, in the environment's units of reward."""
        means = dict(zip(SUMMED, (self.sums / updates).tolist(), strict=True))
        self.sums.zero_()
        return {f"values/{name}": mean if name == "loss" else mean * self.reward_scale for name, mean in means.items()}

    def tensors(self) -> dict[str, Tensor]:
        """All tensors to save, by name."""
        found = {
            f"values.{part}.{name}": value
            for part, module in self._modules().items()
            for name, value in module.state_dict().items()
        }
        found |= optimizer_tensors("values.optimizer", self.optimizer)
        if self.annealing is not None:
            found["values.annealing.updates"] = self.annealing.updates
        return found | {"values.sums": self.sums, "values.latest_value": self.latest_value}

    def load_tensors(self, tensors: dict[str, Tensor]) -> None:
        """The inverse of `tensors`."""
        if self.critics.recurrent is not None and not part_of(tensors, "values.critics.recurrent."):
            raise CheckpointError(
                "the run's critics see single steps, as those of gru did in earlier versions; now they read episodes: "
                "start another run"
            )
        for name, module in self._modules().items():
            module.load_state_dict(part_of(tensors, f"values.{name}."))
        self.hold_critics()
        load_optimizer_tensors("values.optimizer", self.optimizer, tensors)
        if self.annealing is not None:
            self.annealing.load_state_dict({"updates": tensors["values.annealing.updates"]})
        self.sums.copy_(tensors["values.sums"])
        self.latest_value.copy_(tensors["values.latest_value"])

    def _modules(self) -> dict[str, nn.Module]:
        found: dict[str, nn.Module] = {"critics": self.critics, "average_critics": self.average_critics}
        found["average_policy"] = self.average_policy
        return found if self.state_value is None else found | {"state_value": self.state_value}


def _value_network(state_dim: int) -> nn.Sequential:
    """The network of V(s), as `StateValue` holds it; it starts at 0."""
    sizes = [state_dim, VALUE_WIDTH, VALUE_WIDTH, 1]
    linear = [nn.Linear(wide, narrow) for wide, narrow in pairwise(sizes)]
    nn.init.zeros_(linear[-1].weight)
    nn.init.zeros_(linear[-1].bias)
    return nn.Sequential(linear[0], nn.ReLU(), linear[1], nn.ReLU(), linear[2])


def reward_size(rewards: Tensor) -> float:
    """The root mean square of rewards, (N,); 1 if all are 0."""
    size = float(rewards.double().square().mean().sqrt())
    return size if size > 0 else 1.0
