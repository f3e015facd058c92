"""Optional fields are tried one by one, and both arms are asked only what both take; rate limits are read."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from answering import AnsweringServer, Handler

from loadtest.drive.pair import introduce
from loadtest.drive.preflight import agreed, optional_fields, salted, takes_salt, trial_notes
from loadtest.drive.rate_limits import refuse_above_limits, token_notes
from loadtest.errors import UsageError
from loadtest.servers.control import Arm
from loadtest.servers.kinds import KINDS, OPENAI
from loadtest.settings import Experiment, Generation, Load

STREAM = "".join(
    f"data: {json.dumps(said)}\n\n"
    for said in (
        {"id": "c", "choices": [{"index": 0, "delta": {"content": "a"}}], "usage": {"completion_tokens": 1}},
        {"id": "c", "choices": [{"index": 0, "delta": {"content": "b"}, "finish_reason": "length"}],
         "usage": {"completion_tokens": 2, "prompt_tokens": 40}},
    )
) + "data: [DONE]\n\n"  # fmt: skip


UNCOUNTED = "".join(
    f"data: {json.dumps(said)}\n\n"
    for said in (
        {"id": "c", "choices": [{"index": 0, "delta": {"content": "a"}}]},
        {"id": "c", "choices": [{"index": 0, "delta": {"content": "b"}, "finish_reason": "length"}]},
        {"id": "c", "choices": [], "usage": {"completion_tokens": 2, "prompt_tokens": 40}},
    )
) + "data: [DONE]\n\n"  # fmt: skip


class Gateway(AnsweringServer):
    """An OpenAI-compatible server that refuses some fields of a request, wherever they stand in it."""

    def __init__(self, refused: tuple[str, ...] = (), status: int = 400, headers: dict[str, str] | None = None,
                 owner: str = "someone") -> None:  # fmt: skip
        self.bodies: list[dict[str, Any]] = []
        outer = self

        class Answers(Handler):
            def do_GET(self) -> None:
                known = self.path == "/v1/models"
                self._tell(
                    200 if known else 404, f'{{"data": [{{"id": "m", "owned_by": "{owner}"}}]}}' if known else "{}"
                )

            def do_POST(self) -> None:
                body = self.body()
                if self.path != "/v1/chat/completions":
                    return self._tell(404, "{}")
                outer.bodies.append(body)
                wrong = set(refused) & {*body, *body.get("stream_options", ())}
                if status == 200:  # it takes everything, and passes over what it does not know
                    return self._tell(200, STREAM if not wrong else UNCOUNTED)
                return self._tell(status, '{"error": "unknown field"}') if wrong else self._tell(200, STREAM)

            def _tell(self, code: int, text: str) -> None:
                kind = "text/event-stream" if text.startswith("data") else "application/json"
                self.say(code, text, {"Content-Type": kind, **(headers or {})})

        super().__init__(Answers)


@pytest.fixture
def gateways() -> Iterator[list[Gateway]]:
    made: list[Gateway] = []
    yield made
    for each in made:
        each.stop()


def pair(gateways: list[Gateway], first: Gateway, second: Gateway, generation: Generation):
    gateways += [first, second]
    named = (("baseline", "baseline", first), ("fast", "candidate", second))
    met = [introduce(Arm(name=name, role=role, url=server.url), generation) for name, role, server in named]
    return [arm for arm, _ in met], {arm.name: identity for arm, identity in met}


ASKING = Generation(top_k=20, seed=3)


def test_each_optional_field_is_tried_in_a_request_of_its_own(gateways: list[Gateway]) -> None:
    first, second = Gateway(), Gateway(("cache_salt", "return_token_ids"))
    arms, identities = pair(gateways, first, second, ASKING)
    tried = [set(body) - {"model", "messages", "max_tokens", "temperature", "stream", "stream_options"}
             for body in first.bodies[:7]]  # fmt: skip
    assert tried == [set(), set(), set(), {"return_token_ids"}, {"cache_salt"}, {"top_k"}, {"seed"}]
    assert [identities["fast"].refused, identities["fast"].tried] == [("return_token_ids", "cache_salt"), 7]
    both = agreed(arms, identities, ASKING)
    assert {name: arm.counts for name, arm in both.items()} == dict.fromkeys(both, ("continuous", "none"))
    assert salted(identities) == {"baseline": False, "fast": False}
    assert trial_notes(identities, "salt")[0].startswith(
        "No cache_salt is taken by fast, so that none is sent: requests"
    )
    assert [note.partition(" ")[0] for note in trial_notes(identities, "nonce")] == ["7", "7"]


def test_what_both_take_is_used_on_both(gateways: list[Gateway]) -> None:
    arms, identities = pair(gateways, Gateway(), Gateway(), ASKING)
    assert salted(identities) == {"baseline": True, "fast": True}
    assert [note.partition(" ")[0] for note in trial_notes(identities, "salt")] == ["7", "7"]
    assert agreed(arms, identities, ASKING)["fast"].counts == ("continuous", "ids", "none")
    assert identities["fast"].kind == "openai"


def test_a_running_count_that_one_arm_refuses_is_asked_of_neither(gateways: list[Gateway]) -> None:
    arms, identities = pair(gateways, Gateway(("continuous_usage_stats",), 422), Gateway(), ASKING)
    assert agreed(arms, identities, ASKING)["fast"].counts == ("ids", "none")


def test_a_running_count_that_one_arm_passes_over_is_asked_of_neither(gateways: list[Gateway]) -> None:
    """It answers with status 200, as if it had been asked for nothing; the arms would be asked in two ways."""
    arms, identities = pair(gateways, Gateway(("continuous_usage_stats",), 200), Gateway(), ASKING)
    assert identities["baseline"].refused == ("continuous_usage_stats",)
    assert agreed(arms, identities, ASKING)["fast"].counts == ("ids", "none")


def test_a_known_server_behind_one_that_passes_over_its_counts_is_tried_too(gateways: list[Gateway]) -> None:
    gateways.append(Gateway(("continuous_usage_stats",), 200, owner="vllm"))
    arm, identity = introduce(Arm(name="server", role="single", url=gateways[0].url), ASKING)
    assert (identity.refused, arm.counts) == (("continuous_usage_stats",), ("ids", "none"))


def test_where_a_chat_request_leads_elsewhere(gateways: list[Gateway]) -> None:
    gateways.append(Gateway(("messages",), 307, {"Location": "https://other.example/v1"}))
    with pytest.raises(
        UsageError, match=r"HTTP 307 \(it redirects to https://other\.example/v1; redirects are not foll"
    ):
        introduce(Arm(name="server", role="single", url=gateways[0].url), ASKING)


def test_a_field_of_the_experiment_that_one_arm_refuses_stops_the_run(gateways: list[Gateway]) -> None:
    arms, identities = pair(gateways, Gateway(), Gateway(("top_k",)), ASKING)
    with pytest.raises(UsageError, match=r"^The fast server at http://127.* refuses the field top_k, which \[gener"):
        agreed(arms, identities, ASKING)


@pytest.mark.parametrize(
    ("gateway", "said"),
    [(lambda: Gateway(("stream_options",)), "does not take stream_options"),
     (lambda: Gateway(("messages",), 401), "did not answer a first chat request: HTTP 401"),
     (lambda: Gateway(("seed",), 500), "answered HTTP 500 while the field seed was tried")],
)  # fmt: skip
def test_what_leaves_nothing_to_measure(gateways: list[Gateway], gateway: Any, said: str) -> None:
    gateways.append(gateway())
    with pytest.raises(UsageError, match=said):
        introduce(Arm(name="server", role="single", url=gateways[0].url), ASKING)


def test_a_plan_above_the_rate_limit_is_refused(gateways: list[Gateway]) -> None:
    limited = Gateway(headers={"x-ratelimit-limit-requests": "60", "x-ratelimit-limit-tokens": "90000"})
    arms, identities = pair(gateways, Gateway(), limited, ASKING)
    assert identities["fast"].rate_limits == {"requests": 60, "tokens": 90000}
    refuse_above_limits(arms, identities, Load(levels=(1.0, 60.0)))
    with pytest.raises(UsageError, match=r"allows 60 requests a minute .* the plan has 64 users at once"):
        refuse_above_limits(arms, identities, Load(levels=(1.0, 64.0)))
    refuse_above_limits(arms, identities, Load(kind="open", levels=(0.5, 1.0)))
    with pytest.raises(UsageError, match=r"allows 60 requests a minute .* the plan has 1\.5 requests/s: what"):
        refuse_above_limits(arms, identities, Load(kind="open", levels=(0.5, 1.5)))


def test_a_plan_above_the_limit_on_tokens_is_told(gateways: list[Gateway]) -> None:
    limited = Gateway(headers={"x-ratelimit-limit-requests": "600", "x-ratelimit-limit-tokens": "30000"})
    arms, identities = pair(gateways, Gateway(), limited, ASKING)

    def told(load: Load, max_tokens: int = 512) -> list[str]:
        return token_notes(arms, identities, Experiment(load=load, generation=Generation(max_tokens=max_tokens)))

    assert told(Load(levels=(1.0, 58.0))) == []  # 29,696
    assert told(Load(levels=(1.0, 59.0)), 508) == []  # 29,972
    assert told(Load(levels=(1.0, 59.0)))[0] == (
        f"The fast server at {limited.url} allows 30,000 tokens a minute (by its rate-limit headers), and 59 users at"
        " once ask for up to 30,208 of output alone: cells that meet that limit are invalid. Choose lower levels or"
        " generation.max_tokens, or have it raised."
    )
    assert "and 2 requests/s ask for up to 61,440 of" in told(Load(kind="open", levels=(0.5, 2.0)))[0]


@pytest.mark.parametrize(
    ("refused", "counts", "salted"),
    [((), ("continuous", "ids", "none"), True), (("cache_salt",), ("continuous", "ids", "none"), False),
     (("continuous_usage_stats", "cache_salt"), ("ids", "none"), False),
     (("seed",), ("continuous", "ids", "none"), True)],
)  # fmt: skip
def test_a_known_server_behind_one_that_refuses_its_fields_is_tried_too(
    gateways: list[Gateway], refused: tuple[str, ...], counts: tuple[str, ...], salted: bool
) -> None:
    gateways.append(Gateway(refused, 422, owner="vllm"))
    arm, identity = introduce(Arm(name="server", role="single", url=gateways[0].url), ASKING)
    assert (identity.kind, arm.counts, takes_salt(identity)) == ("vllm", counts, salted)
    assert (identity.refused, bool(identity.tried)) == (refused, bool(refused))
    if "seed" in refused:
        with pytest.raises(UsageError, match="refuses the field seed"):
            agreed([arm], {"server": identity}, ASKING)


@pytest.mark.parametrize(("status", "said"), [(429, "HTTP 429"), (500, "HTTP 500")])
def test_a_known_server_that_answers_no_request_is_refused(gateways: list[Gateway], status: int, said: str) -> None:
    gateways.append(Gateway(("messages",), status, owner="vllm"))
    with pytest.raises(UsageError, match=f"did not answer a first chat request: {said}"):
        introduce(Arm(name="server", role="single", url=gateways[0].url), ASKING)


def test_only_what_the_experiment_sets_is_tried() -> None:
    names = [name for name, _ in optional_fields(Generation(), OPENAI.counts)]
    assert names == ["stream_options", "continuous_usage_stats", "return_token_ids", "cache_salt"]
    more = Generation(top_p=0.9, stop=("x",), ignore_eos=True, template={"enable_thinking": False})
    assert [name for name, _ in optional_fields(more, OPENAI.counts)][4:] == [
        "top_p",
        "stop",
        "ignore_eos",
        "chat_template_kwargs",
    ]


def test_a_way_to_count_is_tried_where_the_kind_may_know_it() -> None:
    tried = dict(optional_fields(Generation(), KINDS["llamacpp"].counts))
    assert list(tried) == ["stream_options", "timings_per_token", "cache_salt"]
    assert tried["timings_per_token"] == {"stream_options": {"include_usage": True}, "timings_per_token": True}
    assert list(dict(optional_fields(Generation(), KINDS["sglang"].counts))) == [
        "stream_options", "continuous_usage_stats", "cache_salt",
    ]  # fmt: skip


def test_a_kind_that_heeds_no_salt_is_sent_none_though_it_refuses_none(gateways: list[Gateway]) -> None:
    _, identities = pair(gateways, Gateway(), Gateway(), ASKING)
    heeding = {name: replace(identity, kind="llamacpp") for name, identity in identities.items()}
    assert salted(heeding) == {"baseline": False, "fast": False}
    assert "No cache_salt is taken by baseline and fast" in trial_notes(heeding, "salt")[0]
