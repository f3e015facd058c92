"""Texts with slots: drawing, working out, refusing."""

import random

import pytest

from loadtest.workload.slots import Slots

LISTS = {
    "tool": ["axe", "drill", "oven"],
    "name": ["Ada"],
    "line": ["{name} has {a tool}.", "Nobody has {count} {tool}s."],
    "ring": ["a {gnir}"],
    "gnir": ["a {ring}"],
}
NUMBERS = {"count": [3, 3], "price": [10, 30, 10], "half": [5, 5]}


def filled(source: str, at: float = 0.0) -> str:
    slots = Slots(LISTS, NUMBERS)
    text = slots.text(source)
    return text.fill(slots.draw(lambda: at))


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ('plain 100 % {} { x } {"id": 1}', 'plain 100 % {} { x } {"id": 1}'),
        ("{name} {count} {price}", "Ada 3 10"),
        ("{tool}, {a tool}, {A tool}", "axe, an axe, An axe"),
        ("{=count*half+1} {=count/4:.2f} {=(count+half)//3} {=half%3} {=count-half}", "16 0.75 2 2 -2"),
        ("{=count:03d} and 5 %", "003 and 5 %"),
        ("{line}", "Ada has an axe."),
    ],
)
def test_fill_at_the_lowest_draw(source: str, expected: str) -> None:
    assert filled(source) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [("{price}", "30"), ("{a tool}", "an oven"), ("{line}", "Nobody has 3 ovens.")],
)
def test_fill_at_the_highest_draw(source: str, expected: str) -> None:
    assert filled(source, at=0.999999) == expected


def test_the_same_slot_is_the_same_everywhere_and_copies_differ() -> None:
    slots = Slots(LISTS, NUMBERS)
    first, second = slots.text("{tool} {tool.2} {tool.3}"), slots.text("{tool.3} {tool.2} {tool}")
    generator = random.Random(5)
    seen = set()
    for _ in range(50):
        values = slots.draw(generator.random)
        words = first.fill(values).split()
        assert sorted(words) == ["axe", "drill", "oven"]
        assert second.fill(values).split() == words[::-1]
        seen.add(tuple(words))
    assert len(seen) == 6  # every order occurs


@pytest.mark.parametrize(
    ("source", "combinations"),
    [
        ("no slot", 1),
        ("{tool} {tool}", 3),
        ("{tool} {tool.2} {price}", 27),
        ("{a tool} and {tool}", 3),
        ("{=price}", 3),  # shows the number itself
        ("{=price*2}", 1),  # worked out: not counted
    ],
)
def test_combinations(source: str, combinations: int) -> None:
    slots = Slots(LISTS, NUMBERS)
    assert slots.combinations(slots.text(source)) == combinations


@pytest.mark.parametrize(
    ("source", "complaint"),
    [
        ("{nothing}", "names neither"),
        ("{count.2}", "names neither"),
        ("{=tool+1}", "not arithmetic"),
        ("{=count**9}", "not arithmetic"),
        ("{=print(1)}", "not arithmetic"),
        ("{=count.real}", "not arithmetic"),
        ("{name} {name.2}", "1 entries and 2"),
        ("{ring}", "holds itself"),
    ],
)
def test_refused(source: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        Slots(LISTS, NUMBERS).text(source)


def test_a_name_cannot_be_list_and_number() -> None:
    with pytest.raises(ValueError, match="tool is both"):
        Slots(LISTS, {"tool": [1, 2]})


def test_an_empty_range_is_refused() -> None:
    with pytest.raises(ValueError, match="no values"):
        Slots({}, {"n": [5, 4]})
