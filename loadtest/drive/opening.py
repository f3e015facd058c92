"""Opening a TCP connection to an endpoint: its addresses one after the other, in the calling greenlet."""

from __future__ import annotations

import errno
import os
import socket
import time
from typing import Any

from gevent import monkey
from gevent.socket import wait_write

from loadtest.drive.clock import SO_TIMESTAMPNS
from loadtest.drive.endpoint import Endpoint, SocketAddress
from loadtest.drive.failure import Failure, printable
from loadtest.record import Outcome

_OWN_FAULTS = frozenset({errno.EMFILE, errno.ENFILE, errno.EADDRNOTAVAIL, errno.ENOBUFS, errno.ENOMEM})


def connected(endpoint: Endpoint, deadline_s: float, *, stamped: bool) -> Any:
    """Return a connected socket of the standard library, trying the host's addresses one after the other."""
    addresses = endpoint.addresses(endpoint.limits.connect_s)
    failure: Failure | None = None
    for tried, address in enumerate(addresses):
        share_s = (deadline_s - time.monotonic()) / (len(addresses) - tried)  # a dead one leaves time for the rest
        try:
            connected = _connect(endpoint, address, max(share_s, 0.001), stamped=stamped)
        except Failure as error:
            failure = error
            if error.outcome is Outcome.CLIENT_ERROR:
                raise
        else:
            endpoint.worked(address)
            return connected
    endpoint.worked(None)
    raise failure or Failure(Outcome.CONNECT_ERROR, f"the host {endpoint.host} has no address")


def _connect(endpoint: Endpoint, address: SocketAddress, timeout_s: float, *, stamped: bool) -> Any:
    family, where = address
    try:
        return _plain_socket(family, where, timeout_s, stamped=stamped)
    except TimeoutError as error:
        if error.errno is None:  # ours; ETIMEDOUT is the kernel's
            raise late(endpoint, "no connection was made") from None
        raise _refused(endpoint, where, error) from None
    except OSError as error:
        raise _refused(endpoint, where, error) from None


def _plain_socket(family: int, where: tuple[Any, ...], timeout_s: float, *, stamped: bool) -> Any:
    plain = monkey.get_original("socket", "socket")
    connection = plain(family, socket.SOCK_STREAM)
    try:
        connection.setblocking(False)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if stamped:
            connection.setsockopt(socket.SOL_SOCKET, SO_TIMESTAMPNS, 1)
        code = connection.connect_ex(where)
        if code in (errno.EINPROGRESS, errno.EWOULDBLOCK):
            wait_write(connection.fileno(), timeout_s, TimeoutError())
            code = connection.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            raise OSError(code, os.strerror(code))
    except BaseException:
        connection.close()
        raise
    return connection


def _refused(endpoint: Endpoint, where: tuple[Any, ...], error: OSError) -> Failure:
    if error.errno in _OWN_FAULTS:
        return Failure(Outcome.CLIENT_ERROR, f"this machine could not open another connection: {reason_of(error)}")
    named = endpoint.hop if endpoint.proxy or where[0] == endpoint.host else f"{endpoint.authority} ({where[0]})"
    return Failure(Outcome.CONNECT_ERROR, f"no connection to {named}: {reason_of(error)}")


def late(endpoint: Endpoint, what: str) -> Failure:
    """Return the failure of what did not happen within its share of the connect limit."""
    limit = endpoint.limits.connect_s
    return Failure(Outcome.CONNECT_ERROR, f"{what} to {endpoint.authority} within its share of {limit:g} s")


def reason_of(error: OSError) -> str:
    """Return what the system says of an error, in characters that can be shown."""
    return printable(error.strerror or str(error) or type(error).__name__)
