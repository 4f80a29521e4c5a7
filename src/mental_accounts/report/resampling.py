"""Bootstrap samples of runs: all of them where they can be counted, else random ones from a seed."""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations_with_replacement

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
LARGEST = 20_000_000
"""Numbers in all samples together: of more values, such as a thousand episodes, there are fewer samples."""


@dataclass(frozen=True)
class Resamples:
    """Choices of seeds with replacement within every task, and how likely each choice is."""

    counts: NDArray[np.float32]
    """(samples, tasks, seeds): how often each seed is chosen."""
    weights: Array | None = None
    """(samples,); None: all are equally likely."""

    def share(self, those: Array) -> float:
        """The mean of one value per sample."""
        return float(np.average(those, weights=self.weights))

    def quantiles(self, values: Array, shares: Array | list[float]) -> Array:
        """Quantiles of one value per sample, interpolated between samples."""
        if self.weights is None:
            return np.quantile(values, shares)
        order = np.argsort(values, kind="stable")  # another order of ties would move the ends
        weights = self.weights[order] / self.weights.sum()
        found: Array = np.interp(shares, np.cumsum(weights) - weights / 2, values[order])
        return found

    def only(self, usable: NDArray[np.bool_]) -> "Resamples":
        """The samples that can be used."""
        return Resamples(self.counts[usable], None if self.weights is None else self.weights[usable])


@lru_cache(maxsize=2)
def resample(tasks: int, seeds: int, most: int, seed: int) -> Resamples:
    """Every different sample of one task with its probability if there are at most `most`, else `most` random ones.

    Fewer where samples are large, lest they fill the memory.

    There are 352,716 different samples of eleven seeds: intervals of so many seeds of a task do not depend on chance.
    """
    if tasks == 1 and math.comb(2 * seeds - 1, seeds) <= most:
        chosen = np.array(list(combinations_with_replacement(range(seeds), seeds)))
        counts = (chosen[:, :, None] == np.arange(seeds)).sum(axis=1)
        factorials = np.array([math.factorial(count) for count in range(seeds + 1)], dtype=np.float64)
        weights = factorials[seeds] / factorials[counts].prod(axis=1) / float(seeds) ** seeds
        return Resamples(counts[:, None].astype(np.float32), weights)
    most = min(most, max(1, LARGEST // (tasks * seeds)))
    chosen = np.random.default_rng(seed).integers(seeds, size=(most * tasks, seeds))
    places = (chosen + seeds * np.arange(len(chosen))[:, None]).ravel()
    counts = np.bincount(places, minlength=most * tasks * seeds).reshape(most, tasks, seeds)
    return Resamples(counts.astype(np.float32))
