"""Randomness that depends only on what it is named by: no global state, no `hash()`."""

from __future__ import annotations

import random
from hashlib import blake2b


def seed_of(*parts: object) -> int:
    """Return a 64-bit integer that depends on the parts' texts alone, the same on every machine."""
    joined = "\x1f".join(str(part) for part in parts)
    return int.from_bytes(blake2b(joined.encode(), digest_size=8).digest(), "big")


def rng(*parts: object) -> random.Random:
    """Return a generator seeded by the parts."""
    return random.Random(seed_of(*parts))
