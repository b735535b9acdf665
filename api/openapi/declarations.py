"""Parameters, request bodies and responses that routes declare for the OpenAPI document."""

from collections.abc import Sequence
from typing import Any

from api.errors import STATUS_OF
from api.openapi import samples
from core.errors import mailing, requests
from core.errors.catalogue import ErrorType

_PROBLEM_REFERENCE = "#/components/schemas/Problem"
# Dependencies read the following headers from the ``Request``, so FastAPI can't document them.
PREFER_PARAMETER = {
    "name": "Prefer",
    "in": "header",
    "description": "wait=N waits for at most N seconds, up to 60. respond-async returns 202 "
    "immediately.",
    "schema": {"type": "string"},
    "example": "wait=30",
}
WAIT_PARAMETER = {
    "name": "Prefer",
    "in": "header",
    "description": "wait=N waits for at most N seconds. Work that takes longer is abandoned, and "
    "the response is 504.",
    "schema": {"type": "string"},
    "example": "wait=10",
}
IDEMPOTENCY_KEY_PARAMETER = {
    "name": "Idempotency-Key",
    "in": "header",
    "description": "A unique key for the request. A repeated request with the same key within 24 "
    "hours has no further effect and returns the same response.",
    "schema": {"type": "string", "minLength": 16, "maxLength": 255},
}

JOB_ACCEPTED = (
    "The job continues after the wait. The `Location` header contains the URL of the job."
)

# Errors that several routes can return, grouped by cause.
IDEMPOTENCY_ERRORS = (
    requests.IDEMPOTENCY_KEY_INVALID,
    requests.IDEMPOTENCY_IN_PROGRESS,
    requests.IDEMPOTENCY_KEY_REUSED,
)
QUEUE_ERRORS = (
    requests.QUEUE_TOO_MANY_OF_YOURS,
    requests.QUEUE_OVERLOADED,
    requests.QUEUE_TOO_MANY_WAITERS,
)
LIST_ERRORS = (mailing.LIST_NOT_OWNER, mailing.LIST_NOT_FOUND)
SELECTION_ERRORS = (
    mailing.SELECTION_UNCLEAR,
    mailing.SEGMENT_NOT_FOUND,
    mailing.SEGMENT_FIELD_RETIRED,
    mailing.SEGMENT_TAG_DELETED,
)

# The documentation of the ``Link`` header, for responses whose body is a JSON array.
LINK_HEADER: dict[str, Any] = {
    "description": 'The URL of the next page with rel="next", omitted on the last page',
    "schema": {"type": "string"},
}

Responses = dict[int | str, dict[str, Any]]


def describe_json_body(
    schema: dict[str, Any], *, parameters: Sequence[dict[str, Any]] = ()
) -> dict[str, Any]:
    """Return the ``openapi_extra`` of a route whose handler parses the JSON body."""
    return {
        "parameters": [*parameters],
        "requestBody": {"required": True, "content": {"application/json": {"schema": schema}}},
    }


def describe_file(*media_types: str) -> dict[str, Any]:
    schema = {"type": "string", "format": "binary"}
    return {media_type: {"schema": dict(schema)} for media_type in media_types}


def describe_text(media_type: str, sample: str) -> dict[str, Any]:
    return {media_type: {"schema": {"type": "string"}, "example": sample}}


def array_page_responses(*errors: ErrorType) -> Responses:
    """Return the ``responses`` of a route that returns a page of records as an array."""
    page = {"description": "Successful Response", "headers": {"Link": LINK_HEADER}}
    return {200: page, **error_responses(requests.CURSOR_INVALID, *errors)}


def accepted_response(model: Any, *errors: ErrorType, description: str = JOB_ACCEPTED) -> Responses:
    """Return the ``responses`` of a route that returns ``model`` while its work is in progress."""
    return {202: {"model": model, "description": description}, **error_responses(*errors)}


def error_responses(*errors: ErrorType) -> Responses:
    responses: Responses = {}
    add_errors(responses, *errors)
    return responses


def add_errors(responses: Responses, *errors: ErrorType) -> None:
    for error in errors:
        status = STATUS_OF[error.kind]
        problem = {"schema": {"$ref": _PROBLEM_REFERENCE}, "examples": {}}
        response = responses.setdefault(str(status), {"description": ""})
        content = response.setdefault("content", {})
        # An OAuth operation may already document this HTTP status in OAuth's own error format.
        examples = content.setdefault("application/problem+json", problem)["examples"]
        sample = samples.build_problem_sample(error, status)
        examples[error.code] = {"summary": error.example_sentence, "value": sample}
        if len(content) == 1:
            sentences = (f"{each['summary']} (`{code}`)" for code, each in examples.items())
            response["description"] = "\n\n".join(sentences)
