"""What a reader must know of the client that measured: its floor, and which requests asked for token counts."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loadtest.analyse.wording import percent

FROM_SAMPLE = "tpot, token_gap, tokens_per_chunk and on_time"
UNCOUNTED = (  # asked of nobody, since no way to ask is answered by every server
    f"How many tokens a chunk has is not told by every server: {FROM_SAMPLE} have no data. A comparison without on_time"
    " cannot say that speculation pays at a level, since that guard is open; end-to-end times, times to first tokens"
    " and tokens per second of whole answers are not touched."
)


def client_notes(run: Mapping[str, Any]) -> tuple[str, ...]:
    """Return sentences on the client from a run's header, after the notes that the run took itself."""
    own = [note for note in _list(run.get("notes")) if isinstance(note, str)]
    return tuple(sentence for sentence in (*own, _floor(run), _asking(run)) if sentence)


def _floor(run: Mapping[str, Any]) -> str:
    """Say what the client adds by itself, from its calibration against the null server; empty without one."""
    found = _table(run.get("calibration"))
    users, middle, tail = (_number(found.get(name)) for name in ("users", "first_error_p50_s", "first_error_p99_s"))
    if users is None or middle is None or tail is None or found.get("state", "complete") != "complete":
        return ""
    unit = found.get("unit")
    load = f"{users:g} {unit}" if isinstance(unit, str) else f"{users:g} user{'s' if users != 1 else ''}"
    late = _number(found.get("lateness_p99_s"))
    sent = f"99 % of requests go out within {_ms(late)} ms of their due time, and " if late is not None else ""
    said = (
        f"The client's floor (its own error, against its null server at {load}): {sent}99 % of first tokens are stamped"
        f" within {_ms(tail)} ms (half within {_ms(middle)} ms). So about"
        f" {_ms(max(tail, late or 0.0))} ms of a latency may be the client's and no server's; what each cell had itself"
        " stands in the table of cells."
    )
    kinds = (("missing", "lost"), ("tokens_differ", "miscounted"))
    counts = [(_number(found.get(name)) or 0.0, what) for name, what in kinds]
    lost = [f"{count:g} of {_number(found.get('requests')) or 0:g} answers {what}" for count, what in counts if count]
    return f"{said} In calibration it had {' and '.join(lost)}: do not trust its counts." if lost else said


def _asking(run: Mapping[str, Any]) -> str:
    """Say what asking for token counts costs, where it was measured, and whose counts are in the figures."""
    found = _table(run.get("asking"))
    share = _number(found.get("asked_ratio"))
    if share is None:
        return ""
    if share == 0:
        return UNCOUNTED
    parts = []
    cost, low, high = (_number(found.get(name)) for name in ("cost_ratio", "cost_low", "cost_high"))
    if found.get("measured") and cost is not None:
        bounds = f" [{_change(low)}, {_change(high)}]" if low is not None and high is not None else ""
        level = _number(found.get("level")) or 0
        parts.append(
            f"Asking for the tokens of each chunk changes the time per token by {_change(cost)} %{bounds}"
            f" (of {found.get('arm')}, at {level:g} user{'s' if level != 1 else ''})."
        )
    elif str(found.get("why", "")).startswith("could not"):
        parts.append(f"What asking for the tokens of each chunk costs {found['why']}.")
    if 0 < share < 1:
        parts.append(
            f"{percent(share)} of the requests asked, the same in both arms: {FROM_SAMPLE} are theirs alone; tokens per"
            " second count all answers."
        )
    return " ".join(parts)


def _change(share: float) -> str:
    return f"{100 * share:+.1f}".replace("-", "−")


def _ms(seconds: float) -> str:
    return f"{1000 * seconds:.2g}" if seconds < 0.1 else f"{1000 * seconds:.0f}"


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def _table(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
