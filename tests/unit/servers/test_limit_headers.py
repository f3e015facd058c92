"""Rate limits in every spelling: per minute at most, the lowest counts, and nothing is made of what is unclear."""

from __future__ import annotations

import json

import pytest

from loadtest.servers.limit_headers import lowest, rate_limits


@pytest.mark.parametrize(
    ("headers", "told"),
    [
        ({"x-ratelimit-limit-requests": "60", "x-ratelimit-limit-tokens": "90000"}, {"requests": 60, "tokens": 90000}),
        ({"X-RateLimit-Limit-Requests": "1,000"}, {"requests": 1000}),
        ({"anthropic-ratelimit-requests-limit": "50", "anthropic-ratelimit-tokens-limit": "8000"},
         {"requests": 50, "tokens": 8000}),
        ({"x-ratelimit-limit-second": "5", "x-ratelimit-limit-minute": "200"}, {"requests": 200}),
        ({"x-ratelimit-limit-second": "2", "x-ratelimit-limit-minute": "200"}, {"requests": 120}),
        ({"x-ratelimit-limit-tokens-minute": "500000", "x-ratelimit-limit-requests-day": "14400"},
         {"requests": 14400, "tokens": 500000}),
        ({"x-ratelimit-limit-req-minute": "30"}, {"requests": 30}),
        ({"x-ratelimit-limit-requests": "500;w=60"}, {"requests": 500}),
        ({"x-ratelimit-limit-requests": "500;w=1"}, {"requests": 30000}),
        ({"ratelimit-limit": "10, 10;w=1;burst=5, 1000;w=3600"}, {"requests": 600}),
        ({"ratelimit-policy": '"burst";q=100;w=60,"day";q=5000;w=86400', "ratelimit": '"burst";r=9;t=3'},
         {"requests": 100}),
        ({"ratelimit-policy": "100;w=10", "ratelimit": "limit=100, remaining=50, reset=5"}, {"requests": 600}),
        ({"ratelimit-policy": '"size";q=65535;w=10;qu="content-bytes"'}, {}),
    ],
)  # fmt: skip
def test_spellings(headers: dict[str, str], told: dict[str, float]) -> None:
    assert rate_limits(headers) == told


@pytest.mark.parametrize(
    "value", ["many", "0", "-5", "1e3", "", "9" * 400, "５０", ";;;=", "inf", "nan", "60 per user", "x" * 10**6]
)
def test_what_is_no_limit(value: str) -> None:
    names = ("x-ratelimit-limit-requests", "x-ratelimit-limit-tokens", "ratelimit-policy", "ratelimit-limit")
    assert rate_limits(dict.fromkeys(names, value)) == {}


def test_a_limit_without_a_window_is_not_guessed_at() -> None:
    assert rate_limits({"x-ratelimit-limit": "10", "ratelimit-limit": "60", "ratelimit-policy": "5;w=0"}) == {}
    assert rate_limits({"x-ratelimit-remaining-requests": "1", "x-ratelimit-reset-requests": "1s"}) == {}


def test_a_limit_that_falls_counts_as_its_lowest() -> None:
    assert lowest({"requests": 60.0}, {}, {"requests": 40.0, "tokens": 9.0}, {"requests": 50.0}) == {
        "requests": 40.0, "tokens": 9.0,
    }  # fmt: skip
    assert lowest() == {}
    assert json.dumps(rate_limits({"x-ratelimit-limit-requests": "9" * 15})) == '{"requests": 999999999999999.0}'
