"""From a typed function to a schema: what a model is told of a tool's parameters, and how its mistakes are named.

Decides which parameters are the model's, what their JSON schema looks like and which schemas no provider would take.
Everything here runs once, when a tool is made; only `details` runs per refused call. Knows no runs and calls nothing.
"""

import inspect
import json
import re
import types
import typing
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import pydantic
from pydantic.fields import FieldInfo
from pydantic_core import PydanticSerializationError, to_jsonable_python

from protocol.errors import Detail

MAX_DETAILS = 20
MAX_DETAIL_CHARS = 200
MAX_KEY_CHARS = 64
CONTEXT_CLASS = "AgentRunContext"

_CONTEXT_TEXT = re.compile(rf"['\"]?(?:\w+\.)*{CONTEXT_CLASS}(?:\[.*\])?(?:\s*\|\s*None)?['\"]?")
_ARGS_HEAD = re.compile(r"(?:Args|Arguments|Parameters):\s*")
_ARGS_ENTRY = re.compile(r"\*{0,2}(\w+)\s*(?:\(.*?\))?\s*:\s*(.*)")
_SECTION = re.compile(r"[A-Z][A-Za-z ]*:\s*")
_JSON_NAMES: dict[type, str] = {
    dict: "object", list: "array", str: "string", bool: "boolean", int: "integer", float: "number", type(None): "null",
}  # fmt: skip
_SCHEMA_MAPS = frozenset({"properties", "patternProperties", "dependentSchemas"})
_SCHEMA_LISTS = frozenset({"anyOf", "oneOf", "allOf", "prefixItems"})
_SCHEMAS = frozenset({"items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else"})
# `discriminator` points into `$defs`, which are gone once inlined.
_DROPPED = frozenset({"title", "$defs", "discriminator"})


class Signature(NamedTuple):
    """A function's parameters, split.

    Attributes:
        model: Validates the model's arguments. Fields are `p0`, `p1`, ... with the real names as aliases, so a
            parameter may be called `schema` or `copy`.
        parameters: Each parameter in order, with its field in `model`, or None for the run's context.
    """

    model: type[pydantic.BaseModel]
    parameters: tuple[tuple[inspect.Parameter, str | None], ...]


def is_async(function: Callable[..., Any]) -> bool:
    """Say whether calling `function`, or the object it is, gives something to await."""
    return inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(getattr(function, "__call__", None))  # noqa: B004


def read_docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the first paragraph of the docstring and its `Args:` entries by parameter name."""
    lines = (inspect.getdoc(function) or "").splitlines()
    paragraph: list[str] = []
    for line in lines:
        if not line.strip() or _SECTION.fullmatch(line):
            break
        paragraph.append(line.strip())
    return " ".join(paragraph), _read_args(lines)


def _read_args(lines: list[str]) -> dict[str, str]:
    start = next((number for number, line in enumerate(lines) if _ARGS_HEAD.fullmatch(line)), len(lines))
    entries: dict[str, str] = {}
    indent, current = 0, ""
    for line in lines[start + 1 :]:
        depth = len(line) - len(line.lstrip())
        if not line.strip():
            continue
        if depth == 0:
            break
        indent = indent or depth
        entry = _ARGS_ENTRY.fullmatch(line.strip()) if depth <= indent else None
        if entry is not None:
            current = entry[1]
            entries[current] = entry[2].strip()
        elif current:
            entries[current] = f"{entries[current]} {line.strip()}".strip()
    return entries


def read_signature(function: Callable[..., Any], tool_name: str) -> Signature:
    """Split `function`'s parameters into the model's and the run's.

    A parameter annotated `AgentRunContext` is the run's; it is recognised by name, so the annotation may be a string
    whose class is imported for type checkers only.

    Raises:
        TypeError: A parameter has no annotation, collects (`*args`, `**kwargs`), or has a type that cannot be resolved
            or described.
    """
    fields: dict[str, Any] = {}
    parameters: list[tuple[inspect.Parameter, str | None]] = []
    for number, parameter in enumerate(inspect.signature(function).parameters.values()):
        where = f"tool {tool_name!r}: parameter {parameter.name!r}"
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise TypeError(f"{where} collects arguments; a tool names each of its parameters")
        annotation = _resolve(function, parameter, where)
        if _is_context(annotation):
            parameters.append((parameter, None))
            continue
        parameters.append((parameter, f"p{number}"))
        fields[f"p{number}"] = (annotation, _field(parameter, where))
    config = pydantic.ConfigDict(extra="forbid", allow_inf_nan=False, arbitrary_types_allowed=False)
    try:
        model = cast("Any", pydantic.create_model)(tool_name, __config__=config, **fields)
    except pydantic.errors.PydanticUserError as error:
        raise TypeError(f"tool {tool_name!r}: a parameter has a type without a schema: {_first_line(error)}") from error
    return Signature(model, tuple(parameters))


def _resolve(function: Callable[..., Any], parameter: inspect.Parameter, where: str) -> Any:
    annotation = parameter.annotation
    if annotation is parameter.empty:
        hint = f"; annotate it `{CONTEXT_CLASS}` to be given the run's context" if parameter.name == "context" else ""
        raise TypeError(f"{where} has no annotation, so its schema is unknown{hint}")
    if _is_context(annotation):
        return annotation
    # `partial` and bound methods have no globals of their own.
    target = inspect.unwrap(getattr(function, "func", getattr(function, "__func__", function)))
    shim = types.SimpleNamespace(__annotations__={"it": annotation})
    try:
        hints = typing.get_type_hints(shim, getattr(target, "__globals__", {}), None, include_extras=True)
    except NameError as error:
        raise TypeError(f"{where}: {error}; define the type at module level") from error
    return hints["it"]


def _is_context(annotation: Any) -> bool:
    if isinstance(annotation, typing.ForwardRef):
        annotation = annotation.__forward_arg__
    if isinstance(annotation, str):
        return _CONTEXT_TEXT.fullmatch(annotation.strip()) is not None
    origin = typing.get_origin(annotation) or annotation
    if origin in (typing.Union, types.UnionType):
        return any(_is_context(part) for part in typing.get_args(annotation))
    return isinstance(origin, type) and any(base.__name__ == CONTEXT_CLASS for base in origin.__mro__)


def _field(parameter: inspect.Parameter, where: str) -> FieldInfo:
    """A default stays the function's own: it is shown in the schema but neither copied nor validated."""
    if parameter.default is parameter.empty:
        return cast("FieldInfo", pydantic.Field(alias=parameter.name))
    if isinstance(parameter.default, FieldInfo):
        raise TypeError(f"{where} has a pydantic Field as default; write Annotated[type, Field(...)] = value")
    extra: dict[str, Any] = {}
    try:
        value = to_jsonable_python(parameter.default, inf_nan_mode="constants")
        json.dumps(value, allow_nan=False)
        extra["default"] = value
    except (PydanticSerializationError, ValueError, TypeError):
        pass  # a default that JSON cannot say is not shown
    return cast(
        "FieldInfo", pydantic.Field(alias=parameter.name, default_factory=lambda: None, json_schema_extra=extra or None)
    )


def build_schema(model: type[pydantic.BaseModel], tool_name: str, documented: Mapping[str, str] = {}) -> dict[str, Any]:
    """Return the JSON schema of a tool's parameters: references inlined, no titles, every array with `items`.

    Args:
        model: What really validates the arguments, so schema and validation cannot differ.
        tool_name: Named in errors.
        documented: Descriptions for the properties that have none of their own.

    Raises:
        ValueError: An array lacks its element type, a type contains itself, or a value is not JSON. Names the path.
        TypeError: A type that has no JSON schema.
    """
    try:
        raw = model.model_json_schema(by_alias=True)
    except pydantic.errors.PydanticUserError as error:
        raise TypeError(f"tool {tool_name!r}: a parameter has a type without a schema: {_first_line(error)}") from error
    schema: dict[str, Any] = _inline(raw, raw.get("$defs", {}), (), "", tool_name)
    schema.pop("description", None)  # the class's docstring; the tool has its own description
    schema.setdefault("properties", {})
    for name, text in documented.items():
        if name in schema["properties"] and text:
            schema["properties"][name].setdefault("description", text)
    try:
        json.dumps(schema, allow_nan=False)
    except (ValueError, TypeError) as error:
        raise ValueError(f"tool {tool_name!r}: its schema cannot be written as JSON: {error}") from error
    return schema


def _inline(node: Any, defs: Mapping[str, Any], open_refs: tuple[str, ...], path: str, tool_name: str) -> Any:
    if not isinstance(node, dict):
        return node  # `additionalProperties: false`
    node = cast("dict[str, Any]", node)
    if "$ref" in node:
        name = str(node["$ref"]).rpartition("/")[2]
        if name in open_refs:
            where = path or "the schema"
            raise ValueError(f"tool {tool_name!r}: {where} contains itself ({name}); give it a bounded type")
        own = {key: value for key, value in node.items() if key != "$ref"}
        return _inline({**defs[name], **own}, defs, (*open_refs, name), path, tool_name)
    result: dict[str, Any] = {}
    for key, value in node.items():
        if key in _SCHEMA_MAPS:
            base = f"{path}." if path else ""
            result[key] = {k: _inline(v, defs, open_refs, f"{base}{k}", tool_name) for k, v in value.items()}
        elif key in _SCHEMA_LISTS:
            result[key] = [_inline(item, defs, open_refs, path, tool_name) for item in value]
        elif key in _SCHEMAS:
            below = f"{path}[]" if key == "items" else f"{path}.*" if key == "additionalProperties" else path
            result[key] = _inline(value, defs, open_refs, below, tool_name)
        elif key not in _DROPPED:
            result[key] = value
    kind = result.get("type")
    if (kind == "array" or (isinstance(kind, list) and "array" in kind)) and not isinstance(result.get("items"), dict):
        raise ValueError(f"tool {tool_name!r}: the array {path!r} has no `items`; write list[type], not list or tuple")
    if "items" in result and not result["items"]:
        raise ValueError(f"tool {tool_name!r}: the elements of the array {path!r} have no type; write list[type]")
    return result


def details(error: pydantic.ValidationError, arguments: Mapping[str, Any]) -> tuple[Detail, ...]:
    """Return what is wrong with `arguments`, at most `MAX_DETAILS` things.

    No library address and no value the model sent, which may be long or secret: only the name of its JSON type.
    """
    found: list[Detail] = []
    for item in error.errors(include_url=False)[:MAX_DETAILS]:
        context = item.get("ctx") or {}
        message = item["msg"].removeprefix("Value error, ").removeprefix("Assertion failed, ")
        if item["type"] == "union_tag_invalid":  # its text quotes the tag that was sent
            message = f"{context.get('discriminator')} should be one of {context.get('expected_tags')}"
        if item["type"].endswith("_type") or item["type"] in ("literal_error", "enum"):
            message = f"{message} (got {_json_name(item['input'])})"
        if len(message) > MAX_DETAIL_CHARS:
            message = message[: MAX_DETAIL_CHARS - 1] + "…"
        found.append(Detail(_path(item["loc"], arguments, item["type"]), item["type"], message))
    return tuple(found)


def _path(location: tuple[int | str, ...], arguments: Any, kind: str) -> str:
    """`todos[0].status`. Parts that do not lead into the arguments are names of union branches, and are left out."""
    path = ""
    value: Any = arguments
    for position, part in enumerate(location):
        kind_here = _json_name(value)
        if isinstance(part, int):
            if kind_here == "array" and part < len(value):
                path = f"{path}[{part}]"
                value = _inside(value, part)
            continue
        inside = kind_here == "object" and part in value
        if inside or (kind == "missing" and position == len(location) - 1):
            name = part if len(part) <= MAX_KEY_CHARS else part[: MAX_KEY_CHARS - 1] + "…"
            path = f"{path}.{name}" if path else name
            value = _inside(value, part) if inside else None
    return path


def _inside(value: Any, part: int | str) -> Any:
    return value[part]


def _json_name(value: object) -> str:
    return _JSON_NAMES.get(type(value), "something else")


def _first_line(error: Exception) -> str:
    return str(error).partition("\n")[0]
