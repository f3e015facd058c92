"""Options, environment and settings: which servers are taken, and what is refused before any load."""

from pathlib import Path

import pytest

from loadtest.drive.prepare import Options, prepare
from loadtest.errors import UsageError
from loadtest.settings import Demo


@pytest.fixture
def scenario(tmp_path: Path) -> Path:
    (tmp_path / "s.py").write_text("")
    (tmp_path / "s.toml").write_text(
        "[plan]\nblocks = 6\n[load]\nlevels = [1, 4]\n[demo]\nblocks = 2\nlevels = [3, 5]\n"
    )
    return tmp_path / "s.py"


def _urls(prepared):
    return [(arm.name, arm.role, arm.url) for arm in prepared.arms]


def test_without_servers_the_simulated_pair_and_the_demo_settings_are_used(scenario):
    prepared = prepare(Options(scenario=scenario), {})
    assert prepared.world == "default"
    assert _urls(prepared) == [("baseline", "baseline", ""), ("speculative", "candidate", "")]
    assert prepared.experiment.load.levels == (3.0, 5.0)
    assert prepared.experiment.plan.blocks == 2
    assert prepared.experiment.window.min_s == prepared.experiment.window.max_s == Demo().window_s
    assert "simulated" in prepared.found


def test_options_go_before_the_environment_and_that_before_the_file(scenario):
    environment = {"LOADTEST_BASELINE_URL": "http://e1:1", "LOADTEST_SPECULATIVE_URL": "http://e2:2"}
    options = Options(scenario=scenario, baseline="http://a:8000/v1/", speculative="b:8001")
    assert _urls(prepare(options, environment)) == [
        ("baseline", "baseline", "http://a:8000"),
        ("speculative", "candidate", "http://b:8001"),
    ]
    assert [arm.url for arm in prepare(Options(scenario=scenario), environment).arms] == ["http://e1:1", "http://e2:2"]
    toml = scenario.with_suffix(".toml")
    toml.write_text(toml.read_text() + "[servers]\nbaseline='http://t:1'\nspeculative='http://t:2'\n")
    assert [arm.url for arm in prepare(Options(scenario=scenario), {}).arms] == ["http://t:1", "http://t:2"]
    assert prepare(Options(scenario=scenario), environment).arms[0].url == "http://e1:1"


def test_real_servers_keep_the_real_settings(scenario):
    prepared = prepare(Options(scenario=scenario, server="http://a:1"), {})
    assert prepared.world is None
    assert prepared.experiment.load.levels == (1.0, 4.0)
    assert prepared.experiment.plan.blocks == 6
    assert _urls(prepared) == [("server", "single", "http://a:1")]


def test_options_override_demo_and_file(scenario):
    options = Options(scenario=scenario, levels="7,2", window="2m", blocks=9, assignments=("generation.max_tokens=5",))
    experiment = prepare(options, {}).experiment
    assert experiment.load.levels == (2.0, 7.0)
    assert (experiment.window.min_s, experiment.window.max_s) == (120.0, 120.0)
    assert experiment.plan.blocks == 9
    assert experiment.generation.max_tokens == 5


def test_a_smoke_run_takes_the_ends_of_the_ladder_once(scenario):
    experiment = prepare(Options(scenario=scenario, smoke=True, levels=None), {}).experiment
    assert experiment.load.levels == (3.0, 5.0)
    assert experiment.plan.blocks == 1
    assert experiment.window.min_s == 10.0


@pytest.mark.parametrize(
    ("options", "part"),
    [
        ({"baseline": "http://a:1"}, "--baseline is given and --speculative is not"),
        ({"speculative": "http://a:1"}, "--speculative is given and --baseline is not"),
        ({"baseline": "http://a:1", "speculative": "http://a:1/v1"}, "needs two servers"),
        ({"server": "http://a:1", "baseline": "http://b:1"}, "--server tests one server alone"),
        ({"server": "http://a:1", "world": "default"}, "built-in pair"),
        ({"server": "ftp://a"}, "write a URL such as"),
        ({"server": "http://a:99999"}, "write a URL such as"),
        ({"server": "http://"}, "write a URL such as"),
        ({"server": "http://u:secret@a:1"}, "carries a user or password"),
        ({"server": "http://a:1/?x=1"}, "no ? or # part"),
        ({"levels": "1,x"}, "--levels is '1,x'"),
        ({"levels": ""}, "--levels is ''"),
        ({"levels": "0"}, "--levels is '0'"),
        ({"window": "-3"}, "--window is '-3'"),
        ({"window": "0"}, "a duration above 0"),
        ({"blocks": 0}, "--blocks is 0"),
        ({"assignments": ("plan.seeed=1",)}, "Did you mean `seed`?"),
        ({"prompts": Path("missing.jsonl")}, "missing.jsonl is not a file"),
    ],
)
def test_wrong_options_are_refused(scenario, options, part):
    with pytest.raises(UsageError) as refused:
        prepare(Options(scenario=scenario, **options), {})
    assert part in str(refused.value)
    assert "secret" not in str(refused.value)


def test_half_an_environment_is_refused(scenario):
    with pytest.raises(UsageError, match="LOADTEST_BASELINE_URL is given and LOADTEST_SPECULATIVE_URL is not"):
        prepare(Options(scenario=scenario), {"LOADTEST_BASELINE_URL": "http://a:1"})


def test_a_scenario_that_is_none_is_refused_and_its_neighbours_are_named(scenario):
    with pytest.raises(UsageError, match=r"is not a file\. There are .*s\.py"):
        prepare(Options(scenario=scenario.with_name("t.py")), {})
    with pytest.raises(UsageError, match="is not a scenario"):
        prepare(Options(scenario=scenario.with_suffix(".toml")), {})
