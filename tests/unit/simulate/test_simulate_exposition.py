"""/metrics: vLLM's names, Prometheus' format, and the same figures for a virtual scrape."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from loadtest.simulate.engine import Engine
from loadtest.simulate.exposition import Buckets, render, values
from loadtest.simulate.jobs import Ask, Counters
from loadtest.simulate.models import ArmModel
from loadtest.simulate.worlds import WORLDS

CAPTURED = set((Path(__file__).parent / "vllm_0_32_metric_names.txt").read_text(encoding="utf-8").splitlines()[1:])


ARMS = pytest.mark.parametrize(
    ("role", "world"), [("baseline", "default"), ("speculative", "default"), ("speculative", "memory")]
)


def worked(arm: ArmModel) -> tuple[Counters, Buckets]:
    engine, buckets = Engine(arm, 1), Buckets()
    for number in range(40):
        engine.submit(number * 0.01, Ask(key=number, prompt_tokens=100 + number, output_tokens=60, finish="stop"))
    while not engine.idle:
        before = engine.clock_s
        step = engine.step(0.0)
        buckets.step(step, step.end_s - before)
    return engine.counters(), buckets


def text_of(role: str, world: str = "default") -> str:
    arm = WORLDS[world].arm(role)
    counters, buckets = worked(arm)
    return render(counters, buckets, speculates=arm.declared_k > 0, model='m"1', created_s=1.5e9,
                  cache_config={"block_size": "16"})  # fmt: skip


@ARMS
def test_every_name_is_one_of_vllms(role: str, world: str) -> None:
    names = {sample.split("{")[0] for sample in text_of(role, world).splitlines() if not sample.startswith("#")}
    assert names <= CAPTURED
    speculative = {name for name in CAPTURED if name.startswith("vllm:spec_decode_")}
    assert len(speculative) == 8
    assert (speculative & names) == (speculative if role == "speculative" else set())


def test_a_declared_drafter_shows_its_counters_at_zero() -> None:
    for world in ("k0", "silent-off"):
        sums, slots = values(Engine(WORLDS[world].speculative, 1).counters(), speculates=True)
        assert sums["vllm:spec_decode_num_drafts_total"] == 0
        assert slots == [0, 0, 0, 0, 0]


def test_text_and_virtual_scrape_tell_the_same() -> None:
    arm = WORLDS["default"].speculative
    counters, buckets = worked(arm)
    sums, slots = values(counters, speculates=True)
    text = render(counters, buckets, speculates=True, model='m"1', created_s=1.5e9, cache_config={"block_size": "16"})
    parsed: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if not sample.name.endswith(("_bucket", "_created", "_info")):
                parsed[sample.name] = parsed.get(sample.name, 0.0) + sample.value
                assert sample.labels["model_name"] == 'm"1'
    assert parsed == pytest.approx(sums)
    assert sum(slots) == sums["vllm:spec_decode_num_accepted_tokens_total"] > 0
    assert sums["vllm:generation_tokens_total"] == 40 * 60
    assert sums["vllm:request_success_total"] == 40


@ARMS
def test_buckets_agree_with_their_counts(role: str, world: str) -> None:
    highest: dict[str, float] = {}
    counts: dict[str, float] = {}
    rising: dict[str, list[float]] = {}
    for line in text_of(role, world).splitlines():
        name, _, value = line.rpartition(" ")
        bare = name.split("{")[0]
        if line.startswith("#"):
            continue
        if bare.endswith("_bucket"):
            rising.setdefault(bare.removesuffix("_bucket"), []).append(float(value))
            if 'le="+Inf"' in name:
                highest[bare.removesuffix("_bucket")] = float(value)
        elif bare.endswith("_count"):
            counts[bare.removesuffix("_count")] = float(value)
    assert highest == counts
    assert len(counts) == 11
    assert all(series == sorted(series) for series in rising.values())
