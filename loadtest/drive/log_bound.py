"""What a scenario prints goes to a log beside the records, and must not fill the disk on which those are kept."""

from __future__ import annotations

import contextlib
import fcntl
import os

MOST_BYTES = 16 * 2**20
CUT = f"[what was written here before was left out: more than {MOST_BYTES // 2**20} MiB]\n"


def bound_log(descriptor: int = 2) -> None:
    """Empty a log that has outgrown MOST_BYTES; what is written next begins it anew."""
    with contextlib.suppress(OSError):  # a terminal, or a pipe
        appended = fcntl.fcntl(descriptor, fcntl.F_GETFL) & os.O_APPEND  # else a hole would stay at its beginning
        if appended and os.fstat(descriptor).st_size > MOST_BYTES:
            os.ftruncate(descriptor, 0)
            os.write(descriptor, CUT.encode())
