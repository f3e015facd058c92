"""An HTTP server of a test's own on a free loopback port, whose handler says each answer by `say`."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Handler(BaseHTTPRequestHandler):
    """Reads JSON bodies, sends whole answers, and logs nothing."""

    def body(self) -> dict[str, Any]:
        """Return the JSON body of the request."""
        said: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return said

    def say(self, status: int, text: str, headers: Mapping[str, str] | None = None) -> None:
        """Send an answer."""
        data = text.encode()
        self.send_response(status)
        for name, value in {"Content-Length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


class AnsweringServer:
    """Serves with a handler from the moment it is made until `stop`."""

    def __init__(self, handler: type[Handler]) -> None:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True)
        self._thread.start()
        self.url = f"http://127.0.0.1:{self._server.server_address[1]}"

    def stop(self) -> None:
        """End it and free its port."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)
