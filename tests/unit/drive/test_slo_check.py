"""Objectives against the plan: refused before any load where they could never be judged."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.drive.options import Options
from loadtest.drive.prepare import prepare
from loadtest.drive.slo_check import objective_words
from loadtest.errors import UsageError
from loadtest.experiment import from_toml

URLS = {"baseline": "http://127.0.0.1:1", "speculative": "http://127.0.0.1:2"}
SLO = '[[slo]]\nmetric = "ttft"\nstatistic = "p99"\nmax = "500 ms"\n'
TRAFFIC = "[traffic]\nloads = [1, 8]\nhours = [12, 12]\n"


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text("")
    return tmp_path / "mine.py"


def prepared(scenario: Path, source: str, **options: object) -> object:
    scenario.with_suffix(".toml").write_text(source)
    return prepare(Options(scenario=scenario, **options), {})  # type: ignore[arg-type]


def test_objectives_are_never_judged_on_a_pair_that_nobody_asked_for(scenario: Path) -> None:
    with pytest.raises(UsageError, match="no server is named") as refused:
        prepared(scenario, SLO)
    assert refused.value.exit_code == 2
    assert "Is a variable of the shell not set?" in str(refused.value)
    for asked in ({"simulated": True}, {"world": "default"}, URLS, {"smoke": True}, {"measure_only": True}):
        prepared(scenario, SLO, **asked)
    prepared(scenario, "")


def test_an_slo_file_counts_as_asked_for(scenario: Path, tmp_path: Path) -> None:
    (tmp_path / "slo.toml").write_text(SLO)
    with pytest.raises(UsageError, match="no server is named"):
        prepared(scenario, "", slo=tmp_path / "slo.toml")


@pytest.mark.parametrize(
    ("source", "options", "part"),
    [
        (SLO + 'at = "200 users"\n', URLS, "--levels 1,2,4,8,16,32,64,200"),
        (SLO + 'up_to = "200 users"\n', URLS, "200 lies outside the levels"),
        (SLO + 'at = "0.5 users"\n', URLS, "0.5 lies outside"),
        (SLO + 'at = "4 requests/s"\n', URLS, "the levels of this closed load are users"),
        (SLO + 'at = "traffic"\n', URLS, "no [traffic] says what is expected"),
        (TRAFFIC.replace("8", "300"), URLS, "[traffic]: 300 lies outside"),
        (TRAFFIC + 'unit = "requests/s"\n', URLS, "[traffic]: the load is given in requests/s"),
        (SLO.replace('max = "500 ms"', 'not_worse_by = "5 %"'), {"server": URLS["baseline"]}, "has no baseline"),
        (SLO.replace('max = "500 ms"', 'better_by = "5 %"'), {"server": URLS["baseline"]}, "has no baseline"),
    ],
)
def test_what_can_never_be_judged_is_refused(scenario: Path, source: str, options: dict[str, str], part: str) -> None:
    with pytest.raises(UsageError) as refused:
        prepared(scenario, source, **options)
    assert part in str(refused.value)


@pytest.mark.parametrize(
    "source",
    [SLO, SLO + 'at = "32 users"\n', SLO + 'up_to = "200 in flight"\n', SLO + 'at = "traffic"\n' + TRAFFIC, TRAFFIC],
)
def test_what_can_be_judged_is_taken_and_the_ladder_kept(scenario: Path, source: str) -> None:
    found = prepared(scenario, source, **URLS)
    assert found.experiment.plan.stages == "one"  # type: ignore[attr-defined]  # a chosen ladder could miss the loads


def test_the_plan_says_what_is_judged_and_what_is_out_of_reach() -> None:
    short = from_toml(f'[window]\nmin_requests = 50\n[plan]\nblocks = 6\n{SLO}at = "20 users"\n', "x.toml")
    assert objective_words(short) == [
        "Objectives: ttft p99 ≤ 500 ms at 20 users.",
        (
            "May stay out of reach: ttft p99 ≤ 500 ms at 20 users needs 3000 requests at a load, and the windows of a"
            " load wait for 300 (window.min_requests)."
        ),
        "20 users is no level: ttft p99 ≤ 500 ms at 20 users is judged at the levels around it.",
    ]
    assert objective_words(from_toml("", "x.toml")) == []
