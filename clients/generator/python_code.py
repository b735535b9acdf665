"""Generates the types of the Python client, and one client method per API operation.

The package datamodel-code-generator generates the Python types.
"""

import json
import keyword
import textwrap
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from datamodel_code_generator import (
    Formatter,
    InputFileType,
    LiteralType,
    PythonVersion,
    generate,
)
from datamodel_code_generator.enums import DataModelType

from clients.generator.operations import (
    AnswerKind,
    BodyKind,
    Json,
    Operation,
    Parameter,
    read_operations,
    ref_name,
)

_PYTHON_TYPES = {
    "integer": "int",
    "number": "float",
    "boolean": "bool",
    "string": "str",
    "object": "dict[str, Any]",
    "null": "None",
}
_HEAD = '''"""Made from the OpenAPI document by `make clients`: one method an operation."""

# ruff: noqa
from collections.abc import Iterator
from typing import Any, Literal

from pressroom_client.calls import Accepted, Calls, Download, Operation
from pressroom_client.events import ServerEvent
from pressroom_client.generated import types
from pressroom_client.pages import Page
from pressroom_client.uploads import Upload


class Operations(Calls):
    """Every operation of the API, under the name that it has in the OpenAPI document."""
'''


def write_types(document: Json, target: Path) -> None:
    """Write a module with a typed dictionary for each schema in the API's arguments and results."""
    schemas = {
        name: schema
        for name, schema in document["components"]["schemas"].items()
        if set(schema.get("properties", {})) != {"data", "ts"}
    }
    for operation in read_operations(document):
        schemas |= _inline_types(operation)
    reduced = {
        "openapi": document["openapi"],
        "info": document["info"],
        "paths": {},
        "components": {"schemas": schemas},
    }
    with TemporaryDirectory() as folder:
        source = Path(folder) / "types.json"
        source.write_text(json.dumps(reduced))
        generate(
            source,
            input_file_type=InputFileType.OpenAPI,
            output=target,
            output_model_type=DataModelType.TypingTypedDict,
            target_python_version=PythonVersion.PY_310,
            enum_field_as_literal=LiteralType.All,
            use_union_operator=True,
            use_standard_collections=True,
            use_schema_description=True,
            use_field_description=True,
            disable_timestamp=True,
            formatters=[Formatter.BUILTIN],
        )


def generate_methods(document: Json) -> str:
    """Return the source code of a module with one client method per API operation."""
    return _HEAD + "".join(_generate_method(operation) for operation in read_operations(document))


def generate_contract(codes: list[str], version: str, release: str) -> str:
    """Return the source code of a module with all error codes and the versions of API and client.

    Args:
        version: the version of the API contract, which is a date.
        release: the version of the Python client.
    """
    lines = "".join(f"    {json.dumps(code)},\n" for code in codes)
    versions = f'VERSION = "{version}"\nRELEASE = "{release}"\n'
    return f"from typing import Literal\n\n{versions}\nCode = Literal[\n{lines}]\n"


def _inline_types(operation: Operation) -> dict[str, Json]:
    """Return the unnamed schemas of an operation, keyed by names derived from the operation."""
    types: dict[str, Json] = {}
    if operation.body in {BodyKind.JSON, BodyKind.FORM} and "properties" in operation.body_schema:
        types[f"{operation.pascal_name}Body"] = operation.body_schema
    if "properties" in operation.answer_schema:
        types[f"{operation.pascal_name}Answer"] = operation.answer_schema
    return types


def _generate_method(operation: Operation) -> str:
    returns = _return_type(operation)
    arguments = ", ".join(["self", *_arguments(operation)])
    docstring = textwrap.indent(_docstring(operation), "        ")
    wire = textwrap.indent(_call_arguments(operation), "            ")
    return (
        f"\n    def {operation.id}({arguments}) -> {returns}:\n{docstring}\n"
        f"        answer: {returns} = self._call_{operation.answer}(\n{wire}\n        )\n"
        "        return answer\n"
    )


def _docstring(operation: Operation) -> str:
    text = operation.description.replace("\\", "\\\\").replace('"""', "'''")
    described = [
        f"    {_argument_name(each)}: {' '.join(each.description.split())}"
        for each in operation.parameters
        if each.description
    ]
    arguments = "\n\nArgs:\n" + "\n".join(described) if described else ""
    return f'"""{text}{arguments}\n"""'


def _arguments(operation: Operation) -> list[str]:
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
    body = _body_argument(operation)
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


def _body_argument(operation: Operation) -> str | None:
    match operation.body:
        case None:
            return None
        case BodyKind.BYTES | BodyKind.MULTIPART:
            return "file: Upload"
        case _:
            type_name = f"{operation.pascal_name}Body"
            if type_name in _inline_types(operation):
                return f"body: types.{type_name}"
            return f"body: {_type(operation.body_schema)}"


def _argument_name(parameter: Parameter) -> str:
    name = parameter.argument
    return f"{name}_" if keyword.iskeyword(name) else name


def _return_type(operation: Operation) -> str:
    match operation.answer:
        case AnswerKind.FILE:
            return "Download"
        case AnswerKind.EVENTS:
            return "Iterator[ServerEvent]"
        case _:
            type_name = f"{operation.pascal_name}Answer"
            is_inline = type_name in _inline_types(operation)
            item = f"types.{type_name}" if is_inline else _type(operation.answer_schema)
    if operation.answer is AnswerKind.PAGE:
        return f"Page[{item}]"
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
        return f"list[{_type(schema.get('items', {}))}]"
    return _PYTHON_TYPES.get(kind, "Any")
