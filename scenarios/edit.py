"""Edit: a given file or text comes back whole with a small change, so that the answer repeats most of the prompt.

The best case of drafts that are looked up in the prompt (n-gram); categories are `code_edit` and `text_edit`.
"""

from loadtest.scenario import LLMUser, dialogues, task


class EditUser(LLMUser):
    """People who have something changed and the rest kept."""

    source = dialogues("edit")

    @task
    def rewrite(self) -> None:
        """Have one text or file rewritten."""
        self.hold(self.next_session())
