"""Summarize: one to two thousand tokens in, a short text out. Prefill weighs most, and little is left to speed up.

Categories are `report`, `meeting`, `thread` and `gutachten` (German).
"""

from loadtest.scenario import LLMUser, dialogues, task


class SummarizeUser(LLMUser):
    """People who have no time to read it all; no two of them read the same text."""

    source = dialogues("summarize")

    @task
    def summary(self) -> None:
        """Ask for one summary."""
        self.hold(self.next_session())
