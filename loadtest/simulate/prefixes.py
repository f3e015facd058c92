"""The prefix cache: which leading blocks of a prompt have been seen, for each cache salt."""

from __future__ import annotations

from collections import OrderedDict

from loadtest.simulate.engine import BLOCK_TOKENS
from loadtest.simulate.text import TOKEN_CHARS

_BLOCK_CHARS = BLOCK_TOKENS * TOKEN_CHARS


class PrefixCache:
    """Hashes of blocks, each chained to the one before it; the least recently used go first."""

    def __init__(self, tokens: int) -> None:
        """Hold at most this many tokens."""
        self._blocks: OrderedDict[int, None] = OrderedDict()
        self._limit = tokens // BLOCK_TOKENS

    def __len__(self) -> int:
        return len(self._blocks)

    def take(self, salt: str, prompt: str) -> int:
        """Return how many leading tokens of the prompt were cached, in whole blocks, and cache all of them."""
        chain = hash(salt)
        hit, known = 0, True
        for end in range(_BLOCK_CHARS, len(prompt) + 1, _BLOCK_CHARS):
            chain = hash((chain, prompt[end - _BLOCK_CHARS : end]))
            known = known and chain in self._blocks
            hit += known
            self._blocks[chain] = None
            self._blocks.move_to_end(chain)
        while len(self._blocks) > self._limit:
            self._blocks.popitem(last=False)
        return hit * BLOCK_TOKENS

    def clear(self) -> None:
        """Forget everything."""
        self._blocks.clear()
