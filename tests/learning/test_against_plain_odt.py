"""Learning agrees with an Online Decision Transformer written independently in plain PyTorch."""

import math
import random

import numpy as np
import pytest
import torch
from torch import nn

from mental_accounts.action_spec import ActionSpec
from mental_accounts.config import TrainConfig
from mental_accounts.data.trajectories import Trajectories
from mental_accounts.learning.update import Updater
from mental_accounts.policy import DecisionTransformer, Window
from mental_accounts.policy_options import PolicyConfig

from .conftest import aim_data

K, B, UPDATES, LR = 5, 32, 500, 1e-3
CONFIG = PolicyConfig(
    state_dim=1, action=ActionSpec("box", 1, (-1.0,), (1.0,)), method="odt", hidden=24, layers=2, heads=2, dropout=0.0,
    context_length=K, max_timestep=12, return_scale=0.1, likelihood="squashed",
)  # fmt: skip
TRAIN = TrainConfig(
    task=None, env_id="-", method="odt", optimizer="adamw", lr=LR, warmup_updates=50, precision="float32"
)


class PlainODT(nn.Module):
    """All tokens through PyTorch's own encoder layers; the action distribution from torch.distributions."""

    def __init__(self, mean: np.ndarray, std: np.ndarray) -> None:
        super().__init__()
        h = CONFIG.hidden
        self.mean, self.std = torch.from_numpy(mean), torch.from_numpy(std)
        self.g, self.s, self.a = nn.Linear(1, h), nn.Linear(1, h), nn.Linear(1, h)
        self.time = nn.Embedding(CONFIG.max_timestep, h)
        self.norm = nn.LayerNorm(h)
        layer = nn.TransformerEncoderLayer(h, CONFIG.heads, 4 * h, dropout=0.0, batch_first=True, norm_first=True)
        self.encoder = nn.TransformerEncoder(layer, CONFIG.layers, norm=nn.LayerNorm(h), enable_nested_tensor=False)
        self.mu, self.log_std = nn.Linear(h, 1), nn.Linear(h, 1)
        for name, p in self.named_parameters():  # ODT's: the maps of the inputs keep PyTorch's own
            if name.startswith(("g.", "s.", "a.", "time.")):
                continue
            if p.ndim > 1:
                nn.init.orthogonal_(p) if name.startswith(("mu", "log_std")) else nn.init.normal_(p, std=0.02)
            elif "norm" not in name:
                nn.init.zeros_(p)

    def forward(self, batch: dict[str, torch.Tensor]) -> torch.distributions.Distribution:
        time = self.time(batch["timesteps"])
        parts = [
            self.g(batch["returns_to_go"][..., None] * CONFIG.return_scale) + time,
            self.s((batch["observations"] - self.mean) / self.std) + time,
            self.a(batch["actions"]) + time,
        ]
        tokens = self.norm(torch.stack(parts, dim=2).reshape(len(time), 3 * K, -1))
        # A padded token may look at itself, nobody else may: a mask of its own for every window.
        there = batch["mask"].repeat_interleave(3, dim=1)
        seen = torch.ones(3 * K, 3 * K, dtype=torch.bool).tril() & (
            there[:, None, :] | torch.eye(3 * K, dtype=torch.bool)
        )
        out = self.encoder(tokens, mask=(~seen).repeat_interleave(CONFIG.heads, dim=0))[:, 1::3]
        log_std = -5 + 3.5 * (torch.tanh(self.log_std(out)) + 1)
        normal = torch.distributions.Normal(self.mu(out), log_std.exp())
        return torch.distributions.TransformedDistribution(normal, torch.distributions.TanhTransform(cache_size=1))

    def copy_from(self, policy: DecisionTransformer) -> None:
        w = policy.state_dict()
        self.mean, self.std = w["state_mean"], w["state_std"]

        def put(target: nn.Module, name: str) -> None:
            target.weight.data.copy_(w[f"{name}.weight"])
            target.bias.data.copy_(w[f"{name}.bias"])

        for target, name in [(self.g, "return"), (self.s, "state"), (self.a, "action")]:
            put(target, f"embedding.embed_{name}")
        self.time.weight.data.copy_(w["embedding.embed_timestep.weight"])
        put(self.norm, "embedding.norm")
        put(self.encoder.norm, "transformer.norm")
        put(self.mu, "head.mean")
        put(self.log_std, "head.log_std")
        for i, layer in enumerate(self.encoder.layers):
            at = f"transformer.blocks.{i}"
            for kind in ("weight", "bias"):
                joined = torch.cat([w[f"{at}.attention.query.{kind}"], w[f"{at}.attention.key_value.{kind}"]])
                getattr(layer.self_attn, f"in_proj_{kind}").data.copy_(joined)
            put(layer.self_attn.out_proj, f"{at}.attention.output")
            put(layer.norm1, f"{at}.attention_norm")
            put(layer.norm2, f"{at}.mlp_norm")
            put(layer.linear1, f"{at}.mlp.0")
            put(layer.linear2, f"{at}.mlp.2")


def batches(data: Trajectories, seed: int) -> list[dict[str, torch.Tensor]]:
    """ODT's windows, one at a time: a trajectory by length, a uniform start, padded on the left."""
    rng = random.Random(seed)
    trajectories = [data.slice(i) for i in range(len(data))]
    lengths = [len(t) for t in trajectories]
    found = []
    for _ in range(UPDATES):
        rows: dict[str, list[torch.Tensor]] = {}
        for trajectory in rng.choices(trajectories, lengths, k=B):
            start = rng.randrange(len(trajectory))
            n = min(K, len(trajectory) - start)
            for name in ("observations", "actions", "rewards", "returns_to_go", "timesteps"):
                part = getattr(trajectory, name)[start : start + n]
                padded = torch.zeros(K, *part.shape[1:], dtype=torch.int64 if name == "timesteps" else torch.float64)
                padded[K - n :] = 0.9 * part if name == "actions" else part  # off the border, where log p is steep
                rows.setdefault(name, []).append(padded)
            rows.setdefault("mask", []).append(torch.arange(K) >= K - n)
        found.append({name: torch.stack(values) for name, values in rows.items()})
    return found


def train_plain(model: PlainODT, data: list[dict[str, torch.Tensor]], noise_seed: int) -> list[float]:
    optimizer = torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=TRAIN.weight_decay)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: min((n + 1) / TRAIN.warmup_updates, 1))
    log_lambda = torch.tensor(math.log(0.1), dtype=torch.float64, requires_grad=True)
    lambda_optimizer = torch.optim.Adam([log_lambda], lr=1e-4)
    torch.manual_seed(noise_seed)
    history = []
    for batch in data:
        distribution = model(batch)
        there = batch["mask"]
        nll = -distribution.log_prob(batch["actions"].clamp(-1 + 1e-6, 1 - 1e-6)).sum(-1)[there].mean()
        base = distribution.base_dist
        sample = distribution.transforms[0](base.loc + base.scale * torch.randn(base.loc.shape, dtype=torch.float64))
        entropy = -distribution.log_prob(sample).sum(-1)[there].mean()
        optimizer.zero_grad()
        (nll - log_lambda.exp().detach() * entropy).backward()
        nn.utils.clip_grad_norm_(model.parameters(), TRAIN.grad_clip)
        optimizer.step()
        schedule.step()
        lambda_optimizer.zero_grad()
        (log_lambda.exp() * (entropy.detach() + 1)).backward()
        lambda_optimizer.step()
        history.append(nll.item())
    return history


def train_ours(policy: DecisionTransformer, data: list[dict[str, torch.Tensor]], noise_seed: int) -> list[float]:
    updater = Updater(policy, TRAIN)
    updater.objective.double()
    torch.manual_seed(noise_seed)
    history = []
    for batch in data:
        updater.update(Window(**batch))
        history.append(updater.drain(1)["training/nll"])
    return history


def our_policy(data: Trajectories, seed: int) -> DecisionTransformer:
    torch.manual_seed(seed)
    policy = DecisionTransformer(CONFIG)
    policy.fit_normalisation(data.observations, data.actions, data.rewards)
    return policy.double()


def plain_model(data: Trajectories, seed: int) -> PlainODT:
    torch.manual_seed(seed)
    states = data.observations.numpy().astype(np.float64)
    return PlainODT(states.mean(0), states.std(0) + 1e-6).double()


@pytest.mark.learning
def test_the_same_weights_learn_the_same() -> None:
    data = aim_data(40)
    policy, plain = our_policy(data, 0), plain_model(data, 1)
    plain.copy_from(policy)
    windows = batches(data, seed=5)
    ours, theirs = train_ours(policy, windows, 9), train_plain(plain, windows, 9)
    assert np.mean(ours[-50:]) < np.mean(ours[50:100]) - 0.05
    np.testing.assert_allclose(ours, theirs, rtol=1e-8, atol=1e-4)


@pytest.mark.learning
def test_other_weights_learn_as_much_within_the_spread_of_seeds() -> None:
    data = aim_data(40)
    finals: dict[str, list[float]] = {"ours": [], "theirs": []}
    for seed in range(3):
        windows = batches(data, seed)
        finals["ours"].append(float(np.mean(train_ours(our_policy(data, seed), windows, seed)[-50:])))
        finals["theirs"].append(float(np.mean(train_plain(plain_model(data, 100 + seed), windows, seed)[-50:])))
    spread = max(np.std(finals["ours"], ddof=1), np.std(finals["theirs"], ddof=1))
    assert abs(np.mean(finals["ours"]) - np.mean(finals["theirs"])) < 3 * spread + 0.01, finals
