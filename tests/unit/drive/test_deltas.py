from __future__ import annotations

import json
import math
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.drive.deltas import Deltas
from loadtest.drive.documents import error_message
from loadtest.drive.failure import Failure
from loadtest.drive.sse import EventSplitter
from loadtest.drive.wire import Reply
from loadtest.record import Request

STREAMS = Path(__file__).parents[2] / "data" / "streams"
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


def read(*reads: bytes) -> tuple[Request, Failure | None]:
    """Read pieces of a body; the n-th arrives at n seconds."""
    record = Request()
    splitter, deltas = EventSplitter(), Deltas(record)
    for number, piece in enumerate(reads):
        for name, data in splitter.feed(piece):
            deltas.take(name, data, float(number))
    return record, deltas.verdict()


def events_of(name: str) -> list[bytes]:
    return [part + b"\n\n" for part in (STREAMS / name).read_bytes().split(b"\n\n")[:-1]]


def event(**said: Any) -> bytes:
    return b"data: " + json.dumps(said).encode() + b"\n\n"


def delta(text: str | None = None, *, finish: str | None = None, index: int = 0, **more: Any) -> bytes:
    choice = {"index": index, "delta": {"content": text}, "finish_reason": finish}
    return event(choices=[choice], **more)


def usage(count: Any) -> dict[str, Any]:
    return {"usage": {"prompt_tokens": 5, "completion_tokens": count}}


SEVERAL = "the server answered with several choices; one was asked for"
DONE = b"data: [DONE]\n\n"


def test_vllm_chat_with_a_running_count() -> None:
    record, wrong = read(*events_of("vllm-0.32-ngram-chat-usage.sse"))
    assert wrong is None
    assert list(record.chunk_s) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0]
    assert list(record.chunk_tokens) == [1, 8, 4, 1, 1, 45]
    assert (record.tokens_source, record.output_tokens, record.prompt_tokens, record.cached_tokens) == (
        "usage",
        60,
        98,
        -1,
    )
    assert (record.finish_reason, record.response_id) == ("length", "chatcmpl-9ef00016874f15b0")
    assert record.first_visible_s == 1.0
    assert record.spec_drafts == -1


def test_vllm_completion_with_token_ids() -> None:
    record, wrong = read(*events_of("vllm-0.32-ngram-completion-ids.sse"))
    assert wrong is None
    assert list(record.chunk_tokens) == [1, 4, 1, 1, 1]
    assert (record.tokens_source, record.output_tokens, record.finish_reason) == ("ids", 60, "length")


def test_vllm_completion_without_any_count() -> None:
    record, wrong = read(*events_of("vllm-0.32-ngram-completion-plain.sse"))
    assert list(record.chunk_s) == [0.0, 1.0, 2.0, 3.0, 4.0]
    assert (record.tokens_source, list(record.chunk_tokens), record.output_tokens) == ("none", [], -1)
    assert wrong is not None
    assert wrong.outcome == "empty"


def test_llamacpp_counts_in_its_timings_a_token_an_event() -> None:
    record, wrong = read(*events_of("llamacpp-ngram-chat.sse"))
    assert wrong is None
    assert list(record.chunk_s) == [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]
    assert (record.tokens_source, list(record.chunk_tokens)) == ("timings", [1] * 8)
    assert (record.output_tokens, record.prompt_tokens, record.cached_tokens) == (8, 25, 0)
    assert (record.spec_drafts, record.spec_drafted, record.spec_accepted) == (-1, 7, 4)


def timed(predicted: Any) -> dict[str, Any]:
    return {"timings": {"prompt_n": 25, "predicted_n": predicted}}


def test_timings_count_withheld_text_with_the_next_event() -> None:
    record, wrong = read(delta(None, **timed(0)), delta("a", **timed(1)), delta("é", **timed(4)), delta("", **timed(4)),
                         delta(None, finish="stop"), event(choices=[], **usage(5), **timed(5)), DONE)  # fmt: skip
    assert wrong is None
    assert (list(record.chunk_s), list(record.chunk_tokens), record.tokens_source) == ([1.0, 2.0], [1, 3], "timings")
    assert (record.output_tokens, record.first_visible_s) == (5, 1.0)


def test_timings_at_the_end_alone_are_no_running_count() -> None:
    record, wrong = read(delta("a"), delta("b"), delta(None, finish="stop", **usage(2), **timed(2)), DONE)
    assert wrong is None
    assert (list(record.chunk_s), list(record.chunk_tokens), record.tokens_source) == ([0.0, 1.0], [], "none")


@pytest.mark.parametrize("odd", ["3", None, -1, True, 2.5, 2**40])
def test_timings_that_are_no_count_count_nothing(odd: Any) -> None:
    record, wrong = read(delta("a", **timed(odd)), delta("b", finish="stop", **timed(odd), **usage(2)), DONE)
    assert wrong is None
    assert (list(record.chunk_s), list(record.chunk_tokens), record.tokens_source) == ([0.0, 1.0], [], "none")


def test_a_usage_goes_before_timings_and_timings_may_not_fall() -> None:
    record, _ = read(delta("a", **usage(2), **timed(1)), delta("b", finish="stop", **usage(5), **timed(2)), DONE)
    assert (list(record.chunk_tokens), record.tokens_source) == ([2, 3], "usage")
    with pytest.raises(Failure, match="the count of output tokens fell from 3 to 2"):
        read(delta("a", **timed(3)), delta("b", **timed(2)))


def test_figures_on_speculation_ride_on_the_closing_usage() -> None:
    figures = {"num_spec_steps": 3, "num_accepted_draft_tokens": 5, "num_draft_tokens": 9}
    closing = event(choices=[], **usage(9), metrics={"speculative_decoding": figures})
    record, wrong = read(delta("a", **usage(1)), delta("b", finish="stop", **usage(9)), closing, DONE)
    assert wrong is None
    assert (record.spec_drafts, record.spec_drafted, record.spec_accepted) == (3, 9, 5)


def test_withheld_text_counts_as_tokens_and_not_as_visible() -> None:
    record, wrong = read(delta("", **usage(0)), delta("", **usage(2)), delta("", **usage(2)), delta("ab", **usage(3)),
                         delta("", finish="stop", **usage(4)), event(choices=[], **usage(4)), DONE)  # fmt: skip
    assert wrong is None
    assert (list(record.chunk_s), list(record.chunk_tokens)) == ([1.0, 3.0, 4.0], [2, 1, 1])
    assert record.first_visible_s == 3.0


def test_an_answer_of_one_end_token_is_an_answer() -> None:
    record, wrong = read(delta("", finish="stop", **usage(1)), event(choices=[], **usage(1)), DONE)
    assert wrong is None
    assert (list(record.chunk_tokens), record.output_tokens) == ([1], 1)
    assert math.isnan(record.first_visible_s)


def test_a_count_on_the_finish_alone_is_not_a_chunk_of_all_tokens() -> None:
    record, wrong = read(delta("a"), delta("b"), delta("c"), delta("", finish="stop", **usage(12)), DONE)
    assert wrong is None
    assert (list(record.chunk_s), list(record.chunk_tokens), record.output_tokens) == ([0.0, 1.0, 2.0], [], 12)
    assert record.tokens_source == "none"


def test_a_count_on_the_role_alone_is_no_running_count() -> None:
    record, wrong = read(
        delta("", **usage(0)), delta("a"), delta("b", finish="stop"), event(choices=[], **usage(5)), DONE
    )
    assert wrong is None
    assert (list(record.chunk_s), record.tokens_source, record.output_tokens) == ([1.0, 2.0], "none", 5)


def test_the_closing_usage_corrects_the_total() -> None:
    record, wrong = read(
        delta("a", **usage(1)), delta("b", finish="stop", **usage(3)), event(choices=[], **usage(5)), DONE
    )
    assert wrong is None
    assert (list(record.chunk_tokens), record.output_tokens) == ([1, 2], 5)


def test_ids_give_the_total_without_a_usage() -> None:
    def ids(*numbers: int, finish: str | None = None) -> bytes:
        return event(choices=[{"index": 0, "text": "x", "token_ids": list(numbers), "finish_reason": finish}])

    record, wrong = read(ids(4), ids(5, 6, 7), ids(8, finish="length"), DONE)
    assert wrong is None
    assert (record.tokens_source, list(record.chunk_tokens), record.output_tokens) == ("ids", [1, 3, 1], 5)


@pytest.mark.parametrize(
    ("said", "outcome", "text"),
    [
        (b"data: 5\n\n", "protocol_error", "an event is not a JSON object: 5"),
        (b"data: [1]\n\n", "protocol_error", "an event is not a JSON object: [1]"),
        (b"data: {\n\n", "protocol_error", "an event is not JSON: {"),
        (event(choices={"a": 1}), "protocol_error", "choices is not a list of objects"),
        (event(choices=[5]), "protocol_error", "choices is not a list of objects"),
        (event(choices=[{"delta": [1]}]), "protocol_error", "delta is not an object"),
        (event(choices=[{"delta": {}}, {"delta": {}}]), "protocol_error", SEVERAL),
        (delta("a", index=1), "protocol_error", SEVERAL),
        (event(choices=[{"text": "a", "token_ids": 5}]), "protocol_error", "token_ids is not a list"),
        (delta("a", usage=7), "protocol_error", "usage is not an object"),
        (delta("a", **usage(True)), "protocol_error", "usage.completion_tokens is true"),
        (delta("a", **usage(1.5)), "protocol_error", "usage.completion_tokens is 1.5"),
        (delta("a", **usage(2**31)), "protocol_error", "usage.completion_tokens is 2147483648"),
        (delta("a", finish="error"), "stream_error", "the stream ended with the finish_reason error"),
        (event(error={}), "stream_error", "the stream reported an error: {}"),
        (event(object="error", message="too long"), "stream_error", "the stream reported an error: too long"),
        (b'event: error\ndata: {"message": "a\\u202eb"}\n\n', "stream_error", "the stream reported an error: ab"),
        (b"event: error\ndata: 5\n\n", "stream_error", "the stream reported an error: 5"),
    ],
)  # fmt: skip
def test_what_cannot_be_read_is_named(said: bytes, outcome: str, text: str) -> None:
    with pytest.raises(Failure) as caught:
        read(said)
    assert (caught.value.outcome, caught.value.text) == (outcome, text)


@pytest.mark.parametrize("where", [
    '{"choices":[{"delta":{"content":"a"},"finish_reason":%s}]}', '{"choices":[{"delta":{"content":%s}}]}',
    '{"choices":[{"delta":{"content":"a","tool_calls":%s}}]}', '{"choices":[{"delta":{"content":"a"},"token_ids":%s}]}',
    '{"choices":[{"delta":{"content":"a"}}],"usage":{"completion_tokens":%s}}', '{"choices":%s}', '{"error":%s}',
    '{"choices":[{"delta":{"content":"a"}}],"usage":{"completion_tokens":1,"more":%s}}', '{"id":%s,"choices":[]}',
    '{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}],"metrics":%s}', '{"model":%s}', '%s',
])  # fmt: skip
def test_a_value_that_is_nested_deep_is_read_or_named_wherever_it_stands(where: str) -> None:
    for depth in (300, 1000):
        data = f"data: {where % ('[' * depth + ']' * depth)}\n\n".encode()
        with suppress(Failure):  # any other exception would end the run
            read(data, data)


@pytest.mark.parametrize("said", [b"data: \n\n", b"event: sglext_ids\ndata: 12 13\n\n", b"event: note\ndata: [1]\n\n",
                                  event(error=None), event(choices=None), event(choices=[]), event(),
                                  event(usage=None, choices=[]), event(usage={}, choices=[])])  # fmt: skip
def test_what_says_nothing_is_passed_over(said: bytes) -> None:
    record, wrong = read(said, delta("a", finish="stop", **usage(1)), said, DONE)
    assert wrong is None
    assert (list(record.chunk_tokens), record.output_tokens) == ([1], 1)


def test_error_messages_are_found_and_made_printable() -> None:
    assert error_message({"error": {"message": "a\x1b[0m\nb\x00"}}) == "a[0m b"
    assert error_message({"error": "x" * 500}) == "x" * 300 + "…"
    assert error_message([1, 2]) == "[1,2]"
    nested = json.loads("[" * 300 + "]" * 300)
    for said in ({"error": {"code": nested}}, {"error": {"message": nested}}, nested):
        assert error_message(said) == "JSON that is nested too deeply to be shown"


@given(st.lists(st.integers(1, 5), min_size=1, max_size=8), st.data())
def test_no_cut_of_a_response_changes_its_record_but_the_stamps(rises: list[int], data: st.DataObject) -> None:
    counts = [sum(rises[: i + 1]) for i in range(len(rises))]
    bodies = [delta("", **usage(0)), *[delta("é", **usage(n)) for n in counts], b": ping\n\n",
              delta("", finish="stop", **usage(counts[-1])), DONE]  # fmt: skip
    wire = HEAD + b"".join(b"%x\r\n%s\r\n" % (len(body), body) for body in bodies) + b"0\r\n\r\n"
    cuts = sorted(data.draw(st.lists(st.integers(0, len(wire)), max_size=10)))
    reads = [wire[a:b] for a, b in zip([0, *cuts], [*cuts, len(wire)], strict=True)]
    record, reply, splitter = Request(), Reply(), EventSplitter()
    deltas = Deltas(record)
    for number, piece in enumerate(reads):
        assert reply.feed(piece) is None
        for part in reply.pieces:
            for name, said in splitter.feed(part):
                deltas.take(name, said, float(number))
        reply.pieces.clear()
    assert deltas.verdict() is None
    assert reply.complete
    assert list(record.chunk_tokens) == rises
    assert record.output_tokens == counts[-1]
    # The stamp is that of the read in which the event's last byte came.
    for count, at_s in zip(counts, record.chunk_s, strict=True):
        last_byte = wire.index(delta("é", **usage(count))) + len(delta("é", **usage(count))) - 1
        assert at_s == next(i for i, _ in enumerate(reads) if sum(map(len, reads[: i + 1])) > last_byte)
