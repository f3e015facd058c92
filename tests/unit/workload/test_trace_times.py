"""Times of traces: dates with any number of digits and zones, and numbers of several units."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.workload.trace_times import time_s

NINE = 1772355600.0  # 2026-03-01 09:00:00 UTC


@pytest.mark.parametrize(
    ("written", "seconds"),
    [
        ("2026-03-01 09:00:00", NINE),
        ("2026-03-01T09:00", NINE),
        (" 2026-03-01T09:00:00Z ", NINE),
        ("2026-03-01 09:00:00+00:00", NINE),
        ("2026-03-01 09:00:00.9799600", NINE + 0.97996),
        ("2026-03-01 09:00:00,5", NINE + 0.5),
        ("2026-03-01T10:30:00.123456789+01:30", NINE + 0.123456789),
        ("2026-03-01T04:00:00-0500", NINE),
        ("2026-03-01T04:00:00-05", NINE),
        ("2026-02-28 23:59:60", NINE - 9 * 3600),
        ("1970-01-01 00:00:00", 0.0),
        (f"{NINE:.0f}", NINE),
        (NINE * 1e3, NINE),
        (int(NINE * 1e6), NINE),
        (int(NINE) * 10**9, NINE),
        (17, 17.0),
        ("17.25", 17.25),
    ],
)
def test_a_time_in_seconds(written: object, seconds: float) -> None:
    assert time_s(written) == pytest.approx(seconds, abs=2e-6)


def test_a_unit_that_is_known_goes_before_the_guess() -> None:
    assert time_s(3000, 0.001) == 3.0
    assert time_s(10**12, 0.001) == 1e9
    assert time_s("2026-03-01 09:00:00", 0.001) == NINE


@pytest.mark.parametrize(
    "written",
    ["", "yesterday", "2026-02-30 09:00:00", "2026-03-01 24:00:00", "2026-03-01", None, True, [1], 1e21, "nan"],
)
def test_what_is_no_time_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"a number or a date|a day that exists|a time of day"):
        time_s(written)


@given(word=st.text(max_size=40))
def test_any_text_is_a_time_or_refused(word: str) -> None:
    try:
        found = time_s(word)
    except ValueError:
        return
    assert isinstance(found, float)
