"""Chat: people talk with an assistant over several turns and think between them.

`loadtest run scenarios/chat.py` measures it; `locust -f scenarios/chat.py --host URL` runs it under plain Locust.
"""

from loadtest.scenario import LLMUser, dialogues, task


class ChatUser(LLMUser):
    """Dialogues in several categories; the history holds scripted answers, so that every arm sees the same prompts."""

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
