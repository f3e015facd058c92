"""Reasoning: short questions whose answers are worked out at length. Decoding is nearly all of the time.

Categories are `maths`, `logic` and `design`.
"""

from loadtest.scenario import LLMUser, dialogues, task


class ReasoningUser(LLMUser):
    """People who want every step; an answer may be as long as [generation] max_tokens allows."""

    source = dialogues("reasoning")

    @task
    def problem(self) -> None:
        """Set one problem."""
        self.hold(self.next_session())
