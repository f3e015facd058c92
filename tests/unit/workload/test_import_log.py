"""`loadtest import`: what is written, who may read it, and what is said of the log."""

from __future__ import annotations

import gzip
import json
import random
import stat
import tomllib
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from loadtest.cli import main
from loadtest.experiment import load_experiment
from loadtest.settings import Trace
from loadtest.workload.given import given_source
from loadtest.workload.import_settings import levels_for
from loadtest.workload.replay import TraceSource, open_trace
from loadtest.workload.sessions import SessionKey, requests_of

DATA = Path(__file__).parents[2] / "data" / "traces"
NINE = 1772355600.0  # 2026-03-01 09:00:00 UTC


def imported(*words: object) -> Result:
    return CliRunner().invoke(main, ["import", *(str(word) for word in words)])


def day_of_a_service(path: Path, *, per_hour: dict[int, int], secret: str = "SECRET") -> list[dict[str, Any]]:
    """Write a log of dialogues of two turns, with so many requests in each hour after nine, and return its rows."""
    generator = random.Random(7)
    rows: list[dict[str, Any]] = []
    for hour, requests in per_hour.items():
        for n in range(requests // 2):
            t_s, name = NINE + 3600 * (hour + (n + generator.random()) / (requests // 2)), f"{hour}-{n}"
            first = [
                {"role": "system", "content": "Be kind."},
                {"role": "user", "content": f"{secret} question {name}?"},
            ]
            second = [
                *first,
                {"role": "assistant", "content": f"{secret} answer {name}."},
                {"role": "user", "content": "Thanks!"},
            ]
            for offset_s, messages in ((0.0, first), (20.0, second)):
                rows.append({"ts": round(t_s + offset_s, 3), "session": f"user {name}", "messages": messages,
                             "output_tokens": 40, "duration_s": 2.0, "class": "support", "temperature": 0.6,
                             "max_tokens": 300})  # fmt: skip
    rows.sort(key=lambda row: row["ts"])
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return rows


def asked_by(source: TraceSource) -> list[list[list[dict[str, Any]]]]:
    """Return the messages of all requests, session by session in the order of arrival."""
    place = source._place(1, 4.0, 0)
    keys = [
        SessionKey(seed=1, level=4.0, block=0, number=(n - place) % source.sessions) for n in range(source.sessions)
    ]
    return [[messages for _, messages in requests_of(source.session(key))] for key in keys]


def test_a_log_becomes_a_trace_a_scenario_and_settings(tmp_path: Path) -> None:
    log, out = tmp_path / "day.jsonl", tmp_path / "mine"
    rows = day_of_a_service(log, per_hour={0: 200, 1: 400, 2: 100})
    result = imported(log, "-o", out)
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["day.jsonl", "mine.jsonl", "mine.py", "mine.toml"]
    for name in ("mine.jsonl", "mine.py", "mine.toml"):
        assert stat.S_IMODE((tmp_path / name).stat().st_mode) == 0o600
    assert "day.jsonl (log): 700 of 700 rows used." in result.output
    assert "sessions    350 of 2 requests on average" in result.output
    assert "by the durations told" in result.output
    assert "classes     support 100 %" in result.output
    assert "SECRET" not in result.output + (tmp_path / "mine.py").read_text() + (tmp_path / "mine.toml").read_text()

    settings = tomllib.loads((tmp_path / "mine.toml").read_text())
    assert settings["trace"]["file"] == "mine.jsonl"
    assert settings["generation"] == {"temperature": 0.6, "max_tokens": 300}
    assert settings["load"]["kind"] == "open"
    assert settings["load"]["arrivals"] == "trace"
    assert settings["traffic"]["loads"] == pytest.approx([0.028, 0.056, 0.11], abs=0.002)
    assert sum(settings["traffic"]["hours"]) == pytest.approx(24, abs=0.1)
    assert {min(settings["traffic"]["loads"]), max(settings["traffic"]["loads"])} <= set(settings["load"]["levels"])

    experiment = load_experiment(tmp_path / "mine.py")
    compile((tmp_path / "mine.py").read_text(), "mine.py", "exec")
    source = given_source(None, experiment)
    assert isinstance(source, TraceSource)
    assert (source.sessions, source.requests) == (350, 700)
    wanted: dict[str, list[Any]] = {}
    for row in rows:
        wanted.setdefault(row["session"], []).append(row["messages"])
    assert asked_by(source) == list(wanted.values())


def test_the_trace_holds_no_names_no_clock_and_every_message_once(tmp_path: Path) -> None:
    log = tmp_path / "day.jsonl"
    rows = day_of_a_service(log, per_hour={0: 60})
    assert imported(log, "-o", tmp_path / "mine").exit_code == 0
    text = (tmp_path / "mine.jsonl").read_text()
    lines = [json.loads(line) for line in text.splitlines()]
    assert [line["ts"] for line in lines] == pytest.approx([row["ts"] - rows[0]["ts"] for row in rows], abs=1e-6)
    assert "user 0-" not in text
    assert text.count("Be kind.") == 30
    assert [line["after"] for line in lines if "appended" in line] == [2] * 30
    again = imported(tmp_path / "mine.jsonl", "-o", tmp_path / "again")
    assert again.exit_code == 0, again.output
    assert (tmp_path / "again.jsonl").read_text() == text


def test_the_same_log_gives_the_same_bytes(tmp_path: Path) -> None:
    day_of_a_service(tmp_path / "day.jsonl", per_hour={0: 80})
    for name in ("one", "two"):
        assert imported(tmp_path / "day.jsonl", "-o", tmp_path / name, "--keep", "0.5", "--jitter", "2s").exit_code == 0
    assert (tmp_path / "one.jsonl").read_bytes() == (tmp_path / "two.jsonl").read_bytes()


def test_a_replay_that_runs_faster_is_told_by_the_clock_of_the_log(tmp_path: Path) -> None:
    day_of_a_service(tmp_path / "day.jsonl", per_hour={0: 200, 1: 400, 2: 100})
    plain = imported(tmp_path / "day.jsonl", "-o", tmp_path / "plain").output.splitlines()
    fast = imported(tmp_path / "day.jsonl", "-o", tmp_path / "fast", "--speed", "60").output.splitlines()
    added = [line for line in fast if line not in plain and not line.startswith(("Wrote", "Next"))]
    (said,) = added
    assert said == (
        "  replayed    60 times as fast, in 180 s, at 3.88 requests/s on average;"
        " what follows is by the log's own clock"
    )
    ends = ("Wrote", "Next")
    assert [line for line in plain if line not in fast] == [line for line in plain if line.startswith(ends)]
    slow, quick = (tomllib.loads((tmp_path / f"{name}.toml").read_text()) for name in ("plain", "fast"))
    assert quick["traffic"]["hours"] == slow["traffic"]["hours"]
    assert quick["traffic"]["loads"] == pytest.approx([60 * load for load in slow["traffic"]["loads"]], rel=0.04)
    assert "requests/s; 6.65 in the busiest hour (2026-03-01 10:00), 60 times as fast as the log" in (
        (tmp_path / "fast.toml").read_text()
    )
    rows = [json.loads(line)["ts"] for line in (tmp_path / "fast.jsonl").read_text().splitlines()]
    assert rows[-1] == pytest.approx(180, abs=2)


def test_a_compressed_trace_is_unpacked_and_nothing_of_that_is_left(tmp_path: Path) -> None:
    packed = tmp_path / "conv.csv.gz"
    packed.write_bytes(gzip.compress((DATA / "azure_form.csv").read_bytes()))
    result = imported(packed, "-o", tmp_path / "mine", "--jitter", "0")
    assert result.exit_code == 0, result.output
    assert "conv.csv.gz: 1 row sorted: out of order in the file (first: line 4)." in result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["conv.csv.gz", "mine.jsonl", "mine.py", "mine.toml"]
    lines = [json.loads(line) for line in (tmp_path / "mine.jsonl").read_text().splitlines()]
    assert [(line["input_tokens"], line["output_tokens"]) for line in lines] == [
        (374, 44),
        (879, 55),
        (396, 109),
        (91, 16),
    ]
    packed.write_bytes(gzip.compress(b"x" * 10000)[:-20])
    result = imported(packed, "-o", tmp_path / "cut")
    assert result.exit_code == 2
    assert "conv.csv.gz cannot be unpacked" in result.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["conv.csv.gz", "mine.jsonl", "mine.py", "mine.toml"]


def test_the_kind_of_text_that_a_name_told_comes_along(tmp_path: Path) -> None:
    (tmp_path / "azure_code.csv").write_bytes((DATA / "azure_form.csv").read_bytes())
    assert imported(tmp_path / "azure_code.csv", "-o", tmp_path / "mine").exit_code == 0
    one = open_trace(Trace(file=str(tmp_path / "azure_code.csv")), 1)
    two = open_trace(Trace(file=str(tmp_path / "mine.jsonl")), 1)
    assert one.categories == two.categories == ("code",)
    assert asked_by(one) == asked_by(two)
    settings = (tmp_path / "mine.toml").read_text()
    assert "# Licence: as published CC-BY 4.0 (Patel et al., Splitwise, ISCA 2024)." in settings
    assert "on average" in settings


def test_blocks_of_a_prompt_come_along(tmp_path: Path) -> None:
    assert imported(DATA / "mooncake_form.jsonl", "-o", tmp_path / "mine").exit_code == 0
    one = open_trace(Trace(file=str(DATA / "mooncake_form.jsonl"), text="chat"), 1)
    two = open_trace(Trace(file=str(tmp_path / "mine.jsonl"), text="chat"), 1)
    assert asked_by(one) == asked_by(two)


def test_repeats_classes_and_answers_that_stand_in_the_log(tmp_path: Path) -> None:
    rows = [{"ts": n, "messages": [{"role": "user", "content": f"same {n % 2}"}, {"role": "assistant", "content": "x"}]}
            for n in range(10)]  # fmt: skip
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows) + "{cut")
    result = imported(tmp_path / "log.jsonl", "-o", tmp_path / "mine")
    assert result.exit_code == 0
    assert "log.jsonl (log): 10 of 11 rows used." in result.output
    assert "log.jsonl: 1 row left out: not JSON (first: line 11)." in result.output
    assert "log.jsonl: 10 rows mended: the answer at the end of `messages` left out (first: line 1)." in result.output
    assert "repeats     80 % of the requests ask what an earlier one asked" in result.output
    assert "output      not told" in result.output
    assert "max_tokens = 512" in (tmp_path / "mine.toml").read_text()


def test_words_that_json_and_toml_write_otherwise_come_back_as_they_were(tmp_path: Path) -> None:
    row = {"ts": 0, "prompt": "a", "output_tokens": 1, "stop": ["\U0001f600", "\x7f", '"\n'], "max_tokens": True}
    (tmp_path / "log.jsonl").write_text(json.dumps(row) + "\n")
    result = imported(tmp_path / "log.jsonl", "-o", tmp_path / "ü\U0001f600")
    assert result.exit_code == 0, result.output
    settings = load_experiment(tmp_path / "ü\U0001f600.py")
    assert settings.generation.stop == ("\U0001f600", "\x7f", '"\n')
    assert settings.generation.max_tokens == 64
    assert Path(settings.trace.file) == tmp_path / "ü\U0001f600.jsonl"


def test_of_an_import_that_is_stopped_nothing_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    day_of_a_service(tmp_path / "day.jsonl", per_hour={0: 4})
    monkeypatch.setattr("loadtest.workload.import_log._say", stopped)
    assert imported(tmp_path / "day.jsonl", "-o", tmp_path / "mine").exit_code == 130
    assert [path.name for path in tmp_path.iterdir()] == ["day.jsonl"]


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        (["LOG", "-o", "OUT", "--map", "time=ts"], "--map time=ts: there is no field 'time'. Fields are ts,"),
        (["LOG", "-o", "OUT", "--map", "ts"], "--map ts: write FIELD=NAME"),
        (["LOG", "-o", "OUT", "--keep", "2"], "--keep is '2'; it must be a number above 0 and at most 1"),
        (["LOG", "-o", "OUT", "--start", "soon"], "--start is 'soon'; it must be seconds, or a duration"),
        (["LOG", "-o", "OUT", "--jitter", "soon"], "--jitter is 'soon'; it must be \"auto\", or seconds"),
        (["LOG", "-o", "TAKEN"], "exists already; give another name with -o"),
        (["LOG", "-o", "NOWHERE/x"], "is not a folder"),
        (["LOG", "-o", "a\nb"], "give one of printable characters"),
        (["MISSING", "-o", "OUT"], "does not exist; give a trace or log"),
        (["LOG", "-o", "OUT", "--max-input-tokens", "1"], "holds no row that can be used: left out: more than 1 input"),
        (["LOG", "-o", "OUT", "--map", "ts=nowhere"], "holds no row that can be used: no time of arrival"),
    ],
)
def test_what_is_refused(tmp_path: Path, words: list[str], complaint: str) -> None:
    (tmp_path / "taken.toml").touch()
    day_of_a_service(tmp_path / "day.jsonl", per_hour={0: 4}, secret="x" * 400)
    places = {"LOG": "day.jsonl", "OUT": "out", "TAKEN": "taken", "NOWHERE/x": "nowhere/x", "MISSING": "missing.jsonl"}
    before = sorted(tmp_path.iterdir())
    result = imported(*(tmp_path / places[word] if word in places else word for word in words))
    assert result.exit_code == 2
    assert complaint in result.output
    assert sorted(tmp_path.iterdir()) == before


def test_the_shipped_scenario_shows_every_setting_of_a_trace_and_its_trace_is_usable() -> None:
    scenarios = Path(__file__).parents[3] / "scenarios"
    written = tomllib.loads((scenarios / "trace.toml").read_text())["trace"]
    assert set(written) == {field.name for field in fields(Trace)}
    experiment = load_experiment(scenarios / "trace.py")
    source = given_source(None, experiment)
    assert isinstance(source, TraceSource)
    assert source.categories == ("chat", "code")
    assert source.requests > 1000
    assert Path(experiment.trace.file) == scenarios / "trace.csv"


def test_quiet_hours_are_left_out_of_the_day_and_said(tmp_path: Path) -> None:
    day_of_a_service(tmp_path / "day.jsonl", per_hour={0: 400, 1: 8, 2: 400})
    assert imported(tmp_path / "day.jsonl", "-o", tmp_path / "mine").exit_code == 0
    text = (tmp_path / "mine.toml").read_text()
    assert tomllib.loads(text)["traffic"]["loads"] == pytest.approx([0.11], abs=0.01)
    assert "# Hours below a tenth of the busiest are left out; they bring 1.1 % of the requests." in text


def test_the_trial_of_a_quiet_trace_is_faster_so_that_its_windows_hold_requests(tmp_path: Path) -> None:
    lines = [f"{60 * n},ChatGPT,100,20,120,Conversation log" for n in range(60)]  # one request a minute
    heading = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type"
    (tmp_path / "quiet.csv").write_text("\n".join([heading, *lines, ""]))
    assert imported(tmp_path / "quiet.csv", "-o", tmp_path / "mine").exit_code == 0
    text = (tmp_path / "mine.toml").read_text()
    assert "# with the built-in simulated pair, 29.4 times as fast as the log\n" in text
    trial = tomllib.loads(text)["demo"]
    assert (trial["rates"], trial["window_s"]) == ([0.29, 0.5, 1.5], 20)  # 0.017 times 29.4: 10 requests in 20 s
    planned = CliRunner().invoke(main, ["plan", str(tmp_path / "mine.py"), "--simulated"])
    assert planned.exit_code == 0, planned.output
    assert "[traffic] lies outside the levels of [demo] and is not weighed." in " ".join(planned.output.split())


@pytest.mark.parametrize(
    ("loads", "levels"),
    [
        ([2.0], [1.0, 1.5, 2.0, 3.0, 4.0, 6.0]),
        ([0.5, 2.0], [0.5, 0.71, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0]),
        ([1.7, 2.0], [1.0, 1.5, 2.0, 3.0, 4.0, 6.0]),
    ],
)
def test_the_ladder_covers_the_day_and_goes_beyond_it(loads: list[float], levels: list[float]) -> None:
    assert levels_for(loads) == levels


@pytest.mark.parametrize(("first", "last"), [
    (1, 1767600000.0), (1767600000, 2.2e10), ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z"),
    ("2026-01-01T00:00:00Z", "2036-02-01T00:00:00Z"),
])  # fmt: skip
def test_times_that_no_log_can_hold_both_are_refused_and_named(tmp_path: Path, first: object, last: object) -> None:
    (tmp_path / "log.jsonl").write_text(
        "".join(json.dumps({"ts": ts, "prompt": "Where?", "output_tokens": 5}) + "\n" for ts in (first, last))
    )
    done = imported(tmp_path / "log.jsonl", "-o", tmp_path / "out")
    assert done.exit_code == 2, done.output
    assert "s in line 1 and" in done.output
    assert "s in line 2," in done.output
    assert "two units" in done.output
    assert sorted(path.name for path in tmp_path.iterdir()) == ["log.jsonl"]
    assert imported(tmp_path / "log.jsonl", "-o", tmp_path / "out", "--length", "1h").exit_code == 0


def test_a_time_beyond_the_calendar_is_refused(tmp_path: Path) -> None:
    row = {"timestamp_ms": 1e19, "prompt": "Where?", "output_tokens": 5}
    (tmp_path / "log.jsonl").write_text(json.dumps(row) + "\n")
    done = imported(tmp_path / "log.jsonl", "-o", tmp_path / "out")
    assert done.exit_code == 2, done.output
    assert "none after the year 9000" in done.output


def test_hours_of_a_log_of_years_are_counted_each(tmp_path: Path) -> None:
    with (tmp_path / "log.csv").open("w") as log:
        log.write("ts,input_tokens,output_tokens,duration_s\n")
        log.writelines(
            f"{3600 * hour + 60 * n},10,10,30\n" for hour in range(0, 20_000, 40) for n in range(1 + hour % 3)
        )
    done = imported(tmp_path / "log.csv", "-o", tmp_path / "out")
    assert done.exit_code == 0, done.output
    assert "and 19932 hours more" in done.output  # of 19,980: to the last arrival, and one mean gap
    hours = [line.split() for line in done.output.splitlines() if line.strip().startswith(("0 s ", "40 h ", "41 h "))]
    assert hours == [["0", "s", "0.000278", "0.00833"], ["40", "h", "0.000556", "0.0167"], ["41", "h", "0", "0"]]


def test_a_message_on_an_unpacked_log_names_the_log(tmp_path: Path) -> None:
    log = tmp_path / "day.jsonl.gz"
    for packed, said in ((b"", "day.jsonl.gz, unpacked, is empty"), (gzip.compress(b"{}"), "unpacked, is compressed")):
        log.write_bytes(gzip.compress(packed))
        done = imported(log, "-o", tmp_path / "out")
        assert done.exit_code == 2
        assert said in done.output
        assert ".unpacked-" not in done.output


def test_a_class_is_one_line_that_can_be_shown(tmp_path: Path) -> None:
    rows = [{"ts": at, "prompt": "Where?", "output_tokens": 5, "class": name}
            for at, name in enumerate(("a\u202eb\x00\n c\x1b[31m", "x" * 1_000_000))]  # fmt: skip
    (tmp_path / "log.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    done = imported(tmp_path / "log.jsonl", "-o", tmp_path / "out")
    assert f"classes     ab c 50 %, {'x' * 100} 50 %" in done.output
    written = [json.loads(line)["class"] for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert written == ["ab c", "x" * 100]
