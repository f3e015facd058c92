"""Streams whose events repeat, one a read: the quick way over real sockets, and whatever ends it."""

from __future__ import annotations

import gc
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from loadtest.drive import exchange as exchange_module
from loadtest.drive.exchange import Exchange
from loadtest.drive.repeats import Repeats
from loadtest.record import Request

pytestmark = pytest.mark.usefixtures("stamps")

Ask = Callable[..., Request]
PAUSE_S = 0.004  # apart enough that each chunk has a read of its own
MANY = 12


def many(say: Any, *, counted: bool, number: int = MANY) -> list[Any]:
    """The head, and the first chunks of an answer."""
    events = [say.token(n) if counted else say.word() for n in range(1, number + 1)]
    return [say.HEAD, PAUSE_S, *(step for event in events for step in (say.chunk(event), PAUSE_S))]


@pytest.fixture
def others(monkeypatch: pytest.MonkeyPatch) -> list[bytes | None]:
    """What goes the way of every read."""
    taken: list[bytes | None] = []
    take = Exchange._take

    def taking(self: Exchange, data: bytes | None) -> None:
        taken.append(data)
        take(self, data)

    monkeypatch.setattr(Exchange, "_take", taking)
    return taken


@pytest.mark.parametrize("counted", [False, True])
def test_what_repeats_is_read_the_quick_way(
    ask: Ask, say: Any, others: list[bytes], stamps: str, counted: bool
) -> None:
    number = 40
    end = say.chunk(say.token(number, "", "stop") + say.usage(number) + say.DONE)
    record = ask(*many(say, counted=counted, number=number), end, PAUSE_S, say.END)
    assert (record.outcome, record.error, record.output_tokens) == ("ok", "", number)
    assert (len(record.chunk_s), record.coalesced, record.stamp_source) == (number, 0, stamps)
    assert list(record.chunk_tokens) == [1] * number * counted
    assert all(before < after for before, after in pairwise(record.chunk_s))
    assert 0 < record.lag_max_s < 0.1 or stamps == "user"
    # The head, two chunks to learn from and the last reads; and on a busy machine those that come late.
    assert len(others) < number / 2 or stamps == "user"


ENDS: dict[str, tuple[Callable[[Any], list[Any]], tuple[str, int, str]]] = {
    "the connection is closed": (
        lambda s: [s.CLOSE], ("truncated", 12, "the server closed the connection after 12 chunks")),
    "the connection is reset": (
        lambda s: [s.RESET], ("truncated", 12, "the connection was reset after 12 chunks")),
    "it is closed within a chunk": (
        lambda s: [s.chunk(s.word())[:-30], s.CLOSE],
        ("truncated", 12, "the server closed the connection after 12 chunks")),
    "nothing more comes": (
        lambda s: [s.HOLD], ("stalled", 12, "no token came for 0.4 s after 12 chunks")),
    "an error": (
        lambda s: [s.chunk(s.event(error="EngineCore died")), s.HOLD],
        ("stream_error", 12, "the stream reported an error: EngineCore died (after 12 chunks)")),
    "what is no JSON": (
        lambda s: [s.chunk(s.word().replace(b"}],", b"}]").replace(b'"choices"', b"choices")), s.HOLD],
        ("protocol_error", 12, "")),
    "another answer": (
        lambda s: [s.chunk(s.word().replace(b"cmpl-1", b"cmpl-2")), s.HOLD],
        ("protocol_error", 12, "")),
    "what is no chunk": (lambda s: [s.word(), s.HOLD], ("protocol_error", 12, "")),
    "two in a read, one in two, and on": (
        lambda s: [2 * s.chunk(s.word()), PAUSE_S, s.chunk(s.word())[:40], PAUSE_S, s.chunk(s.word())[40:], PAUSE_S,
                   *[step for _ in range(3) for step in (s.chunk(s.word()), PAUSE_S)],
                   s.chunk(s.token(18, "", "stop") + s.DONE) + s.END],
        ("ok", 18, "")),
    "odd texts": (
        lambda s: [*[step for text in ('"', "é", "\\n", "", " ") for step in (s.chunk(s.word(text)), PAUSE_S)],
                   s.chunk(s.token(16, "", "stop") + s.DONE) + s.END],
        ("ok", 16, "")),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_whatever_follows_is_what_it_is(ask: Ask, say: Any, name: str) -> None:
    steps, (outcome, chunks, error) = ENDS[name]
    record = ask(*many(say, counted=False), *steps(say), stall_s=0.4)
    assert (record.outcome, len(record.chunk_s)) == (outcome, chunks), record.error
    assert error in record.error
    assert list(record.chunk_s) == sorted(record.chunk_s)


@pytest.mark.parametrize("name", ["nothing more comes", "two in a read, one in two, and on"])
def test_what_read_a_stream_is_gone_with_it(ask: Ask, say: Any, name: str) -> None:
    """Without the collector of cycles, which a driver does without while it measures."""
    gc.collect()
    gc.disable()
    try:
        ask(*many(say, counted=False), *ENDS[name][0](say), stall_s=0.3)
        assert [type(each) for each in gc.get_objects() if isinstance(each, Exchange | Repeats)] == []
    finally:
        gc.enable()


def test_a_stream_of_too_many_chunks_is_ended(ask: Ask, say: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """What goes the quick way is not weighed: its chunks are counted when a deadline is looked at."""
    assert exchange_module.CHUNKS_LIMIT == 2**20
    monkeypatch.setattr(exchange_module, "CHUNKS_LIMIT", 10)
    record = ask(*many(say, counted=False, number=60), say.HOLD, stall_s=0.1)
    assert (record.outcome, record.error[:34]) == ("protocol_error", "the stream has more than 10 chunks")
