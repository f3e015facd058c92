"""Worlds: pairs of simulated servers, found by name. None of their figures is a measurement of anyone's hardware."""

from __future__ import annotations

import itertools
import operator
from dataclasses import dataclass, replace
from typing import Any

from loadtest.simulate.models import Acceptance, ArmModel


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A simulated pair."""

    name: str
    description: str
    baseline: ArmModel
    speculative: ArmModel

    def arm(self, role: str) -> ArmModel:
        """Return the arm of a role, `baseline` or `speculative`."""
        if role not in ("baseline", "speculative"):
            raise ValueError(f"an arm is baseline or speculative, not {role!r}")
        return self.baseline if role == "baseline" else self.speculative


# Llama-3.1-8B on one H100: step costs fitted by the simulator of "Speculative Decoding: Performance or Illusion?"
# (arXiv 2601.11580); 430,000 tokens of KV cache are what 16-bit weights leave of 80 GB at 131,072 bytes a token.
H100 = ArmModel(
    floor_s=5.88590713e-3,
    per_token_s=2.10103129e-5,
    per_kv_token_s=3.92645679e-8,
    overhead_s=1.20683946e-3,
)

# Llama-3-8B on one A100: layer times of Vidur's published profile (arXiv 2405.05465) plus 0.6 ms for the output layer,
# in seconds by batched tokens; KV read at 131,072 bytes a token and 1.6 TB/s.
_VIDUR_MS = (
    (1, 9.76), (8, 10.05), (16, 10.19), (32, 10.98), (64, 11.33), (96, 12.70), (128, 13.28), (160, 17.55), (192, 16.90),
    (256, 19.62), (320, 27.28), (384, 27.94), (512, 34.85), (1024, 75.55),
)  # fmt: skip
A100 = ArmModel(
    floor_s=0.0,
    per_token_s=0.0,
    per_kv_token_s=131_072 / 1.6e12,
    overhead_s=1.2e-3,
    staircase=tuple((tokens, (ms + 0.6) / 1e3) for tokens, ms in _VIDUR_MS),
    max_batched_tokens=2048,  # vLLM's defaults for this class of GPU
    max_seqs=256,
    kv_limit_tokens=360_000,
)

# Kinds of prompt differ in how well they are drafted (logit of conditional acceptance); an even mix is near 0.
BY_CATEGORY = (
    ("code", 0.3), ("maths", 0.25), ("summary", 0.1), ("chat", -0.15), ("translation", -0.25), ("writing", -0.4)
)  # fmt: skip


def drafting(arm: ArmModel, conditional: tuple[float, ...], *, spread: float = 0.35) -> ArmModel:
    """Return the arm with an EAGLE drafter whose slots are accepted at these conditional rates."""
    survival = tuple(itertools.accumulate(conditional, operator.mul))
    acceptance = Acceptance(survival=survival, spread=spread, by_category=BY_CATEGORY)
    return replace(arm, acceptance=acceptance, declared_k=len(survival), draft_floor_s=2.13526175e-3,
                   draft_per_token_s=8.41429603e-7, draft_kv_s=2.37768493e-9)  # fmt: skip


def faster(arm: ArmModel, gain: float) -> ArmModel:
    """Return the arm with a speculative configuration whose whole effect is that everything is `gain` faster.

    Its drafts cost nothing and bring nothing, so that the speed-up of every latency is 1 + gain at every load.
    """
    factor = 1 / (1 + gain)
    return replace(
        arm, floor_s=arm.floor_s * factor, per_token_s=arm.per_token_s * factor, overhead_s=arm.overhead_s * factor,
        per_kv_token_s=arm.per_kv_token_s * factor, frontend_s=arm.frontend_s * factor, free_drafts=True, declared_k=1,
        acceptance=Acceptance(survival=(1e-9,)),
    )  # fmt: skip


def accepting(arm: ArmModel, **changes: Any) -> ArmModel:
    """Return the arm with changed fields of its acceptance model."""
    assert arm.acceptance is not None
    return replace(arm, acceptance=replace(arm.acceptance, **changes))


def experts(expert_s: float, slope_s: float) -> ArmModel:
    """Return a mixture of experts: a step reads more experts the more tokens it holds, until all are read.

    The shape 1 − (1 − 1/16)^tokens is MoESD's (arXiv 2505.19645); floor, height and slope are invented so that the
    whole story happens within 80 users.
    """
    tokens = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128, 192, 256, 8192)
    stairs = tuple((n, 1e-3 + expert_s * (1 - (15 / 16) ** n) + slope_s * n) for n in tokens)
    return replace(H100, floor_s=0.0, per_token_s=0.0, staircase=stairs)


# Conditional acceptance by slot of EAGLE on GSM8K, realised steps of the traces released with arXiv 2601.11580.
GSM8K = (0.66, 0.65, 0.63, 0.65, 0.62)
MODEST = (0.44, 0.45, 0.46, 0.47, 0.47)

_EAGLE3 = drafting(H100, GSM8K[:3])
_MOE = experts(0.02, 1.4e-4)
_CALM = replace(H100, wander_sd=0.03, wander_s=0.5)  # noise for worlds in which nothing else differs
_RESTLESS = replace(H100, wander_sd=0.04, wander_s=4.0)
_SMALL = replace(H100, kv_limit_tokens=10_000, max_model_len=4096)
# No layers, no queue: every step takes 20 ms whatever the load. Calibrates a client.
_NULL = ArmModel(floor_s=0.020, per_token_s=0.0, per_kv_token_s=0.0, overhead_s=0.0, frontend_s=0.0)


def _worlds(*rows: tuple[str, str, ArmModel, ArmModel]) -> dict[str, World]:
    return {name: World(name=name, description=text, baseline=a, speculative=b) for name, text, a, b in rows}


WORLDS = _worlds(
    ("default", "An 8B model on an H100 with 5 draft tokens of modest acceptance: pays up to between 24 and 48 users.",
     H100, drafting(H100, MODEST)),
    ("eagle3", "The same model with 3 well accepted draft tokens: pays at every load up to 64 users.", H100, _EAGLE3),
    ("never", "Drafts that are hardly ever accepted: drafting costs more than it brings at any load.",
     H100, drafting(H100, (0.2, 0.2, 0.2, 0.2, 0.2))),
    ("band", "An A100, whose step costs rise in stairs, and 1 draft token: no gain, no loss in a wide band of loads.",
     A100, replace(drafting(A100, (0.42,)), draft_floor_s=3e-3)),
    ("moe", "A mixture of experts: loses at low load, pays at middle load, loses again at high load.",
     _MOE, drafting(_MOE, (0.5, 0.52, 0.52))),
    ("drift", "Acceptance falls while the server runs.", H100, accepting(_EAGLE3, drift_per_s=-0.006)),
    ("load-acceptance", "Acceptance falls as the running batch grows.", H100, accepting(_EAGLE3, per_doubling=-0.15)),
    # Per-token time 6.6 % up at 2 running requests and 21.6 % at 189, with nothing drafted: vLLM issue 49548.
    ("k0", "Speculation is configured but drafts nothing, and costs time all the same.", H100,
     replace(H100, declared_k=5, overhead_s=H100.overhead_s + 0.45e-3, per_token_s=H100.per_token_s + 1.03e-5)),
    ("silent-off", "Speculation is configured but silently off: the arms are equally fast.", H100,
     replace(H100, declared_k=5)),
    ("failures", "The speculative server answers 3 % of the requests with an error.", H100,
     replace(_EAGLE3, failure_ratio=0.03)),
    ("starts", "Every start of a server is a little faster or slower than the last (2 %).",
     replace(H100, start_sd=0.02), replace(drafting(H100, MODEST), start_sd=0.02)),
    ("cache", "Speculation makes the server compute four blocks of every prefix-cache hit again.",
     H100, replace(_EAGLE3, cache_lost_blocks=4)),
    ("late-first", "Tokens come faster, but only 40 requests run at once: above that, first tokens wait for a place.",
     H100, replace(_EAGLE3, max_seqs=40)),
    ("categories", "Drafts fare well for code and maths, and badly for the other kinds of prompt.", H100,
     accepting(drafting(H100, MODEST), by_category=(("code", 1.6), ("maths", 1.4), ("summary", 0.2), ("chat", -0.5),
                                                    ("translation", -1.2), ("writing", -1.5)))),
    ("wander", "Both servers are now faster, now slower (4 %, over seconds): latencies come in spells.",
     _RESTLESS, drafting(_RESTLESS, MODEST)),
    ("flat-0", "Speculation changes nothing at any load, though it drafts.", _CALM, faster(_CALM, 0.0)),
    ("flat-1", "Speculation makes everything 1 % faster at every load.", _CALM, faster(_CALM, 0.01)),
    ("flat-3", "Speculation makes everything 3 % faster at every load.", _CALM, faster(_CALM, 0.03)),
    ("flat-5", "Speculation makes everything 5 % faster at every load.", _CALM, faster(_CALM, 0.05)),
    ("aa-wander", "Two equal servers without speculation, each now faster, now slower (3 %).", _CALM, _CALM),
    ("astray", "A bug: the speculative server gives another answer to one prompt in five, from some token on.",
     H100, replace(_EAGLE3, astray_ratio=0.2)),
    ("memory", "Little memory for the KV cache: requests are preempted under load.",
     _SMALL, drafting(_SMALL, GSM8K[:3])),
    ("aa", "Two equal servers without speculation.", H100, H100),
    ("null", "Two equal servers whose steps take 20 ms at any load: shows what the client adds.", _NULL, _NULL),
)  # fmt: skip


def world(name: str) -> World:
    """Return a preset by name; ValueError names the presets there are."""
    if name not in WORLDS:
        raise ValueError(f"there is no world {name!r}; there are {', '.join(WORLDS)}")
    return WORLDS[name]
