"""Agent: a model works with tools; every call and its result join the history, so that the context grows turn by turn.

Calls and results are scripted: both arms see the same history, whatever a model would have called. Tools take their
time (half of them over 0.6 s), and that time is part of the work: load.think_time scales the pauses of people only, so
that with think_time = 0 the users are still more than the requests in flight. Requests describe the tools with
tool_choice "none", which vLLM takes without a parser for calls; categories are `support`, `coding` and `office`.
"""

from loadtest.scenario import LLMUser, dialogues, task

# By category: name and arguments of each tool (# marks a number, the first argument is required), and what it does.
KITS = {
    "support": {
        "find_order number# name": "Look an order up by its number.",
        "check_stock article colour pieces#": "Say how many pieces of an article are in stock, and where.",
        "shipping_options from to pieces#": "List ways of shipping with days and prices.",
        "create_replacement order# article colour pieces# shipping address contact": "Send articles of an order again.",
        "search_manual article question": "Find passages in the manual of an article.",
        "track number": "Return the events of a parcel.",
        "ask_depot depot vehicle# parcel": "Ask a depot about a parcel, and wait for the answer.",
        "book_delivery parcel day from# to# note": "Book a time for a delivery.",
        "customer_credit customer reason limit#": "Propose a credit for a customer.",
    },
    "coding": {
        "read_file path from# to#": "Return lines of a file.",
        "edit_file path old new": "Replace a text that occurs once in a file.",
        "run_tests path only": "Run tests, and return what failed.",
        "git_log path lines most#": "Return the latest commits that touched lines of a file.",
        "metrics service path quantities minutes#": "Return metrics of a service over the last minutes.",
        "search_logs service query most#": "Return lines of a service's log that match a query.",
        "explain_query database sql": "Return the plan of a query.",
        "run_sql database sql": "Run a statement, and return what the database says.",
    },
    "office": {
        "calendar_free people month hours# not_before#": "Find times at which all of some people are free.",
        "find_room city people# days needs": "Find rooms that are free.",
        "find_train from to day# arrive_before#": "Find trains that arrive in time.",
        "book room day# from# to# title people#": "Book a room.",
        "query sql": "Run a read-only SQL query, and return its rows.",
        "wohnung strasse nummer#": "Gibt Auskunft über eine Wohnung und ihre Leitungen.",
        "handwerker gewerk ort von# bis#": "Findet Betriebe, die Zeit haben.",
        "auftrag firma wohnung# zeit kontakt grund": "Beauftragt einen Betrieb.",
    },
}


def described(signature: str, purpose: str) -> dict[str, object]:
    """Return a tool as an OpenAI request describes it."""
    name, *arguments = signature.split()
    properties = {a.rstrip("#"): {"type": "integer" if a.endswith("#") else "string"} for a in arguments}
    parameters = {"type": "object", "properties": properties, "required": list(properties)[:1]}
    return {"type": "function", "function": {"name": name, "description": purpose, "parameters": parameters}}


TOOLS = {category: [described(*tool) for tool in kit.items()] for category, kit in KITS.items()}


class AgentUser(LLMUser):
    """People with a job for an agent, which takes several calls of tools to be done."""

    source = dialogues("agent")

    @task
    def job(self) -> None:
        """See one job through."""
        session = self.next_session()
        self.hold(session, tools=TOOLS.get(session.turns[0].category, ()))
