import dataclasses
import io
import re

import pytest
import report_example as example
from rich.console import Console

from loadtest.analyse.estimates import Estimate
from loadtest.loads import spoken
from loadtest.report import answer, header, words
from loadtest.report.markdown import quiet, summary, write_summary
from loadtest.report.progress import Progress
from loadtest.report.terminal import print_summary
from loadtest.report.view import View

ALL = {
    "pays": (example.run(simulated=True), example.judgement()), "one arm": (example.run(), example.one_arm()),
    "invalid": (example.run(), example.invalid()), "bare": ({}, example.bare()),
}  # fmt: skip
START = {"event": "cell_start", "cell": 0, "arm": "baseline", "level": 16.0, "block": 1, "index": 0, "total": 4}
TICK = {"event": "tick", "phase": "window", "tokens_per_s": 1234.5, "ttft_p50_s": 0.0412, "in_flight": 15, "errors": 1}
END = START | {"event": "cell_end", "state": "complete", "reason": ""}


def printed(run, judgement, page=None, width=80, **options) -> str:
    out = io.StringIO()
    print_summary(Console(file=out, width=width, **options), run, judgement, page)
    return out.getvalue()


@pytest.mark.parametrize("name", ALL)
def test_the_summary_fits_80_columns_without_colour(name):
    text = printed(*ALL[name])
    assert max(len(line) for line in text.splitlines()) <= 80
    assert "\x1b" not in text


@pytest.mark.parametrize("width", [80, 200])
def test_the_answer_is_the_same_at_any_width_and_in_colour(width):
    plain = printed(*ALL["pays"], width=width)
    coloured = printed(*ALL["pays"], width=width, force_terminal=True, color_system="standard")
    assert re.sub("\x1b\\[[0-9;]*m", "", coloured) == plain
    assert coloured != plain
    assert max(len(line) for line in plain.splitlines()) <= width
    assert " ".join(plain.split()) == " ".join(printed(*ALL["pays"], width=120).split())


def test_classes_that_lose_are_named_in_every_text():
    said = "By class: At 32 users 1 of 3 classes is faster by its own interval and 1 slower: rag."
    assert said in " ".join(printed(*ALL["pays"]).split())
    assert said in summary(*ALL["pays"])
    for name in ("one arm", "invalid", "bare"):
        assert "By class" not in summary(*ALL[name])


def test_the_path_of_the_page_is_whole_in_a_narrow_pipe(tmp_path):
    page = tmp_path / ("long-" * 30) / "report.html"
    assert f"Page: {page}\n" in printed(*ALL["pays"], page=page)


def test_the_summary_holds_the_answer_and_every_level(tmp_path):
    text = printed(*ALL["pays"], page=tmp_path / "report.html")
    flat = " ".join(text.split())
    assert flat.startswith("SIMULATED: These figures describe a model, not anyone's hardware.")
    assert example.HEADLINE in flat
    assert example.SECOND in flat
    assert "Recommendation: on up to 32 users" in flat
    lines = [line.split() for line in text.splitlines()]
    for level in ("1", "2", "4", "8", "16", "32", "64"):
        at = next(i for i, line in enumerate(lines) if line[:2] == [level, "baseline"])
        assert lines[at + 1][0] == "speculative"
    assert "64 baseline 60.2 165 ms 16.2 ms 4.29 s 3,818 0.89× [0.87, 0.92]" in flat
    assert flat.count("pays ") >= 5
    assert f"Page: {tmp_path / 'report.html'}" in flat
    assert flat.endswith("Exit code: 0 (pass)")


def test_an_invalid_run_gives_its_reason_and_code():
    flat = " ".join(printed(*ALL["invalid"]).split())
    assert "the speculative server stopped answering after 4 cells" in flat
    assert flat.endswith("Exit code: 5 (invalid run, or servers not comparable)")


def test_foreign_text_cannot_act_on_the_terminal():
    judgement = example.judgement()
    decision = dataclasses.replace(judgement.decision, headline="a\x1b]0;t\x07[bold red]b[/]\u202e:smile:")
    text = printed(
        example.run(), dataclasses.replace(judgement, decision=decision), force_terminal=True, color_system=None
    )
    assert "a\ufffd]0;t\ufffd[bold red]b[/]\ufffd:smile:" in text
    assert not set("\x07\u202e") & set(text)


@pytest.mark.parametrize("name", ALL)
def test_markdown_has_the_headline_and_a_whole_table(name):
    text = summary(*ALL[name])
    assert f"## {quiet(ALL[name][1].decision.headline)}" in text
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({row.count("|") for row in rows}) == 1
    assert len(text) < 65_536  # what a comment may hold


def test_markdown_of_a_comparison():
    text = summary(*ALL["pays"])
    assert text.startswith("> **Simulated.** These figures describe a model, not anyone's hardware.\n")
    assert example.HEADLINE in text
    assert (
        "| 64 users | speculative | 0.89× [0.87, 0.92] | slower | E2E p95 +11 %, TTFT p95 +11 % | 190 ms | 387 ms |"
        in text
    )
    assert "Scenario chat. Exit code 0 (pass)." in text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("37 [33, 42] users", "37 [33, 42] users"),
        ("<img src=x>", "&lt;img src=x&gt;"),
        ("![x](http://e)", "![x]\\(http://e)"),
        ("a | b `c` *d*", "a \\| b \\`c\\` \\*d\\*"),
        ("@team", "@\u200bteam"),
    ],
)
def test_markdown_shows_foreign_text_as_it_is(text, shown):
    assert quiet(text) == shown


def test_the_summary_file_is_written_whole(tmp_path):
    path = write_summary(tmp_path, *ALL["pays"])
    assert path.name == "summary.md"
    assert path.read_text(encoding="utf-8") == summary(*ALL["pays"])


def test_progress_writes_one_plain_line_per_cell_where_there_is_no_terminal():
    out, clock = io.StringIO(), iter([0.0, 90.0])
    with Progress(Console(file=out, width=80), now=lambda: next(clock)) as progress:
        for event in (START, TICK, END, {"event": "unknown"}):
            progress.handle(event)
    assert out.getvalue() == (
        "cell 1 of 4, baseline, 16 users, block 2: 1,234 tokens/s, TTFT p50 41.2 ms, 15 in flight, 1 error;"
        " about 4 min 30 s left\n"
    )


def test_progress_says_why_a_cell_was_given_up():
    out = io.StringIO()
    with Progress(Console(file=out, width=80), now=lambda: 0.0) as progress:
        for event in (START, END | {"state": "aborted", "reason": "the server\x1b[2J was busy"}):
            progress.handle(event)
    assert "cell 1 of 4, baseline, 16 users, block 2: aborted: the server\ufffd[2J was busy" in out.getvalue()


def test_progress_before_the_first_cell():
    out = io.StringIO()
    with Progress(Console(file=out, width=80)) as progress:
        for event in (
            {"event": "note", "text": "prompts: 3 left out"},
            {"event": "calibration_start", "users": 64},
            TICK,
        ):
            progress.handle(event)
    assert out.getvalue() == (
        "note: prompts: 3 left out\ncalibrating the client against the built-in null server, 64 users\n"
    )


@pytest.mark.parametrize(
    ("ratio", "candidate", "baseline", "shown"),
    [(1.2, 0.6, 0.5, True), (1.2, 0.5, 0.6, False), (0.9, 0.5, 0.6, True), (None, 0.5, 0.6, False),
     (1.1, None, 0.6, False)],
)  # fmt: skip
def test_pooled_times_stand_beside_a_ratio_only_where_they_lean_its_way(ratio, candidate, baseline, shown):
    said = answer._beside(ratio, candidate, baseline, form=words.time, of="pooled")
    assert (" against " in said) is shown


def test_rates_keep_their_digits_and_their_unit():
    assert (words.level(1.0), words.load(0.25), words.load(12.34)) == ("1 user", "0.2", "12")
    with spoken("requests/s"):
        assert words.level(1.0) == "1 requests/s"
        assert words.levels([0.5, 2.0]) == "0.5 and 2 requests/s"
        assert [words.load(x) for x in (0.25, 12.34, 1234.5)] == ["0.25", "12.3", "1234"]
        assert words.of_loads(Estimate(value=2.5, low=2.25, high=2.75)) == "2.5 [2.25, 2.75] requests/s"
    assert words.calibrated({"users": 80, "unit": "requests/s"}) == "80 requests/s"
    assert words.calibrated({"users": 64}) == "64 users"


def test_the_table_of_an_open_load_is_headed_by_its_unit():
    judgement = dataclasses.replace(example.judgement(), unit="sessions/s")
    assert "sess/s  arm" in printed(example.run(), judgement)


def test_a_cell_of_an_open_load_says_its_rate():
    out = io.StringIO()
    progress = Progress(Console(file=out, width=200))
    progress.handle(START | {"level": 2.5, "unit": "requests/s"})
    progress.handle(END | {"level": 2.5, "unit": "requests/s"})
    progress.handle({"event": "calibration_start", "users": 40.0, "unit": "requests/s"})
    assert "2.5 requests/s" in out.getvalue()
    assert "null server, 40 requests/s" in out.getvalue()
    assert "user" not in out.getvalue()


def test_the_conditions_name_the_process_of_an_open_load():
    run = example.run()
    load = {"kind": "open", "arrivals": "gamma", "cv": 3.0, "shape": "step", "factor": 2.0, "think_time": 0.5}
    run = run | {"experiment": run["experiment"] | {"load": load}}
    said = str(header.conditions(View(run=run, judgement=example.judgement())))
    assert "open load, gamma arrivals (CV 3.0), a step of 2.0 times, think times × 0.5" in said
    load |= {"arrivals": "poisson", "shape": "steady", "think_time": 0.0}
    said = str(header.conditions(View(run=run, judgement=example.judgement())))
    assert "open load, poisson arrivals, no think time" in said
    load |= {"arrivals": "trace"}
    run |= {"habits": {"gap_cv": 13.15}}
    said = str(header.conditions(View(run=run, judgement=example.judgement())))
    assert "open load, trace arrivals (its own CV 13.15), no think time" in said


@pytest.mark.parametrize(("in_flight", "told"), [(1.0, False), (0.7, True)])
def test_requests_in_flight_that_are_the_users_leave_their_column(in_flight, told):
    full = example.full()
    rows = tuple(dataclasses.replace(item, in_flight=in_flight * item.level, arm=item.arm[:4])
                 for item in full.arm_levels)  # fmt: skip
    text = printed(example.run(), dataclasses.replace(full, arm_levels=rows, arms=("base", "spec")))
    head = next(line for line in text.splitlines() if line.startswith("users"))
    assert ("in flight" in head) is told
    assert "E2E  tokens/s" in head
