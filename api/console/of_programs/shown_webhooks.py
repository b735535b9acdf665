"""Webhook endpoints and their deliveries in words."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from api.console.of_programs.event_words import WORDS
from core import clock
from models import DeliveryStatus, EndpointState, WebhookDelivery, WebhookEndpoint
from services.feed.catalogue import FeedEventType
from services.webhooks.deliveries import TEST_TYPE

MAX_ANSWER_CHARACTERS = 200
_SOON = timedelta(minutes=1)
_STATES = {
    EndpointState.ACTIVE: "active",
    EndpointState.PAUSED: "paused",
    EndpointState.ENDED: "ended",
}


@dataclass(frozen=True)
class ShownEndpoint:
    """
    Attributes:
        list_title: of the list whose events alone it gets; ``None``: it gets all.
    """

    endpoint: WebhookEndpoint
    list_title: str | None

    @property
    def id(self) -> int:
        return self.endpoint.id

    @property
    def url(self) -> str:
        return self.endpoint.url

    @property
    def state(self) -> str:
        state = EndpointState(self.endpoint.state)
        if state is EndpointState.ACTIVE and self.endpoint.failing_since is not None:
            return "not reached"
        return _STATES[state]

    @property
    def is_active(self) -> bool:
        return self.endpoint.state == EndpointState.ACTIVE

    @property
    def has_ended(self) -> bool:
        return self.endpoint.state == EndpointState.ENDED

    @property
    def types(self) -> list[tuple[str, str]]:
        """Each with its words."""
        return [(kind, _words(kind)) for kind in self.endpoint.types]


@dataclass(frozen=True)
class ShownDelivery:
    delivery: WebhookDelivery

    @property
    def id(self) -> int:
        return self.delivery.id

    @property
    def words(self) -> str:
        return _words(self.delivery.event_type)

    @property
    def is_pending(self) -> bool:
        return self.delivery.status == DeliveryStatus.PENDING

    @property
    def state(self) -> str:
        if self.is_pending:
            return "is tried again" if self.delivery.round_attempts else "waits to be sent"
        return "delivered" if self.delivery.status == DeliveryStatus.DELIVERED else "given up"

    @property
    def due_at(self) -> datetime | None:
        return self.delivery.due_at if self.is_pending and self.delivery.round_attempts else None

    @property
    def is_soon(self) -> bool:
        """Whether it changes while a person looks."""
        return self.is_pending and self.delivery.due_at < clock.now() + _SOON

    @property
    def answer(self) -> str:
        """The status of the last answer, or why there was none."""
        last = self.delivery
        if last.status_code is None:
            return last.error or ("–" if last.last_attempt_at is None else "none")
        return f"{last.status_code}, in {last.milliseconds:,} ms"

    @property
    def body(self) -> str:
        """The beginning of what the receiver said."""
        written = (self.delivery.answer or b"").decode(errors="replace").strip()
        is_cut = len(written) > MAX_ANSWER_CHARACTERS
        return written[:MAX_ANSWER_CHARACTERS] + ("…" if is_cut else "")


def _words(kind: str) -> str:
    if kind == TEST_TYPE:
        return "A test"
    # One that a later release wrote is known by its name alone.
    return WORDS[FeedEventType(kind)] if kind in [*FeedEventType] else kind
