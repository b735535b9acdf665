from dataclasses import dataclass

import pytest

from devstack.harness.stack import Stack
from integrations.receivers.client import Outcome
from models import WebhookEndpoint
from services.webhooks import outcomes

URL = "https://example.com/hook"
OK_STATUS = 200
REJECTED_STATUS = 422


@dataclass
class DeliveryAttempts:
    """Queues webhook deliveries for one endpoint, and records the response to each attempt."""

    stack: Stack
    endpoint_id: int

    def queue(self, *, hours_ago: float) -> int:
        [(delivery_id,)] = self.stack.query(
            "INSERT INTO webhook_deliveries (endpoint_id, event_type, queued_at)"
            " VALUES (%s, 'webhook.test', now() - make_interval(mins => %s)) RETURNING id",
            *(self.endpoint_id, int(hours_ago * 60)),
        )
        assert isinstance(delivery_id, int)
        return delivery_id

    def write(self, delivery_id: int, status: int) -> None:
        """Record the response to a delivery attempt that starts now."""
        self.stack.query(
            "UPDATE webhook_deliveries SET last_attempt_at = now() WHERE id = %s", delivery_id
        )
        with self.stack.resources.unit_of_work() as uow:
            endpoint = uow.session.get_one(WebhookEndpoint, self.endpoint_id, with_for_update=True)
            outcomes.record_outcomes(uow, endpoint, URL, {delivery_id: Outcome(80, status)})

    def pass_time(self, *, hours: float) -> None:
        """Move all recorded times of the endpoint back by ``hours`` hours."""
        minutes = int(hours * 60)
        self.stack.query(
            "UPDATE webhook_endpoints SET"
            " failing_since = failing_since - make_interval(mins => %s) WHERE id = %s;"
            "UPDATE webhook_deliveries SET queued_at = queued_at - make_interval(mins => %s)"
            " WHERE endpoint_id = %s",
            *(minutes, self.endpoint_id, minutes, self.endpoint_id),
        )

    @property
    def endpoint(self) -> tuple[object, object]:
        """The state of the endpoint, and whether the endpoint is failing."""
        [(state, is_failing)] = self.stack.query(
            "SELECT state, failing_since IS NOT NULL FROM webhook_endpoints WHERE id = %s",
            self.endpoint_id,
        )
        return state, is_failing

    def status(self, delivery_id: int) -> object:
        query = "SELECT status FROM webhook_deliveries WHERE id = %s"
        [(status,)] = self.stack.query(query, delivery_id)
        return status


@pytest.fixture
def attempts(empty_stack: Stack) -> DeliveryAttempts:
    owner = empty_stack.create_owner()
    [(endpoint_id,)] = empty_stack.query(
        "INSERT INTO webhook_endpoints (user_id, url, types, place, event_id)"
        " VALUES (%s, %s, '{subscription.created}', 0, 0) RETURNING id",
        *(owner.user_id, URL),
    )
    assert isinstance(endpoint_id, int)
    return DeliveryAttempts(empty_stack, endpoint_id)


def test_webhook_endpoint_is_paused_after_its_only_event_fails_for_72_hours(
    attempts: DeliveryAttempts,
) -> None:
    delivery_id = attempts.queue(hours_ago=0)
    attempts.write(delivery_id, REJECTED_STATUS)
    attempts.pass_time(hours=71)
    attempts.write(delivery_id, REJECTED_STATUS)
    assert (attempts.endpoint, attempts.status(delivery_id)) == (("active", True), "pending")
    attempts.pass_time(hours=1)
    attempts.write(delivery_id, REJECTED_STATUS)
    assert (attempts.endpoint, attempts.status(delivery_id)) == (("paused", True), "failed")


def test_failing_webhook_endpoint_is_paused_after_72_hours_despite_a_given_up_event(
    attempts: DeliveryAttempts,
) -> None:
    """Pressroom pauses the endpoint an hour after the last attempt to send the first event.

    An event is retried until 72 hours after it was queued. A process was killed during the first
    attempt to send the event, so the first failure was recorded an hour after the event was queued.
    """
    first_id = attempts.queue(hours_ago=1)
    attempts.write(first_id, REJECTED_STATUS)
    attempts.pass_time(hours=1)
    second_id = attempts.queue(hours_ago=0)
    attempts.write(second_id, REJECTED_STATUS)
    attempts.pass_time(hours=70)
    attempts.write(first_id, REJECTED_STATUS)
    assert (attempts.endpoint, attempts.status(first_id)) == (("active", True), "failed")
    attempts.pass_time(hours=1)
    attempts.write(second_id, REJECTED_STATUS)
    assert attempts.endpoint == ("paused", True)


def test_webhook_endpoint_that_also_succeeds_is_not_paused_by_one_failed_event(
    attempts: DeliveryAttempts,
) -> None:
    failing_id = attempts.queue(hours_ago=1)
    attempts.write(attempts.queue(hours_ago=0), OK_STATUS)
    attempts.write(failing_id, REJECTED_STATUS)
    attempts.pass_time(hours=71)
    attempts.write(failing_id, REJECTED_STATUS)
    assert (attempts.endpoint, attempts.status(failing_id)) == (("active", False), "failed")
    attempts.pass_time(hours=100)
    attempts.write(attempts.queue(hours_ago=0), REJECTED_STATUS)
    assert attempts.endpoint == ("active", True)
