"""Creates payment orders that are months old, in any status."""

from core.ids import random_id
from devstack.harness.stack import Stack

DISPUTED = "disputes_minor = 5, disputed_minor = 5, dispute = 'open'"
_INSERT_ORDER = (
    "INSERT INTO payment_orders (id, user_id, status, changed_via, channel, currency, amount,"
    " amount_minor, credit_amount, credits_per_usd, units_per_usd, expires_at, created_at)"
    " VALUES (%s, %s, 'created', 'request', 'sandbox', 'USD', 5, 500, 500, 100, 1, now(),"
    " now() - make_interval(days => %s))"
)
_INSERT_EVENT = (
    "INSERT INTO payment_events (channel, event_id, type, order_id, facts, happened_at)"
    " VALUES ('sandbox', %s, 'x', %s, '{}', now())"
)


def create_old_order(
    stack: Stack, *assignments: str, days: int = 91, user_id: int | None = None
) -> int:
    """Create a payment order that has one payment event, and return the id of the order.

    ``assignments``: SQL assignments to columns of the order. Each assignment runs in a separate
        UPDATE, because each step of a real payment is a separate UPDATE.
    ``days``: the age of the order in days.
    ``user_id``: the owner of the order, or None if a person without an account ordered.
    """
    order_id = random_id()
    stack.query(_INSERT_ORDER, order_id, user_id, days)
    for assignment in assignments:
        stack.query(f"UPDATE payment_orders SET {assignment} WHERE id = %s", order_id)
    stack.query(_INSERT_EVENT, f"evt-{order_id}", order_id)
    return order_id
