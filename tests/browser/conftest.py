"""The example runs of the report's unit tests, shown in a real browser."""

import sys
from pathlib import Path

import pytest
from chromium import Chromium

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "report"))


@pytest.fixture(scope="session")
def browser():
    with Chromium() as chromium:
        yield chromium
