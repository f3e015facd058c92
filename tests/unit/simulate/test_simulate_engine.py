"""The engine: what goes in comes out, every step costs what the formula says, limits hold, and luck is reproducible."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from loadtest.simulate.draws import mix, uniform
from loadtest.simulate.engine import Engine
from loadtest.simulate.jobs import Ask, Job
from loadtest.simulate.models import ArmModel
from loadtest.simulate.worlds import H100, WORLDS, drafting

EAGLE = drafting(H100, (0.66, 0.65, 0.63))
TIGHT = replace(EAGLE, kv_limit_tokens=3000, max_model_len=1024, max_seqs=16)
CHUNKED = replace(EAGLE, max_batched_tokens=256, max_seqs=8)


def asks(count: int, longest: int = 120) -> list[tuple[float, Ask]]:
    """Return (arrival, ask) pairs in bursts and gaps."""
    made = []
    for number in range(count):
        key = mix(17, number)
        prompt, output, cached = (int(top * uniform(key, n)) for n, top in enumerate((400, longest, 100)))
        ask = Ask(key=key, prompt_tokens=1 + prompt, output_tokens=1 + output, cached_tokens=cached, category="code")
        made.append((0.4 * (number // 7) * uniform(key, 4), ask))
    return made


def run_ahead(arm: ArmModel, seed: int = 1, count: int = 120) -> tuple[Engine, list[Job]]:
    engine = Engine(arm, seed)
    jobs = [engine.submit(at, ask) for at, ask in asks(count)]
    while not engine.idle:
        assert engine.advance()
    return engine, jobs


def story(jobs: list[Job]) -> list[tuple[object, ...]]:
    return [(job.chunk_tokens, job.finish, job.preemptions, [len(part) for part in job.accepted]) for job in jobs]


@pytest.mark.parametrize("arm", [H100, EAGLE, TIGHT, CHUNKED], ids=["baseline", "eagle", "tight", "chunked"])
def test_everything_asked_for_is_emitted_and_counted(arm: ArmModel) -> None:
    engine, jobs = run_ahead(arm)
    counters = engine.counters()
    assert [sum(job.chunk_tokens) for job in jobs] == [job.ask.output_tokens for job in jobs]
    for job in jobs:
        assert job.chunk_tokens[0] == 1  # prefill alone gives the first token
        assert max(job.chunk_tokens) <= arm.k + 1
        assert len(job.chunk_times_s) == len(job.chunk_tokens)
        assert job.chunk_times_s == sorted(job.chunk_times_s)
        assert job.arrival_s < job.scheduled_s < job.first_token_s == job.chunk_times_s[0]
        assert job.finished_s == job.chunk_times_s[-1]
    assert counters.generation_tokens == sum(job.ask.output_tokens for job in jobs)
    assert counters.prompt_tokens == sum(job.ask.prompt_tokens for job in jobs)
    assert counters.finished["length"] == counters.e2e.count == counters.ttft.count == len(jobs)
    assert counters.e2e.sum == pytest.approx(sum(job.finished_s - job.arrival_s for job in jobs))
    assert (counters.running, counters.waiting, counters.kv_use_ratio) == (0, 0, 0)
    # One sample per request and step after its first token, each since the emission before.
    assert counters.inter_token.count == sum(len(job.chunk_tokens) - 1 for job in jobs)
    assert counters.inter_token.sum == pytest.approx(sum(job.finished_s - job.first_token_s for job in jobs))


@pytest.mark.parametrize("arm", [EAGLE, TIGHT], ids=["eagle", "tight"])
def test_draft_counters_add_up(arm: ArmModel) -> None:
    engine, jobs = run_ahead(arm)
    counters = engine.counters()
    per_slot = [sum(column) for column in zip(*(job.accepted_per_slot(3) for job in jobs), strict=True)]
    assert counters.accepted_per_slot == per_slot
    assert counters.drafts == sum(job.drafts for job in jobs)
    assert counters.draft_tokens == 3 * counters.drafts
    tau = 1 + counters.accepted / counters.drafts
    assert tau == pytest.approx(1 + sum(count / counters.drafts for count in per_slot))
    assert tau == pytest.approx(2.36, abs=0.25)
    # Accepted tokens are counted before an answer is cut at its limit.
    resumed = sum(job.preemptions for job in jobs)
    emitted_by_drafts = counters.generation_tokens - len(jobs) - resumed
    assert counters.accepted + counters.drafts >= emitted_by_drafts > 0.9 * (counters.accepted + counters.drafts)


def test_a_baseline_emits_one_token_a_step_and_drafts_nothing() -> None:
    engine, jobs = run_ahead(H100)
    assert {tokens for job in jobs for tokens in job.chunk_tokens} == {1}
    counters = engine.counters()
    assert (counters.drafts, counters.draft_tokens, counters.accepted_per_slot) == (0, 0, [])


@pytest.mark.parametrize("arm", [H100, EAGLE, TIGHT, CHUNKED], ids=["baseline", "eagle", "tight", "chunked"])
def test_running_ahead_and_step_by_step_tell_one_story(arm: ArmModel) -> None:
    ahead, jobs = run_ahead(arm)
    engine = Engine(arm, 1)
    stepped = [engine.submit(at, ask) for at, ask in asks(120)]
    emitted: dict[Job, list[tuple[float, int]]] = {job: [] for job in stepped}
    while not engine.idle:
        step = engine.step(0.0)
        for job, tokens in step.emitted:
            emitted[job].append((step.end_s, tokens))
    assert story(stepped) == story(jobs)
    for job, other in zip(stepped, jobs, strict=True):
        assert job.chunk_times_s == pytest.approx(other.chunk_times_s, rel=1e-9)
        assert emitted[job] == list(zip(job.chunk_times_s, job.chunk_tokens, strict=True))
    mine, others = engine.counters(), ahead.counters()
    assert mine.steps == others.steps
    assert mine.inter_token.count == others.inter_token.count
    assert mine.iteration_tokens == others.iteration_tokens


@pytest.mark.parametrize("arm", [H100, EAGLE, TIGHT, CHUNKED], ids=["baseline", "eagle", "tight", "chunked"])
def test_every_step_costs_what_the_formula_says(arm: ArmModel) -> None:
    engine = Engine(arm, 1)
    jobs = [engine.submit(at, ask) for at, ask in asks(120)]
    emitted = dict.fromkeys(jobs, 0)
    preempted = dict.fromkeys(jobs, 0)
    computed = {job: job.cached for job in jobs}  # context that is in memory
    batches = set()
    while not engine.idle:
        step = engine.step(0.0)
        decoding = [job for job, _ in step.emitted if job not in step.prefilled]
        for job in jobs:
            if job.preemptions > preempted[job]:
                preempted[job], computed[job] = job.preemptions, 0
        reads = sum(job.ask.prompt_tokens + emitted[job] for job in decoding)
        chunk_tokens = step.batched_tokens - len(decoding) * (arm.k + 1)
        for job in jobs:
            if job in decoding or math.isnan(job.scheduled_s) or (job.finish and job not in step.prefilled):
                continue
            whole = job.ask.prompt_tokens + emitted[job]
            now = whole if job in step.prefilled else whole - job.left
            if now > computed[job]:  # a piece of its prompt was computed
                chunk_tokens -= now - computed[job]
                computed[job] = now
                reads += now
        assert chunk_tokens == 0
        cost = arm.step_s(step.batched_tokens, reads, drafting=len(step.emitted))
        assert step.end_s - step.start_s == pytest.approx(cost, rel=1e-9)
        for job, tokens in step.emitted:
            emitted[job] += tokens
        assert step.batched_tokens <= arm.max_batched_tokens
        batches.add(len(step.emitted))
    assert max(batches) > 3


def test_equal_seeds_give_equal_histories_and_others_do_not() -> None:
    first, second, other = (run_ahead(EAGLE, seed)[1] for seed in (1, 1, 2))
    assert [job.chunk_times_s for job in first] == [job.chunk_times_s for job in second]
    assert story(first) != story(other)


def test_luck_belongs_to_the_prompt_whatever_the_company() -> None:
    crowd = {job.ask.key: job.chunk_tokens for job in run_ahead(EAGLE)[1]}
    for _, ask in asks(20):
        engine = Engine(EAGLE, 1)
        alone = engine.submit(5.0, ask)
        engine.advance()
        assert alone.chunk_tokens == crowd[ask.key]


def test_memory_runs_out_under_load_and_all_are_served_all_the_same() -> None:
    engine, jobs = run_ahead(TIGHT)
    counters = engine.counters()
    assert counters.preemptions == sum(job.preemptions for job in jobs) > 5
    assert run_ahead(replace(TIGHT, kv_limit_tokens=400_000))[0].counters().preemptions == 0


def test_memory_is_never_overdrawn() -> None:
    engine = Engine(TIGHT, 1)
    for at, ask in asks(120):
        engine.submit(at, ask)
    seen = []
    while not engine.idle:
        engine.step(0.0)
        seen.append(engine.counters().kv_use_ratio)
    assert 0.9 < max(seen) <= 1.0


def test_a_long_prompt_is_computed_in_chunks_beside_running_requests() -> None:
    arm = replace(H100, max_batched_tokens=256, max_seqs=8)
    engine = Engine(arm, 1)
    engine.submit(-arm.frontend_s, Ask(key=1, prompt_tokens=10, output_tokens=50))
    engine.step(0.0)
    long = engine.submit(engine.clock_s, Ask(key=2, prompt_tokens=600, output_tokens=1))
    sizes = []
    while not long.finish:
        sizes.append(engine.step(0.0).batched_tokens)
    assert sizes == [1, 256, 256, 91]  # one decode beside 255, 255 and 90 tokens, after one that it came too late for


def test_cached_tokens_are_not_computed_but_one_always_is() -> None:
    engine = Engine(H100, 1)
    engine.submit(0.0, Ask(key=1, prompt_tokens=100, cached_tokens=64, output_tokens=1))
    assert engine.step(0.0).batched_tokens == 36
    engine.submit(1.0, Ask(key=1, prompt_tokens=64, cached_tokens=64, output_tokens=1))
    assert engine.step(1.0).batched_tokens == 1
    counters = engine.counters()
    assert (counters.prefix_queries, counters.prefix_hits) == (164, 127)
    forgetful = Engine(replace(H100, cache_lost_blocks=2), 1)
    forgetful.submit(0.0, Ask(key=1, prompt_tokens=100, cached_tokens=64, output_tokens=1))
    assert forgetful.step(0.0).batched_tokens == 68


def test_no_more_requests_run_than_there_are_seats() -> None:
    engine = Engine(replace(EAGLE, max_seqs=3), 1)
    for number in range(9):
        engine.submit(0.0, Ask(key=number, prompt_tokens=10, output_tokens=20))
    waiting = []
    while not engine.idle:
        engine.step(0.0)
        counters = engine.counters()
        assert counters.running <= 3
        waiting.append(counters.waiting)
    assert max(waiting) == 6


def test_a_request_waits_for_the_step_under_way() -> None:
    engine = Engine(H100, 1)
    first = engine.submit(0.0, Ask(key=1, prompt_tokens=10, output_tokens=40))
    late = engine.submit(0.0041, Ask(key=2, prompt_tokens=10, output_tokens=2))
    while not engine.idle:
        engine.advance()
    assert late.scheduled_s == first.chunk_times_s[0]
    assert late.first_token_s == first.chunk_times_s[1]


def test_nothing_happens_beyond_the_time_asked_for() -> None:
    engine = Engine(EAGLE, 1)
    jobs = [engine.submit(0.0, Ask(key=number, prompt_tokens=50, output_tokens=100)) for number in range(4)]
    assert engine.advance(0.2) == []
    assert 0.19 < engine.clock_s <= 0.2
    before = engine.counters()
    assert engine.advance(engine.clock_s + 1e-4) == []
    assert engine.counters() == before
    late = engine.submit(0.2, Ask(key=9, prompt_tokens=50, output_tokens=2))
    while not engine.idle:
        engine.advance()
    assert late.scheduled_s > 0.2
    assert all(job.finish == "length" for job in jobs)


def test_cancelling_frees_the_place_and_keeps_the_tokens_counted() -> None:
    engine = Engine(EAGLE, 1)
    jobs = [engine.submit(0.0, Ask(key=number, prompt_tokens=50, output_tokens=100)) for number in range(3)]
    future = engine.submit(9.0, Ask(key=8, prompt_tokens=50, output_tokens=100))
    engine.advance(0.1)
    engine.cancel(jobs[1])
    engine.cancel(jobs[1])
    engine.cancel(future)
    alone = Engine(EAGLE, 1)
    alone.submit(0.0, Ask(key=1, prompt_tokens=50, output_tokens=100))
    while not engine.idle:
        engine.advance()
    counters = engine.counters()
    assert counters.finished == {"stop": 0, "length": 2, "abort": 0, "error": 0, "repetition": 0}
    assert 1 < sum(jobs[1].chunk_tokens) < 100
    assert counters.generation_tokens == 200 + sum(jobs[1].chunk_tokens)
    assert counters.kv_use_ratio == 0


def test_acceptance_drifts_with_time_and_falls_with_load() -> None:
    def tau(arm: ArmModel, at: float, users: int) -> float:
        engine = Engine(arm, 1)
        for number in range(users):
            engine.submit(at, Ask(key=mix(number), prompt_tokens=50, output_tokens=200))
        while not engine.idle:
            engine.advance()
        counters = engine.counters()
        return 1 + counters.accepted / counters.drafts

    drift, load = WORLDS["drift"].speculative, WORLDS["load-acceptance"].speculative
    assert tau(drift, 0, 40) == pytest.approx(2.3, abs=0.1)
    assert tau(drift, 300, 40) < 1.5
    assert tau(load, 0, 40) < tau(load, 300, 4) - 0.3
    flat = WORLDS["eagle3"].speculative
    assert tau(flat, 0, 40) == tau(flat, 300, 40)


def test_starts_differ_in_speed_where_the_world_says_so() -> None:
    arm = WORLDS["starts"].baseline
    ends = []
    for seed in range(200):
        engine = Engine(arm, seed)
        ends.append(engine.submit(0.0, Ask(key=1, prompt_tokens=10, output_tokens=2)))
        engine.advance()
    times = [math.log(job.finished_s - job.scheduled_s) for job in ends]
    mean = sum(times) / len(times)
    assert math.sqrt(sum((t - mean) ** 2 for t in times) / len(times)) == pytest.approx(0.02, rel=0.15)


@pytest.mark.parametrize(("prompt", "output"), [(0, 5), (5, 0), (16_000, 1000)])
def test_what_can_never_be_served_is_refused(prompt: int, output: int) -> None:
    with pytest.raises(ValueError, match=r"token|max_model_len"):
        Engine(H100, 1).submit(0.0, Ask(key=1, prompt_tokens=prompt, output_tokens=output))


def test_an_idle_engine_has_no_step() -> None:
    engine = Engine(H100, 1)
    assert engine.next_start_s() == math.inf
    assert engine.advance() == []
    with pytest.raises(RuntimeError, match="idle"):
        engine.step(0.0)


def test_long_runs_outlast_the_window_of_steps_kept() -> None:
    engine = Engine(H100, 1)
    last = []
    for round_ in range(30):
        job = engine.submit(engine.clock_s, Ask(key=round_, prompt_tokens=5, output_tokens=2000))
        engine.advance()
        last.append(job)
    assert engine.counters().steps == 60_000
    assert all(len(job.chunk_times_s) == 2000 and job.chunk_times_s == sorted(job.chunk_times_s) for job in last)
