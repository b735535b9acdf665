"""Generates the methods of the Python clients, grouped by resource.

The synchronous and the asynchronous client have the same methods.
"""

import keyword
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from clients.generator.operations import (
    AnswerKind,
    BodyKind,
    Json,
    Operation,
    Parameter,
    read_operations,
    ref_name,
    to_pascal_case,
)
from clients.generator.resources import DEPRECATED_OPERATIONS, ResourceMethod, group_operations

_PYTHON_TYPES = {
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "string": "str",
    "object": "dict[str, Any]",
    "null": "None",
}
_HEAD = '"""Made from the OpenAPI document by `make clients`."""\n\n# ruff: noqa\n'
_AWAITED_ANSWERS = {AnswerKind.DATA, AnswerKind.PLAIN, AnswerKind.FILE}


@dataclass(frozen=True)
class Flavour:
    """The names that differ between the synchronous and the asynchronous client."""

    # The beginning of the names of all generated classes.
    prefix: str
    # The import statements of the generated module.
    imports: str
    page: str
    download: str
    events: str
    upload: str

    @property
    def is_async(self) -> bool:
        return self.prefix == "Async"


SYNC = Flavour(
    prefix="",
    imports="""from collections.abc import Iterator
from functools import cached_property
from typing import Any, List, Literal

from typing_extensions import deprecated

from pressroom_client.calls import Accepted, Calls, Download, Operation
from pressroom_client.events import ServerEvent
from pressroom_client.generated import types
from pressroom_client.pages import Page
from pressroom_client.uploads import Upload
""",
    page="Page",
    download="Download",
    events="Iterator[ServerEvent]",
    upload="Upload",
)
ASYNC = Flavour(
    prefix="Async",
    imports="""from collections.abc import AsyncGenerator
from functools import cached_property
from typing import Any, List, Literal

from typing_extensions import deprecated

from pressroom_client.async_calls import AsyncCalls, AsyncDownload
from pressroom_client.async_pages import AsyncPages
from pressroom_client.calls import Accepted, Operation
from pressroom_client.events import ServerEvent
from pressroom_client.generated import types
from pressroom_client.uploads import AsyncUpload
""",
    page="AsyncPages",
    download="AsyncDownload",
    events="AsyncGenerator[ServerEvent, None]",
    upload="AsyncUpload",
)


def generate_methods(document: Json, flavour: Flavour) -> str:
    """Return the source code of a module with the methods of one Python client.

    The module has a class per resource, and the class of all operations. Every operation is also a
    method of the latter class, under the name that the operation had in release 1.0.
    """
    operations = read_operations(document)
    methods = group_operations(operations)
    resources = [
        (resource, [*group]) for resource, group in groupby(methods, lambda each: each.resource)
    ]
    deprecated = [each for each in operations if each.id in DEPRECATED_OPERATIONS]
    classes = [_generate_resource(resource, group, flavour) for resource, group in resources]
    classes.append(_generate_client(resources, deprecated, flavour))
    return f"{_HEAD}{flavour.imports}{''.join(classes)}"


def inline_types(operation: Operation) -> dict[str, Json]:
    """Return the unnamed schemas of an operation, keyed by names derived from the operation."""
    types: dict[str, Json] = {}
    if operation.body in {BodyKind.JSON, BodyKind.FORM} and "properties" in operation.body_schema:
        types[f"{operation.pascal_name}Body"] = operation.body_schema
    if "properties" in operation.answer_schema:
        types[f"{operation.pascal_name}Answer"] = operation.answer_schema
    return types


def _generate_resource(resource: str, methods: Sequence[ResourceMethod], flavour: Flavour) -> str:
    prefix = flavour.prefix
    head = (
        f"\n\nclass {prefix}{to_pascal_case(resource)}:\n"
        f'    """The methods of the resource ``{resource}``."""\n\n'
        f"    def __init__(self, calls: {prefix}Calls) -> None:\n        self._calls = calls\n"
    )
    return head + "".join(
        _generate_method(method.name, method.operation, "self._calls", flavour)
        for method in methods
    )


def _generate_client(
    resources: Sequence[tuple[str, Sequence[ResourceMethod]]],
    deprecated: Sequence[Operation],
    flavour: Flavour,
) -> str:
    prefix = flavour.prefix
    head = (
        f"\n\nclass {prefix}Operations({prefix}Calls):\n"
        '    """All operations of the API, grouped by resource."""\n'
    )
    properties = [
        f"\n    @cached_property\n    def {resource}(self) -> {prefix}{to_pascal_case(resource)}:\n"
        f'        """The methods of the resource ``{resource}``."""\n'
        f"        return {prefix}{to_pascal_case(resource)}(self)\n"
        for resource, _ in resources
    ]
    aliases = [_generate_alias(method, flavour) for _, methods in resources for method in methods]
    old_methods = [
        f'\n    @deprecated("{_deprecation_warning(operation)}")'
        + _generate_method(operation.id, operation, "self", flavour)
        for operation in deprecated
    ]
    return head + "".join([*properties, *aliases, *old_methods])


def _deprecation_warning(operation: Operation) -> str:
    request = f"{operation.method} {operation.path}"
    return f"Release 2.0 removes {operation.id}. Use an HTTP client for {request} instead."


def _generate_alias(method: ResourceMethod, flavour: Flavour) -> str:
    operation = method.operation
    arguments = _arguments(operation, flavour)
    names = [each.partition(":")[0] for each in arguments]
    passed: list[str] = []
    for name in names:
        if name == "*":
            continue
        is_keyword = "*" in names and names.index(name) > names.index("*")
        passed.append(f"{name}={name}" if is_keyword else name)
    wait = "await " if _is_awaited(operation, flavour) else ""
    return (
        f"\n    {_signature(operation.id, operation, flavour)}\n"
        f'        """Call ``{method.python_path}``."""\n'
        f"        return {wait}self.{method.python_path}({', '.join(passed)})\n"
    )


def _generate_method(name: str, operation: Operation, calls: str, flavour: Flavour) -> str:
    docstring = textwrap.indent(_docstring(operation), "        ")
    wire = textwrap.indent(_call_arguments(operation), "            ")
    wait = "await " if _is_awaited(operation, flavour) else ""
    returns = _return_type(operation, flavour)
    function = f"{calls}._call_{operation.answer}"
    return (
        f"\n    {_signature(name, operation, flavour)}\n{docstring}\n"
        f"        answer: {returns} = {wait}{function}(\n{wire}\n        )\n"
        "        return answer\n"
    )


def _signature(name: str, operation: Operation, flavour: Flavour) -> str:
    arguments = ", ".join(["self", *_arguments(operation, flavour)])
    start = "async def" if _is_awaited(operation, flavour) else "def"
    return f"{start} {name}({arguments}) -> {_return_type(operation, flavour)}:"


def _is_awaited(operation: Operation, flavour: Flavour) -> bool:
    return flavour.is_async and operation.answer in _AWAITED_ANSWERS


def _docstring(operation: Operation) -> str:
    text = operation.description.replace("\\", "\\\\").replace('"""', "'''")
    described = [
        f"    {_argument_name(each)}: {' '.join(each.description.split())}"
        for each in operation.parameters
        if each.description
    ]
    arguments = "\n\nArgs:\n" + "\n".join(described) if described else ""
    return f'"""{text}{arguments}\n"""'


def _arguments(operation: Operation, flavour: Flavour) -> list[str]:
    """Return the parameters of a client method as source code.

    Required parameters are positional, and optional parameters are keyword-only.
    """
    required = [
        f"{_argument_name(parameter)}: {_required_type(parameter)}"
        for parameter in operation.parameters
        if parameter.is_required
    ]
    optional = [
        f"{_argument_name(parameter)}: {_optional_type(parameter)} = None"
        for parameter in operation.parameters
        if not parameter.is_required
    ]
    body = _body_argument(operation, flavour)
    if body and operation.is_body_required:
        required.append(body)
    elif body:
        required.append(f"{body} | None = None")
    return [*required, "*", *optional] if optional else required


def _required_type(parameter: Parameter) -> str:
    kind = _type(parameter.schema)
    # Accept integers too, because the API accepts an id in place of a slug in a path.
    return "int | str" if (parameter.place, kind) == ("path", "str") else kind


def _optional_type(parameter: Parameter) -> str:
    parts = _type(parameter.schema).split(" | ")
    return " | ".join([*(part for part in parts if part != "None"), "None"])


def _body_argument(operation: Operation, flavour: Flavour) -> str | None:
    match operation.body:
        case None:
            return None
        case BodyKind.BYTES | BodyKind.MULTIPART:
            return f"file: {flavour.upload}"
        case _:
            type_name = f"{operation.pascal_name}Body"
            if type_name in inline_types(operation):
                return f"body: types.{type_name}"
            return f"body: {_type(operation.body_schema)}"


def _argument_name(parameter: Parameter) -> str:
    name = parameter.argument
    return f"{name}_" if keyword.iskeyword(name) else name


def _return_type(operation: Operation, flavour: Flavour) -> str:
    match operation.answer:
        case AnswerKind.FILE:
            return flavour.download
        case AnswerKind.EVENTS:
            return flavour.events
        case _:
            type_name = f"{operation.pascal_name}Answer"
            is_inline = type_name in inline_types(operation)
            item = f"types.{type_name}" if is_inline else _type(operation.answer_schema)
    if operation.answer is AnswerKind.PAGE:
        return f"{flavour.page}[{item}]"
    return f"{item} | Accepted" if operation.may_answer_job_id else item


def _call_arguments(operation: Operation) -> str:
    """Return the source code of the arguments with which a method calls the ``Calls`` class."""
    parts = [
        f'Operation("{operation.method}", "{operation.path}"',
        f"body={str(operation.body)!r}" if operation.body else "body=None",
        f"takes_key={operation.takes_key})",
    ]
    lines = [f"{', '.join(parts)},"]
    for place in ("path", "query", "header"):
        entries = ", ".join(
            f'"{parameter.name}": {_argument_name(parameter)}'
            for parameter in operation.parameters_in(place)
        )
        lines.append(f"{place}={{{entries}}},")
    if operation.body:
        is_file = operation.body in {BodyKind.BYTES, BodyKind.MULTIPART}
        lines.append("content=file," if is_file else "content=body,")
    return "\n".join(lines)


def _type(schema: Json) -> str:
    """Return the Python type annotation for a JSON schema.

    The generated module ``types`` contains the named types.
    """
    name = ref_name(schema)
    if name:
        return f"types.{name}"
    values = schema.get("enum") or [schema[each] for each in ("const",) if each in schema]
    if values:
        return f"Literal[{', '.join(map(repr, values))}]"
    kind: Any = schema.get("type")
    several = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(kind, list):
        several = [{**schema, "type": each} for each in kind]
    if several:
        return " | ".join(dict.fromkeys(map(_type, several)))
    if kind == "array":
        # A method with the name ``list`` hides the built-in type.
        return f"List[{_type(schema.get('items', {}))}]"
    return _PYTHON_TYPES.get(kind, "Any")
