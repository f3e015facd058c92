"""The Locust user that scenarios derive from: it draws sessions, keeps due times, sends through the stream client."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, cast

from locust import User, constant
from locust.exception import StopUser
from locust.user.task import DefaultTaskSet

from loadtest.drive.context import CellContext, check_source
from loadtest.drive.echo import without_echo
from loadtest.drive.openai import CHAT_PATH, COMPLETION_PATH, begun_with, body_hash, chat_body, completion_body
from loadtest.drive.phases import PAUSE_AFTER_FAILURE_S
from loadtest.drive.punctual import sleep_until
from loadtest.drive.scenario_calls import messages_of, pause_of, prompt_of, tokens_of
from loadtest.drive.standalone import context_of
from loadtest.drive.texts import Heard
from loadtest.errors import UsageError
from loadtest.record import Outcome, Request
from loadtest.workload.sessions import Session, SessionKey, SessionSource, requests_of

Message = Mapping[str, Any]
MAX_IDLE_TASKS = 1000


class _SeededTasks(DefaultTaskSet):
    """Chooses the next task by the session's own randomness, so that both arms choose alike."""

    def get_next_task(self) -> Any:
        if not self.user.tasks:
            return super().get_next_task()  # type: ignore[no-untyped-call]  # says what is missing
        return cast(LLMUser, self.user).rng("task").choice(self.user.tasks)

    def wait(self) -> None:
        cast(LLMUser, self.user).wait()  # Locust's own would sleep here, by global randomness


class LLMUser(User):
    """One user of the service: `next_session()` draws a dialogue, `chat()` sends a request and measures its stream.

    Under `loadtest run` every figure goes to the run's records. Under plain `locust` each request fires the events
    `ttft`, `tpot` and `e2e` (milliseconds), so that Locust's own table and charts live.
    """

    abstract = True
    wait_time = constant(0)
    source: ClassVar[Any] = None  # where next_session() draws from: an object with session(key) → Session

    def __init__(self, environment: Any) -> None:
        """Take a number and a connection from the environment's cell."""
        super().__init__(environment)
        self.cell: CellContext = context_of(environment, type(self))
        self.number, self._start_s = self.cell.new_user()
        self._arrives = self.cell.opened is not None  # its first request is due at its start, and nothing was sent yet
        self._client = None if self._arrives else self.cell.new_client()
        self._ready_s = self._start_s
        self._think_s = 0.0
        self._tool_s = 0.0
        self._pause_s = 0.0  # least pause before the next request, after a failure
        self._round = 0
        self._draws = 0
        self._turn = 0
        self._idle_tasks = 0

    def start(self, group: Any) -> Any:
        """Start this user's greenlet: it begins at the user's own time and closes its connection at the end."""

        def run_user(user: LLMUser) -> None:  # Locust reads the user from the greenlet's first argument
            if not user._arrives:
                user._sleep_until(user._start_s)
            try:
                user.run()  # type: ignore[no-untyped-call]  # Locust types in part
            except (Exception, SystemExit, KeyboardInterrupt) as error:  # noqa: BLE001  # a scenario may raise anything
                self.environment.events.user_error.fire(user_instance=user, exception=error, tb=error.__traceback__)
            finally:
                if user._client is not None:
                    user._client.close()

        self._greenlet = group.spawn(run_user, self)
        self._group = group
        return self._greenlet

    @property
    def _taskset_instance(self) -> Any:
        return self._tasks

    @_taskset_instance.setter
    def _taskset_instance(self, _: Any) -> None:  # Locust's run() sets its own, which draws from global randomness
        self._tasks = _SeededTasks(self)

    def wait(self) -> None:
        """Count Locust's wait_time as think time, drawn from the session's own randomness.

        In an open load an arrival is one task: the user ends with it.
        """
        if self.cell.opened is not None:
            raise StopUser
        state = random.getstate()
        try:
            random.seed(self.rng("wait").random())
            waited = self.wait_time()
        finally:
            random.setstate(state)
        try:
            self._think_s += pause_of(waited, "wait_time gave") * self.cell.experiment.load.think_time
        except ValueError as refused:  # no line of the scenario's own is at fault
            raise UsageError(f"The scenario's {refused}.") from None
        self._idle_tasks += 1
        if self._idle_tasks > MAX_IDLE_TASKS:
            raise UsageError(
                f"The scenario's tasks ended {MAX_IDLE_TASKS} times without sending a request: is self.chat() called?"
            )

    @property
    def session_key(self) -> SessionKey:
        """The key of this user's current dialogue."""
        return self.cell.session_key(self.number, max(0, self._round - 1))

    def rng(self, purpose: str = "draw") -> random.Random:
        """Return a generator for the scenario's own draws; equal in both arms, different at each call."""
        self._draws += 1
        return self.cell.session_key(self.number, self._round).rng(f"{purpose}-{self._draws}")

    def next_session(self, source: SessionSource | None = None) -> Session:
        """Draw this user's next dialogue from `--prompts`, or else from `source`, or else from the class's own."""
        source = self.cell.source or source or check_source(self.source)
        key = self.cell.session_key(self.number, self._round)
        self._round += 1
        self._turn = 0
        self._draws = 0
        return source.session(key)

    def think(self, seconds: float) -> None:
        """Pause before the next request: it falls due this much later (times load.think_time); below 0 is no pause.

        Raises ValueError for what is no number of seconds, or more than a day.
        """
        self._think_s += pause_of(seconds, "think() was given") * self.cell.experiment.load.think_time

    def wait_for_tool(self, seconds: float) -> None:
        """Let a tool work before the next request: it falls due this much later, whatever load.think_time is.

        Without people's pauses a tool still takes its time; its users are then more than the requests in flight.
        """
        self._tool_s += pause_of(seconds, "wait_for_tool() was given")

    def hold(self, session: Session, *, category: str = "", max_tokens: int | None = None,
             tools: Sequence[Message] = ()) -> None:  # fmt: skip
        """Hold a dialogue to its end, with its pauses and scripted answers; `category` replaces that of its turns."""
        for turn, messages in requests_of(session):
            (self.wait_for_tool if turn.from_tool else self.think)(turn.think_s)
            limit = min((n for n in (max_tokens, turn.max_tokens) if n is not None), default=None)
            if turn.prompt:
                self.complete(turn.prompt, category=category or turn.category, max_tokens=limit)
            else:
                self.chat(messages, category=category or turn.category, max_tokens=limit, tools=turn.tools or tools)

    def chat(self, messages: Iterable[Message], *, category: str = "", max_tokens: int | None = None,
             tools: Sequence[Message] = (), tool_choice: str = "none") -> Request:  # fmt: skip
        """Send a chat request when it falls due, read its stream to the end, and return what was measured.

        `max_tokens` can only lower [generation] max_tokens. `tools` are described to the model; with the choice "none"
        no server needs a parser for their calls, which a scripted history does not wait for.
        Never raises for what the server or the network does: the request's outcome says it. Raises ValueError for what
        is no request: no list of messages, or no whole number of tokens.
        """
        cell = self.cell
        generation = cell.experiment.generation
        asked = cell.asks(self.session_key, self._turn)
        held = messages_of(messages)
        asked_for = begun_with(cell.nonce, held) if cell.nonce else held
        body = chat_body(cell.target.model, asked_for, generation, self._limit(max_tokens), cell.salt, asked,
                         tools, tool_choice)  # fmt: skip
        return self._send(CHAT_PATH, body, category, asked)

    def complete(self, prompt: str, *, category: str = "", max_tokens: int | None = None) -> Request:
        """Send a completion request; otherwise like `chat`."""
        text = prompt_of(prompt)
        cell = self.cell
        generation = cell.experiment.generation
        asked = cell.asks(self.session_key, self._turn)
        body = completion_body(
            cell.target.model, cell.nonce + text, generation, self._limit(max_tokens), cell.salt, asked
        )
        return self._send(COMPLETION_PATH, body, category, asked)

    def _limit(self, max_tokens: int | None) -> int:
        most = self.cell.experiment.generation.max_tokens
        return most if max_tokens is None else min(tokens_of(max_tokens), most)

    def _send(self, path: str, body: bytes, category: str, asked: str) -> Request:
        cell = self.cell
        pause_s = 0.0 if self._arrives else max(self._think_s + self._tool_s, self._pause_s)
        due_s, self._arrives = self._ready_s + pause_s, False
        self._think_s = self._tool_s = self._pause_s = 0.0
        self._idle_tasks = 0
        digest = body_hash(body, cell.nonce)  # before the wait: what is done after it makes the request late
        self._sleep_until(due_s)
        if not cell.accepting:
            raise StopUser
        request = Request(
            cell=cell.cell.cell, arm=cell.target.name, level=cell.cell.level, block=cell.cell.block,
            user=self.number, session=self.session_key.number, turn=self._turn, category=str(category),
            body_hash=digest, due_s=due_s, asked=asked,
        )  # fmt: skip
        self._turn += 1
        cell.due(request)
        heard = Heard() if cell.texts is not None else None
        try:
            over_s = self._stream(path, body, request, None if heard is None else heard.take)
        finally:  # a killed user's request is kept too, as cancelled
            if request.end_s != request.end_s:
                request.end_s = cell.clock.now_s()
            if request.error and cell.source is not None:  # somebody's own text, which stays out of records
                request.error = without_echo(request.error, body)
            cell.ended(request)
            if cell.texts is not None and heard is not None and cell.in_window(request):
                cell.texts.consider(request, body, heard)
        self._ready_s = max(request.end_s, over_s)  # what the end of the body takes is not the client's lateness
        if request.outcome != Outcome.OK and cell.opened is None:  # arrivals do not wait for anyone
            self._pause_s = PAUSE_AFTER_FAILURE_S
        return request

    def _stream(self, path: str, body: bytes, request: Request, hear: Callable[[bytes], None] | None) -> float:
        """Send a request on the user's own connection, or in an open load on one of the cell's.

        Returns when the answer's body had ended, on the run's clock.
        """
        if self._client is not None:
            self._client.stream(path, body, request, hear=hear)
            return self._client.over_s
        if self.cell.opened is None or self.cell.turns_away(request):
            return -math.inf
        client = self.cell.opened.take(self.cell.new_client)
        try:
            client.stream(path, body, request, hear=hear)
            return client.over_s
        finally:
            self.cell.opened.give_back(client)

    def _sleep_until(self, due_s: float) -> None:
        sleep_until(self.cell.clock.perf_s(due_s))
