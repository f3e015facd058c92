"""`[[slo]]` tables → objectives; what is unknown, has no unit or can never be shown is refused, with its place.

An objective is absolute (`max` or `min`), relative (`not_worse_by`: at most that much worse than the baseline) or a
benefit (`better_by`). Every value carries its unit.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from loadtest.errors import nearest
from loadtest.slo import (
    COUNTED,
    EXAMPLES,
    GOODPUT,
    MEASURES,
    MLPERF,
    PER_REQUEST,
    PRESET_SOURCE,
    PRESETS,
    STATISTICS,
    UNITS,
    Ask,
    Load,
    Measure,
    Slo,
    Unit,
    load_of,
    percent,
    points,
    quantity,
    shown,
    written,
)

ITL = (
    "`itl` means three things: write `tpot` (time per output token of a request: the ITL of GuideLLM and AIPerf),"
    " `token_gap` (per token, 0 within a chunk: the ITL of inference-perf) or `chunk_gap` (per chunk: the ITL of"
    " vLLM's benchmark, of its /metrics and of EvalScope, which speculation lengthens by design)."
)

KEYS = (
    "metric", "statistic", "max", "min", "not_worse_by", "better_by", "at", "up_to", "category", "arm", "within",
    "preset", "candidate",
)  # fmt: skip
ASKS = {"max": Ask.ABSOLUTE, "min": Ask.ABSOLUTE, "not_worse_by": Ask.RELATIVE, "better_by": Ask.BENEFIT}


class Refusal(ValueError):
    """An objective that is refused: which one (from 0), at which key, and the sentence."""

    def __init__(self, index: int, key: str, sentence: str) -> None:
        """Keep the place beside the sentence."""
        super().__init__(sentence)
        self.index, self.key = index, key


def objectives(tables: Sequence[Mapping[str, Any]]) -> tuple[Slo, ...]:
    """Return the objectives of `[[slo]]` tables, presets spelt out. Raises Refusal."""
    found: list[Slo] = []
    for index, table in enumerate(tables):
        found += _Table(index, table).read()
    return tuple(found)


class _Table:
    """One `[[slo]]` table while it is read."""

    def __init__(self, index: int, table: Mapping[str, Any]) -> None:
        self._index, self._table = index, table

    def _refuse(self, key: str, sentence: str) -> Refusal:
        return Refusal(self._index, key, sentence)

    def _value(self, key: str, read: Any) -> Any:
        try:
            return read(self._table[key])
        except ValueError as allowed:
            raise self._refuse(key, f"{key} is {shown(self._table[key])}; it must be {allowed}.") from None

    def read(self) -> list[Slo]:
        """Return the table's objectives: one, or those of a preset."""
        table = self._table
        if not isinstance(table, Mapping):
            raise self._refuse("", "an objective is a table, written as [[slo]] with its keys below.")
        for key in table:
            if key not in KEYS:
                raise self._refuse(
                    key, f"an objective has no key `{key}`.{nearest(key, KEYS)} Keys are {', '.join(KEYS)}."
                )
        where = self._load()
        category = self._value("category", _name) if "category" in table else ""
        arm = self._value("arm", _arm) if "arm" in table else "candidate"
        candidate = self._value("candidate", _candidate) if "candidate" in table else ""
        if candidate and arm == "baseline":
            raise self._refuse("candidate", "an objective of the baseline names no candidate; leave out `candidate`.")
        found = self._preset(where, category, arm) if "preset" in table else [self._one(where, category, arm)]
        return [replace(slo, candidate=candidate) for slo in found]

    def _load(self) -> Load:
        if "at" in self._table and "up_to" in self._table:
            raise self._refuse("up_to", "an objective holds `at` one load or `up_to` one; leave one of them out.")
        for key in ("at", "up_to"):
            if key in self._table:
                found: Load = self._value(key, lambda word, up_to=key == "up_to": load_of(word, up_to=up_to))
                return found
        return Load()

    def _preset(self, where: Load, category: str, arm: str) -> list[Slo]:
        other = [key for key in self._table if key not in ("preset", "at", "up_to", "category", "arm", "candidate")]
        if other:
            raise self._refuse(other[0], f"a preset brings its metrics and limits with it; leave out `{other[0]}`.")
        name = self._table["preset"]
        if not isinstance(name, str) or name not in PRESETS:
            hint = nearest(str(name)[:60], PRESETS)
            raise self._refuse("preset", f"there is no preset {shown(name)}.{hint} Presets are {', '.join(PRESETS)}.")
        limits = zip(("ttft", "tpot"), MLPERF[str(name).removeprefix("mlperf-")], strict=True)
        return [
            Slo(metric=metric, statistic="p99", ask=Ask.ABSOLUTE, limit=limit / 1000, load=where, category=category,
                arm=arm, source=f"{name}: {PRESET_SOURCE}")
            for metric, limit in limits
        ]  # fmt: skip

    def _one(self, where: Load, category: str, arm: str) -> Slo:
        metric = self._metric()
        measure = MEASURES[metric]
        asked = [key for key in ASKS if key in self._table]
        if len(asked) != 1:
            said = "none" if not asked else " and ".join(asked)
            raise self._refuse(
                asked[-1] if asked else "metric", f"an objective asks for one of {', '.join(ASKS)}; this has {said}."
            )
        key, ask = asked[0], ASKS[asked[0]]
        self._refuse_wrong_side(metric, measure, key)
        if category and not measure.by_category:
            raise self._refuse("category", f"`{metric}` is counted for all requests together; leave out `category`.")
        if ask is not Ask.ABSOLUTE and "arm" in self._table:
            raise self._refuse("arm", f"`{key}` compares both arms; leave out `arm`.")
        if metric in COUNTED and (ask is not Ask.ABSOLUTE or arm == "baseline"):
            raise self._refuse(key, f"`{metric}` is the candidate's own: ask for `min`, of the candidate.")
        return Slo(
            metric=metric, statistic=self._statistic(metric, measure), ask=ask, limit=self._limit(key, ask, measure),
            load=where, category=category, arm=arm, within=self._within(metric),
        )  # fmt: skip

    def _metric(self) -> str:
        if "metric" not in self._table:
            raise self._refuse("", f"an objective names its `metric`: {', '.join(MEASURES)}.")
        metric = self._table["metric"]
        if isinstance(metric, str) and metric.lower() in ("itl", "inter_token_latency", "tbt"):
            raise self._refuse("metric", ITL)
        if not isinstance(metric, str) or metric not in MEASURES:
            hint = nearest(str(metric)[:60], MEASURES)
            raise self._refuse(
                "metric", f"there is no metric {shown(metric)}.{hint} Metrics are {', '.join(MEASURES)}."
            )
        return metric

    def _refuse_wrong_side(self, metric: str, measure: Measure, key: str) -> None:
        wanted = "max" if measure.better == "lower" else "min"
        if key in ("max", "min") and key != wanted:
            raise self._refuse(key, f"`{metric}` is better when it is {measure.better}: bound it with `{wanted}`.")

    def _statistic(self, metric: str, measure: Measure) -> str:
        if not measure.tails:
            if "statistic" in self._table:
                raise self._refuse("statistic", f"`{metric}` is one figure; leave out `statistic`.")
            return ""
        word = self._table.get("statistic")
        if word is None:
            raise self._refuse("metric", f"say which statistic of `{metric}`: {', '.join(STATISTICS)}.")
        if word not in STATISTICS:
            hint = nearest(str(word)[:60], STATISTICS)
            raise self._refuse(
                "statistic", f"there is no statistic {shown(word)}.{hint} Statistics are {', '.join(STATISTICS)}."
            )
        return str(word)

    def _limit(self, key: str, ask: Ask, measure: Measure) -> float:
        if ask is Ask.ABSOLUTE:
            limit: float = self._value(key, lambda word: quantity(word, UNITS[measure.unit], EXAMPLES[measure.unit]))
            self._refuse_unreachable(key, limit, measure)
            return limit
        if measure.unit is Unit.SHARE:
            units = {"points": 0.01, "point": 0.01}
            margin: float = self._value(key, lambda word: quantity(word, units, '"0.5 points"'))
        else:
            margin = self._value(key, lambda word: quantity(word, {"%": 0.01}, '"5 %"'))
        if margin >= 1 and measure.unit is Unit.SHARE:
            raise self._refuse(key, f"{key} is {points(margin)}; a share has 100.")
        if margin >= 1 and ask is Ask.RELATIVE and measure.better == "higher":
            raise self._refuse(key, f"{key} is {percent(margin)}: {measure.label} cannot be worse by more than 100 %.")
        return margin

    def _refuse_unreachable(self, key: str, limit: float, measure: Measure) -> None:
        if measure.unit is Unit.SHARE and limit > 1:
            raise self._refuse(key, f"{key} is {percent(limit)}; a share is at most 100 %.")
        ends = {"lower": 0.0, "higher": 1.0 if measure.unit is Unit.SHARE else None}
        never = limit == ends[measure.better]
        always = limit == (0.0 if measure.better == "higher" else 1.0 if measure.unit is Unit.SHARE else None)
        if always:
            raise self._refuse(key, f"{key} is {written(limit, measure.unit)}: every figure meets that, so that nothing"
                               f" is asked; leave it out, or write such as {EXAMPLES[measure.unit]}.")  # fmt: skip
        if never:
            example = "0.1 %" if measure.better == "lower" else "99.9 %"
            example = example if measure.unit is Unit.SHARE else "1 ms"
            raise self._refuse(key, f'{key} is {written(limit, measure.unit)}: no number of requests can show that;'
                               f' write such as "{example}".')  # fmt: skip

    def _within(self, metric: str) -> tuple[tuple[str, float], ...]:
        bounds = self._table.get("within")
        if metric not in GOODPUT:
            if bounds is not None:
                raise self._refuse("within", f"`within` belongs to goodput, not to `{metric}`.")
            return ()
        example = 'within = { ttft = "500 ms", tpot = "40 ms" }'
        if not isinstance(bounds, Mapping) or not bounds:
            key = "metric" if bounds is None else "within"
            raise self._refuse(key, f"goodput needs the limits of a request, such as {example}.")
        found = []
        for name, word in bounds.items():
            if name in ("itl", "tbt"):
                raise self._refuse("within", ITL)
            if name not in PER_REQUEST:
                raise self._refuse(
                    "within",
                    f"`within` cannot bound `{name}`.{nearest(name, PER_REQUEST)} It bounds {', '.join(PER_REQUEST)}.",
                )
            try:
                limit = quantity(word, UNITS[Unit.SECONDS], EXAMPLES[Unit.SECONDS])
            except ValueError as allowed:
                raise self._refuse("within", f"within.{name} is {shown(word)}; it must be {allowed}.") from None
            if limit <= 0:
                raise self._refuse("within", f"within.{name} is {shown(word)}: no request takes no time; write such as"
                                   f" {EXAMPLES[Unit.SECONDS]}.")  # fmt: skip
            found.append((str(name), limit))
        return tuple(found)


def _name(word: object) -> str:
    if not isinstance(word, str) or not word.strip() or not word.isprintable():
        raise ValueError("the name of a category of requests")
    return word


def _candidate(word: object) -> str:
    if not isinstance(word, str) or not word.strip() or not word.isprintable():
        raise ValueError("the name of a candidate, as --speculative NAME=URL or a servers file gives it")
    return word


def _arm(word: object) -> str:
    if word not in ("candidate", "baseline"):
        raise ValueError('one of "candidate", "baseline"')
    return str(word)


def as_tables(value: object) -> tuple[dict[str, Any], ...]:
    """Return `[[slo]]` tables (or one `[slo]` table) as they stand, once all of them can be read. Raises Refusal."""
    if isinstance(value, Mapping):
        value = [value]
    if not isinstance(value, list | tuple):
        raise Refusal(0, "", "objectives are tables, written as [[slo]].")
    objectives(value)
    return tuple(
        {key: dict(item) if isinstance(item, Mapping) else item for key, item in table.items()} for table in value
    )
