"""What is imported on the way of quick commands, and that imports point down."""

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def _loaded_by(statement: str) -> set[str]:
    code = f"import sys; {statement}; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    return {name.split(".")[0] for name in done.stdout.split()}


def test_help_imports_none_of_the_heavy_libraries():
    loaded = _loaded_by("import loadtest.cli")
    assert not loaded & {"locust", "gevent", "pandas", "numpy", "plotly", "scipy", "pyarrow", "httpx", "rich"}


@pytest.mark.parametrize(
    "module", ["loadtest.analyse.judge", "loadtest.report.page", "loadtest.drive.run", "loadtest.simulate.server"]
)
def test_only_the_driver_is_patched_by_gevent(module):
    assert not _loaded_by(f"import {module}") & {"gevent", "locust"}


def test_the_driver_loads_nothing_of_the_analysis():
    assert not _loaded_by("import loadtest.drive.driver") & {"pandas", "plotly", "scipy"}
