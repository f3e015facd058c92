"""A servers file: what is read, what is filled in, and what is refused with which sentence."""

from __future__ import annotations

import contextlib
import hashlib
import json
import sys
from dataclasses import fields
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.errors import UsageError
from loadtest.servers.file import ArmTable, read_servers

PAIR = """
machine = "shared"
[variables]
root = "${ROOT}"
python = "{root}/bin/python"
[arms.baseline]
role = "baseline"
url = "http://127.0.0.1:8101/v1/"
start = ["{python}", "-m", "server", "--port", "{port}", "--host", "{host}"]
env = {LD_PRELOAD = "{root}/lib/x.so", HF_TOKEN = "${TOKEN}"}
[arms."draft.k4"]
role = "candidate"
url = "http://127.0.0.1:8101"
start = ["{python}", "--speculative-config", '{"method":"ngram","num_speculative_tokens":4}', "--api-key", "${TOKEN}"]
method = "draft_model"
k = 4
ready_s = "10m"
metrics = ["http://127.0.0.1:{port}/metrics", "http://127.0.0.1:9/metrics"]
"""
ENVIRONMENT = {"ROOT": "/opt/v", "TOKEN": "s3cret-token"}


def read(tmp_path: Path, source: str, environment: dict[str, str] | None = None):
    path = tmp_path / "pair.toml"
    path.write_text(source)
    return read_servers(path, ENVIRONMENT if environment is None else environment)


def test_a_file_gives_arms_and_how_they_are_started(tmp_path):
    file = read(tmp_path, PAIR)
    assert (file.machine, file.comparison) == ("shared", "deployed")
    assert file.sha256 == hashlib.sha256(PAIR.encode()).hexdigest()
    base, draft = file.arms["baseline"], file.arms["draft.k4"]
    assert (base.role, base.url) == ("baseline", "http://127.0.0.1:8101")
    assert (draft.role, draft.method, draft.k) == ("candidate", "draft_model", 4)
    assert draft.metrics == ("http://127.0.0.1:8101/metrics", "http://127.0.0.1:9/metrics")
    start = file.starts["baseline"]
    assert start.command == ("/opt/v/bin/python", "-m", "server", "--port", "8101", "--host", "127.0.0.1")
    assert start.env == {"LD_PRELOAD": "/opt/v/lib/x.so", "HF_TOKEN": "s3cret-token"}
    assert start.secrets == ("s3cret-token",)
    assert (start.ready_s, start.health, start.cwd) == (600.0, "/health", None)
    other = file.starts["draft.k4"]
    assert other.command[2] == '{"method":"ngram","num_speculative_tokens":4}'
    assert other.command[4] == "s3cret-token"
    assert (other.secrets, other.ready_s) == (("s3cret-token",), 600.0)


def test_nothing_from_the_environment_is_in_what_is_recorded(tmp_path):
    file = read(tmp_path, PAIR)
    recorded = json.dumps(file.contents)
    assert "s3cret-token" not in recorded
    assert "/opt/v" not in recorded
    assert "s3cret-token" not in repr(file)
    assert file.contents["arms"]["baseline"]["env"]["HF_TOKEN"] == "${TOKEN}"


def test_secrets_that_are_written_down_are_hidden(tmp_path):
    source = """
    [variables]
    my_token = "written-0"
    [arms.a]
    role = "baseline"
    url = "http://a:1"
    start = ["serve", "--api-key", "written-1", "--auth-token=written-2", "--max-tokens", "5"]
    env = {API_KEY = "written-3", TOKENIZERS_PARALLELISM = "false"}
    headers_env = {X-Api-Key = "NAME_OF_VARIABLE"}
    """
    contents = read(tmp_path, source, {"NAME_OF_VARIABLE": "held"}).contents
    assert contents["variables"] == {"my_token": "(hidden)"}
    arm = contents["arms"]["a"]
    assert arm["start"] == ["serve", "--api-key", "(hidden)", "--auth-token=(hidden)", "--max-tokens", "5"]
    assert arm["env"] == {"API_KEY": "(hidden)", "TOKENIZERS_PARALLELISM": "false"}
    assert arm["headers_env"] == {"X-Api-Key": "NAME_OF_VARIABLE"}


def test_python_is_this_one_unless_the_file_says_otherwise(tmp_path):
    source = "[arms.a]\nrole = 'baseline'\nurl = 'https://a.example'\nstart = ['{python}', '{port}', '{host}']\n"
    assert read(tmp_path, source).starts["a"].command == (sys.executable, "443", "a.example")


@pytest.mark.parametrize(("environment", "word"), [({}, "a/b"), ({"ROOT": ""}, "a/b"), ({"ROOT": "/r"}, "/r")])
def test_a_variable_of_the_environment_may_have_a_default(tmp_path, environment, word):
    source = "[variables]\nroot = '${ROOT:-a/b}'\n[arms.a]\nrole = 'baseline'\nurl = 'a:1'\nstart = ['{root}/serve']\n"
    assert read(tmp_path, source, environment).starts["a"].command == (f"{word}/serve",)


def test_an_arm_without_a_command_is_one_that_is_up_already(tmp_path):
    file = read(tmp_path, "[arms.a]\nrole = 'baseline'\nurl = 'a:1'\nca = 'ca.pem'\n")
    assert file.starts == {}
    assert file.arms["a"].ca == str(tmp_path / "ca.pem")


ARM = "[arms.a]\nrole = 'baseline'\nurl = 'http://a:1'\n"


@pytest.mark.parametrize(
    ("source", "parts"),
    [
        ("", ["names no arm", "[arms.baseline]"]),
        ("[arms]\n", ["names no arm"]),
        ("mashine = 'own'\n" + ARM, ["pair.toml, line 1: The file has no key `mashine`. Did you mean `machine`?"]),
        ("machine = 'two'\n" + ARM, ["line 1: machine is 'two'; it must be one of \"shared\", \"own\""]),
        ("comparison = 3\n" + ARM, ["line 1: comparison is 3", '"isolated"']),
        (ARM + "urll = 'x'\n", ["line 4: [arms.a] has no key `urll`. Did you mean `url`?", "ready_s"]),
        (ARM + "[arms.b]\nrole = 'candidate'\nurl = 'http://b:1'\nstart = 'serve it'\n",
         ["line 7: arms.b.start is (hidden); it must be a list of non-empty strings"]),
        (ARM + "k = 0\n", ["line 4: arms.a.k is 0; it must be a whole number from 1 to 1000"]),
        (ARM + "ready_s = 'soon'\n", ["line 4: arms.a.ready_s is 'soon'", "a duration such as"]),
        (ARM + "health = 'health'\n", ["line 4: arms.a.health is 'health'; it must be a path such as"]),
        (ARM + "env = {A = 1}\n", ["line 4: arms.a.env is (hidden); it must be a table of strings"]),
        (ARM + "start = []\n", ["line 4: arms.a.start is empty"]),
        (ARM + "start = ['x']\nstop = []\n", ["line 5: arms.a.stop is empty"]),
        (ARM + "stop = ['x']\n", ["line 4: arms.a.stop ends what arms.a.start left; there is no arms.a.start"]),
        (ARM + 'start = ["x", "a\\u0000b"]\n', ["line 4: arms.a.start holds a NUL character"]),
        (ARM + "start = ['x']\nenv = {'A=B' = '1'}\n", ["line 5: arms.a.env names a variable 'A=B'"]),
        (ARM + "cwd = 'nowhere'\n" + "start = ['x']\n", ["line 4: arms.a.cwd is 'nowhere'; there is no such folder"]),
        (ARM + "start = ['{pyhton}']\n", ["line 4: arms.a.start names {pyhton}", "Did you mean `python`?", "host"]),
        (ARM + "model = '${MODEL_DIR}'\n", ["line 4: arms.a.model needs MODEL_DIR, which is not set"]),
        ("[variables]\nv = '${NOPE}'\n" + ARM, ["line 2: variables.v needs NOPE, which is not set in the environment"]),
        ("[variables]\nv = 3\n" + ARM, ["line 2: variables.v is 3; it must be a string"]),
        ("variables = 3\n" + ARM, ["line 1: variables must be a table"]),
        ("[arms.a]\nurl = 'http://a:1'\n", ["line 1: [arms.a] has no role", 'role = "baseline" or "candidate"']),
        ("[arms.a]\nrole = 'baseline'\n", ["line 1: [arms.a] has no url"]),
        ("[arms.a]\nrole = 'judge'\nurl = 'a:1'\n", ["line 2: arms.a.role is 'judge'"]),
        ("[arms.a]\nrole = 'baseline'\nurl = 'ftp://a'\n", ["arms.a.url is 'ftp://a'", "write a URL such as"]),
        ("[arms]\na = 3\n", ["line 2: arms.a must be a table, written as [arms.a]"]),
        ("[arms.'../x']\nrole = 'baseline'\nurl = 'a:1'\n", ["'../x' is no name for an arm"]),
        ("[arms.a\n", ["pair.toml is not valid TOML"]),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named_with_its_line(tmp_path, source, parts):
    with pytest.raises(UsageError) as refused:
        read(tmp_path, source)
    for part in parts:
        assert part in str(refused.value)


@pytest.mark.parametrize("content", [b"\xff\xfe", b"machine = '\xe9'\n"])
def test_files_that_are_no_text_are_refused(tmp_path, content):
    path = tmp_path / "pair.toml"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=r"pair\.toml is not UTF-8 text"):
        read_servers(path, {})
    with pytest.raises(UsageError, match="cannot be read: No such file"):
        read_servers(tmp_path / "missing.toml", {})


@given(st.text(max_size=200))
def test_no_text_raises_anything_else(tmp_path_factory, source):
    path = tmp_path_factory.getbasetemp() / "any.toml"
    path.write_text(source, encoding="utf-8", errors="replace")
    with contextlib.suppress(UsageError):
        read_servers(path, {})


def test_every_key_says_what_it_is_and_its_default_passes_its_own_check():
    needed = {"role", "url"}
    for setting in fields(ArmTable):
        assert setting.metadata["doc"], setting.name
        default = getattr(ArmTable(), setting.name)
        if default is not None and setting.name not in needed:
            assert setting.metadata["check"](default) == default


def test_every_key_is_documented():
    page = (Path(__file__).parents[3] / "servers" / "README.md").read_text()
    for setting in fields(ArmTable):
        assert f"| `{setting.name}` | {setting.metadata['doc']} |" in page


@pytest.mark.parametrize("path", sorted((Path(__file__).parents[3] / "servers").glob("*.toml")), ids=lambda p: p.name)
def test_the_files_that_are_shipped_can_be_read_without_any_variable(path):
    file = read_servers(path, {})
    assert [arm.role for arm in file.arms.values()] == ["baseline", "candidate"]
    assert file.machine == "shared"
    first, second = file.starts.values()
    if first.command[0] == "docker":  # the services are held alike by the test of the compose file
        assert [w for w in first.command if w != "baseline"] == [w for w in second.command if w != "speculative"]
    else:
        assert second.command[: len(first.command)] == first.command, "alike but for speculation"


@pytest.mark.parametrize(
    ("line", "part"),
    [
        ('metrics = ["http://a..b/metrics"]', "no valid host name"),
        ('metrics = ["http://b/metrics", "HTTP://B:80/metrics/"]', "names http://b/metrics twice"),
        ('metrics = ["http://u:canary@b/metrics"]', "carries a user or password"),
        ("k = 0x" + "f" * 5000, "arms.baseline.k is a value too long to show"),
        ("k = " + "9" * 5000, "is not valid TOML"),
        ("k = " + "[" * 5000, "is not valid TOML"),
        ("api_key = 1234567", "has no key `api_key`"),
    ],
    ids=lambda word: word[:30],
)
def test_values_that_nothing_can_hold_are_refused(tmp_path, line, part):
    path = tmp_path / "pair.toml"
    path.write_text(f'[arms.baseline]\nrole = "baseline"\nurl = "http://a:1"\n{line}\n')
    with pytest.raises(UsageError) as refused:
        read_servers(path, {})
    assert part in str(refused.value)
    assert "canary" not in str(refused.value)
