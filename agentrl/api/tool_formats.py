"""The ways in which models write tool calls: reading and writing each. Pure text in, data out; nothing is repaired.

Three formats mark a call and may have text around it (`hermes`, `qwen3coder`, `mistral`); in three others the calls are
the whole message (`llama`, `json`, `pythonic`). Readers take the tools, since `qwen3coder` writes every value as text
and only the tool's JSON schema tells what it is.

Sources: the chat templates of Hermes 2 Pro and Qwen 2.5/3 (hermes), Qwen3-Coder (qwen3coder), Mistral v3 and v11
(mistral), Llama 3.1 (llama), Llama 3.2 and 4 (pythonic).
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from agentrl.api.json_text import DEEPEST, JSONTextError, read_json, read_json_at, skip_blanks
from agentrl.api.types import JSON, ToolSpec

Plain = tuple[str, dict[str, JSON]]
"""Name and arguments of one call."""
Tools = Mapping[str, ToolSpec]


class CallSyntaxError(ValueError):
    """What was meant as a call and is none. `kind`: malformed, unclosed or too_complex."""

    def __init__(self, message: str, kind: str = "malformed") -> None:
        super().__init__(message)
        self.kind = kind


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """One way of writing calls.

    mark: what begins a call inside a text, or None where the calls are the whole message. read: the calls that begin
    at a place (behind the mark) and where they end; for a whole message that place is 0. Raises CallSyntaxError.
    write: the text of calls. example: the sentence that tells a policy how to write a call.

    Example: `FORMATS["hermes"].write([("add", {"a": 1})])`.
    """

    name: str
    mark: str | None
    read: Callable[[str, int, Tools], tuple[list[Plain], int]]
    write: Callable[[Sequence[Plain]], str]
    example: str


def _json_at(text: str, start: int) -> tuple[JSON, int]:
    try:
        return read_json_at(text, start)
    except JSONTextError as error:
        raise CallSyntaxError(str(error), "too_complex" if error.too_complex else "malformed") from error


def _named_call(value: JSON, key: str, *, also: frozenset[str] = frozenset()) -> Plain:
    """A call from its JSON object: `name`, and the arguments under `key` (an object, or its JSON as text, once)."""
    if not isinstance(value, dict):
        raise CallSyntaxError("a call must be a JSON object")
    strange = [name for name in value if name not in {"name", key} | also]
    if strange:
        raise CallSyntaxError(f"a call has 'name' and '{key}', not {strange[0][:100]!r}")
    name, arguments = value.get("name"), value.get(key, {})
    if not isinstance(name, str) or not name:
        raise CallSyntaxError("a call needs the tool's 'name' as text")
    if isinstance(arguments, str):
        text = arguments
        arguments, end = _json_at(text, 0)
        if end != len(text):
            raise CallSyntaxError(f"'{key}' of {name[:100]} is text that is no JSON object")
    if not isinstance(arguments, dict):
        raise CallSyntaxError(f"'{key}' of {name[:100]} must be a JSON object")
    return name, arguments


def _dump(value: JSON) -> str:
    return json.dumps(value, ensure_ascii=False)


def _read_hermes(text: str, start: int, tools: Tools) -> tuple[list[Plain], int]:
    value, end = _json_at(text, start)
    if not text.startswith("</tool_call>", end):
        if end == len(text):
            raise CallSyntaxError("<tool_call> is never closed", "unclosed")
        raise CallSyntaxError("</tool_call> must follow the JSON object of a call")
    return [_named_call(value, "arguments")], end + len("</tool_call>")


def _write_hermes(calls: Sequence[Plain]) -> str:
    return "\n".join(
        f"<tool_call>\n{_dump({'name': name, 'arguments': arguments})}\n</tool_call>" for name, arguments in calls
    )


_FUNCTION = re.compile(r"\s*<function=(?P<name>[^>\s]+)>")
_PARAMETER = re.compile(r"\s*<parameter=(?P<name>[^>\n]+)>")
_VALUE_END = re.compile(r"</parameter>(?=\s*(?:<parameter=|</function>))")
_FUNCTION_END = re.compile(r"\s*</function>\s*</tool_call>")


def _read_qwen3coder(text: str, start: int, tools: Tools) -> tuple[list[Plain], int]:
    function = _FUNCTION.match(text, start)
    if function is None:
        raise CallSyntaxError("<function=NAME> must follow <tool_call>")
    name, place = function["name"], function.end()
    schema: Mapping[str, JSON] = tools[name].parameters if name in tools else {}
    arguments: dict[str, JSON] = {}
    while (parameter := _PARAMETER.match(text, place)) is not None:
        # A value may hold the closing tag as text: the one that ends it stands before another tag of the call.
        ending = _VALUE_END.search(text, parameter.end())
        if ending is None:
            raise CallSyntaxError(f"<parameter={parameter['name']}> is never closed", "unclosed")
        if parameter["name"] in arguments:
            raise CallSyntaxError(f"the parameter {parameter['name'][:100]!r} is given twice")
        value = text[parameter.end() : ending.start()]
        value = value.removeprefix("\n").removesuffix("\n")
        arguments[parameter["name"]] = _typed(value, schema, parameter["name"])
        place = ending.end()
    end = _FUNCTION_END.match(text, place)
    if end is None:
        raise CallSyntaxError("</function> and </tool_call> must close a call", "unclosed")
    return [(name, arguments)], end.end()


def _typed(text: str, schema: Mapping[str, JSON], name: str) -> JSON:
    """A value that is written as text: JSON where the schema wants something other than text.

    Where text is one of several types it stays text; only `null` is null where that is one of them.
    """
    properties = schema.get("properties", {})
    types = _types(properties.get(name, {}), schema, 20) if isinstance(properties, Mapping) else set()
    if "string" in types or not types:
        return None if text == "null" and "null" in types else text
    try:
        return read_json(text)
    except JSONTextError:
        # Text it is, which the schema then refuses by name.
        return text


def _types(part: JSON, root: Mapping[str, JSON], depth: int) -> set[str]:
    """The types that a schema names, through local references and alternatives."""
    if not isinstance(part, Mapping) or depth == 0:
        return set()
    found: set[str] = set()
    kinds = part.get("type", [])
    found.update([kinds] if isinstance(kinds, str) else kinds)
    reference = part.get("$ref")
    if isinstance(reference, str) and reference.startswith("#/"):
        target: JSON = root
        for key in reference[2:].split("/"):
            target = target.get(key, {}) if isinstance(target, Mapping) else {}
        found |= _types(target, root, depth - 1)
    for key in ("anyOf", "oneOf", "allOf"):
        for inner in part.get(key, []):
            found |= _types(inner, root, depth - 1)
    for value in [*part.get("enum", []), *([part["const"]] if "const" in part else [])]:
        found.add("string" if isinstance(value, str) else "null" if value is None else "other")
    return found


def _write_qwen3coder(calls: Sequence[Plain]) -> str:
    written = []
    for name, arguments in calls:
        values = "".join(
            f"<parameter={key}>\n{value if isinstance(value, str) else _dump(value)}\n</parameter>\n"
            for key, value in arguments.items()
        )
        written.append(f"<tool_call>\n<function={name}>\n{values}</function>\n</tool_call>")
    return "\n".join(written)


_MISTRAL_NAME = re.compile(r"\s*(?P<name>[\w.-]+)\s*(?:\[CALL_ID\][\w-]*)?(?:\[ARGS\])?(?=\s*\{)")


def _read_mistral(text: str, start: int, tools: Tools) -> tuple[list[Plain], int]:
    named = _MISTRAL_NAME.match(text, start)
    if named is not None:
        arguments, end = _json_at(text, named.end())
        if not isinstance(arguments, dict):
            raise CallSyntaxError(f"the arguments of {named['name']} must be a JSON object")
        calls = [(named["name"], arguments)]
    else:
        value, end = _json_at(text, start)
        if not isinstance(value, list) or not value:
            raise CallSyntaxError("a JSON list of calls must follow [TOOL_CALLS]")
        calls = [_named_call(one, "arguments", also=frozenset({"id"})) for one in value]
    if end != len(text) and not text.startswith("[TOOL_CALLS]", end):
        raise CallSyntaxError("nothing may follow the calls")
    return calls, end


def _write_mistral(calls: Sequence[Plain]) -> str:
    return "[TOOL_CALLS]" + _dump([{"name": name, "arguments": arguments} for name, arguments in calls])


def _read_llama(text: str, start: int, tools: Tools) -> tuple[list[Plain], int]:
    place = skip_blanks(text, start)
    if text.startswith("<|python_tag|>", place):
        place += len("<|python_tag|>")
    calls: list[Plain] = []
    while True:
        value, place = _json_at(text, place)
        calls.append(_named_call(value, "parameters"))
        if place == len(text):
            return calls, place
        if text[place] != ";":
            raise CallSyntaxError("only ';' and another call may follow a call")
        place += 1


def _write_llama(calls: Sequence[Plain]) -> str:
    return "; ".join(_dump({"name": name, "parameters": arguments}) for name, arguments in calls)


def _read_json(text: str, start: int, tools: Tools) -> tuple[list[Plain], int]:
    value, end = _json_at(text, start)
    if end != len(text):
        raise CallSyntaxError("the calls must be the whole message: one JSON object, or a list of them")
    return [_named_call(one, "arguments") for one in (value if isinstance(value, list) else [value])], end


def _write_json(calls: Sequence[Plain]) -> str:
    objects = [{"name": name, "arguments": arguments} for name, arguments in calls]
    return _dump(objects[0] if len(objects) == 1 else objects)


_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_LONGEST_PYTHON = 100_000
"""Python's own parser reads the calls; beyond this it would be fed for seconds."""
_RAW = re.compile(r"\b[rR]['\"]")


def _read_pythonic(text: str, start: int, tools: Tools) -> tuple[list[Plain], int]:
    source = text[start:].strip()
    if source.startswith("<|python_start|>") and source.endswith("<|python_end|>"):
        source = source.removeprefix("<|python_start|>").removesuffix("<|python_end|>").strip()
    if len(source) > _LONGEST_PYTHON:
        raise CallSyntaxError(f"longer than {_LONGEST_PYTHON} characters", "too_complex")
    wrong = next((found[0] for found in _ESCAPE.finditer(source) if found[1] not in "\n\\'\"abfnrtvxNuU01234567"), None)
    if wrong is not None and not _RAW.search(source):
        raise CallSyntaxError(f"{wrong!r} is no escape sequence of Python")
    try:
        tree = ast.parse(source, mode="eval").body
    except (RecursionError, MemoryError) as error:
        raise CallSyntaxError("nested too deeply", "too_complex") from error
    except (SyntaxError, ValueError) as error:
        raise CallSyntaxError(f"not a list of calls: {getattr(error, 'msg', error)}") from error
    nodes = tree.elts if isinstance(tree, ast.List) else [tree]
    return [_python_call(node) for node in nodes], len(text)


def _python_call(node: ast.expr) -> Plain:
    if not isinstance(node, ast.Call):
        raise CallSyntaxError("a list of calls like [name(argument=1)] is expected")
    parts: list[str] = []
    function = node.func
    while isinstance(function, ast.Attribute):
        parts.append(function.attr)
        function = function.value
    if not isinstance(function, ast.Name):
        raise CallSyntaxError("a call begins with the tool's name")
    name = ".".join([function.id, *reversed(parts)])
    if node.args:
        raise CallSyntaxError(f"{name} needs its arguments by name, as in {name}(argument=1)")
    arguments: dict[str, JSON] = {}
    for keyword in node.keywords:
        if keyword.arg is None or keyword.arg in arguments:
            raise CallSyntaxError(f"an argument of {name} is given twice or unpacked")
        arguments[keyword.arg] = _literal(keyword.value, DEEPEST)
    return name, arguments


def _literal(node: ast.expr, depth: int) -> JSON:
    """A Python literal that JSON can hold; never evaluated."""
    if depth == 0:
        raise CallSyntaxError("nested too deeply", "too_complex")
    if isinstance(node, ast.Constant) and (node.value is None or isinstance(node.value, str | int | float)):
        if isinstance(node.value, float) and not abs(node.value) < float("inf"):
            raise CallSyntaxError("a number is beyond what a float holds")
        return node.value
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub) and isinstance(node.operand, ast.Constant):
        value = node.operand.value
        if isinstance(value, int | float) and not isinstance(value, bool):
            return -_literal(node.operand, depth - 1)
    if isinstance(node, ast.List):
        return [_literal(element, depth - 1) for element in node.elts]
    if isinstance(node, ast.Dict):
        keys = [key.value if isinstance(key, ast.Constant) else None for key in node.keys]
        if all(isinstance(key, str) for key in keys) and len(set(keys)) == len(keys):
            return {str(key): _literal(value, depth - 1) for key, value in zip(keys, node.values, strict=True)}
    raise CallSyntaxError(
        "only literal values are taken: text, numbers, True, False, None, lists, dicts with text keys"
    )


def _write_pythonic(calls: Sequence[Plain]) -> str:
    written = (f"{name}({', '.join(f'{key}={value!r}' for key, value in args.items())})" for name, args in calls)
    return f"[{', '.join(written)}]"


FORMATS: Mapping[str, ToolFormat] = {
    made.name: made
    for made in (
        ToolFormat(
            name="hermes",
            mark="<tool_call>",
            read=_read_hermes,
            write=_write_hermes,
            example='<tool_call>\n{"name": "NAME", "arguments": {"KEY": VALUE}}\n</tool_call>',
        ),
        ToolFormat(
            name="qwen3coder",
            mark="<tool_call>",
            read=_read_qwen3coder,
            write=_write_qwen3coder,
            example="<tool_call>\n<function=NAME>\n<parameter=KEY>\nVALUE\n</parameter>\n</function>\n</tool_call>",
        ),
        ToolFormat(
            name="mistral",
            mark="[TOOL_CALLS]",
            read=_read_mistral,
            write=_write_mistral,
            example='[TOOL_CALLS][{"name": "NAME", "arguments": {"KEY": VALUE}}]',
        ),
        ToolFormat(
            name="llama",
            mark=None,
            read=_read_llama,
            write=_write_llama,
            example='{"name": "NAME", "parameters": {"KEY": VALUE}}',
        ),
        ToolFormat(
            name="json",
            mark=None,
            read=_read_json,
            write=_write_json,
            example='{"name": "NAME", "arguments": {"KEY": VALUE}}',
        ),
        ToolFormat(
            name="pythonic",
            mark=None,
            read=_read_pythonic,
            write=_write_pythonic,
            example="[NAME(KEY=VALUE)]",
        ),
    )
}
"""Every format by its name."""
