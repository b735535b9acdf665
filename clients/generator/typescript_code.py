"""Generates the methods of the TypeScript client, but not the types.

A script of the TypeScript client generates the types with the npm package openapi-typescript.
"""

import json
import re
from collections.abc import Sequence
from itertools import groupby

from clients.generator.operations import (
    MEDIA_TYPES,
    AnswerKind,
    BodyKind,
    Json,
    Operation,
    read_operations,
    ref_name,
    to_camel_case,
    to_pascal_case,
)
from clients.generator.python_methods import WAITING_UPLOAD
from clients.generator.resources import DEPRECATED_OPERATIONS, ResourceMethod, group_operations

# The TypeScript names of schemas whose names in the OpenAPI document are misleading.
_TYPE_NAMES = {"Channel": "MailingList"}
_REFERENCE = "#/components/schemas/"
_WAIT = (
    "`wait` is the number of seconds to wait until the image is ready. Without `wait`, the image "
    "may have the status 1 (processing). Rejects with AttachmentFailed if the image can't be "
    "converted, and with AttachmentUnfinished after the wait."
)
_DEPRECATION = (
    "@deprecated Only monitoring, browsers and payment providers call this operation. "
    "Release 2.0 removes this method."
)
_HEAD = """// `make clients` generates this file from the OpenAPI document.
import { waitForAttachment } from "../attachments.js";
import type { Accepted, Calls, InPath, Options } from "../calls.js";
import type { ServerEvent } from "../events.js";
import type { Pages } from "../pages.js";
import type { Upload } from "../uploads.js";
import type * as types from "./document.js";
"""


def name_schemas(document: Json) -> Json:
    """Return the OpenAPI document with the names of the TypeScript types.

    Each request body with properties has a named schema. A renamed schema keeps its old name as a
    second name.
    """
    text = json.dumps(document)
    for name, type_name in _TYPE_NAMES.items():
        text = text.replace(f'"{_REFERENCE}{name}"', f'"{_REFERENCE}{type_name}"')
    named: Json = json.loads(text)
    schemas = named["components"]["schemas"]
    for name, type_name in _TYPE_NAMES.items():
        schemas[type_name] = schemas[name]
        schemas[name] = {"$ref": f"{_REFERENCE}{type_name}"}
    for operation in read_operations(named):
        if operation.body in {BodyKind.JSON, BodyKind.FORM}:
            _name_body(named, operation, MEDIA_TYPES[operation.body])
    return named


def _name_body(document: Json, operation: Operation, media_type: str) -> None:
    if "properties" in operation.body_schema:
        name = f"{operation.pascal_name}Body"
        document["components"]["schemas"][name] = operation.body_schema
        body = document["paths"][operation.path][operation.method.lower()]["requestBody"]
        body["content"][media_type]["schema"] = {"$ref": f"{_REFERENCE}{name}"}


def generate_methods(operations: Sequence[Operation]) -> str:
    """Return the source code of a module with one class per resource, and the class ``Operations``.

    Args:
        operations: the operations of the document that ``name_schemas`` returns.
    """
    methods = group_operations(operations)
    classes = [
        _generate_resource(resource, list(group))
        for resource, group in groupby(methods, lambda method: method.resource)
    ]
    deprecated = [each for each in operations if each.id in DEPRECATED_OPERATIONS]
    return "\n".join([_HEAD, *classes, _generate_operations(methods, deprecated)])


def generate_contract(codes: list[str], version: str) -> str:
    """Return the source code of a module with the API contract's version and all error codes."""
    lines = "".join(f"  | {json.dumps(code)}\n" for code in codes)
    return f'export const VERSION = "{version}";\n\nexport type Code =\n{lines};\n'


def _generate_resource(resource: str, methods: list[ResourceMethod]) -> str:
    """Return the source code of the class with the methods of a resource."""
    code = "".join(
        _generate_method(to_camel_case(method.name), method.operation) for method in methods
    )
    return (
        f"export class {to_pascal_case(resource)} {{\n"
        "  readonly #calls: Calls;\n\n"
        "  constructor(calls: Calls) {\n    this.#calls = calls;\n  }\n"
        f"{code}}}\n"
    )


def _generate_operations(methods: list[ResourceMethod], deprecated: list[Operation]) -> str:
    """Return the source code of the class with all resources, and with one method per operation."""
    resources = dict.fromkeys(method.resource for method in methods)
    fields = "".join(
        f"  readonly {to_camel_case(each)}: {to_pascal_case(each)};\n" for each in resources
    )
    values = "".join(
        f"    this.{to_camel_case(each)} = new {to_pascal_case(each)}(calls);\n"
        for each in resources
    )
    aliases = "".join(_generate_alias(method) for method in methods)
    others = "".join(
        _generate_method(each.camel_name, each, f"\n\n{_DEPRECATION}") for each in deprecated
    )
    return (
        "/** All resources of the API, and one method per operation. */\n"
        "export class Operations {\n"
        f"  readonly #calls: Calls;\n{fields}\n"
        f"  constructor(calls: Calls) {{\n    this.#calls = calls;\n{values}  }}\n"
        f"{aliases}{others}}}\n"
    )


def _generate_alias(method: ResourceMethod) -> str:
    """Return the source code of an operation's method that calls the method of the resource."""
    operation = method.operation
    summary = operation.description.partition("\n\n")[0]
    comment = f"{summary}\n\nThe same as `{method.typescript_path}`."
    names = "args, options" if _argument_types(operation) else "options"
    return (
        f"{_generate_comment(comment)}"
        f"  {_generate_signature(operation.camel_name, operation)} {{\n"
        f"    return this.{method.typescript_path}({names});\n  }}\n"
    )


def _generate_method(name: str, operation: Operation, note: str = "") -> str:
    description = json.dumps(_describe_operation(operation))
    arguments = "args" if _argument_types(operation) else "{}"
    call = f"this.#calls.{operation.answer}({description}, {arguments}, options)"
    if operation.id == WAITING_UPLOAD:
        note = f"\n\n{_WAIT}"
        call = f"waitForAttachment(this, {call}, args.wait, options)"
    return (
        f"{_generate_comment(operation.description + note)}"
        f"  {_generate_signature(name, operation)} {{\n"
        f"    return {call};\n  }}\n"
    )


def _generate_comment(text: str) -> str:
    lines = text.replace("*/", "* /").replace("\n", "\n   * ")
    comment = f"\n  /**\n   * {lines}\n   */\n"
    return re.sub(r" +$", "", comment, flags=re.MULTILINE)


def _generate_signature(name: str, operation: Operation) -> str:
    return f"{name}({_arguments(operation)}): {_return_type(operation)}"


def _arguments(operation: Operation) -> str:
    types = _argument_types(operation)
    if not types:
        return "options: Options = {}"
    default = "" if _needs_arguments(operation) else " = {}"
    return f"args: {' & '.join(types)}{default}, options: Options = {{}}"


def _argument_types(operation: Operation) -> list[str]:
    spec = f'types.operations["{operation.id}"]'
    types = []
    if operation.parameters_in("path"):
        types.append(f'InPath<{spec}["parameters"]["path"]>')
    if operation.parameters_in("query"):
        types.append(f'NonNullable<{spec}["parameters"]["query"]>')
    headers = [
        f"{each.argument}{'' if each.is_required else '?'}: string"
        for each in operation.parameters_in("header")
    ]
    if headers:
        types.append(f"{{ {'; '.join(headers)} }}")
    match operation.body:
        case None:
            pass
        case BodyKind.BYTES | BodyKind.MULTIPART:
            types.append("{ file: Upload }")
            if operation.id == WAITING_UPLOAD:
                types.append("{ wait?: number }")
        case kind:
            mark = "" if operation.is_body_required else "?"
            content = f'NonNullable<{spec}["requestBody"]>["content"]["{MEDIA_TYPES[kind]}"]'
            types.append(f"{{ body{mark}: {_type_name(operation.body_schema) or content} }}")
    return types


def _needs_arguments(operation: Operation) -> bool:
    is_file = operation.body in {BodyKind.BYTES, BodyKind.MULTIPART}
    is_needed = operation.is_body_required and operation.body is not None
    return is_file or is_needed or any(each.is_required for each in operation.parameters)


def _return_type(operation: Operation) -> str:
    content = f'types.operations["{operation.id}"]["responses"][200]["content"]["application/json"]'
    name = _type_name(operation.answer_schema)
    match operation.answer:
        case AnswerKind.FILE:
            return "Promise<Response>"
        case AnswerKind.EVENTS:
            return "AsyncGenerator<ServerEvent, void, undefined>"
        case AnswerKind.PLAIN:
            return f"Promise<{name or content}>"
        case AnswerKind.PAGE:
            item = name or f'{content}["data"]["items"][number]'
            return f"Pages<{item}>"
        case AnswerKind.DATA:
            data = name or f'{content}["data"]'
            return f"Promise<{data}{' | Accepted' if operation.may_answer_job_id else ''}>"


def _type_name(schema: Json) -> str | None:
    """Return the TypeScript type of a schema, or ``None`` if the type has no name."""
    name = ref_name(schema)
    if name:
        return f"types.{name}"
    if schema.get("type") == "array":
        item = _type_name(schema["items"])
        return f"{item}[]" if item else None
    return "number" if schema.get("type") == "integer" else None


def _describe_operation(operation: Operation) -> dict[str, object]:
    """Return the ``Operation`` object that the TypeScript client needs for a call."""
    description: dict[str, object] = {"method": operation.method, "path": operation.path}
    query = [parameter.name for parameter in operation.parameters_in("query")]
    if query:
        description["query"] = query
    header = {parameter.argument: parameter.name for parameter in operation.parameters_in("header")}
    if header:
        description["header"] = header
    if operation.body:
        description["body"] = str(operation.body)
    if operation.takes_key:
        description["takesKey"] = True
    return description
