"""Errors about webhook endpoints and deliveries."""

from core.errors.catalogue import conflict, invalid, invalid_at, not_found

WEBHOOK_URL_NOT_ALLOWED = invalid_at(
    "url", "webhook.url_not_allowed", "must be a URL that {rule}.", rule="begins with https://"
)
WEBHOOK_ENDPOINT_NOT_FOUND = not_found(
    "webhook.endpoint_not_found", "There is no such webhook endpoint."
)
WEBHOOK_DELIVERY_NOT_FOUND = not_found(
    "webhook.delivery_not_found", "There is no such delivery of this endpoint."
)
WEBHOOK_TOO_MANY = conflict(
    "webhook.too_many_endpoints", "An account has at most {most} webhook endpoints.", most=20
)
WEBHOOK_NOT_ACTIVE = conflict(
    "webhook.not_active", "The endpoint is {state}: nothing is sent to it.", state="paused"
)
WEBHOOK_ENDED = conflict("webhook.ended", "The endpoint has ended; make another one in its place.")
WEBHOOK_TOO_MANY_PENDING = conflict(
    "webhook.too_many_pending",
    "{most:,} deliveries of the endpoint wait already: what you ask for has to wait for them.",
    most=2_000,
)
WEBHOOK_TOO_MANY_SECRETS = conflict(
    "webhook.too_many_secrets",
    "The endpoint has {most} secrets that sign; each ends a day after the one that replaced it.",
    most=10,
)
LISTEN_REFUSED = invalid(
    "listen.refused", "The API answers {status}: {message}", status=401, message="Send an API key."
)
WEBHOOK_EVENT_GONE = conflict("webhook.event_gone", "The event of this delivery is no longer kept.")
