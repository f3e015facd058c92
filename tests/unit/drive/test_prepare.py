"""Options, environment and settings: which servers are taken, and what is refused before any load."""

from pathlib import Path

import pytest

from loadtest.drive.options import Options
from loadtest.drive.prepare import prepare
from loadtest.drive.run import measure
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


def test_traffic_outside_the_levels_of_the_trial_is_set_aside_where_nothing_is_judged_by_it(scenario, tmp_path):
    toml = scenario.with_suffix(".toml")
    toml.write_text(toml.read_text() + "[traffic]\nloads = [1, 4]\nhours = [12, 12]\n")
    trial = prepare(Options(scenario=scenario), {})
    assert trial.experiment.traffic.loads == ()
    assert trial.found.endswith("[traffic] lies outside the levels of [demo] and is not weighed.")
    for chosen in ({"levels": "3,5"}, {"assignments": ("load.levels=[3, 5]",)}):
        with pytest.raises(UsageError, match=r"\[traffic\]: 1 lies outside the levels \(3, 5\)"):
            prepare(Options(scenario=scenario, **chosen), {})
    (tmp_path / "slo.toml").write_text('[[slo]]\nmetric = "e2e"\nstatistic = "mean"\nmax = "1 s"\n')
    with pytest.raises(UsageError, match="lies outside the levels"):
        prepare(Options(scenario=scenario, simulated=True, slo=tmp_path / "slo.toml"), {})
    assert prepare(Options(scenario=scenario, baseline="http://a:1", speculative="http://b:1"), {}).experiment.traffic
    toml.write_text(toml.read_text().replace("levels = [3, 5]", "levels = [1, 5]"))
    within = prepare(Options(scenario=scenario), {})
    assert within.experiment.traffic.loads == (1.0, 4.0)
    assert "not weighed" not in within.found


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
        ({"baseline": "http://127.0.0.1:1", "speculative": "http://LOCALHOST:1"}, "Both arms are one server"),
        ({"baseline": "http://a", "speculative": "http://A.:80"}, "Both arms are one server"),
        ({"baseline": "", "speculative": ""}, "--baseline is empty"),
        ({"baseline": "http://a:1", "speculative": ""}, "--speculative is empty"),
        ({"server": " "}, "--server is empty"),
        ({"world": ""}, "--world is empty"),
        ({"servers": Path("pair.toml"), "baseline": ""}, "--baseline is empty"),
        ({"assignments": ("servers.baseline=", "servers.speculative=")}, "--set servers.baseline is empty"),
        ({"assignments": ("servers.baseline=http://a:1",)}, "--set servers.baseline is given and"),
        ({"world": "defalt"}, "--world is 'defalt', which is no world. Did you mean `default`?"),
        ({"assignments": ("demo.preset=defalt",)}, "demo.preset is 'defalt', which is no world."),
        ({"server": "http://a:1", "assignments": ("demo.preset=defalt",)}, "demo.preset is 'defalt'"),
        ({"server": "http://a:1", "assignments": ("demo.blokcs=3",)}, "Did you mean `blocks`?"),
        ({"levels": "9" * 400}, "--levels is '999"),
        ({"levels": "9" * 5000}, "--levels is '999"),
        ({"server": "http://a..b"}, "no valid host name"),
        ({"baseline": "http://[::1", "speculative": "http://b"}, "--baseline is 'http://[::1'"),
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


def test_servers_named_by_settings_are_the_servers(scenario):
    assignments = ("servers.baseline=http://a:1", "servers.speculative='http://b:2'")
    environment = {"LOADTEST_BASELINE_URL": "http://e1:1", "LOADTEST_SPECULATIVE_URL": "http://e2:2"}
    prepared = prepare(Options(scenario=scenario, assignments=assignments), environment)
    assert [arm.url for arm in prepared.arms] == ["http://a:1", "http://b:2"]
    assert prepared.world is None


def test_a_space_before_an_assignment_changes_nothing(scenario):
    prepared = prepare(Options(scenario=scenario, assignments=(" demo.blocks=7",)), {})
    assert prepared.experiment.plan.blocks == 7


def test_an_empty_variable_of_the_environment_is_refused(scenario):
    with pytest.raises(UsageError, match="LOADTEST_BASELINE_URL is empty"):
        prepare(Options(scenario=scenario), {"LOADTEST_BASELINE_URL": "", "LOADTEST_SPECULATIVE_URL": ""})
    prepared = prepare(Options(scenario=scenario, server="http://a:1"), {"LOADTEST_BASELINE_URL": ""})
    assert prepared.arms[0].url == "http://a:1"


@pytest.mark.parametrize("kind", ["link that leads nowhere", "file"])
def test_an_output_folder_that_is_none_is_refused(scenario, kind):
    out = scenario.parent / "out"
    if kind == "file":
        out.write_text("")
    else:
        out.symlink_to(scenario.parent / "missing" / "folder")
    with pytest.raises(UsageError, match=r"--out .*out cannot be written: "):
        measure(prepare(Options(scenario=scenario, out=out), {}), lambda event: None)


def test_a_mistake_of_our_own_leaves_no_empty_folder(scenario):
    def tell(event):
        raise RuntimeError("a mistake")

    out = scenario.parent / "out"
    with pytest.raises(RuntimeError, match="a mistake"):
        measure(prepare(Options(scenario=scenario, out=out), {}), tell)
    assert list(out.iterdir()) == []


def test_half_an_environment_is_refused(scenario):
    with pytest.raises(UsageError, match="LOADTEST_BASELINE_URL is given and LOADTEST_SPECULATIVE_URL is not"):
        prepare(Options(scenario=scenario), {"LOADTEST_BASELINE_URL": "http://a:1"})


def test_a_scenario_that_is_none_is_refused_and_its_neighbours_are_named(scenario):
    with pytest.raises(UsageError, match=r"is not a file\. There are .*s\.py"):
        prepare(Options(scenario=scenario.with_name("t.py")), {})
    with pytest.raises(UsageError, match="is not a scenario"):
        prepare(Options(scenario=scenario.with_suffix(".toml")), {})
