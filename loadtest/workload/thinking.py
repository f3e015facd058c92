"""How long a user pauses: assumptions of ours, the same for every source of sessions, scaled by [load] think_time."""

from __future__ import annotations

import math
import random

# A reader follows an answer while it streams, so that only a part is left to read when it ends; then comes typing.
# With these figures an answer of 600 characters (about 100 words) has a median pause of 8 s.
TYPING_S = 4.0
READING_CHARACTERS_PER_S = 150.0
SPREAD = 0.6  # σ of the logarithm: two thirds of the pauses lie within a factor of 1.8 of the median
BETWEEN_DIALOGUES_S = 10.0
TOOL_S = 0.6  # median of a look-up, a query or a short test run
TOOL_SPREAD = 1.0  # σ of the logarithm: one call in twenty takes over 3 s
LONGEST_TOOL_S = 15.0
LONGEST_S = 60.0  # whoever pauses longer has left, and in a load test is replaced by the next user


def after_answer_s(generator: random.Random, answer: str) -> float:
    """Return the pause between the end of an answer and the next turn, in seconds: lognormal, cut at LONGEST_S."""
    median_s = TYPING_S + len(answer) / READING_CHARACTERS_PER_S
    return round(min(generator.lognormvariate(math.log(median_s), SPREAD), LONGEST_S), 3)


def of_tool_s(generator: random.Random) -> float:
    """Return how long a tool takes to give back its result, in seconds: lognormal, cut at LONGEST_TOOL_S."""
    return round(min(generator.lognormvariate(math.log(TOOL_S), TOOL_SPREAD), LONGEST_TOOL_S), 3)


def before_dialogue_s(generator: random.Random) -> float:
    """Return the pause before a new dialogue, in seconds: exponential, cut at LONGEST_S."""
    return round(min(-BETWEEN_DIALOGUES_S * math.log(1.0 - generator.random()), LONGEST_S), 3)
