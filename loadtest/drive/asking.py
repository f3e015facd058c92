"""What it costs a server to say how many tokens each chunk has, and which requests ask when that costs too much.

Counting on every event is work for a server, and so part of what is measured. The price is taken from pairs of short
cells on the baseline at the top level, one in which every request asks and one in which none does. Above LIMIT_RATIO
only a sample of the requests asks: the same ones in both arms, since the session and the turn decide.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from loadtest.drive.plan import Cell
from loadtest.experiment import override
from loadtest.record import CellRecord, Outcome, Request
from loadtest.settings import Experiment
from loadtest.workload.seeds import seed_of
from loadtest.workload.sessions import SessionKey

LIMIT_RATIO = 0.02  # a price above this, as a share of the time per token, is not paid by every request
SAMPLED_RATIO = 0.10  # share of the requests that then ask: a price of 20 % shrinks to 2 %
PAIRS = 4  # even, so that asking comes first as often as second
WINDOW_S = (3.0, 10.0)  # shortest and longest window of such a cell
WARMUP_S = 20.0  # its longest warm-up
FIRST_CELL = -2  # further ones count down: each has a cache salt of its own, and none is the calibration or the plan's
NOBODY = "none"  # asks
_T_975 = {2: 12.706, 3: 4.303, 4: 3.182}  # Student's t for 95 %, by the number of pairs


def is_sampled(key: SessionKey, turn: int, ratio: float) -> bool:
    """Return whether a turn of a session belongs to the sample that holds this share of all turns."""
    drawn = seed_of("asks", key.seed, f"{key.level:g}", key.block, key.number, turn)
    return drawn < ratio * 2**64


@dataclass(frozen=True, slots=True, kw_only=True)
class Price:
    """What asking adds to the time per output token, as a share of it; None where no pair of cells tells it."""

    pairs: tuple[float, ...] = ()  # time per output token, asking ÷ not asking
    cost_ratio: float | None = None
    cost_low: float | None = None  # 95 % interval; None with fewer than two pairs
    cost_high: float | None = None
    reason: str = ""  # why pairs are missing


def price_of(pairs: Sequence[tuple[float, float]], reason: str = "") -> Price:
    """Return the price from pairs of times per token (asking, not asking): a t interval on their log-ratios."""
    logs = [math.log(asking / silent) for asking, silent in pairs]
    if not logs:
        return Price(reason=reason or "no pair of cells was whole")
    mean = statistics.fmean(logs)
    price = Price(pairs=tuple(math.exp(value) for value in logs), cost_ratio=math.expm1(mean), reason=reason)
    if len(logs) not in _T_975:
        return price
    half = _T_975[len(logs)] * statistics.stdev(logs) / math.sqrt(len(logs))
    return replace(price, cost_low=math.expm1(mean - half), cost_high=math.expm1(mean + half))


@dataclass(slots=True)
class Pace:
    """Collects what the requests of one cell took and brought."""

    rows: list[tuple[float, float, int]] = field(default_factory=list)  # due, seconds from due to the end, tokens

    def add(self, request: Request) -> None:
        """Take in a finished request; one that failed, or did not say how long it was, tells nothing."""
        if request.outcome == Outcome.OK and request.output_tokens > 0:
            self.rows.append((request.due_s, request.end_s - request.due_s, request.output_tokens))

    def token_s(self, cell: CellRecord) -> float | None:
        """Return the seconds per output token of the requests due in the cell's window; None when there were none."""
        opened, closed = cell.window_open_s, cell.window_close_s
        if cell.state != "complete" or opened is None or closed is None:
            return None
        own = [row for row in self.rows if opened <= row[0] < closed]
        tokens = sum(row[2] for row in own)
        return sum(row[1] for row in own) / tokens if tokens else None


DriveCell = Callable[[Cell, str, Experiment, Callable[[Request], None]], CellRecord]


def measure_price(drive: DriveCell, experiment: Experiment, arm: str, level: float, way: str,
                  stopped: Callable[[], bool]) -> Price:  # fmt: skip
    """Run pairs of cells on an arm, which ask in this `way` and not at all, and return what asking costs.

    `drive` runs one cell and gives every finished request to its last argument. Both cells of a pair have the same
    sessions, which no cell of the plan has. Ends early when `stopped`, or when a cell is not whole.
    """
    short = short_cells(experiment, level)
    pairs: list[tuple[float, float]] = []
    for number in range(PAIRS):
        paces: dict[str, float] = {}
        for turn, how in enumerate((way, NOBODY) if number % 2 == 0 else (NOBODY, way)):
            if stopped():
                return price_of(pairs, "the run was stopped")
            cell = Cell(cell=FIRST_CELL - 2 * number - turn, block=-1 - number, level=level, arm=arm)
            pace = Pace()
            record = drive(cell, how, short, pace.add)
            token_s = pace.token_s(record)
            if token_s is None:
                return price_of(pairs, record.reason or "no request ended well")
            paces[how] = token_s
        pairs.append((paces[way], paces[NOBODY]))
    return price_of(pairs)


def short_cells(experiment: Experiment, level: float) -> Experiment:
    """Return the experiment with the windows of the cells that take the price at a level."""
    longest = min(WINDOW_S[1], experiment.window.max_s)
    return override(
        experiment, "window", min_s=min(WINDOW_S[0], longest), max_s=longest,
        min_requests=max(experiment.window.min_requests, int(2 * level)),
        warmup_requests=min(1.0, experiment.window.warmup_requests),
        warmup_max_s=min(WARMUP_S, experiment.window.warmup_max_s),
    )  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class Asking:
    """Which requests of a run ask for the tokens of each chunk, and why; stands in run.json."""

    ratio: float  # of the requests that ask
    why: str
    measured: bool = False
    arm: str = ""  # on which the price was taken, and at which level
    level: float | None = None
    way: str = ""  # continuous · ids · timings
    limit_ratio: float = LIMIT_RATIO
    price: Price = Price()


def unmeasured(setting: str, way: str, *, simulated: bool) -> Asking | None:
    """Return who asks where that is known without measuring; None: the price is to be taken first."""
    if way == NOBODY:
        return Asking(ratio=0.0, why="the server does not say how many tokens a chunk has", way=way)
    if setting == "sample":
        return Asking(ratio=SAMPLED_RATIO, why='not measured: token_counts is "sample"', way=way)
    if setting == "all":
        return Asking(ratio=1.0, why='not measured: token_counts is "all"', way=way)
    if setting == "auto" and simulated:
        return Asking(ratio=1.0, why="not measured: the servers are simulated", way=way)
    return None


def settled(price: Price, *, arm: str, level: float, way: str) -> Asking:
    """Return who asks at this price: every request, or a sample when it is above the limit."""
    if price.cost_ratio is None:
        ratio, why = 1.0, f"could not be measured: {price.reason}"
    elif price.cost_ratio > LIMIT_RATIO:
        ratio, why = SAMPLED_RATIO, "measured, and above the limit"
    else:
        ratio, why = 1.0, "measured, and not above the limit"
    return Asking(ratio=ratio, why=why, measured=price.cost_ratio is not None, arm=arm, level=level, way=way,
                  price=price)  # fmt: skip


def again(told: Mapping[str, Any]) -> Asking:
    """Return who asks as a run settled it before it was taken up again, from what run.json holds."""
    price = Price(pairs=tuple(told["pairs"]), cost_ratio=told["cost_ratio"], cost_low=told["cost_low"],
                  cost_high=told["cost_high"])  # fmt: skip
    return Asking(ratio=told["asked_ratio"], why=told["why"], measured=told["measured"], arm=told["arm"] or "",
                  level=told["level"], way=told["way"], limit_ratio=told["limit_ratio"], price=price)  # fmt: skip


def as_event(asking: Asking) -> dict[str, Any]:
    """Return what run.json holds of it."""
    price = asking.price
    return {
        "asked_ratio": asking.ratio, "why": asking.why, "measured": asking.measured, "arm": asking.arm or None,
        "level": asking.level, "way": asking.way, "limit_ratio": asking.limit_ratio, "cost_ratio": price.cost_ratio,
        "cost_low": price.cost_low, "cost_high": price.cost_high, "pairs": list(price.pairs),
    }  # fmt: skip
