"""RAG: many sessions ask of the same documents, which stand as a long shared prefix before each question.

A cell has DOCUMENTS sets of passages, new in every cell and the same in both arms. The fresh cache_salt of a cell
keeps the prefix cache from carrying anything into the next one, while within a cell the first question of a set of
passages fills the cache and the later ones find it, as in production. With servers.cache = "keep" nothing changes but
that salt: the passages of another cell are others.
"""

from loadtest.scenario import LLMUser, shared_documents, task

DOCUMENTS = 8


class RagUser(LLMUser):
    """Sessions of one or two questions about one set of passages."""

    source = shared_documents("rag", DOCUMENTS)

    @task
    def questions(self) -> None:
        """Ask what a session wants to know."""
        self.hold(self.next_session())
