"""The bytes of an answer: vLLM's stream events (as 0.32.0 writes them) from ready templates, and whole answers."""

from __future__ import annotations

from typing import Any

import orjson

from loadtest.simulate import text
from loadtest.simulate.intake import Call

_DONE = b"data: [DONE]\n\n"


def framed(event: bytes) -> bytes:
    """Return an event as one chunk of a chunked HTTP body."""
    return b"%x\r\n%b\r\n" % (len(event), event)


class Answer:
    """One answer under way: turns numbers of tokens into the events that carry them."""

    __slots__ = (
        "_call", "_chat", "_close", "_created", "_fingerprint", "_head", "_open", "_pieces", "_sent", "_tail",
        "response_id",
    )  # fmt: skip

    def __init__(self, call: Call, response_id: str, model: str, created: int, fingerprint: str,
                 astray_ratio: float = 0.0) -> None:  # fmt: skip
        """Prepare the templates of an answer to `call`."""
        self._call = call
        self._chat = call.chat
        self._pieces = text.astray(call.key, call.output_tokens, call.finish, astray_ratio)
        self._sent = 0
        self.response_id = response_id
        self._created = created
        self._fingerprint = fingerprint
        kind = "chat.completion.chunk" if call.chat else "text_completion"
        self._head = b'data: {"id":"%b","object":"%b","created":%d,"model":%b,"choices":[' % (
            response_id.encode(), kind.encode(), created, orjson.dumps(model))  # fmt: skip
        self._open = b'{"index":0,"delta":{"content":"' if call.chat else b'{"index":0,"text":"'
        self._close = b'"},"logprobs":null,' if call.chat else b'","logprobs":null,'
        self._tail = b',"system_fingerprint":"%b"' % fingerprint.encode()

    def emit(self, tokens: int) -> bytes:
        """Return the framed events of the next `tokens` tokens, with what goes before the first and after the last."""
        events = []
        if not self._sent and self._chat:
            events.append(framed(self._role()))
        first, self._sent = self._sent, self._sent + tokens
        last = self._sent == self._call.output_tokens
        events.append(framed(self._chunk(first, last)))
        if last:
            if self._call.include_usage:
                events.append(framed(self._usage_event()))
            events.append(framed(_DONE))
        return b"".join(events)

    def _role(self) -> bytes:
        choice = b'{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}'
        ids = orjson.dumps(text.token_ids(self._call.prompt)) if self._call.return_ids else b"null"
        return b'%b%b]%b,"prompt_token_ids":%b,"prompt_text":null}\n\n' % (self._head, choice, self._running(0), ids)

    def _chunk(self, first: int, last: bool) -> bytes:
        pieces = self._pieces[first : self._sent]
        ids = orjson.dumps(text.answer_ids(pieces)) if self._call.return_ids else b"null"
        prompt_ids = b""
        if last:
            reason = b'"finish_reason":"%b","stop_reason":null,' % self._call.finish.encode()
        else:
            reason = b'"finish_reason":null,' if self._chat else b'"finish_reason":null,"stop_reason":null,'
        if not self._chat:
            asked = self._call.return_ids and not first
            prompt_ids = b'"prompt_token_ids":%b,' % (
                orjson.dumps(text.token_ids(self._call.prompt)) if asked else b"null"
            )
        words = text.pieces()
        fingerprint = self._tail if last and not self._call.include_usage else b""
        return b'%b%b%b%b%b%b"token_ids":%b}]%b%b}\n\n' % (
            self._head, self._open, b"".join([words[piece] for piece in pieces]), self._close, reason, prompt_ids, ids,
            self._running(self._sent), fingerprint)  # fmt: skip

    def _running(self, completion: int) -> bytes:
        if not self._call.continuous_usage:
            return b""
        prompt = self._call.prompt_tokens
        return (
            b',"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d,"completion_tokens_details":null}'
            % (prompt, prompt + completion, completion)
        )

    def _usage_event(self) -> bytes:
        prompt, completion = self._call.prompt_tokens, self._call.output_tokens
        return b'%b],"usage":{"prompt_tokens":%d,"total_tokens":%d,"completion_tokens":%d}%b}\n\n' % (
            self._head, prompt, prompt + completion, completion, self._tail)  # fmt: skip

    def whole(self, model: str) -> dict[str, Any]:
        """Return the answer to a call that did not ask for a stream."""
        call = self._call
        content = orjson.loads(b'"' + b"".join(text.pieces()[piece] for piece in self._pieces) + b'"')
        ids = text.answer_ids(self._pieces) if call.return_ids else None
        choice: dict[str, Any] = {"index": 0}
        if call.chat:
            choice["message"] = {"role": "assistant", "content": content, "refusal": None, "annotations": None,
                                 "audio": None, "function_call": None, "reasoning": None}  # fmt: skip
        else:
            choice["text"] = content
        choice |= {"logprobs": None, "finish_reason": call.finish, "stop_reason": None, "token_ids": ids}
        prompt_ids = text.token_ids(call.prompt) if call.return_ids else None
        if not call.chat:
            choice |= {"prompt_logprobs": None, "prompt_token_ids": prompt_ids}
        choice["routed_experts"] = None
        answer: dict[str, Any] = {
            "id": self.response_id, "object": "chat.completion" if call.chat else "text_completion",
            "created": self._created, "model": model, "choices": [choice], "service_tier": None,
            "system_fingerprint": self._fingerprint,
            "usage": {"prompt_tokens": call.prompt_tokens, "total_tokens": call.prompt_tokens + call.output_tokens,
                      "completion_tokens": call.output_tokens, "prompt_tokens_details": None,
                      "completion_tokens_details": None},
        }  # fmt: skip
        if call.chat:
            answer |= {"prompt_logprobs": None, "prompt_token_ids": prompt_ids, "prompt_text": None}
        return answer | {"kv_transfer_params": None, "ec_transfer_params": None, "metrics": None}
