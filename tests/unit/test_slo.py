"""`[[slo]]` tables: what they mean, and what is refused before any load, with its line and the nearest name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from loadtest.analyse.metrics import BY_NAME
from loadtest.errors import UsageError
from loadtest.experiment import as_document, from_document, from_toml, load_experiment, with_assignments, with_slo_file
from loadtest.settings import Experiment
from loadtest.slo import COUNTED, GOODPUT, MEASURES, MLPERF, PER_REQUEST, PRESETS, load_of
from loadtest.slo_tables import ITL, Refusal, objectives

HEAD = "[plan]\nblocks = 2\n[[slo]]\n"


@pytest.mark.parametrize(
    ("table", "sentence", "limit"),
    [
        ({"metric": "ttft", "statistic": "p99", "max": "500 ms", "at": "32 users"},
         "ttft p99 ≤ 500 ms at 32 users", 0.5),
        ({"metric": "tpot", "statistic": "p95", "max": "0.04 s", "up_to": "30 in flight"},
         "tpot p95 ≤ 40 ms up to 30 in flight", 0.04),
        ({"metric": "ttft", "statistic": "p50", "max": "500 \u03bcs"},
         "ttft p50 ≤ 0.5 ms at every tested load", 0.0005),
        ({"metric": "ttft", "statistic": "p50", "max": "500 \u00b5s"},
         "ttft p50 ≤ 0.5 ms at every tested load", 0.0005),
        ({"metric": "e2e", "statistic": "mean", "max": "1.5min"}, "e2e mean ≤ 90 s at every tested load", 90.0),
        ({"metric": "e2e", "statistic": "mean", "not_worse_by": "5 %", "at": "traffic"},
         "e2e mean at most 5 % worse than the baseline at the expected traffic", 0.05),
        ({"metric": "output_tokens_per_s", "better_by": "10 %", "up_to": "1 users"},
         "output_tokens_per_s at least 10 % better than the baseline up to 1 user", 0.1),
        ({"metric": "on_time", "not_worse_by": "1 point", "category": "code"},
         "on_time of code at most 1 point worse than the baseline at every tested load", 0.01),
        ({"metric": "error_ratio", "max": "0.1 %", "arm": "baseline"},
         "error_ratio (baseline) ≤ 0.1 % at every tested load", 0.001),
        ({"metric": "goodput", "min": "95 %", "within": {"ttft": "500 ms", "tpot": "40 ms"}, "at": "4 requests/s"},
         "goodput (ttft ≤ 500 ms and tpot ≤ 40 ms) ≥ 95 % at 4 requests/s", 0.95),
        ({"metric": "acceptance_ratio", "min": "40 %"}, "acceptance_ratio ≥ 40 % at every tested load", 0.4),
    ],
)  # fmt: skip
def test_an_objective_in_words(table: dict[str, Any], sentence: str, limit: float) -> None:
    (slo,) = objectives([table])
    assert slo.sentence == sentence
    assert slo.limit == pytest.approx(limit, rel=1e-12)


# The line counts from the start of the file: the objective's heading is line 3, its first key line 4.
@pytest.mark.parametrize(
    ("written", "parts"),
    [
        ('metric = "ttfft"\nstatistic = "p50"\nmax = "1 s"\n', ["line 4", "no metric 'ttfft'", "Did you mean `ttft`?"]),
        ('metric = "ttft"\nstatistic = "p98"\nmax = "1 s"\n', ["line 5", "Did you mean `p99`?"]),
        ('metric = "ttft"\nmax = "1 s"\n', ["line 4", "say which statistic", "mean, p50"]),
        ('metric = "ttft"\nstatistic = "p50"\nmax = 500\n', ["line 6", '"500 ms"', "500 has none"]),
        ('metric = "ttft"\nstatistic = "p50"\nmax = "500"\n', ["line 6", "a number with its unit"]),
        ('metric = "ttft"\nstatistic = "p50"\nmax = "500 msec"\n', ["line 6", "did you mean `ms`?"]),
        ('metric = "ttft"\nstatistic = "p50"\nmax = "-5 ms"\n', ["line 6", "a number with its unit"]),
        ('metric = "ttft"\nstatistic = "p50"\nmax = "nan ms"\n', ["line 6", "a number with its unit"]),
        ('metric = "ttft"\nstatistic = "p50"\nmax = "1e99 s"\n', ["line 6", "below 10^12"]),
        ('metric = "goodput"\nmin = "9 %"\nwithin = { ttft = "0 s" }\n', ["line 6", "no request takes no time"]),
        ('metric = "ttft"\nstatistic = "p50"\nmin = "1 s"\n', ["line 6", "bound it with `max`"]),
        ('metric = "on_time"\nmax = "95 %"\n', ["line 5", "bound it with `min`"]),
        ('metric = "ttft"\nstatistic = "p50"\n', ["line 4", "this has none"]),
        (
            'metric = "ttft"\nstatistic = "p50"\nmax = "1 s"\nbetter_by = "5 %"\n',
            ["line 7", "this has max and better_by"],
        ),
        ('mteric = "ttft"\n', ["line 4", "no key `mteric`", "Did you mean `metric`?"]),
        ('statistic = "p50"\nmax = "1 s"\n', ["line 3", "names its `metric`"]),
        ('metric = "error_ratio"\nmax = "0 %"\n', ["line 5", "no number of requests can show that"]),
        ('metric = "goodput"\nmin = "100 %"\nwithin = { ttft = "1 s" }\n', ["line 5", "no number of requests"]),
        ('metric = "error_ratio"\nmax = "120 %"\n', ["line 5", "at most 100 %"]),
        ('metric = "error_ratio"\nnot_worse_by = "1 %"\n', ["line 5", "points"]),
        ('metric = "e2e"\nstatistic = "mean"\nnot_worse_by = "1 point"\n', ["line 6", '"5 %"']),
        ('metric = "on_time"\nstatistic = "p50"\nmin = "95 %"\n', ["line 5", "one figure"]),
        ('metric = "goodput"\nmin = "95 %"\n', ["line 4", "limits of a request"]),
        ('metric = "goodput"\nmin = "95 %"\nwithin = { ttff = "1 s" }\n', ["line 6", "Did you mean `ttft`?"]),
        ('metric = "goodput"\nmin = "95 %"\nwithin = { itl = "1 s" }\n', ["line 6", ITL]),
        (
            'metric = "ttft"\nstatistic = "p50"\nmax = "1 s"\nwithin = { ttft = "1 s" }\n',
            ["line 7", "belongs to goodput"],
        ),
        ('metric = "itl"\nstatistic = "p99"\nmax = "50 ms"\n', ["line 4", ITL]),
        ('metric = "acceptance_ratio"\nnot_worse_by = "1 point"\n', ["line 5", "the candidate's own"]),
        ('metric = "requests_per_s"\nmin = "1 requests/s"\ncategory = "code"\n', ["line 6", "all requests together"]),
        ('metric = "e2e"\nstatistic = "mean"\nbetter_by = "5 %"\narm = "baseline"\n', ["line 7", "compares both arms"]),
        ('metric = "e2e"\nstatistic = "mean"\nmax = "5 s"\narm = "both"\n', ["line 7", '"candidate", "baseline"']),
        ('metric = "e2e"\nstatistic = "mean"\nmax = "5 s"\nat = "32"\n', ["line 7", "users, user, in flight"]),
        ('metric = "e2e"\nstatistic = "mean"\nmax = "5 s"\nat = "up to 32 users"\n', ["line 7", "one is `up_to`"]),
        ('metric = "e2e"\nstatistic = "mean"\nmax = "5 s"\nat = 32\n', ["line 7", "32 has none"]),
        ('metric = "e2e"\nstatistic = "mean"\nmax = "5 s"\nat = "0 users"\n', ["line 7", "above 0"]),
        ('metric = "e2e"\nstatistic = "mean"\nmax = "5 s"\nup_to = "traffic"\n', ["line 7", "a load such as"]),
        (
            'metric = "e2e"\nstatistic = "mean"\nmax = "5 s"\nat = "1 users"\nup_to = "2 users"\n',
            ["line 8", "leave one"],
        ),
        ('metric = "e2e"\nstatistic = "mean"\nmax = "5 s"\ncategory = ""\n', ["line 7", "a category"]),
        ('preset = "mlperf-llama2"\n', ["line 4", "Did you mean `mlperf-llama2-70b`?"]),
        ('preset = "mlperf-llama2-70b"\nmax = "1 s"\n', ["line 5", "leave out `max`"]),
        ("metric = [1]\n", ["line 4", "no metric [1]"]),
        ("metric = { a = 1 }\n", ["line 4", "no metric"]),
    ],
)
def test_what_is_wrong_is_named_with_its_line(written: str, parts: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        from_toml(HEAD + written, "x.toml")
    for part in ("x.toml", *parts):
        assert part in str(refused.value)
    assert refused.value.exit_code == 2


def test_the_line_is_that_of_the_objective_which_is_wrong() -> None:
    good = 'metric = "error_ratio"\nmax = "1 %"\n'
    with pytest.raises(UsageError, match="line 8: max is '1'"):
        from_toml(f"{HEAD}{good}[[slo]]\n{good.replace('1 %', '1')}", "x.toml")


@pytest.mark.parametrize("written", ["slo = 3\n", 'slo = ["ttft"]\n', "slo = [3]\n", "[slo]\nrules = 3\n"])
def test_what_is_no_table_is_refused(written: str) -> None:
    with pytest.raises(UsageError, match="slo"):
        from_toml(written, "x.toml")


def test_the_itl_sentence_names_three_metrics_and_whose_figure_each_is() -> None:
    for word in ("`tpot`", "`token_gap`", "`chunk_gap`", "GuideLLM", "AIPerf", "inference-perf", "vLLM", "EvalScope"):
        assert word in ITL


@pytest.mark.parametrize(
    ("preset", "ttft_ms", "tpot_ms"),
    [("mlperf-llama3.1-8b", 2000, 100), ("mlperf-llama2-70b-interactive", 450, 40), ("mlperf-llama3.1-405b", 6000, 175),
     ("mlperf-deepseek-r1-interactive", 1500, 15), ("mlperf-gpt-oss-120b", 3000, 80)],
)  # fmt: skip
def test_presets_are_the_published_limits(preset: str, ttft_ms: float, tpot_ms: float) -> None:
    ttft, tpot = objectives([{"preset": preset, "up_to": "32 users"}])
    assert ttft.sentence == f"ttft p99 ≤ {ttft_ms / 1000:g} s up to 32 users".replace("0.45 s", "450 ms")
    assert (ttft.limit, tpot.limit) == (ttft_ms / 1000, tpot_ms / 1000)
    assert (tpot.metric, tpot.statistic) == ("tpot", "p99")
    assert "MLPerf" in ttft.source
    assert len(PRESETS) == len(MLPERF) == 11


@pytest.mark.parametrize("name", MEASURES)
def test_every_measure_is_a_metric_that_the_analysis_has(name: str) -> None:
    measure = MEASURES[name]
    if name in (*GOODPUT, *COUNTED):
        return
    metric = BY_NAME[name]
    assert metric.label == measure.label
    assert metric.unit == measure.unit.value
    assert metric.better in (None, measure.better)
    assert measure.tails == (metric.values is not None)


def test_what_a_request_is_held_to_has_a_column() -> None:
    from loadtest.analyse.objectives import COLUMNS

    assert set(PER_REQUEST) == set(COLUMNS)


def test_objectives_survive_a_run_header() -> None:
    source = HEAD + 'metric = "goodput"\nmin = "95 %"\nwithin = { ttft = "1 s" }\n[gate]\ninconclusive = "warn"\n'
    experiment = from_toml(source, "x.toml")
    assert len(experiment.slo.rules) == 1
    assert from_document(json.loads(json.dumps(as_document(experiment)))) == experiment
    damaged = as_document(experiment) | {"slo": {"rules": [{"metric": "itl"}]}}
    with pytest.raises(UsageError, match=r"run\.json"):
        from_document(damaged)


def test_one_table_is_an_objective_too_and_set_takes_a_list() -> None:
    assert from_toml('[slo]\npreset = "mlperf-mixtral-8x7b"\n', "x.toml").slo.rules == (
        {"preset": "mlperf-mixtral-8x7b"},
    )
    experiment = with_assignments(Experiment(), ['slo.rules=[{metric="error_ratio", max="1 %"}]'])
    assert experiment.slo.rules == ({"metric": "error_ratio", "max": "1 %"},)
    with pytest.raises(UsageError, match="--set"):
        with_assignments(Experiment(), ['slo.rules=[{metric="error_ratio", max="1"}]'])


def test_the_place_of_a_refusal() -> None:
    with pytest.raises(Refusal) as refused:
        objectives([{"metric": "error_ratio", "max": "1 %"}, {"metric": "error_ratio", "max": "1 s"}])
    assert (refused.value.index, refused.value.key) == (1, "max")


def test_loads() -> None:
    assert (load_of("32 users", up_to=False).value, load_of("1 user", up_to=True).unit) == (32.0, "users")
    assert load_of("2.5 requests/s", up_to=False).unit == "requests/s"
    assert load_of("traffic", up_to=False).words == "at the expected traffic"


def test_an_slo_file_replaces_whole_sections_and_only_those_that_judge(tmp_path: Path) -> None:
    own = from_toml(HEAD + 'metric = "error_ratio"\nmax = "1 %"\n[traffic]\nloads = [1]\nhours = [24]\n', "x.toml")
    file = tmp_path / "strict.toml"
    file.write_text('[[slo]]\nmetric = "on_time"\nmin = "99 %"\n[gate]\ninconclusive = "fail"\n')
    judged = with_slo_file(own, file)
    assert [table["metric"] for table in judged.slo.rules] == ["on_time"]
    assert judged.gate.inconclusive == "fail"
    assert judged.traffic == own.traffic
    assert judged.plan == own.plan
    file.write_text("[plan]\nblocks = 9\n")
    with pytest.raises(UsageError, match=r"strict\.toml, line 1: \[plan\] is not for judging"):
        with_slo_file(own, file)
    with pytest.raises(UsageError, match="is not a file"):
        with_slo_file(own, tmp_path / "none.toml")


def test_a_trace_becomes_loads_and_hours(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('[traffic]\ntrace = "day.csv"\n')
    (tmp_path / "day.csv").write_text("seconds, users\n3600,8\n7200,2\n1800,8\n60,0\n")
    traffic = load_experiment(tmp_path / "x.py").traffic
    assert (traffic.unit, traffic.loads, traffic.hours) == ("users", (2.0, 8.0), (2.0, 1.5))
    (tmp_path / "day.csv").write_text("time,requests_per_s\n00:00,1\n00:05,1\n00:10,4\n00:15,4\n")
    traffic = load_experiment(tmp_path / "x.py").traffic
    assert (traffic.unit, traffic.loads, traffic.hours) == ("requests/s", (1.0, 4.0), (12.0, 12.0))


def test_a_long_trace_is_joined_without_losing_time_or_load(tmp_path: Path) -> None:
    (tmp_path / "x.toml").write_text('[traffic]\ntrace = "day.csv"\n')
    (tmp_path / "day.csv").write_text("users,seconds\n" + "".join(f"{1 + i / 100},36\n" for i in range(5000)))
    traffic = load_experiment(tmp_path / "x.py").traffic
    assert len(traffic.loads) <= 200
    assert sum(traffic.hours) == pytest.approx(50.0)
    mean = sum(load * hours for load, hours in zip(traffic.loads, traffic.hours, strict=True)) / 50.0
    assert mean == pytest.approx(1 + 49.99 / 2)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("user,seconds\n1,2\n", ["line 1", "Did you mean `users`?"]),
        ("users\n1\nmany\n", ["line 3, users is 'many'"]),
        ("users,seconds\n1,-2\n", ["line 2, seconds is '-2'"]),
        ("users\n0\n", ["no row has a load above 0"]),
        ("users\n", ["holds no row"]),
    ],
)
def test_a_wrong_trace_is_named_with_its_line(tmp_path: Path, text: str, parts: list[str]) -> None:
    (tmp_path / "x.toml").write_text('[traffic]\ntrace = "day.csv"\n')
    (tmp_path / "day.csv").write_text(text)
    with pytest.raises(UsageError) as refused:
        load_experiment(tmp_path / "x.py")
    for part in ("day.csv", *parts):
        assert part in str(refused.value)


def test_loads_and_hours_belong_together() -> None:
    with pytest.raises(UsageError, match=r"traffic\.loads has 2 values and traffic\.hours 1"):
        from_toml("[traffic]\nloads = [1, 2]\nhours = [24]\n", "x.toml")
    for wrong in ("loads = [1, 1]\nhours = [1, 2]", "loads = [0]\nhours = [1]", "loads = [1]\nhours = [0]"):
        with pytest.raises(UsageError, match="line"):
            from_toml(f"[traffic]\n{wrong}\n", "x.toml")
