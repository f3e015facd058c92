"""However a response is cut into reads, it says the same, and each chunk has the time of the read that completed it."""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from loadtest.drive.deltas import Deltas
from loadtest.drive.failure import Failure
from loadtest.drive.sse import EventSplitter
from loadtest.drive.wire import Reply
from loadtest.record import Request

STAMPS = ("chunk_s", "first_visible_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sent:
    """One block of a stream: its bytes, and whether it is a chunk with tokens."""

    wire: bytes
    tokens: int = 0


@st.composite
def streams(draw: st.DrawFn) -> list[Sent]:
    """Any stream of a server that counts: roles, tokens, withheld text, comments, blanks, ends, whatever follows."""
    count, sent = 0, []
    for _ in range(draw(st.integers(0, 8))):
        kind = draw(st.sampled_from(["token", "token", "silent", "comment", "role", "other", "odd"]))
        rise = draw(st.integers(1, 9)) if kind in ("token", "silent") else 0
        count += rise
        if kind == "comment":
            sent.append(Sent(wire=b": " + draw(st.sampled_from([b"", b"ping", "né".encode()])) + b"\n\n"))
        elif kind == "other":
            sent.append(Sent(wire=b"event: note\nid: 3\ndata: 5\n\n"))
        elif kind == "odd":
            sent.append(Sent(wire=draw(st.sampled_from([b"\n\n", b"retry: 5\n\n", b"data: \n\n", b"nothing\n\n"]))))
        else:
            text = draw(st.text(max_size=12)) if kind == "token" else ""
            sent.append(Sent(wire=block(draw, {"content": text}, count), tokens=rise))
    sent.append(Sent(wire=block(draw, {}, count + 1, "stop"), tokens=1))
    return [*sent, *[Sent(wire=b"data: [DONE]\n\n")] * draw(st.booleans())]


def block(draw: st.DrawFn, delta: dict[str, Any], count: int, finish: str | None = None) -> bytes:
    said = {"id": "c", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}],
            "usage": {"completion_tokens": count}}  # fmt: skip
    data = json.dumps(said, ensure_ascii=draw(st.booleans())).encode("utf-8", "replace")
    if draw(st.booleans()):  # over several lines
        data = data.replace(b', "usage"', b',\ndata:"usage"')
    return draw(st.sampled_from([b"data: ", b"data:", b"event: message\ndata: "])) + data + b"\n\n"


def chunked(draw: st.DrawFn, body: bytes) -> tuple[bytes, list[int]]:
    """Frame a body in chunks whose borders are anywhere; return it and where each byte of the body lies in it."""
    borders = sorted({*draw(st.lists(st.integers(0, len(body)), max_size=6)), len(body)} - {0})
    wire, places, start = b"", [], 0
    for border in borders:
        head = b"%x%s\r\n" % (border - start, draw(st.sampled_from([b"", b";a=b"])))
        places += range(len(wire) + len(head), len(wire) + len(head) + border - start)
        wire += head + body[start:border] + b"\r\n"
        start = border
    return wire + b"0\r\n\r\n", places


@st.composite
def responses(draw: st.DrawFn) -> tuple[list[Sent], bytes, list[int], list[bytes]]:
    """A stream, its response, where the last byte of each block lies in it, and the reads it comes in."""
    sent = draw(streams())
    end = draw(st.sampled_from([b"\n", b"\r\n", b"\r"]))
    blocks = [block.wire.replace(b"\n", end) for block in sent]
    body = draw(st.sampled_from([b"", b"\xef\xbb\xbf"])) + b"".join(blocks)
    framing = draw(st.sampled_from(["chunked", "length", "close"]))
    head = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n"
    if framing == "chunked":
        framed, places = chunked(draw, body)
        head += b"Transfer-Encoding: chunked\r\n\r\n"
    else:
        framed, places = body, list(range(len(body)))
        head += b"content-length: %d\r\n\r\n" % len(body) if framing == "length" else b"\r\n"
    ends, at = [], len(body) - sum(map(len, blocks))
    for part in blocks:
        at += len(part)
        # A CR alone ends a line: whether an LF follows it belongs to the next block.
        ends.append(len(head) + places[at - 1 - (end == b"\r\n")])
    wire = head + framed
    cuts = sorted(draw(st.lists(st.integers(0, len(wire)), max_size=14)))
    reads = [wire[a:b] for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True) if a < b]
    return sent, wire, ends, reads


def read(reads: list[bytes]) -> tuple[Request, Failure | None]:
    """Read a response, its n-th read at n seconds."""
    record, reply, splitter = Request(), Reply(), EventSplitter()
    deltas = Deltas(record)
    for number, data in enumerate(reads):
        assert reply.feed(data) is None
        for piece in reply.pieces:
            for name, event in splitter.feed(piece):
                if not deltas.done:
                    deltas.take(name, event, float(number))
        reply.pieces.clear()
    return record, deltas.verdict()


@given(responses())
def test_any_cut_gives_the_same_answer_and_the_time_of_the_completing_read(
    case: tuple[list[Sent], bytes, list[int], list[bytes]],
) -> None:
    sent, wire, ends, reads = case
    record, wrong = read(reads)
    whole, whole_wrong = read([wire])
    assert (wrong is None, whole_wrong is None) == (True, True)
    for name in (f.name for f in fields(Request) if f.name not in STAMPS):
        assert getattr(record, name) == getattr(whole, name) or getattr(record, name) != getattr(record, name)
    assert list(record.chunk_tokens) == [block.tokens for block in sent if block.tokens]
    so_far, completed = 0, []
    for number, data in enumerate(reads):
        so_far += len(data)
        completed += [float(number)] * (sum(end < so_far for end in ends) - len(completed))
    assert list(record.chunk_s) == [at for block, at in zip(sent, completed, strict=True) if block.tokens]


@given(responses())
def test_single_bytes_give_the_same_answer(case: tuple[list[Sent], bytes, list[int], list[bytes]]) -> None:
    sent, wire, ends, _ = case
    record, wrong = read([wire[i : i + 1] for i in range(len(wire))])
    assert wrong is None
    assert list(record.chunk_s) == [float(end) for block, end in zip(sent, ends, strict=True) if block.tokens]
