"""The package's dialogues: how many, how different, how realistic, and the same for the same key."""

import random
import re
from collections import Counter
from itertools import pairwise

import pytest

from loadtest.errors import UsageError
from loadtest.workload.sessions import Session, SessionKey
from loadtest.workload.templates import Template, TemplateSource

SOURCE = TemplateSource()
TEMPLATES = SOURCE.templates
LEFT_OVER = re.compile(r"\{(=[^}]*|[Aa]n? [^}]*|[^}\s]+)\}")
LEVELS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0, 512.0)


def key(number: int, *, seed: int = 1, level: float = 4.0, block: int = 0) -> SessionKey:
    return SessionKey(seed=seed, level=level, block=block, number=number)


def tokens(text: str) -> float:
    return len(text) / 4.5  # English prose, roughly


def drawn(template: Template, seed: int) -> Session:
    return template.session(random.Random(seed))


def test_templates_and_categories() -> None:
    assert len(TEMPLATES) == 72
    assert len({template.id for template in TEMPLATES}) == 72
    assert Counter(template.category for template in TEMPLATES) == dict.fromkeys(SOURCE.categories, 8)
    assert SOURCE.categories == (
        "code", "extraction", "maths", "planning", "reasoning", "small_talk", "summary", "translation", "writing",
    )  # fmt: skip


@pytest.mark.parametrize("seed", [1, 20_261_130])
def test_no_two_sessions_of_a_run_share_a_text(seed: int) -> None:
    keys = [
        key(number, seed=seed, level=level, block=block)
        for level in LEVELS for block in range(4) for number in range(500)
    ]  # fmt: skip
    sessions = [SOURCE.session(name) for name in keys]
    assert len(sessions) == 20_000
    assert len(set(sessions)) == 20_000
    asked = [turn.user for session in sessions for turn in session.turns]
    assert len(asked) > 40_000
    assert len(set(asked)) == len(asked)
    assert {turn.category for session in sessions for turn in session.turns} == set(SOURCE.categories)


def test_another_seed_shares_no_text_either() -> None:
    one, two = ({turn.user for n in range(2000) for turn in SOURCE.session(key(n, seed=seed)).turns} for seed in (1, 2))
    assert not one & two


def test_equal_keys_give_equal_sessions_in_any_order() -> None:
    other = TemplateSource("chat")
    backwards = [other.session(key(number)) for number in reversed(range(200))]
    assert [SOURCE.session(key(number)) for number in range(200)] == backwards[::-1]


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.id)
class TestEveryTemplate:
    def test_combinations(self, template: Template) -> None:
        assert min(template.combinations()) >= 1e11

    def test_form(self, template: Template) -> None:
        assert 1 <= len(template.turns) <= 4
        for seed in range(40):
            session = drawn(template, seed)
            for turn in session.turns:
                assert 20 <= tokens(turn.user) <= 600
            for turn in session.turns[:-1]:
                assert 40 <= tokens(turn.assistant) <= 300
            assert session.turns[-1].assistant == ""

    def test_no_slot_is_left_over(self, template: Template) -> None:
        for seed in range(40):
            session = drawn(template, seed)
            whole = session.system + "".join(turn.user + turn.assistant for turn in session.turns)
            assert not LEFT_OVER.findall(whole)
            assert not re.findall(r"\b(?:[Aa]n?|[Tt]he) (?:an?|the) ", whole)

    def test_every_turn_and_answer_changes_from_session_to_session(self, template: Template) -> None:
        sessions = [drawn(template, seed) for seed in range(30)]
        for place in range(len(template.turns)):
            assert len({session.turns[place].user for session in sessions}) == 30
        for place in range(len(template.turns) - 1):
            assert len({session.turns[place].assistant for session in sessions}) == 30


@pytest.mark.parametrize("template", [t for t in TEMPLATES if t.category == "summary"], ids=lambda t: t.id)
def test_a_text_to_summarise_has_150_to_500_words(template: Template) -> None:
    for seed in range(40):
        assert 150 <= len(drawn(template, seed).turns[0].user.split()) <= 500


def test_one_round_of_a_cell_meets_every_template_once() -> None:
    def ids(numbers: range, block: int = 0) -> list[str]:
        return [shape(SOURCE.session(key(number, block=block))) for number in numbers]

    by_start = {asked.form[:25]: template.id for template in TEMPLATES for asked in [template.turns[0].user]}

    def shape(session: Session) -> str:
        matches = [
            template.id for template in TEMPLATES if re.fullmatch(_pattern(template), session.turns[0].user, re.DOTALL)
        ]
        assert len(matches) == 1
        return matches[0]

    assert len(by_start) > 60
    first, second, other = ids(range(72)), ids(range(72, 144)), ids(range(72), block=1)
    assert sorted(first) == sorted(second) == sorted(other) == sorted(template.id for template in TEMPLATES)
    assert first != second
    assert first != other


def _pattern(template: Template) -> str:
    parts = template.turns[0].user.form.replace("%%", "%").split("%s")
    return ".+?".join(map(re.escape, parts))


def test_nine_sessions_in_a_row_meet_every_category() -> None:
    for block in range(20):
        for start in range(0, 72, 9):
            categories = [SOURCE.session(key(start + n, block=block)).turns[0].category for n in range(9)]
            assert sorted(categories) == list(SOURCE.categories)


def test_pauses() -> None:
    sessions = [SOURCE.session(key(number)) for number in range(3000)]
    before = sorted(session.turns[0].think_s for session in sessions)
    within = sorted(turn.think_s for session in sessions for turn in session.turns[1:])
    assert before[0] >= 0.0
    assert before[1500] == pytest.approx(6.93, rel=0.1)  # exponential with mean 10
    assert within[0] > 0.2
    assert within[len(within) // 2] == pytest.approx(8.0, rel=0.1)
    assert max(before[-1], within[-1]) <= 60.0


def test_longer_answers_are_followed_by_longer_pauses() -> None:
    by_length: list[tuple[int, float]] = []
    for number in range(3000):
        for before, after in pairwise(SOURCE.session(key(number)).turns):
            by_length.append((len(before.assistant), after.think_s))
    by_length.sort()
    third = len(by_length) // 3
    short = sum(pause for _, pause in by_length[:third]) / third
    long = sum(pause for _, pause in by_length[-third:]) / third
    assert long > 1.2 * short


def test_a_session_is_the_same_on_every_machine() -> None:
    (template,) = [template for template in TEMPLATES if template.id == "discount-chain"]
    session = drawn(template, 7)
    assert session.system == ""
    first, second = session.turns
    assert first.user == (
        "Arbor Nine sells a laptop stand for 669 euros. There is a discount of 10 %, and members get another 20 % on"
        " the reduced price. Delivery costs 6 euros for the whole order. What do 20 pieces cost a member in Glasgow,"
        " and what single discount would give the same price before delivery?"
    )
    assert first.assistant == (
        "One piece after the first discount: 669 × 0.90 = 602.10 euros.\n\n"
        "After the second: × 0.80 = 481.6800 euros.\n\n"
        "20 pieces: 9633.60 euros, with delivery 9639.60 euros.\n\n"
        "The two discounts together leave 72.00 % of the price, so they equal one discount of 28.00 %. It is less than"
        " the sum of 30 %, because the second one is taken from a smaller price."
    )
    assert second.user == (
        "And if Arjun Bellini orders from India, where 13 % tax comes on top of everything including the 6 euros?"
        " Arjun claims to be paying less than 13380 euros in total. Is that right, and what is the most that a"
        " backpack for 6 euros could add?"
    )
    assert second.assistant == ""
    assert (first.think_s, second.think_s) == (17.536, 3.823)


def test_the_key_decides_the_template() -> None:
    starts = [SOURCE.session(key(number)).turns[0].user for number in range(3)]
    assert starts[0].startswith("I move from Vicar's Close in Riga (floor 3, no lift) to Rope Walk in Cadiz, 747 km,")
    assert starts[1].startswith("PostgreSQL. I have the tables `workers(id, volume_ml, gross_weight, parcel_id)`")
    assert starts[2].startswith("You will not believe my morning. Bus 436 stood still for 39 minutes on Lime Street")


@pytest.mark.parametrize(("name", "hint"), [("chats", " Did you mean `chat`?"), ("zzz", ""), ("../chat", "")])
def test_an_unknown_set_of_templates_is_refused(name: str, hint: str) -> None:
    with pytest.raises(UsageError, match="there are no templates called") as raised:
        TemplateSource(name)
    assert str(raised.value).endswith("There are: agent, chat, code, edit, rag, reasoning, summarize.")
    assert hint in str(raised.value)
