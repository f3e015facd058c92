"""What metrics, answers, findings and exit codes are called for a reader."""

from __future__ import annotations

from dataclasses import dataclass

from loadtest.analyse.estimates import Crossing
from loadtest.analyse.gate_results import GateOutcome
from loadtest.analyse.results import Answer, Finding
from loadtest.errors import ExitCode
from loadtest.report import words


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricWords:
    """How a metric is called, written and defined. `better` is `lower`, `higher` or empty."""

    label: str
    short: str
    unit: str  # s · tokens/s · requests/s · share · tokens
    better: str
    definition: str

    @property
    def form(self) -> words.Format:
        """Return the way to write its values."""
        return {"s": words.time, "share": words.share}.get(self.unit, words.count)


_METRICS = (  # name, label, short, unit, better, definition
    ("ttft", "time to first token", "TTFT", "s", "lower",
     "arrival of the first chunk that carries a token, minus the moment the request was due"),
    ("ttft_visible", "time to first visible text", "TTFT visible", "s", "lower",
     "arrival of the first visible text, minus the moment the request was due"),
    ("e2e", "end-to-end time", "E2E", "s", "lower", "arrival of the last chunk, minus the moment the request was due"),
    ("tpot", "time per output token", "TPOT", "s", "lower",
     "(last chunk − first chunk) ÷ (tokens − tokens of the first chunk), one value per request"),
    ("token_gap", "gap between tokens", "token gap", "s", "lower",
     "for the first token of a chunk the time since the chunk before, 0 for its other tokens; pooled over all tokens"),
    ("chunk_gap", "gap between chunks", "chunk gap", "s", "",
     "time between two chunks, pooled: the engine step as the user sees it; speculation lengthens it by design"),
    ("worst_stall", "worst stall", "worst stall", "s", "lower", "the largest gap between two chunks of a request"),
    ("tokens_per_chunk", "tokens per chunk", "tokens/chunk", "tokens", "",
     "tokens that arrived together, from the second chunk on"),
    ("on_time", "tokens on time", "on time", "share", "higher",
     "share of tokens delivered by their deadline at decision.reading_pace (tokens/s), early tokens credited"),
    ("output_tokens_per_s", "output throughput", "tokens/s", "tokens/s", "higher",
     "tokens that arrived in the window ÷ its length; with think time or in open load it is no capacity"),
    ("requests_per_s", "completed requests", "requests/s", "requests/s", "higher",
     "requests completed in the window ÷ its length"),
    ("goodput_per_s", "goodput", "goodput", "requests/s", "higher",
     "requests due in the window that met every SLO ÷ its length"),
    ("error_ratio", "failed requests", "errors", "share", "lower", "requests that were not ok ÷ requests due"),
)  # fmt: skip
METRICS: dict[str, MetricWords] = {
    name: MetricWords(label=label, short=short, unit=unit, better=better, definition=definition)
    for name, label, short, unit, better, definition in _METRICS
}

OUTCOMES = {
    GateOutcome.PASS: "pass",
    GateOutcome.FAIL: "fail",
    GateOutcome.INCONCLUSIVE: "inconclusive",
    GateOutcome.NO_DATA: "no data",
    GateOutcome.INVALID: "invalid",
}


def metric(name: str) -> MetricWords:
    """Return the words of a metric; an unknown one is called by its name."""
    return METRICS.get(name) or MetricWords(
        label=words.plain(name), short=words.plain(name), unit="", better="", definition=""
    )


ANSWERS = {
    Answer.PAYS_UP_TO: "pays up to a limit",
    Answer.PAYS_EVERYWHERE: "pays at every tested load",
    Answer.PAYS_IN_BAND: "pays in a band",
    Answer.NEVER_PAYS: "never pays",
    Answer.CANNOT_TELL: "cannot tell yet",
    Answer.INVALID: "invalid",
    Answer.MEASURED: "measured, not judged",
}

CROSSINGS = {
    Crossing.PAYS_UP_TO: "better up to",
    Crossing.PAYS_EVERYWHERE: "better at every tested load",
    Crossing.NEVER_PAYS: "not better at any tested load",
    Crossing.PAYS_FROM: "better from",
    Crossing.BAND: "better in a band",
    Crossing.CANNOT_TELL: "cannot tell",
    Crossing.NO_DATA: "no data",
}

FINDINGS = {
    Finding.HOLDS: "holds",
    Finding.BROKEN: "broken",
    Finding.UNPROVEN: "not proven",
    Finding.NO_DATA: "no data",
}

EXITS = {
    ExitCode.PASS: "pass",
    ExitCode.CRASH: "crash",
    ExitCode.USAGE: "usage or configuration",
    ExitCode.FAILED: "failed",
    ExitCode.INCONCLUSIVE: "inconclusive",
    ExitCode.INVALID: "invalid run, or servers not comparable",
    ExitCode.INTERRUPTED: "interrupted",
}


def exit_words(code: int) -> str:
    """Return what an exit code means: `0 (pass)`."""
    try:
        return f"{code} ({EXITS[ExitCode(code)]})"
    except ValueError:
        return str(code)
