"""What the events of an OpenAI-compatible stream say (chat and completions): tokens, text, ends and errors.

Where the tokens of each chunk come from, in this order (`Request.tokens_source`):

usage   the cumulative `usage.completion_tokens` on the events themselves (`stream_options.continuous_usage_stats`):
        an event whose count rose is a chunk, its tokens are the rise, even when its text is empty or withheld
ids     the length of `choices[0].token_ids` (`return_token_ids`)
timings the running `timings.predicted_n` of llama.cpp (`timings_per_token`), which has an event for every token, also
        for those that one step brought together
none    nobody says: each event with text, reasoning or a tool call is a chunk, and `chunk_tokens` stays empty

`output_tokens` is the last count that the server reported, whichever of them holds; without one, the sum of the
ids. It may exceed the sum of `chunk_tokens`: a server may count tokens in the closing usage that no event carried.

One object of one state reads all forms of events, since a form is known by those before it; hence the length.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import orjson

from loadtest.drive.alike import Alike
from loadtest.drive.documents import error_message, mended, named, refuse_repeats, written
from loadtest.drive.failure import Failure, printable, quoted
from loadtest.drive.told_figures import COUNT_LIMIT, count_of, mapping, take_figures
from loadtest.record import EVENT_PER_TOKEN, Outcome, Request

_USAGE, _IDS, _TIMINGS, _NONE = "usage", "ids", EVENT_PER_TOKEN, "none"
_MAY_COUNT = ("", _USAGE)
_REASONS = ("stop", "length", "tool_calls")  # the usual ones; others are quoted with care


class Deltas:
    """Reads the events of one stream into its record. Raises Failure for an error event and for what cannot be read."""

    __slots__ = (
        "_closed", "_count", "_id", "_record", "_reported", "_source", "_usage", "alike", "chunk_s", "done", "mended",
        "model", "visible",
    )  # fmt: skip

    def __init__(self, record: Request) -> None:
        self._record = record
        self._source = ""  # not yet known
        self._count = 0  # tokens of the chunks so far
        self._reported = -1  # the server's latest count
        self._usage: dict[str, Any] | None = None
        self._id: str | None = None
        self._closed = False
        self.alike = Alike()
        self.chunk_s = record.chunk_s  # when each chunk came
        self.model: str | None = None  # that the server says it answered with
        self.visible = False  # some text, reasoning or tool call has come
        self.done = False  # [DONE] has come
        self.mended = False  # some event was no UTF-8

    def take(self, name: bytes, data: bytes, at_s: float) -> None:
        """Read one event that arrived at `at_s`."""
        if self.alike.learnt and not name and (count := self.alike.count(data)) >= self._reported:
            self._take_alike(count, at_s)
        else:
            self._take_parsed(name, data, at_s)

    def take_chunk(self, chunk: bytes, at_s: float) -> bool:
        """Read a chunk of HTTP that is one event like one before; False: it is not. Only while `repeats`."""
        return self.take_count(self.alike.count_in_chunk(chunk), at_s)

    def take_count(self, count: int, at_s: float) -> bool:
        """Read an event like one before, with the count that it carries, or UNCOUNTED; False: it is not."""
        if count < self._reported:
            return False
        self._take_alike(count, at_s)
        return True

    def take_chunks(self, chunks: bytes, at_s: float) -> bool:
        """Read several chunks of HTTP that are one event each, like one before; False: they are not."""
        counts, before = self.alike.counts_in_chunks(chunks), len(self.chunk_s)
        if not counts or counts[0] < self._reported or any(count > later for count, later in pairwise(counts)):
            return False
        for count in counts:
            self._take_alike(count, at_s)
        self._record.coalesced += max(0, len(self.chunk_s) - before - 1)
        return True

    @property
    def repeats(self) -> bool:
        """Whether events like those before are known, and the first chunk with tokens has come."""
        return self.alike.learnt and bool(self._record.chunk_s)

    @property
    def _learns(self) -> bool:
        """Whether the next event may well be like this one; an answer of one chunk has none to come."""
        return not self.alike.learnt and self.visible and len(self._record.chunk_s) > 1

    def _take_parsed(self, name: bytes, data: bytes, at_s: float) -> None:
        if data == b"[DONE]":
            self.done = True
            return
        said = named(name, data) if name and name != b"message" else self._loaded(data)
        if said is None:
            return
        if name == b"error" or said.get("error") is not None:
            raise Failure(Outcome.STREAM_ERROR, f"the stream reported an error: {error_message(said)}")
        choices, usage = said.get("choices"), said.get("usage")
        # One colon follows each key; where there are more, in a text or nested deeper, it takes a closer look.
        more = data.count(b":") - len(said) - (len(usage) if type(usage) is dict else 0)
        if not choices:
            self._take_bare(said, usage, data if more else b"")
            return
        choice = choices[0] if type(choices) is list and len(choices) == 1 else None
        if type(choice) is not dict or choice.get("index"):
            raise _not_one(choices)
        delta = choice.get("delta")
        timings = mapping(said.get("timings"))
        if more != len(choice) + len(timings) + (len(delta) if type(delta) is dict else 0):
            refuse_repeats(data, said)
        if said.get("id") != self._id or said.get("model") != self.model:
            self._identify(said)
        self._take_choice(choice, delta, -1 if usage is None else self._cumulative(usage), timings, at_s)
        if choice.get("finish_reason") is not None:
            self._take_end(choice["finish_reason"], said)
        elif self._learns and type(delta) is dict and self._source is _told_by(usage):
            self.alike.learn(data, delta.get("content"), usage)

    def _take_alike(self, count: int, at_s: float) -> None:
        """Read an event that is like one before it, with a text where no count runs."""
        if count < 0:
            self._record.chunk_s.append(at_s)
            return
        self._usage = self.alike.usage
        if count > self._count:
            self._record.chunk_s.append(at_s)
            self._record.chunk_tokens.append(count - self._count)
            self._count = self._reported = count

    def _identify(self, said: dict[str, Any]) -> None:
        """Keep the id and the model of the answer; neither may change, where they are told."""
        told, model = said.get("id"), said.get("model")
        if isinstance(told, str) and told:
            if self._id is not None and told != self._id:
                raise _changed("id", self._id, told)
            self._id = self._record.response_id = told
        if isinstance(model, str) and model:
            if self.model is not None and model != self.model:
                raise _changed("model", self.model, model)
            self.model = model

    def _take_bare(self, said: dict[str, Any], usage: Any, doubtful: bytes) -> None:
        """Read an event without a choice, such as the closing usage; `doubtful`: it may name a key twice."""
        if doubtful:
            refuse_repeats(doubtful, said)
        if said.get("object") == "error":  # the form of older servers
            raise Failure(Outcome.STREAM_ERROR, f"the stream reported an error: {error_message(said)}")
        self._identify(said)
        if usage is not None:
            self._cumulative(usage)
        take_figures(self._record, said)

    def _take_choice(
        self, choice: dict[str, Any], delta: Any, count: int, timings: dict[str, Any], at_s: float
    ) -> None:
        running = count >= 0 and self._source in _MAY_COUNT
        visible = not (running and self.visible) and _visible(choice, delta)  # once is enough where a count runs
        if visible and not self.visible:
            self.visible = True
            self._record.first_visible_s = at_s
        if running:
            self._source = _USAGE
            if count > self._count:
                self._take_chunk(count, at_s)
        elif not (self._source is _USAGE and self._count):
            # A count that stood on the role event alone is not a running count: the source is still open then.
            predicted = count_of(timings, "predicted_n") if timings else -1
            self._take_uncounted(choice.get("token_ids"), predicted, visible, at_s)

    def _take_end(self, reason: Any, said: dict[str, Any]) -> None:
        if reason == "error":
            raise Failure(Outcome.STREAM_ERROR, "the stream ended with the finish_reason error")
        if not isinstance(reason, str):
            reason = written(reason)
        self._record.finish_reason = reason if reason in _REASONS else printable(reason, 40)
        take_figures(self._record, said)

    def _take_uncounted(self, ids: Any, predicted: int, visible: bool, at_s: float) -> None:
        """Read an event whose usage says nothing; `predicted` is the running count of the timings, -1 for none."""
        if ids and self._source not in (_NONE, _TIMINGS):
            if not isinstance(ids, list):
                raise Failure(Outcome.PROTOCOL_ERROR, "token_ids is not a list")
            self._settle(_IDS)
            self._take_chunk(self._count + len(ids), at_s)
        elif predicted >= 0 and (self._source is _TIMINGS or (predicted and not self._source)):
            if predicted < self._count:
                raise _fallen(self._count, predicted)
            if predicted > self._count:
                self._settle(_TIMINGS)
                self._take_chunk(predicted, at_s)
        elif visible and self._source not in (_IDS, _TIMINGS):
            self._settle(_NONE)
            self._record.chunk_s.append(at_s)

    def _take_chunk(self, count: int, at_s: float) -> None:
        """Keep a chunk with which the tokens of the answer came to `count`."""
        self._record.chunk_s.append(at_s)
        self._record.chunk_tokens.append(count - self._count)
        self._count = count

    def _settle(self, source: str) -> None:
        if self._source is not source:
            self._source = source
            self.alike.learnt = False  # what was learnt was read by the source before

    def _cumulative(self, usage: Any) -> int:
        """Return the count that a usage object reports, -1 for none."""
        if type(usage) is not dict:
            raise Failure(Outcome.PROTOCOL_ERROR, "usage is not an object")
        count = usage.get("completion_tokens")
        if count is None:
            return -1
        if type(count) is not int or not 0 <= count < COUNT_LIMIT:
            raise Failure(Outcome.PROTOCOL_ERROR, f"usage.completion_tokens is {printable(written(count), 40)}")
        if count < self._reported or (count < self._count and self._source is _USAGE):
            raise _fallen(max(self._reported, self._count), count)
        self._reported = count
        self._usage = usage
        return count

    def _loaded(self, data: bytes) -> dict[str, Any] | None:
        """Return the object in an event; None for a blank one."""
        try:
            said = orjson.loads(data)
        except orjson.JSONDecodeError:
            said = mended(data)
            if said is None:
                return None
            self.mended = True
        if type(said) is not dict:
            raise Failure(Outcome.PROTOCOL_ERROR, f"an event is not a JSON object: {quoted(data)}")
        return said

    def close(self) -> None:
        """Write the counts of the answer into the record, as far as it came."""
        if self._closed:
            return
        self._closed = True
        record = self._record
        record.tokens_source = self._source if record.chunk_tokens else _NONE
        record.output_tokens = self._reported
        if self._source in (_IDS, _TIMINGS) and self._reported < 0:
            record.output_tokens = self._count
        usage = mapping(self._usage)
        record.prompt_tokens = count_of(usage, "prompt_tokens")
        record.cached_tokens = count_of(mapping(usage.get("prompt_tokens_details")), "cached_tokens")

    def verdict(self) -> Failure | None:
        """Return what is wrong with an answer that came to a clean end; None: nothing."""
        self.close()
        record = self._record
        tokens = record.output_tokens
        if not record.finish_reason and (self.visible or record.chunk_s or not self.done):
            return Failure(Outcome.TRUNCATED, "the stream ended without a finish_reason")
        if self.visible and tokens == 0:
            return Failure(Outcome.PROTOCOL_ERROR, "the server counted 0 output tokens for an answer that has text")
        if self.visible and tokens < 0:
            return Failure(Outcome.EMPTY, "text came, but the server reported no token count (no usage in the stream)")
        if not record.chunk_s:
            told = f"; the server counted {tokens}" if tokens > 0 else ""
            return Failure(Outcome.EMPTY, f"the stream ended without a token{told}")
        return None


def _told_by(usage: Any) -> str:
    """Return the source of tokens that an event with this usage fits."""
    return _NONE if usage is None else _USAGE


def _fallen(before: int, count: int) -> Failure:
    """Return the failure of a count that runs backwards."""
    return Failure(Outcome.PROTOCOL_ERROR, f"the count of output tokens fell from {before} to {count}")


def _changed(what: str, before: str, after: str) -> Failure:
    """Return the failure of a stream that another answer got into."""
    told = f"from {printable(before, 60)} to {printable(after, 60)}"
    return Failure(Outcome.PROTOCOL_ERROR, f"the {what} of the answer changed within the stream, {told}")


def _not_one(choices: Any) -> Failure:
    """Return the failure of an event whose choices are not the one that was asked for."""
    if type(choices) is list and all(type(choice) is dict for choice in choices):
        return Failure(Outcome.PROTOCOL_ERROR, "the server answered with several choices; one was asked for")
    return Failure(Outcome.PROTOCOL_ERROR, "choices is not a list of objects")


def _visible(choice: dict[str, Any], delta: Any) -> bool:
    """Return whether a choice brings text, reasoning or a tool call."""
    if delta is None:
        return bool(choice.get("text"))
    if type(delta) is not dict:
        raise Failure(Outcome.PROTOCOL_ERROR, "delta is not an object")
    return bool(
        delta.get("content")
        or delta.get("reasoning")
        or delta.get("reasoning_content")
        or delta.get("tool_calls")
        or delta.get("refusal")
    )
