"""A TCP or TLS server of a test's own on a free loopback port: a thread accepts, a thread per connection serves."""

from __future__ import annotations

import contextlib
import socket
import ssl
import struct
import threading


class Listening:
    """What every such server has: the port, the threads and the end; `serve` is the subclass's."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        """Listen at once; with `tls` every connection is wrapped before it is served."""
        self.connections = 0
        self._tls = tls
        self._stopping = threading.Event()
        self._listener = socket.create_server(("127.0.0.1", 0), backlog=512)
        self._listener.settimeout(0.05)
        self.port = self._listener.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    @property
    def url(self) -> str:
        """Where it is."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self.port}"

    def stop(self) -> None:
        """End it and every connection."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(10)
        self._listener.close()

    def serve(self, connection: socket.socket, number: int) -> None:
        """Serve the connection that came as the `number`-th, from 0; an OSError ends it."""
        raise NotImplementedError

    def _accept(self) -> None:
        while not self._stopping.is_set():
            try:
                connection, _ = self._listener.accept()
            except TimeoutError:
                continue
            self._threads.append(threading.Thread(target=self._one, args=(connection, self.connections)))
            self.connections += 1
            self._threads[-1].start()

    def _one(self, plain: socket.socket, number: int) -> None:
        plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        plain.settimeout(5)
        connection = plain
        with contextlib.suppress(OSError):
            if self._tls is not None:
                connection = self._tls.wrap_socket(plain, server_side=True)
            self.serve(connection, number)
        connection.close()
        plain.close()


def reset_at_close(connection: socket.socket) -> None:
    """Have the connection reset, not ended, when it is closed."""
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
