"""A request to an idle server, off the measured path."""

from __future__ import annotations

import threading

from answering import AnsweringServer, Handler

from loadtest.drive.alone import ask
from loadtest.servers.control import Arm, Control
from loadtest.settings import Generation

EVENTS = (
    'data: {"id":"c","choices":[{"index":0,"delta":{"content":"a"}}],"usage":{"completion_tokens":1}}\n\n'
    'data: {"id":"c","choices":[{"index":0,"delta":{"content":"b"},"finish_reason":"length"}],'
    '"usage":{"completion_tokens":2,"prompt_tokens":40}}\n\ndata: [DONE]\n\n'
)


def test_an_answer_is_over_with_its_done_though_its_body_does_not_end() -> None:
    asked_on, ended = threading.Event(), threading.Event()

    class Holding(Handler):
        def do_POST(self) -> None:
            self.body()
            self.send_response(200)
            self.send_header("Content-Type", "text/event-stream")
            self.end_headers()
            self.wfile.write(EVENTS.encode())
            self.wfile.flush()
            asked_on.wait(10)
            ended.set()

    server = AnsweringServer(Holding)
    try:
        control = Control(Arm(name="candidate", role="candidate", url=server.url))
        answered = ask(control, "m", Generation())
        control.close()
        assert (answered.ok, answered.said, answered.chunk_tokens, answered.prompt_tokens) == (True, "", (1, 1), 40)
        assert not ended.is_set()
    finally:
        asked_on.set()
        server.stop()
