"""Reads the operations of the API from the OpenAPI document."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Json = dict[str, Any]

_REF = "#/components/schemas/"
_METHODS = ("get", "post", "put", "patch", "delete")
KEY_HEADER = "Idempotency-Key"
# The clients send the API version in this header with every call, so no method has an argument for
# the API version.
_VERSION_HEADER = "Pressroom-Version"


class BodyKind(StrEnum):
    """The format of a request body.

    If an API operation accepts several formats, the clients send the format that this class lists
    first.
    """

    # The request body consists of the bytes of a file.
    BYTES = "bytes"
    JSON = "json"
    # A URL-encoded form.
    FORM = "form"
    # The request body is a multipart form with a single file in the part `file`.
    MULTIPART = "multipart"


class AnswerKind(StrEnum):
    """The type of result that a client's method returns after a successful call."""

    # The client's method returns the value of `data` in the response's envelope.
    DATA = "data"
    # The client's method returns a page object, which can fetch the next page.
    PAGE = "page"
    # The client's method returns the parsed JSON of the response, which has no envelope.
    PLAIN = "plain"
    # The client's method returns the content of a binary file or text file.
    FILE = "file"
    # The client's method returns an iterator over server-sent events.
    EVENTS = "events"


MEDIA_TYPES = {
    BodyKind.BYTES: "application/octet-stream",
    BodyKind.JSON: "application/json",
    BodyKind.FORM: "application/x-www-form-urlencoded",
    BodyKind.MULTIPART: "multipart/form-data",
}


@dataclass(frozen=True)
class Parameter:
    # The name of the parameter in the HTTP request.
    name: str
    # The place of the parameter in the HTTP request: path, query or header.
    place: str
    is_required: bool
    schema: Json
    description: str

    @property
    def argument(self) -> str:
        """Return the name of the client method's argument for this parameter."""
        return re.sub(r"\W", "_", self.name).lower()


@dataclass(frozen=True)
class Operation:
    id: str
    # The chapter of the API reference.
    tag: str
    method: str
    path: str
    description: str
    parameters: tuple[Parameter, ...]
    body: BodyKind | None
    body_schema: Json
    is_body_required: bool
    answer: AnswerKind
    answer_schema: Json
    # If true, the operation returns only the job's id for a job that isn't finished in time.
    may_answer_job_id: bool

    @property
    def pascal_name(self) -> str:
        return to_pascal_case(self.id)

    @property
    def camel_name(self) -> str:
        return to_camel_case(self.id)

    @property
    def takes_key(self) -> bool:
        return any(parameter.name == KEY_HEADER for parameter in self.parameters)

    def parameters_in(self, place: str) -> list[Parameter]:
        return [parameter for parameter in self.parameters if parameter.place == place]


def read_operations(document: Json) -> list[Operation]:
    """Return all operations of the API, in the order of the OpenAPI document.

    Raises ``ValueError`` if two operations of the API have the same id.
    """
    operations = [
        _read_operation(document, path, item, method)
        for path, item in document["paths"].items()
        for method in _METHODS
        if method in item
    ]
    ids = [operation.id for operation in operations]
    repeated_ids = {operation_id for operation_id in ids if ids.count(operation_id) > 1}
    if repeated_ids:
        raise ValueError(f"operations share an id: {', '.join(sorted(repeated_ids))}")
    return operations


def to_pascal_case(name: str) -> str:
    """Return ``ReadList`` for ``read_list``."""
    return "".join(part.capitalize() for part in name.split("_"))


def to_camel_case(name: str) -> str:
    """Return ``readList`` for ``read_list``."""
    pascal_name = to_pascal_case(name)
    return pascal_name[:1].lower() + pascal_name[1:]


def read_error_codes(document: Json) -> list[str]:
    """Return the codes of all errors that the OpenAPI document mentions."""
    return sorted({code for item in _operation_items(document) for code in _error_codes(item)})


def read_version(document: Json) -> str:
    """Return the version of the API contract from the OpenAPI document, which is a date."""
    version: str = document["info"]["version"]
    return version


def resolve_schema(document: Json, schema: Json) -> Json:
    """Return the schema that ``schema`` refers to, or ``schema`` itself if it isn't a reference."""
    name = ref_name(schema)
    return document["components"]["schemas"][name] if name else schema


def ref_name(schema: Json) -> str | None:
    """Return the name of the schema to which ``schema`` refers, or ``None``."""
    ref = schema.get("$ref")
    return ref.removeprefix(_REF) if isinstance(ref, str) else None


def _operation_items(document: Json) -> Iterator[Json]:
    for item in document["paths"].values():
        for method in _METHODS:
            if method in item:
                yield item[method]


def _error_codes(item: Json) -> Iterator[str]:
    for response in item["responses"].values():
        problem = response.get("content", {}).get("application/problem+json", {})
        yield from problem.get("examples", ())


def _read_operation(document: Json, path: str, item: Json, method: str) -> Operation:
    spec = item[method]
    body = spec.get("requestBody", {})
    kind = _read_body_kind(document, body)
    answer, schema = _read_answer(document, spec["responses"])
    accepted = _unwrap_schema(document, _json_schema(spec["responses"].get("202", {})))
    is_job_id = resolve_schema(document, accepted).get("type") == "integer"
    return Operation(
        id=spec["operationId"],
        tag=spec["tags"][0],
        method=method.upper(),
        path=path,
        description=spec.get("description") or spec.get("summary", ""),
        parameters=tuple(
            parameter
            for parameter_spec in (*item.get("parameters", ()), *spec.get("parameters", ()))
            if (parameter := _read_parameter(document, parameter_spec)).name != _VERSION_HEADER
        ),
        body=kind,
        body_schema=body["content"][MEDIA_TYPES[kind]].get("schema", {}) if kind else {},
        is_body_required=body.get("required", False),
        answer=answer,
        answer_schema=schema,
        may_answer_job_id=answer is AnswerKind.DATA and is_job_id,
    )


def _read_parameter(document: Json, spec: Json) -> Parameter:
    if "$ref" in spec:
        spec = document["components"]["parameters"][spec["$ref"].rpartition("/")[2]]
    return Parameter(
        spec["name"],
        spec["in"],
        spec.get("required", False),
        spec.get("schema", {}),
        spec.get("description", ""),
    )


def _read_body_kind(document: Json, body: Json) -> BodyKind | None:
    """Return the format in which the clients send the body, or raise ``ValueError``."""
    content = body.get("content", {})
    for kind in BodyKind:
        schema = resolve_schema(document, content.get(MEDIA_TYPES[kind], {}).get("schema", {}))
        if kind is BodyKind.MULTIPART and "file" not in schema.get("properties", {}):
            continue
        if MEDIA_TYPES[kind] in content:
            return kind
    if content:
        raise ValueError(f"no client sends {', '.join(content)}")
    return None


def _read_answer(document: Json, responses: Json) -> tuple[AnswerKind, Json]:
    """Return the type and the schema of a client method's return value on success."""
    response = responses.get("200") or responses.get("204") or {}
    content = response.get("content", {})
    if "text/event-stream" in content:
        return AnswerKind.EVENTS, {}
    if "application/json" not in content:
        return AnswerKind.FILE, {}
    schema = _json_schema(response)
    data = _unwrap_schema(document, schema)
    if data is schema:
        return AnswerKind.PLAIN, schema
    properties = resolve_schema(document, data).get("properties", {})
    if {"items", "pagination"} <= set(properties):
        return AnswerKind.PAGE, properties["items"]["items"]
    return AnswerKind.DATA, data


def _json_schema(response: Json) -> Json:
    schema: Json = response.get("content", {}).get("application/json", {}).get("schema", {})
    return schema


def _unwrap_schema(document: Json, schema: Json) -> Json:
    """Return the schema of an envelope's `data`, or ``schema`` itself if it isn't an envelope."""
    properties = resolve_schema(document, schema).get("properties", {})
    if set(properties) == {"data", "ts"}:
        data: Json = properties["data"]
        return data
    return schema
