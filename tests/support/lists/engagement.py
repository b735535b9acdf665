"""Writes engagement and answers into the database, as reports and readers' choices do."""

from datetime import date
from typing import Any

from devstack.harness.stack import Stack

Day = date | None
# The ready-made segment of the same name.
INACTIVE_FOR_90_DAYS: dict[str, Any] = {
    "all": [
        {"field": "measured_since", "at_most": {"days_ago": 90}},
        {"field": "last_delivered", "at_least": {"days_ago": 90}},
        {"field": "delivered", "at_least": 3},
        {
            "not": {
                "any": [
                    {"field": "last_opened", "at_least": {"days_ago": 90}},
                    {"field": "last_clicked", "at_least": {"days_ago": 90}},
                    {"field": "last_machine_opened", "at_least": {"days_ago": 90}},
                ]
            }
        },
    ]
}


def set_mode(stack: Stack, list_id: int, mode: str) -> None:
    stack.query("UPDATE lists SET engagement = %s WHERE id = %s", mode, list_id)


def record_engagement(
    stack: Stack,
    list_id: int,
    user_id: int,
    measured_since: date,
    *,
    numbers: tuple[int, int, int, int] = (0, 0, 0, 0),
    days: tuple[Day, Day, Day, Day] = (None, None, None, None),
) -> None:
    """Write the row of a member.

    ``numbers`` and ``days`` concern deliveries, opens, machine opens and clicks, in this order.
    """
    stack.query(
        "INSERT INTO member_engagement (list_id, user_id, measured_since, delivered, opens,"
        " machine_opens, clicks, last_delivered, last_opened, last_machine_opened, last_clicked)"
        " VALUES (%s, %s, %s, %s, %s, %s, %s, %s, %s, %s, %s)",
        *(list_id, user_id, measured_since),
        *numbers,
        *days,
    )


def answer(stack: Stack, list_id: int, user_id: int, *, is_allowed: bool) -> None:
    stack.query(
        "INSERT INTO engagement_answers (list_id, user_id, is_allowed) VALUES (%s, %s, %s)",
        *(list_id, user_id, is_allowed),
    )
