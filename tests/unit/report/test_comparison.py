"""Several runs on one page, and what the commands print."""

import dataclasses
import json

import pytest
import report_example as example
from click.testing import CliRunner
from parsed import Parsed

from loadtest.analyse.estimates import Estimate
from loadtest.analyse.results import Answer
from loadtest.cli import main
from loadtest.errors import UsageError
from loadtest.report.charts_runs import CHARTS, limit_chart
from loadtest.report.comparison import comparison
from loadtest.report.runs import differences, entries, headline

UNPROVEN = "the intervals overlap, so that the order is not proven"
PAYLOAD = "</script><img src=x onerror=alert(1)>"


def with_limit(value, low, high, answer=Answer.PAYS_UP_TO):
    full = example.judgement()
    limit = dataclasses.replace(full.decision.limit, at=Estimate(value=value, low=low, high=high))
    return dataclasses.replace(full, decision=dataclasses.replace(full.decision, limit=limit, answer=answer))


def method(name, k, **changes):
    run = example.run(**changes)
    identity = {"model": "m", "method": name, "num_speculative_tokens": k}
    return run | {
        "arms": [{"name": "baseline", "identity": {"model": "m"}}, {"name": "speculative", "identity": identity}]
    }


RUNS = (
    ("run-a", method("eagle3", 3), with_limit(37.0, 33.0, 42.0)),
    ("run-b", method("eagle3", 5), with_limit(52.0, 45.0, 58.0)),
    ("run-c", method("ngram", 4), with_limit(12.0, 9.0, 15.0)),
)


def test_runs_are_called_by_what_tells_them_apart():
    assert [entry.name for entry in entries(RUNS)] == ["eagle3, k = 3", "eagle3, k = 5", "ngram, k = 4"]
    twice = [("before", *RUNS[0][1:]), ("after", *RUNS[0][1:])]
    assert [entry.name for entry in entries(twice)] == ["eagle3, k = 3, before", "eagle3, k = 3, after"]
    code = ("run-d", method("eagle3", 3, scenario={"name": "code"}), RUNS[0][2])
    assert [entry.name for entry in entries([RUNS[0], code])] == ["chat, eagle3, k = 3", "code, eagle3, k = 3"]


@pytest.mark.parametrize(
    ("judgements", "said"),
    [
        ([(37, 33, 42), (52, 45, 58)], "the limit is highest with b, 52 [45, 58] users, clear of every other"),
        ([(37, 33, 46), (52, 45, 58)], f"the limit is highest with b, 52 [45, 58] users; {UNPROVEN}"),
        ([(None, 7, None), (52, 45, 58)], f"the limit is highest with b, 52 [45, 58] users; {UNPROVEN}"),
        ([(None, 7, None)], "no run settled where speculation stops paying; it is proven to pay up to 7 users with a"),
        ([(52, 45, 58)], "the limit is highest with a, 52 [45, 58] users"),
    ],
)  # fmt: skip
def test_the_order_is_claimed_only_where_the_intervals_are_apart(judgements, said):
    runs = [(name, {}, with_limit(*at)) for name, at in zip("ab", judgements, strict=False)]
    named = [dataclasses.replace(entry, name=run[0]) for entry, run in zip(entries(runs), runs, strict=True)]
    assert headline(named) == said


def test_an_invalid_run_wins_nothing():
    runs = [
        ("a", method("x", 1), with_limit(37, 33, 42)),
        ("b", method("y", 1), with_limit(90, 80, 99, Answer.INVALID)),
    ]
    assert headline(entries(runs)) == "the limit is highest with x, k = 1, 37 [33, 42] users"
    assert [row[0] for row in limit_chart(entries(runs)).rows] == ["x, k = 1"]


def test_the_page_of_several_runs_has_its_charts_tables_and_commands():
    found = Parsed(comparison(RUNS))
    assert found.broken == []
    figures = json.loads(next(text for _, attributes, text in found.raw if attributes.get("id") == "figures"))
    assert len(figures) == len(CHARTS)
    assert [trace["name"] for trace in figures["runs-speedup"]["data"]] == [entry.name for entry in entries(RUNS)]
    text = found.text()
    assert "NOT SIDE BY SIDE".lower() in text.lower()
    assert "eagle3, k = 5 pays up to a limit" in text
    assert "Servers under test: speculative.identity.method" in text
    assert text.count("loadtest run scenarios/chat.py") == 3
    ids = {attributes.get("id") for _, attributes in found.elements}
    assert {attributes["href"][1:] for tag, attributes in found.elements if tag == "a"} <= ids


def test_what_is_the_same_in_all_runs_is_no_difference():
    names = {row[0] for row in differences(entries(RUNS)).rows}
    assert names == {"Servers under test: speculative.identity.method",
                     "Servers under test: speculative.identity.num_speculative_tokens"}  # fmt: skip


def test_equal_runs_give_equal_bytes():
    assert comparison(RUNS) == comparison(RUNS)


def test_hostile_text_of_a_run_adds_no_element():
    hostile = [(PAYLOAD, method(PAYLOAD, 3, scenario={"name": PAYLOAD}, command=PAYLOAD), RUNS[0][2]), *RUNS[1:]]
    plain = [("folder", method("method", 3, scenario={"name": "other"}, command="c"), RUNS[0][2]), *RUNS[1:]]
    assert Parsed(comparison(hostile)).shape == Parsed(comparison(plain)).shape


def test_runs_of_different_loads_are_refused():
    arrivals = dataclasses.replace(RUNS[1][2], unit="requests/s")
    with pytest.raises(UsageError, match="different loads"):
        comparison([RUNS[0], ("b", RUNS[1][1], arrivals)])


def test_one_run_alone_and_a_run_of_one_server_can_be_drawn():
    assert "one" in Parsed(comparison([("one", example.run(), example.one_arm()), RUNS[0]])).text()
    assert Parsed(comparison([("bare", {}, example.bare()), ("invalid", {}, example.invalid())])).broken == []


@pytest.fixture
def golden(tmp_path, request):
    import shutil

    source = request.config.rootpath / "tests" / "data" / "golden"
    for name in ("good", "slower"):
        shutil.copytree(source / name, tmp_path / name)
    return tmp_path


def test_the_command_draws_one_page_of_several_runs_and_exits_with_the_gravest_code(golden):
    found = CliRunner().invoke(main, ["report", str(golden / "good"), str(golden / "slower")])
    assert found.exit_code == 3
    assert f"Page: {golden / 'comparison.html'}" in found.output
    assert (golden / "comparison.html").stat().st_size < 6_000_000


def test_quiet_is_one_line_and_json_is_one_document(golden):
    quiet = CliRunner().invoke(main, ["report", str(golden / "good"), "--quiet"])
    assert quiet.output.count("\n") == 1
    assert quiet.output.startswith("Speculation pays at every tested load")
    machine = CliRunner().invoke(main, ["report", str(golden / "good"), "--json"])
    assert json.loads(machine.output)["decision"]["exit_code"] == machine.exit_code == 0
    assert json.loads(machine.output) == json.loads((golden / "good" / "verdict.json").read_text())
    both = CliRunner().invoke(main, ["report", str(golden / "good"), str(golden / "slower"), "--json"])
    assert [run["verdict"]["decision"]["exit_code"] for run in json.loads(both.output)["runs"]] == [0, 3]


def test_quiet_and_json_of_a_folder_of_compared_answers(golden):
    folder = golden / "good"
    answers = [{"arm": arm, "number": number, "hash": "a", "tokens": 3, "characters": 9, "finish_reason": "stop",
                "error": ""} for arm, number in (("baseline", 0), ("baseline", 1), ("speculative", 0))]  # fmt: skip
    alike = {"same": True, "token": None, "character": None, "distance": 0.0}
    row = {"prompt": "p", "category": "chat", "answers": answers,
           "pairs": [{"a": a, "b": b, **alike} for a, b in ((0, 1), (0, 2), (1, 2))]}  # fmt: skip
    (folder / "outputs.jsonl").write_text(40 * (json.dumps(row) + "\n"))
    header = json.loads((folder / "run.json").read_text()) | {"outputs_only": True}
    (folder / "run.json").write_text(json.dumps(header))
    machine = CliRunner().invoke(main, ["report", str(folder), "--json"])
    assert json.loads(machine.output) == json.loads((folder / "verdict.json").read_text())
    quiet = CliRunner().invoke(main, ["report", str(folder), "--quiet"])
    assert quiet.output == json.loads(machine.output)["outputs"]["headline"] + "\n"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["good", "--quiet", "--json"], "exclude each other"),
        (["good", "good"], "named twice"),
        (["good", "--out", "x.html"], "--out names the page of several runs"),
        (["good", "nowhere"], "holds no run.json"),
    ],
)
def test_a_wrong_call_is_answered_by_a_sentence(golden, arguments, said):
    paths = [str(golden / one) if one in ("good", "nowhere") else one for one in arguments]
    found = CliRunner().invoke(main, ["report", *paths])
    assert found.exit_code == 2
    assert said in found.output
