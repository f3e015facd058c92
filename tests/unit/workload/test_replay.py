"""Traces replayed: which rows are used, when they arrive, and what they ask."""

from __future__ import annotations

import csv
import json
import math
import random
from collections.abc import Iterable
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ks_2samp

from loadtest.errors import RunError, UsageError
from loadtest.settings import Trace
from loadtest.workload import trace_index
from loadtest.workload.replay import TraceSource, open_trace
from loadtest.workload.sessions import SessionKey, requests_of

DATA = Path(__file__).parents[2] / "data" / "traces"
SHARED = Path(__file__).parents[4] / "shared" / "data"
PUBLISHED = ("azure_llm_2023_conv.csv", "azure_llm_2023_code.csv", "mooncake_fast25_conversation.jsonl")


def key(number: int, *, seed: int = 1, level: float = 4.0, block: int = 0) -> SessionKey:
    return SessionKey(seed=seed, level=level, block=block, number=number)


def table(tmp_path: Path, rows: Iterable[str], heading: str = "ts,input_tokens,output_tokens") -> Path:
    path = tmp_path / "own.csv"
    path.write_text("\n".join([heading, *rows]) + "\n")
    return path


def lines(tmp_path: Path, *rows: dict[str, Any]) -> Path:
    path = tmp_path / "own.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def opened(path: Path, **values: Any) -> TraceSource:
    return open_trace(Trace(file=str(path), **values), seed=1)


def done(source: TraceSource) -> dict[str, tuple[int, int]]:
    return {what.partition(" (")[0]: (one.rows, one.line) for what, one in source.index.counted.items()}


def from_first(source: TraceSource, count: int, **cell: Any) -> list[float]:
    """Return arrivals from the trace's first session on, whatever place the cell begins at."""
    place = source._place(cell.get("seed", 1), cell.get("level", 4.0), cell.get("block", 0))
    skipped = (source.sessions - place) % source.sessions
    times = list(islice(source.arrivals(1, 4.0, 0, cell.get("sessions_per_s")), skipped + count))[skipped:]
    return [time - times[0] for time in times]


def test_rows_are_sorted_and_counted(tmp_path: Path) -> None:
    source = opened(table(tmp_path, ["10,1,1", "12,2,2", "11,3,3", "11,4,4", "17,5,5"]), jitter_s=0.0)
    assert source.index.due_s.tolist() == [0.0, 1.0, 1.0, 2.0, 7.0]
    assert source.index.input_tokens.tolist() == [1, 3, 4, 2, 5]
    assert done(source) == {"sorted: out of order in the file": (2, 4)}
    assert (source.sessions, source.requests, source.span_s) == (5, 5, 8.75)
    assert source.sessions_per_s == pytest.approx(5 / 8.75)


def test_a_window_a_speed_and_a_limit_of_length(tmp_path: Path) -> None:
    rows = [f"{100 + i},{10 * i + 10},5" for i in range(20)]
    source = opened(table(tmp_path, rows), start_s=5.0, length_s=10.0, speed=2.0, max_input_tokens=120)
    assert source.index.input_tokens.tolist() == [60, 70, 80, 90, 100, 110, 120]
    assert source.index.due_s.tolist() == [0.0, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0]
    assert done(source) == {
        "left out: outside the window of time": (10, 2),
        "left out: more than 120 input tokens": (3, 14),
    }


def test_a_length_alone_begins_at_the_first_row(tmp_path: Path) -> None:
    rows = ["100,1,5", "90,2,5", "105,3,5", "99.9,4,5", "110,5,5"]
    source = opened(table(tmp_path, rows), length_s=10.0, jitter_s=0.0)
    assert source.index.input_tokens.tolist() == [1, 3]
    assert done(source) == {"left out: outside the window of time": (3, 3)}
    assert opened(table(tmp_path, rows), jitter_s=0.0).requests == 5  # without a window all are used


def test_thinning_keeps_whole_sessions_and_the_share_asked_for(tmp_path: Path) -> None:
    rows = [f"{i},5,5,s{i // 4}" for i in range(8000)]
    path = table(tmp_path, rows, "ts,input_tokens,output_tokens,session")
    source = opened(path, keep_ratio=0.25)
    kept: dict[int, int] = {}
    for line in source.index.line.tolist():
        kept[(line - 2) // 4] = kept.get((line - 2) // 4, 0) + 1
    assert set(kept.values()) == {4}
    assert abs(len(kept) - 500) < 4 * math.sqrt(2000 * 0.25 * 0.75)
    assert opened(path, keep_ratio=0.25).index.line.tolist() == source.index.line.tolist()
    other = open_trace(Trace(file=str(path), keep_ratio=0.25), seed=2)
    assert other.index.line.tolist() != source.index.line.tolist()


def test_more_rows_than_are_kept_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(trace_index, "MOST_ROWS", 3)
    source = opened(table(tmp_path, [f"{i},5,5" for i in range(8)]))
    assert source.requests == 3
    assert done(source) == {"left out: beyond the first 3 rows": (5, 5)}


def test_nothing_usable_is_said_with_every_reason(tmp_path: Path) -> None:
    path = table(tmp_path, ["1,2,0", "x,2,2", "1,2,0", "5,9,9"])
    with pytest.raises(UsageError) as caught:
        opened(path, max_input_tokens=5)
    assert str(caught.value) == (
        f"{path} holds no row that can be used: no output tokens: a request that failed (2 rows, first: line 2); the"
        " time of arrival is not a number or a date such as 2026-01-31 08:15:00.123 (1 row, first: line 3, 'x'); left"
        " out: more than 5 input tokens (max_input_tokens) (1 row, first: line 5)."
    )


def test_an_unknown_kind_of_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"trace\.text is 'cod'; it must be one of chat, code.*Did you mean `code`"):
        opened(table(tmp_path, ["1,2,3"]), text="cod")


@pytest.mark.parametrize(
    ("times", "step"),
    [
        ([0, 3, 3, 3.001, 6, 5.999, 9, 12, 12, 15, 18, 21, 24], 3.0),
        ([5, 6, 6, 9, 30, 30, 31, 35, 36, 40, 42], 1.0),
        ([0.0, 0.1, 0.1, 0.4, 2.0, 2.1, 2.2, 2.5, 3.1, 3.2], 0.1),
        ([0, 0, 0, 600, 600, 600], 0.0),  # two bursts
        ([0, 1, 2, 5, 9], 0.0),  # on a grid, and no two fall together
        ([0.0, 0.001, 0.001, 0.004], 0.0),  # steps too short to hide a burst
        ([0.0, 1.1, 1.1, 2.37, 4.02, 5.9, 7.1, 9.3, 9.95, 11.2, 12.7], 0.0),  # equal times, no grid
        ([7, 7, 7], 0.0),
        ([1], 0.0),
    ],
)
def test_the_step_of_a_coarse_clock(times: list[float], step: float) -> None:
    assert trace_index.clock_step_s(np.array(times, dtype=float)) == pytest.approx(step)


def test_arrivals_of_a_coarse_clock_are_spread_over_its_step(tmp_path: Path) -> None:
    generator = random.Random(3)
    true = np.cumsum([generator.expovariate(1.0) for _ in range(4000)])
    path = table(tmp_path, [f"{3 * math.floor(t / 3):.0f},5,5" for t in true])
    verbatim, spread = opened(path, jitter_s=0.0), opened(path)
    assert spread.index.jitter_s == 3.0
    assert done(spread)["jittered: spread over 3 s, the step of the trace's clock"] == (4000, 2)
    cv = [np.std(gaps) / np.mean(gaps) for gaps in (np.diff(s.index.due_s) for s in (verbatim, spread))]
    assert cv[0] > 1.5
    assert cv[1] == pytest.approx(1.0, abs=0.06)
    assert opened(path).index.due_s.tolist() == spread.index.due_s.tolist()
    assert opened(path, jitter_s=0.5).index.jitter_s == 0.5


def test_arrivals_keep_their_gaps_go_round_and_begin_where_the_cell_begins(tmp_path: Path) -> None:
    source = opened(table(tmp_path, ["0,10,1", "1,20,1", "4,30,1", "9,40,1"]))  # span 12 s
    assert from_first(source, 9) == pytest.approx([0, 1, 4, 9, 12, 13, 16, 21, 24])
    assert from_first(source, 5, sessions_per_s=1.0) == pytest.approx([0, 1 / 3, 4 / 3, 3, 4])
    for block in range(6):
        times = list(islice(source.arrivals(1, 4.0, block), 6))
        assert times[0] == 0.0
        assert times == sorted(times)
        starts = [source.index.firsts[(source._place(1, 4.0, block) + n) % 4] for n in range(6)]
        asked = [source.session(key(n, block=block)).turns[0].user for n in range(6)]
        assert [math.ceil(len(text) / 4) for text in asked] == [10 + 10 * int(start) for start in starts]


def test_blocks_of_a_level_begin_at_places_that_are_far_apart(tmp_path: Path) -> None:
    source = opened(table(tmp_path, [f"{i},5,5" for i in range(1000)]))
    places = sorted(source._place(1, 8.0, block) for block in range(8))
    gaps = [b - a for a, b in pairwise([*places, places[0] + 1000])]
    assert min(gaps) > 1000 / 8 / 2.7  # two consecutive Fibonacci numbers apart at the least
    assert source._place(1, 8.0, 0) != source._place(2, 8.0, 0)


def test_text_has_the_wanted_length_and_kind_and_is_new_in_every_cell(tmp_path: Path) -> None:
    rows = [
        f"{i},{size},5,{kind}"
        for i, (size, kind) in enumerate([(3, "chat"), (40, "code"), (900, "chat"), (2500, "code")])
    ]
    source = opened(table(tmp_path, rows, "ts,input_tokens,output_tokens,class"))
    place = source._place(1, 4.0, 0)
    by_row = {(place + n) % 4: source.session(key(n)).turns[0] for n in range(4)}
    assert [round(len(by_row[i].user) / 4) for i in range(4)] == [3, 40, 900, 2500]
    assert [by_row[i].category for i in range(4)] == ["chat", "code", "chat", "code"]
    assert "def " in by_row[3].user or "const " in by_row[3].user or "```" in by_row[3].user
    texts = {source.session(key(n, block=block, level=level)).turns[0].user
             for n in range(8) for block in (0, 1) for level in (4.0, 8.0)}  # fmt: skip
    assert len([text for text in texts if len(text) > 100]) == 2 * 2 * 2 * 3
    again = opened(table(tmp_path, rows, "ts,input_tokens,output_tokens,class"))
    assert again.session(key(7)) == source.session(key(7))
    sized = opened(table(tmp_path, rows, "ts,input_tokens,output_tokens,class"), characters_per_token=3.0, text="edit")
    assert {math.ceil(len(sized.session(key(n)).turns[0].user) / 3) for n in range(4)} == {3, 40, 900, 2500}


def test_answers_are_capped_as_in_the_trace_or_end_by_themselves(tmp_path: Path) -> None:
    path = table(tmp_path, ["1,5,17"])
    assert opened(path).session(key(0)).turns[0].max_tokens == 17
    assert opened(path, output="natural").session(key(0)).turns[0].max_tokens is None


def test_turns_of_a_session_follow_with_their_pauses_and_grow(tmp_path: Path) -> None:
    rows = ["0,200,50,a,2.0", "10,300,100,a,", "30,450,5,a,1", "1,60,5,b,1", "230,80,5,a,1"]
    source = opened(table(tmp_path, rows, "ts,input_tokens,output_tokens,session,duration_s"), speed=2.0)
    assert (source.sessions, source.requests) == (3, 5)  # who is away for over a minute comes back as a session
    sessions = sorted((source.session(key(n)) for n in range(3)), key=lambda session: -len(session.turns))
    long = sessions[0].turns
    # (10 − 2) ÷ 2, and (20 − 100 tokens at 50 tokens/s) ÷ 2
    assert [turn.think_s for turn in long] == [0.0, 4.0, 9.0]
    assert long[2].user.startswith(long[1].user[:400])
    assert long[1].user.startswith(long[0].user[:100])
    assert source.requests_per_s == pytest.approx(5 / source.span_s)


def test_blocks_that_are_equal_are_equal_text() -> None:
    source = opened(DATA / "mooncake_form.jsonl", jitter_s=0.0)
    place = source._place(1, 4.0, 0)
    first, second, third = (source.session(key((row - place) % 3)).turns[0].user for row in range(3))
    assert [len(text) for text in (first, second, third)] == [6000, 5200, 800]
    shared = next(i for i, (a, b) in enumerate(zip(first, second, strict=False)) if a != b)
    assert shared >= 2 * 512 * 4
    assert first[:100] != third[:100]
    assert len({first[: 512 * 4], first[512 * 4 : 1024 * 4], third[:300]}) == 3
    other = source.session(key((0 - source._place(1, 4.0, 1)) % 3, block=1)).turns[0].user
    assert other[:100] != first[:100]


def test_a_log_is_sent_as_it_was(tmp_path: Path) -> None:
    source = opened(DATA / "log.jsonl")
    assert source.holds_text
    sessions = {session.turns[0].category: session for session in (source.session(key(n)) for n in range(3))}
    assert set(sessions) == {"support", "story", "log"}
    (first, one), (second, two) = requests_of(sessions["support"])
    assert one == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where is order 17?"}]
    assert [message["content"] for message in two] == ["Be brief.", "Where is order 17?", "On its way.", "Since when?"]
    assert (first.max_tokens, second.max_tokens, second.user) == (12, 9, "Since when?")
    assert second.think_s == pytest.approx(4.0 - 12 / 50, abs=1e-3)
    assert sessions["story"].turns[0].prompt == "Once upon a time"
    assert not any("order" in note or "Once" in note for note in source.notes)
    assert "order" not in json.dumps(source.protocol())


def test_messages_that_append_to_an_earlier_request_are_put_together(tmp_path: Path) -> None:
    said = [
        {"role": "user", "content": "One?"},
        {"role": "assistant", "content": "1"},
        {"role": "user", "content": "Two?"},
    ]
    rows = (
        {"ts": 0, "session": 1, "messages": said[:1], "output_tokens": 1},
        {"ts": 5, "session": 1, "appended": said[1:], "after": 1, "output_tokens": 1},
        {
            "ts": 9,
            "session": 1,
            "appended": [said[1], {"role": "user", "content": "Three?"}],
            "after": 3,
            "output_tokens": 1,
        },
        {"ts": 9, "session": 2, "appended": said[:1], "after": 7, "output_tokens": 1},
        {"ts": 11, "session": 2, "appended": said[:1], "after": 8, "output_tokens": 1},
    )
    source = opened(lines(tmp_path, *rows))
    (session,) = (source.session(key(n)) for n in range(1))
    assert [[m["content"] for m in messages] for _, messages in requests_of(session)] == [
        ["One?"], ["One?", "1", "Two?"], ["One?", "1", "Two?", "1", "Three?"]
    ]  # fmt: skip
    assert done(source) == {"left out: it continues a request that is left out": (2, 4)}


def test_a_request_that_appends_to_none_is_whole(tmp_path: Path) -> None:
    own, last = ({"role": "user", "content": text} for text in ("Own.", "Last."))
    rows = ({"ts": 0, "appended": [own], "output_tokens": 1}, {"ts": 1, "messages": [last], "output_tokens": 1})
    source = opened(lines(tmp_path, *rows))
    asked = [messages for n in range(2) for _, messages in requests_of(source.session(key(n)))]
    assert sorted(asked, key=str) == [[last], [own]]


def test_a_file_that_changes_while_it_is_used_ends_the_run(tmp_path: Path) -> None:
    path = lines(tmp_path, {"ts": 0, "prompt": "a", "output_tokens": 1})
    source = opened(path)
    path.write_text('{"ts": 0, "prompt": "something else"}\n')
    with pytest.raises(RunError, match="was changed while it was in use"):
        source.session(key(0))


def test_the_same_seed_gives_the_same_bytes() -> None:
    def sent(source: TraceSource) -> str:
        sessions = [source.session(key(n, block=2)) for n in range(12)]
        return json.dumps([[messages for _, messages in requests_of(session)] for session in sessions])

    for name in ("plain.csv", "mooncake_form.jsonl", "log.jsonl"):
        one, two = opened(DATA / name), opened(DATA / name)
        assert sent(one) == sent(two)
        assert list(islice(one.arrivals(1, 4.0, 2, 2.5), 50)) == list(islice(two.arrivals(1, 4.0, 2, 2.5), 50))


def _raw(path: Path) -> tuple[list[float], list[int], list[int]]:
    """Read a published trace by other means: (seconds within its day, input and output lengths)."""
    if path.suffix == ".jsonl":
        rows = [json.loads(line) for line in path.read_text().splitlines()]
        return ([row["timestamp"] / 1000 for row in rows], [row["input_length"] for row in rows],
                [row["output_length"] for row in rows])  # fmt: skip
    with path.open() as file:
        table = list(csv.DictReader(file))
    clock = [row["TIMESTAMP"][11:].split(":") for row in table]
    times = [int(hour) * 3600 + int(minute) * 60 + float(second) for hour, minute, second in clock]
    return times, [int(row["ContextTokens"]) for row in table], [int(row["GeneratedTokens"]) for row in table]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_traces_keep_their_gaps_and_lengths(name: str) -> None:
    path = SHARED / name
    if not path.is_file():
        pytest.skip(f"{name} is not at hand")
    times, inputs, outputs = _raw(path)
    source = opened(path, jitter_s=0.0)
    gaps = np.diff(from_first(source, source.sessions, sessions_per_s=2.0))
    raw = np.diff(np.sort(times))
    digits = 6 if path.suffix == ".csv" else 3  # so that equal gaps are equal numbers
    assert (
        ks_2samp(np.round(gaps / gaps.mean(), digits), np.round(raw / raw.mean(), digits), method="asymp").statistic
        < 0.005
    )
    assert gaps.std() / gaps.mean() == pytest.approx(raw.std() / raw.mean(), rel=1e-3)
    place = source._place(1, 4.0, 0)
    chosen = [(place + n) % source.sessions for n in range(150)]
    turns = [source.session(key(n)).turns[0] for n in range(150)]
    lines = source.index.line[source.index.firsts[chosen]] - (2 if path.suffix == ".csv" else 1)
    assert [math.ceil(len(turn.user) / 4) for turn in turns] == [inputs[line] for line in lines]
    assert [turn.max_tokens for turn in turns] == [outputs[line] for line in lines]
