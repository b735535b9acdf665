"""The facts about each operation that clients need, read from the OpenAPI document."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

Json = dict[str, Any]

_REF = "#/components/schemas/"
_METHODS = ("get", "post", "put", "patch", "delete")
KEY_HEADER = "Idempotency-Key"
# The whole client has it, and it is no argument of its methods.
_VERSION_HEADER = "Pressroom-Version"


class BodyKind(StrEnum):
    """How a body is sent. An operation that takes several kinds gets the first of this order."""

    BYTES = "bytes"  # the file itself
    JSON = "json"
    FORM = "form"  # urlencoded
    MULTIPART = "multipart"  # one file, in the part `file`


class AnswerKind(StrEnum):
    """The result that a method makes of a success."""

    DATA = "data"  # what is in the envelope
    PAGE = "page"  # a page, from which one goes on to the next
    PLAIN = "plain"  # JSON without an envelope
    FILE = "file"  # bytes or text
    EVENTS = "events"  # server-sent events


MEDIA_TYPES = {
    BodyKind.BYTES: "application/octet-stream",
    BodyKind.JSON: "application/json",
    BodyKind.FORM: "application/x-www-form-urlencoded",
    BodyKind.MULTIPART: "multipart/form-data",
}


@dataclass(frozen=True)
class Parameter:
    name: str  # as it is sent
    place: str  # path, query or header
    is_required: bool
    schema: Json
    description: str

    @property
    def argument(self) -> str:
        """Its name in the clients."""
        return re.sub(r"\W", "_", self.name).lower()


@dataclass(frozen=True)
class Operation:
    id: str
    method: str
    path: str
    description: str
    parameters: tuple[Parameter, ...]
    body: BodyKind | None
    body_schema: Json
    is_body_required: bool
    answer: AnswerKind
    answer_schema: Json
    # The answer of a wait that ran out is the id of the job, where otherwise it is a count.
    may_answer_job_id: bool

    @property
    def pascal_name(self) -> str:
        return "".join(part.capitalize() for part in self.id.split("_"))

    @property
    def camel_name(self) -> str:
        return self.pascal_name[:1].lower() + self.pascal_name[1:]

    @property
    def takes_key(self) -> bool:
        return any(parameter.name == KEY_HEADER for parameter in self.parameters)

    def at(self, place: str) -> list[Parameter]:
        return [parameter for parameter in self.parameters if parameter.place == place]


def operations(document: Json) -> list[Operation]:
    """All operations, in the document's order. Raises ``ValueError`` if two have one id."""
    found = [
        _operation(document, path, item, method)
        for path, item in document["paths"].items()
        for method in _METHODS
        if method in item
    ]
    ids = [operation.id for operation in found]
    repeated = {each for each in ids if ids.count(each) > 1}
    if repeated:
        raise ValueError(f"operations share an id: {', '.join(sorted(repeated))}")
    return found


def error_codes(document: Json) -> list[str]:
    """The codes of all errors that the document shows."""
    return sorted({code for item in _operation_items(document) for code in _codes(item)})


def version_of(document: Json) -> str:
    """The version of the contract, a date, to which clients made from the document keep."""
    version: str = document["info"]["version"]
    return version


def resolved(document: Json, schema: Json) -> Json:
    """The schema itself, or that which it refers to."""
    name = ref_name(schema)
    return document["components"]["schemas"][name] if name else schema


def ref_name(schema: Json) -> str | None:
    ref = schema.get("$ref")
    return ref.removeprefix(_REF) if isinstance(ref, str) else None


def _operation_items(document: Json) -> Iterator[Json]:
    for item in document["paths"].values():
        for method in _METHODS:
            if method in item:
                yield item[method]


def _codes(item: Json) -> Iterator[str]:
    for response in item["responses"].values():
        problem = response.get("content", {}).get("application/problem+json", {})
        yield from problem.get("examples", ())


def _operation(document: Json, path: str, item: Json, method: str) -> Operation:
    spec = item[method]
    body = spec.get("requestBody", {})
    kind = _body_kind(document, body)
    answer, schema = _answer(document, spec["responses"])
    accepted = _unwrapped(document, _json_schema(spec["responses"].get("202", {})))
    is_job_id = resolved(document, accepted).get("type") == "integer"
    return Operation(
        id=spec["operationId"],
        method=method.upper(),
        path=path,
        description=spec.get("description") or spec.get("summary", ""),
        parameters=tuple(
            parameter
            for each in (*item.get("parameters", ()), *spec.get("parameters", ()))
            if (parameter := _parameter(document, each)).name != _VERSION_HEADER
        ),
        body=kind,
        body_schema=body["content"][MEDIA_TYPES[kind]].get("schema", {}) if kind else {},
        is_body_required=body.get("required", False),
        answer=answer,
        answer_schema=schema,
        may_answer_job_id=answer is AnswerKind.DATA and is_job_id,
    )


def _parameter(document: Json, spec: Json) -> Parameter:
    if "$ref" in spec:
        spec = document["components"]["parameters"][spec["$ref"].rpartition("/")[2]]
    return Parameter(
        spec["name"],
        spec["in"],
        spec.get("required", False),
        spec.get("schema", {}),
        spec.get("description", ""),
    )


def _body_kind(document: Json, body: Json) -> BodyKind | None:
    """Raises ``ValueError`` for a body that the clients can't send."""
    content = body.get("content", {})
    for kind in BodyKind:
        schema = resolved(document, content.get(MEDIA_TYPES[kind], {}).get("schema", {}))
        if kind is BodyKind.MULTIPART and "file" not in schema.get("properties", {}):
            continue
        if MEDIA_TYPES[kind] in content:
            return kind
    if content:
        raise ValueError(f"no client sends {', '.join(content)}")
    return None


def _answer(document: Json, responses: Json) -> tuple[AnswerKind, Json]:
    """Return the kind of a success, and the schema of what the method returns."""
    response = responses.get("200") or responses.get("204") or {}
    content = response.get("content", {})
    if "text/event-stream" in content:
        return AnswerKind.EVENTS, {}
    if "application/json" not in content:
        return AnswerKind.FILE, {}
    schema = _json_schema(response)
    data = _unwrapped(document, schema)
    if data is schema:
        return AnswerKind.PLAIN, schema
    properties = resolved(document, data).get("properties", {})
    if {"items", "pagination"} <= set(properties):
        return AnswerKind.PAGE, properties["items"]["items"]
    return AnswerKind.DATA, data


def _json_schema(response: Json) -> Json:
    schema: Json = response.get("content", {}).get("application/json", {}).get("schema", {})
    return schema


def _unwrapped(document: Json, schema: Json) -> Json:
    """The schema of `data` in an envelope; any other schema is itself."""
    properties = resolved(document, schema).get("properties", {})
    if set(properties) == {"data", "ts"}:
        data: Json = properties["data"]
        return data
    return schema
