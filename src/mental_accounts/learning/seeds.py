"""One seed for a run, many for its parts: each part draws from its own, so that no part's draws shift another's."""

import hashlib


def derive(seed: int, *names: str | int) -> int:
    """A seed for the part of these names, in [0, 2**31): the same on every machine, unrelated between parts."""
    text = "/".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=4).digest()) >> 1
