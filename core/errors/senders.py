"""Errors about senders, which are registered sources of reports such as bounces."""

from core.errors.catalogue import (
    conflict,
    forbidden,
    invalid,
    invalid_at,
    not_found,
    rate_limited,
    unauthenticated,
    unavailable,
)

SENDER_SIGNATURE_INVALID = unauthenticated(
    "sender.signature_invalid",
    "The signature, password or API key of the request isn't valid for this sender.",
)
SENDER_NOT_FOUND = not_found("sender.not_found", "There is no sender with this id.")
SENDER_TOO_MANY = conflict(
    "sender.too_many", "An account can have at most {most} senders.", most=20
)
SENDER_NEEDS_DELIVERY = forbidden(
    "sender.needs_delivery",
    "A sender with any_list requires an API key with the scope delivery for every list. Only the "
    "operator can create such a key.",
)
SENDER_KEY_INVALID = invalid_at(
    "body.{name}",
    "sender.key_invalid",
    "{rule}",
    name="public_key",
    rule="must be an ECDSA public key in base64 or PEM",
)
SENDER_TOPIC_INVALID = invalid_at(
    "body.topic_arn",
    "sender.topic_invalid",
    "{rule}",
    rule="must be the ARN of a standard topic of Amazon SNS",
)
_BUSY_CODE = "sender.busy"
_BUSY_SENTENCE = "Too many reports of this sender are waiting, or the service is unavailable."
SENDER_BUSY = rate_limited(_BUSY_CODE, _BUSY_SENTENCE, retry_after=30)
# Amazon SNS retries a request after a 503, but never after a 429.
SENDER_BUSY_FOR_SNS = unavailable(_BUSY_CODE, _BUSY_SENTENCE, retry_after=30)
REPORT_INVALID = invalid_at(
    "{place}", "report.invalid", "{rule}", place="data.reports[3].kind", rule="is required"
)
REPORT_TOO_MANY = invalid(
    "report.too_many", "A request can contain at most {most:,} reports.", most=1_000
)
REPORT_TRACE_ID_REFUSED = invalid_at(
    "{place}",
    "report.trace_id_refused",
    "must not contain a trace id, because it can act for the person; use the delivery id",
    place="data.reports[3].trace_id",
)
