"""Is what was asked, and how its answers were to end, like anybody's traffic? Rules on a whole run."""

from __future__ import annotations

from loadtest.analyse.rules import Mark, Unknown
from loadtest.analyse.run_facts import RunFacts
from loadtest.analyse.validity import REPEATS_RATIO


def forced_answers(facts: RunFacts) -> Mark | Unknown | None:
    """Text that is forced on past its end goes in circles, which drafts foresee."""
    if not facts.run.get("experiment"):
        return Unknown(missing="the run's settings")
    if not facts.experiment.generation.ignore_eos:
        return None
    return Mark(
        sentence="Answers were forced to their full length (generation.ignore_eos): text past its natural end repeats"
        " itself, and drafts of it are accepted as they are on nobody's traffic."
    )


def asked_in_other_cells(facts: RunFacts) -> Mark | Unknown | None:
    """Without a salt of each cell's own the prefix cache keeps what an earlier cell asked."""
    if facts.experiment.servers.cache != "keep":
        return None
    if facts.requests is None or not (facts.requests.frame["body"] >= 0).any():
        return Unknown(missing="hashes of the prompts")
    frame = facts.requests.frame
    sent = frame.loc[frame["body"] >= 0, ["arm", "cell", "body", "in_window"]]
    first = sent.groupby(["arm", "body"], observed=True)["cell"].transform("min")
    again, count = int((sent["in_window"] & (sent["cell"] > first)).sum()), int(sent["in_window"].sum())
    if not count:
        return Unknown(missing="requests due in a window")
    if again <= REPEATS_RATIO * count:
        return None
    return Mark(
        sentence=f"{again} of {count} requests asked what an earlier cell had asked the same server (limit"
        f" {100 * REPEATS_RATIO:.0f} %), and servers.cache is keep: later cells find more in the prefix cache. Set it"
        " to salt, or give more prompts."
    )
