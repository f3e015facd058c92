"""The server in virtual time: order, refusals, and the worlds' truth found by replication."""

from __future__ import annotations

import statistics
from functools import cache

import pytest

from loadtest.simulate import text
from loadtest.simulate.draws import mix, uniform
from loadtest.simulate.jobs import Ask
from loadtest.simulate.virtual import VirtualServer, closed_loop
from loadtest.simulate.worlds import WORLDS

CATEGORIES = ("code", "maths", "chat", "writing")


def ask(user: int, round_: int) -> Ask:
    """Short chat: prompts of 60–400 tokens, of which a later turn finds its beginning cached; answers up to 64."""
    key = mix(3, user, round_)
    category = CATEGORIES[int(4 * uniform(key, 1))]
    later = uniform(key, 2) < 0.5
    tokens = 60 + int(uniform(key, 3) * 120) + 220 * later
    output, finish = text.answer_length(key, category, 64)
    return Ask(key=key, prompt_tokens=tokens, cached_tokens=96 * later, output_tokens=output, category=category,
               finish=finish)  # fmt: skip


@cache
def mean_e2e_s(world: str, role: str, users: int) -> float:
    """Mean over one long run; both arms see the same requests."""
    jobs = closed_loop(VirtualServer(WORLDS[world].arm(role), 1), users, 60.0, ask, stagger_s=0.5)
    return statistics.fmean(job.finished_s - job.arrival_s for job in jobs if job.arrival_s > 2)


def speedup(world: str, users: int) -> float:
    return mean_e2e_s(world, "baseline", users) / mean_e2e_s(world, "speculative", users)


def test_the_default_world_crosses_between_24_and_48_users() -> None:
    assert speedup("default", 24) > 1.03
    assert speedup("default", 48) < 0.97


def test_eagle3_pays_at_every_load() -> None:
    gains = [speedup("eagle3", users) for users in (1, 64)]
    assert gains[0] > 1.5
    assert min(gains) >= 1.12


@pytest.mark.parametrize("users", [1, 64])
def test_the_world_never_never_pays(users: int) -> None:
    assert speedup("never", users) < 0.97


def test_the_band_world_hovers_around_one() -> None:
    assert speedup("band", 8) > 1.05
    gains = [speedup("band", users) for users in (40, 60, 80)]  # twice the load, and hardly a difference
    assert max(gains) < 1.055
    assert min(gains) > 0.97


def test_a_mixture_of_experts_pays_in_the_middle_only() -> None:
    gains = [speedup("moe", users) for users in (1, 28, 96)]
    assert gains[0] < 0.9
    assert gains[1] > 1.03
    assert gains[2] < 0.97


def test_equal_arms_are_equal() -> None:
    for world in ("aa", "null", "silent-off"):
        assert mean_e2e_s(world, "baseline", 8) == mean_e2e_s(world, "speculative", 8)


def test_configured_but_empty_speculation_costs_time() -> None:
    # Published for decode steps: 6.6 % at 2 running requests, 21.6 % at 189.
    assert speedup("k0", 2) == pytest.approx(1 / 1.066, abs=0.01)
    assert 0.78 < speedup("k0", 64) < 0.9


def test_the_null_world_takes_20_ms_a_token_at_any_load() -> None:
    for users in (1, 50):
        server = VirtualServer(WORLDS["null"].baseline, 1)
        for job in closed_loop(server, users, 20.0, ask):
            gaps = [b - a for a, b in zip(job.chunk_times_s, job.chunk_times_s[1:], strict=False)]
            assert gaps == pytest.approx([0.020] * len(gaps))
            assert set(job.chunk_tokens) == {1}


def test_ends_come_in_order_and_the_clock_follows() -> None:
    server = VirtualServer(WORLDS["failures"].speculative, 1)
    for number in range(300):
        server.submit(number * 0.05, Ask(key=mix(number), prompt_tokens=50, output_tokens=30))
    seen = []
    while not server.idle:
        done = server.advance(until_s=1e9)
        assert {job.finished_s for job in done} == {server.now_s}
        seen += done
    assert [job.finished_s for job in seen] == sorted(job.finished_s for job in seen)
    refused = [job for job in seen if job.finish == "error"]
    assert len(seen) == 300
    assert 2 <= len(refused) <= 20  # 3 %
    assert all(not job.chunk_times_s and job.finished_s == pytest.approx(job.arrival_s + 0.001) for job in refused)
    assert server.advance(until_s=2e9) == []
    assert server.now_s == 2e9


def test_the_past_is_closed() -> None:
    server = VirtualServer(WORLDS["aa"].baseline, 1)
    assert server.advance(3.0) == []
    with pytest.raises(ValueError, match="cannot submit at 2"):
        server.submit(2.0, Ask(key=1, prompt_tokens=5, output_tokens=5))


def test_a_cancelled_request_never_ends() -> None:
    server = VirtualServer(WORLDS["aa"].baseline, 1)
    kept, gone = (server.submit(0.0, Ask(key=key, prompt_tokens=5, output_tokens=50)) for key in (1, 2))
    server.advance(0.1)
    server.cancel(gone)
    assert server.advance(10.0) == [kept]
    assert server.idle
    assert sum(server.counters().finished.values()) == 1


@pytest.mark.parametrize("role", ["baseline", "speculative"])
def test_an_idle_server_woken_just_before_the_time_asked_for_stays_in_the_present(role: str) -> None:
    server = VirtualServer(WORLDS["default"].arm(role), 1)
    assert server.advance(10.0) == []
    job = server.submit(10.0, ask(0, 0))
    for until_s in (10.004, 10.006, 10.008):  # it has arrived, and its first step ends later
        assert server.advance(until_s) == []
    assert server.advance(60.0) == [job]
    assert 10.0 < job.chunk_times_s[0] < job.finished_s < 12.0
