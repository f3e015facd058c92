"""What the events of an OpenAI-compatible stream say (chat and completions): tokens, text, ends and errors.

Where the tokens of each chunk come from, in this order (`Request.tokens_source`):

usage   the cumulative `usage.completion_tokens` on the events themselves (`stream_options.continuous_usage_stats`):
        an event whose count rose is a chunk, its tokens are the rise, even when its text is empty or withheld
ids     the length of `choices[0].token_ids` (`return_token_ids`)
none    nobody says: each event with text, reasoning or a tool call is a chunk, and `chunk_tokens` stays empty

`output_tokens` is the last count that the server reported, whichever of the three holds; without one, the sum of the
ids. It may exceed the sum of `chunk_tokens`: a server may count tokens in the closing usage that no event carried.
"""

from __future__ import annotations

from typing import Any

import orjson

from loadtest.drive.failure import Failure, printable, quoted
from loadtest.record import Outcome, Request

_USAGE, _IDS, _NONE = "usage", "ids", "none"
_MAY_COUNT = ("", _USAGE)
_REASONS = ("stop", "length", "tool_calls")  # the usual ones; others are quoted with care
_COUNT_LIMIT = 2**31  # counts are stored in 32 bits


class Deltas:
    """Reads the events of one stream into its record. Raises Failure for an error event and for what cannot be read."""

    __slots__ = ("_count", "_record", "_reported", "_source", "_usage", "done", "visible")

    def __init__(self, record: Request) -> None:
        self._record = record
        self._source = ""  # not yet known
        self._count = 0  # tokens of the chunks so far
        self._reported = -1  # the server's latest count
        self._usage: dict[str, Any] | None = None
        self.visible = False  # some text, reasoning or tool call has come
        self.done = False  # [DONE] has come

    def take(self, name: bytes, data: bytes, at_s: float) -> None:
        """Read one event that arrived at `at_s`."""
        if data == b"[DONE]":
            self.done = True
            return
        said = _parsed(name, data) if name else _loaded(data)
        if said is None:
            return
        if said.get("error") is not None or name == b"error":
            raise Failure(Outcome.STREAM_ERROR, f"the stream reported an error: {error_message(said)}")
        usage = said.get("usage")
        count = -1 if usage is None else self._cumulative(usage)
        choices = said.get("choices")
        if choices:
            self._take_choice(choices, count, at_s)
        else:
            self._take_closing(said)
        if not self._record.response_id and isinstance(said.get("id"), str):
            self._record.response_id = said["id"]

    def _take_choice(self, choices: Any, count: int, at_s: float) -> None:
        choice = choices[0] if type(choices) is list and len(choices) == 1 else None
        if type(choice) is not dict or choice.get("index"):
            raise _not_one(choices)
        running = count >= 0 and self._source in _MAY_COUNT
        visible = not (running and self.visible) and _visible(choice)  # once is enough where a count runs
        if visible and not self.visible:
            self.visible = True
            self._record.first_visible_s = at_s
        if running:
            self._source = _USAGE
            if count > self._count:
                self._record.chunk_s.append(at_s)
                self._record.chunk_tokens.append(count - self._count)
                self._count = count
        elif not (self._source is _USAGE and self._count):
            # A count that stood on the role event alone is not a running count: the source is still open then.
            self._take_uncounted(choice.get("token_ids"), visible, at_s)
        reason = choice.get("finish_reason")
        if reason is not None:
            if reason == "error":
                raise Failure(Outcome.STREAM_ERROR, "the stream ended with the finish_reason error")
            self._record.finish_reason = reason if reason in _REASONS else printable(str(reason), 40)

    def _take_uncounted(self, ids: Any, visible: bool, at_s: float) -> None:
        if ids and self._source is not _NONE:
            if not isinstance(ids, list):
                raise Failure(Outcome.PROTOCOL_ERROR, "token_ids is not a list")
            self._source = _IDS
            self._count += len(ids)
            self._record.chunk_s.append(at_s)
            self._record.chunk_tokens.append(len(ids))
        elif visible and self._source is not _IDS:
            self._source = _NONE
            self._record.chunk_s.append(at_s)

    def _cumulative(self, usage: Any) -> int:
        """Return the count that a usage object reports, -1 for none."""
        if type(usage) is not dict:
            raise Failure(Outcome.PROTOCOL_ERROR, "usage is not an object")
        count = usage.get("completion_tokens")
        if count is None:
            return -1
        if type(count) is not int or not 0 <= count < _COUNT_LIMIT:
            raise Failure(Outcome.PROTOCOL_ERROR, f"usage.completion_tokens is {printable(repr(count), 40)}")
        if count < self._reported or (count < self._count and self._source is _USAGE):
            before = max(self._reported, self._count)
            raise Failure(Outcome.PROTOCOL_ERROR, f"the count of output tokens fell from {before} to {count}")
        self._reported = count
        self._usage = usage
        return count

    def _take_closing(self, said: dict[str, Any]) -> None:
        """Read an event without a choice: the closing usage, and figures on speculation where the server gives them."""
        record = self._record
        if said.get("object") == "error":  # the form of older servers
            raise Failure(Outcome.STREAM_ERROR, f"the stream reported an error: {error_message(said)}")
        figures = _mapping(_mapping(said.get("metrics")).get("speculative_decoding"))  # vLLM
        if figures:
            record.spec_drafts = _count_of(figures, "num_spec_steps")
            record.spec_drafted = _count_of(figures, "num_draft_tokens")
            record.spec_accepted = _count_of(figures, "num_accepted_draft_tokens")
        timings = _mapping(said.get("timings"))  # llama.cpp
        if "draft_n" in timings:
            record.spec_drafted = _count_of(timings, "draft_n")
            record.spec_accepted = _count_of(timings, "draft_n_accepted")

    def close(self) -> None:
        """Write the counts of the answer into the record, as far as it came."""
        record = self._record
        record.tokens_source = self._source if record.chunk_tokens else _NONE
        record.output_tokens = self._reported
        if self._source is _IDS and self._reported < 0:
            record.output_tokens = self._count
        usage = _mapping(self._usage)
        record.prompt_tokens = _count_of(usage, "prompt_tokens")
        record.cached_tokens = _count_of(_mapping(usage.get("prompt_tokens_details")), "cached_tokens")

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


def _loaded(data: bytes) -> dict[str, Any] | None:
    """Return the object in an event without a name; None for a blank one."""
    try:
        said = orjson.loads(data)
    except orjson.JSONDecodeError:
        if not data.strip():
            return None
        said = _repaired(data)
    if type(said) is not dict:
        raise Failure(Outcome.PROTOCOL_ERROR, f"an event is not a JSON object: {quoted(data)}")
    return said


def _parsed(name: bytes, data: bytes) -> dict[str, Any] | None:
    """Return the object in a named event; None for one that is not ours to read."""
    if name == b"message":
        return _loaded(data)
    try:
        said = orjson.loads(data)
    except orjson.JSONDecodeError:
        said = data.decode("utf-8", "replace")
    if type(said) is dict:
        return said
    return {"error": said} if name == b"error" else None


def _repaired(data: bytes) -> Any:
    """Return the JSON with invalid UTF-8 replaced: a character cut in the middle spoils the text, not the event."""
    try:
        data.decode()
    except UnicodeDecodeError:
        try:
            return orjson.loads(data.decode("utf-8", "replace"))
        except orjson.JSONDecodeError:
            pass
    raise Failure(Outcome.PROTOCOL_ERROR, f"an event is not JSON: {quoted(data)}") from None


def _not_one(choices: Any) -> Failure:
    """Return the failure of an event whose choices are not the one that was asked for."""
    if type(choices) is list and all(type(choice) is dict for choice in choices):
        return Failure(Outcome.PROTOCOL_ERROR, "the server answered with several choices; one was asked for")
    return Failure(Outcome.PROTOCOL_ERROR, "choices is not a list of objects")


def _visible(choice: dict[str, Any]) -> bool:
    """Return whether a choice brings text, reasoning or a tool call."""
    delta = choice.get("delta")
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


def _mapping(value: Any) -> dict[str, Any]:
    return value if type(value) is dict else {}


def _count_of(values: dict[str, Any], name: str) -> int:
    value = values.get(name)
    return value if type(value) is int and 0 <= value < _COUNT_LIMIT else -1


def error_message(said: Any) -> str:
    """Return the message in an error answer, whichever of the usual forms it has, fit to be printed."""
    error = said.get("error", said) if isinstance(said, dict) else said
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or error.get("type") or orjson.dumps(error).decode()
    return printable(error if isinstance(error, str) else str(error))
