"""An open load: its timetable, its phases, its virtual cells, and the options that ask for it."""

from __future__ import annotations

import math
from collections import defaultdict
from dataclasses import replace
from itertools import islice, pairwise
from pathlib import Path

import numpy as np
import pytest

from loadtest.backlog import gap_cv
from loadtest.drive.figures import cell_figures
from loadtest.drive.forecast import announcement
from loadtest.drive.ladder import choose_levels, ladder_ends, rungs
from loadtest.drive.noise_run import read_noise_run
from loadtest.drive.options import Options
from loadtest.drive.phases import Phase, Phases
from loadtest.drive.prepare import prepare
from loadtest.drive.room import connections
from loadtest.drive.shapes import ShapePool
from loadtest.drive.stages import Course
from loadtest.drive.timetable import Habits, habits_from, habits_of, pattern_of, timetable, trace_of
from loadtest.drive.virtual import VirtualRun, run_virtual
from loadtest.errors import UsageError
from loadtest.experiment import override
from loadtest.json_files import write_json
from loadtest.loads import spoken
from loadtest.settings import Experiment, Load, Trace, Window
from loadtest.simulate.worlds import world
from loadtest.workload.arrivals import schedule
from loadtest.workload.replay import open_trace
from loadtest.workload.sessions import Session, SessionKey, Turn
from loadtest.workload.templates import TemplateSource

SCENARIO = Path(__file__).parents[3] / "scenarios" / "chat.py"
RULE = Window(min_s=10.0, max_s=20.0, min_requests=30, warmup_requests=2.0, warmup_max_s=30.0)


def opened(experiment: Experiment | None = None, **load: object) -> Experiment:
    return override(experiment or Experiment(), "load", kind="open", **load)


class Dialogues:
    """Sessions of one turn and of three, by turns, with pauses of 4 s."""

    def session(self, key: SessionKey) -> Session:
        turn = Turn(category="", user="", assistant="", think_s=4.0)
        return Session(turns=(turn,) * (1 if key.number % 2 else 3))


def test_a_rate_of_requests_is_spread_over_sessions_by_their_mean_turns() -> None:
    experiment = replace(opened(), window=RULE)
    habits = habits_of(Dialogues(), experiment)
    assert habits == Habits(turns=2.0, most_turns=3, pauses_s=8.0)  # two pauses; the one before the first is none
    times = timetable(experiment, 6.0, habits, request_s=0.5)
    assert times.sessions_per_s == 3.0
    assert times.opens_s == 0.5 + 3 * 0.5 + 8.0  # a session that came first is over
    assert times.window_s == 10.0  # 30 requests take 5 s
    assert not times.cut
    assert timetable(opened(experiment, per="sessions"), 6.0, habits, 0.5).sessions_per_s == 6.0
    assert habits_of(Dialogues(), opened(experiment, turns=4.0)).turns == 4.0
    assert habits_of(Dialogues(), opened(experiment, think_time=0.0)).pauses_s == 0.0


def test_a_slow_rate_gets_a_longer_window_and_a_long_session_a_warm_up_that_is_cut() -> None:
    experiment = replace(opened(), window=RULE)
    habits = habits_from([1], [0.0], experiment.load)
    assert timetable(experiment, 2.0, habits, 1.0).window_s == 15.0
    assert timetable(experiment, 0.1, habits, 1.0).window_s == 20.0
    long = timetable(experiment, 2.0, replace(habits, pauses_s=100.0), 1.0)
    assert (long.opens_s, long.cut) == (31.0, True)


def test_sessions_of_unknown_length_have_no_rate_of_requests() -> None:
    with pytest.raises(UsageError, match=r"give load\.turns"):
        habits_of(None, opened())
    assert habits_of(None, opened(turns=2.5)).turns == 2.5
    assert habits_of(None, opened(per="sessions")).turns == 1.0


@pytest.mark.parametrize(
    ("load", "gap_cv"),
    [({"arrivals": "poisson"}, 1.0), ({"arrivals": "constant"}, 0.0), ({"arrivals": "gamma", "cv": 3.0}, 3.0)],
)
def test_habits_tell_the_gaps_of_a_process(load: dict[str, object], gap_cv: float) -> None:
    assert habits_of(Dialogues(), opened(**load)).gap_cv == gap_cv
    assert habits_of(None, opened(per="sessions", **load)).gap_cv == gap_cv


def test_a_trace_is_held_against_its_own_burstiness_and_turns(tmp_path: Path) -> None:
    """Bursts of ten sessions within 0.9 s, a minute apart; one session in two has three requests."""
    rows = [f"{60 * burst + 0.1 * n},10,5,s{burst}-{n}" for burst in range(100) for n in range(10)]
    rows += [f"{60 * burst + 0.1 * n + 2 + turn},10,5,s{burst}-{n}" for burst in range(100) for n in range(0, 10, 2)
             for turn in (0, 1)]  # fmt: skip
    (tmp_path / "t.csv").write_text("\n".join(["ts,input_tokens,output_tokens,session", *rows]))
    source = open_trace(Trace(file=str(tmp_path / "t.csv"), jitter_s=0.0, speed=7.0), 1)
    gaps_s = ([0.1] * 9 + [59.1]) * 99 + [0.1] * 9
    own = float(np.std(gaps_s, ddof=1) / np.mean(gaps_s))
    load = {"arrivals": "trace", "cv": 0.05}
    habits = habits_of(source, opened(**load))
    assert habits.turns == 2.0
    assert habits.gap_cv == pytest.approx(own, rel=1e-6)
    assert own == pytest.approx(3.0, abs=0.1)
    assert gap_cv(opened(**load).load, habits.told()) == pytest.approx(own, abs=1e-4)
    assert gap_cv(opened(arrivals="trace", cv=7.0).load) == 7.0  # of a run made before it was told
    assert gap_cv(opened(arrivals="trace", cv=7.0).load, {"gap_cv": "x"}) == 7.0
    assert gap_cv(opened(arrivals="constant").load, habits.told()) == 1.0
    assert habits_of(source, opened(arrivals="poisson")).gap_cv == 1.0


def test_a_trace_is_needed_for_the_arrivals_of_one() -> None:
    with pytest.raises(UsageError, match="the sessions are no trace"):
        trace_of(TemplateSource("chat"))
    with pytest.raises(UsageError, match="the sessions are no trace"):  # already where a plan is made
        habits_of(TemplateSource("chat"), opened(arrivals="trace"))


def test_the_window_of_an_open_load_opens_and_closes_when_it_was_said_to() -> None:
    phases = Phases(RULE, 0, 100.0, 0.0, (105.0, 115.0))
    phases.due(103.0)
    assert phases.tick(104.9) is Phase.WARMUP
    assert phases.next_time_s() == 105.0
    phases.due(105.0)  # before the tick that sees the window
    assert phases.tick(105.004) is Phase.WINDOW
    assert phases.window_open_s == 105.0
    phases.due(114.0)
    phases.due(115.0)  # no longer in it
    assert phases.tick(115.003) is Phase.HOLD
    assert phases.window_close_s == 115.0
    phases.ended(105.0, 116.0)
    phases.ended(103.0, 116.0)
    assert phases.tick(116.0) is Phase.HOLD
    phases.ended(114.0, 117.0)
    assert phases.tick(117.0) is Phase.DRAIN
    phases.ended(115.0, 118.0)
    assert phases.tick(118.0) is Phase.OVER


def virtual(levels: tuple[float, ...], blocks: int = 1, seed: int = 1, **load: object) -> VirtualRun:
    experiment = prepare(Options(scenario=SCENARIO, world="default"), {}).experiment
    experiment = override(opened(experiment, levels=levels, **load), "plan", blocks=blocks, seed=seed)
    pair = world("default")
    return run_virtual(experiment, {"baseline": pair.baseline, "speculative": pair.speculative}, POOL)


POOL = ShapePool(TemplateSource("chat"), 100)
OPEN = Load(kind="open")


def arrivals(run: VirtualRun, arm: str) -> list[tuple[int, int, float]]:
    """Return (block, session, seconds from the start of its cell) of the first turns."""
    begun = {c.cell: c.started_s for c in run.cells}
    return sorted(
        (row["block"], row["session"], round(row["due_s"] - begun[row["cell"]], 9))
        for row in run.rows if row["arm"] == arm and row["turn"] == 0
    )  # fmt: skip


def test_both_arms_get_the_same_sessions_at_the_same_times() -> None:
    run = virtual((60.0,), blocks=2)
    base, spec = arrivals(run, "baseline"), arrivals(run, "speculative")
    shared = min(len(base), len(spec)) - 40  # each arm's load stays on as long as it needs to drain
    assert len(base) > 100
    for block in (0, 1):
        mine, other = ([row for row in rows if row[0] == block][: shared // 2] for rows in (base, spec))
        assert mine == other
    assert [r[2] for r in base if r[0] == 0][:20] != [r[2] for r in base if r[0] == 1][:20]
    windows = {(c.block, round(c.window_open_s - c.started_s, 9), round(c.window_close_s - c.window_open_s, 9))
               for c in run.cells}  # fmt: skip
    assert len(windows) == 2  # one for each block, the same in both arms


def test_later_turns_follow_and_no_server_holds_arrivals_up() -> None:
    run = virtual((20.0, 300.0), think_time=0.05)
    sessions = defaultdict(list)
    for row in run.rows:
        sessions[row["cell"], row["session"]].append(row)
    later = [(a, b) for rows in sessions.values() for a, b in pairwise(sorted(rows, key=lambda row: row["turn"]))]
    assert later
    assert all(b["turn"] == a["turn"] + 1 for a, b in later)
    assert all(0 < b["due_s"] - a["end_s"] <= 0.05 * 60 for a, b in later)  # pauses are 60 s at most, times 0.05
    for cell in run.cells:
        due = sorted(row["due_s"] for row in run.rows if row["cell"] == cell.cell and row["turn"] == 0)
        inside = [x for x in due if cell.window_open_s <= x < cell.window_close_s]
        expected = cell.level / 2.12 * (cell.window_close_s - cell.window_open_s)
        assert len(inside) == pytest.approx(expected, abs=4 * math.sqrt(expected))


def test_a_crowd_without_end_gives_the_cell_up() -> None:
    run = virtual((2000.0,), max_in_flight=200)
    assert {c.state for c in run.cells} == {"not_carried"}
    assert all("200 requests were in flight (load.max_in_flight)" in c.reason for c in run.cells)
    (figure, _) = cell_figures(run.cells, run.requests(), run.scrapes, "e2e", OPEN)
    assert figure.given_up
    with spoken("requests/s"):
        ends = ladder_ends(rungs([figure, replace(figure, arm="speculative")], figure.arm, "speculative",
                                 higher_is_better=False), 0.03)  # fmt: skip
    assert ends == "a queue that outgrew load.max_in_flight began at 2000 requests/s"


def test_the_ladder_ends_where_both_arms_complete_fewer_than_arrive() -> None:
    run = virtual((40.0, 150.0), blocks=1)
    figures = cell_figures(run.cells, run.requests(), run.scrapes, "e2e", OPEN)
    assert {(f.level, f.saturated) for f in figures} == {(40.0, False), (150.0, True)}
    with spoken("requests/s"):
        found = rungs(figures, "baseline", "speculative", higher_is_better=False)
        assert ladder_ends(found[:1], 0.03) == ""
        assert ladder_ends(found, 0.03) == "at 150 requests/s more requests arrive than either server completes"
        one = [replace(f, saturated=f.saturated and f.arm == "baseline", figure=1.0) for f in figures]
        assert ladder_ends(rungs(one, "baseline", "speculative", higher_is_better=False), 0.0) == ""


@pytest.mark.parametrize(
    ("level", "load"), [(30.0, {"shape": "ramp", "factor": 10.0}), (40.0, {"arrivals": "gamma", "cv": 4.0})]
)
def test_a_rate_that_is_meant_to_rise_and_bursts_end_no_ladder(level: float, load: dict[str, object]) -> None:
    run = virtual((level,), blocks=8, **load)
    figures = cell_figures(run.cells, run.requests(), run.scrapes, "e2e", replace(OPEN, **load))
    assert not any(figure.saturated for figure in figures)
    steady = cell_figures(run.cells, run.requests(), run.scrapes, "e2e", OPEN)
    assert any(figure.saturated for figure in steady)  # as many more in flight would mean it of Poisson arrivals


@pytest.mark.parametrize("counter", ["vllm:num_preemptions_total", "sglang:num_retracted_requests_total"])
def test_requests_that_lose_their_place_are_seen_by_every_kinds_own_counter(counter: str) -> None:
    run = virtual((20.0,))
    scrapes = [replace(s, values={counter: float(s.arm == "speculative" and s.moment == "window_close")})
               for s in run.scrapes]  # fmt: skip
    figures = cell_figures(run.cells, run.requests(), scrapes, "e2e", OPEN)
    assert {f.arm: f.preempted for f in figures} == {"baseline": False, "speculative": True}


def test_levels_of_rates_are_chosen_in_two_digits() -> None:
    run = virtual((0.5, 20.0, 60.0), blocks=1)
    figures = cell_figures(run.cells, run.requests(), run.scrapes, "e2e", OPEN)
    figures = [replace(f, figure=1.0 if f.arm == "baseline" else {0.5: 0.8, 20.0: 0.9, 60.0: 1.2}[f.level],
                       requests=100) for f in figures]  # fmt: skip
    shrunk = [replace(f, level=f.level / 100) for f in figures]
    with spoken("requests/s"):
        found = [rungs(own, "baseline", "speculative", higher_is_better=False) for own in (figures, shrunk)]
        large, small = (choose_levels(own, [r.level for r in own], math.log(1.03)) for own in found)
    assert [round(x * 100, 9) for x in small.levels] == list(large.levels)  # whole users would be 0 and 1
    assert "requests/s" in large.why


def test_two_stages_of_rates_speak_of_rates() -> None:
    experiment = prepare(Options(scenario=SCENARIO, world="default"), {}).experiment
    experiment = override(opened(experiment, levels=(10.0, 20.0, 40.0, 80.0, 160.0)), "plan", stages="two", blocks=2)
    pair = world("default")
    run = run_virtual(experiment, {"baseline": pair.baseline, "speculative": pair.speculative}, POOL)
    (note,) = run.header["notes"]
    assert "requests/s" in note
    assert "users" not in note
    assert Course(experiment=experiment, arms=("a", "b")).staged


def prepared(**options: object) -> Load:
    return prepare(Options(scenario=SCENARIO, simulated=True, **options), {}).experiment.load  # type: ignore[arg-type]


def test_rates_on_the_command_line_make_an_open_load() -> None:
    load = prepared(rates="4,0.5", arrivals="gamma")
    assert (load.kind, load.levels, load.arrivals) == ("open", (0.5, 4.0), "gamma")
    assert prepared(assignments=("load.kind=open",)).levels == (10.0, 20.0, 40.0, 60.0, 80.0)  # [demo] rates
    assert prepared(assignments=("load.kind=open", "load.levels=[3]")).levels == (3.0,)
    assert connections(load) == 1024
    assert connections(prepared(levels="3,9")) == 9


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"rates": "1", "levels": "1"}, "leave one of them out"),
        ({"levels": "1", "assignments": ("load.kind=open",)}, "give --rates"),
        ({"rates": "1", "assignments": ("load.kind=closed",)}, "leave one of them out"),
        ({"arrivals": "gamma"}, "give its rates too"),
        ({"rates": "1", "arrivals": "gama"}, 'the nearest is "gamma"'),
        ({"rates": "1,x"}, "--rates is '1,x'"),
        ({"rates": "0"}, "above 0"),
        ({"rates": "1e9"}, "at most 16384"),
        ({"rates": "1e-9", "window": "60s"}, "1e-09 requests/s bring 6e-08 requests in a window of 60 s"),
        ({"rates": "1e-4", "window": "60s", "assignments": ("load.per=sessions",)}, "bring 0.006 sessions"),
        ({"rates": "1", "assignments": ("decision.metric=output_tokens_per_s",)}, "carry what arrives"),
    ],
)
def test_options_that_do_not_go_together_are_refused(options: dict[str, object], part: str) -> None:
    with pytest.raises(UsageError) as refused:
        prepared(**options)
    assert part in str(refused.value)


def test_what_is_said_of_open_loads_alone_is_said_to_be_unused() -> None:
    shaped = ("load.shape=spike", "load.per=sessions")
    found = prepare(Options(scenario=SCENARIO, simulated=True, assignments=shaped), {})
    said = " ".join(announcement(found, found.cells()))
    assert "load.shape (spike) and load.per (sessions) say how an open load arrives, and are not used" in said
    plain = prepare(Options(scenario=SCENARIO, simulated=True), {})
    assert "not used" not in " ".join(announcement(plain, plain.cells()))


def test_the_noise_of_users_is_not_that_of_rates(tmp_path: Path) -> None:
    run = {"schema": 1, "aa": True, "status": "complete", "experiment": {"load": {}}, "baseline": "a", "arms": []}
    write_json(tmp_path / "run.json", run)
    with pytest.raises(UsageError, match="is of a closed load, and this run of an open one"):
        read_noise_run(tmp_path, opened())


def test_a_wide_process_varies_more_from_block_to_block() -> None:
    """The counts of equal windows show the process: their variance ÷ mean is about CV² for a renewal process."""
    spread = {}
    for name in ("constant", "poisson", "gamma"):
        run = virtual((20.0,), blocks=12, arrivals=name, cv=3.0, per="sessions")
        counts = [sum(1 for r in run.rows if r["cell"] == c.cell and r["turn"] == 0
                      and c.window_open_s <= r["due_s"] < c.window_close_s)
                  for c in run.cells if c.arm == "baseline"]  # fmt: skip
        spread[name] = float(np.var(counts) / np.mean(counts))
    assert spread["constant"] < 0.1 < spread["poisson"] < 3.0 < spread["gamma"]


def test_a_trace_gives_its_own_arrivals_and_turns() -> None:
    source = open_trace(Trace(file=str(SCENARIO.with_name("trace.csv"))), 1)
    experiment = opened(arrivals="trace", levels=(2.0,))
    habits = habits_of(source, experiment)
    assert habits.turns == pytest.approx(source.requests / source.sessions)
    times = timetable(experiment, 2.0, habits, 1.0)
    count = 5 * source.sessions
    found = list(islice(schedule(pattern_of(experiment), times.sessions_per_s, seed=1, level=2.0, block=0,
                                 trace=trace_of(source)), count + 1))  # fmt: skip
    assert (found[-1] - found[0]) / count == pytest.approx(1 / times.sessions_per_s)
    own = np.diff(list(islice(source.arrivals(1, 2.0, 0), count)))
    gaps = np.diff(found[:count])
    assert gaps / gaps.mean() == pytest.approx(own / own.mean(), abs=1e-6)
