"""Two stages, budgets and looks: what comes next, and that choosing by the first stage bends no interval."""

from __future__ import annotations

import math
import random
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

from loadtest.analyse.breakeven import break_even
from loadtest.analyse.compare import fit_curve
from loadtest.analyse.judge import judge_data
from loadtest.drive.figures import CellFigure
from loadtest.drive.ladder import choose_levels, ladder_ends, rungs
from loadtest.drive.options import Options
from loadtest.drive.plan import coarse
from loadtest.drive.prepare import prepare
from loadtest.drive.shapes import ShapePool
from loadtest.drive.stages import LOOKS, MISSES, Course, Time, look_confidence, look_words
from loadtest.drive.virtual import run_virtual
from loadtest.experiment import override
from loadtest.settings import Experiment
from loadtest.simulate.worlds import world
from loadtest.workload.templates import TemplateSource

CHAT = Path(__file__).parents[3] / "scenarios" / "chat.py"
LADDER = (1.0, 2.0, 4.0, 8.0, 16.0)


def _experiment(stages: str = "two", blocks: int = 3, levels=LADDER) -> Experiment:
    experiment = override(Experiment(), "load", levels=levels)
    return override(experiment, "plan", stages=stages, blocks=blocks)


def _figures(cells, speedup=lambda level: 1.5, took_s=10.0, window_s=4.0) -> list[CellFigure]:
    return [
        CellFigure(arm=c.arm, level=c.level, block=c.block, figure=1.0 if c.arm == "a" else 1 / speedup(c.level),
                   output_tokens_per_s=100 * c.level, requests=100, error_ratio=0.0, took_s=took_s, window_s=window_s)
        for c in cells
    ]  # fmt: skip


def _walk(course: Course, speedup, times=None) -> tuple[list, list[str]]:
    """Let a course run to its end; `times` gives what is left before each question."""
    planned, said, coming = [], [], course.first()
    while coming:
        planned += coming
        time = None if times is None else times.pop(0)
        following = course.more(planned, _figures(planned, speedup), time)
        said += [following.said] if following.said else []
        coming = list(following.cells)
    return planned, said


def test_the_first_stage_climbs_level_by_level_and_the_second_is_planned_at_once():
    course = Course(experiment=_experiment(), arms=("a", "b"))
    planned, said = _walk(course, lambda level: 1.6 - 0.2 * math.log2(level))  # 1 at 8 users
    assert [cell.level for cell in planned[:8:2]] == [1.0, 2.0, 4.0, 8.0]
    assert {cell.block for cell in planned[:8]} == {0}
    judged = [cell for cell in planned if cell.block > 0]
    assert {cell.block for cell in judged} == {1, 2, 3}
    levels = sorted({cell.level for cell in judged})
    assert len(judged) == 3 * 2 * len(levels)
    assert levels[0] == 1.0
    assert levels[1] < 8 < levels[-1]
    assert [cell.cell for cell in planned] == list(range(len(planned)))
    assert "is not judged" in said[0]
    assert course.looked(planned) == {
        "judged_blocks": [1, 4], "look": {"number": 1, "of": 3, "blocks": 3, "confidence": 0.95}
    }  # fmt: skip


def test_what_comes_next_depends_on_the_first_stage_alone():
    course = Course(experiment=_experiment(), arms=("a", "b"))
    planned, _ = _walk(course, lambda level: 1.6 - 0.2 * math.log2(level))
    coarse_cells = [cell for cell in planned if cell.block == 0]
    figures = _figures(coarse_cells, lambda level: 1.6 - 0.2 * math.log2(level))
    following = course.more(coarse_cells, figures)
    assert following.cells == tuple(planned[len(coarse_cells) :])
    wild = [CellFigure(arm=arm, level=4.0, block=1, figure=f) for arm, f in (("a", 1.0), ("b", 9.0))]
    assert course.more(coarse_cells, [*figures, *wild]) == following


def test_one_stage_is_the_plan_of_old_and_asks_for_nothing():
    course = Course(experiment=_experiment("one"), arms=("a", "b"))
    assert not course.opened
    assert len(course.first()) == 3 * 5 * 2
    assert course.more(course.first(), []).cells == ()


def test_arms_that_take_turns_walk_the_whole_ladder_in_the_first_pair_of_starts():
    course = Course(experiment=_experiment(), arms=("a", "b"), restarts=True)
    planned, _ = _walk(course, lambda level: 1.6 - 0.2 * math.log2(level))
    assert [cell.arm for cell in planned[:10]] == ["a"] * 5 + ["b"] * 5
    assert {cell.level for cell in planned[:10]} == set(LADDER)
    order = []
    for cell in planned[10:]:
        if not order or order[-1] != (cell.arm, cell.block):
            order.append((cell.arm, cell.block))
    assert order == [("b", 1), ("a", 1), ("b", 2), ("a", 2), ("a", 3), ("b", 3)]


def test_windows_of_the_first_stage_are_half_as_long():
    experiment = override(Experiment(), "window", min_s=60.0, max_s=120.0, min_requests=100)
    window = coarse(experiment).window
    assert (window.min_s, window.max_s, window.min_requests) == (30.0, 60.0, 50)


def test_under_a_budget_blocks_come_one_by_one_and_only_if_they_end_in_time():
    course = Course(experiment=_experiment("one", levels=(2.0, 4.0)), arms=("a", "b"), by_block=True)
    assert len(course.first()) == 4
    # a block is 4 cells of 10 s and 1 s around each: 44 s
    planned, said = _walk(course, lambda level: 1.2, [Time(left_s=44.0, cell_s=10), Time(left_s=43.9, cell_s=10)])
    assert len(planned) == 8
    assert said == ["The budget ends after 2 of 3 blocks."]
    assert course.looked(planned)["look"]["blocks"] == 2


def test_the_first_stage_leaves_time_for_two_blocks_of_the_second():
    course = Course(experiment=_experiment(), arms=("a", "b"), by_block=True)
    # after 1 user: the next level takes 2 × 11 s, two blocks at three levels 2 × 6 × (11 + 4) s
    enough, short = Time(left_s=22 + 180, cell_s=10), Time(left_s=22 + 180 - 0.1, cell_s=10)
    first = course.first()
    assert {cell.level for cell in course.more(first, _figures(first), enough).cells} == {2.0}
    ended = course.more(first, _figures(first), short)
    assert "the time that is left is that of the second stage" in ended.said
    assert {cell.block for cell in ended.cells} == {1}


def test_without_time_for_a_second_stage_the_first_is_judged():
    course = Course(experiment=_experiment(), arms=("a", "b"), by_block=True)
    first = course.first()
    ended = course.more(first, _figures(first), Time(left_s=1.0, cell_s=10))
    assert ended.cells == ()
    assert course.looked(first) == {"judged_blocks": None}


def test_a_further_look_adds_blocks_to_those_that_are_there():
    experiment = _experiment("one", levels=(2.0, 4.0))
    done = Course(experiment=experiment, arms=("a", "b")).first()
    course = Course(experiment=experiment, arms=("a", "b"), looks=2)
    more = course.more(done, _figures(done)).cells
    assert {cell.block for cell in more} == {3, 4, 5}
    assert [cell.cell for cell in more] == list(range(12, 24))
    # the same cells that a plan of six blocks holds
    assert [*done, *more] == Course(experiment=override(experiment, "plan", blocks=6), arms=("a", "b")).first()
    assert course.looked([*done, *more])["look"] == {"number": 2, "of": 3, "blocks": 6, "confidence": 0.985}


def test_as_many_experiments_miss_at_some_look_as_is_said():
    blocks = np.arange(1, LOOKS + 1)
    shared = np.sqrt(np.minimum.outer(blocks, blocks) / np.maximum.outer(blocks, blocks))
    bounds = np.array([stats.norm.ppf((1 + look_confidence(int(look))) / 2) for look in blocks])
    inside = stats.multivariate_normal(np.zeros(LOOKS), shared, seed=1).cdf(bounds, lower_limit=-bounds)
    assert 1 - inside == pytest.approx(MISSES, abs=0.001)
    assert "Look 2 of 3 (set after 6, 12, 18 blocks)" in look_words(2, 6)
    assert "about 6.5 % of experiments" in look_words(2, 6)


def _one_experiment(draw: random.Random, slope: float, at: float, sd: float, blocks: int):
    """Climb a ladder over a log speed-up that is linear in log load, choose, judge with fresh noise: the interval."""
    ladder, least = tuple(float(2**i) for i in range(8)), math.log(1.03)

    def truth(level: float) -> float:
        return -slope * math.log2(level / at)

    figures, found = [], []
    for level in ladder:
        requests = 10 * level
        gain = draw.gauss(truth(level), sd / math.sqrt(requests))
        for arm, figure in (("a", 1.0), ("b", math.exp(-gain))):
            figures.append(CellFigure(arm=arm, level=level, block=0, figure=figure, output_tokens_per_s=100 * level,
                                      requests=int(requests), error_ratio=0.0))  # fmt: skip
        found = rungs(figures, "a", "b", higher_is_better=False)
        if ladder_ends(found, least):
            break
    levels = choose_levels(found, ladder, least).levels
    samples = {level: [draw.gauss(truth(level), sd / math.sqrt(20 * level)) for _ in range(blocks)] for level in levels}
    return break_even(fit_curve(samples), "e2e").at


@pytest.mark.parametrize(("at", "sd"), [(33.0, 0.25), (23.0, 0.5), (6.0, 0.25)])
def test_choosing_the_levels_by_the_first_stage_does_not_bend_the_interval(at, sd):
    draw = random.Random(7)
    found = [_one_experiment(draw, 0.11, at, sd, 5) for _ in range(300)]
    covered = np.mean([(e.low or 0.0) <= at <= (e.high or math.inf) for e in found])
    bounded = np.mean([e.low is not None and e.high is not None for e in found])
    assert 0.91 <= covered <= 0.99  # 0.95 with a standard error of 0.013
    assert bounded > 0.7


@pytest.fixture(scope="module")
def pool() -> ShapePool:
    return ShapePool(TemplateSource("chat"), size=500)


def _virtual(pool, name="default", seed=1, budget_s=None, looks=1, **plan):
    experiment = prepare(Options(scenario=CHAT, world=name), {}).experiment
    experiment = override(override(experiment, "plan", seed=seed, **plan), "window", min_s=0.6, max_s=0.6)
    experiment = override(experiment, "load", levels=(4.0, 8.0, 16.0, 32.0, 48.0))
    pair = world(name)
    arms = {"baseline": pair.baseline, "speculative": pair.speculative}
    return run_virtual(experiment, arms, pool, budget_s=budget_s, looks=looks)


def _judged(run):
    return judge_data(run.header, run.cells, run.scrapes, run.requests())


def test_a_run_in_two_stages_is_judged_at_the_chosen_levels_alone(pool):
    run = _virtual(pool, stages="two", blocks=3)
    for cell in run.cells:
        assert cell.window_close_s - cell.window_open_s == pytest.approx(0.3 if cell.block == 0 else 0.6)
    judgement = _judged(run)
    first = [view for view in judgement.cells if view.block == 0]
    assert first
    assert all("not judged" in view.marks[-1] for view in first)
    assert not any("not judged" in mark for view in judgement.cells if view.block for mark in view.marks)
    assert set(judgement.levels) == {cell.level for cell in run.cells if cell.block > 0}
    assert judgement.levels[0] == 4.0
    assert judgement.decision.answer.value in ("pays_up_to", "cannot_tell")
    assert all(s.ratio.n == 3 for s in judgement.speedups if s.metric == "e2e")


def test_a_budget_is_kept_in_virtual_time_and_ends_with_an_answer(pool):
    whole = _virtual(pool, stages="two", blocks=3)
    whole_s = max(cell.drained_s for cell in whole.cells)
    for share in (0.7, 0.2):
        run = _virtual(pool, stages="two", blocks=3, budget_s=share * whole_s)
        assert max(cell.drained_s for cell in run.cells) <= share * whole_s
        assert len(run.cells) < len(whole.cells)
        assert _judged(run).decision.answer.value in ("pays_up_to", "pays_everywhere", "cannot_tell", "pays_in_band")
        assert any("budget" in note or "time that is left" in note for note in run.header["notes"])


def test_the_second_look_takes_in_the_blocks_of_the_first(pool):
    first, second = (_virtual(pool, stages="one", blocks=1, looks=looks) for looks in (1, 2))
    assert second.cells[: len(first.cells)] == first.cells
    assert len(second.cells) == 2 * len(first.cells)
    assert second.header["look"]["number"] == 2
