"""Errors that any request can cause, and errors about unavailable services."""

from core.errors import DomainError, FieldProblem
from core.errors.catalogue import (
    conflict,
    invalid,
    malformed,
    not_allowed,
    not_found,
    path_too_long,
    provider_failed,
    rate_limited,
    stalled,
    too_large,
    too_slow,
    unavailable,
    unsupported_type,
)

BODY_NOT_JSON = malformed("body.not_json", "The body is not valid JSON.")
BODY_NOT_MULTIPART = malformed(
    "body.not_multipart", "Send multipart/form-data with one file in the part 'file'."
)
BODY_MALFORMED_FORM = malformed("body.malformed", "The form can't be read.")
BODY_MALFORMED_MULTIPART = malformed(
    "body.malformed",
    "The multipart body is malformed, incomplete, or has more than {most} parts.",
    most=100,
)
# Only a route that stores an upload while it arrives can distinguish a malformed body from a
# truncated body.
BODY_MALFORMED_UPLOAD = malformed("body.malformed", "The multipart body is malformed.")
BODY_CUT_SHORT = malformed("body.malformed", "The multipart body is incomplete.")
BODY_LENGTH_INVALID = malformed(
    "body.length_invalid", "The Content-Length header must be a number."
)
BODY_TOO_SLOW = stalled("body.too_slow", "The body arrived too slowly.")
BODY_TOO_MANY_UNFINISHED = rate_limited(
    "body.too_many_unfinished",
    "You are uploading too much data at the same time. Send one request at a time.",
    retry_after=5,
)
BODY_TOO_LARGE = too_large(
    "body.too_large", "The body of this request can have at most {most}.", most="2 MB"
)
BODY_TOO_COMPLEX = too_large(
    "body.too_complex",
    "The JSON body of this request can have at most {max_containers:,} arrays and objects, and "
    "{max_commas:,} commas outside of strings.",
    max_containers=20_000,
    max_commas=100_000,
)
BODY_ENCODING_UNSUPPORTED = unsupported_type(
    "body.encoding_unsupported", "The Content-Encoding of the body must be gzip or identity."
)
BODY_NO_JSON_TYPE = unsupported_type(
    "body.unsupported_type",
    "Send the body as JSON, with the header 'Content-Type: application/json'.",
)
BODY_NO_FORM_TYPE = unsupported_type("body.unsupported_type", "Send the body as a form.")
BODY_NO_JSON_OR_FORM_TYPE = unsupported_type(
    "body.unsupported_type", "Send the body as JSON or as a form."
)
BODY_INVALID = invalid(
    "body.invalid", "{place}: {rule}", place="body.name", rule="must be a string"
)
BODY_CHARACTER_INVALID = invalid("body.invalid", "A field contains a NUL character.")

REQUEST_INVALID = malformed(
    "request.invalid",
    "{place}: {rule}",
    place="query.limit",
    rule="must be at most 1000",
)
REQUEST_UNKNOWN = malformed(
    "request.unknown",
    "Unknown parameters or fields: {names}.",
    names="query.sort, body.members[0].tags",
)
OPTION_IN_BODY = malformed(
    "request.option_in_body",
    "The body can't contain {name}, because {name} is a query parameter. Add ?{name}=… to the URL.",
    field="body.{name}",
    name="dry_run",
)
REQUEST_TOO_SLOW = too_slow(
    "request.too_slow",
    "The server is busy: the request took longer than {seconds:g} seconds.",
    seconds=45,
)
REQUEST_FAILED = provider_failed(
    "request.failed", "The request failed because of an internal error."
)

PATH_TOO_LONG = path_too_long(
    "request.path_too_long", "The path of a URL can have at most {most} bytes.", most=2048
)

VERSION_UNKNOWN = malformed(
    "version.unknown",
    "The Pressroom-Version header must be one of {known}.",
    known="2026-11-21",
)
ROUTE_NOT_FOUND = not_found("route.not_found", "Not Found")
ROUTE_METHOD_NOT_ALLOWED = not_allowed("route.method_not_allowed", "Method Not Allowed")

QUEUE_UNAVAILABLE = unavailable(
    "queue.unavailable",
    "The queue is temporarily unavailable. Try again in a few seconds.",
    retry_after=1,
)
QUEUE_TOO_MANY_WAITERS = unavailable(
    "queue.too_many_waiters",
    "Too many requests are waiting for a worker. Try again in a few seconds.",
    retry_after=1,
)
QUEUE_OVERLOADED = unavailable(
    "queue.overloaded", "The workers are overloaded. Try again later.", retry_after=10
)
QUEUE_TOO_MANY_OF_YOURS = rate_limited(
    "queue.too_many_of_yours",
    "Too many of your requests are waiting for a worker. Try again later.",
    retry_after=10,
)
SERVICE_BUSY = unavailable(
    "service.busy",
    "Too many requests of this kind are in progress. Try again in a few seconds.",
    retry_after=1,
)
REQUESTS_TOO_MANY_OF_YOURS = rate_limited(
    "requests.too_many_of_yours",
    "Too many of your requests are in progress. Wait for responses before you send more requests.",
    retry_after=1,
)
SERVICE_UNAVAILABLE = unavailable(
    "service.unavailable",
    "The service is temporarily unavailable. Try again in a few seconds.",
    retry_after=1,
)
# ``reason`` names the server that a worker couldn't reach.
SERVICE_UNREACHABLE = unavailable(
    "service.unavailable", "{reason}", reason="object store: ConnectTimeoutError"
)
DATABASE_UNUSABLE = unavailable(
    "service.unavailable",
    "The database can't be used: {reason}",
    retry_after=1,
    reason="connection refused",
)

IDEMPOTENCY_KEY_INVALID = malformed(
    "idempotency.key_invalid", "An Idempotency-Key must have 16 to 255 printable ASCII characters."
)
IDEMPOTENCY_KEY_REUSED = invalid(
    "idempotency.key_reused",
    "This Idempotency-Key was used for a different request within the last 24 hours.",
)
IDEMPOTENCY_IN_PROGRESS = conflict(
    "idempotency.in_progress", "Another request with this Idempotency-Key is in progress."
)

RATE_LIMITED = rate_limited("rate.limited", "Too many requests. Try again later.")
CURSOR_INVALID = malformed(
    "cursor.invalid",
    "query.cursor must be the next_cursor of an earlier page.",
    field="query.cursor",
)
FILE_NOT_WRITTEN = malformed(
    "file.not_written", "{target}: {reason}", target="members.csv", reason="Permission denied"
)


def invalid_field(field: str, rule: str, code: str = "type") -> DomainError:
    return BODY_INVALID(place=field, rule=rule, problems=(FieldProblem(field, code, rule),))
