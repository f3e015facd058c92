"""Worlds: pairs of simulated servers, found by name. None of their figures is a measurement of anyone's hardware."""

from __future__ import annotations

from dataclasses import dataclass, replace

from loadtest.simulate.models import Acceptance, ArmModel


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """A simulated pair."""

    name: str
    about: str
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
EAGLE_COST = {"draft_floor_s": 2.13526175e-3, "draft_per_token_s": 8.41429603e-7, "draft_kv_s": 2.37768493e-9}

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

# Kinds of prompt differ in how well they are drafted (logit of conditional acceptance); the mix of a chat is near 0.
BY_CATEGORY = (("code", 0.35), ("maths", 0.3), ("summary", 0.1), ("translation", -0.25), ("writing", -0.4))


def drafting(arm: ArmModel, conditional: tuple[float, ...], **changes: object) -> ArmModel:
    """Return the arm with an EAGLE drafter whose slots are accepted at these conditional rates."""
    alive, survival = 1.0, []
    for rate in conditional:
        alive *= rate
        survival.append(alive)
    acceptance = Acceptance(survival=tuple(survival), spread=0.35, by_category=BY_CATEGORY)
    return replace(arm, acceptance=acceptance, declared_k=len(survival), **EAGLE_COST, **changes)  # type: ignore[arg-type]


# Conditional acceptance by slot of EAGLE on GSM8K, realised steps of the traces released with arXiv 2601.11580.
GSM8K = (0.66, 0.65, 0.63, 0.65, 0.62)
DEFAULT = drafting(H100, (0.44, 0.45, 0.47, 0.48, 0.48))


PRESETS = {
    "default": World(name="default", about="x", baseline=H100, speculative=DEFAULT),
    "eagle3": World(name="eagle3", about="x", baseline=H100, speculative=drafting(H100, GSM8K[:3])),
}


def world(name: str) -> World:
    """Return a preset by name; ValueError names the presets there are."""
    if name not in PRESETS:
        raise ValueError(f"there is no world {name!r}; there are {', '.join(PRESETS)}")
    return PRESETS[name]
