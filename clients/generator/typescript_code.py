"""Generates the methods of the TypeScript client, but not the types.

The npm package openapi-typescript generates the TypeScript types.
"""

import json
import re

from clients.generator.operations import MEDIA_TYPES, AnswerKind, BodyKind, Operation

_HEAD = """// Made from the OpenAPI document by `make clients`: one method an operation.
import { type Accepted, Calls, type InPath, type Options } from "../calls.js";
import type { ServerEvent } from "../events.js";
import type { Pages } from "../pages.js";
import type { Upload } from "../uploads.js";
import type { operations } from "./document.js";

/** Every operation of the API, under the name that it has in the OpenAPI document. */
export class Operations extends Calls {"""


def generate_methods(operations: list[Operation]) -> str:
    """Return the source code of a module with one client method per API operation."""
    return _HEAD + "".join(_generate_method(operation) for operation in operations) + "}\n"


def generate_contract(codes: list[str], version: str) -> str:
    """Return the source code of a module with the API contract's version and all error codes."""
    lines = "".join(f"  | {json.dumps(code)}\n" for code in codes)
    return f'export const VERSION = "{version}";\n\nexport type Code =\n{lines};\n'


def _generate_method(operation: Operation) -> str:
    comment = operation.description.replace("*/", "* /").replace("\n", "\n   * ")
    comment = re.sub(r" +$", "", comment, flags=re.MULTILINE)
    description = json.dumps(_describe_operation(operation))
    arguments = "args" if _argument_types(operation) else "{}"
    return (
        f"\n  /**\n   * {comment}\n   */\n"
        f"  {operation.camel_name}({_arguments(operation)}): {_return_type(operation)} {{\n"
        f"    return this.{operation.answer}({description}, {arguments}, options);\n  }}\n"
    )


def _arguments(operation: Operation) -> str:
    types = _argument_types(operation)
    if not types:
        return "options: Options = {}"
    default = "" if _needs_arguments(operation) else " = {}"
    return f"args: {' & '.join(types)}{default}, options: Options = {{}}"


def _argument_types(operation: Operation) -> list[str]:
    spec = f'operations["{operation.id}"]'
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
        case kind:
            mark = "" if operation.is_body_required else "?"
            content = f'NonNullable<{spec}["requestBody"]>["content"]["{MEDIA_TYPES[kind]}"]'
            types.append(f"{{ body{mark}: {content} }}")
    return types


def _needs_arguments(operation: Operation) -> bool:
    is_file = operation.body in {BodyKind.BYTES, BodyKind.MULTIPART}
    is_needed = operation.is_body_required and operation.body is not None
    return is_file or is_needed or any(each.is_required for each in operation.parameters)


def _return_type(operation: Operation) -> str:
    content = f'operations["{operation.id}"]["responses"][200]["content"]["application/json"]'
    match operation.answer:
        case AnswerKind.FILE:
            return "Promise<Response>"
        case AnswerKind.EVENTS:
            return "AsyncGenerator<ServerEvent, void, undefined>"
        case AnswerKind.PLAIN:
            return f"Promise<{content}>"
        case AnswerKind.PAGE:
            return f'Pages<{content}["data"]["items"][number]>'
        case AnswerKind.DATA:
            accepted = " | Accepted" if operation.may_answer_job_id else ""
            return f'Promise<{content}["data"]{accepted}>'


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
