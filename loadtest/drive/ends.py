"""What is said of the ends of exchanges that did not go well."""

from __future__ import annotations

from loadtest.drive.failure import Failure, counted, printable
from loadtest.record import Outcome, Request
from loadtest.settings import Limits


def missed(record: Request, limits: Limits, *, total: bool) -> Failure:
    """Return the failure of a request whose deadline went by: that of the whole request, or else its next token's."""
    if total:
        return Failure(Outcome.TIMEOUT, f"the request was not finished within {limits.total_s:g} s")
    if record.chunk_s:
        return Failure(Outcome.STALLED, f"no token came for {limits.stall_s:g} s")
    return Failure(Outcome.TIMEOUT, f"no token came within {limits.first_token_s:g} s")


def broke(error: OSError) -> str:
    """Return how a connection ended that the system gave up."""
    if isinstance(error, ConnectionResetError | BrokenPipeError):
        return "the connection was reset"
    return f"the connection broke ({printable(error.strerror or str(error))})"


def so_far(failure: Failure, record: Request) -> str:
    """Return what had come before a failure, as the end of its text; "" where nothing had."""
    if not record.chunk_s:
        return ""
    came = f"after {counted(len(record.chunk_s), 'chunk')}"
    return f" ({came})" if ":" in failure.text else f" {came}"
