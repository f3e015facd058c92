import math

import pytest

from loadtest.analyse.estimates import Estimate
from loadtest.analyse.metrics import METRICS
from loadtest.errors import ExitCode
from loadtest.report import vocabulary, words


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0413, "41.3 ms"),
        (0.412, "412 ms"),
        (0.00123, "1.23 ms"),
        (0.9996, "1.00 s"),
        (1.239, "1.24 s"),
        (132.4, "132 s"),
        (math.inf, "∞"),
        (None, "–"),
        (math.nan, "–"),
        (0.0, "0 ms"),
    ],
)
def test_times(value, text):
    assert words.time(value) == text


@pytest.mark.parametrize(
    ("form", "value", "text"),
    [
        (words.ratio, 1.274, "1.27×"),
        (words.ratio, None, "–"),
        (words.ratio, math.inf, "∞"),
        (words.share, 0.0416, "4.2 %"),
        (words.share, 0.0012, "0.12 %"),
        (words.share, float("inf"), "∞"),
        (words.share, 1e308, "∞"),
        (words.share, -1e308, "−∞"),
        (words.share, 0.9987, "99.87 %"),
        (words.share, 1.03 - 1, "3 %"),
        (words.share, 0.0, "0 %"),
        (words.share, None, "–"),
        (words.change, 1.18, "+18 %"),
        (words.change, 0.956, "−4.4 %"),
        (words.change, 1.0, "±0 %"),
        (words.change, None, "–"),
        (words.points, -0.012, "−1.2 points"),
        (words.points, 0.0, "±0 points"),
        (words.points, math.nan, "–"),
        (words.count, 2410, "2,410"),
        (words.count, 1.8234, "1.82"),
        (words.count, 0, "0"),
        (words.count, None, "–"),
        (words.whole, 2410.4, "2,410"),
        (words.whole, 12.34, "12.3"),
        (words.tenths, 0.9, "0.9"),
        (words.tenths, None, "–"),
        (words.load, 41.3, "41"),
        (words.load, 3.44, "3.4"),
        (words.load, 4.0, "4"),
        (words.load, None, "–"),
        (words.minutes, 48.0, "48 s"),
        (words.minutes, 200.0, "3 min 20 s"),
        (words.minutes, 3900.0, "1 h 5 min"),
        (words.level, 1.0, "1 user"),
        (words.level, 16.0, "16 users"),
    ],
)
def test_numbers(form, value, text):
    assert form(value) == text


def test_several_levels_are_joined():
    assert words.levels([32.0, 16.0, 64.0]) == "16, 32 and 64 users"
    assert words.levels([1.0]) == "1 user"
    assert words.levels([]) == "–"


@pytest.mark.parametrize(
    ("estimate", "form", "text"),
    [
        (Estimate(value=41.2, low=33.1, high=52.4), words.load, "41 [33, 52]"),
        (Estimate(value=0.412, low=0.388, high=1.44), words.time, "412 ms [388, 1,440]"),
        (Estimate(value=1.27, low=1.21, high=1.33), words.ratio, "1.27× [1.21, 1.33]"),
        (Estimate(value=-0.809, low=-10.0, high=1.59), words.signed_time, "−809 ms [−10,000, +1,590]"),
        (Estimate(value=0.0123, low=-0.002, high=0.03), words.time, "12.3 ms [−2.0, 30.0]"),
        (Estimate(value=1.02, low=1.004, high=1.03), words.ratio, "1.02× [1.004, 1.03]"),
        (Estimate(value=0.98, low=0.96, high=0.99996), words.ratio, "0.98× [0.96, 1.00]"),
        (Estimate(value=1.02, low=1.0, high=1.04), words.ratio, "1.02× [1.00, 1.04]"),
        (Estimate(value=0.412, low=0.388, high=math.inf), words.time, "412 ms [388, ∞]"),
        (Estimate(value=41.2, low=None, high=52.4), words.load, "41 [–, 52]"),
        (Estimate(value=-0.002, low=-0.01, high=0.006), words.points, "−0.2 points [−1.0, +0.6]"),
        (Estimate(value=1.27), words.ratio, "1.27×"),
        (Estimate(value=None, low=33.1, high=52.4), words.load, "– [33, 52]"),
        (Estimate(), words.time, "–"),
    ],
)
def test_intervals_name_the_unit_once(estimate, form, text):
    assert words.interval(estimate, form) == text


def test_text_that_acts_on_a_display_is_shown_without_its_effect():
    assert words.plain("a\x1b]0;t\x07b\u202ec\ud800d\u2028e\nf") == "a\ufffd]0;t\ufffdb\ufffdc\ufffdd e f"
    assert words.plain("http://user:secret@host/x") == "http://host/x"
    assert words.plain("x" * 1_000_000).endswith("… (998,000 more characters)")


@pytest.mark.parametrize("metric", METRICS, ids=lambda metric: metric.name)
def test_every_metric_of_the_analysis_has_its_words(metric):
    assert vocabulary.METRICS[metric.name].unit == metric.unit
    assert vocabulary.METRICS[metric.name].better == (metric.better or "")
    assert vocabulary.METRICS[metric.name].definition


def test_a_metric_without_words_is_called_by_its_name():
    assert vocabulary.metric("new_metric").label == "new_metric"


@pytest.mark.parametrize("code", ExitCode)
def test_every_exit_code_has_a_meaning(code):
    assert vocabulary.exit_words(code).startswith(f"{int(code)} (")
