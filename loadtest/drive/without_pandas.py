"""Arrow without pandas: the driver never needs it, and importing it costs 40 MB and a second without reading."""

from __future__ import annotations

import importlib.abc
import sys

import pyarrow as pa


class _NoPandas(importlib.abc.MetaPathFinder):
    """Says that there is no pandas, while it stands in sys.meta_path."""

    def find_spec(self, fullname: str, path: object, target: object = None) -> None:
        """Return nothing; raises ModuleNotFoundError for pandas."""
        if fullname == "pandas":
            raise ModuleNotFoundError(fullname)


def keep_pandas_out() -> None:
    """Have Arrow make its first array while pandas cannot be found; it looks for it once.

    A scenario may import pandas itself, before or after.
    """
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        pa.array([0])
    finally:
        sys.meta_path.remove(finder)
