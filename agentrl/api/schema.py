"""JSON Schema: checking a schema when it is loaded, and values against it. Nothing is ever fetched from elsewhere."""

from __future__ import annotations

import functools
import json
from collections.abc import Iterator, Mapping
from typing import Any

from agentrl.api.errors import DataError
from agentrl.api.types import JSON

_COSTLY = frozenset({"pattern", "patternProperties", "uniqueItems", "contains", "$ref", "$dynamicRef", "$recursiveRef"})
_LONGEST = 300


def check_schema(schema: JSON) -> None:
    """Raise DataError for what is no JSON Schema, or one that refers to something outside itself."""
    from jsonschema.exceptions import SchemaError
    from referencing import Registry
    from referencing.exceptions import Unresolvable
    from referencing.jsonschema import DRAFT202012

    if not isinstance(schema, Mapping | bool):
        raise DataError(f"a JSON schema must be an object, not {type(schema).__name__}")
    try:
        validator = _validator(json.dumps(schema, sort_keys=True))
        type(validator).check_schema(dict(schema) if isinstance(schema, Mapping) else schema)
        inside = Registry().with_resource("", DRAFT202012.create_resource(schema)).resolver()
        for reference in _references(schema):
            if not reference.startswith("#"):
                raise DataError(
                    f"the JSON schema refers to '{reference}': only references into itself (#...) are taken"
                )
            inside.lookup(reference)
    except SchemaError as error:
        raise DataError(f"not a JSON schema: {error.json_path}: {error.message[:_LONGEST]}") from error
    except Unresolvable as error:
        raise DataError(f"the JSON schema refers to what it does not hold: {error}") from error


def schema_error(schema: JSON, value: JSON) -> str | None:
    """What is wrong with `value` by `schema`, in one sentence, or None.

    A bool is no number, 3.0 is an integer (drafts 6 and later), `format` is a remark and not checked (2020-12). Needs
    a schema that passed `check_schema`. Raises RecursionError or OverflowError for what cannot be checked.

    >>> schema_error({"type": "object", "properties": {"days": {"type": "integer"}}}, {"days": "3"})
    "$.days: '3' is not of type 'integer'"
    """
    error = next(iter(_validator(json.dumps(schema, sort_keys=True)).iter_errors(value)), None)
    return None if error is None else f"{error.json_path}: {error.message}"[:_LONGEST]


def costly(schema: JSON) -> bool:
    """Whether checking a value by `schema` may take more than linear time (a pattern, a reference to itself, ...)."""
    return any(_COSTLY & set(found) for found in _objects(schema))


@functools.lru_cache(maxsize=256)
def _validator(schema: str) -> Any:
    # Imported here: `agentrl.api` stays quick to import.
    from jsonschema.validators import Draft202012Validator, validator_for
    from referencing import Registry

    parsed = json.loads(schema)
    return validator_for(parsed, default=Draft202012Validator)(parsed, registry=Registry())


def _objects(schema: JSON) -> Iterator[Mapping[str, JSON]]:
    if isinstance(schema, Mapping):
        yield schema
        for inner in schema.values():
            yield from _objects(inner)
    elif isinstance(schema, list | tuple):
        for inner in schema:
            yield from _objects(inner)


def _references(schema: JSON) -> Iterator[str]:
    for found in _objects(schema):
        for key in ("$ref", "$dynamicRef", "$recursiveRef"):
            if isinstance(found.get(key), str):
                yield found[key]
