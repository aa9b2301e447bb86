"""Functions as tools: signature and docstring become the schema, arguments are checked, results become text."""

from __future__ import annotations

import inspect
import json
import re
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, PydanticSchemaGenerationError, ValidationError, create_model
from pydantic.errors import PydanticInvalidForJsonSchema, PydanticUserError

from agentrl.api.background import AuthorExit, call
from agentrl.api.errors import AgentRLError, PluginError
from agentrl.api.types import JSON, Message, ToolCall, ToolSpec

Function = TypeVar("Function", bound=Callable[..., Any])
_MARK = "__agentrl_tool__"
_ERROR_CHARACTERS = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """A tool as it is called. timeout: seconds of one call. max_characters: longer results are cut.

    Example: `tools_of(Shop)["price"].spec.parameters["required"] == ["item"]`.
    """

    spec: ToolSpec
    arguments: type[BaseModel]
    attribute: str
    timeout: float
    max_characters: int


def tool(
    function: Function | None = None, *, name: str | None = None, timeout: float = 30.0, max_characters: int = 20_000
) -> Any:
    """Make a method of an environment a tool.

    The signature becomes the JSON schema (every parameter annotated, none positional only), the docstring's first
    paragraph the description; lines like `item: what it is` describe the parameters. Sync or async. What it raises is
    told to the policy; what it returns is text, or anything that JSON or pydantic can write.

    Example:
        >>> class Shop:
        ...     @tool
        ...     def price(self, item: str) -> float:
        ...         "Price of an item."
        ...         return 2.5
        >>> tools_of(Shop)["price"].spec.description
        'Price of an item.'
    """

    def mark(function: Function) -> Function:
        setattr(function, _MARK, (name, timeout, max_characters))
        return function

    return mark if function is None else mark(function)


def tools_of(owner: type) -> dict[str, Tool]:
    """The tools of a class by their names, in the order they were written. Raises PluginError for a bad signature."""
    found: dict[str, Tool] = {}
    attributes = {key: None for base in reversed(owner.__mro__) for key in vars(base)}
    for attribute in attributes:
        function = inspect.getattr_static(owner, attribute, None)
        function = getattr(function, "__func__", function)  # staticmethod, classmethod
        if hasattr(function, _MARK):
            name, timeout, max_characters = getattr(function, _MARK)
            made = _make(owner, attribute, name or attribute, timeout, max_characters)
            if made.spec.name in found:
                raise PluginError(f"{owner.__name__} has two tools named '{made.spec.name}'")
            found[made.spec.name] = made
    return found


def _make(owner: type, attribute: str, name: str, timeout: float, max_characters: int) -> Tool:
    where = f"the tool {owner.__name__}.{attribute}"
    bound = getattr(owner, attribute)
    static = isinstance(inspect.getattr_static(owner, attribute), staticmethod | classmethod)
    parameters = list(inspect.signature(bound).parameters.values())[0 if static else 1 :]
    try:
        hints = typing.get_type_hints(bound, include_extras=True)
    except NameError as error:
        raise PluginError(f"{where}: an annotation names what is not there: {error}") from error
    description, notes = _docstring(inspect.getdoc(bound) or "")
    fields: dict[str, Any] = {}
    for parameter in parameters:
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            shown = str(parameter).split(":")[0]
            raise PluginError(f"{where}: '{shown}' must be an ordinary named parameter")
        if parameter.name not in hints:
            raise PluginError(f"{where}: annotate the parameter '{parameter.name}' with its type")
        default = ... if parameter.default is parameter.empty else parameter.default
        fields[parameter.name] = (hints[parameter.name], Field(default, description=notes.get(parameter.name)))
    try:
        arguments = create_model(name, __config__=ConfigDict(extra="forbid", arbitrary_types_allowed=False), **fields)
        schema = arguments.model_json_schema()
    except (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema, PydanticUserError, NameError) as error:
        raise PluginError(f"{where}: {str(error).splitlines()[0]}") from error
    return Tool(
        spec=ToolSpec(name=name, description=description, parameters=_plain(schema)),
        arguments=arguments,
        attribute=attribute,
        timeout=timeout,
        max_characters=max_characters,
    )


def _plain(schema: Mapping[str, JSON]) -> dict[str, JSON]:
    """Without pydantic's titles, which only cost tokens."""
    plain = {key: value for key, value in schema.items() if key != "title"}
    plain["properties"] = {
        name: {key: value for key, value in entry.items() if key != "title"}
        for name, entry in schema.get("properties", {}).items()
    }
    return plain


_NOTE = re.compile(r"^\s*(?::param\s+)?(?P<name>\w+)(?:\s*\([^)]*\))?:\s*(?P<text>\S.*)$")


def _docstring(text: str) -> tuple[str, dict[str, str]]:
    """The first paragraph, and the notes on parameters (`name: text`, `name (type): text`, `:param name: text`)."""
    paragraphs = re.split(r"\n\s*\n", text.strip(), maxsplit=1)
    notes: dict[str, str] = {}
    for line in paragraphs[1].splitlines() if len(paragraphs) > 1 else ():
        if (note := _NOTE.match(line)) is not None:
            notes.setdefault(note["name"], note["text"].strip())
    return " ".join(paragraphs[0].split()), notes


async def carry_out(owner: object, tools: Mapping[str, Tool], called: ToolCall) -> tuple[Message, bool]:
    """Carry out one call on `owner`: the tool's message to the policy, and whether it went well.

    A strange argument, an exception, a time-out are told to the policy. Errors of ours (`AgentRLError`) are raised.
    """
    if called.name not in tools:
        return _message(called, f"error: there is no tool {called.name!r}"), False
    found = tools[called.name]
    try:
        checked = found.arguments.model_validate(dict(called.arguments))
        values = {name: getattr(checked, name) for name in checked.model_fields_set}
        result = await call(partial(getattr(owner, found.attribute), **values), found.timeout)
        text = _text(result)
    except AgentRLError:
        raise
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        return _message(called, f"error: {where}: {first['msg']}"[:_ERROR_CHARACTERS]), False
    except TimeoutError:
        return _message(called, f"error: {called.name} was given up after {found.timeout:g} s"), False
    except AuthorExit as error:
        return _message(called, f"error: {error}"[:_ERROR_CHARACTERS]), False
    except Exception as error:
        return _message(called, f"error: {type(error).__name__}: {error}"[:_ERROR_CHARACTERS]), False
    if len(text) > found.max_characters:
        text = f"{text[: found.max_characters]}\n[cut: {found.max_characters} of {len(text)} characters]"
    return _message(called, text), True


def _message(called: ToolCall, text: str) -> Message:
    # Half a surrogate pair can be carried by no tokenizer.
    clean = text.encode("utf-8", "replace").decode()
    return Message(role="tool", content=clean, tool_call_id=called.id)


def _text(result: object) -> str:
    if isinstance(result, str):
        return result
    if isinstance(result, bytes | bytearray):
        return bytes(result).decode("utf-8", "replace")
    if isinstance(result, BaseModel):
        return result.model_dump_json()
    return json.dumps(result, ensure_ascii=False, default=_shown)


def _shown(value: object) -> JSON:
    return value.model_dump(mode="json") if isinstance(value, BaseModel) else str(value)
