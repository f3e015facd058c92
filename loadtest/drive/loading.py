"""Loading a scenario file: the one user class it defines, or a sentence that says what is wrong with it."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import cast

import locust
from locust import FastHttpUser, HttpUser, LoadTestShape, TaskSet, User
from locust.event import EventHook
from locust.user.task import filter_tasks_by_tags

from loadtest.drive.user import LLMUser
from loadtest.errors import LoadtestError, UsageError, nearest
from loadtest.settings import Load


def load_user_class(path: Path, load: Load | None = None) -> type[LLMUser]:
    """Import a scenario file and return its user class, with the tasks that the tags of [load] leave.

    Raises UsageError for whatever is wrong with the file, and for what Locust knows and a paired run cannot honour.
    """
    module = _import(path)
    own = [item for item in vars(module).values() if isinstance(item, type) and item.__module__ == module.__name__]
    if any(issubclass(item, LoadTestShape) for item in own):
        raise UsageError(f"{path} defines a LoadTestShape; the load's form is set in {path.stem}.toml, section [load].")
    users = [item for item in own if issubclass(item, User) and not getattr(item, "abstract", False)]
    unmeasured = [item.__name__ for item in users
                  if not issubclass(item, LLMUser) or issubclass(item, HttpUser | FastHttpUser)]  # fmt: skip
    if unmeasured:
        raise UsageError(f"{path} defines {', '.join(unmeasured)}, whose traffic would not be measured;"
                         " derive its users from loadtest.scenario.LLMUser.")  # fmt: skip
    if len(users) != 1:
        names = ", ".join(item.__name__ for item in users) or "none"
        raise UsageError(f"{path} must define exactly one user class derived from LLMUser; it defines {names}."
                         " Kinds of user are tasks with weights, as in scenarios/mix.py.")  # fmt: skip
    user = cast(type[LLMUser], users[0])
    _check_tasks(path, user)
    _check_listeners(path, module.__name__)
    _choose_tasks(path, user, load or Load())
    return user


def _check_tasks(path: Path, user: type[LLMUser]) -> None:
    for task in user.tasks:
        name = getattr(task, "__name__", repr(task))
        if inspect.iscoroutinefunction(task):
            raise UsageError(f"{path}: the task {name} is `async def`; tasks are plain functions whose calls wait.")
        if isinstance(task, type) and issubclass(task, TaskSet):
            raise UsageError(
                f"{path}: the task {name} is a TaskSet, which draws and pauses by itself, not alike in both arms;"
                f" make its steps methods of {user.__name__}."
            )
    if not user.tasks:
        raise UsageError(f"{path}: {user.__name__} has no task; mark a method with @task. One of weight 0 is none.")


def _check_listeners(path: Path, module: str) -> None:
    """Refuse the scenario's own listeners to Locust's events, none of which is fired in a run."""
    for name, hook in vars(locust.events).items():
        handlers = hook._handlers if isinstance(hook, EventHook) else []
        own = [one for one in handlers if getattr(one, "__module__", "") == module]
        if own:
            raise UsageError(
                f"{path}: {getattr(own[0], '__name__', 'a function')} listens to Locust's event `{name}`, which is not"
                " fired here; prepare in on_start, and read the run's records afterwards."
            )


def _choose_tasks(path: Path, user: type[LLMUser], load: Load) -> None:
    known = sorted({name for task in user.tasks for name in getattr(task, "locust_tag_set", ())})
    for name in (*load.tags, *load.exclude_tags):
        if name not in known:
            there = ", ".join(known) or "none"
            raise UsageError(f"{path} has no task with the tag {name!r}.{nearest(name, known)} Its tags: {there}.")
    if not (load.tags or load.exclude_tags):
        return
    keep, drop = (set(names) or None for names in (load.tags, load.exclude_tags))
    filter_tasks_by_tags(user, keep, drop)
    if not user.tasks:
        raise UsageError(f"{path}: load.tags and load.exclude_tags leave no task.")


def _import(path: Path) -> ModuleType:
    name = f"loadtest_scenario_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file; a scenario ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    for place in (path.resolve().parent, Path.cwd()):  # of its own modules; last, so that none hides another's
        if str(place) not in sys.path:
            sys.path.append(str(place))
    try:
        spec.loader.exec_module(module)
    except LoadtestError:
        raise
    except SyntaxError as error:
        raise UsageError(f"{path}, line {error.lineno}: not valid Python ({error.msg}).") from error
    except (Exception, SystemExit, KeyboardInterrupt) as error:  # a scenario may raise anything
        lines = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
        where = f", line {lines[-1].lineno}" if lines else ""
        raise UsageError(f"{path}{where}: importing the scenario raised {type(error).__name__}: {error}.") from error
    return module
