"""Trace: requests arrive as they did in recorded traffic, and are as long as they were then.

[trace] in trace.toml names the file: a published trace (Azure, BurstGPT, Mooncake), CSV or JSONL of your own, or what
`loadtest import` makes of a log. Where it holds lengths alone, they are met with text of the right kind.
"""

from loadtest.scenario import LLMUser, task


class TraceUser(LLMUser):
    """Sessions of the trace, in the order of their arrival."""

    @task
    def session(self) -> None:
        """Send the requests of one session."""
        self.hold(self.next_session())
