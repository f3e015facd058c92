"""Where an arm is: its URL taken apart once, its headers, its TLS context, and its addresses."""

from __future__ import annotations

import re
import ssl
from collections.abc import Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import gevent
from gevent import socket

from loadtest import __version__
from loadtest.drive.failure import Failure
from loadtest.errors import UsageError
from loadtest.record import Outcome
from loadtest.settings import Limits

Address = tuple[int, tuple[Any, ...]]  # address family, and what connect() takes

_TOKEN = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")  # RFC 9110, section 5.6.2
_OWN_HEADERS = frozenset(
    ("host", "content-length", "content-type", "transfer-encoding", "connection", "accept", "accept-encoding")
)


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
    ) -> None:
        """Take `url` apart; `verify=False` accepts any certificate, `ca` adds the authorities of a PEM file."""
        self.scheme, self.host, self.port, self.base_path = _taken_apart(url)
        self.limits = limits or Limits()
        default = 443 if self.scheme == "https" else 80
        bracketed = f"[{self.host}]" if ":" in self.host else self.host
        self.authority = bracketed if self.port == default else f"{bracketed}:{self.port}"
        self.url = f"{self.scheme}://{self.authority}{self.base_path}"
        self.tls = _tls_context(verify, ca) if self.scheme == "https" else None
        self._head = _header_lines(self.authority, headers or {})
        self._heads: dict[str, bytes] = {}
        self._addresses: list[Address] = []

    def __repr__(self) -> str:
        return f"Endpoint({self.url!r})"

    def request(self, path: str, body: bytes) -> bytes:
        """Return the bytes of a POST of `body` to `path`, below the URL's own path; a `/v1` is not doubled."""
        head = self._heads.get(path)
        if head is None:
            if not path.startswith("/") or not path.isprintable() or " " in path:
                raise ValueError(f"not a path: {path!r}")
            base = self.base_path
            if base.endswith("/v1") and path.startswith("/v1/"):
                base = base.removesuffix("/v1")
            head = self._heads[path] = f"POST {base}{path} HTTP/1.1\r\n".encode() + self._head
        return b"%sContent-Length: %d\r\n\r\n%s" % (head, len(body), body)

    def addresses(self, timeout_s: float) -> list[Address]:
        """Return the host's addresses, the one that last worked first. Raises Failure when it has none."""
        if not self._addresses:
            self._addresses = _resolve(self.host, self.port, timeout_s)
        return self._addresses

    def worked(self, address: Address | None) -> None:
        """Remember the address that answered; None: none did, so look the host up again."""
        if address is None:
            self._addresses = []
        elif self._addresses and self._addresses[0] is not address:
            self._addresses = [address, *(other for other in self._addresses if other is not address)]


def _taken_apart(url: str) -> tuple[str, str, int, str]:
    wanted = "write http://host:port or https://host:port"
    if any(c.isspace() or not c.isprintable() for c in url):
        raise UsageError(f"The URL of a server holds a blank or an unprintable character; {wanted}.")
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise UsageError(f"The URL of a server cannot be read ({error}); {wanted}.") from None
    if "@" in parts.netloc:
        raise UsageError("The URL of a server holds a user name or password; give keys by environment variable.")
    if parts.scheme not in ("http", "https") or not host:
        raise UsageError(f"The server URL {url!r} is not http or https with a host; {wanted}.")
    if parts.query or parts.fragment:
        raise UsageError(f"The server URL of {host} holds a query or fragment, which cannot be kept; {wanted}.")
    try:
        host = host if ":" in host else host.encode("idna").decode()
    except UnicodeError:
        raise UsageError(f"The server URL {url!r} holds no valid host name; {wanted}.") from None
    path = parts.path.rstrip("/")
    if not path.isascii():
        raise UsageError(f"The path of the server URL {url!r} holds characters outside ASCII; percent-encode them.")
    return parts.scheme, host, port or (443 if parts.scheme == "https" else 80), path


def _header_lines(authority: str, headers: Mapping[str, str]) -> bytes:
    lines = [
        f"Host: {authority}",
        f"User-Agent: loadtest/{__version__}",
        "Accept: text/event-stream",
        "Accept-Encoding: identity",
        "Content-Type: application/json",
    ]
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name) or name.lower() in _OWN_HEADERS:
            raise UsageError(f"The header {name!r} cannot be sent: not a header name, or one that is set for you.")
        if not value.isprintable() or not value.isascii() or value != value.strip():
            raise UsageError(f"The value of the header {name} holds a character that cannot be sent, or outer blanks.")
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


def _resolve(host: str, port: int, timeout_s: float) -> list[Address]:
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
