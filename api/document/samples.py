"""Examples for the document: of bodies and answers, made from their schemas, and of refusals."""

from http import HTTPStatus
from typing import Any

from api.bodies.media_types import FORM
from api.schemas.envelope import InvalidField, Problem
from core.refusals.refusal import Refusal
from core.refusals.requests import BODY_INVALID, REQUEST_INVALID

JsonSchema = dict[str, Any]

SAMPLE_TS = 1_795_253_400
_SAMPLE_MOMENT = "2026-11-21T09:30:00.000000Z"
_SAMPLE_REQUEST_ID = "0198c6f2a4d07e1c9b5e"
# What a text without an example would show; a test finds it.
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


def sample_of(schema: JsonSchema, known: dict[str, JsonSchema], *, body: bool = False) -> Any:
    """An example of what the schema describes.

    Args:
        known: the schemas to which ``$ref`` leads, by their names.
        body: whether a caller sends it: optional fields without an example are left out then.
    """
    return _Sampler(known, body=body).sample(schema)


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
    """The schema, or the one to which it refers."""
    return known[schema["$ref"].rpartition("/")[2]] if "$ref" in schema else schema


class _Sampler:
    def __init__(self, known: dict[str, JsonSchema], *, body: bool) -> None:
        self._known = known
        self._body = body

    def sample(self, schema: JsonSchema, name: str = "") -> Any:
        # The first example, or the first of the values that are allowed.
        if given := schema.get("examples") or schema.get("enum"):
            return given[0]
        if "$ref" in schema or "anyOf" in schema:
            of = resolved(schema, self._known) if "$ref" in schema else schema["anyOf"][0]
            return self.sample(of, name)
        if schema.get("type") == "object":
            return self._object(schema)
        if schema.get("type") == "array":
            return [self.sample(schema["items"], name.removesuffix("s"))]
        return self._scalar(schema, name)

    def _object(self, schema: JsonSchema) -> dict[str, Any]:
        properties = schema.get("properties", {})
        required = schema.get("required", ())
        return {
            name: self.sample(each, name)
            for name, each in properties.items()
            if not self._body or name in required or "examples" in each
        }

    def _scalar(self, schema: JsonSchema, name: str) -> Any:
        if schema.get("default") is not None:
            return schema["default"]
        if name in _BY_NAME:
            return _BY_NAME[name]
        if schema.get("format") in _BY_FORMAT:
            return _BY_FORMAT[schema["format"]]
        kind = schema.get("type", "null")
        # The first of several types.
        return _BY_TYPE[kind if isinstance(kind, str) else kind[0]]


def problem_sample(refusal: Refusal, status: int) -> dict[str, Any]:
    """What a caller gets who is refused so, with each member that the schema requires."""
    shown = refusal.filled(**refusal.examples) if refusal.examples else refusal
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
_NO_TEXT = "Input should be a valid string"
_CODES = {
    _REQUIRED: "missing",
    _NO_TEXT: "string_type",
    "must be an unsigned 64-bit integer": "value_error",
    "Input should be greater than or equal to": "greater_than_equal",
    "Input should be '": "enum",
    "Input should be a valid boolean": "bool_parsing",
}


def _invalid_fields(refusal: Refusal) -> list[InvalidField]:
    if refusal.field is not None:
        return [InvalidField(field=refusal.field, code=refusal.code, message=refusal.sentence)]
    if refusal.code in {BODY_INVALID.code, REQUEST_INVALID.code}:
        # Their sentence is the place and the rule.
        place, _, rule = refusal.sentence.partition(": ")
        code = next((code for words, code in _CODES.items() if rule.startswith(words)), "type")
        return [InvalidField(field=place, code=code, message=rule or refusal.sentence)]
    return []


def invalid_body(schema: JsonSchema, known: dict[str, JsonSchema]) -> Refusal | None:
    """``body.invalid`` about a field that the body of this schema has; ``None``: it names none."""
    whole = resolved(schema, known)
    if "properties" not in whole:
        return None
    if whole.get("required"):
        return BODY_INVALID.filled(place=f"body.{whole['required'][0]}", rule=_REQUIRED)
    texts = [
        name
        for name, each in whole["properties"].items()
        if each.get("anyOf", [each])[0].get("type") == "string"
    ]
    return BODY_INVALID.filled(place=f"body.{texts[0]}", rule=_NO_TEXT)


def invalid_parameter(
    parameters: list[dict[str, Any]], known: dict[str, JsonSchema]
) -> Refusal | None:
    """``request.invalid`` about a parameter that not every text fits; ``None``: each fits all."""
    for each in parameters:
        schema = resolved(each["schema"].get("anyOf", [each["schema"]])[0], known)
        rule = _rule_of(schema, is_path=each["in"] == "path")
        if rule is not None and each["in"] != "header":
            return REQUEST_INVALID.filled(place=f"{each['in']}.{each['name']}", rule=rule)
    return None


def _rule_of(schema: JsonSchema, *, is_path: bool) -> str | None:
    if "enum" in schema:
        *others, last = (f"'{each}'" for each in schema["enum"])
        return f"Input should be {', '.join(others)} or {last}"
    if schema.get("type") == "boolean":
        return "Input should be a valid boolean, unable to interpret input"
    if schema.get("type") == "integer" and is_path:
        return "must be an unsigned 64-bit integer"
    if "minimum" in schema:
        return f"Input should be greater than or equal to {schema['minimum']}"
    return None
