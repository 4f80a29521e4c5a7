"""Models of the state: clusters that each have accounts of their own, and what a reward is compared with."""

from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor

from mental_accounts.accounts.nearest import fit_centers, nearest_center
from mental_accounts.accounts.precision import FullPrecisionModule, full_precision, without_autocast
from mental_accounts.checks import check_count, check_finite, check_positive, looking_is_free
from mental_accounts.standardising import spread

FIT_STATES = 50_000
"""States that clusters are fitted on; more of them hardly move the centres."""
FARTHEST = 10.0
"""Standardised states are clipped to ± this: outside the data, a model is not to be trusted."""
VALUE_WIDTH = 64
"""Width of the two hidden layers of a value function."""


class StateCodes(FullPrecisionModule):
    """Clusters of standardised states, fitted on data: maps a state to its cluster."""

    mean: Tensor
    std: Tensor
    centers: Tensor

    def __init__(self, num_clusters: int, state_dim: int) -> None:
        super().__init__()
        check_count("num_clusters", num_clusters, 1)
        self.register_buffer("mean", torch.zeros(state_dim))
        self.register_buffer("std", torch.ones(state_dim))
        self.register_buffer("centers", torch.full((num_clusters, state_dim), torch.nan))

    def fit(self, states: Tensor, seed: int = 0) -> None:
        """Fit the centres to states (N, state_dim)."""
        check_finite("states", states)
        chosen = states
        if len(states) > FIT_STATES:
            order = torch.randperm(len(states), generator=torch.Generator().manual_seed(seed))[:FIT_STATES]
            chosen = states[order.to(states.device)]
        values = chosen.detach().double()
        self.mean.copy_(values.mean(dim=0))
        self.std.copy_(spread(values))
        points = (values - self.mean.double().to(values.device)) / self.std.double().to(values.device)
        self.centers.copy_(fit_centers(points, len(self.centers), seed, "states"))

    def forward(self, states: Tensor) -> Tensor:
        """(..., state_dim) -> (...) int64."""
        if looking_is_free(self.centers) and not bool(torch.isfinite(self.centers[0, 0])):
            raise ValueError("these clusters of states have no centres yet: fit the accounts on data first")
        return nearest_center((full_precision(states) - self.mean) / self.std, self.centers)


class StateBaseline(FullPrecisionModule):
    """The expected reward in a state: a ridge regression on the standardised state and its squares, fitted on data."""

    mean: Tensor
    std: Tensor
    coefficients: Tensor

    looks_ahead = False

    def __init__(self, state_dim: int, ridge: float = 1e-3) -> None:
        super().__init__()
        self.ridge = check_positive("ridge", ridge)
        self.register_buffer("mean", torch.zeros(state_dim))
        self.register_buffer("std", torch.ones(state_dim))
        self.register_buffer("coefficients", torch.zeros(2 * state_dim + 1))

    def fit(self, states: Tensor, rewards: Tensor) -> None:
        """Regress rewards (N,) on states (N, state_dim)."""
        values = states.detach().double()
        self.mean.copy_(values.mean(dim=0))
        self.std.copy_(spread(values))
        features = self._features(values)
        gram = features.T @ features / len(values)
        gram += self.ridge * torch.eye(len(gram), dtype=gram.dtype, device=gram.device)
        moment = features.T @ rewards.detach().double().to(values.device) / len(values)
        self.coefficients.copy_(torch.linalg.solve(gram, moment))

    @without_autocast
    def forward(self, states: Tensor) -> Tensor:
        """(..., state_dim) -> (...)."""
        return self._features(full_precision(states)) @ self.coefficients.to(full_precision(states).dtype)

    def excess(self, rewards: Tensor, states: Tensor, following: Tensor) -> Tensor:
        """How far rewards (...) are above what states (..., state_dim) let expect; what follows does not matter."""
        expected: Tensor = self(states)
        return full_precision(rewards) - expected

    def _features(self, states: Tensor) -> Tensor:
        z = ((states - self.mean.to(states.dtype)) / self.std.to(states.dtype)).clamp(-FARTHEST, FARTHEST)
        return torch.cat([torch.ones_like(z[..., :1]), z, z.square()], dim=-1)


class StateValue(FullPrecisionModule):
    """V(s), the value of a state: an MLP that critics have learned. It is copied from them; until then it is 0.

    What is posted is the TD error r + γ V(s') - V(s).
    """

    mean: Tensor
    std: Tensor
    gamma: Tensor
    scale: Tensor

    looks_ahead = True

    def __init__(self, state_dim: int) -> None:
        super().__init__()
        self.register_buffer("mean", torch.zeros(state_dim))
        self.register_buffer("std", torch.ones(state_dim))
        self.register_buffer("gamma", torch.zeros(()))
        self.register_buffer("scale", torch.ones(()))
        sizes = [state_dim, VALUE_WIDTH, VALUE_WIDTH, 1]
        self._layers = len(sizes) - 1
        for place in range(self._layers):
            self.register_buffer(f"weight_{place}", torch.zeros(sizes[place + 1], sizes[place]))
            self.register_buffer(f"bias_{place}", torch.zeros(sizes[place + 1]))

    def fit(self, states: Tensor, rewards: Tensor) -> None:
        """Standardise states (N, state_dim). The values themselves are learned elsewhere: see `copy_from`."""
        values = states.detach().double()
        self.mean.copy_(values.mean(dim=0))
        self.std.copy_(spread(values))

    @torch.no_grad()
    def copy_from(self, weights: Sequence[Tensor], biases: Sequence[Tensor], gamma: float, scale: float) -> None:
        """Take over an MLP on standardised states, with γ, and the unit of its values in rewards."""
        for place, (weight, bias) in enumerate(zip(weights, biases, strict=True)):
            self.get_buffer(f"weight_{place}").copy_(weight)
            self.get_buffer(f"bias_{place}").copy_(bias)
        self.gamma.fill_(gamma)
        self.scale.fill_(scale)

    def standardised(self, states: Tensor) -> Tensor:
        """What the MLP reads: (..., state_dim) -> (..., state_dim)."""
        return ((full_precision(states).float() - self.mean) / self.std).clamp(-FARTHEST, FARTHEST)

    @without_autocast
    def forward(self, states: Tensor) -> Tensor:
        """(..., state_dim) -> (...), in units of reward; in full precision, since TD errors are small differences."""
        x = self.standardised(states)
        for place in range(self._layers):
            x = F.linear(x, self.get_buffer(f"weight_{place}"), self.get_buffer(f"bias_{place}"))
            x = F.relu(x) if place < self._layers - 1 else x
        return x.squeeze(-1) * self.scale

    def excess(self, rewards: Tensor, states: Tensor, following: Tensor) -> Tensor:
        """The TD errors of steps: rewards (...), states and those after them (..., state_dim)."""
        errors: Tensor = full_precision(rewards) + self.gamma * self(following) - self(states)
        return errors
