"""A recording as one self-contained interactive page: the template, its script and the arrays, packed.

A few hundred lines of our own draw on canvases. A plotting library would add several megabytes to every page, and be
slower at redrawing nine figures for every step.
"""

import base64
import json
import re
from collections.abc import Sequence
from html import escape
from importlib.resources import files
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mental_accounts.inspect.camera import Film, film_episode
from mental_accounts.inspect.episode_accounts import CUBE_DIMENSIONS, Codes
from mental_accounts.inspect.inspect_summary import (
    center_text,
    effect_in_words,
    findings,
    gap_text,
    places_of,
    usage,
    what_without_means,
    why_no_accounts,
)
from mental_accounts.inspect.recording import TOKEN_KINDS, EpisodeRecord, Recording
from mental_accounts.learning.evaluation import environment_seed
from mental_accounts.return_text import return_text

Array = NDArray[Any]
SCRIPTS = ("inspect_charts.js", "inspect_figures.js", "inspect_drift.js", "inspect_without.js", "inspect_main.js")
VALUE_SCRIPT = "inspect_values.js"
FULL_BYTES = 4_000_000
"""If the arrays of a page are larger than this in total, they are packed in half precision."""
MOST_BYTES = 7_000_000
"""An episode's attention is left out of the page if it would exceed this size, with those before it."""


def film_recording(recording: Recording, seed: int, most: int) -> list[Film]:
    """Frames of all episodes, at most `most` in total; or why there are none."""
    if recording.source == "recorded":
        return [Film((), (), "recorded episodes cannot be replayed")] * len(recording.episodes)
    total = sum(len(episode) for episode in recording.episodes)
    films: list[Film] = []
    for place, episode in enumerate(recording.episodes):
        if films and films[-1].problem:  # it will not work for the others either
            films.append(films[-1])
            continue
        share = round(most * len(episode) / total)
        films.append(
            film_episode(recording.env_id, environment_seed(seed, place), episode.observations, episode.actions, share)
        )
    return films


def to_page(recording: Recording, films: Sequence[Film]) -> str:
    """The whole page, with all text escaped."""
    template = _read("inspect.html")
    kept = {"accounts": recording.codes is not None, "plain": recording.codes is None}
    kept["cube"] = recording.codes is not None and recording.codes.cube is not None
    kept |= {"bias": recording.has_bias, "values": recording.discount is not None}
    kept["played"] = any(found.without and found.without.played for found in recording.episodes)
    for name, keep in kept.items():
        template = re.sub(rf"<!-- {name} -->(.*?)<!-- /{name} -->", r"\1" if keep else "", template, flags=re.DOTALL)
    values = {name: escape(text) for name, text in _texts(recording).items()}
    values["style"] = _read("inspect.css")
    scripts = (*SCRIPTS, VALUE_SCRIPT) if kept["values"] else SCRIPTS
    values["script"] = "(() => {\n" + "\n".join(map(_read, scripts)) + "})();\n"
    values["data"] = _embeddable(_data(recording, films))
    return re.sub(r"\{\{(\w+)\}\}", lambda match: values[match[1]], template)  # in one pass: data may hold braces


def _texts(recording: Recording) -> dict[str, str]:
    episodes, codes = recording.episodes, recording.codes
    returns = [episode.total for episode in episodes]
    spread = f" (from {return_text(min(returns))} to {return_text(max(returns))})" if len(returns) > 1 else ""
    source = "played with the mean action" if recording.source == "played" else "read from a recording"
    texts = {
        "title": f"Mental accounts: {recording.method} on {recording.env_id}"
        if codes
        else f"Attention: {recording.method} on {recording.env_id}",
        "lead": f"{_count(len(episodes), 'episode')}, {source}; target return {recording.target_return:g}; "
        f"context of {_count(recording.context, 'step')}."
        + ("" if codes is None else f" Actions are routed to {_count(codes.total, 'code')} ({codes.kind})."),
        "overview": f"Mean return {return_text(float(np.mean(returns)))}{spread}, mean length "
        f"{np.mean([len(episode) for episode in episodes]):.1f}.{_value_text(recording)} In the selected episode:",
        "no_accounts": "" if codes else why_no_accounts(recording.method),
        "attention_caption": "Grey bars show the attention without the accounts' bias, blue bars with it; below is the "
        "difference: attention that the accounts moved towards a token (blue) or away from it (orange)."
        if recording.has_bias
        else f"No bias is added{': this policy reads its ledger' if codes else ''}.",
        "scope": _scope_text(recording),
        "without_means": what_without_means(recording),
        "effect": effect_in_words(recording),
        "discount": "" if recording.discount is None else f"{recording.discount:g}",
        "episodes": _count(len(episodes), "episode"),
        "cube_note": " The codes differ in these three dimensions only."
        if codes is not None and codes.centers.shape[1] > CUBE_DIMENSIONS
        else "",
        "error_caption": "Discrete actions are their own codes, so the error is zero."
        if codes is not None and codes.kind in ("discrete", "values")
        else "",
    }
    axes = [f"a[{d}]" for d in (codes.cube_dimensions if codes else ())] or [""] * 3
    return texts | dict(zip(("cube_x", "cube_y", "cube_z"), axes, strict=True))


def _value_text(recording: Recording) -> str:
    gaps = [episode.values.overestimation for episode in recording.episodes if episode.values is not None]
    if not gaps:
        return ""
    return f" The critics' values are on average {gap_text(np.concatenate(gaps))} the discounted returns that came."


def _scope_text(recording: Recording) -> str:
    codes = recording.codes
    if codes is None:
        return ""
    kept = "" if len(codes.numbers) == codes.total else f" Of {codes.total:,} codes, only those posted most are shown."
    if recording.scope == "window":
        return (
            "The accounts of this policy start at zero in every window (scope window): shown are the balances in the "
            f"next window, from the posts of the last {_count(recording.context - 1, 'step')}.{kept}"
        )
    return f"The accounts of this policy last the whole episode (scope trajectory): this is its live ledger.{kept}"


def _data(recording: Recording, films: Sequence[Film]) -> dict[str, Any]:
    episodes = recording.episodes
    _, layers, heads, _ = episodes[0].logits.shape
    meta: dict[str, Any] = {
        "env": recording.env_id,
        "context": recording.context,
        "tokenKinds": TOKEN_KINDS,
        "layers": layers,
        "heads": heads,
        "states": episodes[0].observations.shape[1],
        "bias": recording.has_bias,
        "dimensions": 0 if episodes[0].actions.ndim == 1 else episodes[0].actions.shape[1],
        "first": first_shown(recording),
        "steps": sum(len(episode) for episode in episodes),
        "meanReward": float(np.concatenate([episode.rewards for episode in episodes]).mean(dtype=np.float64)),
    }
    half = sum(episode.logits.size * 4 for episode in episodes) > FULL_BYTES
    packed, room = [], MOST_BYTES
    for episode, film in zip(episodes, films, strict=True):
        room -= episode.logits.size * (2 if half else 4)
        packed.append(_episode(recording, episode, film, half=half, attention=room >= 0))
    codes = None if recording.codes is None else _codes(recording, recording.codes)
    return {"meta": meta, "codes": codes, "episodes": packed}


def _codes(recording: Recording, codes: Codes) -> dict[str, Any]:
    used = usage(recording)
    shown: dict[str, Any] = {
        "numbers": codes.numbers.tolist(),
        "names": [center_text(codes, place) for place in range(len(codes.numbers))],
        "posts": used.posts.tolist(),
        "meanReward": [value if posts else None for value, posts in zip(used.mean_reward, used.posts, strict=True)],
        "cube": None,
    }
    if codes.cube is not None:
        shown["cube"] = codes.cube.tolist()
        shown["axes"] = [f"a[{d}]" for d in codes.cube_dimensions]
        shown["ticks"] = [np.unique(codes.centers[:, d]).tolist() for d in codes.cube_dimensions]
    return shown


def _episode(
    recording: Recording, episode: EpisodeRecord, film: Film, *, half: bool, attention: bool
) -> dict[str, Any]:
    problem = f"No frames: {film.problem.rstrip('.')}." if film.problem else ""
    values: dict[str, Any] = {
        "T": len(episode),
        "total": episode.total,
        "findings": findings(recording, episode),
        "film": {
            "steps": film.steps,
            "pictures": [base64.b64encode(picture).decode() for picture in film.pictures],
            "problem": problem,
        },
        "observations": pack(episode.observations),
        "actions": pack(episode.actions.reshape(len(episode), -1)),
        "rewards": pack(episode.rewards),
        "asked": pack(episode.returns_to_go),
        "without": pack(episode.attention_without, half=half) if attention else None,
    }
    if episode.accounts is not None and recording.codes is not None:
        held = episode.accounts
        values |= {
            "places": pack(places_of(recording.codes, held.codes)),
            "balances": pack(held.balances, half=held.balances.nbytes > FULL_BYTES // len(recording.episodes)),
            "error": pack(held.routing_error),
        }
    if episode.without is not None:
        found = episode.without
        values |= {
            "peak": found.peak,
            "chosen": pack(found.chosen.reshape(len(episode), -1)),
            "others": pack(found.actions.reshape(len(episode), -1)),
            "effect": pack(found.effect),
        }
        if found.played is not None:
            values["otherActions"] = pack(np.asarray(found.played.actions).reshape(len(found.played), -1))
            values["otherRewards"] = pack(found.played.rewards)
    if episode.values is not None:
        values |= {
            "values": pack(episode.values.values),
            "came": pack(episode.values.discounted_returns),
            "tdErrors": pack(episode.values.td_errors),
        }
    if recording.has_bias:
        values |= {
            "drift": pack(episode.drift),
            "sharp": pack(episode.sharp_bound),
            "paper": pack(episode.paper_bound),
            "clipped": pack(np.asarray(episode.clipped.any(axis=(1, 2)))),
            "bias": pack(_shared(episode.bias[..., len(TOKEN_KINDS) - 1 :: len(TOKEN_KINDS)]), half=half)
            if attention
            else None,  # of action columns
        }
    return values


def first_shown(recording: Recording) -> dict[str, int]:
    """Where the page opens: the episode and the step at which the accounts mattered most."""
    found = [episode.without for episode in recording.episodes]
    largest = [0.0 if one is None else float(one.effect.max()) for one in found]
    episode = int(np.argmax(largest))
    without = found[episode]
    return {"episode": episode, "step": 0 if without is None else without.peak}


def _shared(bias: Array) -> Array:
    """(T, layers, heads, actions), with a size of 1 where all layers or heads have the same bias."""
    for axis in (1, 2):
        first = bias.take([0], axis=axis)
        if (bias == first).all():
            bias = first
    return bias


def pack(values: Array, *, half: bool = False) -> dict[str, Any]:
    """An array as its shape and base64 of its numbers: float32, float16 where `half`, or int32."""
    kind = "<i4" if values.dtype.kind in "iub" else "<f2" if half else "<f4"
    raw = np.ascontiguousarray(values, dtype=kind).tobytes()
    return {"type": kind[1:], "shape": list(values.shape), "data": base64.b64encode(raw).decode()}


def _embeddable(values: dict[str, Any]) -> str:
    """JSON whose text cannot close the script element."""
    text = json.dumps(values, separators=(",", ":"), allow_nan=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _read(name: str) -> str:
    return (files("mental_accounts.inspect") / "templates" / name).read_text(encoding="utf-8")


def _count(n: int, word: str) -> str:
    return f"{n:,} {word}" + ("" if n == 1 else "s")
