"""The example run of the report's unit tests, shown in a real browser."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "report"))
