"""Through an HTTP proxy that was asked for: a tunnel for https://, the whole URL for http://."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loadtest.errors import UsageError
from loadtest.record import Request
from loadtest.servers.address import proxy_url
from loadtest.servers.control import Arm, Control

TLS = Path(__file__).parents[1] / "data" / "tls"


class TunnelProxy:
    """Connects wherever CONNECT says, and passes bytes on both ways."""

    def __init__(self) -> None:
        self.asked: list[bytes] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self._open: list[socket.socket] = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def stop(self) -> None:
        for one in self._open:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
            one.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    head += client.recv(1)
                self.asked.append(head)
                host, _, port = head.split()[1].decode().rpartition(":")
                server = socket.create_connection((host, int(port)))
                self._open += [client, server]
                client.sendall(b"HTTP/1.1 200 Connection established\r\nVia: test\r\n\r\n")
                for one, other in ((client, server), (server, client)):
                    threading.Thread(target=_pass_on, args=(one, other), daemon=True).start()


def _pass_on(one: socket.socket, other: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)


@pytest.fixture
def tunnel() -> Iterator[TunnelProxy]:
    proxy = TunnelProxy()
    yield proxy
    proxy.stop()


def tls() -> ssl.SSLContext:
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(TLS / "localhost.pem", TLS / "server.key")
    return made


def stream(client: Any) -> Request:
    record = Request(due_s=0.0)
    client.stream("/v1/chat/completions", b"{}", record)
    return record


def test_https_goes_through_a_tunnel_that_sees_no_key(serve: Any, connect: Any, say: Any, tunnel: TunnelProxy) -> None:
    server = serve([say.READ, say.good(3), say.READ, say.good(4), say.HOLD], tls=tls())
    client = connect(server.url, ca=TLS / "ca.pem", headers={"Authorization": "Bearer sk-canary"}, proxy=tunnel.url)
    assert [stream(client).output_tokens, stream(client).output_tokens] == [3, 4]
    target = f"127.0.0.1:{server.port}"
    assert tunnel.asked == [f"CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n\r\n".encode()]
    assert server.requests[0].startswith(b"POST /v1/chat/completions HTTP/1.1\r\n")


def test_http_names_the_whole_url_to_the_proxy(serve: Any, connect: Any, say: Any) -> None:
    proxy = serve([say.READ, say.good(3), say.HOLD])
    record = stream(connect("http://model.invalid:8000/base", proxy=proxy.url))
    assert (record.outcome, record.output_tokens, record.stamp_source) == ("ok", 3, "kernel")
    line, host = proxy.requests[0].split(b"\r\n")[:2]
    assert line == b"POST http://model.invalid:8000/base/v1/chat/completions HTTP/1.1"
    assert host == b"Host: model.invalid:8000"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"HTTP/1.1 403 Forbidden\r\n\r\n", "it answered HTTP/1.1 403 Forbidden"),
        (b"SSH-2.0-OpenSSH\r\n\r\n", "it answered SSH-2.0-OpenSSH"),
        (b"", "it closed the connection"),
    ],
)
def test_a_proxy_that_opens_no_tunnel_is_named(serve: Any, connect: Any, say: Any, answer: bytes, said: str) -> None:
    proxy = serve([0.05, answer, say.CLOSE])
    record = stream(connect("https://model.invalid", proxy=proxy.url))
    assert record.outcome == "connect_error"
    assert record.error == f"the proxy 127.0.0.1:{proxy.port} opened no tunnel to model.invalid:443: {said}"


def test_a_proxy_that_says_nothing_is_given_up(serve: Any, connect: Any, say: Any) -> None:
    record = stream(connect("https://model.invalid", proxy=serve([say.HOLD]).url, connect_s=0.3))
    assert record.outcome == "connect_error"
    assert record.error.endswith("opened no tunnel to model.invalid:443 within its share of 0.3 s")


def test_a_dead_proxy_is_named_and_not_the_server(serve: Any, connect: Any, say: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    record = stream(connect("http://model.invalid", proxy=f"http://127.0.0.1:{port}"))
    assert record.outcome == "connect_error"
    assert record.error.startswith(f"no connection to the proxy 127.0.0.1:{port}: ")


def test_the_control_plane_takes_the_same_way(tunnel: TunnelProxy, serve: Any, say: Any) -> None:
    body = b'{"data": [{"id": "m"}]}'
    head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    proxy = serve([0.1, head % len(body) + body, say.HOLD])
    control = Control(Arm(name="baseline", role="baseline", url="http://model.invalid:8000", proxy=proxy.url))
    assert control.json("/v1/models") == {"data": [{"id": "m"}]}
    control.close()


def named(word: str) -> str:
    return proxy_url(word, "servers.proxy")


def test_a_proxy_is_plain_http_at_a_host_and_port() -> None:
    assert (named(""), named("http://Proxy:3128/")) == ("", "http://proxy:3128")
    for word in ("https://proxy:3128", "http://proxy:3128/path", "socks5://proxy:1080"):
        with pytest.raises(UsageError, match=r"servers\.proxy is "):
            named(word)
    with pytest.raises(UsageError, match="carries a user or password"):
        named("http://me:secret@proxy:3128")
