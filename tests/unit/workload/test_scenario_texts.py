"""The texts behind the scenarios: how many, how different, how long, and the same for the same key."""

from __future__ import annotations

import ast
import json
import random
import re
import statistics
from collections import Counter
from pathlib import Path

import pytest

from loadtest.errors import UsageError
from loadtest.workload.likeness import likeness_of
from loadtest.workload.sessions import Session, SessionKey, SessionSource, requests_of
from loadtest.workload.shared import SharedSource
from loadtest.workload.templates import SeveralSources, Template, TemplateSource, _check_calls

ROOT = Path(__file__).parents[3]
NAMES = ("agent", "code", "edit", "rag", "reasoning", "summarize")
CATEGORIES = {
    "agent": ("coding", "office", "support"),
    "code": ("complete", "explain", "write"),
    "edit": ("code_edit", "text_edit"),
    "rag": ("handbook", "policy", "software"),
    "reasoning": ("design", "logic", "maths"),
    "summarize": ("gutachten", "meeting", "report", "thread"),
}
TOKENS = {  # of what is sent first, system prompt included: least and most, at 4 characters to a token
    "agent": (60, 130),
    "code": (60, 260),
    "edit": (250, 520),
    "rag": (800, 1400),
    "reasoning": (100, 310),
    "summarize": (1000, 3000),
}
OTHER_LANGUAGE = {  # a word that only sessions in that language hold
    "agent": "Handwerk|Wohnung",
    "code": "Skript|fragmento",
    "edit": "Rezept|precios",
    "rag": "Stadtbibliothek",
    "reasoning": "chaque|Brücke",
    "summarize": "Gutachten|Sprache",
}


def source_of(name: str) -> SessionSource:
    return SharedSource(name) if name == "rag" else TemplateSource(name)


SOURCES = {name: source_of(name) for name in NAMES}
TEMPLATES = [template for name in NAMES for template in SOURCES[name].templates]  # type: ignore[attr-defined]


def key(number: int, *, seed: int = 1, level: float = 4.0, block: int = 0) -> SessionKey:
    return SessionKey(seed=seed, level=level, block=block, number=number)


def prompts(session: Session) -> list[str]:
    return [json.dumps(messages) for _, messages in requests_of(session)]


def words_of(session: Session) -> str:
    return "\n".join([session.system, *(f"{turn.user}\n{turn.assistant}\n{turn.call}" for turn in session.turns)])


@pytest.mark.parametrize("name", NAMES)
class TestEverySet:
    def test_categories(self, name: str) -> None:
        assert SOURCES[name].categories == CATEGORIES[name]  # type: ignore[attr-defined]
        met = Counter(SOURCES[name].session(key(number)).turns[0].category for number in range(400))
        assert set(met) == set(CATEGORIES[name])
        assert min(met.values()) > 40

    def test_no_two_sessions_of_a_run_repeat_a_prompt(self, name: str) -> None:
        keys = [key(number, level=level, block=block)
                for level in (1.0, 32.0) for block in range(3) for number in range(150)]  # fmt: skip
        asked = [prompt for one in keys for prompt in prompts(SOURCES[name].session(one))]
        assert len(asked) >= 900
        assert len(set(asked)) == len(asked)

    def test_equal_keys_give_equal_sessions_in_any_order(self, name: str) -> None:
        other = source_of(name)
        backwards = [other.session(key(number)) for number in reversed(range(60))]
        assert [SOURCES[name].session(key(number)) for number in range(60)] == backwards[::-1]

    def test_another_seed_asks_other_things(self, name: str) -> None:
        one, two = ({SOURCES[name].session(key(n, seed=seed)).turns[0].user for n in range(100)} for seed in (1, 2))
        assert not one & two

    def test_lengths(self, name: str) -> None:
        least, most = TOKENS[name]
        lengths = []
        for number in range(200):
            session = SOURCES[name].session(key(number))
            lengths.append((len(session.system) + len(session.turns[0].user)) / 4)
        assert least <= min(lengths)
        assert max(lengths) <= most

    def test_some_of_it_is_in_another_language(self, name: str) -> None:
        sessions = [SOURCES[name].session(key(number)) for number in range(120)]
        foreign = sum(bool(re.search(OTHER_LANGUAGE[name], words_of(session))) for session in sessions)
        assert 4 <= foreign <= 60

    def test_it_reads_like_language(self, name: str) -> None:
        chance = likeness_of(SOURCES[name], seed=1, sessions=20)["coincidence"]
        assert chance > 0.002


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.id)
def test_every_template_has_enough_first_questions(template: Template) -> None:
    assert template.combinations()[0] >= 1e11


def test_no_slot_is_left_over() -> None:
    names = set()
    for source in SOURCES.values():
        for number in range(150):
            names |= set(
                re.findall(r"\{(?:my [^}]*|[Aa]n? [^}]*|=[^}]*|[a-z_]+\.\d+)\}", words_of(source.session(key(number))))
            )
    assert names == set(), names


def test_an_edit_leaves_most_of_the_text_as_it_is() -> None:
    """Where the scripted answer to an edit stands in the file, it repeats the lines that it was given."""
    (template,) = [template for template in TEMPLATES if template.id == "compose-change"]
    session = template.session(random.Random(3))
    given, answered = (set(text.splitlines()) for text in (session.turns[0].user, session.turns[0].assistant))
    assert len(given & answered) > 0.8 * len(given)


class TestTools:
    def test_the_history_of_a_call(self) -> None:
        session = Session(turns=(
            _turn("Where is 7?", "I look.", call='track {"number": 7, "note": "é"}'),
            _turn("it is here", "Here.", from_tool=True),
            _turn("Thanks", ""),
        ), system="Be brief.")  # fmt: skip
        *_, (last, messages) = requests_of(session)
        assert last.user == "Thanks"
        assert messages == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Where is 7?"},
            {"role": "assistant", "content": "I look.", "tool_calls": [
                {"id": "call_0", "type": "function",
                 "function": {"name": "track", "arguments": '{"number": 7, "note": "é"}'}}]},
            {"role": "tool", "tool_call_id": "call_0", "content": "it is here"},
            {"role": "assistant", "content": "Here."},
            {"role": "user", "content": "Thanks"},
        ]  # fmt: skip

    def test_calls_are_json_of_described_tools_and_are_answered(self) -> None:
        kits = _literal(ROOT / "scenarios" / "agent.py", "KITS")
        known = {category: {signature.split()[0]: signature.split()[1:] for signature in kit}
                 for category, kit in kits.items()}  # fmt: skip
        calls = set()
        for number in range(120):
            turns = SOURCES["agent"].session(key(number)).turns
            assert not turns[0].from_tool
            for turn, following in zip(turns, [*turns[1:], None], strict=True):
                assert (following is not None and following.from_tool) == bool(turn.call)
                if turn.call:
                    name, _, arguments = turn.call.partition(" ")
                    described = [argument.rstrip("#") for argument in known[turn.category][name]]
                    assert set(json.loads(arguments)) <= set(described), name
                    assert described[0] in json.loads(arguments), name
                    calls.add((turn.category, name))
        assert calls == {(category, name) for category, kit in known.items() for name in kit}

    def test_the_context_grows_several_fold(self) -> None:
        sessions = [prompts(SOURCES["agent"].session(key(number))) for number in range(70)]
        growth = [len(asked[-1]) / len(asked[0]) for asked in sessions]
        assert min(growth) > 3
        assert statistics.median(len(asked) for asked in sessions) >= 5

    def test_tools_take_their_time(self) -> None:
        took = sorted(turn.think_s for number in range(300) for turn in SOURCES["agent"].session(key(number)).turns
                      if turn.from_tool)  # fmt: skip
        assert took[len(took) // 2] == pytest.approx(0.6, rel=0.15)
        assert took[0] > 0
        assert took[-1] <= 15.0

    @pytest.mark.parametrize(
        ("turns", "complaint"),
        [
            ([{"user": "a", "call": "b {}"}], "the last turn calls a tool"),
            ([{"user": "a"}, {"tool": "b"}], "turn 2: a `tool` follows a `call`"),
            ([{"user": "a", "call": "b {}"}, {"user": "c"}], "turn 2: a `tool` follows a `call`"),
            ([{"user": "a", "call": "b"}, {"tool": "c"}], "turn 1: a call is a name and a JSON object"),
            ([{"user": "a", "asistant": "b"}], "turn 1: unknown key asistant"),
        ],
    )
    def test_refused(self, turns: list[dict[str, str]], complaint: str) -> None:
        with pytest.raises(ValueError, match=complaint):
            _check_calls(turns)


class TestSharedDocuments:
    def test_the_sessions_of_a_cell_share_eight_sets_of_passages(self) -> None:
        sessions = [SOURCES["rag"].session(key(number)) for number in range(200)]
        shared = Counter(session.system for session in sessions)
        assert len(shared) == 8
        assert min(shared.values()) >= 8
        assert len({session.turns[0].user for session in sessions}) == 200
        assert len({session.system for session in map(SharedSource("rag", 2).session, map(key, range(50)))}) == 2

    @pytest.mark.parametrize("cell", [{"level": 8.0}, {"block": 1}, {"seed": 2}])
    def test_another_cell_has_others(self, cell: dict[str, int]) -> None:
        here, there = ({SOURCES["rag"].session(key(n, **own)).system for n in range(60)} for own in ({}, cell))  # type: ignore[arg-type]
        assert not here & there

    def test_the_prefix_comes_first_in_every_request(self) -> None:
        session = SOURCES["rag"].session(key(3))
        for _, messages in requests_of(session):
            assert messages[0] == {"role": "system", "content": session.system}

    def test_questions_quote_the_documents(self) -> None:
        """What a question says of {product} is the product of the passages; {my product} is another draw."""
        template = next(template for template in SOURCES["rag"].templates if template.id == "equipment-handbook")
        documents = template.documents.draw(random.Random(1).random)
        first, second = (template.own.draw(random.Random(seed).random) for seed in (1, 2))
        asked = template.turns[0][0]
        assert asked.fill(documents, first) != asked.fill(documents, second)
        named = re.search(r"that (an? [a-z -]+) can be kept", asked.fill(documents, first))
        assert named is not None
        assert named[0] in asked.fill(documents, second)

    def test_the_two_kinds_of_templates_are_not_mixed_up(self) -> None:
        with pytest.raises(UsageError, match=r"share documents: write shared_documents\('rag'\)"):
            TemplateSource("rag")
        with pytest.raises(UsageError, match=r"share no documents: write dialogues\('chat'\)"):
            SharedSource("chat")
        with pytest.raises(ValueError, match="needs at least 1"):
            SharedSource("rag", 0)


def test_several_sources_take_turns() -> None:
    source = SeveralSources([SOURCES["code"], SOURCES["edit"]])
    assert [source.session(key(number)) for number in range(4)] == [
        SOURCES["code"].session(key(0)), SOURCES["edit"].session(key(1)),
        SOURCES["code"].session(key(2)), SOURCES["edit"].session(key(3)),
    ]  # fmt: skip


def _turn(user: str, assistant: str, **more: object) -> object:
    from loadtest.workload.sessions import Turn

    return Turn(category="c", user=user, assistant=assistant, think_s=0.0, **more)  # type: ignore[arg-type]


def _literal(path: Path, name: str) -> dict[str, dict[str, str]]:
    """Return a constant of a module that must not be imported here, since it brings gevent."""
    tree = ast.parse(path.read_text())
    (node,) = [n for n in tree.body if isinstance(n, ast.Assign) and getattr(n.targets[0], "id", "") == name]
    found: dict[str, dict[str, str]] = ast.literal_eval(node.value)
    return found
