from datetime import UTC, datetime, timedelta

import pytest

from services.webhooks.claims import (
    ORDER_PERIOD,
    PAUSES,
    Choice,
    Pending,
    choose_deliveries,
    choose_delivery,
)
from services.webhooks.outcomes import MAX_REST, choose_rest
from services.webhooks.sending import MAX_BATCH_DELIVERIES, choose_batch_size

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
MAX_PENDING = 1_000


def make_pending(number: int, *, age: float, due_in: float = 0) -> Pending:
    """Return a delivery that was queued ``age`` seconds ago."""
    return Pending(number, NOW - timedelta(seconds=age), NOW + timedelta(seconds=due_in))


def test_webhook_retry_pauses_grow_for_an_hour_and_then_last_three_hours() -> None:
    expected = [5, 30, 120, 600, 1800, 3600, 10_800, 10_800, 10_800]
    for attempts, seconds in enumerate(expected, start=1):
        assert seconds <= PAUSES.choose(attempts).total_seconds() <= seconds * 1.1


def test_webhook_events_are_sent_in_order_until_the_oldest_has_waited_a_minute() -> None:
    failed_delivery = make_pending(1, age=59, due_in=100)
    choice = choose_delivery(
        [failed_delivery, make_pending(2, age=50)], NOW, max_pending=MAX_PENDING
    )
    assert choice == Choice(due_at=failed_delivery.queued_at + ORDER_PERIOD)
    old_delivery = make_pending(1, age=61, due_in=100)
    assert (
        choose_delivery(
            [old_delivery, make_pending(2, age=50)], NOW, max_pending=MAX_PENDING
        ).delivery_id
        == 2
    )


def test_new_webhook_events_are_sent_next_to_old_failures_up_to_the_pending_limit() -> None:
    failures = [make_pending(number, age=600, due_in=60 + number) for number in range(3)]
    choice = choose_delivery(failures, NOW, max_pending=4)
    assert choice == Choice(due_at=failures[0].due_at, takes_events=True)
    assert not choose_delivery(failures, NOW, max_pending=3).takes_events


def test_webhook_batch_contains_the_next_due_deliveries_in_order_up_to_its_limit() -> None:
    new_deliveries = [
        make_pending(1, age=9),
        make_pending(2, age=8),
        make_pending(3, age=7, due_in=1),
        make_pending(4, age=6),
    ]
    # The fourth delivery waits for the third, which isn't due yet.
    assert choose_deliveries(new_deliveries, NOW, limit=9) == [1, 2]
    assert choose_deliveries(new_deliveries, NOW, limit=1) == [1]
    old_deliveries = [
        make_pending(1, age=90, due_in=30),
        make_pending(2, age=80, due_in=-1),
        make_pending(3, age=70),
    ]
    assert choose_deliveries(old_deliveries, NOW, limit=9) == [2, 3]
    assert choose_deliveries([], NOW, limit=9) == []


@pytest.mark.parametrize(
    ("sent_count", "seconds", "size"),
    [
        (1, 0.1, 10),
        (10, 1.0, 10),
        (1, 15.0, 1),
        (1, 0.001, MAX_BATCH_DELIVERIES),
        (MAX_BATCH_DELIVERIES, 0.0, MAX_BATCH_DELIVERIES),
    ],
)
def test_webhook_batch_contains_the_deliveries_of_one_second(
    sent_count: int, seconds: float, size: int
) -> None:
    assert choose_batch_size(sent_count, seconds) == size


def test_webhook_endpoint_rests_start_at_the_second_timeout_and_grow_to_five_minutes() -> None:
    rests = [choose_rest(silences) for silences in range(8)]
    seconds = [None if rest is None else rest.total_seconds() for rest in rests]
    assert seconds == [None, None, 30, 60, 120, 240, 300, 300]
    assert choose_rest(1_000_000) == MAX_REST
