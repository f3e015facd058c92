"""Code: people have code written and explained, and their editor has it completed while they type.

`loadtest run scenarios/code.py` measures it; the result's categories are `write`, `explain` and `complete`.
"""

from loadtest.scenario import LLMUser, dialogues, task

COMPLETION_TOKENS = 96  # an editor shows a few lines


class CodeUser(LLMUser):
    """Sessions with an assistant for code; completions are short, and may be too short for speculation to pay."""

    source = dialogues("code")

    @task
    def session(self) -> None:
        """Hold one dialogue, or ask for one completion."""
        session = self.next_session()
        completes = session.turns[0].category == "complete"
        self.hold(session, max_tokens=COMPLETION_TOKENS if completes else None)
