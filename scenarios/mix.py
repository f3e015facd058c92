"""Mix: what a general service gets, by weights. The category of a request is its class, so that results go by class.

`--set 'load.tags=["code"]'` leaves the tasks with that tag alone, `load.exclude_tags` the others.
"""

from loadtest.scenario import LLMUser, dialogues, shared_documents, tag, task

CHAT, CODE, EDIT = dialogues("chat"), dialogues("code"), dialogues("edit")
SUMMARIZE, REASONING, RAG = dialogues("summarize"), dialogues("reasoning"), shared_documents("rag")


class MixUser(LLMUser):
    """Each session is of one class, drawn by the weights of the tasks: change them to those of your own traffic."""

    source = dialogues("chat", "code", "edit", "summarize", "reasoning")  # of the prompts that answers are compared by

    @tag("chat")
    @task(8)
    def talk(self) -> None:
        """Talk."""
        self.hold(self.next_session(CHAT), category="chat")

    @tag("code")
    @task(4)
    def code(self) -> None:
        """Have code written, completed or explained."""
        self.hold(self.next_session(CODE), category="code")

    @tag("code", "edit")
    @task(2)
    def edit(self) -> None:
        """Have a text or file changed."""
        self.hold(self.next_session(EDIT), category="edit")

    @tag("long-prompt")
    @task(2)
    def summarize(self) -> None:
        """Have something summed up."""
        self.hold(self.next_session(SUMMARIZE), category="summarize")

    @tag("long-prompt")
    @task(3)
    def rag(self) -> None:
        """Ask of documents."""
        self.hold(self.next_session(RAG), category="rag")

    @tag("reasoning")
    @task(1)
    def reasoning(self) -> None:
        """Have a problem worked out."""
        self.hold(self.next_session(REASONING), category="reasoning")
