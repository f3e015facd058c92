from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.drive.failure import Failure
from loadtest.drive.sse import EVENT_LIMIT, EventSplitter

BOM = b"\xef\xbb\xbf"


def split(*pieces: bytes) -> list[tuple[bytes, bytes]]:
    splitter = EventSplitter()
    return [event for piece in pieces for event in splitter.feed(piece)]


@pytest.mark.parametrize(
    ("stream", "events"),
    [
        (b"data: a\n\n", [(b"", b"a")]),
        (b"data:a\n\n", [(b"", b"a")]),
        (b"data:  a\n\n", [(b"", b" a")]),
        (b"data: a\r\n\r\ndata: b\r\r", [(b"", b"a"), (b"", b"b")]),
        (b"data: a\n\r\ndata: b\r\n\ndata: c\r\n\r", [(b"", b"a"), (b"", b"b"), (b"", b"c")]),
        (b"data: a\ndata: b\ndata:\n\n", [(b"", b"a\nb\n")]),
        (b"data\n\n", [(b"", b"")]),
        (b": ping\n\ndata: a\n\n", [(b"", b"a")]),
        (b": ping\ndata: a\n: pong\n\n", [(b"", b"a")]),
        (b"\n\n\ndata: a\n\n\n\n\n", [(b"", b"a")]),
        (b"id: 7\nretry: 10\nevent: delta\ndata: a\nfoo: bar\n\n", [(b"delta", b"a")]),
        (b"event: delta\n\ndata: a\n\n", [(b"", b"a")]),
        (b"event: error\n\n", [(b"error", b"")]),
        (BOM + b"data: a\n\n" + BOM + b"data: b\n\ndata: c\n\n", [(b"", b"a"), (b"", b"c")]),
        ("data: \u2028\u2029\x85\x0b\x0c\x00ü\n\n".encode(), [(b"", "\u2028\u2029\x85\x0b\x0c\x00ü".encode())]),
        (b"data: a", []),
        (b"data: a\n", []),
        (b"data: a\n\ndata: b\n", [(b"", b"a")]),
        (b"", []),
    ],
)
def test_a_stream_splits_as_the_standard_says(stream: bytes, events: list[tuple[bytes, bytes]]) -> None:
    assert split(stream) == events
    assert split(*[bytes([byte]) for byte in stream]) == events
    assert split(b"data: first\n\n", stream.removeprefix(BOM) or b"")[:1] == [(b"", b"first")]


lines = st.sampled_from(
    [b"data: {}", b"data:", b"data: x\xe2\x82\xac", b": c", b"", b"", b"event: error", b"id: 1", b"data: [DONE]"]
)
ends = st.sampled_from([b"\n", b"\r\n", b"\r"])


@st.composite
def cut_streams(draw: st.DrawFn) -> tuple[bytes, list[bytes]]:
    stream = draw(st.sampled_from([b"", BOM])) + b"".join(
        line + end for line, end in draw(st.lists(st.tuples(lines, ends), max_size=20))
    )
    cuts = sorted(draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    return stream, [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]


@given(cut_streams())
def test_no_cut_changes_the_events(case: tuple[bytes, list[bytes]]) -> None:
    stream, pieces = case
    assert b"".join(pieces) == stream
    assert split(*pieces) == split(stream)


@given(cut_streams())
def test_every_event_comes_with_the_piece_that_completes_it(case: tuple[bytes, list[bytes]]) -> None:
    _, pieces = case
    splitter = EventSplitter()
    for number, piece in enumerate(pieces):
        so_far = len(split(b"".join(pieces[:number])))
        assert len(splitter.feed(piece)) == len(split(b"".join(pieces[: number + 1]))) - so_far


@given(st.lists(st.tuples(lines, ends), max_size=12))
def test_a_plain_reading_of_the_standard_gives_the_same(drawn: list[tuple[bytes, bytes]]) -> None:
    events, name, data = [], b"", []
    text = b"".join(line + end for line, end in drawn).replace(b"\r\n", b"\n").replace(b"\r", b"\n")
    for line in text.split(b"\n")[:-1]:
        if not line:
            if data or name == b"error":
                events.append((name, b"\n".join(data)))
            name, data = b"", []
        elif not line.startswith(b":"):
            field, _, value = line.partition(b":")
            value = value[1:] if value[:1] == b" " else value
            data += [value] if field == b"data" else []
            name = value if field == b"event" else name
    assert split(b"".join(line + end for line, end in drawn)) == events


def test_the_limit_holds_for_events_and_for_lines_without_an_end() -> None:
    assert len(split(b"data: " + b"a" * (EVENT_LIMIT - 6) + b"\n\n")) == 1
    for stream in (b"data: " + b"a" * EVENT_LIMIT + b"\n\n", b"a" * (EVENT_LIMIT + 1)):
        with pytest.raises(Failure, match="larger than 4 MiB"):
            split(b": x\n\n", *[stream[i : i + 65536] for i in range(0, len(stream), 65536)])


class Counted(bytearray):
    """Pending bytes that count how many of them are looked at, moved or copied."""

    work = 0

    def find(self, wanted: bytes, start: int = 0) -> int:  # type: ignore[override]  # as it is called
        found = super().find(wanted, start)
        self.work += 1 + (found if found >= 0 else len(self)) - start
        return found

    def __delitem__(self, place: slice) -> None:  # type: ignore[override]
        self.work += len(self) - (place.stop or 0) if place.stop else 0
        super().__delitem__(place)

    def __getitem__(self, place: slice) -> bytearray:  # type: ignore[override]
        part = super().__getitem__(place)
        self.work += len(part)
        return part


@pytest.mark.parametrize("piece", [1, 7, 4096])
@pytest.mark.parametrize(
    "stream",
    [b"a" * 30_000, b"data: " + b"a\ndata: " * 4_000, b"data: a\n\n" * 3_000, b":\n\n" * 10_000, b"\n" * 30_000,
     b"data: " + b"a" * 15_000 + b"\n\n" + b"b" * 15_000, b"\r" * 30_000],
    ids=["a line without an end", "an event without an end", "small events", "comments", "blank lines",
         "a large event", "carriage returns"],
)  # fmt: skip
def test_the_work_is_linear_in_the_bytes(stream: bytes, piece: int) -> None:
    splitter = EventSplitter()
    splitter._pending = pending = Counted()
    for start in range(0, len(stream), piece):
        splitter.feed(stream[start : start + piece])
    assert splitter._pending is pending
    assert 0 < pending.work <= 4 * len(stream) + 4 * (len(stream) // piece)
