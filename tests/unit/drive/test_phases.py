"""A cell's phases, on literal times."""

from loadtest.drive.phases import Phase, Phases
from loadtest.settings import Window

RULE = Window(min_s=10.0, max_s=20.0, min_requests=3, warmup_requests=2.0, warmup_max_s=30.0)


def _warm(rule: Window = RULE) -> Phases:
    phases = Phases(rule, 2, started_s=0.0, stagger_s=1.0)
    phases.due(0.0)
    phases.due(1.0)
    assert phases.tick(0.5) is Phase.START
    phases.ended(0.0, 2.0)  # latency 2.0
    assert phases.tick(4.9) is Phase.WARMUP  # full load at 1.0; two medians end at 5.0
    assert phases.tick(5.0) is Phase.WINDOW
    assert phases.window_open_s == 5.0
    return phases


def test_the_window_waits_for_its_requests_and_the_load_stays_until_they_ended():
    phases = _warm()
    for due_s in (6.0, 7.0):
        phases.due(due_s)
    assert phases.tick(15.0) is Phase.WINDOW  # long enough, but only two requests due
    phases.due(15.5)
    assert phases.tick(16.0) is Phase.HOLD
    assert phases.window_close_s == 16.0
    phases.due(16.5)  # after the window: keeps the load, is not waited for
    for due_s in (6.0, 7.0):
        phases.ended(due_s, 17.0)
    assert phases.tick(17.0) is Phase.HOLD
    phases.ended(15.5, 18.0)
    assert phases.tick(18.0) is Phase.DRAIN
    assert phases.in_flight == 2  # the warm-up's second request and the late one
    phases.ended(1.0, 19.0)
    phases.ended(16.5, 19.5)
    assert phases.tick(19.5) is Phase.OVER
    assert phases.drained_s == 19.5


def test_a_window_without_enough_requests_closes_at_its_longest():
    phases = _warm()
    assert phases.tick(24.9) is Phase.WINDOW
    assert phases.tick(25.0) is Phase.DRAIN  # nothing was due in it, so there is nothing to hold for


def test_requests_due_before_the_window_are_not_waited_for():
    phases = _warm()
    for due_s in (6.0, 7.0, 8.0):
        phases.due(due_s)
        phases.ended(due_s, due_s + 1)
    assert phases.tick(15.0) is Phase.DRAIN  # the request due at 1.0 is still open
    assert phases.in_flight == 1


def test_a_warm_up_without_an_answer_is_cut_and_says_so():
    phases = Phases(RULE, 1, started_s=0.0, stagger_s=0.0)
    phases.due(0.0)
    assert phases.tick(29.9) is Phase.WARMUP
    assert phases.tick(30.0) is Phase.WINDOW
    assert phases.warmup_cut


def test_a_stop_drains_from_any_phase():
    phases = Phases(RULE, 1, started_s=0.0, stagger_s=5.0)
    phases.due(0.0)
    phases.stop()
    assert phases.tick(1.0) is Phase.DRAIN
    phases.ended(0.0, 2.0)
    assert phases.tick(2.0) is Phase.OVER
    assert phases.window_open_s is None


def test_the_request_that_fills_a_window_is_in_it_and_is_waited_for_also_where_it_closes_the_same_instant():
    phases = _warm()
    for due_s in (6.0, 7.0, 16.0):
        phases.due(due_s)
    assert phases.tick(16.0) is Phase.HOLD
    assert phases.window_close_s is not None
    assert 16.0 < phases.window_close_s < 16.001
    phases.due(16.001)
    for due_s in (6.0, 7.0):
        phases.ended(due_s, 17.0)
    assert phases.tick(17.0) is Phase.HOLD
    phases.ended(16.0, 18.0)
    assert phases.tick(18.0) is Phase.DRAIN
