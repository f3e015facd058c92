"""The built-in scenario: dialogues of several kinds, for a comparison of answers that names no scenario of its own."""

from loadtest.scenario import LLMUser, dialogues, task


class Dialogues(LLMUser):
    """Dialogues as in scenarios/chat.py."""

    source = dialogues("chat")

    @task
    def dialogue(self) -> None:
        """Hold one dialogue to its end."""
        session = self.next_session()
        messages = [{"role": "system", "content": session.system}] if session.system else []
        for turn in session.turns:
            self.think(turn.think_s)
            messages.append({"role": "user", "content": turn.user})
            self.chat(messages, category=turn.category)
            messages.append({"role": "assistant", "content": turn.assistant})
