"""Adds examples to request bodies, responses and errors in the OpenAPI document."""

from collections.abc import Mapping
from functools import partial
from http import HTTPStatus
from typing import Any

from api.bodies.url_encoded_forms import FORM
from api.schemas.envelope import InvalidField, Problem
from core.errors.catalogue import ErrorType
from core.errors.requests import BODY_INVALID, REQUEST_INVALID
from services.feed.catalogue import FeedEventType, SubjectKind, TypeEntry

JsonSchema = dict[str, Any]

SAMPLE_TS = 1_795_253_400
_SAMPLE_MOMENT = "2026-11-21T09:30:00.000000Z"
_SAMPLE_REQUEST_ID = "0198c6f2a4d07e1c9b5e"
# The example value of a text field whose schema has no example. A test checks that the OpenAPI
# document never contains ``PLACEHOLDER``.
PLACEHOLDER = "string"

# Maps field names to examples, for fields whose schema has no example.
_SAMPLES_BY_NAME = {
    "id": 6204117398252,
    "user_id": 4831920047116,
    "list_id": 2770418935561,
    "order_id": 5093310284477,
    "credential_id": 1186402957733,
    "created_at": _SAMPLE_MOMENT,
    "updated_at": _SAMPLE_MOMENT,
    "occurred_at": _SAMPLE_MOMENT,
    "ts": SAMPLE_TS,
    "request_id": _SAMPLE_REQUEST_ID,
    "email": "reader@example.com",
    "name": "Ada Reader",
    "ip": "192.0.2.7",
    "offset": 0,
    "next_offset": 1,
    "limit": 50,
    "total": 1,
    "next_cursor": None,
}
_SAMPLES_BY_FORMAT = {"date-time": _SAMPLE_MOMENT, "uri": "https://www.example.com/picture.png"}
_SAMPLES_BY_TYPE: dict[str, Any] = {
    "string": PLACEHOLDER,
    "integer": 1,
    "number": 1.0,
    "boolean": True,
    "null": None,
}
_SAMPLED_MEDIA_TYPES = frozenset({"application/json", FORM})

# The rules that Pydantic checks, and the error code of each rule.
_REQUIRED_RULE = "is required"
_TYPE_RULES = {
    "string": "must be a string",
    "boolean": "must be true or false",
    "integer": "must be a whole number",
    "number": "must be a number",
    "array": "must be a list",
}
_ID_RULE = "must be an unsigned 64-bit integer"
_CODES_BY_RULE = {
    _REQUIRED_RULE: "missing",
    _TYPE_RULES["string"]: "string_type",
    _TYPE_RULES["boolean"]: "bool_type",
    _TYPE_RULES["integer"]: "int_type",
    _TYPE_RULES["number"]: "float_type",
    _TYPE_RULES["array"]: "list_type",
    _ID_RULE: "value_error",
    "must be at least": "greater_than_equal",
    "must be '": "enum",
}

_SCHEMA_PREFIX = "#/components/schemas/"
_EVENT_SCHEMA = "FeedEventRecord"
_WEBHOOK_TAG = "Webhooks"

# The headers of a webhook request (Standard Webhooks 1.0), with descriptions and examples.
_WEBHOOK_HEADERS = {
    "webhook-id": (
        "Id of the delivery, the same for each attempt. Use the id to skip duplicates.",
        "evt_48213",
    ),
    "webhook-timestamp": ("Time of the attempt in Unix seconds. Reject old times.", "1795253400"),
    "webhook-signature": (
        "Signatures of id, timestamp and body, separated by spaces. One must match.",
        "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=",
    ),
}
_WEBHOOK_RESPONSES = {
    "2XX": {"description": "The event was received and is not sent again."},
    "410": {"description": "The URL no longer accepts events. Pressroom stops sending."},
    "default": {
        "description": "Any other response, including redirects. The event is retried later."
    },
}


def build_sample(
    schema: JsonSchema, schemas: dict[str, JsonSchema], *, body: bool = False, name: str = ""
) -> Any:
    """Build an example that matches a JSON Schema.

    Args:
        schemas: maps names to the JSON Schemas to which a ``$ref`` may refer.
        body: whether to build an example of a request body, which omits optional fields without an
            example.
        name: the name of the field, or an empty string.
    """
    build = partial(build_sample, schemas=schemas, body=body)
    if examples := schema.get("examples") or schema.get("enum"):
        return examples[0]
    if "$ref" in schema or "anyOf" in schema:
        return build(resolve_schema(_first_alternative(schema), schemas), name=name)
    if schema.get("type") == "object":
        required = schema.get("required", ())
        return {
            key: build(property_schema, name=key)
            for key, property_schema in schema.get("properties", {}).items()
            if not body or key in required or "examples" in property_schema
        }
    if schema.get("type") == "array":
        return [build(schema["items"], name=name.removesuffix("s"))]
    if schema.get("default") is not None:
        return schema["default"]
    kind = schema.get("type", "null")
    # A JSON Schema may contain a list of types.
    first_kind = kind if isinstance(kind, str) else kind[0]
    default = _SAMPLES_BY_FORMAT.get(schema.get("format", ""), _SAMPLES_BY_TYPE[first_kind])
    return _SAMPLES_BY_NAME.get(name, default)


def add_samples(operation: dict[str, Any], schemas: dict[str, JsonSchema]) -> None:
    """Add an example to each request body and response that has no example and isn't a file."""
    bodies = operation.get("requestBody", {}).get("content", {})
    for media_type, content in bodies.items():
        if media_type in _SAMPLED_MEDIA_TYPES and not _has_sample(content):
            content["example"] = build_sample(content["schema"], schemas, body=True)
    for response in operation["responses"].values():
        for media_type, content in response.get("content", {}).items():
            if media_type in _SAMPLED_MEDIA_TYPES and not _has_sample(content):
                content["example"] = build_sample(content["schema"], schemas)


def _has_sample(content: dict[str, Any]) -> bool:
    return bool({"example", "examples"} & content.keys())


def resolve_schema(schema: JsonSchema, schemas: dict[str, JsonSchema]) -> JsonSchema:
    return schemas[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def build_problem_sample(error: ErrorType, status: int) -> dict[str, Any]:
    sample = error.fill(**error.examples) if error.examples else error
    problem = Problem(
        type="about:blank",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=sample.sentence,
        code=sample.code,
        message=sample.sentence,
        ts=SAMPLE_TS,
        request_id=_SAMPLE_REQUEST_ID,
        errors=_invalid_fields(sample),
    )
    return problem.model_dump(exclude_defaults=True)


def _invalid_fields(error: ErrorType) -> list[InvalidField]:
    if error.field is not None:
        return [InvalidField(field=error.field, code=error.code, message=error.sentence)]
    if error.code in {BODY_INVALID.code, REQUEST_INVALID.code}:
        # The error messages of ``body.invalid`` and ``request.invalid`` consist of the path to a
        # value and the violated rule.
        place, _, rule = error.sentence.partition(": ")
        code = next(
            (code for start, code in _CODES_BY_RULE.items() if rule.startswith(start)), "type"
        )
        if code == "bool_type" and not place.startswith("body."):
            code = "bool_parsing"
        return [InvalidField(field=place, code=code, message=rule or error.sentence)]
    return []


def build_invalid_body_error(
    schema: JsonSchema, schemas: dict[str, JsonSchema]
) -> ErrorType | None:
    """Build an example of ``body.invalid``, or ``None`` if the body has no fields."""
    body = resolve_schema(schema, schemas)
    if "properties" not in body:
        return None
    if body.get("required"):
        return BODY_INVALID.fill(place=f"body.{body['required'][0]}", rule=_REQUIRED_RULE)
    name, field = next(iter(body["properties"].items()))
    kind = resolve_schema(_first_alternative(field), schemas).get("type", "string")
    return BODY_INVALID.fill(place=f"body.{name}", rule=_TYPE_RULES[kind])


def build_invalid_parameter_error(
    parameters: list[dict[str, Any]], schemas: dict[str, JsonSchema]
) -> ErrorType | None:
    """Build an example of ``request.invalid``, or ``None`` if no parameter can be invalid."""
    for parameter in parameters:
        schema = resolve_schema(_first_alternative(parameter["schema"]), schemas)
        rule = _broken_rule(schema, is_path=parameter["in"] == "path")
        if rule is not None and parameter["in"] != "header":
            place = f"{parameter['in']}.{parameter['name']}"
            return REQUEST_INVALID.fill(place=place, rule=rule)
    return None


def _first_alternative(schema: JsonSchema) -> JsonSchema:
    return dict(schema.get("anyOf", [schema])[0])


def _broken_rule(schema: JsonSchema, *, is_path: bool) -> str | None:
    """Return the rule that a text breaks if it violates the schema."""
    if "enum" in schema:
        *first_values, last_value = (f"'{value}'" for value in schema["enum"])
        return f"must be {' or '.join(filter(None, (', '.join(first_values), last_value)))}"
    if schema.get("type") == "boolean":
        return _TYPE_RULES["boolean"]
    if schema.get("type") == "integer" and is_path:
        return _ID_RULE
    if "minimum" in schema:
        return f"must be at least {schema['minimum']}"
    return None


def describe_event_calls(
    types: Mapping[FeedEventType, TypeEntry], schemas: dict[str, Any]
) -> dict[str, Any]:
    """Add the JSON Schemas of event data to ``schemas``."""
    for entry in types.values():
        schemas[entry.data.__name__] = entry.data.model_json_schema()
    return {
        kind.value: {"post": _describe_event_call(kind, entry, schemas)}
        for kind, entry in types.items()
    }


def _describe_event_call(
    kind: FeedEventType, entry: TypeEntry, schemas: dict[str, Any]
) -> dict[str, Any]:
    content = {"schema": _describe_body(kind, entry, schemas), "example": _build_event(kind, entry)}
    return {
        "operationId": f"receive_{kind.value.replace('.', '_')}",
        "summary": entry.summary,
        "description": entry.meaning,
        "tags": [_WEBHOOK_TAG],
        "security": [],
        "parameters": [
            {
                "name": name,
                "in": "header",
                "required": True,
                "description": description,
                "schema": {"type": "string"},
                "example": sample,
            }
            for name, (description, sample) in _WEBHOOK_HEADERS.items()
        ],
        "requestBody": {"required": True, "content": {"application/json": content}},
        "responses": _WEBHOOK_RESPONSES,
    }


def _describe_body(
    kind: FeedEventType, entry: TypeEntry, schemas: dict[str, Any]
) -> dict[str, Any]:
    """The ``data`` in the body is an event in the format of ``GET /events``."""
    event = schemas[_EVENT_SCHEMA]
    type_schema = {"type": "string", "const": kind.value}
    data = {"$ref": f"{_SCHEMA_PREFIX}{entry.data.__name__}"}
    properties = event["properties"] | {"type": type_schema, "data": data}
    return {
        "type": "object",
        "required": ["type", "timestamp", "data"],
        "properties": {
            "type": type_schema,
            "timestamp": {
                "type": "string",
                "format": "date-time",
                "description": "Time of the event, the same as occurred_at",
            },
            "data": {
                "type": "object",
                "required": event["required"],
                "properties": properties,
                "description": "The event in the format of GET /events",
            },
        },
    }


def _build_event(kind: FeedEventType, entry: TypeEntry) -> dict[str, Any]:
    is_of_list = (
        entry.subject in {SubjectKind.SUBSCRIPTION, SubjectKind.IMPORT, SubjectKind.EXPORT}
        or kind is FeedEventType.MAILING_ALARM
    )
    event = {
        "id": 48213,
        "type": kind.value,
        "occurred_at": _SAMPLE_MOMENT,
        "list_id": 4711 if is_of_list else None,
        "subject": {"kind": entry.subject.value, "id": 90125},
        "data": entry.data.example(),
    }
    return {"type": kind.value, "timestamp": _SAMPLE_MOMENT, "data": event}
