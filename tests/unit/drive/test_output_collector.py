"""Asking both arms the same, against a small HTTP server: what is sent, how often, and what happens on failures."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from answering import AnsweringServer, Handler

from loadtest.analyse.outputs import judge_outputs
from loadtest.drive.outputs import HOPELESS, Collector, asked_of
from loadtest.errors import RunError
from loadtest.experiment import as_document, override
from loadtest.servers.control import Arm, Control
from loadtest.settings import Experiment
from loadtest.workload.templates import TemplateSource

Reply = Callable[[dict[str, Any]], tuple[int, dict[str, Any]]]
EXPERIMENT = override(Experiment(), "generation", max_tokens=32, top_p=0.9)
Bodies = list[dict[str, Any]]
SALT = "SALT"


@contextmanager
def answering(reply: Reply, name: str) -> Iterator[tuple[Control, Arm, list[dict[str, Any]]]]:
    """A server whose answer to a body is `reply`; yields its control, its arm and the bodies that came."""
    bodies: list[dict[str, Any]] = []

    class Answers(Handler):
        def do_POST(self) -> None:
            bodies.append(self.body())
            status, data = reply(bodies[-1])
            self.say(status, json.dumps(data), {"Content-Type": "application/json"})

    server = AnsweringServer(Answers)
    arm = Arm(name=name, role="", url=server.url, model="m")
    control = Control(arm)
    try:
        yield control, arm, bodies
    finally:
        control.close()
        server.stop()


def echo(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """Answer with the last message, so that equal prompts get equal answers."""
    text = body["messages"][-1]["content"]
    choice = {"message": {"content": text}, "finish_reason": "stop", "token_ids": list(text.encode())}
    return 200, {"choices": [choice], "usage": {"completion_tokens": len(text)}}


def strict(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """A server that refuses what it does not know, and gives no token ids."""
    if "return_token_ids" in body or "cache_salt" in body:
        return 400, {"error": {"message": "unknown field"}}
    status, data = echo(body)
    del data["choices"][0]["token_ids"]
    return status, data


def compare(folder: Path, baseline: Reply, candidate: Reply, experiment: Experiment = EXPERIMENT, count: int = 6,
            stopped: Callable[[], bool] = lambda: False) -> tuple[Bodies, Bodies]:  # fmt: skip
    asked = asked_of(TemplateSource("chat"), 1, count)
    assert len(asked) == count
    collector = Collector(asked, ["a", "b"], experiment, folder, SALT, lambda event: None, stopped)
    with answering(baseline, "a") as (control, arm, first):
        collector.collect(control, arm, salted=True, gone=_there)
        collector.collect(control, arm, salted=True, gone=_there)  # a later start of the same arm is not asked again
    with answering(candidate, "b") as (control, arm, second):
        collector.collect(control, arm, salted=False, gone=_there)
    return first, second


def _there(control: Control) -> None:
    """Every server of these tests is there to the end."""


def test_the_baseline_is_asked_twice_and_the_candidate_once(tmp_path: Path) -> None:
    first, second = compare(tmp_path, echo, echo)
    assert (len(first), len(second)) == (12, 6)
    asked = [body["messages"] for body in second]
    assert [body["messages"] for body in first] == asked * 2
    assert len({json.dumps(messages) for messages in asked}) == 6
    body = first[0]
    assert (body["stream"], body["temperature"], body["top_p"], body["max_tokens"]) == (False, 0.0, 0.9, 32)
    assert "stream_options" not in body
    assert [body["cache_salt"] for body in first] == [f"{SALT}-outputs-0"] * 6 + [f"{SALT}-outputs-1"] * 6
    assert all("cache_salt" not in body for body in second)
    rows = [json.loads(line) for line in (tmp_path / "outputs.jsonl").read_text().splitlines()]
    assert [len(row["answers"]) for row in rows] == [3] * 6
    assert all(pair["same"] for row in rows for pair in row["pairs"])


def test_what_is_collected_is_what_the_judgement_reads(tmp_path: Path) -> None:
    compare(tmp_path, echo, lambda body: echo({"messages": [{"content": body["messages"][-1]["content"][:9]}]}))
    run = {"experiment": as_document(EXPERIMENT), "baseline": "a"}
    found = judge_outputs(tmp_path, run)
    assert found is not None
    assert found.identical.value == 0.0
    assert found.identical_itself.value == 1.0
    assert found.first_token.value is not None
    assert found.first_token.value >= 9  # bytes of the first nine characters, which are alike
    assert found.first_character.value == 9
    assert found.verdict.value == "differs"


def test_above_temperature_0_each_answer_of_an_arm_has_a_seed_of_its_own(tmp_path: Path) -> None:
    sampled = override(EXPERIMENT, "generation", temperature=0.8, seed=5)
    first, second = compare(tmp_path, echo, echo, sampled)
    assert (len(first), len(second)) == (12, 12)
    assert [body["seed"] for body in first] == [5] * 6 + [6] * 6 == [body["seed"] for body in second]


def test_a_server_that_refuses_token_ids_is_asked_without(tmp_path: Path) -> None:
    _, second = compare(tmp_path, echo, strict)
    assert ["return_token_ids" in body for body in second] == [True] + [False] * 6
    rows = [json.loads(line) for line in (tmp_path / "outputs.jsonl").read_text().splitlines()]
    assert all(not answer["error"] for row in rows for answer in row["answers"])


def test_a_server_that_fails_is_given_up_and_noted(tmp_path: Path) -> None:
    _, second = compare(tmp_path, echo, lambda body: (503, {"error": "busy"}), count=8)
    assert len(second) == HOPELESS
    rows = [json.loads(line) for line in (tmp_path / "outputs.jsonl").read_text().splitlines()]
    assert [row["answers"][2]["error"] for row in rows] == ["HTTP 503"] * HOPELESS + ["not sent"] * 3
    found = judge_outputs(tmp_path, {"experiment": as_document(EXPERIMENT), "baseline": "a"})
    assert found is not None
    assert (found.verdict.value, found.exit_code) == ("invalid", 5)


def test_a_stop_sends_nothing_more_and_writes_nothing(tmp_path: Path) -> None:
    first, second = compare(tmp_path, echo, echo, stopped=lambda: True)
    assert (first, second) == ([], [])
    assert not (tmp_path / "outputs.jsonl").exists()


def test_simulated_servers_are_spared_unless_it_was_asked_for(tmp_path: Path) -> None:
    for prompts, sent in ((None, 0), (2, 4)):
        experiment = override(EXPERIMENT, "outputs", prompts=prompts) if prompts else EXPERIMENT
        collector = Collector(asked_of(TemplateSource("chat"), 1, 2), ["a", "b"], experiment, tmp_path, SALT, print)
        collector.spare()
        with answering(echo, "a") as (control, arm, bodies):
            collector.collect(control, arm, salted=False, gone=_there)
        assert len(bodies) == sent


def test_answers_of_a_server_that_was_not_there_to_the_end_are_not_compared_and_asked_for_again(tmp_path: Path) -> None:
    collector = Collector(asked_of(TemplateSource("chat"), 1, 2), ["a", "b"], EXPERIMENT, tmp_path, SALT, print)
    with answering(echo, "a") as (control, arm, _):
        collector.collect(control, arm, salted=False, gone=_there)
    with answering(strict, "b") as (control, arm, bodies):
        with pytest.raises(RunError, match="another program"):
            collector.collect(control, arm, salted=False, gone=lambda control: RunError("another program"))
        assert len(bodies) == 3
        assert not list(tmp_path.iterdir())
        collector.collect(control, arm, salted=False, gone=_there)
        assert len(bodies) == 5
    assert [path.name for path in tmp_path.iterdir()] == ["outputs.jsonl"]


def test_a_comparison_that_stands_is_not_made_again(tmp_path: Path) -> None:
    compare(tmp_path, echo, echo)
    assert compare(tmp_path, echo, echo) == ([], [])


def test_answers_are_kept_only_where_asked_for(tmp_path: Path) -> None:
    compare(tmp_path, echo, echo, override(EXPERIMENT, "outputs", keep_text=True))
    row = json.loads((tmp_path / "outputs.jsonl").read_text().splitlines()[0])
    assert row["answers"][0]["text"]
