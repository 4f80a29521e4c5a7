"""Metrics of a policy: its returns, and the effect of its accounts. docs/metrics.md defines each of them."""

from typing import Any

import numpy as np
import torch

from mental_accounts.accounts import drift_bound
from mental_accounts.accounts.bias import TOKENS_PER_STEP
from mental_accounts.data.tasks import Task, normalised_score
from mental_accounts.learning.episodes import Episode
from mental_accounts.policy import DecisionTransformer, Window
from mental_accounts.policy.attention_probe import attention_of


def evaluation_measures(episodes: list[Episode], task: Task | None) -> dict[str, Any]:
    """The paper's evaluation metrics, under the names of the ODT code (_gm: with the mean action); and each return."""
    returns = np.array([episode.total for episode in episodes])
    lengths = np.array([len(episode) for episode in episodes], dtype=np.float64)
    measures = {
        "evaluation/return_mean_gm": float(returns.mean()),
        "evaluation/return_std_gm": float(returns.std()),
        "evaluation/return_vs_samples": float(returns.mean()),
        "evaluation/length_mean_gm": float(lengths.mean()),
        "evaluation/length_std_gm": float(lengths.std()),
        "evaluation/returns": returns.tolist(),
    }
    if task is not None and task.expert_return is not None:
        measures["evaluation/normalised_score"] = float(normalised_score(task, returns.mean()))
    return measures


def sampled_measures(episodes: list[Episode]) -> dict[str, Any]:
    """The same episodes, as far as they begin alike, with sampled actions."""
    returns = [episode.total for episode in episodes]
    return {"evaluation/return_mean_sampled": float(np.mean(returns)), "evaluation/returns_sampled": returns}


def exploration_measures(episodes: list[Episode]) -> dict[str, float]:
    """The paper's metrics of collected trajectories."""
    return {
        "aug_traj/return": float(np.mean([episode.total for episode in episodes])),
        "aug_traj/length": float(np.mean([len(episode) for episode in episodes])),
    }


@torch.no_grad()
def account_measures(policy: DecisionTransformer, window: Window) -> dict[str, float]:
    """The balances and how far they move attention, on a batch of windows; empty without accounts.

    Without a bias (ledger-odt) there are only the balances.
    """
    if policy.accounts is None or window.attractions is None or window.codes is None or window.mask is None:
        return {}
    present = window.mask
    attractions, codes = window.attractions[present], window.codes[present]
    held = {
        "accounts/codes_used": int(torch.unique(codes).numel()),
        "accounts/attraction_min": float(attractions.min()),
        "accounts/attraction_max": float(attractions.max()),
    }
    if policy.accounts.scale is None:
        return held
    layers = attention_of(policy, window)
    tokens = present.repeat_interleave(TOKENS_PER_STEP, dim=1)[:, :-1]
    drifts = []
    for layer in layers:
        rows = tokens if layer.logits.shape[-2] == tokens.shape[1] else present
        drifts.append(layer.drift().transpose(1, 2)[rows].flatten())
    drift = torch.cat(drifts)
    largest = float(torch.stack([layer.bias.abs().max() for layer in layers]).max())
    return {
        "accounts/drift_mean": float(drift.mean()),
        "accounts/drift_max": float(drift.max()),
        "accounts/drift_bound": drift_bound(largest),
        "accounts/bias_max": largest,
        **held,
        "accounts/beta": float(policy.accounts.scale().mean()),
    }
