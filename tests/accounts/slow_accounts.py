"""The method written out literally, one step and one account at a time: slow, and independent of the package."""

import itertools
import math
from fractions import Fraction


def ewa(codes, rewards, phi, delta, num_codes, start=None):
    """Algorithm 1: the trace, and all balances after every step."""
    balances = [0.0] * num_codes if start is None else list(start)
    trace, history = [], []
    for code, reward in zip(codes, rewards, strict=True):
        balances = [(1 - phi) * balance for balance in balances]
        balances[code] += delta * reward
        trace.append(balances[code])
        history.append(list(balances))
    return trace, history


def canonical_ewa(codes, rewards, foregone, phi, rho, delta, num_codes, n0=1.0, start=None):
    """Camerer and Ho (1999) in the paper's letters, Eq. 8."""
    balances = [0.0] * num_codes if start is None else list(start)
    experience = n0
    trace, history = [], []
    for t, (code, reward) in enumerate(zip(codes, rewards, strict=True)):
        before, experience = experience, (1 - rho) * experience + 1
        updated = []
        for j in range(num_codes):
            payoff = reward if j == code else (0.0 if foregone is None else foregone[t][j])
            weight = delta + (1 - delta) * (j == code)
            updated.append(((1 - phi) * before * balances[j] + weight * payoff) / experience)
        balances = updated
        trace.append(balances[code])
        history.append(list(balances))
    return trace, history


def grid_centers(dim, bins):
    """All grid points, dimension 1 varying fastest."""
    points = [2 * g / (bins - 1) - 1 for g in range(bins)]
    return [tuple(reversed(cell)) for cell in itertools.product(points, repeat=dim)]


def nearest(action, centers):
    """Brute force in exact arithmetic, the lowest index on a tie."""
    action = [Fraction(a) for a in action]
    distances = [sum((a - Fraction(c)) ** 2 for a, c in zip(action, center, strict=True)) for center in centers]
    return distances.index(min(distances))


def softmax(logits):
    top = max(logits)
    weights = [math.exp(z - top) for z in logits]
    return [w / sum(weights) for w in weights]
