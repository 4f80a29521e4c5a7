"""A summary of a recording: a few sentences, the use and mean reward of each code, and all numbers as plain JSON."""

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mental_accounts.inspect.episode_accounts import Codes
from mental_accounts.inspect.episode_values import EpisodeValues
from mental_accounts.inspect.recording import EpisodeRecord, Recording
from mental_accounts.return_text import return_text

Array = NDArray[Any]
DIGITS = 7
NO_BIAS = (
    "There is no bias on the attention, and so no drift: this policy reads its ledger, all balances at every step."
)


@dataclass(frozen=True)
class Usage:
    """How often each kept code was posted over all episodes, and its mean reward and payoff, (C,) each."""

    posts: Array  # (C,) int64
    mean_reward: Array  # (C,), NaN where never posted
    mean_payoff: Array  # (C,), NaN where never posted


def usage(recording: Recording) -> Usage:
    """The use of codes over all episodes."""
    assert recording.codes is not None
    numbers = recording.codes.numbers
    posts = np.zeros(len(numbers), dtype=np.int64)
    rewards, payoffs = np.zeros(len(numbers)), np.zeros(len(numbers))
    for episode in recording.episodes:
        assert episode.accounts is not None
        places = places_of(recording.codes, episode.accounts.codes)  # (T, groups)
        for group in places.T:
            there = group >= 0
            np.add.at(posts, group[there], 1)
            np.add.at(rewards, group[there], episode.rewards[there])
            np.add.at(payoffs, group[there], episode.accounts.payoffs[there])
    often = np.where(posts, posts, np.nan)
    return Usage(posts, rewards / often, payoffs / often)


def places_of(codes: Codes, posted: Array) -> Array:
    """Codes -> their indices among those kept, -1 if not kept; any shape."""
    places = np.searchsorted(codes.numbers, posted).clip(0, len(codes.numbers) - 1)
    found: Array = np.where(codes.numbers[places] == posted, places, -1)
    return found


def name_of(codes: Codes, place: int) -> str:
    """A code by its number and the action that it stands for."""
    return f"{codes.numbers[place]} ({center_text(codes, place)})"


def center_text(codes: Codes, place: int) -> str:
    """The action that a code stands for, in the environment's units; a dot in undetermined dimensions."""
    if codes.kind == "discrete":
        return f"action {codes.centers[place, 0]:g}"
    shown = ("·" if math.isnan(value) else f"{value:.3g}" for value in codes.centers[place])
    return ", ".join(shown).replace("-", "−")


def findings(recording: Recording, episode: EpisodeRecord) -> list[str]:
    """The episode's return, what its accounts did, and whether its values were right; one sentence each."""
    how = "terminated" if episode.terminated else "truncated by the time limit" if episode.truncated else "ended"
    first = f"{len(episode)} steps, {how}; return {return_text(episode.total)}, target {recording.target_return:g}."
    last = [] if episode.values is None else [_value_sentence(episode.values)]
    return [first, *_without_sentences(recording, episode), *_account_sentences(recording, episode), *last]


def what_without_means(recording: Recording) -> str:
    """What it is to take a policy's accounts away."""
    bias = "there is no bias on its attention" if recording.has_bias else ""
    ledger = "the ledger that it reads is an empty one" if recording.reads_ledger else ""
    return (
        "Without its accounts the same policy, with the same weights and context, acts as if nothing had ever been "
        f"entered: {' and '.join(filter(None, (bias, ledger)))}. It was trained with its accounts; a policy trained "
        "without them may act otherwise."
    )


def effect_in_words(recording: Recording) -> str:
    """How the effect of accounts on an action is measured."""
    if recording.codes is not None and recording.codes.kind == "discrete":
        return (
            "The effect of the accounts is half the sum of the absolute differences between the probabilities of all "
            "actions with and without them: from 0 (none) to 1"
        )
    return (
        "The effect of the accounts is the distance between the mean actions with and without them, with every "
        "dimension scaled to [−1, 1]"
    )


def _without_sentences(recording: Recording, episode: EpisodeRecord) -> list[str]:
    """When the accounts mattered most, and where acting without them would have led."""
    found = episode.without
    if found is None:
        return []
    step, same = found.peak, bool((found.chosen == found.actions).all())
    if float(found.effect[step]) == 0.0:
        first = "At no step did the accounts change what the policy would do."
    else:
        ours, theirs = (action_text(actions[step]) for actions in (found.chosen, found.actions))
        never = " At no step would its most likely action have been another." if same else ""
        first = (
            f"The accounts mattered most at step {step}: action {ours} with them and {theirs} without, an effect of "
            f"{_show(found.effect[step])}.{never}"
        )
    if found.played is None:
        return [first]
    total, ends = found.played.total, "longer" if len(found.played) > len(episode) else "shorter"
    length = "" if len(found.played) == len(episode) else f", and was {ends}: {len(found.played)} steps"
    second = f"Played again from the same seed without them, the episode had return {return_text(total)}{length}."
    return [first, second]


def action_text(action: Array) -> str:
    """An action in the environment's units."""
    return ", ".join(_show(value) for value in np.atleast_1d(action).tolist())


def _account_sentences(recording: Recording, episode: EpisodeRecord) -> list[str]:
    """Which accounts rose and fell most; if there is a bias, when drift peaked, and whether the bias hit its clip."""
    if recording.codes is None or episode.accounts is None:
        return [why_no_accounts(recording.method)]
    codes, balances = recording.codes, episode.accounts.balances
    sentences = []
    for word, extreme in (("rose", np.argmax), ("fell", np.argmin)):
        step, place = (int(i) for i in np.unravel_index(int(extreme(balances)), balances.shape))
        value = balances[step, place]
        if (value > 0) if word == "rose" else (value < 0):
            sentences.append(
                f"The account of code {name_of(codes, place)} {word} most: to {_show(value)} at step {step}; "
                f"its final balance was {_show(balances[-1, place])}."
            )
        else:
            sentences.append(f"No account {word} {'above' if word == 'rose' else 'below'} zero.")
    if not recording.has_bias:
        return [*sentences, NO_BIAS]
    step, layer, head = (int(i) for i in np.unravel_index(int(episode.drift.argmax()), episode.drift.shape))
    sentences.append(
        f"Drift peaked at step {step}, layer {layer + 1}, head {head + 1}: {episode.drift[step, layer, head]:.3g}, "
        f"where the sharp bound is {episode.sharp_bound[step, layer, head]:.3g} and the paper's "
        f"{episode.paper_bound[step, layer, head]:.3g}."
    )
    return [*sentences, _clip_sentence(recording, episode)]


def _value_sentence(values: EpisodeValues) -> str:
    gap, errors = values.overestimation, values.td_errors[np.isfinite(values.td_errors)]
    step = int(np.abs(gap).argmax())
    error = f"; the mean absolute TD error is {_show(np.abs(errors).mean())}" if len(errors) else ""
    return (
        f"The values are {gap_text(gap)} the discounted returns that came, on average; most at step {step}: "
        f"{_show(values.values[step])} where {_show(values.discounted_returns[step])} came{error}."
    )


def gap_text(gap: Array) -> str:
    """How far values are off, on average: `1.2 above`, `0.3 below`."""
    mean = float(gap.mean())
    return f"{_show(abs(mean))} {'below' if mean < 0 else 'above'}"


def _show(value: float) -> str:
    return f"{value:.3g}".replace("-", "−")


def why_no_accounts(method: str) -> str:
    """What is missing for a policy without accounts."""
    return (
        f"This policy keeps no accounts (its method is {method}): there are no balances, no bias on its attention and "
        "no drift, so those figures are left out."
    )


def _clip_sentence(recording: Recording, episode: EpisodeRecord) -> str:
    largest = float(episode.epsilon.max())
    if recording.clip is None:
        return f"The bias has no clip; its largest size was {largest:.3g}."
    steps = np.flatnonzero(episode.clipped.any(axis=(1, 2)))
    if not len(steps):
        return f"The bias never hit its clip of {recording.clip:g}; its largest size was {largest:.3g}."
    at = f"{len(steps)} of {len(episode)} steps, first at step {steps[0]}"
    return f"The bias hit its clip of {recording.clip:g} at {at}."


def numbers(recording: Recording) -> dict[str, Any]:
    """The whole recording as plain JSON values; null for missing numbers (no step, no centre, never posted)."""
    codes = None
    if recording.codes is not None:
        used = usage(recording)
        codes = {
            "kind": recording.codes.kind,
            "total": recording.codes.total,
            "numbers": plain(recording.codes.numbers),
            "centers": plain(recording.codes.centers),
            "posts": plain(used.posts),
            "mean_reward": plain(used.mean_reward),
            "mean_payoff": plain(used.mean_payoff),
        }
    found = {
        "env_id": recording.env_id,
        "method": recording.method,
        "target_return": recording.target_return,
        "context": recording.context,
        "source": recording.source,
        "scope": recording.scope or None,
        "clip": recording.clip,
        "codes": codes,
        "episodes": [_episode_numbers(recording, episode) for episode in recording.episodes],
    }
    return found if recording.discount is None else found | {"discount": recording.discount}


def _episode_numbers(recording: Recording, episode: EpisodeRecord) -> dict[str, Any]:
    values: dict[str, Any] = {
        "findings": findings(recording, episode),
        "return": episode.total,
        "terminated": episode.terminated,
        "truncated": episode.truncated,
    }
    names = ["observations", "actions", "rewards", "returns_to_go", "logits", "attention_without"]
    if recording.has_bias:
        names += ["bias", "attention_with", "clipped", "drift", "sharp_bound", "size_bound", "paper_bound"]
    if episode.accounts is not None:
        for name in ("codes", "payoffs", "balances", "routing_error"):
            values[name] = plain(getattr(episode.accounts, name))
    if episode.without is not None:
        found = episode.without
        values["without_accounts"] = {name: plain(getattr(found, name)) for name in ("chosen", "actions", "effect")}
        values["without_accounts"] |= {"peak": found.peak, "played": None}
        if found.played is not None:
            second = {name: plain(getattr(found.played, name)) for name in ("actions", "rewards")}
            values["without_accounts"]["played"] = {"return": found.played.total, **second}
    if episode.values is not None:
        for name in ("values", "discounted_returns", "td_errors", "overestimation"):
            values[name] = plain(getattr(episode.values, name))
    return values | {name: plain(getattr(episode, name)) for name in names}


def plain(values: Array) -> Any:
    """An array as nested lists of JSON numbers, null where it is not finite, at float32's precision."""
    if values.dtype.kind != "f":
        return values.tolist()
    flat: list[Any] = [
        None if not math.isfinite(value) else float(f"{value:.{DIGITS}g}") for value in values.ravel().tolist()
    ]
    for size in reversed(values.shape[1:]):
        flat = [flat[i : i + size] for i in range(0, len(flat), size)] if size else []
    return flat
