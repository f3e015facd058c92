"""What metrics, answers, findings and exit codes are called for a reader."""

from __future__ import annotations

from dataclasses import dataclass

from loadtest.analyse.estimates import Crossing
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


METRICS: dict[str, MetricWords] = {
    "ttft": MetricWords(
        label="time to first token", short="TTFT", unit="s", better="lower",
        definition="arrival of the first chunk that carries a token, minus the moment the request was due",
    ),
    "ttft_visible": MetricWords(
        label="time to first visible text", short="TTFT visible", unit="s", better="lower",
        definition="arrival of the first visible text, minus the moment the request was due",
    ),
    "e2e": MetricWords(
        label="end-to-end time", short="E2E", unit="s", better="lower",
        definition="arrival of the last chunk, minus the moment the request was due",
    ),
    "tpot": MetricWords(
        label="time per output token", short="TPOT", unit="s", better="lower",
        definition="(last chunk − first chunk) ÷ (tokens − tokens of the first chunk), one value per request",
    ),
    "token_gap": MetricWords(
        label="gap per token", short="token gap", unit="s", better="lower",
        definition="for the first token of a chunk the time since the chunk before, 0 for its other tokens; "
        "pooled over all tokens",
    ),
    "chunk_gap": MetricWords(
        label="gap between chunks", short="chunk gap", unit="s", better="",
        definition="time between two chunks, pooled: the engine step as the user sees it; speculation lengthens it "
        "by design, since one step brings several tokens",
    ),
    "worst_stall": MetricWords(
        label="worst stall", short="worst stall", unit="s", better="lower",
        definition="the largest gap between two chunks of a request",
    ),
    "tokens_per_chunk": MetricWords(
        label="tokens per chunk", short="tokens/chunk", unit="tokens", better="",
        definition="tokens that arrived together, from the second chunk on",
    ),
    "on_time": MetricWords(
        label="tokens on time", short="on time", unit="share", better="higher",
        definition="share of tokens delivered by their deadline at a stated reading pace, early tokens credited",
    ),
    "output_tokens_per_s": MetricWords(
        label="output throughput", short="tokens/s", unit="tokens/s", better="higher",
        definition="tokens that arrived in the window ÷ its length; with think time or in open load it is the load "
        "carried, not a capacity",
    ),
    "requests_per_s": MetricWords(
        label="completed requests", short="requests/s", unit="requests/s", better="higher",
        definition="requests completed in the window ÷ its length",
    ),
    "goodput_per_s": MetricWords(
        label="goodput", short="goodput", unit="requests/s", better="higher",
        definition="requests due in the window that met every SLO ÷ its length",
    ),
    "error_ratio": MetricWords(
        label="failed requests", short="errors", unit="share", better="lower",
        definition="requests that were not ok ÷ requests due",
    ),
}  # fmt: skip


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
