"""Where an arm is: its URL taken apart once, its headers, its TLS context, and its addresses."""

from __future__ import annotations

import ssl
from collections import Counter
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import gevent
from gevent import socket

from loadtest import __version__
from loadtest.drive.alarms import Alarms
from loadtest.drive.failure import Failure, printable
from loadtest.errors import UsageError
from loadtest.record import Outcome
from loadtest.servers.address import read_address
from loadtest.servers.headers import refuse_unsendable
from loadtest.servers.hiding import carried, without
from loadtest.settings import Limits

MODELS_KEPT = 8  # two are one too many

SocketAddress = tuple[int, tuple[Any, ...]]  # address family, and what connect() takes


class Endpoint:
    """One server as the stream client speaks to it; shared by all clients of an arm.

    Raises UsageError for a URL that is not plain http(s)://host[:port][/path], a header that cannot be sent, or a CA
    file that cannot be read. Header values never appear in its text.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, str] | None = None,
        limits: Limits | None = None,
        *,
        verify: bool = True,
        ca: Path | None = None,
        proxy: str = "",
    ) -> None:
        """Take `url` apart; `verify=False` accepts any certificate, `ca` adds the authorities of a PEM file.

        With `proxy`, connections are made to it: http:// requests name the whole URL, https:// go through a tunnel.
        """
        address = read_address(url, "The URL of a server")
        self.scheme, self.host, self.port, self.base_path = address.scheme, address.host, address.port, address.path
        self.limits = limits or Limits()
        self.authority, self.url = address.authority, address.url
        self.proxy = read_address(proxy, "The URL of a proxy") if proxy else None
        self.tls = _tls_context(verify, ca) if self.scheme == "https" else None
        self._head = _header_lines(self.authority, headers or {})
        self._secrets = carried(headers or {})
        self.alarms = Alarms()
        self.models: set[str] = set()  # that the server said it answered with, up to MODELS_KEPT
        self.oddities: Counter[str] = Counter()  # of answers, by name: what was unusual and yet no failure
        self._target_of = f"{self.scheme}://{self.authority}" if self.proxy and self.scheme == "http" else ""
        self._heads: dict[str, bytes] = {}
        self._addresses: list[SocketAddress] = []

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r})"

    @property
    def has_secrets(self) -> bool:
        """Whether some header has a value to hide."""
        return bool(self._secrets)

    def without_secrets(self, text: str) -> str:
        """Return a text, such as a server's own words, with the values of the headers hidden."""
        return without(self._secrets, text) if text and self._secrets else text

    def request(self, path: str, body: bytes) -> bytes:
        """Return the bytes of a POST of `body` to `path`, below the URL's own path; a `/v1` is not doubled."""
        head = self._heads.get(path)
        if head is None:
            if not path.startswith("/") or not path.isprintable() or " " in path:
                raise ValueError(f"not a path: {path!r}")
            base = self.base_path
            if base.endswith("/v1") and path.startswith("/v1/"):
                base = base.removesuffix("/v1")
            head = self._heads[path] = f"POST {self._target_of}{base}{path} HTTP/1.1\r\n".encode() + self._head
        return b"%sContent-Length: %d\r\n\r\n%s" % (head, len(body), body)

    def note_answer(self, model: str | None, oddities: tuple[str, ...]) -> None:
        """Keep what an answer said of its model, and count what was odd about it."""
        if model is not None and model not in self.models and len(self.models) < MODELS_KEPT:
            self.models.add(self.without_secrets(printable(model, 120)))
        for oddity in oddities:
            self.oddities[oddity] += 1

    def forget_answers(self) -> None:
        """Begin anew with what `note_answer` keeps."""
        self.models.clear()
        self.oddities.clear()

    def addresses(self, timeout_s: float) -> list[SocketAddress]:
        """Return the addresses to connect to, the one that last worked first. Raises Failure when there is none."""
        if not self._addresses:
            place = self.proxy or self
            self._addresses = _resolve(place.host, place.port, timeout_s)
        return self._addresses

    @property
    def hop(self) -> str:
        """Whom a connection is made to, as a sentence calls it."""
        return f"the proxy {self.proxy.authority}" if self.proxy else self.authority

    def worked(self, address: SocketAddress | None) -> None:
        """Remember the address that answered; None: none did, so look the host up again."""
        if address is None:
            self._addresses = []
        elif self._addresses and self._addresses[0] is not address:
            self._addresses = [address, *(other for other in self._addresses if other is not address)]


def _header_lines(authority: str, headers: Mapping[str, str]) -> bytes:
    lines = [
        f"Host: {authority}",
        f"User-Agent: loadtest/{__version__}",
        "Accept: text/event-stream",
        "Accept-Encoding: identity",
        "Content-Type: application/json",
    ]
    for name, value in headers.items():
        refuse_unsendable(name, value, f"The value of the header {name!r}")
        lines.append(f"{name}: {value}")
    return "".join(line + "\r\n" for line in lines).encode("ascii")


def _tls_context(verify: bool, ca: Path | None) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=str(ca) if ca else None)
        if ca:
            context.load_default_certs()
    except (OSError, ssl.SSLError) as error:
        raise UsageError(f"The CA file {ca} cannot be read as PEM certificates: {error}.") from None
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    context.set_alpn_protocols(["http/1.1"])
    return context


def _resolve(host: str, port: int, timeout_s: float) -> list[SocketAddress]:
    try:
        version = ip_address(host.partition("%")[0]).version
    except ValueError:
        pass
    else:
        if version == 4:
            return [(socket.AF_INET, (host, port))]
    try:
        with gevent.Timeout(timeout_s, TimeoutError("no answer from the resolver")):
            found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except OSError as error:  # gaierror and TimeoutError are
        reason = error.strerror or str(error)
        raise Failure(Outcome.CONNECT_ERROR, f"the host {host} cannot be looked up: {reason}") from None
    return [(family, address) for family, _, _, _, address in found]
