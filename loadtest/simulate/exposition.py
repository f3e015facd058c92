"""The figures of /metrics under vLLM's names: as values for a virtual scrape, and as text in Prometheus' format."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from loadtest.simulate.jobs import Counters, Job, Step, Total

Labels = tuple[tuple[str, str], ...]

# Upper bounds of vLLM's histograms (0.32.0), in seconds or tokens.
_TTFT = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0,
         160.0, 640.0, 2560.0)  # fmt: skip
_TOKEN = (0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0, 80.0)
_REQUEST = (0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0, 10.0, 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0,
            960.0, 1920.0, 7680.0)  # fmt: skip
_ITERATION = (1.0, *(float(1 << power) for power in range(3, 15)))
_LENGTH = tuple(float(step * 10**power) for power in range(4) for step in (1, 2, 5))


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One metric family: exposition name, type, what it is, and its samples (name suffix, labels, value)."""

    name: str
    kind: str
    text: str
    samples: tuple[tuple[str, Labels, float], ...]


_HISTOGRAMS: tuple[tuple[str, str, str, tuple[float, ...]], ...] = (
    ("ttft", "time_to_first_token_seconds", "From arrival to the first token.", _TTFT),
    ("inter_token", "inter_token_latency_seconds", "Between a request's decode steps.", _TOKEN),
    ("time_per_token", "request_time_per_output_token_seconds", "Decode time by output token.", _TOKEN),
    ("e2e", "e2e_request_latency_seconds", "From arrival to the last token.", _REQUEST),
    ("queue", "request_queue_time_seconds", "Waiting to be scheduled.", _REQUEST),
    ("inference", "request_inference_time_seconds", "From being scheduled to the last token.", _REQUEST),
    ("prefill", "request_prefill_time_seconds", "From being scheduled to the first token.", _REQUEST),
    ("decode", "request_decode_time_seconds", "From the first token to the last.", _REQUEST),
    ("request_prompt", "request_prompt_tokens", "Prompt tokens of a finished request.", _LENGTH),
    ("request_generation", "request_generation_tokens", "Output tokens of a finished request.", _LENGTH),
    ("iteration_tokens", "iteration_tokens_total", "Tokens in a step's batch.", _ITERATION),
)


def families(counters: Counters, *, speculates: bool) -> Iterator[Family]:
    """Yield every family that is served, without histogram buckets; spec_decode_* only where `speculates`."""
    if speculates:
        yield _counter("spec_decode_num_drafts", "Drafts verified.", counters.drafts)
        yield _counter("spec_decode_num_draft_tokens", "Draft tokens verified.", counters.draft_tokens)
        yield _counter("spec_decode_num_accepted_tokens", "Draft tokens accepted.", counters.accepted)
        slots = {str(slot): float(count) for slot, count in enumerate(counters.accepted_per_slot)}
        yield _split("spec_decode_num_accepted_tokens_per_pos", "Accepted draft tokens by slot.", "position", slots)
    yield _gauge("num_requests_running", "Requests in the batch.", counters.running)
    yield _gauge("num_requests_waiting", "Requests waiting for a place in the batch.", counters.waiting)
    yield _gauge("kv_cache_usage_perc", "Share of the KV cache in use, 0 to 1.", counters.kv_use_ratio)
    yield _counter("prefix_cache_queries", "Prompt tokens looked up in the prefix cache.", counters.prefix_queries)
    yield _counter("prefix_cache_hits", "Prompt tokens found in the prefix cache.", counters.prefix_hits)
    yield _counter("num_preemptions", "Requests that lost their memory and began again.", counters.preemptions)
    yield _counter("prompt_tokens", "Prompt tokens of completed prefills.", counters.prompt_tokens)
    computed = counters.prompt_tokens - counters.cached_tokens
    sources = {"local_compute": computed, "local_cache_hit": counters.cached_tokens, "external_kv_transfer": 0}
    yield _split("prompt_tokens_by_source", "Prompt tokens by where they came from.", "source", sources)
    yield _counter("prompt_tokens_cached", "Prompt tokens taken from the prefix cache.", counters.cached_tokens)
    yield _counter("generation_tokens", "Output tokens.", counters.generation_tokens)
    yield _split("request_success", "Requests by how they ended.", "finished_reason", counters.finished)
    for attribute, name, text, _ in _HISTOGRAMS:
        total: Total = getattr(counters, attribute)
        samples = (("_count", (), float(total.count)), ("_sum", (), float(total.sum)))
        yield Family(name=f"vllm:{name}", kind="histogram", text=text, samples=samples)


def _counter(name: str, text: str, value: float) -> Family:
    return Family(name=f"vllm:{name}_total", kind="counter", text=text, samples=(("", (), float(value)),))


def _gauge(name: str, text: str, value: float) -> Family:
    return Family(name=f"vllm:{name}", kind="gauge", text=text, samples=(("", (), float(value)),))


def _split(name: str, text: str, label: str, values: Mapping[str, float]) -> Family:
    samples = tuple(("", ((label, key),), float(value)) for key, value in values.items())
    return Family(name=f"vllm:{name}_total", kind="counter", text=text, samples=samples)


def values(counters: Counters, *, speculates: bool) -> tuple[dict[str, float], list[float]]:
    """Return what a scrape of /metrics comes to: (value by exposition name, labels summed; accepted tokens by slot)."""
    sums = {
        family.name + suffix: sum(value for other, _, value in family.samples if other == suffix)
        for family in families(counters, speculates=speculates)
        for suffix, _, _ in family.samples
    }
    return sums, [float(count) for count in counters.accepted_per_slot] if speculates else []


@dataclass(slots=True)
class Buckets:
    """Histogram buckets, filled step by step and request by request."""

    counts: dict[str, list[int]] = field(
        default_factory=lambda: {attribute: [0] * (len(bounds) + 1) for attribute, _, _, bounds in _HISTOGRAMS}
    )

    def add(self, attribute: str, value: float, times: int = 1) -> None:
        """Count a sample of a histogram, `times` times."""
        self.counts[attribute][bisect_left(_BOUNDS[attribute], value)] += times

    def step(self, step: Step, gap_s: float) -> None:
        """Count a step; its decoding requests last emitted `gap_s` before its end."""
        self.add("iteration_tokens", step.batched_tokens)
        for job in step.prefilled:
            if job.preemptions and len(job.chunk_times_s) > 1:
                self.add("inter_token", job.chunk_times_s[-1] - job.chunk_times_s[-2])
            else:
                self.add("ttft", job.first_token_s - job.arrival_s)
        decoding = len(step.emitted) - len(step.prefilled)
        if decoding:
            self.add("inter_token", gap_s, decoding)
        for job in step.finished:
            self.request(job)

    def request(self, job: Job) -> None:
        """Count a finished request."""
        decode_s, tokens = job.finished_s - job.first_token_s, job.ask.output_tokens
        self.add("time_per_token", decode_s / (tokens - 1) if tokens > 1 else 0.0)
        self.add("e2e", job.finished_s - job.arrival_s)
        self.add("queue", job.scheduled_s - job.ready_s)
        self.add("inference", job.finished_s - job.scheduled_s)
        self.add("prefill", job.first_token_s - job.scheduled_s)
        self.add("decode", decode_s)
        self.add("request_prompt", job.ask.prompt_tokens)
        self.add("request_generation", tokens)


_BOUNDS = {attribute: bounds for attribute, _, _, bounds in _HISTOGRAMS}
_ATTRIBUTES = {f"vllm:{name}": attribute for attribute, name, _, _ in _HISTOGRAMS}


def render(counters: Counters, buckets: Buckets, *, speculates: bool, model: str, created_s: float,
           cache_config: Mapping[str, str]) -> str:  # fmt: skip
    """Return the text of /metrics; `created_s` is the wall-clock time at which the counters began."""
    common = (("engine", "0"), ("model_name", model))
    lines: list[str] = []
    for family in families(counters, speculates=speculates):
        lines += _head(family.name, family.kind, family.text)
        if family.kind == "histogram":
            attribute = _ATTRIBUTES[family.name]
            lines += _bucket_lines(family.name, common, _BOUNDS[attribute], buckets.counts[attribute])
        lines += [_line(family.name + suffix, common + extra, value) for suffix, extra, value in family.samples]
        if family.kind != "gauge":
            lines += _created(family, common, created_s)
    name = "vllm:cache_config_info"
    lines += _head(name, "gauge", "Configuration of the KV cache.")
    lines.append(_line(name, (("engine", "0"), *cache_config.items()), 1.0))
    return "\n".join(lines) + "\n"


def _head(name: str, kind: str, text: str) -> list[str]:
    return [f"# HELP {name} {text}", f"# TYPE {name} {kind}"]


def _line(name: str, labels: Labels, value: float) -> str:
    inside = ",".join(f'{key}="{_escaped(text)}"' for key, text in sorted(labels))
    return f"{name}{{{inside}}} {value!r}"


def _escaped(text: str) -> str:
    return text.replace("\\", r"\\").replace("\n", r"\n").replace('"', r"\"")


def _bucket_lines(name: str, common: Labels, bounds: tuple[float, ...], counts: list[int]) -> list[str]:
    lines, reached = [], 0
    for bound, count in zip((*(repr(b) for b in bounds), "+Inf"), counts, strict=True):
        reached += count
        lines.append(_line(f"{name}_bucket", (*common, ("le", bound)), float(reached)))
    return lines


def _created(family: Family, common: Labels, created_s: float) -> list[str]:
    name = family.name.removesuffix("_total") + "_created" if family.kind == "counter" else f"{family.name}_created"
    labels = [extra for suffix, extra, _ in family.samples if suffix in ("", "_count")]
    return [*_head(name, "gauge", family.text), *(_line(name, common + extra, created_s) for extra in labels)]
