"""Nearest-centre search, and k-means centres."""

import math

import torch
from torch import Tensor

SEARCH_ELEMENTS = 2**22
"""Distances held at once in a nearest-centre search: bounds its memory to a few dozen megabytes."""


def nearest_center(points: Tensor, centers: Tensor) -> Tensor:
    """Index of the nearest centre, the lowest on a tie: (..., dim), (codes, dim) -> (...); memory bounded by chunks."""
    flat = points.reshape(-1, points.shape[-1])  # (n, dim)
    chunk = max(1, SEARCH_ELEMENTS // len(centers))
    nearest = []
    for part in flat.split(chunk):
        distance = (part[:, :1] - centers[:, 0]).square()  # (chunk, codes)
        for d in range(1, flat.shape[1]):
            difference = part[:, d : d + 1] - centers[:, d]
            distance.addcmul_(difference, difference)
        nearest.append(distance.argmin(dim=1))
    return torch.cat(nearest).reshape(points.shape[:-1])


def fit_centers(points: Tensor, count: int, seed: int, what: str, restarts: int = 4) -> Tensor:
    """Lloyd's algorithm with k-means++ starts, the best of `restarts`: (n, dim) -> (count, dim) float64 on the CPU."""
    from scipy.cluster.vq import ClusterError, kmeans2, vq  # slow to import, and rarely needed

    points = points.detach().double().cpu()
    distinct = torch.unique(points, dim=0)
    if len(distinct) < count:
        raise ValueError(f"num_codes must be at most the number of distinct {what}, {len(distinct)}, got {count}")
    best, least = distinct[:count].numpy(), math.inf
    if len(distinct) > count:
        for restart in range(restarts):
            try:
                fitted, _ = kmeans2(points.numpy(), count, iter=50, minit="++", missing="raise", rng=seed + restart)
            except ClusterError:  # a centre lost all its points: try another start
                continue
            error = float((vq(points.numpy(), fitted)[1] ** 2).mean())
            if error < least:
                best, least = fitted, error
    return torch.from_numpy(best)
