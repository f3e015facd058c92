"""Several candidates: how they are named, which choices are refused, what the header and the plan say of them."""

from datetime import UTC, datetime
from pathlib import Path

import pytest
from test_choice import STARTED, _file

from loadtest.drive.choice import choose_from_file, refuse_one_place
from loadtest.drive.forecast import announcement
from loadtest.drive.header import make_header
from loadtest.drive.meeting import Meeting
from loadtest.drive.options import Options
from loadtest.drive.pair import refuse_violations
from loadtest.drive.prepare import prepare
from loadtest.drive.resume import _prepared
from loadtest.drive.same_bodies import SameBodies
from loadtest.errors import NotComparable, UsageError
from loadtest.record import Request
from loadtest.servers.identity import Identity

THREE = ("eagle3=http://b:1", "ngram=http://c:1/v1", "draft=http://d:1")
BASE = ("baseline", "baseline", 1, "")
FILE = (BASE, ("eagle3", "candidate", 2, ""), ("ngram", "candidate", 3, ""))


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    (tmp_path / "s.py").write_text("")
    (tmp_path / "s.toml").write_text("[plan]\nblocks = 4\n[load]\nlevels = [1, 4]\n")
    return tmp_path / "s.py"


def of(scenario, *speculative, baseline="http://a:1", **more):
    return prepare(Options(scenario=scenario, baseline=baseline, speculative=speculative or None, **more), {})


def test_each_candidate_is_an_arm_of_its_own_name(scenario):
    prepared = of(scenario, *THREE)
    assert [(arm.name, arm.role, arm.url) for arm in prepared.arms] == [
        ("baseline", "baseline", "http://a:1"), ("eagle3", "candidate", "http://b:1"),
        ("ngram", "candidate", "http://c:1"), ("draft", "candidate", "http://d:1"),
    ]  # fmt: skip
    assert prepared.found == (
        "Servers from the command line: http://a:1, eagle3 at http://b:1, ngram at http://c:1/v1 and draft at"
        " http://d:1."
    )
    assert len(prepared.cells()) == 4 * 2 * 4


def test_one_candidate_may_have_a_name_and_a_url_may_hold_an_equals_sign(scenario):
    assert [arm.name for arm in of(scenario, "eagle3=http://b:1").arms] == ["baseline", "eagle3"]
    assert of(scenario, "http://b:1/a=b").arms[1].name == "speculative"


def test_arms_choose_and_order_the_candidates(scenario):
    assert [arm.name for arm in of(scenario, *THREE, arms="baseline,draft,eagle3").arms] == [
        "baseline", "draft", "eagle3"]  # fmt: skip
    assert of(scenario, *THREE, arms="baseline,baseline").choice.aa


@pytest.mark.parametrize(
    ("speculative", "more", "part"),
    [
        (("http://b:1", "http://c:1"), {}, "has no name, and there are several: write NAME=URL"),
        (("a=http://b:1", "a=http://c:1"), {}, "names 'a' twice"),
        (("a b=http://b:1",), {}, "'a b' is no name for a candidate"),
        (("baseline=http://b:1",), {}, "the name 'baseline' is taken"),
        (("a=http://b:1", "b=http://b:1"), {}, "a and b are http://b:1; a comparison needs two servers"),
        (("a=http://b:1", "b=http://a:1/v1"), {}, "baseline and b are http://a:1"),
        (("a=http://b:1", "b="), {}, "--speculative is empty"),
        (("a=http://b:1", "b=http://c:1"), {"arms": "baseline,a,c"}, "--arms names 'c', which is no arm here"),
        (("a=http://b:1", "b=http://c:1"), {"arms": "baseline,a,a"}, "a is named twice"),
        (("a=http://b:1", "b=http://c:1"), {"arms": "a,baseline,b"}, "the first must be a baseline"),
        (("a=http://b:1", "b=http://c:1"), {"arms": "baseline,baseline,b"}, "one baseline, and these are 2"),
        (("a=http://b:1", "b=http://c:1"), {"assignments": ("plan.stages=two",)}, "chooses its levels by one"),
        (THREE, {"baseline": None}, "--speculative is given and --baseline is not"),
    ],
)
def test_what_cannot_be_compared_is_refused_before_any_load(scenario, speculative, more, part):
    with pytest.raises(UsageError) as refused:
        of(scenario, *speculative, **more)
    assert part in str(refused.value)


def test_an_objective_may_name_a_candidate_that_is_there(scenario, tmp_path):
    slo = tmp_path / "slo.toml"
    slo.write_text('[[slo]]\nmetric = "e2e"\nstatistic = "mean"\nmax = "5 s"\ncandidate = "ngram"\n')
    assert of(scenario, *THREE, slo=slo).experiment.slo.rules[0]["candidate"] == "ngram"
    with pytest.raises(UsageError, match=r"names the candidate 'ngram', which is none here.*Candidates are a, b\."):
        of(scenario, "a=http://b:1", "b=http://c:1", slo=slo)


def test_a_servers_file_may_hold_several_candidates(tmp_path, scenario):
    choice = choose_from_file(_file(tmp_path, *FILE), None)
    assert [arm.name for arm in choice.arms] == ["baseline", "eagle3", "ngram"]
    servers = tmp_path / "pair.toml"
    prepared = prepare(Options(scenario=scenario, servers=servers, speculative=("ngram=http://z:9",)), {})
    assert [arm.url for arm in prepared.arms] == ["http://127.0.0.1:1", "http://127.0.0.1:2", "http://z:9"]
    for word, part in (("http://z:9", r"several candidates \(eagle3, ngram\); say which"),
                       ("ngrm=http://z:9", "no candidate of that name. Did you mean `ngram`")):  # fmt: skip
        with pytest.raises(UsageError, match=part):
            prepare(Options(scenario=scenario, servers=servers, speculative=(word,)), {})


def test_candidates_of_one_machine_take_turns_in_balanced_orders(tmp_path, scenario):
    _file(tmp_path, *[(*arm[:3], STARTED) for arm in FILE])
    prepared = prepare(Options(scenario=scenario, servers=tmp_path / "pair.toml"), {})
    assert prepared.choice.restarts
    order = [c.arm for c in prepared.cells()[::2]]
    assert order[:6] == ["baseline", "eagle3", "ngram", "ngram", "eagle3", "baseline"]
    said = announcement(prepared, prepared.cells())
    assert any("One server at a time: 12 starts" in line for line in said)


def test_the_plan_says_what_several_candidates_cost(scenario):
    prepared = of(scenario, *THREE)
    said = announcement(prepared, prepared.cells())
    assert "32 cells: 4 arms × 2 levels (1, 4 users) × 4 blocks." in said
    assert any("each with 98.33 %" in line and "balanced over 4 blocks" in line for line in said)


def test_the_header_names_the_candidates_and_a_run_can_be_gone_on_with(scenario):
    header = make_header(of(scenario, *THREE), "", datetime.now(UTC), 0)
    assert (header["schema"], header["candidate"], header["candidates"]) == (2, None, ["eagle3", "ngram", "draft"])
    again = _prepared(scenario.parent, header, header["options"], None, {})
    assert [(arm.name, arm.url) for arm in again.arms] == [
        ("baseline", "http://a:1"), ("eagle3", "http://b:1"), ("ngram", "http://c:1/v1".removesuffix("/v1")),
        ("draft", "http://d:1"),
    ]  # fmt: skip
    pair = make_header(of(scenario, "http://b:1"), "", datetime.now(UTC), 0)
    assert (pair["schema"], pair["candidate"], "candidates" in pair) == (1, "speculative", False)
    assert pair["options"]["speculative"] == "http://b:1"


def identity(model="m", speculates=False):
    return Identity(kind="vllm", model=model, speculates=speculates, shown_by="x")


def test_each_candidate_is_compared_with_the_baseline_once_both_are_known(scenario):
    prepared = of(scenario, "a=http://b:1", "b=http://c:1")
    told, (base, first, second) = [], prepared.arms
    meeting = Meeting(prepared.choice, ("model",))
    meeting.met(second, identity(speculates=True), told.append)
    assert not meeting.rows
    meeting.met(base, identity(), told.append)
    assert [event["arm"] for event in told] == ["b"]
    meeting.met(first, identity("other", speculates=True), told.append)
    assert [event["arm"] for event in told] == ["b", "a"]
    models = {row["arm"]: row["kind"] for row in meeting.rows if row["item"] == "model"}
    assert models == {"a": "violation", "b": "equal"}
    refuse_violations(meeting.rows)  # waived
    meeting = Meeting(prepared.choice, ())
    for arm, own in ((base, identity()), (first, identity("other", speculates=True))):
        meeting.met(arm, own, told.append)
    with pytest.raises(NotComparable, match=r"model: baseline m, a other"):
        refuse_violations(meeting.rows)


def test_every_arm_must_be_asked_what_the_first_was():
    def asked(arm: str, digest: str) -> Request:
        return Request(cell=0, arm=arm, level=1.0, block=0, user=0, session=3, due_s=0.0, body_hash=digest)

    same = SameBodies(lambda row: None, arms=3)
    for arm in ("baseline", "a", "b"):
        same.keep(asked(arm, "x"))
    same = SameBodies(lambda row: None, arms=3)
    same.keep(asked("baseline", "x"))
    same.keep(asked("a", "x"))
    with pytest.raises(UsageError, match="was one thing for baseline and another for b"):
        same.keep(asked("b", "y"))


def test_arms_behind_one_url_are_refused_by_their_names(scenario):
    refuse_one_place(of(scenario, *THREE).choice)
