"""`compare-outputs`, and the same as a phase of `run`, on simulated servers that answer alike or go astray."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from processes import CHAT, assert_nothing_left, free_port

pytestmark = pytest.mark.e2e
QUICK = ("--set", "outputs.max_tokens=8")


def _json(path: Path) -> dict:
    return json.loads(path.read_text())


def _rows(folder: Path) -> list[dict]:
    return [json.loads(line) for line in (folder / "outputs.jsonl").read_text().splitlines()]


def test_equal_answers_are_the_same_and_no_text_is_kept(loadtest):
    command = loadtest.run("compare-outputs", "--simulated", "--out", loadtest.out, *QUICK)
    assert command.process.returncode == 0, command.text
    folder = command.folder
    found, run, rows = _json(folder / "verdict.json")["outputs"], _json(folder / "run.json"), _rows(folder)
    assert (found["verdict"], found["exit_code"], found["prompts"], found["left_out"]) == ("same", 0, 40, 0)
    assert found["identical"]["value"] == found["identical_itself"]["value"] == 1.0
    assert run["outputs_only"] is True
    assert len({row["prompt"] for row in rows}) == len(rows) == 40
    for row in rows:
        assert [(a["arm"], a["number"]) for a in row["answers"]] == [
            ("baseline", 0),
            ("baseline", 1),
            ("speculative", 0),
        ]
        assert all("text" not in answer and answer["tokens"] <= 8 for answer in row["answers"])
    assert found["headline"].split(":")[0] in " ".join(command.text.split())
    assert "speed" not in (folder / "summary.md").read_text()
    again = loadtest.run("report", folder)
    assert again.process.returncode == 0, again.text
    assert_nothing_left(command)


@pytest.mark.nightly
def test_a_server_that_goes_astray_is_told(loadtest):
    command = loadtest.run("compare-outputs", CHAT, "--world", "astray", "--out", loadtest.out, *QUICK)
    assert command.process.returncode == 3, command.text
    found = _json(command.folder / "verdict.json")["outputs"]
    assert found["verdict"] == "differs"
    assert 0.6 <= found["identical"]["value"] < 1.0
    assert found["identical_itself"]["value"] == 1.0
    assert 0 <= found["first_token"]["value"] < 8
    assert [test["name"] for test in found["tests"] if test["rejected"]] == ["answers"]


@pytest.mark.nightly
def test_own_servers_own_prompts_and_sampling(loadtest, servers, tmp_path):
    prompts = tmp_path / "prompts.jsonl"
    prompts.write_text("".join(json.dumps({"prompt": f"What is {n} plus {n}?"}) + "\n" for n in range(5)))
    a, b = servers("baseline", world="astray"), servers("speculative", world="astray")
    command = loadtest.run(
        "compare-outputs", "--baseline", a.url, "--speculative", b.url, "--prompts", prompts, "--keep-text",
        "--set", "generation.temperature=0.7", "--out", loadtest.out, *QUICK,
    )  # fmt: skip
    assert command.process.returncode in (3, 4), command.text  # five prompts can hardly tell
    rows = _rows(command.folder)
    assert len(rows) == 5
    assert [a["arm"] for a in rows[0]["answers"]] == ["baseline", "baseline", "speculative", "speculative"]
    assert all(answer["text"] for row in rows for answer in row["answers"])
    assert _json(command.folder / "verdict.json")["outputs"]["tests"][0]["name"] == "text"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("--simulated", "--set", "outputs.prompts=0"), "outputs.prompts is 0"),
        (("--server", "http://127.0.0.1:9"), "No such option"),
        (("nowhere.py",), "nowhere.py is not a file"),
    ],
)
def test_what_cannot_be_compared_is_refused(loadtest, words, sentence):
    command = loadtest.run("compare-outputs", "--out", loadtest.out, *words)
    assert command.process.returncode == 2, command.text
    assert sentence in command.text
    assert not loadtest.out.exists()


def test_a_server_that_is_not_there_leaves_no_folder(loadtest, servers):
    a = servers("baseline")
    command = loadtest.run("compare-outputs", "--baseline", a.url, "--speculative",
                           f"http://127.0.0.1:{free_port()}", "--out", loadtest.out, *QUICK)  # fmt: skip
    assert command.process.returncode == 2, command.text
    assert "does not answer" in command.text
    assert not any(loadtest.out.iterdir())


@pytest.mark.nightly
def test_servers_that_are_no_pair_are_not_compared(loadtest, servers):
    a, b = servers("baseline"), servers("speculative", world="astray")
    command = loadtest.run("compare-outputs", "--baseline", a.url, "--speculative", b.url, "--out", loadtest.out,
                           "--set", "outputs.prompts=2", *QUICK)  # fmt: skip
    assert command.process.returncode == 5, command.text
    assert "differ in more than speculation" in command.text


@pytest.mark.nightly
def test_a_run_compares_answers_beside_its_verdict_on_speed(loadtest):
    command = loadtest.run("run", CHAT, "--world", "astray", "--out", loadtest.out, "--levels", "4", "--window", "1s",
                           "--blocks", "2", "--set", "outputs.prompts=40", *QUICK)  # fmt: skip
    assert command.process.returncode in (0, 3, 4), command.text
    folder = command.folder
    verdict = _json(folder / "verdict.json")
    assert verdict["outputs"]["verdict"] == "differs"
    assert verdict["decision"]["exit_code"] == command.process.returncode
    assert "asking baseline 40 prompts twice" in command.text
    assert 'id="outputs"' in (folder / "report.html").read_text()
    assert _json(folder / "run.json")["prompts"]["coincidence"] > 0.004
    assert all(cell["tokens_client"] == cell["tokens_server"] for cell in verdict["cells"])  # asked outside the cells


@pytest.mark.nightly
def test_a_run_on_the_built_in_pair_asks_nothing_unless_told_to(loadtest):
    command = loadtest.run("run", CHAT, "--out", loadtest.out, "--levels", "4", "--window", "1s", "--blocks", "1")
    assert not (command.folder / "outputs.jsonl").exists()
    assert _json(command.folder / "verdict.json")["outputs"] is None
