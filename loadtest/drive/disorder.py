"""Packets that came out of order: whether a read's stamp may be that of bytes that waited in the kernel for a lost one.

A read that joins the packet that was lost, sent again, with those that came meanwhile bears the stamp of the last of
them, from before any of it could be read. The kernel counts such packets (Linux 5.4 and later).
"""

from __future__ import annotations

import socket
import struct
from typing import Any

_COUNT_AT = 224  # of tcpi_rcv_ooopack in struct tcp_info, <linux/tcp.h>
_SIZE = _COUNT_AT + 4
_TCP_INFO = getattr(socket, "TCP_INFO", None)

_count = struct.Struct("@I").unpack_from


def out_of_order(connection: Any) -> int:
    """Return how many packets have come out of order on a TCP socket; 0 where the system does not say."""
    if _TCP_INFO is None:
        return 0
    try:
        told: bytes = connection.getsockopt(socket.IPPROTO_TCP, _TCP_INFO, _SIZE)
    except OSError:
        return 0
    return int(_count(told, _COUNT_AT)[0]) if len(told) >= _SIZE else 0
