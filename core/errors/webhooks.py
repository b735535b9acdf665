"""Errors about webhook endpoints and deliveries."""

from core.errors.catalogue import conflict, invalid, invalid_at, not_found

WEBHOOK_URL_NOT_ALLOWED = invalid_at(
    "body.url", "webhook.url_not_allowed", "{rule}", rule="must start with https://"
)
WEBHOOK_ENDPOINT_NOT_FOUND = not_found(
    "webhook.endpoint_not_found", "There is no webhook endpoint with this id."
)
WEBHOOK_DELIVERY_NOT_FOUND = not_found(
    "webhook.delivery_not_found", "There is no delivery with this id for the webhook endpoint."
)
WEBHOOK_TOO_MANY = conflict(
    "webhook.too_many_endpoints", "An account can have at most {most} webhook endpoints.", most=20
)
WEBHOOK_NOT_ACTIVE = conflict(
    "webhook.not_active", "The webhook endpoint is {state} and receives no events.", state="paused"
)
WEBHOOK_ENDED = conflict(
    "webhook.ended", "This webhook endpoint is permanently disabled. Create a new webhook endpoint."
)
WEBHOOK_TOO_MANY_PENDING = conflict(
    "webhook.too_many_pending",
    "The webhook endpoint already has {most:,} pending deliveries. Try again later.",
    most=2_000,
)
WEBHOOK_TOO_MANY_SECRETS = conflict(
    "webhook.too_many_secrets",
    "The webhook endpoint has {most} active secrets. A replaced secret expires after one day. Try "
    "again later.",
    most=10,
)
LISTEN_REFUSED = invalid(
    "listen.refused",
    "The API responded with {status}: {message}",
    status=401,
    message="Send an API key.",
)
WEBHOOK_EVENT_GONE = conflict("webhook.event_gone", "The event of this delivery has been deleted.")
