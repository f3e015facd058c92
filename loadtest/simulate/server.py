"""The simulated server behind HTTP: the OpenAI-compatible and the operational endpoints of vLLM, on one engine."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections.abc import Awaitable, Callable
from typing import Any

import orjson
from aiohttp import web

from loadtest.simulate import identity, text
from loadtest.simulate.draws import mix
from loadtest.simulate.engine import Engine
from loadtest.simulate.exposition import render
from loadtest.simulate.intake import Call, Refusal, bad, read_call, read_json
from loadtest.simulate.jobs import Ask
from loadtest.simulate.models import ArmModel
from loadtest.simulate.prefixes import PrefixCache
from loadtest.simulate.realtime import Flow, Pacer, clock_s
from loadtest.simulate.wire import Answer

KEEP_ALIVE_S = 5.0  # uvicorn's default: an idle connection is closed after this
_ROLES = ("baseline", "speculative")


def start_seed(seed: int, role: str) -> int:
    """Return the seed of one arm's start, so that two arms started with one seed still differ in their luck."""
    return mix(seed, _ROLES.index(role))


class SimulatedServer:
    """The endpoints of one arm."""

    def __init__(self, arm: ArmModel, pacer: Pacer, engine: Engine, *, world: str, model: str, seed: int) -> None:
        """Serve `arm` as `model`; `pacer` runs `engine`."""
        self._arm = arm
        self._pacer = pacer
        self._engine = engine
        self._world = world
        self._model = model
        self._seed = seed
        self._cache = PrefixCache(arm.kv_limit_tokens)
        self._fingerprint = identity.fingerprint(arm)
        self._created_s = time.time()
        self._numbers = itertools.count(1)

    def app(self) -> web.Application:
        """Return the application with every route."""
        app = web.Application(client_max_size=64 * 2**20, middlewares=[_as_json])
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/completions", self._completions)
        app.router.add_post("/tokenize", self._tokenize)
        app.router.add_post("/reset_prefix_cache", self._reset_prefix_cache)
        for path, answer in (
            ("/v1/models", self._models), ("/version", self._version), ("/server_info", self._server_info),
            ("/load", self._load), ("/simulate/truth", self._truth),
        ):  # fmt: skip
            app.router.add_get(path, _json_of(answer))
        app.router.add_get("/health", self._health)
        app.router.add_get("/metrics", self._metrics)
        return app

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, chat=True)

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        return await self._answer(request, chat=False)

    async def _answer(self, request: web.Request, *, chat: bool) -> web.StreamResponse:
        arrival_s = clock_s()
        raw = await request.read()
        call = read_call(raw, chat=chat, model=self._model, max_model_len=self._arm.max_model_len)
        if self._engine.refuses(call.key):
            await asyncio.sleep(self._arm.frontend_s)
            raise Refusal(500, "The engine failed on this request (simulated).", "InternalServerError")
        return await (self._stream if call.stream else self._whole)(request, call, arrival_s)

    def _flow(self, call: Call, arrival_s: float, transport: asyncio.Transport | None) -> Flow:
        kind = "chatcmpl" if call.chat else "cmpl"
        response_id = f"{kind}-{mix(self._seed, call.key, next(self._numbers)):016x}"
        created, astray = int(time.time()), self._arm.astray_ratio
        answer = Answer(call, response_id, self._model, created, self._fingerprint, astray)
        flow = Flow(call, answer, arrival_s, transport)
        cached = self._cache.take(call.salt, call.prompt)
        ask = Ask(key=call.key, prompt_tokens=call.prompt_tokens, cached_tokens=cached,
                  output_tokens=call.output_tokens, category=call.category, finish=call.finish)  # fmt: skip
        self._pacer.submit(flow, ask)
        return flow

    async def _stream(self, request: web.Request, call: Call, arrival_s: float) -> web.StreamResponse:
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream; charset=utf-8"})
        response.enable_chunked_encoding()
        await response.prepare(request)
        flow = self._flow(call, arrival_s, request.transport)
        flow.close = response.write_eof
        await self._finished(flow)
        await response.write_eof()
        return response

    async def _whole(self, request: web.Request, call: Call, arrival_s: float) -> web.StreamResponse:
        flow = self._flow(call, arrival_s, None)
        await self._finished(flow)
        return _json(flow.answer.whole(self._model))

    async def _finished(self, flow: Flow) -> None:
        try:
            await flow.done
        except asyncio.CancelledError:  # the client has gone
            self._pacer.cancel(flow)
            raise

    async def _metrics(self, request: web.Request) -> web.Response:
        counters = await self._pacer.counters()
        config = {key: str(value) for key, value in identity.cache_config(self._arm).items()}
        body = render(counters, self._pacer.buckets, speculates=self._arm.declared_k > 0, model=self._model,
                      created_s=self._created_s, cache_config=config)  # fmt: skip
        return web.Response(body=body.encode(), headers={"Content-Type": "text/plain; version=0.0.4; charset=utf-8"})

    async def _tokenize(self, request: web.Request) -> web.Response:
        body = read_json(await request.read())
        if isinstance(body.get("messages"), list):
            prompt = text.rendered(body["messages"])
        elif isinstance(body.get("prompt"), str):
            prompt = body["prompt"]
        else:
            raise bad("prompt or messages must be given.", "prompt")
        tokens = text.token_ids(prompt)
        return _json({"count": len(tokens), "max_model_len": self._arm.max_model_len, "tokens": tokens,
                      "token_strs": None})  # fmt: skip

    async def _reset_prefix_cache(self, request: web.Request) -> web.Response:
        idle = self._engine.idle
        if idle:
            self._cache.clear()
        return _json({"success": idle})

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()

    def _models(self, request: web.Request) -> dict[str, Any]:
        created = int(time.time())
        card = {"id": self._model, "object": "model", "created": created, "owned_by": "vllm", "root": self._model,
                "parent": None, "max_model_len": self._arm.max_model_len, "permission": []}  # fmt: skip
        return {"object": "list", "data": [card]}

    def _version(self, request: web.Request) -> dict[str, Any]:
        return {"version": identity.VERSION}

    def _server_info(self, request: web.Request) -> dict[str, Any]:
        info = identity.server_info(self._arm, world=self._world, model=self._model, seed=0)
        return info if request.query.get("config_format") == "json" else {"vllm_config": str(info["vllm_config"])}

    def _load(self, request: web.Request) -> dict[str, Any]:
        return {"server_load": self._pacer.in_flight}

    def _truth(self, request: web.Request) -> dict[str, Any]:
        pacer = self._pacer
        return {"world": self._world, "steps": pacer.steps, "late_steps": pacer.late_steps,
                "worst_late_s": pacer.worst_late_s, "finished": pacer.finished, "cancelled": pacer.cancelled,
                "in_flight": pacer.in_flight}  # fmt: skip


def _json(data: Any, status: int = 200) -> web.Response:
    return web.Response(body=orjson.dumps(data), status=status, content_type="application/json")


def _json_of(answer: Callable[[web.Request], dict[str, Any]]) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def handle(request: web.Request) -> web.StreamResponse:
        return _json(answer(request))

    return handle


@web.middleware
async def _as_json(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Turn refusals, unknown paths and wrong methods into the JSON that vLLM answers."""
    try:
        return await handler(request)
    except Refusal as refusal:
        return _json(refusal.body, refusal.status)
    except web.HTTPException as error:
        if error.status not in (404, 405):
            raise
        response = _json({"detail": error.reason}, error.status)
        if isinstance(error, web.HTTPMethodNotAllowed):
            response.headers["Allow"] = ",".join(sorted(error.allowed_methods))
        return response
