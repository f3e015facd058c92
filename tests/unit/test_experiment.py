"""NAME.toml and --set: what is read, and what is refused with which sentence."""

import contextlib
import json
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.checks import duration_s
from loadtest.errors import UsageError
from loadtest.experiment import SECTIONS, as_document, from_document, from_toml, load_experiment, with_assignments
from loadtest.loads import unit_of
from loadtest.settings import Experiment
from loadtest.workload.arrivals import ARRIVALS, SHAPES


def test_a_file_sets_what_it_names_and_leaves_the_rest():
    experiment = from_toml(
        '[plan]\nblocks = 3\n[load]\nlevels = [8, 1]\n[window]\nmin_s = "2m"\nmax_s = 300\n', "x.toml"
    )
    assert experiment.plan.blocks == 3
    assert experiment.plan.seed == 1
    assert experiment.load.levels == (1.0, 8.0)
    assert (experiment.window.min_s, experiment.window.max_s) == (120.0, 300.0)


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("[plan]\nblocks = 3\nsede = 2\n", ["x.toml, line 3", "no key `sede`", "Did you mean `seed`?"]),
        ("[plann]\nblocks = 3\n", ["x.toml, line 1", "no section [plann]", "Did you mean `plan`?"]),
        ("[plan]\nlevels = [1]\n", ["`levels` belongs to [load]"]),
        ("[plan]\nblocks = 0\n", ["plan.blocks is 0", "a whole number from 1 to 1000", "line 2"]),
        ("[plan]\nblocks = true\n", ["plan.blocks is True"]),
        ("[plan]\nblocks = 2.5\n", ["plan.blocks is 2.5"]),
        ("[load]\nlevels = []\n", ["load.levels is []"]),
        ("[load]\nlevels = [1, 1]\n", ["different whole numbers"]),
        ("[load]\nlevels = [0, 1]\n", ["load.levels is [0, 1]"]),
        ("[load]\nlevels = [nan]\n", ["load.levels is [nan]"]),
        ("[load]\nkind = 'half'\n", ['one of "closed"']),
        ("[generation]\ntemperature = 3.0\n", ["at most 2"]),
        ("[generation]\ntop_p = 0\n", ["generation.top_p is 0", "above 0"]),
        ("[generation]\nstop = ['']\n", ["non-empty strings"]),
        ("[window]\nmin_s = '5 parsecs'\n", ["seconds, or a duration"]),
        ("[window]\nmin_s = 100\nmax_s = 50\n", ["window.min_s is 100 and window.max_s 50"]),
        ("[decision]\nmin_gain = inf\n", ["decision.min_gain is inf"]),
        ("[decision]\nmetric = 'itl'\n", ['"e2e", "tpot"']),
        ("plan = 3\n", ["plan must be a table, written as [plan]"]),
        ("[plan\n", ["x.toml is not valid TOML"]),
        ("[plan]\nblocks = 1\nblocks = 2\n", ["x.toml is not valid TOML"]),
    ],
)
def test_what_is_wrong_is_named(source, parts):
    with pytest.raises(UsageError) as refused:
        from_toml(source, "x.toml")
    for part in parts:
        assert part in str(refused.value)
    assert refused.value.exit_code == 2


def test_assignments_take_toml_values_and_bare_words():
    experiment = with_assignments(
        Experiment(),
        [
            "plan.blocks=2",
            "servers.model=my-model",
            "load.levels=[4, 2]",
            "generation.template={enable_thinking=false}",
        ],
    )
    assert experiment.plan.blocks == 2
    assert experiment.servers.model == "my-model"
    assert experiment.load.levels == (2.0, 4.0)
    assert experiment.generation.template == {"enable_thinking": False}


@pytest.mark.parametrize("word", ["blocks=3", "plan.blocks", "=", "plan.=3", "plan.blokcs=1"])
def test_wrong_assignments_are_refused(word):
    with pytest.raises(UsageError, match="--set"):
        with_assignments(Experiment(), [word])


@pytest.mark.parametrize(
    ("word", "part"),
    [
        ("generation.temperature=" + "9" * 400, "a number at least 0 and at most 2"),
        ("generation.temperature=-" + "9" * 400, "a number at least 0 and at most 2"),
        ("decision.reading_pace=" + "9" * 400, "a number above 0"),
        ("load.levels=[" + "9" * 400 + "]", "different whole numbers"),
        ("load.levels=[1.5]", "different whole numbers"),
        ("load.levels=[inf]", "different whole numbers"),
        ("plan.seed=" + "9" * 5000, "plan.seed is '999"),
        ("plan.seed=0x" + "f" * 5000, "plan.seed is a value too long to show"),
        ("generation.max_tokens=" + "[" * 5000, "generation.max_tokens is '[["),
        ("generation.template={a=1979-05-27}", "it goes into JSON"),
        ("generation.template={a=[{b=07:32:00}]}", "it goes into JSON"),
        ("generation.template={a=" + "9" * 30 + "}", "numbers of at most 64 bits"),
        ("generation.template={a=nan}", "it goes into JSON"),
        ("generation.template={a='\udcff'}", "it goes into JSON"),
        ("generation.template={a=" + "[" * 40 + "]" * 40 + "}", "it goes into JSON"),
        ("generation.stop=['\udcff']", "non-empty strings"),
        ("servers.model='\udcff'", "a string of Unicode text"),
        ("servers.model=a\nb", "must be one printable word"),
        ('generation.max_tokens=5\n[servers]\nmodel="x"', "one --set gives one setting"),
        ("generation.max_tokens=5\nother=6", "one --set gives one setting"),
    ],
    ids=lambda word: word[:30],
)
def test_values_that_nothing_can_hold_are_refused(word, part):
    with pytest.raises(UsageError) as refused:
        with_assignments(Experiment(), [word])
    assert part in str(refused.value)
    assert len(str(refused.value)) < 600


@pytest.mark.parametrize("value", ["9" * 5000, "0x" + "f" * 5000, "[" * 5000])
def test_a_file_with_such_values_is_refused_too(value):
    with pytest.raises(UsageError, match=r"x\.toml"):
        from_toml(f"[plan]\nseed = {value}\n", "x.toml")


def test_a_template_holds_whatever_json_does():
    value = {"a": [1, 2.5, True, "é", {"b": []}], "c": 2**64 - 1, "d": -(2**63)}
    assert Experiment().generation.template == {}
    assert SECTIONS["generation"].__dataclass_fields__["template"].metadata["check"](value) == value


def test_a_run_header_gives_the_same_experiment_back():
    experiment = with_assignments(
        Experiment(), ["generation.top_p=0.9", "generation.stop=['a']", "plan.seed=9007199254740993"]
    )
    assert from_document(json.loads(json.dumps(as_document(experiment)))) == experiment


@pytest.mark.parametrize("content", [b"\xff\xfe[plan]", b"\x00", b"[plan]\nblocks = \xe9\n"])
def test_files_that_are_no_text_are_refused(tmp_path: Path, content):
    (tmp_path / "x.toml").write_bytes(content)
    with pytest.raises(UsageError, match=r"x\.toml"):
        load_experiment(tmp_path / "x.py")


def test_a_byte_order_mark_is_no_error(tmp_path: Path):
    (tmp_path / "x.toml").write_bytes(b"\xef\xbb\xbf[plan]\nblocks = 4\n")
    assert load_experiment(tmp_path / "x.py").plan.blocks == 4


def test_without_a_file_all_defaults_hold(tmp_path: Path):
    assert load_experiment(tmp_path / "x.py") == Experiment()


@given(st.text(max_size=200))
def test_no_text_raises_anything_else(source):
    with contextlib.suppress(UsageError):
        from_toml(source, "x.toml")


@pytest.mark.parametrize(
    ("word", "seconds"), [("90s", 90.0), ("250 ms", 0.25), ("2m", 120.0), ("1h", 3600.0), (7, 7.0)]
)
def test_durations(word, seconds):
    assert duration_s(word) == pytest.approx(seconds)


@pytest.mark.parametrize("section", sorted(SECTIONS))
def test_every_setting_says_what_it_is_and_its_default_passes_its_own_check(section):
    for setting in fields(SECTIONS[section]):
        assert setting.metadata["doc"], setting.name
        default = getattr(SECTIONS[section](), setting.name)
        if default is not None:
            assert setting.metadata["check"](default) == default


def test_an_open_load_has_rates_and_a_process() -> None:
    text = '[load]\nkind = "open"\nlevels = [4, 0.5]\narrivals = "gamma"\ncv = 3\nshape = "step"\nper = "sessions"\n'
    load = from_toml(text, "x.toml").load
    assert (load.kind, load.levels, load.arrivals, load.cv, load.shape) == ("open", (0.5, 4.0), "gamma", 3.0, "step")
    assert unit_of(load) == "sessions/s"
    assert unit_of(Experiment().load) == "users"


def test_kind_and_levels_may_be_two_assignments_in_either_order() -> None:
    for words in (["load.kind=open", "load.levels=[0.5]"], ["load.levels=[0.5]", "load.kind=open"]):
        assert with_assignments(Experiment(), words).load.levels == (0.5,)


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ('[load]\nkind = "opem"\n', ["line 2: load.kind", '(the nearest is "open")']),
        ('[load]\narrivals = "poison"\n', ['it must be one of "poisson"', '(the nearest is "poisson")']),
        ('[load]\nshape = "spikes"\n', ['(the nearest is "spike")']),
        ("[load]\narrival = 1\n", ["Did you mean `arrivals`?"]),
        ("[load]\n\nlevels = [0.5, 1]\n", ["line 3: load.levels is [0.5, 1.0]", 'load.kind = "open"']),
        ('[load]\nkind = "open"\n[decision]\nmetric = "output_tokens_per_s"\n', ["carry what arrives"]),
        ('[load]\nkind = "open"\nlevels = [0, 1]\n', ["load.levels is [0, 1]", "above 0"]),
        ("[load]\nfactor = 0\n", ["load.factor is 0"]),
    ],
)
def test_wrong_settings_of_an_open_load_are_refused(text: str, parts: list[str]) -> None:
    with pytest.raises(UsageError) as refused:
        from_toml(text, "x.toml")
    for part in parts:
        assert part in str(refused.value)


def test_processes_and_shapes_are_those_that_can_be_drawn() -> None:
    checks = {name: SECTIONS["load"].__dataclass_fields__[name].metadata["check"] for name in ("arrivals", "shape")}
    for name in ARRIVALS:
        assert checks["arrivals"](name) == name
    for name in SHAPES:
        assert checks["shape"](name) == name
    for check, known in ((checks["arrivals"], ARRIVALS), (checks["shape"], SHAPES)):
        with pytest.raises(ValueError, match=", ".join(f'"{name}"' for name in known)):
            check("nothing")


def test_a_link_to_a_scenario_has_the_settings_of_the_file_it_leads_to(tmp_path):
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine.py").write_text("")
    (tmp_path / "there" / "mine.toml").write_text("[plan]\nblocks = 9\n")
    link = tmp_path / "linked.py"
    link.symlink_to(tmp_path / "there" / "mine.py")
    assert load_experiment(link).plan.blocks == 9
    (tmp_path / "linked.toml").write_text("[plan]\nblocks = 4\n")
    assert load_experiment(link).plan.blocks == 4  # its own go before
    (tmp_path / "linked.toml").unlink()
    (tmp_path / "linked.toml").symlink_to(tmp_path / "gone.toml")
    with pytest.raises(UsageError, match=r"linked\.toml is not a file"):  # and are not taken as none
        load_experiment(link)
