"""Servers that answer the control plane as real ones did: recorded answers by path, behind HTTP on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from answering import AnsweringServer, Handler

DATA = Path(__file__).parents[2] / "data" / "servers"
Told = str | dict[str, Any] | list[Any] | int  # text, JSON, or a status without a body
Answering = Callable[[dict[str, Any]], Told]


def read(name: str) -> str:
    return (DATA / name).read_text(encoding="utf-8")


def loaded(name: str) -> Any:
    return json.loads(read(name))


class RecordedServer(AnsweringServer):
    """Answers GET by path, and POST by a function of its JSON body; anything else with 404."""

    def __init__(self, got: dict[str, Told], posted: dict[str, Answering] | None = None) -> None:
        self.got, self.posted = got, posted or {}
        self.asked: list[tuple[str, dict[str, str]]] = []
        outer = self

        class Answers(Handler):
            def do_GET(self) -> None:
                outer.asked.append((self.path, dict(self.headers)))
                self._tell(outer.got.get(self.path, outer.got.get(self.path.partition("?")[0], 404)))

            def do_POST(self) -> None:
                body = self.body()
                path = self.path.partition("?")[0]
                self._tell(outer.posted[path](body) if path in outer.posted else 404)

            def _tell(self, told: Told) -> None:
                if isinstance(told, int):
                    self.say(told, "")
                else:
                    self.say(200, told if isinstance(told, str) else json.dumps(told))

        super().__init__(Answers)


def words(text: str) -> dict[str, Any]:
    """A tokenizer of one token per word."""
    tokens = [sum(word.encode()) for word in text.split()]
    return {"count": len(tokens), "tokens": tokens}


def tokenize(body: dict[str, Any]) -> dict[str, Any]:
    """vLLM's /tokenize with a plain chat template."""
    if "messages" in body:
        return words(" ".join(f"<{m['role']}> {m['content']}" for m in body["messages"]))
    return words(body["prompt"])


def streamed(chunks: list[int], prompt: int = 21, more: dict[str, Any] | None = None) -> str:
    """A chat stream whose chunks carry so many tokens each, counted as vLLM counts them; `more` stands at its end."""
    said: list[dict[str, Any]] = [{"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}}]}]
    total = 0
    for number, tokens in enumerate(chunks):
        total += tokens
        finish = "length" if number == len(chunks) - 1 else None
        usage = {"prompt_tokens": prompt, "completion_tokens": total}
        choice = {"index": 0, "delta": {"content": "x " * tokens}, "finish_reason": finish}
        said.append({"id": "c-1", "model": "toy", "choices": [choice], "usage": usage})
    said.append({"choices": [], "usage": {"prompt_tokens": prompt, "completion_tokens": total}, **(more or {})})
    return "".join(f"data: {json.dumps(each)}\n\n" for each in said) + "data: [DONE]\n\n"


def chatting(server: RecordedServer, chunks: list[int], **more: Any) -> RecordedServer:
    """Let a server answer every chat request by one stream."""
    server.posted["/v1/chat/completions"] = lambda body: streamed(chunks, more=more)
    return server


def vllm(which: str, *, dev: bool = True, metrics: bool = True, as_text: bool = False) -> RecordedServer:
    """vLLM 0.32 on a CPU: `base`, or `ngram` with n-gram drafting."""
    got: dict[str, Told] = {"/v1/models": loaded(f"vllm-0.32-{which}-models.json"), "/version": {"version": "0.32.0"}}
    if dev:
        got["/server_info"] = loaded(f"vllm-0.32-{which}-server_info{'-text' if as_text else ''}.json")
    if metrics:
        got["/metrics"] = read(f"vllm-0.32-{which}-metrics.txt")
    return RecordedServer(got, {"/tokenize": tokenize})


def llamacpp(which: str) -> RecordedServer:
    """llama.cpp with and without n-gram drafting."""
    got: dict[str, Told] = {f"/{name}": loaded(f"llamacpp-{which}-{name}.json") for name in ("props", "slots")}
    got |= {"/v1/models": loaded(f"llamacpp-{which}-models.json"), "/metrics": read(f"llamacpp-{which}-metrics.txt")}
    return RecordedServer(got, {"/tokenize": lambda body: {"tokens": words(body["content"])["tokens"]}})


def sglang(which: str, **changed: Any) -> RecordedServer:
    """SGLang with and without EAGLE-3, made by hand."""
    models = {"data": [{"id": "Qwen/Qwen3-8B", "owned_by": "sglang", "root": "Qwen/Qwen3-8B", "max_model_len": 40960}]}
    got: dict[str, Told] = {"/v1/models": models, "/server_info": loaded(f"sglang-{which}-server_info.json") | changed}
    if which != "base":
        got["/metrics"] = read(f"sglang-{which}-metrics.txt")
    return RecordedServer(got, {"/tokenize": tokenize})
