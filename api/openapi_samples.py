"""Examples for the document: of bodies and answers, made from their schemas, and of errors."""

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
# Shown for a text without an example; a test finds it.
PLACEHOLDER = "string"

# Examples by the name of what they are an example of, where a field has none of its own.
_BY_NAME = {
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
_BY_FORMAT = {"date-time": _SAMPLE_MOMENT, "uri": "https://www.example.com/picture.png"}
_BY_TYPE: dict[str, Any] = {
    "string": PLACEHOLDER,
    "integer": 1,
    "number": 1.0,
    "boolean": True,
    "null": None,
}


def sample_of(
    schema: JsonSchema, known: dict[str, JsonSchema], *, body: bool = False, name: str = ""
) -> Any:
    """An example of what the schema describes.

    Args:
        known: the schemas to which ``$ref`` leads, by their names.
        body: whether a caller sends it: optional fields without an example are left out then.
        name: that of the field, if it is one.
    """
    sample = partial(sample_of, known=known, body=body)
    # The first example, or the first of the values that are allowed.
    if given := schema.get("examples") or schema.get("enum"):
        return given[0]
    if "$ref" in schema or "anyOf" in schema:
        return sample(resolved(_first(schema), known), name=name)
    if schema.get("type") == "object":
        required = schema.get("required", ())
        return {
            key: sample(each, name=key)
            for key, each in schema.get("properties", {}).items()
            if not body or key in required or "examples" in each
        }
    if schema.get("type") == "array":
        return [sample(schema["items"], name=name.removesuffix("s"))]
    if schema.get("default") is not None:
        return schema["default"]
    kind = schema.get("type", "null")
    # The first of several types.
    of_type = _BY_TYPE[kind if isinstance(kind, str) else kind[0]]
    return _BY_NAME.get(name, _BY_FORMAT.get(schema.get("format", ""), of_type))


def add_samples(operation: dict[str, Any], known: dict[str, JsonSchema]) -> None:
    """Give each body and answer an example, but for files and what has its own."""
    bodies = operation.get("requestBody", {}).get("content", {})
    for kind, each in bodies.items():
        if kind in _SAMPLED and not _has_sample(each):
            each["example"] = sample_of(each["schema"], known, body=True)
    for response in operation["responses"].values():
        for kind, each in response.get("content", {}).items():
            if kind in _SAMPLED and not _has_sample(each):
                each["example"] = sample_of(each["schema"], known)


_SAMPLED = frozenset({"application/json", FORM})


def _has_sample(content: dict[str, Any]) -> bool:
    return bool({"example", "examples"} & content.keys())


def resolved(schema: JsonSchema, known: dict[str, JsonSchema]) -> JsonSchema:
    """Return the schema, or the one to which it refers."""
    return known[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


def problem_sample(error: ErrorType, status: int) -> dict[str, Any]:
    """Return the answer of an error, with each member that the schema requires."""
    shown = error.fill(**error.examples) if error.examples else error
    problem = Problem(
        type="about:blank",
        title=HTTPStatus(status).phrase,
        status=status,
        detail=shown.sentence,
        code=shown.code,
        message=shown.sentence,
        ts=SAMPLE_TS,
        request_id=_SAMPLE_REQUEST_ID,
        errors=_invalid_fields(shown),
    )
    return problem.model_dump(exclude_defaults=True)


# The words of the library that checks bodies and parameters, and its codes for them.
_REQUIRED = "Field required"
_TYPES = {
    "string": "Input should be a valid string",
    "boolean": "Input should be a valid boolean",
    "integer": "Input should be a valid integer",
    "number": "Input should be a valid number",
    "array": "Input should be a valid list",
}
_NO_ID = "must be an unsigned 64-bit integer"
_CODES = {
    _REQUIRED: "missing",
    f"{_TYPES['boolean']}, unable": "bool_parsing",
    _TYPES["string"]: "string_type",
    _TYPES["boolean"]: "bool_type",
    _TYPES["integer"]: "int_type",
    _TYPES["number"]: "float_type",
    _TYPES["array"]: "list_type",
    _NO_ID: "value_error",
    "Input should be greater than or equal to": "greater_than_equal",
    "Input should be '": "enum",
}


def _invalid_fields(error: ErrorType) -> list[InvalidField]:
    if error.field is not None:
        return [InvalidField(field=error.field, code=error.code, message=error.sentence)]
    if error.code in {BODY_INVALID.code, REQUEST_INVALID.code}:
        # Their sentence is the place and the rule.
        place, _, rule = error.sentence.partition(": ")
        code = next((code for words, code in _CODES.items() if rule.startswith(words)), "type")
        return [InvalidField(field=place, code=code, message=rule or error.sentence)]
    return []


def invalid_body(schema: JsonSchema, known: dict[str, JsonSchema]) -> ErrorType | None:
    """Return ``body.invalid`` about a field of such a body; ``None`` when its schema names none."""
    whole = resolved(schema, known)
    if "properties" not in whole:
        return None
    if whole.get("required"):
        return BODY_INVALID.fill(place=f"body.{whole['required'][0]}", rule=_REQUIRED)
    name, first = next(iter(whole["properties"].items()))
    kind = resolved(_first(first), known).get("type", "string")
    return BODY_INVALID.fill(place=f"body.{name}", rule=_TYPES[kind])


def invalid_parameter(
    parameters: list[dict[str, Any]], known: dict[str, JsonSchema]
) -> ErrorType | None:
    """Return ``request.invalid`` about a parameter that not every text fits, if there is one."""
    for each in parameters:
        rule = _rule_of(resolved(_first(each["schema"]), known), is_path=each["in"] == "path")
        if rule is not None and each["in"] != "header":
            return REQUEST_INVALID.fill(place=f"{each['in']}.{each['name']}", rule=rule)
    return None


def _first(schema: JsonSchema) -> JsonSchema:
    """Return the schema, or the first of its alternatives."""
    return dict(schema.get("anyOf", [schema])[0])


def _rule_of(schema: JsonSchema, *, is_path: bool) -> str | None:
    if "enum" in schema:
        *others, last = (f"'{each}'" for each in schema["enum"])
        return f"Input should be {' or '.join(filter(None, (', '.join(others), last)))}"
    if schema.get("type") == "boolean":
        return f"{_TYPES['boolean']}, unable to interpret input"
    if schema.get("type") == "integer" and is_path:
        return _NO_ID
    if "minimum" in schema:
        return f"Input should be greater than or equal to {schema['minimum']}"
    return None


_SCHEMAS = "#/components/schemas/"
_EVENT = "FeedEventRecord"
_TAG = "Webhooks"

# By Standard Webhooks 1.0.
_HEADERS = {
    "webhook-id": (
        "The same for one event and URL, however often it is sent: take each once",
        "evt_48213",
    ),
    "webhook-timestamp": ("When it was sent, in Unix seconds; refuse old ones", "1795253400"),
    "webhook-signature": (
        "Signatures of id, timestamp and body, separated by spaces; one that fits is enough",
        "v1,K5oZfzN95Z9UVu1EsfQmfVNQhnkZ2pj9o9NDN/H/pI4=",
    ),
}
_ANSWERS = {
    "2XX": {"description": "Any success within the time limit: the event is not sent again."},
    "410": {"description": "The URL takes no events any more, and gets none."},
    "default": {"description": "Anything else, redirects too: the event is sent again later."},
}


def event_calls(
    types: Mapping[FeedEventType, TypeEntry], schemas: dict[str, Any]
) -> dict[str, Any]:
    """Return the OpenAPI description of the webhook call for each event type.

    Add the schema of each event type's data to ``schemas``.
    """
    for entry in types.values():
        schemas[entry.data.__name__] = entry.data.model_json_schema()
    return {kind.value: {"post": _call(kind, entry, schemas)} for kind, entry in types.items()}


def _call(kind: FeedEventType, entry: TypeEntry, schemas: dict[str, Any]) -> dict[str, Any]:
    words = kind.value.replace(".", " ").replace("_", " ")
    content = {"schema": _body(kind, entry, schemas), "example": _sample(kind, entry)}
    return {
        "operationId": f"receive_{kind.value.replace('.', '_')}",
        "summary": words.capitalize(),
        "description": entry.meaning,
        "tags": [_TAG],
        "security": [],
        "parameters": [
            {
                "name": name,
                "in": "header",
                "required": True,
                "description": said,
                "schema": {"type": "string"},
                "example": sample,
            }
            for name, (said, sample) in _HEADERS.items()
        ],
        "requestBody": {"required": True, "content": {"application/json": content}},
        "responses": _ANSWERS,
    }


def _body(kind: FeedEventType, entry: TypeEntry, schemas: dict[str, Any]) -> dict[str, Any]:
    """Return the schema of an event as ``GET /events`` answers it, with this type's data."""
    event = schemas[_EVENT]
    of_kind = {"type": "string", "const": kind.value}
    data = {"$ref": f"{_SCHEMAS}{entry.data.__name__}"}
    properties = event["properties"] | {"type": of_kind, "data": data}
    return {
        "type": "object",
        "required": ["type", "timestamp", "data"],
        "properties": {
            "type": of_kind,
            "timestamp": {
                "type": "string",
                "format": "date-time",
                "description": "When it happened: occurred_at of the event",
            },
            "data": {
                "type": "object",
                "required": event["required"],
                "properties": properties,
                "description": "The event as GET /events answers it",
            },
        },
    }


def _sample(kind: FeedEventType, entry: TypeEntry) -> dict[str, Any]:
    is_of_list = entry.subject in {SubjectKind.SUBSCRIPTION, SubjectKind.IMPORT, SubjectKind.EXPORT}
    event = {
        "id": 48213,
        "type": kind.value,
        "occurred_at": _SAMPLE_MOMENT,
        "list_id": 4711 if is_of_list else None,
        "subject": {"kind": entry.subject.value, "id": 90125},
        "data": entry.data.example(),
    }
    return {"type": kind.value, "timestamp": _SAMPLE_MOMENT, "data": event}
