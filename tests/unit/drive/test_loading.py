"""What a scenario file may hold: every row of the guide's table on Locust, and every scenario that is shipped."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
GUIDE = (ROOT / "docs" / "scenarios.md").read_text(encoding="utf-8")
HEAD = "from locust import *\nfrom loadtest.scenario import LLMUser, tag, task\n"
USER = "class Mine(LLMUser):\n    @task\n    def ask(self): pass\n"

# Loads each file (a process of its own per run of this module: Locust makes the standard library cooperative).
LOAD = """
import json, sys
from pathlib import Path
import locust
from loadtest.drive.loading import load_user_class
from loadtest.errors import UsageError
from loadtest.settings import Load
said = {}
for name, path, tags, without in json.loads(sys.stdin.read()):
    try:
        user = load_user_class(Path(path), Load(tags=tuple(tags), exclude_tags=tuple(without)))
        said[name] = [user.__name__, [task.__name__ for task in user.tasks]]
    except UsageError as refused:
        said[name] = str(refused)
    for hook in vars(locust.events).values():
        hook._handlers = []
print(json.dumps(said))
"""

TAGGED = (
    HEAD
    + """
class Mine(LLMUser):
    @tag("a", "b")
    @task(2)
    def one(self): pass
    @tag("b")
    @task
    def two(self): pass
    @task
    def three(self): pass
"""
)

FILES: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "plain": (HEAD + USER, (), ()),
    "weights": (HEAD + "def a(u): pass\ndef b(u): pass\nclass Mine(LLMUser):\n    tasks = {a: 3, b: 1}\n", (), ()),
    "no tags": (TAGGED, (), ()),
    "tags": (TAGGED, ("a",), ()),
    "two tags": (TAGGED, ("a", "b"), ()),
    "without": (TAGGED, (), ("a",)),
    "nothing left": (TAGGED, ("a",), ("b",)),
    "unknown tag": (TAGGED, ("c",), ()),
    "HttpUser": (HEAD + USER + "class Web(HttpUser):\n    @task\n    def get(self): self.client.get('/')\n", (), ()),
    "both": (HEAD + "class Mine(LLMUser, HttpUser):\n    @task\n    def get(self): self.client.get('/')\n", (), ()),
    "FastHttpUser": (HEAD + "class Web(FastHttpUser):\n    @task\n    def get(self): self.client.get('/')\n", (), ()),
    "LoadTestShape": (HEAD + USER + "class Ramp(LoadTestShape):\n    def tick(self): return (1, 1)\n", (), ()),
    "several user classes": (HEAD + USER + USER.replace("Mine", "Other"), (), ()),
    "TaskSet": (HEAD + "class Mine(LLMUser):\n    @task\n    class Steps(SequentialTaskSet):\n        @task\n"
                       "        def one(self): pass\n", (), ()),
    "async def": (HEAD + "class Mine(LLMUser):\n    @task\n    async def ask(self): pass\n", (), ()),
    "listeners": (HEAD + USER + "@events.test_start.add_listener\ndef begin(environment, **_): pass\n", (), ()),
    "no task": (HEAD + "class Mine(LLMUser):\n    pass\n", (), ()),
    "a module beside it": (HEAD + "from beside_it import Mine as Base\nclass Mine(Base): pass\n", (), ()),
    "an imported base": (HEAD + "from its_base import Mine as Base\nclass Mine(Base): pass\n", (), ()),
}  # fmt: skip
SHIPPED = sorted(path.stem for path in (ROOT / "scenarios").glob("*.py"))


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("scenarios")
    wanted = []
    for name, (source, tags, without) in FILES.items():
        path = folder / f"{re.sub('[^a-z]', '_', name.lower())}.py"
        path.write_text(source)
        wanted.append((name, str(path), tags, without))
    wanted += [(name, str(ROOT / "scenarios" / f"{name}.py"), (), ()) for name in SHIPPED]
    (folder / "beside_it.py").write_text(FILES["plain"][0])
    (folder / "installed").mkdir()
    (folder / "installed" / "its_base.py").write_text(FILES["plain"][0])
    environment = os.environ | {"PYTHONPATH": str(folder / "installed")}
    done = subprocess.run([sys.executable, "-c", LOAD], cwd=ROOT, env=environment, capture_output=True, text=True,
                          check=False, input=json.dumps(wanted))  # fmt: skip
    assert done.returncode == 0, done.stderr
    found: dict[str, object] = json.loads(done.stdout)
    return found


def test_tasks_and_tags_that_are_honoured(said: dict[str, object]) -> None:
    assert said["plain"] == ["Mine", ["ask"]]
    assert said["weights"] == ["Mine", ["a", "a", "a", "b"]]
    assert said["no tags"] == ["Mine", ["one", "one", "two", "three"]]
    assert said["tags"] == ["Mine", ["one", "one"]]
    assert said["two tags"] == ["Mine", ["one", "one", "two"]]
    assert said["without"] == ["Mine", ["two", "three"]]
    assert said["an imported base"] == said["a module beside it"] == ["Mine", ["ask"]]


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("HttpUser", "defines Web, whose traffic would not be measured; derive its users from"),
        ("both", "defines Mine, whose traffic would not be measured"),
        ("FastHttpUser", "defines Web, whose traffic would not be measured"),
        ("LoadTestShape", "defines a LoadTestShape; the load's form is set in loadtestshape.toml, section [load]."),
        ("several user classes", "it defines Mine, Other. Kinds of user are tasks with weights"),
        ("TaskSet", "the task Steps is a TaskSet, which draws and pauses by itself, not alike in both arms; make its"),
        ("async def", "the task ask is `async def`; tasks are plain functions whose calls wait."),
        ("listeners", "begin listens to Locust's event `test_start`, which is not fired here; prepare in on_start"),
        ("no task", "Mine has no task; mark a method with @task."),
        ("unknown tag", "has no task with the tag 'c'. Its tags: a, b."),
        ("nothing left", "load.tags and load.exclude_tags leave no task."),
    ],
)  # fmt: skip
def test_refused_with_a_sentence(said: dict[str, object], name: str, sentence: str) -> None:
    assert sentence in str(said[name])


@pytest.mark.parametrize(
    ("option", "sentence"),
    [("-u", "the loads are [load] levels"), ("-r", "users start over about"), ("-t", "or --window 60s"),
     ("--tags", "choose tasks with --set"), ("--exclude-tags", "leave tasks out with --set")],
)  # fmt: skip
def test_replaced_options_say_by_what(option: str, sentence: str) -> None:
    from click.testing import CliRunner

    from loadtest.cli import main

    done = CliRunner().invoke(main, ["plan", "scenarios/chat.py", option, "5"])
    assert done.exit_code == 2
    assert f"{option}" in done.output
    assert "is an option of Locust, which has no place in a comparison" in done.output
    assert sentence in done.output


def test_every_scenario_that_is_shipped_loads(said: dict[str, object]) -> None:
    assert {"agent", "chat", "code", "edit", "mix", "rag", "reasoning", "summarize"} <= set(SHIPPED)
    for name in SHIPPED:
        assert isinstance(said[name], list), said[name]
    weights = said["mix"][1]  # type: ignore[index]
    assert {name: weights.count(name) for name in weights} == {
        "talk": 8, "code": 4, "edit": 2, "summarize": 2, "rag": 3, "reasoning": 1,
    }  # fmt: skip


def test_every_row_of_the_guide_is_tested() -> None:
    table = GUIDE[GUIDE.index("| of Locust |") :]
    rows = [line.split("|")[1:3] for line in table.splitlines() if line.startswith("|")][2:]
    tested = {
        "`on_start`, `on_stop`": "honoured", "task weights, `tasks = {…}`": "honoured", "`@tag`": "honoured",
        "`wait_time`": "honoured", "`-u` `-r` `-t`": "replaced", "`HttpUser`, `FastHttpUser`": "refused",
        "`LoadTestShape`": "refused", "several user classes": "refused", "`TaskSet`": "refused",
        "`async def` tasks": "refused", "listeners to `events`": "refused",
    }  # fmt: skip
    assert {feature.strip(): state.strip() for feature, state in rows} == tested


def test_the_guide_names_every_scenario() -> None:
    named = re.findall(r"^\| `([a-z]+)` \|", GUIDE.partition("## One of your own")[0], re.MULTILINE)
    assert set(named) == set(SHIPPED)
