"""Which arms take part, and how they are started."""

from __future__ import annotations

from pathlib import Path

import pytest

from loadtest.drive.choice import choose, choose_from_file, with_options
from loadtest.drive.forecast import announcement
from loadtest.drive.options import Options
from loadtest.drive.plan import make_start_plan
from loadtest.drive.prepare import prepare
from loadtest.errors import UsageError
from loadtest.experiment import override
from loadtest.servers.control import Arm
from loadtest.servers.file import read_servers
from loadtest.settings import Experiment, Servers

POOL = {
    "baseline": Arm(name="baseline", role="baseline", url="http://a:1"),
    "other": Arm(name="other", role="baseline", url="http://a:2"),
    "draft": Arm(name="draft", role="candidate", url="http://a:3"),
}
STARTED = "start = ['serve']\n"


def _arms(choice):
    return [(arm.name, arm.role, arm.url) for arm in choice.arms]


def test_two_arms_are_a_comparison_and_one_alone_is_none():
    both = choose(POOL, "baseline, draft")
    assert _arms(both) == [("baseline", "baseline", "http://a:1"), ("draft", "candidate", "http://a:3")]
    assert not both.aa
    alone = choose(POOL, "draft")
    assert _arms(alone) == [("draft", "single", "http://a:3")]


@pytest.mark.parametrize(
    ("names", "arms"),
    [
        ("baseline,baseline", [("baseline", "baseline", "http://a:1"), ("baseline-2", "candidate", "http://a:1")]),
        ("draft,draft", [("draft", "baseline", "http://a:3"), ("draft-2", "candidate", "http://a:3")]),
        ("baseline,other", [("baseline", "baseline", "http://a:1"), ("other", "candidate", "http://a:2")]),
    ],
)
def test_the_same_arm_twice_or_two_baselines_are_an_aa(names, arms):
    choice = choose(POOL, names)
    assert choice.aa
    assert _arms(choice) == arms
    assert list(choice.origins.values()) == names.split(",")


@pytest.mark.parametrize(
    ("names", "part"),
    [
        ("baseline,drfat", "--arms names 'drfat', which is no arm here. Did you mean `draft`? There are baseline,"),
        ("draft,baseline", "the first must be a baseline, the second a candidate"),
        (
            "baseline,other,draft",
            "one baseline, and these are 2. An A/A takes two and no candidate: --arms baseline,other.",
        ),
        ("", "--arms names ''"),
    ],
)
def test_other_choices_are_refused(names, part):
    with pytest.raises(UsageError) as refused:
        choose(POOL, names)
    assert part in str(refused.value)


def _file(tmp_path: Path, *tables: tuple[str, str, int, str], top: str = ""):
    path = tmp_path / "pair.toml"
    path.write_text(top + "\n" + "".join(
        f"[arms.{name}]\nrole = '{role}'\nurl = 'http://127.0.0.1:{port}'\n{more}" for name, role, port, more in tables
    ))  # fmt: skip
    return read_servers(path, {})


BASE, CAND = ("baseline", "baseline", 1, STARTED), ("draft", "candidate", 1, STARTED)


def test_started_arms_of_a_shared_machine_take_turns(tmp_path):
    choice = choose_from_file(_file(tmp_path, BASE, CAND), None)
    assert choice.restarts
    assert set(choice.starts) == {"baseline", "draft"}
    itself = choose_from_file(_file(tmp_path, BASE, CAND), "baseline,baseline")
    assert itself.restarts
    assert set(itself.starts) == {"baseline", "baseline-2"}


def test_arms_of_their_own_machines_stay_up(tmp_path):
    apart = ("draft", "candidate", 2, STARTED)
    choice = choose_from_file(_file(tmp_path, BASE, apart, top="machine = 'own'"), None)
    assert not choice.restarts
    assert set(choice.starts) == {"baseline", "draft"}


def test_arms_that_are_up_already_take_no_turns(tmp_path):
    choice = choose_from_file(_file(tmp_path, (*BASE[:3], ""), ("draft", "candidate", 2, "")), None)
    assert not choice.restarts
    assert not choice.starts


def test_one_arm_of_a_file_is_started_once(tmp_path):
    choice = choose_from_file(_file(tmp_path, BASE), None)
    assert [arm.role for arm in choice.arms] == ["single"]
    assert not choice.restarts
    assert set(choice.starts) == {"baseline"}


@pytest.mark.parametrize(
    ("tables", "top", "names", "part"),
    [
        ((BASE, (*CAND[:3], "")), "", None, "arms.draft has no `start`; on a shared machine only one arm runs"),
        ((BASE, CAND), "machine = 'own'", None, 'machine = "own" keeps both arms up, and both would listen'),
        ((BASE, CAND), "machine = 'own'", "baseline,baseline", "Write a second baseline table with a URL of its own"),
        ((CAND, ("ngram", "candidate", 1, STARTED)), "", None, "say which to compare: --arms BASELINE,CANDIDATE"),
    ],
)
def test_files_that_do_not_say_enough_are_refused(tmp_path, tables, top, names, part):
    with pytest.raises(UsageError) as refused:
        choose_from_file(_file(tmp_path, *tables, top=top), names)
    assert part in str(refused.value)


@pytest.mark.parametrize("url", ["http://127.0.0.1:1", "http://LOCALHOST:1/v1"])
def test_servers_of_a_file_that_are_one_and_the_same_are_refused(tmp_path, url):
    file = _file(tmp_path, (*BASE[:3], ""), ("draft", "candidate", 2, ""))
    file = with_options(file, {"candidate": url}, Servers(), Servers())
    with pytest.raises(UsageError, match=r"Both arms are .*; a comparison needs two servers"):
        choose_from_file(file, None)


def test_a_password_in_an_option_that_is_refused_is_not_shown(tmp_path):
    with pytest.raises(UsageError) as refused:
        with_options(_file(tmp_path, BASE, CAND), {"baseline": "http://u:canary@a"}, Servers(), Servers())
    assert "canary" not in str(refused.value)


def test_starts_follow_thue_and_morse_and_each_walks_the_ladder():
    experiment = override(Experiment(), "load", levels=(1.0, 2.0, 4.0))
    experiment = override(experiment, "plan", blocks=4)
    cells = make_start_plan(experiment, ("A", "B"))
    assert [cell.cell for cell in cells] == list(range(24))
    assert "".join(cell.arm for cell in cells[::3]) == "ABBABAAB"
    assert [cell.block for cell in cells[::3]] == [0, 0, 1, 1, 2, 2, 3, 3]
    ladders = [tuple(cell.level for cell in cells[i : i + 3]) for i in range(0, 24, 3)]
    assert all(sorted(ladder) == [1.0, 2.0, 4.0] for ladder in ladders)
    assert ladders[::2] == ladders[1::2], "both arms of a block walk it in the same order"
    assert len(set(ladders)) > 1
    assert cells == make_start_plan(experiment, ("A", "B"))
    assert cells != make_start_plan(override(experiment, "plan", seed=2), ("A", "B"))


@pytest.fixture
def options(tmp_path: Path):
    """`options(…)`: a scenario with 2 blocks and a pair that takes turns."""
    (tmp_path / "s.py").write_text("")
    (tmp_path / "s.toml").write_text(
        "[plan]\nblocks = 2\n[load]\nlevels = [1, 4]\n[window]\nmin_s = 60\nmax_s = 60\n[servers]\nmodel = 'written'\n"
    )
    _file(tmp_path, BASE, (*CAND[:3], STARTED + "model = 'mine'\n"))
    return lambda **values: Options(scenario=tmp_path / "s.py", servers=tmp_path / "pair.toml", **values)


@pytest.mark.parametrize(
    ("values", "blocks"),
    [({}, 4), ({"blocks": 2}, 2), ({"assignments": ("plan.blocks=3",)}, 3), ({"blocks": 7}, 7), ({"smoke": True}, 1)],
)
def test_four_pairs_of_starts_unless_asked_otherwise(options, values, blocks):
    prepared = prepare(options(**values), {})
    assert prepared.experiment.plan.blocks == blocks
    assert len(prepared.cells()) == 4 * blocks


def test_the_time_of_the_starts_is_in_the_forecast(options):
    prepared = prepare(options(), {})
    found, shape, order, time, *others = announcement(prepared, prepared.cells())
    # the two levels of one start share its luck
    assert "Intervals: 4 paired ratios per level, 3 degrees of freedom over all levels." in others
    # three answers to each of 40 prompts, of a second each
    assert (
        "Before them 40 prompts go to both servers one by one, to the baseline twice, to compare answers: about 2 min"
        " (simulated servers: none; --set outputs.prompts=0: none)."
    ) in others
    assert "baseline at http://127.0.0.1:1 (started by this run) and draft at" in found
    assert shape == "16 cells: 2 arms × 2 levels (1, 4 users) × 4 blocks."
    assert order == ("One server at a time: 8 starts, baseline draft draft baseline draft baseline baseline draft.")
    # 16 cells of 60 s and 6 s around each, and 8 minutes of starts
    assert time == "Time: 26 min, if a request takes about 1 s and each of 8 starts about 60 s."


def test_options_go_before_the_file_and_the_file_before_the_scenario(options):
    assert [arm.model for arm in prepare(options(), {}).arms] == ["written", "mine"]
    given = prepare(options(assignments=("servers.model=given",)), {})
    assert [arm.model for arm in given.arms] == ["given", "given"]
    with pytest.raises(UsageError, match=r"--baseline http://b:9: arms\.baseline is started by .*pair\.toml at"):
        prepare(options(baseline="http://b:9"), {})
    with pytest.raises(UsageError, match="leave out --server, --simulated and --world"):
        prepare(options(simulated=True), {})


def test_an_option_replaces_the_url_of_an_arm_that_is_up_already(options, tmp_path):
    _file(tmp_path, ("baseline", "baseline", 1, ""), ("draft", "candidate", 2, ""))
    prepared = prepare(options(baseline="http://b:9/v1"), {})
    assert [arm.url for arm in prepared.arms] == ["http://b:9", "http://127.0.0.1:2"]


def test_the_simulated_pair_can_be_held_against_itself(tmp_path):
    (tmp_path / "s.py").write_text("")
    prepared = prepare(Options(scenario=tmp_path / "s.py", simulated=True, arms="baseline,baseline"), {})
    assert [arm.name for arm in prepared.arms] == ["baseline", "baseline-2"]
    assert prepared.choice.aa
    assert prepared.found.endswith("A/A: both arms are baseline; what differs between them is noise.")
