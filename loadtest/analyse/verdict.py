"""verdict.json: the judgement as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any

from loadtest.analyse.results import Judgement

VERDICT_SCHEMA = 1


def as_json(judgement: Judgement) -> dict[str, Any]:
    """Return a judgement as JSON-safe data: absent (NaN, None) is null, infinite is the text "inf" or "-inf"."""
    return {"schema": VERDICT_SCHEMA, **_plain(judgement)}


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        return {f.name: _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, Mapping):
        return {f"{key:g}" if isinstance(key, float) else str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return None if math.isnan(value) else value if math.isfinite(value) else ("inf" if value > 0 else "-inf")
    return value
