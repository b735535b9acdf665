"""The forms of a webhook endpoint, as the API's bodies."""

from collections.abc import Mapping

from api.console.typed_forms import TypedForm, body_of_form, text_or_none, wrong_field
from api.schemas.webhook_endpoints import NewWebhookEndpoint, WebhookEndpointChange
from core.refusals.webhooks import WEBHOOK_URL_NOT_ALLOWED
from models import EndpointState, WebhookEndpoint
from services.feed.catalogue import FeedEventType

# Beside which field a refusal stands that names none.
PLACES = {WEBHOOK_URL_NOT_ALLOWED.code: "url"}
BOX = "type."
STATES = (
    (EndpointState.ACTIVE.value, "Send events", "One that was paused gets what it missed."),
    (EndpointState.PAUSED.value, "Pause it", "Nothing is sent until you say so."),
)


def new_endpoint_body(form: Mapping[str, str]) -> NewWebhookEndpoint:
    """Raises ``body.invalid``."""
    chosen = text_or_none(form, "list_id")
    is_number = chosen is not None and chosen.isascii() and chosen.isdecimal()
    values = {
        "url": form.get("url", "").strip(),
        "types": _ticked(form),
        "list_id": int(chosen) if chosen is not None and is_number else chosen,
    }
    return body_of_form(NewWebhookEndpoint, values)


def endpoint_change_body(form: Mapping[str, str]) -> WebhookEndpointChange:
    """Raises ``body.invalid``."""
    state = form.get("state", "")
    if state not in [value for value, *_ in STATES]:
        raise wrong_field("state", "must be one of those that the page offers")
    values = {"url": form.get("url", "").strip(), "types": _ticked(form), "state": state}
    return body_of_form(WebhookEndpointChange, values)


def endpoint_form(endpoint: WebhookEndpoint) -> TypedForm:
    """The form of an endpoint as it is."""
    boxes = {BOX + kind: "on" for kind in endpoint.types}
    return TypedForm({"url": endpoint.url, "state": endpoint.state, **boxes})


def _ticked(form: Mapping[str, str]) -> list[str]:
    return [kind.value for kind in FeedEventType if BOX + kind in form]
