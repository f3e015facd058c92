"""Loading a scenario file: the one user class it defines, or a sentence that says what is wrong with it."""

from __future__ import annotations

import importlib.util
import inspect
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import cast

from locust import LoadTestShape, User

from loadtest.drive.user import LLMUser
from loadtest.errors import LoadtestError, UsageError


def load_user_class(path: Path) -> type[LLMUser]:
    """Import a scenario file and return its user class. Raises UsageError for whatever is wrong with the file."""
    module = _import(path)
    own = [item for item in vars(module).values() if isinstance(item, type) and item.__module__ == module.__name__]
    if any(issubclass(item, LoadTestShape) for item in own):
        raise UsageError(f"{path} defines a LoadTestShape; the load's form is set in {path.stem}.toml, section [load].")
    users = [item for item in own if issubclass(item, User) and not getattr(item, "abstract", False)]
    unmeasured = [item.__name__ for item in users if not issubclass(item, LLMUser)]
    if unmeasured:
        raise UsageError(f"{path} defines {', '.join(unmeasured)}, whose traffic would not be measured;"
                         " derive its users from loadtest.scenario.LLMUser.")  # fmt: skip
    if len(users) != 1:
        names = ", ".join(item.__name__ for item in users) or "none"
        raise UsageError(f"{path} must define exactly one user class derived from LLMUser; it defines {names}.")
    pending = [task.__name__ for task in users[0].tasks if inspect.iscoroutinefunction(task)]
    if pending:
        raise UsageError(f"{path}: the task {pending[0]} is `async def`; tasks are plain functions whose calls wait.")
    if not users[0].tasks:
        raise UsageError(f"{path}: {users[0].__name__} has no task; mark a method with @task.")
    return cast(type[LLMUser], users[0])


def _import(path: Path) -> ModuleType:
    name = f"loadtest_scenario_{path.stem}"
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise UsageError(f"{path} is not a Python file; a scenario ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
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
