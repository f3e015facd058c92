"""The cost of a step: the formula against figures worked out by hand and published break-evens."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from loadtest.simulate.models import Acceptance, ArmModel
from loadtest.simulate.worlds import A100, H100, WORLDS, drafting, world


def test_step_of_64_decodes_at_512_tokens_of_context() -> None:
    # 5.88590713 + 64 × 0.0210103129 + 32768 × 3.92645679e-5 + 1.20683946 ms
    assert H100.step_s(64, 64 * 512) == pytest.approx(9.724027e-3, rel=1e-6)


def test_drafting_adds_floor_slope_and_its_own_kv_read() -> None:
    arm = drafting(H100, (0.6, 0.6, 0.6))
    plain, with_draft = arm.step_s(256, 32768), arm.step_s(256, 32768, drafting=64)
    # 2.13526175 + 3 × 64 × 8.41429603e-4 + 32768 × 2.37768493e-6 ms
    assert with_draft - plain == pytest.approx(2.374728e-3, rel=1e-6)
    assert H100.step_s(256, 32768, drafting=64) == H100.step_s(256, 32768)


@pytest.mark.parametrize(
    ("k", "tau", "context", "break_even"),
    [(3, 2.2, 128, 199), (3, 2.2, 512, 427), (3, 1.8, 128, 83), (3, 1.8, 512, 113), (3, 1.8, 1024, 214),
     (5, 2.5, 128, 128), (5, 2.5, 512, 191), (5, 2.5, 1024, 543), (5, 1.5, 128, 15), (5, 1.5, 2048, 24)],
)  # fmt: skip
def test_decode_break_even_of_the_closed_form(k: int, tau: float, context: int, break_even: int) -> None:
    # τ × baseline step = speculative step, on the published H100 constants without the drafter's slope per token.
    arm = replace(drafting(H100, (0.5,) * k), draft_per_token_s=0.0)

    def gain(batch: int) -> float:
        spec = arm.step_s(batch * (k + 1), batch * context, drafting=batch)
        return tau * H100.step_s(batch, batch * context) / spec

    below, above = round(break_even * 0.985 - 1), round(break_even * 1.015 + 1)
    assert gain(below) > 1 > gain(above)


def test_a_staircase_goes_through_its_points_and_on_beyond_them() -> None:
    forward = A100.forward_s()
    assert forward[1] == pytest.approx(10.36e-3)
    assert forward[160] == pytest.approx(18.15e-3)
    assert forward[192] == pytest.approx(17.50e-3)  # more tokens, less time
    assert forward[144] == pytest.approx((13.88e-3 + 18.15e-3) / 2)
    assert forward[2048] == pytest.approx(76.15e-3 + 1024 * (75.55e-3 - 34.85e-3) / 512)


@pytest.mark.parametrize("survival", [(), (0.4, 0.5), (1.2,), (0.5, 0.0)])
def test_a_survival_curve_falls_and_stays_positive(survival: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="survival"):
        Acceptance(survival=survival)


@pytest.mark.parametrize(
    ("changes", "said"),
    [({"declared_k": 2}, "declared_k"), ({"max_seqs": 8192}, "max_batched_tokens"),
     ({"kv_limit_tokens": 9000}, "kv_limit"), ({"max_model_len": 40_000}, "max_model_len")],
)  # fmt: skip
def test_an_impossible_arm_is_refused(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        replace(drafting(H100, (0.5,)), **changes)


def test_worlds_are_found_by_name() -> None:
    assert world("default") is WORLDS["default"]
    with pytest.raises(ValueError, match="no world 'defalt'; there are default, eagle3, never"):
        world("defalt")
    with pytest.raises(ValueError, match="baseline or speculative"):
        world("default").arm("candidate")


@pytest.mark.parametrize("name", list(WORLDS))
def test_every_world_is_named_as_it_is_found_and_described_in_a_sentence(name: str) -> None:
    described = WORLDS[name]
    assert described.name == name
    assert described.description.endswith(".")
    assert described.baseline.declared_k == 0
    assert isinstance(described.arm("speculative"), ArmModel)
    # What a rollout would change is speculation alone: limits are equal in both arms, but where a world is about one.
    limits = {"max_batched_tokens", "max_seqs", "kv_limit_tokens", "max_model_len", "frontend_s"}
    differ = {limit for limit in limits if getattr(described.baseline, limit) != getattr(described.speculative, limit)}
    everything_faster = name.startswith("flat-") and name != "flat-0"
    assert differ == ({"frontend_s"} if everything_faster else {"max_seqs"} if name == "late-first" else set())
