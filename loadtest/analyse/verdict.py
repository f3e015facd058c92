"""verdict.json: the judgement as plain data."""

from __future__ import annotations

import math
import types
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from typing import Any, Union, get_args, get_origin, get_type_hints

from loadtest.analyse import findings
from loadtest.analyse.output_results import OutputComparison
from loadtest.analyse.results import Judgement

VERDICT_SCHEMA = 1
SEVERAL_SCHEMA = 2  # of several candidates: what is of a pair stands in `pairs`, and `decision` speaks of all
INFINITE = ["inf", "-inf"]


def as_json(judgement: Judgement) -> dict[str, Any]:
    """Return a judgement as JSON-safe data: absent (NaN, None) is null, infinite is the text "inf" or "-inf"."""
    return {"schema": SEVERAL_SCHEMA if judgement.pairs else VERDICT_SCHEMA, **_plain(judgement)}


def outputs_as_json(found: OutputComparison) -> dict[str, Any]:
    """Return a comparison of answers that stands alone, in the place that it has in a judgement."""
    return {"schema": VERDICT_SCHEMA, "outputs": _plain(found)}


def _plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.value
    if is_dataclass(value) and not isinstance(value, type):
        shown = [f for f in fields(value) if getattr(value, f.name) or not f.metadata.get("several")]
        return {f.name: _plain(getattr(value, f.name)) for f in shown}
    if isinstance(value, Mapping):
        return {f"{key:g}" if isinstance(key, float) else str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return None if math.isnan(value) else value if math.isfinite(value) else ("inf" if value > 0 else "-inf")
    return value


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema (draft 7) of verdict.json, made of the values' own types (docs/verdict.schema.json)."""
    definitions: dict[str, Any] = {}
    properties = {"schema": {"enum": [VERDICT_SCHEMA, SEVERAL_SCHEMA]}, **_properties(Judgement, definitions)}
    return {
        "$schema": "http://json-schema.org/draft-07/schema#",
        "title": f"The verdict of a run of loadtest, schema {VERDICT_SCHEMA}; of several candidates, {SEVERAL_SCHEMA}",
        "description": 'Times are seconds, shares 0 to 1. What does not exist is null; infinite is "inf" or "-inf".'
        f" Within a schema number fields may be added; a change of meaning raises it. In schema {SEVERAL_SCHEMA}"
        " `pairs` holds each candidate against the baseline, as a run of these two arms would, but that the intervals"
        " of all hold together; `decision` speaks of all, and `ranking` of the candidates against each other.",
        "type": "object",
        "required": sorted({"schema", *_required(Judgement)}),
        "properties": properties,
        "definitions": dict(sorted(definitions.items())),
    }


def _properties(kind: type, definitions: dict[str, Any]) -> dict[str, Any]:
    hints = get_type_hints(kind, localns=vars(findings))  # results.py names what that module defines
    return {f.name: _schema_of(hints[f.name], definitions) for f in fields(kind)}


def _required(kind: type) -> list[str]:
    return [f.name for f in fields(kind) if not f.metadata.get("several")]


def _schema_of(hint: Any, definitions: dict[str, Any]) -> dict[str, Any]:
    simple = {str: {"type": "string"}, bool: {"type": "boolean"}, int: {"type": "integer"}}
    if hint in simple:
        return simple[hint]
    if hint is float:
        return {"anyOf": [{"type": ["number", "null"]}, {"enum": INFINITE}]}
    origin, arguments = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return {"anyOf": [{"type": "null"}, *(_schema_of(a, definitions) for a in arguments if a is not type(None))]}
    if origin is dict:
        return {"type": "object", "additionalProperties": _schema_of(arguments[1], definitions)}
    if origin is tuple:
        return _schema_of_tuple(arguments, definitions)
    if issubclass(hint, Enum):
        return {"enum": [member.value for member in hint]}
    if hint.__name__ not in definitions:
        definitions[hint.__name__] = {}  # a value within itself finds this entry
        own = _properties(hint, definitions)
        definitions[hint.__name__] = {"type": "object", "required": sorted(_required(hint)), "properties": own}
    return {"$ref": f"#/definitions/{hint.__name__}"}


def _schema_of_tuple(arguments: tuple[Any, ...], definitions: dict[str, Any]) -> dict[str, Any]:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        return {"type": "array", "items": _schema_of(arguments[0], definitions)}
    items = [_schema_of(a, definitions) for a in arguments]
    return {"type": "array", "items": items, "minItems": len(items), "maxItems": len(items)}
