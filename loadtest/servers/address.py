"""The address of a server: read from a word, checked once for every client of ours, and told apart from another's."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from urllib.parse import SplitResult, urlsplit

import httpx

from loadtest.errors import UsageError

WANTED = "write a URL such as http://127.0.0.1:8000"
_PORTS = {"http": 80, "https": 443}
_HOST = re.compile(r"[A-Za-z0-9_.~-]+")
_THIS_MACHINE = "localhost"


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """A server's URL taken apart."""

    scheme: str  # http · https
    host: str  # lower case, ASCII; an IPv6 address has no brackets
    port: int
    path: str  # no trailing slash

    @property
    def authority(self) -> str:
        """The host, bracketed where needed, and the port unless it is the scheme's own."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def url(self) -> str:
        """The URL in its plain form."""
        return f"{self.scheme}://{self.authority}{self.path}"


def read_address(word: str, named: str) -> Address:
    """Take a URL apart. Raises UsageError, with a sentence that calls it `named`, for one that no client could use."""
    shown = _shown(word)
    wrong = UsageError(f"{named} is {shown}; {WANTED}.")
    if any(c.isspace() or not c.isprintable() for c in word):
        raise UsageError(f"{named} is {shown}, with a blank or an unprintable character; {WANTED}.")
    try:
        parts = urlsplit(word)
        port = parts.port
    except ValueError:
        raise wrong from None
    if "@" in parts.netloc:
        raise UsageError(f"{named} carries a user or password; give a key by servers.api_key_env instead.")
    if parts.scheme not in _PORTS or not parts.hostname or port == 0:
        raise wrong
    if parts.query or parts.fragment:
        raise UsageError(f"{named} is {shown}; a URL of a server has no ? or # part.")
    if not parts.path.isascii():
        raise UsageError(f"The path of {named} is outside ASCII ({shown}); percent-encode it.")
    host = _host_of(parts)
    if not host:
        raise UsageError(f"{named} is {shown}, which holds no valid host name; {WANTED}.")
    address = Address(scheme=parts.scheme, host=host, port=port or _PORTS[parts.scheme], path=parts.path.rstrip("/"))
    try:
        httpx.URL(address.url).host  # noqa: B018  # decoded when asked for; the control plane's client has the last word
    except (httpx.InvalidURL, UnicodeError):
        raise UsageError(f"{named} is {shown}, which holds no valid host name; {WANTED}.") from None
    return address


def _shown(word: str) -> str:
    """Return a URL as a sentence may quote it: what may be a password or a key, before an @ or after a ?, is not."""
    if "@" in word:
        return "(hidden)"
    end = re.search(r"(?<=[?#]).", word)
    word = f"{word[: end.start()]}…" if end else word
    return repr(word if len(word) <= 120 else word[:119] + "…")


def _host_of(parts: SplitResult) -> str:
    """Return the host in ASCII; empty when it is none."""
    host = parts.hostname or ""
    try:
        if ":" in host:
            return str(ip_address(host))
        host = host.encode("idna").decode("ascii")
    except ValueError:  # UnicodeError is one
        return ""
    return host if _HOST.fullmatch(host) and len(host) <= 253 else ""


def clean_url(word: str, option: str) -> str:
    """Return a server's URL in its plain form, or refuse it with a sentence that names `option`."""
    # "http:/host" would else be taken for a host named http.
    whole = word if "//" in word or ":/" in word else f"http://{word}"
    address = read_address(whole, option)
    return address.url.removesuffix("/v1").rstrip("/")


def proxy_url(word: str, named: str) -> str:
    """Return a proxy's URL in its plain form, "" for none. Raises UsageError for one that the client cannot use."""
    if not word:
        return ""
    address = read_address(word, named)
    if address.scheme != "http" or address.path:
        raise UsageError(f"{named} is {_shown(word)}; a proxy is spoken to over plain HTTP, at http://host:port.")
    return address.url


def same_place(first: str, second: str) -> bool:
    """Return whether two URLs lead to the same host, port and path, as far as their words tell.

    Names are not looked up: two names of one address may be two servers behind one entrance.
    """
    one, other = read_address(first, "a URL"), read_address(second, "a URL")
    return (_machine(one.host), one.port, one.path) == (_machine(other.host), other.port, other.path)


def _machine(host: str) -> str:
    """Return one word for every way to write this machine's own address."""
    host = host.rstrip(".")
    if host == _THIS_MACHINE or host.endswith("." + _THIS_MACHINE):
        return _THIS_MACHINE
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        address = address.ipv4_mapped
    local = ("127.0.0.1", "::1", "0.0.0.0", "::")  # nosec B104  # compared, never bound
    return _THIS_MACHINE if str(address) in local else str(address)


def is_loopback(host: str) -> bool:
    """Return whether a host is this machine's own loopback, by its words; names are not looked up."""
    if _machine(host) == _THIS_MACHINE:
        return host not in ("0.0.0.0", "::")  # nosec B104  # compared, never bound
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


_LOCAL_SUFFIXES = (".localhost", ".local", ".internal", ".lan", ".home.arpa", ".svc", ".cluster.local")


def is_public(url: str) -> bool:
    """Return whether a URL may lead to the public internet: neither to loopback, nor to private or local names.

    A name is looked up; one that has no address is taken as public, since nothing shows that it is not.
    """
    host = read_address(url, "a URL").host.rstrip(".")
    if host == _THIS_MACHINE or host.endswith(_LOCAL_SUFFIXES):
        return False
    try:
        return ip_address(host).is_global
    except ValueError:
        pass
    try:
        found = {entry[4][0] for entry in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)}
    except (OSError, UnicodeError):
        return "." in host  # a name of one word is that of a container or a machine nearby
    return any(ip_address(str(place).partition("%")[0]).is_global for place in found)
