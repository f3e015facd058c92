"""Plans that fit a budget: what goes first, and what is refused."""

from __future__ import annotations

import pytest

from loadtest.drive.budget import Terms, fit, level_s, parse_budget, plan_s, thinned, words
from loadtest.drive.forecast import announcement
from loadtest.drive.foreseen import foreseen
from loadtest.drive.options import Options
from loadtest.drive.prepare import prepare, terms_of
from loadtest.drive.timetable import Habits, timetable
from loadtest.errors import UsageError
from loadtest.experiment import override
from loadtest.settings import Experiment, Load, Window

PAIR = Terms(arms=2, request_s=1.0)
EIGHT = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0)


def _experiment(stages="two", blocks=6, levels=EIGHT, min_s=60.0, max_s=60.0):
    experiment = override(Experiment(), "window", min_s=min_s, max_s=max_s)
    experiment = override(experiment, "load", levels=levels)
    return override(experiment, "plan", stages=stages, blocks=blocks)


@pytest.mark.parametrize(("word", "seconds"), [("20m", 1200), ("+20m", 1200), (" 90s ", 90), ("2h", 7200)])
def test_a_budget_is_a_duration(word, seconds):
    assert parse_budget(word) == seconds


@pytest.mark.parametrize("word", ["", "+", "soon", "0", "-3m", "1e9h", "nan"])
def test_what_is_no_duration_is_refused(word):
    with pytest.raises(UsageError, match="--budget is"):
        parse_budget(word)


def test_a_window_waits_for_its_requests_within_its_bounds():
    closed = Experiment(window=Window(min_s=60.0, max_s=120.0, min_requests=100, warmup_requests=2.0))
    # around a window: 1 s, and a stagger, two warm-up requests, hold and drain of 1 s each
    assert level_s(closed, 1.0, 1.0) == 6 + 100
    assert level_s(closed, 100.0, 1.0) == 6 + 60
    assert level_s(closed, 1.0, 5.0) == 26 + 120


def test_the_time_of_a_plan_counts_everything():
    # 15 s of checks; 6 blocks × 2 arms × 8 levels × 66 s
    assert plan_s(_experiment("one"), PAIR) == 15 + 6 * 2 * 8 * 66
    # first stage: 2 × 8 cells with windows of 30 s; second: 6 blocks × 2 arms × 3 levels
    assert plan_s(_experiment("two"), PAIR) == 15 + 2 * 8 * 36 + 6 * 2 * 3 * 66
    # starts of both arms in every block, the first stage's included
    turns = Terms(arms=2, request_s=1.0, restarts=True)
    assert plan_s(_experiment("two"), turns) == 15 + 2 * 8 * 36 + 120 + 6 * (2 * 3 * 66 + 120)
    assert plan_s(_experiment("one"), Terms(arms=2, request_s=1.0, starts=2)) == 15 + 120 + 6 * 2 * 8 * 66


@pytest.mark.parametrize(
    ("budget_s", "stages", "blocks", "levels", "said"),
    [
        (15 + 576 + 6 * 396, "two", 6, 8, "Nothing is left out."),
        (15 + 576 + 6 * 396 - 1, "two", 5, 8, "5 blocks instead of 6"),
        (15 + 576 + 3 * 396, "two", 3, 8, "3 blocks instead of 6"),
        (15 + 576 + 3 * 396 - 1, "two", 3, 4, "4 levels (1, 4, 16, 128 users) instead of 8"),
        (15 + 4 * 72 + 3 * 396 - 1, "two", 2, 4, "2 blocks"),
        (15 + 4 * 72 + 2 * 396 - 1, "one", 2, 3, "no first stage"),
        (15 + 2 * 396 - 1, "one", 2, 2, "2 levels (1, 128 users)"),
        (15 + 2 * 264 - 1, "one", 1, 2, "1 block instead of 6"),
        (15 + 264, "one", 1, 2, "1 block instead of 6"),
    ],
)
def test_blocks_go_first_then_levels_then_the_first_stage_then_blocks_again(budget_s, stages, blocks, levels, said):
    fitted = fit(_experiment(), budget_s, PAIR)
    plan = fitted.experiment
    assert (plan.plan.stages, plan.plan.blocks, len(plan.load.levels)) == (stages, blocks, levels)
    assert fitted.seconds <= budget_s
    assert said in fitted.said


def test_the_least_that_works_is_said_when_nothing_fits():
    with pytest.raises(UsageError, match=r"--budget 278s is too short: one block at 1 and 128 users takes about 5 min"):
        fit(_experiment(), 15 + 264 - 1, PAIR)
    fit(_experiment(), 5 * 60, PAIR)


def test_a_ladder_that_was_given_keeps_its_ends():
    plan = fit(_experiment("one", levels=(2.0, 5.0, 9.0)), 15 + 2 * 2 * 3 * 66, PAIR).experiment
    assert plan.load.levels == (2.0, 9.0)
    assert plan.plan.blocks == 3
    alone = fit(_experiment("one", levels=(7.0,)), 15 + 2 * 66, PAIR).experiment
    assert (alone.load.levels, alone.plan.blocks) == ((7.0,), 1)


@pytest.mark.parametrize(
    ("ladder", "rest"),
    [((1, 2, 4), (1, 4)), ((1, 2, 4, 8), (1, 8)), ((1, 2, 4, 8, 16), (1, 4, 16)), (EIGHT, (1, 4, 16, 128))],
)
def test_thinning_keeps_both_ends(ladder, rest):
    assert thinned(ladder) == rest


@pytest.fixture
def scenario(tmp_path):
    (tmp_path / "s.py").write_text("")
    (tmp_path / "s.toml").write_text("[load]\nlevels = [1, 2, 4, 8, 16]\n[servers]\ntoken_counts = 'all'\n")
    return tmp_path / "s.py"


PAIR_URLS = {"baseline": "http://a:1", "speculative": "http://b:1"}


@pytest.mark.parametrize(
    ("options", "stages"),
    [
        (PAIR_URLS, "two"),
        (PAIR_URLS | {"levels": "1,2,4"}, "one"),
        (PAIR_URLS | {"assignments": ("load.levels=[1,2,4]",)}, "one"),
        (PAIR_URLS | {"levels": "1,2,4", "assignments": ("plan.stages=two",)}, "two"),
        (PAIR_URLS | {"assignments": ("plan.stages=one",)}, "one"),
        (PAIR_URLS | {"levels": "1,2", "assignments": ("plan.stages=two",)}, "one"),
        (PAIR_URLS | {"arms": "baseline,baseline"}, "one"),
        (PAIR_URLS | {"smoke": True}, "one"),
        ({"server": "http://a:1"}, "one"),
        ({}, "one"),
    ],
)
def test_servers_of_ones_own_are_measured_in_two_stages_unless_the_levels_are_given(scenario, options, stages):
    assert prepare(Options(scenario=scenario, **options), {}).experiment.plan.stages == stages


def test_what_is_in_reach_is_said_before(scenario):
    prepared = prepare(Options(scenario=scenario, budget="40m", **PAIR_URLS), {})
    text = " ".join(announcement(prepared, prepared.cells()))
    assert "First stage: at most 10 cells, 1 block at 1, 2, 4, 8, 16 users" in text
    assert "In reach: up to what load it pays" in text
    assert "Budget: 40 min" in text
    assert [cell.level for cell in prepared.cells()[::2]] == [1.0, 2.0, 4.0, 8.0, 16.0]


def test_a_budget_beside_a_smoke_run_is_refused(scenario):
    with pytest.raises(UsageError, match="leave out --budget"):
        prepare(Options(scenario=scenario, smoke=True, budget="20m", **PAIR_URLS), {})


def test_a_rate_brings_its_requests_however_long_each_takes():
    window = Window(min_s=60.0, max_s=120.0, min_requests=100, warmup_requests=2.0)
    opened = Experiment(window=window, load=Load(kind="open"))
    assert level_s(opened, 1.0, 10.0) == 51 + 100  # 1 s, and stagger, warm-up, hold and drain of 10 s each
    assert level_s(opened, 20.0, 10.0) == 51 + 60
    assert level_s(opened, 0.1, 10.0) == 51 + 120


def test_a_cell_of_sessions_is_forecast_as_its_timetable_has_it():
    """100 requests come in 25 s from a session a second of four requests; the window opens when one is at its end."""
    window = Window(min_s=10.0, max_s=120.0, min_requests=100, warmup_requests=2.0)
    opened = Experiment(window=window, load=Load(kind="open", per="sessions"))
    habits = Habits(turns=4.0, most_turns=6.0, pauses_s=30.0)
    times = timetable(opened, 1.0, habits, 2.0)
    assert (times.opens_s, times.window_s) == (2 + 6 * 2 + 30, 25.0)
    assert level_s(opened, 1.0, 2.0, habits) == 1 + 44 + 25 + 2 * 2
    assert level_s(opened, 1.0, 2.0) == 1 + 6 + 100 + 4  # where nothing is known of them
    terms = Terms(arms=2, request_s=2.0, habits=habits)
    one = override(override(opened, "load", levels=(1.0,)), "plan", stages="one", blocks=3)
    assert plan_s(one, terms) == 15 + 3 * 2 * 74


SESSIONS = """
from loadtest.scenario import LLMUser, Session, Turn, task

class Source:
    def session(self, key):
        return Session(turns=(Turn(category="", user="Hello", assistant="", think_s=2.0),) * (2 + 4 * (key.number % 2)))

class Mine(LLMUser):
    source = Source()

    @task
    def hold_one(self):
        self.hold(self.next_session())
"""


@pytest.mark.nightly
def test_the_sessions_of_a_scenario_are_known_before_a_run(tmp_path):
    scenario = tmp_path / "mine.py"
    scenario.write_text("print('{}' * 1000)\n" + SESSIONS)
    options = Options(scenario=scenario, rates="0.5,2", window="10s", assignments=("load.per=sessions",), **PAIR_URLS)
    prepared = prepare(options, {})
    assert terms_of(prepared).habits == Habits(turns=4.0, most_turns=6, pauses_s=10.0)
    said = announcement(prepared, prepared.cells())
    # Windows of 10 s, and 1 s, a stagger, six requests and their pauses, hold and drain of a second each.
    assert f"Time: {words(24 * (10 + 1 + 1 + 6 + 10 + 2))}, if a request takes about 1 s." in said
    scenario.write_text(SESSIONS.replace("task\n", "tsak\n", 1))
    with pytest.raises(UsageError, match=r"mine\.py, line 2: importing the scenario raised ImportError"):
        foreseen(scenario, override(prepared.experiment, "plan", seed=2))
    scenario.write_text("import os\nos._exit(3)")
    assert foreseen(scenario, override(prepared.experiment, "plan", seed=3)) is None  # the run says what is wrong
